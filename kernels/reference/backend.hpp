// The reference backend: every op kind by its naive kernel, on one thread, with the multiply-adds really counted.
//
// It is the meaning of the op list: other backends are compared with it, and its counts with the cost rules. Slow by design.
#pragma once

#include "kernels/program.hpp"

namespace fathom::reference {

enum class Precision : std::uint8_t {
  kF32,   // f32 arithmetic, results in the tensors' types
  kF64,   // f64 arithmetic inside an op, results rounded to the tensors' types: the yardstick of other backends
  kWide,  // f64 arithmetic and every float tensor kept in f64: for derivatives and comparisons at 1e-9
};

class ReferenceExecution : public ProgramExecution {
 public:
  ReferenceExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, Precision precision);

  std::int64_t allocated_bytes() const override { return static_cast<std::int64_t>(arena_.size()) - kPlanAlignment; }
  std::string implementation(int) const override { return "naive loops"; }
  void run_reference(int reference_class) override;
  int reference_class(int) const override { return 0; }
  std::vector<std::string> reference_classes() const override { return {"scalar f64"}; }
  void reset() override;

  // Contents without rounding to f32; write_wide stores in the tensor's kept type.
  std::vector<double> read_wide(const TensorInstance& instance) const;
  void write_wide(const TensorInstance& instance, std::span<const double> values);

 protected:
  void execute(int instance, const BoundOp& bound, Executed& executed) override;
  Flops padded_flops(int instance) const override { return Flops(2 * static_cast<u128>(macs_[static_cast<size_t>(instance)])); }
  DType storage_of(const Tensor& tensor) const override;

 private:
  Precision precision_;
  std::vector<std::byte> arena_;
  std::vector<std::uint64_t> macs_;  // of the last run, per instance
  std::int64_t optimizer_step_ = 0;
};

class ReferenceBackend : public Backend {
 public:
  explicit ReferenceBackend(Precision precision = Precision::kF64) : precision_(precision) {}
  std::string_view name() const override { return "reference"; }
  std::string description() const override;
  Support available() const override { return {}; }
  Support supports(const OpSpec& spec) const override;
  BackendMemory memory(const Workload& workload, const BindOptions& options) const override;
  std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const override;
  std::unique_ptr<ReferenceExecution> bind_reference(const Workload& workload, const BindOptions& options) const;

 private:
  Precision precision_;
};

}  // namespace fathom::reference
