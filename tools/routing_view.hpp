// What the routers of an executed step did: who took which block, with what weight, and how often which kind of token did.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/backend.hpp"
#include "reports/routing.hpp"

namespace fathom {

// One routed (or full) layer of the first sequence.
struct LayerRouting {
  int layer = 0;
  bool routed = false;
  std::vector<bool> taken;      // per token
  std::vector<double> weights;  // router score per token; empty for full layers
};

// Runs one pass op by op and reads each selection of sequence 0 as it is made.
std::vector<LayerRouting> run_and_read_routing(Execution& execution, std::int64_t tokens);

// The same as a record keeps it.
RoutingRecord routing_record(const std::vector<LayerRouting>& layers);

// Token classes: name and the bytes that belong to it. The built-in ones are space, digits, letters, punctuation, other.
struct TokenClass {
  std::string name;
  std::string members;
};
std::vector<TokenClass> builtin_classes();
// Lines "name members"; members are the bytes themselves, \s for space, \n, \t, \\ as usual. Throws Error(kInput) with file and line.
std::vector<TokenClass> read_classes(const std::string& path);

// The map, a histogram of router weights (log10 of counts), participation per block and per token class.
void add_routing_view(Document& document, const std::vector<LayerRouting>& layers, const std::string& text, const std::vector<TokenClass>& classes, const std::string& label);

// One row per block and token of the first sequence: for programs, beside the map.
ReportTable routing_table(const std::vector<LayerRouting>& layers, const std::string& text);

}  // namespace fathom
