#include "kernels/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "lib/error.hpp"
#include "lib/fill.hpp"

namespace fathom {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Where a workload takes its tokens and leaves its logits.
struct Ends {
  TensorInstance tokens, logits;
  std::int64_t token_rows = 0, logit_rows = 0, vocab = 0;
  std::vector<int> selects;
};

Ends ends_of(const ProgramExecution& execution) {
  Ends ends;
  for (int i = 0; i < execution.instance_count(); ++i) {
    const BoundOp& bound = execution.bound(i);
    if (std::holds_alternative<Embedding>(*bound.spec)) {
      ends.tokens = bound.in[0].at;
      ends.token_rows = bound.in[0].rows;
    }
    if (std::holds_alternative<Select>(*bound.spec)) ends.selects.push_back(i);
    const Op& op = execution.workload().ops()[static_cast<size_t>(bound.op)];
    if (op.part == Part::kLogits && std::holds_alternative<Gemm>(op.spec)) {
      ends.logits = bound.out[0].at;
      ends.logit_rows = bound.out[0].rows;
      ends.vocab = std::min<std::int64_t>(bound.out[0].cols, execution.workload().stream().vocab);
    }
  }
  if (ends.logit_rows == 0) throw_input("generation needs the logits of the last token", {"", 0, "logits"}, "use logits = last");
  return ends;
}

std::vector<std::int64_t> rows_of_blocks(const ProgramExecution& execution, const Ends& ends) {
  std::vector<std::int64_t> rows;
  for (const int select : ends.selects) rows.push_back(execution.executed(select).rows);
  return rows;
}

}  // namespace

std::int64_t greedy_token(std::span<const float> logits) {
  std::int64_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<std::int64_t>(i);
  }
  return best;
}

std::int64_t sampled_token(std::span<const float> logits, double temperature, std::uint64_t seed, std::uint64_t draw) {
  const std::int64_t best = greedy_token(logits);
  if (best < 0) return best;
  const double top = static_cast<double>(logits[static_cast<size_t>(best)]), size = static_cast<double>(logits.size());
  if (!std::isfinite(top)) return -1;
  const std::string stream = fmt::format("token/{}", draw);
  const auto weight = [&](size_t token) { return std::exp((static_cast<double>(logits[token]) - top) / temperature); };
  // Flat logits accept one of a few tokens, which spares the exponentials of a whole vocabulary. Peaked ones (a low temperature) refuse nearly all: then all are added up.
  constexpr std::uint64_t kTrials = 64;
  for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
    const auto token = std::min(static_cast<size_t>(fill_uniform(seed, stream, 2 * trial) * size), logits.size() - 1);
    if (fill_uniform(seed, stream, 2 * trial + 1) < weight(token)) return static_cast<std::int64_t>(token);
  }
  double sum = 0;
  for (size_t token = 0; token < logits.size(); ++token) sum += weight(token);
  double left = fill_uniform(seed, stream, 2 * kTrials) * sum;
  for (size_t token = 0; token < logits.size(); ++token)
    if ((left -= weight(token)) < 0) return static_cast<std::int64_t>(token);
  return best;
}

void hand_over(const ProgramExecution& from, ProgramExecution& to, std::int64_t past) {
  const auto refuse = [](const std::string& what) { throw_input("these two workloads are no steps of one run: " + what); };
  const std::vector<KvList>& sources = from.kv_lists();
  const std::vector<KvList>& targets = to.kv_lists();
  const StreamShape& step = to.workload().stream();
  for (const Tensor& tensor : to.workload().tensors())  // positions of a cache that is expanded, models/mla.cpp
    if (tensor.name.ends_with("/key_positions") && tensor.rows < step.sequences * (step.past + step.queries))
      throw_input("generation with latents decompressed inside a window or chunks is counted, not executed: the list of the keys in reach does not move on", {"", 0, "mla"}, "use naive or absorbed");
  if (sources.size() != targets.size()) refuse(fmt::format("{} caches here, {} there", sources.size(), targets.size()));
  for (size_t i = 0; i < sources.size(); ++i) {
    const KvList& source = sources[i];
    const KvList& target = targets[i];
    const std::int64_t width = source.cache.cols, sequences = source.counts.rows;
    if (target.cache.cols != width || target.counts.rows != sequences) refuse("their caches have other widths or batches");
    const std::vector<float> counts = from.read(source.counts.at);
    const std::vector<float> rows = from.read(source.cache.at);
    std::vector<float> moved(static_cast<size_t>(target.cache.rows * width), 0.0f);
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto held = static_cast<std::int64_t>(counts[static_cast<size_t>(b)]);
      if (held > target.capacity()) refuse(fmt::format("a list of {} keys does not fit a cache of {}", held, target.capacity()));
      std::copy_n(rows.begin() + b * source.capacity() * width, held * width, moved.begin() + b * target.capacity() * width);
    }
    to.write(target.cache.at, moved);
    if (source.positions.data && target.positions.data) {
      const std::vector<float> kept = from.read(source.positions.at);
      std::vector<float> places(static_cast<size_t>(target.positions.rows), 0.0f);
      for (std::int64_t b = 0; b < sequences; ++b)
        std::copy_n(kept.begin() + b * source.capacity(), static_cast<std::int64_t>(counts[static_cast<size_t>(b)]), places.begin() + b * target.capacity());
      to.write(target.positions.at, places);
    }
    to.write(target.counts.at, counts);
  }
  to.set_thresholds(from.thresholds());
  to.set_positions(past);
  to.keep_cache(true);
}

void calibrate_generation(ProgramExecution& prefill, ProgramExecution& decode, const GenerateOptions& options, int passes) {
  constexpr std::uint64_t kOtherDraws = std::uint64_t{1} << 48;  // no run draws so many tokens
  constexpr double kNear = 0.05;                                 // of the wanted rate
  const Ends ends = ends_of(decode);
  if (options.tokens < 2 || ends.selects.empty()) return;
  const auto select_of = [&](size_t s) -> const Select& { return std::get<Select>(*decode.bound(ends.selects[s]).spec); };
  std::vector<float> thresholds = prefill.thresholds(), best = thresholds;
  double nearest = std::numeric_limits<double>::infinity();
  for (int pass = 1; pass <= passes && nearest > kNear; ++pass) {
    std::vector<std::vector<float>> scores(ends.selects.size());
    GenerateOptions how = options;
    how.tokens = std::min(options.tokens, kCalibratedSteps + 1);
    how.pick = [&](std::span<const float> logits, std::uint64_t draw) { return options.pick(logits, draw + static_cast<std::uint64_t>(pass) * kOtherDraws); };
    how.pass = [&](ProgramExecution& execution) {
      if (&execution != &decode) return execution.run();
      execution.begin_pass();
      size_t next = 0;
      for (int i = 0; i < execution.instance_count(); ++i) {
        execution.run_instance(i);
        if (next == ends.selects.size() || ends.selects[next] != i) continue;
        const std::vector<float> values = execution.read(execution.bound(i).in[0].at);
        scores[next].insert(scores[next].end(), values.begin(), values.begin() + select_of(next).sequences);
        ++next;
      }
    };
    prefill.set_thresholds(thresholds);
    const Generation made = generate(prefill, decode, how);
    double taken = 0, wanted = 0;
    for (const GeneratedStep& step : made.steps)
      for (size_t s = 0; s < scores.size(); ++s) taken += static_cast<double>(step.rows[s]), wanted += select_of(s).selected.expected();
    const double off = wanted > 0 ? std::abs(taken / wanted - 1) : 0;
    if (off < nearest) nearest = off, best = thresholds;
    for (size_t s = 0; s < scores.size(); ++s)
      if ((select_of(s).rule == RoutingRule::kThreshold || select_of(s).rule == RoutingRule::kPredictor) && !scores[s].empty())
        thresholds[s] = threshold_for(scores[s], select_of(s).selected.probability.value());
  }
  prefill.set_thresholds(best);
  prefill.reset_participation();
  decode.reset_participation();
}

Generation generate(ProgramExecution& prefill, ProgramExecution& decode, const GenerateOptions& options) {
  const StreamShape& prompt = prefill.workload().stream();
  const StreamShape& step = decode.workload().stream();
  const std::int64_t past = prompt.past + prompt.queries;
  const Ends first = ends_of(prefill);
  if (options.tokens < 1) throw_input("a generation makes at least one token", {"", 0, "tokens"});
  if (step.sequences != prompt.sequences || step.queries != 1) throw_input("generation decodes one token per sequence of the prefill");
  if (options.tokens > 1 && step.past < past + options.tokens - 2)
    throw_input(fmt::format("{} tokens after {} need a decode step planned for a context of {}, this one has {}", options.tokens, past,
                            past + options.tokens - 1, step.past + 1));
  for (const int select : first.selects) {
    const Select& spec = std::get<Select>(*prefill.bound(select).spec);
    if (spec.rule == RoutingRule::kThreshold || spec.rule == RoutingRule::kPredictor) continue;
    // A block that all tokens take, or none, is selected by rank too: it looks at no score.
    if (spec.selected.count != 0 && spec.selected.count != spec.sequences * spec.length)
      throw_input("a prefill that routes by top-k looks at later tokens, so no decode step can continue it", {"", 0, "routing"},
                  "use threshold routing");
  }

  const std::int64_t sequences = prompt.sequences;
  Generation made;
  made.tokens.resize(static_cast<size_t>(sequences));
  std::vector<float> chosen(static_cast<size_t>(sequences));
  const auto choose = [&](const ProgramExecution& execution, const Ends& ends) {
    const std::vector<float> logits = execution.read(ends.logits);
    const std::int64_t stride = static_cast<std::int64_t>(logits.size()) / ends.logit_rows, per_sequence = ends.logit_rows / sequences;
    const std::uint64_t draws = made.tokens[0].size() * static_cast<std::uint64_t>(sequences);
    for (std::int64_t b = 0; b < sequences; ++b) {
      const std::span<const float> row(logits.data() + ((b + 1) * per_sequence - 1) * stride, static_cast<size_t>(ends.vocab));
      const std::int64_t token = options.pick(row, draws + static_cast<std::uint64_t>(b));
      if (token < 0) throw_input(fmt::format("the logits of sequence {} are not numbers", b), {}, "the weights are not finite or overflow");
      made.tokens[static_cast<size_t>(b)].push_back(static_cast<std::int32_t>(token));
      chosen[static_cast<size_t>(b)] = static_cast<float>(token);
    }
  };
  const auto go_on = [&] { return !options.progress || options.progress(static_cast<std::int64_t>(made.tokens[0].size())); };

  double start = now();
  options.pass(prefill);
  choose(prefill, first);
  made.first_token_s = now() - start;
  made.prefill_rows = rows_of_blocks(prefill, first);
  if (options.tokens == 1 || !go_on()) return made;

  start = now();
  hand_over(prefill, decode, past);
  made.hand_over_s = now() - start;
  const Ends next = ends_of(decode);
  for (std::int64_t t = 1; t < options.tokens; ++t) {
    start = now();
    decode.write(next.tokens, chosen);
    decode.set_positions(past + t - 1);
    try {
      options.pass(decode);
    } catch (const Stopped&) {
      break;
    }
    choose(decode, next);
    made.steps.push_back({now() - start, past + t, rows_of_blocks(decode, next)});
    if (!go_on()) break;
  }
  return made;
}

}  // namespace fathom
