// From one op of the program to the calls that execute it: arguments are computed once, when a workload is bound, and replayed every run.
//
// Lowering touches no device: it computes addresses and launch shapes. Done with null bases it tells how much memory beside the arena a
// workload needs; done again with real ones it makes the calls. What only a run knows (row counts, the optimizer's step, thresholds) is taken
// from RunState by the calls that need it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/module.hpp"
#include "kernels/cuda_host/loader.hpp"
#include "kernels/program.hpp"

namespace fathom::cuda {

// Consecutive pieces of one allocation, each aligned to 256 bytes. With a null base it only counts.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::byte* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t count) {
    T* piece = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + 255) / 256 * 256;
    return piece;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0;
};

// What a Select leaves for the ops of its block beside the tensors of the op list. It lives as long as the workload is bound, because the backward
// pass reads it.
struct SelectionBuffers {
  const Select* select = nullptr;
  int index = 0;                     // BoundOp::selection
  bool fixed = true;                 // every sequence takes the same number of rows
  std::int32_t* offsets = nullptr;   // [sequences + 1]
  std::int32_t* inverse = nullptr;   // [sequences * length]
  std::int32_t* rest_count = nullptr;  // one number: rows that were not chosen
};
// The same of an ExpertSelect.
struct AssignedBuffers {
  const ExpertSelect* select = nullptr;
  OperandView offsets;               // [experts + 1]
  std::int32_t* chosen = nullptr;    // [tokens, picks]
  float* chosen_weights = nullptr;
  std::int32_t* slots = nullptr;
  std::int32_t* kept_offsets = nullptr;  // of all expert selections one after the other: read once, behind the pass
};

// What a run knows, and what it learns.
struct RunState {
  const Module* module = nullptr;
  Device* device = nullptr;
  std::int64_t optimizer_step = 0;
  bool host_rows = true;     // false: rows are the declared ones (a captured graph); kernels read the real count on the device
  bool capturing = false;    // nothing may wait
  float threshold = 0;       // of the selection that the op makes
  std::int64_t rows = 0;     // of the op, as far as the host knows them
  double padded_flops = 0;   // set by products: executed on the device, tile padding included
  std::map<int, std::vector<std::int32_t>> counts;   // by BoundOp::selection: rows per sequence, where a threshold decides
};
using Call = std::function<void(RunState&)>;

// Memory that lives as long as the workload is bound, with contents that are known when it is bound.
struct Constants {
  Pieces pieces;
  std::vector<std::pair<void*, std::vector<std::byte>>> contents;
  template <class T>
  T* add(const std::vector<T>& values) {
    T* place = pieces.take<T>(static_cast<std::int64_t>(values.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    contents.emplace_back(place, std::vector<std::byte>(bytes, bytes + values.size() * sizeof(T)));
    return place;
  }
};

// A planned product, and what one run of it executes.
struct PlannedProduct {
  std::int32_t plan = -1;
  double flops = 0;
};

// Everything that lowering an op needs to know about the workload around it.
struct LoweringContext {
  const Workload* workload = nullptr;
  const BindOptions* options = nullptr;
  std::map<TensorInstance, SelectionBuffers> selections;  // by the indices that the Select writes
  std::map<TensorInstance, AssignedBuffers> assigned;     // by the permutation that the ExpertSelect writes
  std::map<int, TensorInstance> assigned_by_index;        // BoundOp::assigned -> permutation
  std::map<std::pair<double, std::int64_t>, const float*> rope_tables;
  std::int32_t* offsets = nullptr;                        // of all selections, one after the other
  std::int64_t offset_count = 0;
  std::int32_t* expert_offsets = nullptr;                 // of all expert selections
  std::int64_t expert_offset_count = 0;
  std::int32_t* flags = nullptr;                          // one per instance: not 0 when its kernel met what it cannot do
  const float* ones = nullptr;                            // for bias gradients
  int multiprocessors = 132;                              // of the device, for splits of decode attention
  Constants constants;
  std::function<PlannedProduct(const Matmul&)> plan;      // finds an algorithm; {-1, 0} while only sizes are asked for
};
// Fills selections, assigned, rope tables, flags and ones for a bound program.
void prepare_context(LoweringContext& context, const std::vector<const BoundOp*>& program);

class Lowering {
 public:
  Lowering(LoweringContext& context, const BoundOp& bound, int instance, std::byte* scratch)
      : context_(context), bound_(bound), instance_(instance), scratch_(scratch) {}

  // Makes the calls of the bound op.
  void lower();
  std::vector<Call> take_calls() { return std::move(calls_); }
  std::int64_t scratch_bytes() const { return scratch_.bytes(); }

  void operator()(const Embedding& op);
  void operator()(const RmsNorm& op);
  void operator()(const LayerNorm& op);
  void operator()(const Gemm& op);
  void operator()(const Rope& op);
  void operator()(const Attention& op);
  void operator()(const KvAppend& op);
  void operator()(const Activation& op);
  void operator()(const AddResidual& op);
  void operator()(const RouterScore& op);
  void operator()(const Select& op);
  void operator()(const GatherRows& op);
  void operator()(const ScatterAddRows& op);
  void operator()(const ExpertSelect& op);
  void operator()(const ExpertDispatch& op);
  void operator()(const ExpertCombine& op);
  void operator()(const CrossEntropy& op);
  void operator()(const RouterLoss& op);
  void operator()(const RmsNormBackward& op);
  void operator()(const LayerNormBackward& op);
  void operator()(const AttentionBackward& op);
  void operator()(const ActivationBackward& op);
  void operator()(const ScatterAddBackward& op);
  void operator()(const GatherBackward& op);
  void operator()(const RouterScoreBackward& op);
  void operator()(const ExpertSelectBackward& op);
  void operator()(const ExpertCombineBackward& op);
  void operator()(const ExpertDispatchBackward& op);
  void operator()(const EmbeddingBackward& op);
  void operator()(const GradientNorm& op);
  void operator()(const AdamW& op);
  void operator()(const LatentHeads& op);
  void operator()(const LatentHeadsBackward& op);

 private:
  const OperandView& in(std::size_t i) const { return bound_.in.at(i); }
  const OperandView& out(std::size_t i) const { return bound_.out.at(i); }
  bool has_out(std::size_t i) const { return i < bound_.out.size(); }
  template <class T>
  T* scratch(std::int64_t count) { return scratch_.take<T>(count); }

  const SelectionBuffers* selection() const;                               // that decides this op's rows; null: all declared rows
  const SelectionBuffers& selection_of(const OperandView& indices) const;  // that wrote these indices
  const AssignedBuffers& assigned_of(const OperandView& permutation) const;
  bool is_gradient(const OperandView& view) const;
  const std::int32_t* selected_rows() const;  // on the device: how many rows a threshold left; null: the declared ones
  RowCount rows(std::int64_t declared) const;
  Ragged ragged(std::int64_t sequences, std::int64_t declared) const;
  std::int32_t* flag() const { return context_.flags ? context_.flags + instance_ : nullptr; }

  template <class Args>
  void launch(Status (*Kernels::*which)(Device*, const Args*, Text*), const Args& args, const char* what) {
    calls_.push_back([which, args, what](RunState& run) {
      Text text;
      must((run.module->kernels.*which)(run.device, &args, &text), what, text);
    });
  }
  // The same, with a last change of the arguments when they are used.
  template <class Args, class Change>
  void launch(Status (*Kernels::*which)(Device*, const Args*, Text*), const Args& args, const char* what, Change change) {
    calls_.push_back([which, args, what, change](RunState& run) {
      Args now = args;
      change(now, run);
      Text text;
      must((run.module->kernels.*which)(run.device, &now, &text), what, text);
    });
  }
  void push(Call call) { calls_.push_back(std::move(call)); }
  void clear(void* memory, std::int64_t bytes, const char* what);
  void copy(void* to, const void* from, std::int64_t bytes, const char* what);
  std::vector<ParameterTensor> parameter_tensors(const AdamW* op, std::int64_t& chunks);

  AttentionArgs attention_args(const Attention& op, std::size_t next, bool cached, AttentionRangeArgs& ranges);

  // lower_products.cpp
  void grouped(const Gemm& op);
  void bias_gradient(const Gemm& op);

  LoweringContext& context_;
  const BoundOp& bound_;
  int instance_ = 0;
  Pieces scratch_;
  std::vector<Call> calls_;
};

// Whether the kernels do this op; the reason where not.
Support supported(const OpSpec& spec);

// The product of a Gemm with `rows` rows, in the module's terms; and that of one with experts, whose rows the device knows.
Matmul product_of(const Gemm& op, std::int64_t rows);
GroupedArgs grouped_product_of(const Gemm& op, const BoundOp& bound);

}  // namespace fathom::cuda
