// Nelder-Mead simplex search: no gradients, few parameters, a rough objective.
#pragma once

#include <functional>
#include <vector>

namespace fathom::gpu {

struct SimplexResult {
  std::vector<double> x;
  double value = 0;
  int evaluations = 0;
};

// Minimises `objective` from `start` with initial edge `step` per coordinate. The simplex restarts at the best point when
// it has collapsed and evaluations are left. Deterministic.
SimplexResult nelder_mead(const std::function<double(const std::vector<double>&)>& objective, std::vector<double> start,
                          const std::vector<double>& step, int max_evaluations);

}  // namespace fathom::gpu
