// Generations as rows of a sweep: what `fathom count --phase generate` adds up, without making the lists.
#pragma once

#include <cstdint>
#include <optional>

#include "models/totals_memo.hpp"

namespace fathom {

class GenerationMemo {
 public:
  // The sums (declared and, with `expectations`, expected) of the prefill and the tokens - 1 decode steps, in the order in which count_generation() adds them, so
  // that expectations are the same to the last digit. Goes on from the generation before where only the number of tokens rose. `network_id` tells networks apart.
  // Parts and passes are left out.
  const ListTotals& totals(const Network& network, std::uint64_t network_id, const Scenario& scenario, bool expectations);

 private:
  TotalsMemo prefills_, steps_;
  std::uint64_t id_ = 0;
  std::optional<Scenario> scenario_;  // of sums_
  bool expectations_ = false;
  ListTotals sums_;
};

}  // namespace fathom
