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
    std::vector<double> weights;   // router score per token; saved where `complete`
    double participation(std::int64_t tokens) const;  // share of the tokens that took the block; 0 where there are none
  };
  // How often tokens of one kind took the routed blocks.
  struct ClassShare {
    std::string name;
    std::int64_t tokens = 0;       // of this kind
    double participation = 0;      // mean over them and the routed blocks
  };
  std::int64_t tokens = 0;
  std::int64_t prompt = 0;           // of a generation: its first tokens are the prompt, the others were generated; 0: nothing was generated
  std::vector<Layer> layers;
  std::vector<std::string> labels;   // of the tokens; may be empty; saved where `complete`
  std::vector<ClassShare> classes;   // may be empty
  bool complete = false;             // every single score and label is part of the saved record: a trace, not a measurement
  // Histogram of the router scores of all routed blocks: equal bins from `low` to `high`.
  double low = 0, high = 0;
  std::vector<std::uint64_t> counts;

  void make_histogram();  // from the weights
  bool empty() const { return layers.empty(); }
};

// The map, participation per block, histogram of router weights (log10 of counts), participation per token class.
void add_routing(Document& document, const RoutingRecord& routing, const std::string& label, const std::string& key_suffix = "");

// One row per block and token: `block`, `token`, `token_text` where tokens have labels, `generated` of a generation, `routed`, `taken`, `router_weight`.
ReportTable routing_table(const RoutingRecord& routing);

// The object "routing" of a result. Reading throws Error(kInput) when it contradicts itself.
void write_routing(JsonWriter& json, const RoutingRecord& routing);
RoutingRecord read_routing(const JsonValue& object);

}  // namespace fathom
