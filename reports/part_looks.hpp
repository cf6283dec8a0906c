// How each part of the model is drawn: one colour, and one fill on a terminal, in every plot of every report.
//
// A reader who has learned that attention is vermillion in one report finds it vermillion in the next, whatever else is in it. The palette has eight colours that
// colour-blind readers tell apart (Okabe and Ito without yellow); the parts that take most of the time have one each, the others share one with a part they belong
// to and are hatched. What is summed up as "other" is grey.
#pragma once

#include <cstddef>
#include <string_view>

namespace fathom {

inline constexpr int kPlainLooks = 8;                       // looks 0 ... 7: plain colours; 8 ... 15: the same, hatched
inline constexpr int kOtherLook = 2 * kPlainLooks;          // the neutral grey
inline constexpr int kLooks = kOtherLook + 1;

// The look of a part by its name ("ffn"); kOtherLook for names that are no part.
int part_look(std::string_view part);

// The palette's colour of a look, 0 ... 7; whether it is hatched. Not for kOtherLook.
constexpr int look_colour(int look) { return look % kPlainLooks; }
constexpr bool look_hatched(int look) { return look >= kPlainLooks && look < kOtherLook; }

// One character per look, told apart without colour.
std::string_view look_fill(int look, bool unicode);

}  // namespace fathom
