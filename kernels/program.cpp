#include "kernels/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "lib/error.hpp"

namespace fathom {

void store_values(std::span<const float> values, DType dtype, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kF32: reinterpret_cast<float*>(to)[i] = values[i]; break;
      case DType::kF64: reinterpret_cast<double*>(to)[i] = values[i]; break;
      case DType::kBF16: reinterpret_cast<bf16*>(to)[i] = bf16(values[i]); break;
      case DType::kI32: reinterpret_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(values[i]); break;
      default: throw_internal("this type cannot be stored");
    }
  }
}

std::vector<float> load_values(const std::byte* from, DType dtype, std::int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kF32: values[i] = reinterpret_cast<const float*>(from)[i]; break;
      case DType::kF64: values[i] = static_cast<float>(reinterpret_cast<const double*>(from)[i]); break;
      case DType::kBF16: values[i] = reinterpret_cast<const bf16*>(from)[i]; break;
      case DType::kI32: values[i] = static_cast<float>(reinterpret_cast<const std::int32_t*>(from)[i]); break;
      default: throw_internal("this type cannot be loaded");
    }
  }
  return values;
}

Executed executed_size(const OpSpec& spec, const Selection* selection) {
  Executed size = declared(spec);
  if (!selection) return size;
  size.rows = selection->total;
  const Attention* attention = std::get_if<Attention>(&spec);
  if (const auto* backward = std::get_if<AttentionBackward>(&spec)) attention = &backward->forward;
  if (attention && !attention->cached) {
    // Selected rows attend among themselves. With a window the pairs depend on positions: the kernel corrects this.
    size.pairs = 0;
    for (std::int64_t n : selection->per_sequence)
      size.pairs += attention->mask.kind == MaskKind::kFull ? product(n, n) : product(n, n + 1) / 2;
    size.keys = selection->total;
  }
  if (const auto* gemm = std::get_if<Gemm>(&spec)) size.experts = std::min(gemm->experts, size.rows);
  return size;
}

ProgramExecution::ProgramExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, const MemoryPlan& plan)
    : workload_(std::move(workload)), options_(options), plan_(plan) {}

OperandView ProgramExecution::view(const Step& step, const Operand& operand) const {
  const TensorInstance at = instance_of(*workload_, step, operand);
  const Tensor& tensor = workload_->tensors()[static_cast<size_t>(operand.tensor)];
  return OperandView{arena_ + plan_.offsets.at(at), tensor.rows, tensor.cols, storage_of(tensor), at};
}

void ProgramExecution::attach(std::byte* arena) {
  arena_ = arena;
  bind_program();
}

void ProgramExecution::bind_program() {
  const Workload& w = *workload_;
  std::map<TensorInstance, int> selection_by_indices;  // the indices tensor a Select wrote -> its selection
  std::set<TensorInstance> seen_counts;
  for (const Instance& instance : w.instances()) {
    const Step& step = w.program()[static_cast<size_t>(instance.step)];
    const Op& op = w.ops()[static_cast<size_t>(instance.op)];
    BoundOp bound{instance.op, instance.step, step.layer, &op.spec, {}, {}, -1};
    for (const Operand& operand : op.inputs) bound.in.push_back(view(step, operand));
    for (const Operand& operand : op.outputs) bound.out.push_back(view(step, operand));
    if (std::holds_alternative<Select>(op.spec)) {
      bound.selection = static_cast<int>(selections_.size());
      selection_by_indices[bound.out[0].at] = bound.selection;
      selections_.emplace_back();
    } else if (rows_of(op.spec).routed()) {
      // The selection of this layer: that of the last Select bound at the same layer.
      for (auto it = bound_.rbegin(); it != bound_.rend() && bound.selection < 0; ++it)
        if (std::holds_alternative<Select>(*it->spec) && it->layer == step.layer) bound.selection = it->selection;
      if (bound.selection < 0) throw_internal(fmt::format("op '{}' has routed rows but no selection before it", op.leaf));
    }
    if (std::holds_alternative<KvAppend>(op.spec) && seen_counts.insert(bound.out[1].at).second)
      counts_.push_back({bound.out[1], std::vector<std::int32_t>(static_cast<size_t>(bound.out[1].rows), 0)});
    bound_.push_back(std::move(bound));
  }
  executed_.resize(bound_.size());
}

void ProgramExecution::fill() {
  std::set<TensorInstance> done;
  std::vector<float> values;
  for (const BoundOp& bound : bound_) {
    for (const auto* views : {&bound.in, &bound.out}) {
      for (const OperandView& v : *views) {
        const Tensor& tensor = workload_->tensors()[static_cast<size_t>(v.at.tensor)];
        if (!done.insert(v.at).second) continue;
        const size_t count = static_cast<size_t>(v.rows * v.cols);
        if (tensor.role == Role::kWeight) {
          values.resize(count);
          fill_weight(tensor, v.at.copy, options_.seed, options_.fill, values);
          store_values(values, v.dtype, v.data);
          weight_stored(v);
        } else if (tensor.role != Role::kInput) {
          std::memset(v.data, 0, count * static_cast<size_t>(dtype_bytes(v.dtype)));
        }
      }
    }
  }
  // The f32 master copy starts as the value before rounding to the weight's type.
  for (const BoundOp& bound : bound_) {
    const auto* adamw = std::get_if<AdamW>(bound.spec);
    if (!adamw || adamw->weight == DType::kF32) continue;
    for (size_t i = 0; i + 3 < bound.out.size(); i += 4) {
      const OperandView& master = bound.out[i + 3];
      values.resize(static_cast<size_t>(master.rows * master.cols));
      fill_weight(workload_->tensors()[static_cast<size_t>(bound.out[i].at.tensor)], bound.out[i].at.copy, options_.seed, options_.fill, values);
      store_values(values, master.dtype, master.data);
    }
  }
  fill_inputs(0);
  fill_cache();
}

void ProgramExecution::for_each_input(const std::function<void(const Tensor&, const OperandView&)>& visit) {
  std::set<TensorInstance> done;
  for (const BoundOp& bound : bound_)
    for (const OperandView& v : bound.in) {
      const Tensor& tensor = workload_->tensors()[static_cast<size_t>(v.at.tensor)];
      if (tensor.role == Role::kInput && done.insert(v.at).second) visit(tensor, v);
    }
}

void ProgramExecution::fill_inputs(std::uint64_t run) {
  const StreamShape& stream = workload_->stream();
  for_each_input([&](const Tensor& tensor, const OperandView& v) {
    std::int32_t* out = v.as<std::int32_t>();
    if (tensor.name == "tokens" || tensor.name == "targets")
      fill_tokens(options_.seed + 7919 * run, tensor.name, stream.vocab, {out, static_cast<size_t>(v.rows)});
    if (tensor.name == "last_rows")
      for (std::int64_t i = 0; i < v.rows; ++i) out[i] = static_cast<std::int32_t>((i + 1) * stream.queries - 1);
  });
}

void ProgramExecution::fill_cache() {
  std::set<TensorInstance> done;
  std::vector<float> values;
  for (const BoundOp& bound : bound_) {
    if (!std::holds_alternative<KvAppend>(*bound.spec) || !done.insert(bound.out[0].at).second) continue;
    const OperandView& cache = bound.out[0];
    values.resize(static_cast<size_t>(cache.rows * cache.cols));
    fill_weight(workload_->tensors()[static_cast<size_t>(cache.at.tensor)], cache.at.copy, options_.seed, FillKind::kTest, values);
    store_values(values, cache.dtype, cache.data);
  }
  set_past(workload_->stream().past);
}

void ProgramExecution::set_past(std::int64_t past) {
  const StreamShape& stream = workload_->stream();
  if (past < 0 || past > stream.past) throw_internal(fmt::format("the cache was planned for {} past tokens, not {}", stream.past, past));
  size_t which = 0;
  std::set<TensorInstance> done;
  for (const BoundOp& bound : bound_) {
    const auto* append = std::get_if<KvAppend>(bound.spec);
    if (!append || !done.insert(bound.out[1].at).second) continue;
    auto& [view, initial] = counts_[which++];
    for (size_t b = 0; b < initial.size(); ++b) {
      std::int64_t held = past;
      if (append->rows.routed()) {  // each past token took this block with the scenario's probability
        held = 0;
        const std::string name = fmt::format("past/{}/{}", bound.layer, b);
        for (std::int64_t t = 0; t < past; ++t) held += fill_uniform(options_.seed, name, static_cast<std::uint64_t>(t)) < append->rows.probability.value();
      }
      initial[b] = static_cast<std::int32_t>(held);
    }
    std::memcpy(view.data, initial.data(), initial.size() * sizeof(std::int32_t));
  }
  for_each_input([&](const Tensor& tensor, const OperandView& v) {
    if (tensor.name != "positions") return;
    for (std::int64_t i = 0; i < v.rows; ++i) v.as<std::int32_t>()[i] = static_cast<std::int32_t>(past + i % stream.queries);
  });
}

void ProgramExecution::reset() {
  runs_ = 0;
  fill();
}

void ProgramExecution::begin_pass() {
  if (!keep_cache_)
    for (auto& [view, initial] : counts_) std::memcpy(view.data, initial.data(), initial.size() * sizeof(std::int32_t));
  if (vary_tokens_ && runs_ > 0) fill_inputs(runs_);
  ++runs_;
}

void ProgramExecution::run() {
  begin_pass();
  for (int i = 0; i < instance_count(); ++i) run_instance(i);
}

void ProgramExecution::run_instance(int instance) {
  const BoundOp& bound = bound_[static_cast<size_t>(instance)];
  Executed size = executed_size(*bound.spec, std::holds_alternative<Select>(*bound.spec) ? nullptr : selection_of(bound));
  execute(instance, bound, size);
  executed_[static_cast<size_t>(instance)] = size;
}

Flops ProgramExecution::executed_flops(int instance) const { return padded_flops(instance); }

Flops ProgramExecution::padded_flops(int instance) const {
  const Cost cost = cost_at(*bound_[static_cast<size_t>(instance)].spec, executed_[static_cast<size_t>(instance)]);
  return cost.flops + cost.flops_recompute;
}

OperandView ProgramExecution::view_of(const TensorInstance& at) const {
  const Tensor& tensor = workload_->tensors().at(static_cast<size_t>(at.tensor));
  return OperandView{arena_ + plan_.offsets.at(at), tensor.rows, tensor.cols, storage_of(tensor), at};
}

std::vector<float> ProgramExecution::load_weight(const OperandView& v) const { return load_values(v.data, v.dtype, v.rows * v.cols); }

std::vector<float> ProgramExecution::read(const TensorInstance& instance) const {
  const OperandView v = view_of(instance);
  if (workload_->tensors()[static_cast<size_t>(instance.tensor)].role == Role::kWeight) return load_weight(v);
  return load_values(v.data, v.dtype, v.rows * v.cols);
}

void ProgramExecution::write(const TensorInstance& instance, std::span<const float> values) {
  const OperandView v = view_of(instance);
  const Tensor& tensor = workload_->tensors()[static_cast<size_t>(instance.tensor)];
  if (static_cast<std::int64_t>(values.size()) != v.rows * v.cols)
    throw_internal(fmt::format("tensor '{}' holds {} values, not {}", tensor.name, v.rows * v.cols, values.size()));
  store_values(values, v.dtype, v.data);
  if (tensor.role == Role::kWeight) weight_stored(v);
}

}  // namespace fathom
