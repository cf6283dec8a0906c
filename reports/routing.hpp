// Which token took which block: the routing of the first sequence of a run, as a record keeps it and reports show it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/document.hpp"

namespace fathom {

class JsonWriter;
class JsonValue;

struct RoutingRecord {
  struct Layer {
    int layer = 0;
    bool routed = false;
    std::string taken;             // one '1' or '0' per token; empty for a block that every token takes
    std::vector<double> weights;   // router score per token; not part of the saved record
  };
  std::int64_t tokens = 0;
  std::vector<Layer> layers;
  std::vector<std::string> labels;  // of the tokens; may be empty; not saved
  // Histogram of the router scores of all routed blocks: equal bins from `low` to `high`.
  double low = 0, high = 0;
  std::vector<std::uint64_t> counts;

  void make_histogram();  // from the weights
  bool empty() const { return layers.empty(); }
};

// The map, participation per block, histogram of router weights (log10 of counts).
void add_routing(Document& document, const RoutingRecord& routing, const std::string& label, const std::string& key_suffix = "");

// The object "routing" of a result. Reading throws Error(kInput) when it contradicts itself.
void write_routing(JsonWriter& json, const RoutingRecord& routing);
RoutingRecord read_routing(const JsonValue& object);

}  // namespace fathom
