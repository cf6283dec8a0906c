#include "kernels/fake/backend.hpp"

#include <fmt/format.h>

#include "kernels/fake/profiler.hpp"
#include "lib/error.hpp"

namespace fathom {

Executed rounded_expectation(const OpSpec& spec) {
  Executed size = declared(spec);
  const Rows rows = rows_of(spec);
  if (!rows.routed() || rows.count == 0) return size;
  size.rows = rows.probability.of(rows.count, Rounding::kHalfUp);
  // Pairs and keys in proportion to the rows.
  const u128 count = static_cast<u128>(rows.count);
  size.pairs = size.pairs * static_cast<u128>(size.rows) / count;
  size.keys = static_cast<std::int64_t>(static_cast<u128>(size.keys) * static_cast<u128>(size.rows) / count);
  size.experts = std::min(size.experts, size.rows);
  return size;
}

FakeExecution::FakeExecution(std::shared_ptr<const Workload> workload, std::int64_t bytes)
    : workload_(std::move(workload)), bytes_(bytes), instances_(workload_->instances()) {
  for (const Instance& instance : instances_) executed_.push_back(rounded_expectation(workload_->ops()[static_cast<size_t>(instance.op)].spec));
  seconds_.assign(instances_.size(), kDefaultSeconds);
}

void FakeExecution::set_times(std::vector<double> seconds_per_instance) {
  if (seconds_per_instance.size() != instances_.size())
    throw_internal(fmt::format("{} times for {} ops of the program", seconds_per_instance.size(), instances_.size()));
  seconds_ = std::move(seconds_per_instance);
}

void FakeExecution::run() {
  for (int i = 0; i < static_cast<int>(instances_.size()); ++i) run_instance(i);
}

void FakeExecution::run_instance(int instance) { now_ += seconds_.at(static_cast<size_t>(instance)); }

Flops FakeExecution::executed_flops(int instance) const {
  const Instance& at = instances_.at(static_cast<size_t>(instance));
  const Cost cost = cost_at(workload_->ops()[static_cast<size_t>(at.op)].spec, executed(instance));
  return cost.flops + cost.flops_recompute;
}

std::vector<float> FakeExecution::read(const TensorInstance& instance) const {
  const auto found = written_.find(instance);
  if (found != written_.end()) return found->second;
  const Tensor& tensor = workload_->tensors().at(static_cast<size_t>(instance.tensor));
  return std::vector<float>(static_cast<size_t>(tensor.rows * tensor.cols), 0.0f);
}

void FakeExecution::write(const TensorInstance& instance, std::span<const float> values) { written_[instance].assign(values.begin(), values.end()); }

std::unique_ptr<Execution> FakeBackend::bind(const Workload& workload, const BindOptions&) const {
  return std::make_unique<FakeExecution>(std::make_shared<Workload>(workload), plan_memory(workload).arena);
}

std::unique_ptr<Profiler> FakeBackend::profiler() const { return std::make_unique<FakeProfiler>(FakeFaults{}); }

}  // namespace fathom
