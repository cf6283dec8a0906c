// What every executing backend shares: the expanded program over one arena, deterministic contents, and run-time row counts.
//
// A backend derives from ProgramExecution and implements execute(): one op over plain pointers. Everything about which tensor copy an operand
// is, where it lies, how many rows a routed block really has, and how a decode step starts from a filled cache is here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/backend.hpp"

namespace fathom {

// One operand of one instance.
struct OperandView {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kF32;
  TensorInstance at;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// Rows of a routed block at one layer, set by its Select op in each run. Selected rows are compact: those of sequence 0, then of sequence 1 ...
struct Selection {
  float threshold = 0.0f;  // threshold routing: score > threshold; 0 is the paper's rule, an untrained router is centred by calibration
  std::int64_t total = 0;
  std::vector<std::int64_t> per_sequence;
  std::int64_t candidates_seen = 0, taken = 0;  // over all runs since reset_participation()
};

// One KV cache: the lists of all sequences in one block, their lengths, and the lengths that bind() or set_past() gave them.
struct KvList {
  OperandView cache;   // [sequences * capacity, elements of K and V per row]
  OperandView counts;  // [sequences]
  OperandView positions;  // [sequences * capacity] original positions; data null where none are kept
  std::vector<std::int32_t> bound_counts;
  std::vector<std::int32_t> bound_positions;
  std::int64_t capacity() const { return counts.rows > 0 ? cache.rows / counts.rows : 0; }
};

struct BoundOp {
  int op = 0;
  int step = 0;
  int layer = 0;
  const OpSpec* spec = nullptr;
  std::vector<OperandView> in;
  std::vector<OperandView> out;
  int selection = -1;  // index of the Selection that decides this op's rows; -1: the declared rows
  int assigned = -1;   // rows are what the ExpertSelect of this number assigned
};

class ProgramExecution : public Execution {
 public:
  const Workload& workload() const override { return *workload_; }
  void run() override;
  void begin_pass() override;
  void run_instance(int instance) override;
  Executed executed(int instance) const override { return executed_[static_cast<size_t>(instance)]; }
  Flops executed_flops(int instance) const override;
  std::vector<float> read(const TensorInstance& instance) const override;
  void write(const TensorInstance& instance, std::span<const float> values) override;
  void reset() override;

  int instance_count() const { return static_cast<int>(bound_.size()); }
  const BoundOp& bound(int instance) const { return bound_[static_cast<size_t>(instance)]; }

  // Decode: the state "`past` tokens cached in every sequence" (a routed block holds the share that passed it); positions follow.
  void set_past(std::int64_t past);
  // The new tokens stand at past, past + 1, ... of their sequences; what the cache holds stays.
  void set_positions(std::int64_t past);
  // The caches in program order.
  const std::vector<KvList>& kv_lists() const { return kv_lists_; }
  // The threshold of the selection that this op makes or depends on.
  float threshold(const BoundOp& bound) const { return selections_[static_cast<size_t>(bound.selection)].threshold; }

  // Threshold routing of routers that were not trained to it: runs `steps` steps on different tokens, puts each block's threshold where
  // the scenario's share of the collected scores lies above it, and does so `passes` times in all, because scores depend on what the blocks below
  // let through. The same as adding -threshold to the router's bias, except that gates keep their values. Inputs, cache counts and
  // participation are then as after bind(). Does nothing for top-k.
  void calibrate_participation(int passes, int steps);  // steps 0: enough for about 512 scores per block
  void calibrate_participation() override { calibrate_participation(2, 0); }
  std::vector<Participation> participation() const override;
  void reset_participation() override;
  // Thresholds per routed block in program order: hand-over from a prefill to its decode steps.
  std::vector<float> thresholds() const;
  void set_thresholds(std::span<const float> thresholds);
  // New random tokens for every later run (decode steps differ, so that routed row counts vary as in real use).
  void vary_tokens(bool on) override { vary_tokens_ = on; }
  // Keep KV counts between runs instead of starting each run from the bound state (real generation).
  void keep_cache(bool on) { keep_cache_ = on; }

 protected:
  // `arena` must hold plan.arena bytes, kPlanAlignment-aligned; the derived class owns it.
  ProgramExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, const MemoryPlan& plan);
  void attach(std::byte* arena);  // resolves all views; call once, before fill()
  void fill();                    // weights, inputs, cache: the state that reset() restores

  // Runs one op. `executed` comes in as the declared or run-time size and may be corrected (pairs and keys of ragged attention, experts).
  virtual void execute(int instance, const BoundOp& bound, Executed& executed) = 0;
  // Contents of one tensor from and to host memory. Defaults: the arena is host memory. A backend whose arena is elsewhere overrides all of them.
  virtual void store(const OperandView& to, std::span<const float> values);  // rounded to the type the tensor is kept in
  virtual void store_ints(const OperandView& to, std::span<const std::int32_t> values);
  virtual void clear(const OperandView& to);
  virtual std::vector<float> load(const OperandView& from) const;
  // KV counts back to the bound state, before every pass.
  virtual void restore_counts();
  // The size at which this instance would run now; what a run that did not go through run_instance() did execute.
  Executed size_now(const BoundOp& bound) const;
  void note_executed(int instance, const Executed& size);
  // Called after a weight was stored in plain row-major form by fill(), reset() or write(): the backend may lay it out its own way, in place
  // or in a copy. `load_weight` must undo what it did in place.
  virtual void weight_stored(const OperandView&) {}
  virtual std::vector<float> load_weight(const OperandView& view) const;
  // KV caches are filled, read and written as rows [sequence][slot] of [k of all kv heads | v of all kv heads]; a backend may keep them otherwise.
  virtual void store_cache(const OperandView& view, std::span<const float> values);
  virtual std::vector<float> load_cache(const OperandView& view) const;
  virtual Flops padded_flops(int instance) const;  // default: the analytic cost at the executed size
  // The type a tensor is kept in; the plan must have room for it.
  virtual DType storage_of(const Tensor& tensor) const { return tensor.dtype; }
  OperandView view_of(const TensorInstance& at) const;

  // ExpertSelect says how many rows it made.
  void assign(const BoundOp& select, std::int64_t rows) { assigned_[static_cast<size_t>(select.assigned)] = rows; }
  Selection& selection(const BoundOp& bound) { return selections_[static_cast<size_t>(bound.selection)]; }
  const Selection* selection_of(const BoundOp& bound) const {
    return bound.selection < 0 ? nullptr : &selections_[static_cast<size_t>(bound.selection)];
  }
  const BindOptions& options() const { return options_; }
  const MemoryPlan& plan() const { return plan_; }

  std::shared_ptr<const Workload> workload_;

 private:
  void bind_program();
  void fill_cache();
  // The contents of a weight, rounded to the type of `to`: the weight itself or its master copy.
  void fill_weight_of(const TensorInstance& weight, const OperandView& to);
  void fill_inputs(std::uint64_t run);
  bool is_cache(const TensorInstance& at) const;
  OperandView view(const Step& step, const Operand& operand) const;

  BindOptions options_;
  MemoryPlan plan_;
  std::byte* arena_ = nullptr;
  std::vector<BoundOp> bound_;
  std::vector<Executed> executed_;
  std::vector<Selection> selections_;
  std::vector<std::int64_t> assigned_;
  std::vector<OperandView> inputs_;  // tokens, positions, ...
  std::vector<std::int32_t> ints_;   // of one input, on their way into the arena
  std::vector<KvList> kv_lists_;
  std::uint64_t runs_ = 0;
  bool vary_tokens_ = false;
  bool keep_cache_ = false;
};

// The value that round(share * n) of the scores exceed, which are sorted: midway between the last one taken and the first one not. Throws an internal Error for none.
float threshold_for(std::vector<float>& scores, double share);

// Stores f32 values as `dtype` and back (integers rounded).
void store_values(std::span<const float> values, DType dtype, std::byte* to);
std::vector<float> load_values(const std::byte* from, DType dtype, std::int64_t count);

// The declared size of an op with its rows replaced by what a selection holds.
Executed executed_size(const OpSpec& spec, const Selection* selection);

}  // namespace fathom
