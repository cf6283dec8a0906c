#include "tools/generation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/plan.hpp"
#include "models/builder.hpp"
#include "reports/format.hpp"
#include "tools/interrupt.hpp"
#include "tools/results.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kMostRepeats = 20;  // of a generation, unless --rounds says how many
constexpr double kSeconds = 10;            // for them, unless --time says so
constexpr int kPoints = 5;  // of the output at which a decode step is predicted

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

// Times of a token at kPoints places of the output: "70.1 us throughout", or each of them.
std::string along_output(const std::vector<double>& seconds) {
  constexpr double kSame = 0.01;
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  if (*most <= *least * (1 + kSame)) return format_value(seconds.front(), Unit::kSeconds, 3) + " from the first to the last";
  std::string text = "at this share of the output:";
  for (size_t k = 0; k < seconds.size(); ++k) text += fmt::format("{} {} % {}", k ? "," : "", 100 * k / (seconds.size() - 1), format_value(seconds[k], Unit::kSeconds, 3));
  return text;
}

std::unique_ptr<ProgramExecution> bind_program(const Backend& runner, const Workload& workload, const BindOptions& options) {
  std::unique_ptr<Execution> execution = runner.bind(workload, options);
  auto* program = dynamic_cast<ProgramExecution*>(execution.get());
  if (!program) throw_input(fmt::format("backend '{}' cannot generate", runner.name()), {"", 0, "--backend"}, "use --backend cpu or reference");
  execution.release();
  return std::unique_ptr<ProgramExecution>(program);
}

}  // namespace

Scenario generation_prefill(const Scenario& scenario) {
  Scenario prefill = scenario;
  prefill.phase = Phase::kPrefill;
  prefill.routing = scenario.rule();
  prefill.logits = LogitsKind::kLast;
  return prefill;
}

Scenario generation_decode(const Scenario& scenario, std::int64_t context) {
  Scenario decode = scenario;
  decode.phase = Phase::kDecode;
  decode.routing = scenario.rule();
  decode.context = context;
  return decode;
}

Scenario generation_end(const Scenario& scenario) { return generation_decode(scenario, scenario.length + std::max<std::int64_t>(0, scenario.tokens - 1)); }

Result count_generation(const Configuration& c) {
  const Scenario& s = c.scenario;
  const Workload prefill = build(c.network, generation_prefill(s));
  Result result = counted_result(c.label, c.network, generation_prefill(s), prefill);
  const Scenario last = generation_end(s);
  const Workload end = build(c.network, last);
  // Of the prefill and every step: a step differs from the last in its context alone, so the same of its figures are random.
  Cost sum = prefill.total();
  Expectations expected = expectations_of(prefill);
  expected.cost = count_totals(c.network, generation_prefill(s), true).expected;  // summed as those of the steps are, and as in a sweep
  const Expectations of_last = expectations_of(end);
  for (std::int64_t token = 1; token < s.tokens; ++token) {
    const ListTotals step = count_totals(c.network, generation_decode(s, s.length + token), true);
    sum += step.total;
    expected += {step.expected, of_last.routed, of_last.random};
  }
  std::int64_t peak = plan_memory(prefill).arena;
  if (s.tokens > 1) peak = std::max(peak, plan_memory(end).arena);
  Figures& totals = result.totals;
  totals.set("flops_matmul", Cell::count(sum.flops));
  if (expected.flops_differ(sum)) totals.set("flops_expected", Cell::number(expected.cost.flops));
  totals.set("elements_vector", Cell::count(sum.elements_total()));
  totals.set("bytes_read", Cell::count(sum.read));
  if (expected.random) totals.set("bytes_read_expected", Cell::number(expected.cost.read));
  totals.set("bytes_written", Cell::count(sum.written));
  totals.set("kv_bytes", *counted_result(c.label, c.network, last, end).totals.find("kv_bytes"));
  totals.set("peak_bytes", Cell::count(static_cast<u128>(peak)));
  result.convention_flops = Cell::count(sum.flops);
  Figures shown;  // rule and logits of the prefill, lengths of the generation
  for (const auto& [key, cell] : result.scenario.items()) {
    if (key != "seq") {
      shown.set(key, key == "phase" ? Cell::text("generate") : cell);
      continue;
    }
    shown.set("prompt", Cell::count(static_cast<u128>(s.length)));
    shown.set("tokens", Cell::count(static_cast<u128>(s.tokens)));
  }
  result.scenario = shown;
  result.ops.clear();
  result.parts.clear();
  result.notes.push_back({Note::Severity::kNote, fmt::format("a prefill of {} tokens and {} decode steps; the prefill's logits give the first token", s.length, s.tokens - 1)});
  return result;
}

GenerationPrediction predict_generation(const Network& network, const Scenario& s, const Machine& machine, const PredictOptions& options) {
  check_dtype(machine, s);
  GenerationPrediction p;
  p.first = p.total = predict(build(network, generation_prefill(s)), machine, options).seconds;
  if (s.tokens <= 1) return p;
  for (int k = 0; k < kPoints; ++k) {
    const std::int64_t token = 1 + (s.tokens - 2) * k / (kPoints - 1);
    const StepPrediction step = predict(build(network, generation_decode(s, s.length + token)), machine, options);
    p.steps.push_back(step.seconds);
    if (k == kPoints / 2) p.middle = step;
  }
  double mean = 0;  // trapezoids over the five points
  for (size_t k = 0; k + 1 < p.steps.size(); ++k) mean += (p.steps[k] + p.steps[k + 1]) / 2 / (kPoints - 1);
  p.total += mean * static_cast<double>(s.tokens - 1);
  p.per_token = (p.total - p.first) / static_cast<double>(s.tokens - 1);
  return p;
}

void predict_generation(Result& result, const Configuration& c, const Machine& machine, const TimedFlags& flags) {
  const GenerationPrediction p = predict_generation(c.network, c.scenario, machine, predict_options(machine, flags));
  result.machine = machine.name;
  result.machine_hash = machine.hash();
  result.totals.set("predicted_s", Cell::number(p.total));
  result.totals.set("predicted_ttft_s", Cell::number(p.first));
  if (p.steps.empty()) return;
  result.totals.set("predicted_tpot_s", Cell::number(p.per_token));
  result.totals.set("predicted_p50_s", Cell::number(p.middle.p50));
  result.totals.set("predicted_p95_s", Cell::number(p.middle.p95));
  result.totals.set("predicted_p99_s", Cell::number(p.middle.p99));
  result.notes.push_back({Note::Severity::kNote, "predicted time per token " + along_output(p.steps)});
}

BoundGeneration bind_generation(const Configuration& c, const TimedFlags& flags) {
  const Scenario& s = c.scenario;
  const Backend& runner = backend(flags.backend);
  BindOptions options;
  options.threads = flags.threads;
  options.seed = flags.seed;
  options.norm_epsilon = c.network.norm_epsilon;
  options.stop = interrupted;
  BoundGeneration bound;
  const Workload steps = build(c.network, generation_decode(s, s.length + std::max<std::int64_t>(1, s.tokens - 1)));
  options.beside = plan_memory(steps).arena;
  bound.prefill = bind_program(runner, build(c.network, generation_prefill(s)), options);
  options.beside = 0;
  options.graph = graph_mode(flags.launch, true);
  bound.decode = bind_program(runner, steps, options);
  bound.prefill->calibrate_participation();
  return bound;
}

GenerateOptions generate_options(const Configuration& c, const TimedFlags& flags) {
  GenerateOptions options;
  options.tokens = c.scenario.tokens;
  if (flags.temperature > 0)
    options.pick = [temperature = flags.temperature, seed = flags.seed](std::span<const float> logits, std::uint64_t draw) { return sampled_token(logits, temperature, seed, draw); };
  return options;
}

std::string thresholds_note(const BoundGeneration& bound, const Configuration& c, const TimedFlags& flags) {
  bool thresholds = false;
  for (const Op& op : bound.decode->workload().ops())
    if (const auto* select = std::get_if<Select>(&op.spec)) thresholds = thresholds || select->rule == RoutingRule::kThreshold || select->rule == RoutingRule::kPredictor;
  if (!thresholds || c.scenario.tokens < 2) return "";
  const std::string on = fmt::format("thresholds were set on generations of this prompt and number of tokens (of at most {} steps)", kCalibratedSteps);
  if (flags.temperature > 0) return on + ", with draws of their own";
  return on + ": greedy ones are the run itself, so the participation is that of the tokens they were set on; with --temperature they are others";
}

namespace {

void generate_and_note(Result& result, const Configuration& c, const TimedFlags& flags, bool quiet) {
  const Scenario& s = c.scenario;
  const BoundGeneration bound = bind_generation(c, flags);
  const auto& [prefill, decode] = bound;
  calibrate_generation(*prefill, *decode, generate_options(c, flags));
  if (const std::string note = thresholds_note(bound, c, flags); !note.empty()) result.notes.push_back({Note::Severity::kNote, fmt::format("{}: {}", c.label, note)});
  prefill->run();  // warm-up: first executions of library primitives are several times slower
  if (flags.backend == "cuda") {  // the first pass loads kernels, the second captures the step
    decode->set_thresholds(prefill->thresholds());
    decode->run();
    decode->run();
  }
  Progress progress(quiet);
  const double start = system_clock().now();
  GenerateOptions how = generate_options(c, flags);
  const double budget = flags.time > 0 ? flags.time : kSeconds;
  std::vector<double> steps, wholes, firsts;
  double sum = 0, rows = 0, blocks = 0, last = 0;
  std::int64_t made = 0;
  // The same tokens again and again: as many times as asked, else while the time lasts.
  for (std::int64_t round = 0; flags.rounds > 0 ? round < flags.rounds : round == 0 || (round < kMostRepeats && system_clock().now() - start + last < budget); ++round) {
    const double begin = system_clock().now();
    how.progress = [&](std::int64_t tokens) {
      const double share = (static_cast<double>(round) + static_cast<double>(tokens) / static_cast<double>(s.tokens)) / static_cast<double>(std::max<std::int64_t>(round + 1, flags.rounds));
      progress.show(fmt::format("generating with {}", c.label), share, system_clock().now() - start);
      return !interrupted();
    };
    const Generation generation = generate(*prefill, *decode, how);
    last = system_clock().now() - begin;
    const auto now_made = static_cast<std::int64_t>(generation.steps.size()) + 1;
    if (round > 0 && now_made < s.tokens) break;  // an interrupt: what is whole stands
    made = now_made;
    double own = 0;
    std::int64_t counted = 0;
    for (size_t i = 0; i < generation.steps.size(); ++i) {
      if (i == 0 && generation.steps.size() > 4) continue;  // the first step creates library primitives
      steps.push_back(generation.steps[i].seconds);
      own += generation.steps[i].seconds;
      ++counted;
      for (std::int64_t n : generation.steps[i].rows) {
        rows += static_cast<double>(n);
        blocks += 1;
      }
    }
    sum += own;
    firsts.push_back(generation.first_token_s);
    wholes.push_back(generation.first_token_s + (counted > 0 ? own / static_cast<double>(counted) : 0) * static_cast<double>(generation.steps.size()));
    if (made < s.tokens) break;
  }
  const double per_token = steps.empty() ? 0 : sum / static_cast<double>(steps.size());
  result.scenario.set("backend", Cell::text(flags.backend));
  result.scenario.set("temperature", Cell::number(flags.temperature));
  const bool complete = made >= s.tokens;  // part of a generation has no time of the whole
  result.totals.set("measured_s", complete ? Cell::number(quantile(wholes, 0.5)) : Cell::status("interrupted"));
  if (!complete) result.notes.push_back({Note::Severity::kWarning, fmt::format("interrupted after {} of {} tokens", made, s.tokens)});
  result.totals.set("ttft_s", Cell::number(quantile(firsts, 0.5)));
  if (complete) result.totals.set("samples", Cell::count(static_cast<u128>(wholes.size())));
  if (complete && wholes.size() > 2) result.totals.set("spread", Cell::number((quantile(wholes, 0.75) - quantile(wholes, 0.25)) / quantile(wholes, 0.5)));
  if (steps.empty()) return;
  result.totals.set("tpot_s", Cell::number(per_token));
  result.totals.set("p50_s", Cell::number(quantile(steps, 0.5)));
  result.totals.set("p95_s", Cell::number(quantile(steps, 0.95)));
  result.totals.set("p99_s", Cell::number(quantile(steps, 0.99)));
  result.totals.set("tokens_per_s", Cell::number(static_cast<double>(s.batch) / per_token));
  if (blocks > 0) result.totals.set("participation", Cell::number(rows / blocks / static_cast<double>(s.batch)));
  if (const double predicted = result.totals.number("predicted_s"); predicted > 0 && complete)
    result.totals.set("error", Cell::number(predicted / result.totals.number("measured_s") - 1));
  std::vector<double> points;
  for (int k = 0; k < kPoints; ++k) points.push_back(steps[(steps.size() / wholes.size() - 1) * static_cast<size_t>(k) / (kPoints - 1)]);  // of the first generation
  result.notes.push_back({Note::Severity::kNote, "measured time per token " + along_output(points)});
}

}  // namespace

void run_generation(Result& result, const Configuration& c, const TimedFlags& flags, bool quiet) {
  try {
    generate_and_note(result, c, flags, quiet);
  } catch (const Stopped&) {
    result.totals.set("measured_s", Cell::status("interrupted"));
    result.notes.push_back({Note::Severity::kWarning, "interrupted before the first token"});
  }
}

}  // namespace fathom
