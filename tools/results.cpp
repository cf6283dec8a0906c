#include "tools/results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"
#include "lib/memory_parts.hpp"
#include "lib/plan.hpp"
#include "lib/plan_limit.hpp"
#include "models/builder.hpp"
#include "models/params.hpp"
#include "reports/format.hpp"

namespace fathom {
namespace {

bool is_latent(const Network& network) {
  return std::any_of(network.kinds.begin(), network.kinds.end(), [](const BlockConfig& kind) { return kind.attention && kind.attention->mla; });
}

bool same_but_route(const BlockConfig& a, const BlockConfig& b) {
  return a.attention == b.attention && a.mlp == b.mlp && a.norms == b.norms && a.post_norm_only == b.post_norm_only && a.parallel == b.parallel &&
         a.parallel_norms == b.parallel_norms;
}

bool same_shape(const Network& routed, const Network& dense) {
  if (dense.has_routes() || !routed.has_routes()) return false;
  if (routed.width != dense.width || routed.vocab != dense.vocab || routed.layer_count() != dense.layer_count() || routed.tied != dense.tied) return false;
  for (std::int64_t layer = 0; layer < routed.layer_count(); ++layer) {
    if (!same_but_route(routed.block(layer), dense.block(layer))) return false;
  }
  return true;
}

bool same_scenario(const Scenario& a, const Scenario& b) {
  return a.phase == b.phase && a.batch == b.batch && a.length == b.length && a.past == b.past && a.context == b.context && a.tokens == b.tokens &&
         a.dtype == b.dtype && a.kv_dtype == b.kv_dtype && a.logits == b.logits && a.recompute == b.recompute && a.recompute_ops == b.recompute_ops && a.mla == b.mla &&
         a.full_mask == b.full_mask && a.weight_dtype == b.weight_dtype && a.fusions == b.fusions;
}

Figures scenario_figures(const Network& network, const Scenario& s) {
  Figures figures;
  figures.set("phase", Cell::text(std::string(phase_name(s.phase))));
  figures.set("batch", Cell::count(static_cast<u128>(s.batch)));
  if (s.phase == Phase::kGenerate) {
    figures.set("prompt", Cell::count(static_cast<u128>(s.length)));
    figures.set("tokens", Cell::count(static_cast<u128>(s.tokens)));
  } else if (s.phase == Phase::kDecode) {
    figures.set("context", Cell::count(static_cast<u128>(s.context)));
  } else {
    figures.set("seq", Cell::count(static_cast<u128>(s.length)));
    if (s.past > 0) figures.set("past", Cell::count(static_cast<u128>(s.past)));
  }
  figures.set("dtype", Cell::text(std::string(dtype_name(s.dtype))));
  figures.set("logits", Cell::text(std::string(logits_name(s.logits))));
  if (is_latent(network)) figures.set("mla", Cell::text(std::string(mla_name(s.mla))));
  if (network.has_routes()) figures.set("routing", Cell::text(std::string(routing_name(s.rule()))));
  if (s.phase == Phase::kTrain && s.recompute != Recompute::kNone) figures.set("recompute", Cell::text(recompute_text(s)));
  if (s.phase != Phase::kTrain) {
    const DType stored = s.weight_dtype ? *s.weight_dtype : network.weight_dtype.value_or(s.dtype);
    if (stored != s.dtype) figures.set("weight_dtype", Cell::text(std::string(dtype_name(stored))));
    if (s.kv_dtype != s.dtype) figures.set("kv_dtype", Cell::text(std::string(dtype_name(s.kv_dtype))));
  }
  for (const BlockConfig& kind : network.kinds) {
    if (!kind.mlp || !kind.mlp->moe || (kind.mlp->moe->skew == 0 && kind.mlp->moe->loads.empty())) continue;
    figures.set("expert_loads", Cell::text(kind.mlp->moe->loads.empty() ? fmt::format("~ rank^-{}", kind.mlp->moe->skew) : fmt::format("{}", fmt::join(kind.mlp->moe->loads, ","))));
    break;
  }
  if (s.fusions != Fusions{}) figures.set("fusion", Cell::text(fusions_text(s.fusions)));
  if (s.full_mask) figures.set("mask", Cell::text("full"));
  return figures;
}

// Assignments to experts with limited slots, dropped ones included, in expectation; -1 for other ops, and where no-ops take a share of them.
double expected_assignments(const Workload& workload, int index) {
  const auto* gemm = std::get_if<Gemm>(&workload.ops()[static_cast<size_t>(index)].spec);
  if (!gemm || gemm->capacity == 0) return -1;
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i) {
    const auto* select = std::get_if<ExpertSelect>(&workload.ops()[static_cast<size_t>(i)].spec);
    if (!select || select->experts != gemm->experts || select->rows.count != gemm->tokens || select->capacity != gemm->capacity) continue;
    return select->noops > 0 ? -1 : static_cast<double>(select->rows.count) * static_cast<double>(select->picks) * select->rows.probability.value();
  }
  return -1;
}

Figures op_figures(const Workload& workload, int index) {
  const Op& op = workload.ops()[static_cast<size_t>(index)];
  const std::int64_t uses = workload.uses(index);
  const Cost cost = declared_cost(op) * static_cast<u128>(uses);
  Figures row;
  row.set("path", Cell::text(workload.path(index)));
  row.set("kind", Cell::text(std::string(kind_name(op.spec))));
  row.set("part", Cell::text(std::string(part_name(op.part))));
  row.set("pass", Cell::text(std::string(pass_name(op.pass))));
  row.set("shape", Cell::text(shape_text(op.spec)));
  row.set("times", Cell::count(static_cast<u128>(uses)));
  row.set("flops_matmul", Cell::count(cost.flops));
  const Rows rows = rows_of(op.spec);
  const auto* gemm = std::get_if<Gemm>(&op.spec);
  if (is_random(op.spec)) {
    const ExpectedCost expected = expected_cost(op);
    row.set("flops_expected", Cell::number(expected.flops * static_cast<double>(uses)));
    row.set("rows_declared", Cell::count(static_cast<u128>(rows.count)));
    row.set("rows_expected", Cell::number(expected.rows));
  } else if (has_rows(op.spec)) {
    row.set("rows_declared", Cell::count(static_cast<u128>(rows.count)));
  }
  row.set("elements_vector", Cell::count(cost.elements_total()));
  row.set("bytes_read", Cell::count(cost.read));
  row.set("bytes_written", Cell::count(cost.written));
  if (is_random(op.spec)) {
    const ExpectedCost expected = expected_cost(op);
    row.set("bytes_read_expected", Cell::number(expected.read * static_cast<double>(uses)));
    if (gemm && gemm->experts > 1) row.set("experts_expected", Cell::number(expected_experts(op.spec)));
    if (const double assigned = expected_assignments(workload, index); assigned >= 0) row.set("rows_dropped", Cell::number(std::max(0.0, assigned - expected.rows)));
  }
  return row;
}

}  // namespace

namespace {

std::string rows_text(std::int64_t rows) { return fmt::format("{} {}", rows, rows == 1 ? "row" : "rows"); }

}  // namespace

std::string shape_text(const OpSpec& spec) {
  const Rows rows = rows_of(spec);
  return std::visit(overloaded{
                        [&](const Gemm& op) {
                          switch (op.role) {
                            case GemmRole::kForward: return fmt::format("{}x{}x{}", op.rows.count, op.out, op.in);
                            case GemmRole::kInputGradient: return fmt::format("{}x{}x{}", op.rows.count, op.in, op.out);
                            case GemmRole::kWeightGradient: return fmt::format("{}x{}x{}", op.in, op.out, op.rows.count);
                          }
                          return std::string();
                        },
                        [&](const Attention& op) { return fmt::format("{}, {}/{} heads x {}", rows_text(op.rows.count), op.heads, op.kv_heads, op.qk_dim); },
                        [&](const AttentionBackward& op) {
                          return fmt::format("{}, {}/{} heads x {}", rows_text(op.forward.rows.count), op.forward.heads, op.forward.kv_heads, op.forward.qk_dim);
                        },
                        [&](const Select& op) { return fmt::format("{} of {} x {}", op.selected.count, op.sequences, op.length); },
                        [&](const GradientNorm& op) { return fmt::format("{}", op.params); },
                        [&](const AdamW& op) { return fmt::format("{}", op.params); },
                        [&](const auto&) { return rows_text(rows.count); },
                    },
                    spec);
}

double comparable_flops(const Workload& workload) {
  bool experts = false;  // whose drops are an expectation
  for (const Op& op : workload.ops())
    if (const auto* gemm = std::get_if<Gemm>(&op.spec)) experts = experts || gemm->experts > 1;
  const Cost declared = workload.total();
  const Expectations expected = expectations_of(workload);
  return experts || expected.flops_differ(declared) ? expected.cost.flops : declared.flops.to_double();
}

Expectations expectations_of(const Workload& workload) {
  return {workload.expected_total(), workload.routed(), std::any_of(workload.ops().begin(), workload.ops().end(), [](const Op& op) { return is_random(op.spec); })};
}

Expectations& Expectations::operator+=(const Expectations& other) {
  cost += other.cost;
  routed = routed || other.routed;
  random = random || other.random;
  return *this;
}

int find_twin(const std::vector<TwinKey>& all, size_t index) {
  for (size_t i = 0; i < all.size(); ++i)
    if (i != index && same_shape(*all[index].network, *all[i].network) && same_scenario(*all[index].scenario, *all[i].scenario)) return static_cast<int>(i);
  return -1;
}

Scenario for_dense_twin(const Network& dense, const Scenario& scenario) {
  if (scenario.recompute != Recompute::kNamed || scenario.phase != Phase::kTrain) return scenario;
  Scenario kept = scenario;
  kept.recompute_ops.clear();
  for (const std::string& name : scenario.recompute_ops) {
    Scenario one = scenario;
    one.recompute_ops = {name};
    try {
      count_totals(dense, one);
      kept.recompute_ops.push_back(name);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput || error.where().key != "recompute") throw;
    }
  }
  if (kept.recompute_ops.empty()) kept.recompute = Recompute::kNone;
  return kept;
}

u128 planned_peak(const Network& network, const Scenario& s, const Workload& workload) {
  if (s.phase != Phase::kTrain || s.grad_accumulation <= 2) return static_cast<u128>(plan_memory(workload).arena);
  // Micro-steps follow one another in the same memory, and from the second on they are alike: a thousand have the peak of two.
  Scenario two = s;
  two.grad_accumulation = 2;
  return static_cast<u128>(plan_memory(build(network, two)).arena);
}

Result named_result(const std::string& label, const Network& network, const Scenario& scenario) {
  Result result;
  result.model = label;
  result.scenario = scenario_figures(network, scenario);
  return result;
}

Result counted_result(const std::string& label, const Network& network, const Scenario& s, const Workload& workload) {
  Result result = named_result(label, network, s);
  result.fingerprint = workload.fingerprint();
  const ParameterCount params = count_parameters(network);
  const Cost total = workload.total();
  Figures& totals = result.totals;
  totals.set("params_total", Cell::count(params.total));
  totals.set("params_active", Cell::count(params.active));
  totals.set("flops_matmul", Cell::count(total.flops));
  const Expectations expected = expectations_of(workload);
  if (expected.flops_differ(total)) totals.set("flops_expected", Cell::number(expected.cost.flops));
  totals.set("elements_vector", Cell::count(total.elements_total()));
  totals.set("bytes_read", Cell::count(total.read));
  totals.set("bytes_written", Cell::count(total.written));
  if (expected.random) totals.set("bytes_read_expected", Cell::number(expected.cost.read));
  const bool caches = s.phase != Phase::kTrain;
  const std::int64_t length = s.phase == Phase::kDecode ? s.context : s.past + s.length;
  totals.set("kv_bytes", Cell::count(caches ? kv_bytes(network, length, s.batch, s.kv_dtype, s.kv_page, s.mla, share_taken(s)) : Bytes()));
  if (caches && s.mla == MlaStrategy::kNaive && is_latent(network))
    result.notes.push_back({Note::Severity::kNote, "latent attention is counted naively: keys and values of every head are formed and cached (KV cache); the latent rows alone "
                                                   "(KV/unrouted token) are cached with --mla absorbed or decompress"});
  totals.set("kv_bytes_per_token", Cell::count(kv_bytes_per_token(network, s.kv_dtype)));
  const MemoryParts memory = memory_parts(workload);
  totals.set("weight_bytes", Cell::count(memory.weights));
  const bool leaves = caches && std::any_of(network.kinds.begin(), network.kinds.end(), [&](const BlockConfig& kind) {
                        return kind.attention && ((kind.attention->window > 0 && kind.attention->window < length) || (kind.attention->chunk > 0 && kind.attention->chunk < length));
                      });
  if (const Cell& reach = *totals.find("kv_bytes"); leaves && memory.kv_cache.to_double() > 1.01 * reach.value())  // its lengths apart
    result.notes.push_back({Note::Severity::kNote, fmt::format("KV cache counts the keys and values in reach of windows and chunks ({}); peak memory is what a run allocates, with {} of cache: kernels keep what a "
                                                               "window or chunk has left behind",
                                                               format_value(*reach.exact(), Unit::kBytes), format_value(memory.kv_cache.value(), Unit::kBytes))});
  if (s.phase == Phase::kTrain) {
    totals.set("gradient_bytes", Cell::count(memory.gradients));
    totals.set("optimizer_bytes", Cell::count(memory.optimizer));
    totals.set("saved_bytes", Cell::count(memory.saved));
  }
  std::int64_t ops = program_ops(workload);
  if (s.phase == Phase::kTrain && s.grad_accumulation > 2) ops = ops / s.grad_accumulation * 2;
  if (ops > kMostPlannedOps)
    totals.set("peak_bytes", Cell::status(fmt::format("a step of {} ops is too long for a memory plan", ops)));
  else
    totals.set("peak_bytes", Cell::count(planned_peak(network, s, workload)));
  result.convention_flops = Cell::count(total.flops);
  for (int p = 0; p < kPartCount; ++p) {
    const Cost part = workload.total(static_cast<Part>(p));
    if (part == Cost{} && params.part(static_cast<Part>(p)) == Params()) continue;  // parameters without an op in this phase (a predictor that nothing asks) are listed: the column adds up
    Figures row;
    row.set("part", Cell::text(std::string(part_name(static_cast<Part>(p)))));
    row.set("flops_matmul", Cell::count(part.flops));
    row.set("elements_vector", Cell::count(part.elements_total()));
    row.set("bytes_read", Cell::count(part.read));
    row.set("bytes_written", Cell::count(part.written));
    row.set("params_total", Cell::count(params.part(static_cast<Part>(p))));
    result.parts.push_back(std::move(row));
  }
  for (size_t i = 0; i < workload.ops().size(); ++i) result.ops.push_back(op_figures(workload, static_cast<int>(i)));
  return result;
}

}  // namespace fathom
