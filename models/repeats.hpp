// Recomputation by op names: which ops of a layer are done again in the backward pass instead of keeping what they made.
//
// A name is an op's ("attn/core"), the first part of several ("mlp" is mlp/up, mlp/act and mlp/down) or a kind ("activation"). An op that works in
// place on the output of a repeated one (rotation, query and key norms, adapters) is repeated with it. Scores and selections of routers are
// replayed, never made again, and what the next layer reads is kept anyway.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/names.hpp"
#include "models/scenario.hpp"

namespace fathom {

// The names of a policy, and whether the model had such ops. One per model.
class RepeatPolicy {
 public:
  explicit RepeatPolicy(const Scenario& scenario);
  bool empty() const { return items_.empty(); }
  // Whether an op is named, if it can be repeated (`why` says why not).
  bool wants(const std::string& leaf, std::string_view kind, const char* why);
  // Throws Error(kInput) about the first name that no op could follow.
  void check() const;

 private:
  struct Item {
    std::string name;
    bool followed = false;
    std::string why_not;
  };
  std::vector<Item> items_;
  std::vector<std::string> leaves_;  // for hints
};

// A forward op that is not kept.
struct Repeat {
  std::function<void(const Operands& inputs, const Operands& outputs)> emit;
  Operands inputs, outputs;
  bool done = false;
};

// Those of one tape.
class Repeats {
 public:
  void follow(RepeatPolicy* policy) { policy_ = policy; }
  bool active() const { return policy_ != nullptr; }
  template <class Spec, class Emission>
  void note(const Name& leaf, const Spec& spec, const Operands& inputs, const Operands& outputs, Emission&& emission) {
    if (takes(leaf.str(), OpSpec(spec), outputs)) list_.push_back({std::forward<Emission>(emission), inputs, outputs});
  }
  // The repeated ops that wrote this tensor, in order.
  std::vector<Repeat*> writers(const Operand& at);
  void start() {
    for (Repeat& each : list_) each.done = false;
  }

 private:
  bool takes(const std::string& leaf, const OpSpec& spec, const Operands& outputs);

  RepeatPolicy* policy_ = nullptr;
  std::vector<Repeat> list_;
  std::vector<Operand> written_;  // by any op so far
};

}  // namespace fathom
