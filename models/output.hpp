// Where emitted ops go: into a Workload, or, when only totals are wanted, straight into sums.
//
// The emission code is the same for all. A list that is only predicted needs no names and is made in the memory of the one before. Counting makes no tensors, names or operand lists, which is what makes a sweep over hundreds of
// thousands of configurations possible; the sums are those of the list that would have been built (a test compares them).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lib/cost_rules.hpp"
#include "lib/workload.hpp"
#include "models/names.hpp"
#include "models/totals.hpp"

namespace fathom {

class Output {
 public:
  Output() = default;
  // What is kept of expectations besides their sum: what changes with the batch, what with the context (of a decode step), or both.
  enum class Keep : std::uint8_t { kSum, kBatch, kContext };
  explicit Output(bool expectations, Keep keep = Keep::kSum) : counting_(true), keep_(expectations ? keep : Keep::kSum), expectations_(expectations) {
    blocks_.reserve(16);
  }
  // A list without names in the memory of `list`, which must outlive this; restarts it.
  explicit Output(WorkloadBuilder& list) : bare_(true), in_place_(&list) { list.restart(); }

  bool counting() const { return counting_; }
  bool named() const { return !counting_ && !bare_; }
  TensorId tensor(const std::string& prefix, const Name& name, Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype) {
    if (counting_) return next_++;
    if (bare_) return in_place_->tensor_in_place(role, scope, rows, cols, dtype);
    return list_.tensor(prefix + name.str(), role, scope, rows, cols, dtype);
  }
  const Tensor& at(TensorId id) const { return bare_ ? in_place_->at(id) : list_.at(id); }  // not when counting
  WorkloadBuilder& list() { return bare_ ? *in_place_ : list_; }

  int begin_block(const std::string& label, bool layered) {
    if (!counting_) return list().begin_block(label, layered);
    blocks_.emplace_back();
    return static_cast<int>(blocks_.size() - 1);
  }
  template <class Spec>
  void op(const Name& leaf, Part part, Pass pass, const Spec& spec, const Operands& inputs, const Operands& outputs) {
    if (counting_) {
      count(part, pass, spec);
    } else if (bare_) {
      Operand in[Operands::kMost], out[Operands::kMost];
      const std::size_t ins = inputs.copy(in), outs = outputs.copy(out);
      in_place_->op_in_place(part, pass, spec, in, ins, out, outs);
    } else {
      list_.op(leaf.str(), part, pass, spec, inputs.list(), outputs.list());
    }
  }
  // The same with lists of any length.
  template <class Spec>
  void op_list(const char* leaf, Part part, Pass pass, const Spec& spec, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
    if (counting_)
      count(part, pass, spec);
    else if (bare_)
      in_place_->op_in_place(part, pass, spec, inputs.data(), inputs.size(), outputs.data(), outputs.size());
    else
      list_.op(leaf, part, pass, spec, inputs, outputs);
  }
  void step(int block, int layer, int weights, int micro) {
    if (counting_)
      ++blocks_[static_cast<size_t>(block)].uses;
    else
      list().step(block, layer, weights, micro);
  }
  ListTotals totals() const;
  // What was kept, by block. False where other batches do not follow from it: more than rows changes (experts).
  bool expectations(std::vector<BlockExpectation>& into) const;
  // Counting: no op had a number of weight sets that still grows nor, with expectations, random rows, so that every sum is affine in this batch and larger ones.
  bool linear() const { return linear_; }

 private:
  struct BlockSums {
    std::vector<BlockExpectation::Random> kept;
    std::int64_t uses = 0;
    bool any_random = false;
    Cost fixed;              // of ops without anything random
    Cost random;             // declared, of the others
    ExpectedCost expected;   // of the others
    std::array<u128, kPartCount> parts{};
    std::array<u128, 4> passes{};
  };
  // is_random() of a known kind, without making an OpSpec.
  template <class Spec>
  static bool has_chance(const Spec& spec) {
    if constexpr (std::is_same_v<Spec, Gemm>) return spec.rows.routed() || spec.experts > 1;
    else if constexpr (std::is_same_v<Spec, Attention>) return spec.rows.routed() || spec.expected_pairs >= 0;
    else if constexpr (std::is_same_v<Spec, AttentionBackward>) return spec.forward.rows.routed() || spec.forward.expected_pairs >= 0;
    else if constexpr (std::is_same_v<Spec, Select>) return spec.selected.routed();
    else if constexpr (std::is_same_v<Spec, RouterScoreBackward>) return spec.weight_rows.routed();
    else if constexpr (requires { spec.forward.rows; }) return spec.forward.rows.routed();
    else if constexpr (requires { spec.rows; }) return spec.rows.routed();
    else return false;
  }
  static bool by_rows(const OpSpec& spec);
  static BlockExpectation::Random kept(const OpSpec& spec);
  template <class Spec>
  void count(Part part, Pass pass, const Spec& spec) {
    BlockSums& block = blocks_.back();
    const bool chance = has_chance(spec);
    // Declared rows, pairs and keys are numbers per sequence whatever is random about them. A grouped product without a limit per expert reads min(experts, rows) sets: all
    // of them once there are as many rows, in larger batches too.
    bool settled = !expectations_;
    if constexpr (std::is_same_v<Spec, Gemm>) settled = settled && (spec.experts <= 1 || (spec.capacity == 0 && spec.rows.count >= spec.experts));
    linear_ = linear_ && (!chance || settled);
    const bool random = expectations_ && chance;
    block.any_random = block.any_random || random;
    Cost& sum = random ? block.random : block.fixed;
    const u128 before = sum.flops.value();
    add_declared(spec, sum);
    const u128 flops = sum.flops.value() - before;
    if (flops > 0) {
      block.parts[static_cast<size_t>(part)] += flops;  // at most sum.flops, which is checked
      block.passes[static_cast<size_t>(pass)] += flops;
    }
    if (!random) return;
    const OpSpec op = spec;
    const bool rows = by_rows(op);
    by_rows_ = by_rows_ && rows;
    if (keep_ == Keep::kContext || (keep_ == Keep::kBatch && by_rows_)) {
      BlockExpectation::Random& last = block.kept.emplace_back();
      if (rows) last = kept(op);
      last.by_rows = rows;
      last.cost = rows ? expected_at(last.units, last.rows, last.sequences, last.pairs, last.keys) : expected_cost(op);
      block.expected += last.cost;
    } else {
      block.expected += expected_cost(op);
    }
  }

  bool counting_ = false;
  bool bare_ = false;
  Keep keep_ = Keep::kSum;
  bool by_rows_ = true;  // every random op so far changes with its rows alone
  bool expectations_ = false;
  bool linear_ = true;
  TensorId next_ = 0;
  std::vector<BlockSums> blocks_;
  WorkloadBuilder list_;
  WorkloadBuilder* in_place_ = nullptr;
};

}  // namespace fathom
