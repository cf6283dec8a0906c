// What the tensors of a bound list hold: weights, inputs and caches as bind() makes them, and values that come from and go to the outside.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/program.hpp"
#include "lib/error.hpp"

namespace fathom {
namespace {

// Values on their way into a tensor: a part of its rows, so that a token table does not stand in memory twice.
constexpr std::int64_t kStagedValues = std::int64_t{1} << 22;

}  // namespace

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

void ProgramExecution::fill() {
  std::set<TensorInstance> done;
  const auto look = [this] {  // before every tensor: an optimizer's op has all of them, gigabytes
    if (options_.stop && options_.stop()) throw Stopped();
  };
  for (const BoundOp& bound : bound_) {
    for (const auto* views : {&bound.in, &bound.out}) {
      for (const OperandView& v : *views) {
        const Tensor& tensor = workload_->tensors()[static_cast<size_t>(v.at.tensor)];
        if (!done.insert(v.at).second) continue;
        look();
        if (tensor.role == Role::kWeight) {
          fill_weight_of(v.at, v);
          weight_stored(v);
        } else if (tensor.role != Role::kInput) {
          clear(v);
        }
      }
    }
  }
  // The f32 master copy starts as the value before rounding to the weight's type.
  for (const BoundOp& bound : bound_) {
    const auto* adamw = std::get_if<AdamW>(bound.spec);
    if (!adamw || !adamw->master()) continue;
    for (size_t i = 0; i + 3 < bound.out.size(); i += 4) {
      look();
      fill_weight_of(bound.out[i].at, bound.out[i + 3]);
    }
  }
  fill_inputs(0);
  fill_cache();
}

void ProgramExecution::fill_weight_of(const TensorInstance& weight, const OperandView& to) {
  const Tensor& tensor = workload_->tensors()[static_cast<size_t>(weight.tensor)];
  const std::int64_t rows = std::max<std::int64_t>(4, kStagedValues / std::max<std::int64_t>(1, to.cols) / 4 * 4);  // the generator gives four at a time
  std::vector<float> values;
  for (std::int64_t row = 0; row < to.rows; row += rows) {
    OperandView part = to;
    part.rows = std::min(rows, to.rows - row);
    part.data += row * to.cols * dtype_bytes(to.dtype);
    values.resize(static_cast<size_t>(part.rows * part.cols));
    fill_weight(tensor, weight.copy, options_.seed, options_.fill, values, row * to.cols);
    store(part, values);
  }
}

void ProgramExecution::fill_inputs(std::uint64_t run) {
  const StreamShape& stream = workload_->stream();
  for (const OperandView& v : inputs_) {
    const std::string& name = workload_->tensors()[static_cast<size_t>(v.at.tensor)].name;
    ints_.assign(static_cast<size_t>(v.rows), 0);
    std::int32_t* out = ints_.data();
    const auto ends = [&name](std::string_view end) { return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0; };
    if (name == "tokens" || name == "targets" || ends("/tokens") || ends("/targets")) fill_tokens(options_.seed + 7919 * run, name, stream.vocab, {out, static_cast<size_t>(v.rows)});
    // Expanded caches: the last keys of a sequence, past and new (all of them but for a window or chunks).
    if (ends("/key_positions")) {
      const std::int64_t held = v.rows / std::max<std::int64_t>(1, stream.sequences);
      for (std::int64_t i = 0; i < v.rows; ++i) out[i] = static_cast<std::int32_t>(stream.past + stream.queries - held + i % held);
    }
    if (name == "last_rows")
      for (std::int64_t i = 0; i < v.rows; ++i) out[i] = static_cast<std::int32_t>((i + 1) * stream.queries - 1);
    if (name != "positions") store_ints(v, ints_);  // those are set with the cache's length
  }
}

void ProgramExecution::fill_cache() {
  std::vector<float> values;
  for (const KvList& list : kv_lists_) {
    const OperandView& cache = list.cache;
    values.resize(static_cast<size_t>(cache.rows * cache.cols));
    fill_weight(workload_->tensors()[static_cast<size_t>(cache.at.tensor)], cache.at.copy, options_.seed, FillKind::kTest, values);
    store_cache(cache, values);
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
    KvList& list = kv_lists_[which++];
    std::vector<std::int32_t>& initial = list.bound_counts;
    for (size_t b = 0; b < initial.size(); ++b) {
      // A list that is expanded whole may hold the keys in reach only: they are those before this step's.
      const std::int64_t room = list.capacity() - append->rows.count / std::max<std::int64_t>(1, stream.sequences);
      std::int64_t held = append->rows.routed() ? past : std::min(past, room);
      if (append->rows.routed()) {  // each past token took this block with the scenario's probability
        held = 0;
        const std::string name = fmt::format("past/{}/{}", bound.layer, b);
        for (std::int64_t t = 0; t < past; ++t) {
          if (fill_uniform(options_.seed, name, static_cast<std::uint64_t>(t)) >= append->rows.probability.value()) continue;
          if (append->positions) list.bound_positions[static_cast<size_t>(list.capacity()) * b + static_cast<size_t>(held)] = static_cast<std::int32_t>(t);
          ++held;
        }
      } else if (append->positions) {  // fixed rows: every past token
        for (std::int64_t t = 0; t < past; ++t) list.bound_positions[static_cast<size_t>(list.capacity()) * b + static_cast<size_t>(t)] = static_cast<std::int32_t>(t);
      }
      initial[b] = static_cast<std::int32_t>(held);
    }
  }
  restore_counts();
  set_positions(past);
}

void ProgramExecution::restore_counts() {
  for (const KvList& list : kv_lists_) {
    store_ints(list.counts, list.bound_counts);
    if (list.positions.data) store_ints(list.positions, list.bound_positions);
  }
}

void ProgramExecution::set_positions(std::int64_t past) {
  const StreamShape& stream = workload_->stream();
  if (past < 0 || past > stream.past) throw_internal(fmt::format("positions were planned for {} past tokens, not {}", stream.past, past));
  for (const OperandView& v : inputs_) {
    if (workload_->tensors()[static_cast<size_t>(v.at.tensor)].name != "positions") continue;
    ints_.resize(static_cast<size_t>(v.rows));
    for (std::int64_t i = 0; i < v.rows; ++i) ints_[static_cast<size_t>(i)] = static_cast<std::int32_t>(past + i % stream.queries);
    store_ints(v, ints_);
  }
}

void ProgramExecution::reset() {
  runs_ = 0;
  fill();
}

OperandView ProgramExecution::view_of(const TensorInstance& at) const {
  const Tensor& tensor = workload_->tensors().at(static_cast<size_t>(at.tensor));
  return OperandView{arena_ + plan_.offsets.at(at), tensor.rows, tensor.cols, storage_of(tensor), at};
}

void ProgramExecution::store(const OperandView& to, std::span<const float> values) { store_values(values, to.dtype, to.data); }

void ProgramExecution::store_ints(const OperandView& to, std::span<const std::int32_t> values) {
  if (!values.empty()) std::memcpy(to.data, values.data(), values.size() * sizeof(std::int32_t));   // of zero rows, both pointers may be null
}

void ProgramExecution::clear(const OperandView& to) {
  const auto bytes = static_cast<size_t>(to.rows * to.cols * dtype_bytes(to.dtype));
  if (bytes > 0) std::memset(to.data, 0, bytes);
}

std::vector<float> ProgramExecution::load(const OperandView& from) const { return load_values(from.data, from.dtype, from.rows * from.cols); }

std::vector<float> ProgramExecution::load_weight(const OperandView& v) const { return load(v); }

void ProgramExecution::store_cache(const OperandView& v, std::span<const float> values) { store(v, values); }

std::vector<float> ProgramExecution::load_cache(const OperandView& v) const { return load(v); }

bool ProgramExecution::is_cache(const TensorInstance& at) const {
  return std::any_of(kv_lists_.begin(), kv_lists_.end(), [&](const KvList& list) { return list.cache.at == at; });
}

std::vector<float> ProgramExecution::read(const TensorInstance& instance) const {
  const OperandView v = view_of(instance);
  if (workload_->tensors()[static_cast<size_t>(instance.tensor)].role == Role::kWeight) return load_weight(v);
  if (is_cache(instance)) return load_cache(v);
  return load(v);
}

void ProgramExecution::write(const TensorInstance& instance, std::span<const float> values) {
  const OperandView v = view_of(instance);
  const Tensor& tensor = workload_->tensors()[static_cast<size_t>(instance.tensor)];
  if (static_cast<std::int64_t>(values.size()) != v.rows * v.cols)
    throw_internal(fmt::format("tensor '{}' holds {} values, not {}", tensor.name, v.rows * v.cols, values.size()));
  if (is_cache(instance)) return store_cache(v, values);
  store(v, values);
  if (tensor.role == Role::kWeight) weight_stored(v);
}

}  // namespace fathom
