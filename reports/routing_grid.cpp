#include "reports/routing_grid.hpp"

#include <algorithm>

namespace fathom {

RoutingGrid bucket(const RoutingMap::Frame& frame, std::size_t max_cells) {
  RoutingGrid grid;
  const std::size_t tokens = frame.states.empty() ? 0 : frame.states[0].size();
  grid.tokens_per_cell = std::max<std::size_t>(1, (tokens + max_cells - 1) / std::max<std::size_t>(1, max_cells));
  for (const auto& row : frame.states) {
    std::vector<double> shares;
    std::size_t processed = 0;
    for (std::size_t start = 0; start < row.size(); start += grid.tokens_per_cell) {
      const std::size_t end = std::min(start + grid.tokens_per_cell, row.size());
      std::size_t passed = 0;
      for (std::size_t t = start; t < end; ++t) passed += row[t] != RoutingMap::State::kSkipped ? 1 : 0;
      processed += passed;
      shares.push_back(static_cast<double>(passed) / static_cast<double>(end - start));
    }
    grid.shares.push_back(std::move(shares));
    grid.full.push_back(
        std::all_of(row.begin(), row.end(), [](RoutingMap::State s) { return s == RoutingMap::State::kFull; }));
    grid.participation.push_back(row.empty() ? 0 : static_cast<double>(processed) / static_cast<double>(row.size()));
  }
  return grid;
}

}  // namespace fathom
