#include "kernels/reference/backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/reference/execute.hpp"
#include "lib/error.hpp"

namespace fathom::reference {
namespace {

bool is_float(DType type) { return type == DType::kF32 || type == DType::kBF16 || type == DType::kF64; }

// Offsets multiplied so that every float tensor has room for f64 at the same place: what shared memory before shares it still.
MemoryPlan widened(MemoryPlan plan, const Workload& workload, Precision precision) {
  if (precision != Precision::kWide) return plan;
  std::int64_t factor = 1;
  for (const Tensor& tensor : workload.tensors())
    if (is_float(tensor.dtype)) factor = std::max(factor, dtype_bytes(DType::kF64) / dtype_bytes(tensor.dtype));
  for (auto& [instance, offset] : plan.offsets) offset *= factor;
  for (std::int64_t* size : {&plan.arena, &plan.activations, &plan.weights, &plan.gradients, &plan.optimizer, &plan.kv_cache, &plan.other})
    *size *= factor;
  return plan;
}

}  // namespace

ReferenceExecution::ReferenceExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, Precision precision)
    : ProgramExecution(workload, options, widened(plan_memory(*workload), *workload, precision)), precision_(precision) {
  arena_.resize(static_cast<size_t>(plan().arena + kPlanAlignment));
  const auto address = reinterpret_cast<std::uintptr_t>(arena_.data());
  attach(arena_.data() + (kPlanAlignment - address % kPlanAlignment) % kPlanAlignment);
  macs_.resize(static_cast<size_t>(instance_count()));
  fill();
}

DType ReferenceExecution::storage_of(const Tensor& tensor) const {
  return precision_ == Precision::kWide && is_float(tensor.dtype) ? DType::kF64 : tensor.dtype;
}

void ReferenceExecution::reset() {
  optimizer_step_ = 0;
  ProgramExecution::reset();
}

void ReferenceExecution::execute(int instance, const BoundOp& bound, Executed& executed) {
  const Call call{bound, executed, selection_of(bound), options(), workload_->stream(), optimizer_step_, workload_->tensors()};
  const std::uint64_t before = mac_count();
  if (std::holds_alternative<Select>(*bound.spec))
    run_select(std::get<Select>(*bound.spec), call, selection(bound), workload_->path(bound.op), precision_ == Precision::kF32);
  else if (precision_ == Precision::kF32)
    run_f32(call);
  else
    run_f64(call);
  if (const auto* experts = std::get_if<ExpertSelect>(bound.spec)) assign(bound, bound.out[2].as<std::int32_t>()[experts->experts]);
  macs_[static_cast<size_t>(instance)] = mac_count() - before;
}

void ReferenceExecution::run_reference(int) {
  volatile double sum = 0;
  for (int i = 0; i < 1'000'000; ++i) sum = sum * 0.999 + 1.0;
}

std::vector<double> ReferenceExecution::read_wide(const TensorInstance& instance) const {
  const OperandView v = view_of(instance);
  std::vector<double> values(static_cast<size_t>(v.rows * v.cols));
  for (size_t i = 0; i < values.size(); ++i) values[i] = load_value(v, static_cast<std::int64_t>(i));
  return values;
}

void ReferenceExecution::write_wide(const TensorInstance& instance, std::span<const double> values) {
  const OperandView v = view_of(instance);
  if (static_cast<std::int64_t>(values.size()) != v.rows * v.cols) throw_internal("write_wide: the number of values is not the tensor's size");
  for (size_t i = 0; i < values.size(); ++i) store_value(v, static_cast<std::int64_t>(i), values[i]);
}

std::string ReferenceBackend::description() const { return "naive loops in f64, one thread; counts its multiply-adds; the yardstick of the other backends"; }

Support ReferenceBackend::supports(const OpSpec& spec) const {
  const auto* attention = std::get_if<Attention>(&spec);
  if (attention && !attention->fused) return {false, "unfused attention is counted, not run"};
  const auto* gemm = std::get_if<Gemm>(&spec);
  if (gemm && !is_float(gemm->weight)) return {false, "weights run in f32 and bf16"};
  return {};
}

BackendMemory ReferenceBackend::memory(const Workload& workload, const BindOptions&) const {
  return {widened(plan_memory(workload), workload, precision_), 0};
}

std::unique_ptr<ReferenceExecution> ReferenceBackend::bind_reference(const Workload& workload, const BindOptions& options) const {
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i) {
    const Support support = supports(workload.ops()[static_cast<size_t>(i)].spec);
    if (!support.ok) throw_input(fmt::format("the reference backend cannot run {}: {}", workload.path(i), support.reason));
  }
  return std::make_unique<ReferenceExecution>(std::make_shared<Workload>(workload), options, precision_);
}

std::unique_ptr<Execution> ReferenceBackend::bind(const Workload& workload, const BindOptions& options) const { return bind_reference(workload, options); }

}  // namespace fathom::reference
