#include "reports/part_looks.hpp"

#include <algorithm>
#include <array>

namespace fathom {
namespace {

// By look: blue, vermillion, green, purple, orange, sky, brown, grey; then, hatched, what belongs to them.
constexpr std::array<std::string_view, kOtherLook> kParts = {"projections", "core",     "ffn",       "router",  "experts", "logits",    "norm",     "optimizer",
                                                             "adapter",     "kv_cache", "predictor", "routing", "mtp",     "embedding", "residual", "loss"};

constexpr std::array<std::string_view, kLooks> kUnicode = {"█", "▒", "▓", "░", "▚", "▞", "▤", "▥", "▦", "▧", "▨", "▩", "◆", "◇", "●", "○", "·"};
constexpr std::array<std::string_view, kLooks> kAscii = {"#", "=", "+", "-", "%", "o", "x", ".", "*", "@", "&", "$", "~", "^", ":", "?", "'"};

}  // namespace

int part_look(std::string_view part) { return static_cast<int>(std::find(kParts.begin(), kParts.end(), part) - kParts.begin()); }

std::string_view look_fill(int look, bool unicode) { return (unicode ? kUnicode : kAscii)[static_cast<std::size_t>(look) % kLooks]; }

}  // namespace fathom
