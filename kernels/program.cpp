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

}  // namespace

float threshold_for(std::vector<float>& scores, double share) {
  if (scores.empty()) throw_internal("a threshold of no scores");
  std::sort(scores.begin(), scores.end(), std::greater<>());
  const auto take = static_cast<size_t>(std::llround(std::clamp(share, 0.0, 1.0) * static_cast<double>(scores.size())));
  if (take == 0) return scores.front();
  if (take == scores.size()) return std::nextafter(scores.back(), -std::numeric_limits<float>::infinity());
  return scores[take] + (scores[take - 1] - scores[take]) / 2;
}

ProgramExecution::ProgramExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, const MemoryPlan& plan)
    : workload_(std::move(workload)), options_(options), plan_(plan) {}

OperandView ProgramExecution::view(const Step& step, const Operand& operand) const {
  return view_of(instance_of(*workload_, step, operand));
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

}  // namespace fathom
