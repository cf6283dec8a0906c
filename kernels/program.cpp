#include "kernels/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
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
  const Rows rows = rows_of(spec);
  size.rows = rows.source == RowSource::kRest ? rows.count - selection->total : selection->total;
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

namespace {

constexpr std::uint64_t kCalibrationRuns = std::uint64_t{1} << 32;  // token sets no ordinary run reaches

// The value that round(share * n) of the scores exceed: midway between the last one taken and the first one not.
float threshold_for(std::vector<float>& scores, double share) {
  std::sort(scores.begin(), scores.end(), std::greater<>());
  const auto take = static_cast<size_t>(std::llround(std::clamp(share, 0.0, 1.0) * static_cast<double>(scores.size())));
  if (take == 0) return scores.front();
  if (take == scores.size()) return std::nextafter(scores.back(), -std::numeric_limits<float>::infinity());
  return scores[take] + (scores[take - 1] - scores[take]) / 2;
}

}  // namespace

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
  std::set<TensorInstance> seen;
  for (const Instance& instance : w.instances()) {
    const Step& step = w.program()[static_cast<size_t>(instance.step)];
    const Op& op = w.ops()[static_cast<size_t>(instance.op)];
    BoundOp bound{instance.op, instance.step, step.layer, &op.spec, {}, {}, -1, -1};
    for (const Operand& operand : op.inputs) bound.in.push_back(view(step, operand));
    for (const Operand& operand : op.outputs) bound.out.push_back(view(step, operand));
    if (std::holds_alternative<Select>(op.spec)) {
      bound.selection = static_cast<int>(selections_.size());
      selections_.emplace_back();
      selections_.back().per_sequence.reserve(static_cast<size_t>(std::get<Select>(op.spec).sequences));
    } else if (rows_of(op.spec).routed() && rows_of(op.spec).source != RowSource::kAssigned) {
      // The selection of this layer: that of the last Select bound at the same layer.
      for (auto it = bound_.rbegin(); it != bound_.rend() && bound.selection < 0; ++it)
        if (std::holds_alternative<Select>(*it->spec) && it->layer == step.layer) bound.selection = it->selection;
      if (bound.selection < 0) throw_internal(fmt::format("op '{}' has routed rows but no selection before it", op.leaf));
    }
    if (std::holds_alternative<ExpertSelect>(op.spec)) {
      bound.assigned = static_cast<int>(assigned_.size());
      assigned_.push_back(0);
    } else if (rows_of(op.spec).source == RowSource::kAssigned) {
      // The assignments of this layer: those of the last ExpertSelect bound at the same layer.
      for (auto it = bound_.rbegin(); it != bound_.rend() && bound.assigned < 0; ++it)
        if (it->layer == step.layer) bound.assigned = it->assigned;
      if (bound.assigned < 0) throw_internal(fmt::format("op '{}' has the rows of an expert selection, but there is none before it", op.leaf));
    }
    if (std::holds_alternative<KvAppend>(op.spec) && seen.insert(bound.out[1].at).second)
    {
      const bool kept = std::get<KvAppend>(op.spec).positions;
      kv_lists_.push_back({bound.out[0], bound.out[1], kept ? bound.out[2] : OperandView{}, std::vector<std::int32_t>(static_cast<size_t>(bound.out[1].rows), 0),
                           std::vector<std::int32_t>(static_cast<size_t>(kept ? bound.out[2].rows : 0), 0)});
    }
    for (const OperandView& v : bound.in)
      if (w.tensors()[static_cast<size_t>(v.at.tensor)].role == Role::kInput && seen.insert(v.at).second) inputs_.push_back(v);
    bound_.push_back(std::move(bound));
  }
  executed_.resize(bound_.size());
}

void ProgramExecution::fill() {
  std::set<TensorInstance> done;
  std::vector<float> values;
  const auto look = [this] {  // before every tensor: an optimizer's op has all of them, gigabytes
    if (options_.stop && options_.stop()) throw Stopped();
  };
  for (const BoundOp& bound : bound_) {
    for (const auto* views : {&bound.in, &bound.out}) {
      for (const OperandView& v : *views) {
        const Tensor& tensor = workload_->tensors()[static_cast<size_t>(v.at.tensor)];
        if (!done.insert(v.at).second) continue;
        look();
        const size_t count = static_cast<size_t>(v.rows * v.cols);
        if (tensor.role == Role::kWeight) {
          values.resize(count);
          fill_weight(tensor, v.at.copy, options_.seed, options_.fill, values);
          store(v, values);
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
      const OperandView& master = bound.out[i + 3];
      values.resize(static_cast<size_t>(master.rows * master.cols));
      fill_weight(workload_->tensors()[static_cast<size_t>(bound.out[i].at.tensor)], bound.out[i].at.copy, options_.seed, options_.fill, values);
      store(master, values);
    }
  }
  fill_inputs(0);
  fill_cache();
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

std::vector<float> ProgramExecution::thresholds() const {
  std::vector<float> values;
  for (const Selection& chosen : selections_) values.push_back(chosen.threshold);
  return values;
}

void ProgramExecution::set_thresholds(std::span<const float> thresholds) {
  if (thresholds.size() != selections_.size())
    throw_internal(fmt::format("this workload has {} routed blocks, not {}", selections_.size(), thresholds.size()));
  for (size_t i = 0; i < thresholds.size(); ++i) selections_[i].threshold = thresholds[i];
}

std::vector<Participation> ProgramExecution::participation() const {
  std::vector<Participation> all;
  for (const BoundOp& bound : bound_) {
    const auto* select = std::get_if<Select>(bound.spec);
    if (!select) continue;
    const Selection& chosen = selections_[static_cast<size_t>(bound.selection)];
    const std::int64_t candidates = select->sequences * select->length;
    const double share = candidates > 0 ? select->selected.expected() / static_cast<double>(candidates) : 0.0;
    all.push_back({bound.layer, chosen.threshold, share, chosen.candidates_seen, chosen.taken});
  }
  return all;
}

void ProgramExecution::reset_participation() {
  for (Selection& chosen : selections_) chosen.candidates_seen = chosen.taken = 0;
}

void ProgramExecution::calibrate_participation(int passes, int steps) {
  std::vector<int> selects;
  std::int64_t candidates = 0;
  for (int i = 0; i < instance_count(); ++i) {
    const auto* select = std::get_if<Select>(bound(i).spec);
    if (!select || (select->rule != RoutingRule::kThreshold && select->rule != RoutingRule::kPredictor)) continue;
    selects.push_back(i);
    candidates = std::max(candidates, select->sequences * select->length);
  }
  if (candidates > 0) {
    if (steps <= 0) steps = static_cast<int>(std::max<std::int64_t>(1, (512 + candidates - 1) / candidates));
    std::vector<std::vector<float>> scores(selects.size());
    for (int pass = 0; pass < passes; ++pass) {
      for (auto& list : scores) list.clear();
      for (int step = 0; step < steps; ++step) {
        // Tokens of their own, so that a measured run does not see the ones it was calibrated on.
        fill_inputs(kCalibrationRuns + static_cast<std::uint64_t>(pass * steps + step));
        restore_counts();
        size_t next = 0;
        for (int i = 0; i < instance_count(); ++i) {
          run_instance(i);
          if (next == selects.size() || selects[next] != i) continue;
          const auto& select = std::get<Select>(*bound(i).spec);
          const std::vector<float> values = load(bound(i).in[0]);
          scores[next].insert(scores[next].end(), values.begin(), values.begin() + select.sequences * select.length);
          ++next;
        }
      }
      for (size_t s = 0; s < selects.size(); ++s) {
        const auto& select = std::get<Select>(*bound(selects[s]).spec);
        selection(bound(selects[s])).threshold = threshold_for(scores[s], select.selected.probability.value());
      }
    }
    fill_inputs(0);
    restore_counts();
  }
  reset_participation();
}

void ProgramExecution::begin_pass() {
  if (!keep_cache_) restore_counts();
  if (vary_tokens_ && runs_ > 0) fill_inputs(runs_);
  ++runs_;
}

void ProgramExecution::run() {
  begin_pass();
  for (int i = 0; i < instance_count(); ++i) run_instance(i);
}

Executed ProgramExecution::size_now(const BoundOp& bound) const {
  Executed size = executed_size(*bound.spec, std::holds_alternative<Select>(*bound.spec) ? nullptr : selection_of(bound));
  if (bound.assigned >= 0 && !std::holds_alternative<ExpertSelect>(*bound.spec)) size.rows = assigned_[static_cast<size_t>(bound.assigned)];
  return size;
}

void ProgramExecution::run_instance(int instance) {
  if (options_.stop && options_.stop()) throw Stopped();
  const BoundOp& bound = bound_[static_cast<size_t>(instance)];
  Executed size = size_now(bound);
  execute(instance, bound, size);
  note_executed(instance, size);
}

void ProgramExecution::note_executed(int instance, const Executed& size) {
  const BoundOp& bound = bound_[static_cast<size_t>(instance)];
  executed_[static_cast<size_t>(instance)] = size;
  if (const auto* select = std::get_if<Select>(bound.spec)) {
    Selection& chosen = selection(bound);
    chosen.candidates_seen += select->sequences * select->length;
    chosen.taken += chosen.total;
  }
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
