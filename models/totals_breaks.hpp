// Where the sums of a configuration stop being polynomials in its sizes: the side of every minimum that it lies on, and every number that is rounded.
//
// Cost rules multiply and add sizes. Beside that a count takes the smaller of two (a window and the keys there are, experts and the rows that choose them), rounds
// (slots of a capacity, chunks, keys that a part of the queries sees), and leaves ops out (a size of 0). Two configurations that agree in all of these have sums of one
// polynomial in whatever size they differ in, so that a few of them give the others (models/totals_line.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

// Sets `into` to one number per choice, in a fixed order for networks with the same number of kinds. Not for Phase::kGenerate.
void breaks_of(const Network& network, const Scenario& scenario, std::vector<std::int64_t>& into);

// The same where only the length of a prefill or training step differs. Slots round(rho S) with rho = p / q grow by p from S to S + q, whatever the rounding, and so all sums are
// polynomials in the lengths of one residue class of this period, from one break to the next. 0: there is no such period, or one above `longest`.
std::int64_t length_period(const Network& network, const Scenario& scenario, std::int64_t longest);
void length_breaks(const Network& network, const Scenario& scenario, std::vector<std::int64_t>& into);
// Whether this length, which may be far from those met, lies before the next break: its breaks are `breaks`.
bool before_break(const Network& network, const Scenario& scenario, const std::vector<std::int64_t>& breaks);

// Whether rows are chosen by rank: as many as there are slots.
bool ranked(const Scenario& scenario);

}  // namespace fathom
