// What the routers of an executed step did: who took which block, with what weight, and how often which kind of token did.
#pragma once

#include <cstdint>
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

// What later tokens of the sequence did, after those before them: a decode step after the prompt. The layers are the same.
void append(std::vector<LayerRouting>& layers, const std::vector<LayerRouting>& later);

// Labels of the tokens, and how often each class of them took the routed blocks. A token is its byte; numbers past the bytes are of no class.
void add_text(RoutingRecord& routing, const std::vector<std::int32_t>& tokens, const std::vector<TokenClass>& classes);

}  // namespace fathom
