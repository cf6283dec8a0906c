// A routing map reduced to a number of columns that can be drawn.
#pragma once

#include <cstddef>
#include <vector>

#include "reports/plot.hpp"

namespace fathom {

struct RoutingGrid {
  std::size_t tokens_per_cell = 1;          // the last cell may hold fewer
  std::vector<std::vector<double>> shares;  // [block][cell]: share of the cell's tokens that the block processed
  std::vector<bool> full;                   // [block]: the block is not routed
  std::vector<double> participation;        // [block]: share over all tokens
};

// Groups neighbouring tokens so that a row has at most `max_cells` cells.
RoutingGrid bucket(const RoutingMap::Frame& frame, std::size_t max_cells);

}  // namespace fathom
