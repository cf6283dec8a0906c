// One workload bound to the CPU: plans per op, weight layouts, scratch, and the call of the right kernel for each op.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/gemv.hpp"
#include "kernels/cpu/grouped_gemm.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/part_gemm.hpp"
#include "kernels/cpu/pinned.hpp"
#include "kernels/cpu/references.hpp"
#include "kernels/program.hpp"

namespace fathom::cpu {

// How a weight lies in the arena while this workload is bound.
//   kPlain    as the tensor says
//   kPacked   as the product's plan wants it
//   kTurned   [out][in] of a tensor [in][out]: products of a few rows then read every output's weights as one stream
enum class WeightLayout : std::uint8_t { kPlain, kPacked, kTurned };

// Everything that is decided per op before memory is allocated. Up to gemv_rows rows run the streaming product on plain or turned weights, more rows
// the plan; a block whose rows are known only at run time may use both.
struct GemmBinding {
  std::optional<GemmPlan> plan;    // fixed rows
  std::optional<GemmCache> cache;  // rows known at run time
  std::optional<GroupedGemm> grouped;
  std::optional<PartGemm> parts;   // columns of wider rows
  std::int64_t gemv_rows = -1;     // -1: never
  std::int64_t streamed_rows = -1; // a product of up to so many rows waits for its weights, whichever code runs it
  WeightLayout layout = WeightLayout::kPlain;
  std::int64_t turned_bytes = 0;   // of kTurned
  std::int64_t scratch_bytes() const {
    if (parts) return parts->scratch_bytes();
    return grouped ? grouped->scratch_bytes() : plan ? plan->scratch_bytes() : cache ? cache->scratch_bytes() : 0;
  }
  // Of one weight set.
  std::int64_t packed_bytes() const {
    if (layout == WeightLayout::kPlain) return 0;
    if (layout == WeightLayout::kTurned) return turned_bytes;
    return grouped ? grouped->pack_bytes() : plan ? plan->packed_bytes() : cache->packed_bytes();
  }
};

// Plans of all ops and the memory they need; made once for memory() and moved into the execution by bind().
struct Prepared {
  std::shared_ptr<const Workload> workload;
  int threads = 1;
  MemoryPlan plan;
  std::vector<GemmBinding> gemms;       // by op index; empty for other kinds
  std::int64_t scratch = 0;             // bytes of the largest per-call workspace
  std::int64_t pack_scratch = 0;        // bytes for laying out one weight
  std::map<std::pair<double, std::int64_t>, std::int64_t> rope_tables;  // (base, rotated width) -> float offset into the tables
  std::int64_t rope_floats = 0;
  std::int64_t positions = 0;           // rows of each rope table
  std::map<TensorId, KvLayout> caches;  // how each KV cache tensor lies in memory
  std::map<TensorId, std::int64_t> picks;  // experts per token, by permutation tensor
  std::int64_t extra() const { return scratch + pack_scratch + rope_floats * 4; }
  std::int64_t bytes() const { return plan.arena + extra(); }
};
Prepared prepare(std::shared_ptr<const Workload> workload, const BindOptions& options);
Support supported(const OpSpec& spec);
// Of the reference work beside which samples of an op are taken.
ReferenceClass reference_class_of(const Prepared& prepared, int op);

class CpuExecution : public ProgramExecution {
 public:
  CpuExecution(Prepared prepared, const BindOptions& options);

  std::int64_t allocated_bytes() const override;
  std::string implementation(int op) const override;
  Placement placement() override;
  void run_reference(int reference_class) override;
  void settle_reference(int reference_class) override;
  int reference_class(int op) const override;
  std::vector<std::string> reference_classes() const override;
  double probe_ceiling(int reference_class) override;
  void reset() override;

  // For run_op.
  const BindOptions& bind_options() const { return options(); }
  Selection& selection_for(const BoundOp& bound) { return selection(bound); }
  std::int64_t& optimizer_step() { return optimizer_step_; }
  const float* rope_table(double base, std::int64_t width) const { return rope_.as<float>() + prepared_.rope_tables.at({base, width}); }
  const KvLayout& kv_layout_of(TensorId cache) const { return prepared_.caches.at(cache); }
  std::int64_t picks_of(TensorId permutation) const { return prepared_.picks.at(permutation); }
  void set_assigned(const BoundOp& select, std::int64_t rows) { assign(select, rows); }
  std::int64_t rope_positions() const { return prepared_.positions; }

 protected:
  void execute(int instance, const BoundOp& bound, Executed& executed) override;
  void weight_stored(const OperandView& view) override;
  std::vector<float> load_weight(const OperandView& view) const override;
  void store_cache(const OperandView& view, std::span<const float> values) override;
  std::vector<float> load_cache(const OperandView& view) const override;
  Flops padded_flops(int instance) const override;

 private:
  void run_gemm(const BoundOp& bound, const fathom::Gemm& op, std::int64_t rows);
  void run_grouped(int instance, const BoundOp& bound, const fathom::Gemm& op, Executed& executed);
  void run_parts(const BoundOp& bound, const fathom::Gemm& op, std::int64_t rows);
  void run_gemv(const BoundOp& bound, const fathom::Gemm& op, std::int64_t rows);
  References& references();
  const float* bias_of(const OperandView& bias, std::int64_t count);
  void* scratch(std::int64_t offset = 0) { return scratch_.as<std::byte>(offset); }

  Prepared prepared_;
  PinnedThreads pinned_;  // before the memory that its threads touch first
  Buffer arena_;
  Buffer scratch_;
  Buffer pack_scratch_;
  Buffer rope_;
  std::map<TensorInstance, int> gemm_of_weight_;  // weight -> op whose plan decides its layout
  std::vector<float> bias_;                       // bf16 biases widened for one call
  std::vector<std::int64_t> grouped_flops_;       // by instance, of its last run
  std::int64_t optimizer_step_ = 0;
  std::unique_ptr<References> references_;
};

}  // namespace fathom::cpu
