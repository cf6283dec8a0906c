// Bound workloads of small networks, and access to their ends by what they are.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/backend.hpp"
#include "kernels/generate.hpp"
#include "models/builder.hpp"
#include "models/registry.hpp"

namespace fathom::testing {

// mod-tiny (width 64, 4 layers, blocks 1 and 3 routed at 1/4) with two key heads, so that query groups occur.
inline Network small_mod() {
  Network network = builtin_network("mod-tiny");
  for (BlockConfig& kind : network.kinds) kind.attention->kv_heads = 2;
  return network;
}

struct Bound {
  Workload workload;
  std::unique_ptr<Execution> owner;
  ProgramExecution& run() const { return *dynamic_cast<ProgramExecution*>(owner.get()); }
};

inline Bound bind_on(const Backend& backend, const Network& network, const Scenario& scenario, int threads = 2) {
  BindOptions options;
  options.threads = threads;
  Bound bound{build(network, scenario), nullptr};
  bound.owner = backend.bind(bound.workload, options);
  return bound;
}

inline Scenario prefill_scenario(std::int64_t batch, std::int64_t length, std::int64_t past = 0, DType dtype = DType::kF32) {
  Scenario s;
  s.phase = Phase::kPrefill;
  s.batch = batch, s.length = length, s.past = past;
  s.dtype = s.kv_dtype = dtype;
  s.logits = LogitsKind::kAll;
  s.routing = RoutingRule::kThreshold;
  return s;
}

inline Scenario decode_scenario(std::int64_t batch, std::int64_t context, DType dtype = DType::kF32) {
  Scenario s;
  s.phase = Phase::kDecode;
  s.batch = batch, s.context = context;
  s.dtype = s.kv_dtype = dtype;
  return s;
}

// Instances of a kind, in program order.
template <class Kind>
std::vector<int> instances_of(const ProgramExecution& run) {
  std::vector<int> found;
  for (int i = 0; i < run.instance_count(); ++i)
    if (std::holds_alternative<Kind>(*run.bound(i).spec)) found.push_back(i);
  return found;
}

inline TensorInstance tokens_of(const ProgramExecution& run) { return run.bound(instances_of<Embedding>(run).front()).in[0].at; }

inline std::vector<float> logits_of(const ProgramExecution& run) {
  return run.read(run.bound(instances_of<Gemm>(run).back()).out[0].at);
}

inline std::vector<float> counts_of(const ProgramExecution& run) {
  std::vector<float> all;
  for (const KvList& list : run.kv_lists())
    for (const float count : run.read(list.counts.at)) all.push_back(count);
  return all;
}

// tokens[sequence][position] of [first, first + count), as the op list stores them.
inline std::vector<float> columns(const std::vector<std::vector<float>>& tokens, std::int64_t first, std::int64_t count) {
  std::vector<float> flat;
  for (const auto& sequence : tokens) flat.insert(flat.end(), sequence.begin() + first, sequence.begin() + first + count);
  return flat;
}

inline std::vector<std::vector<float>> test_tokens(std::int64_t sequences, std::int64_t length, std::int64_t vocab, std::uint64_t seed = 5) {
  std::vector<std::int32_t> flat(static_cast<size_t>(sequences * length));
  fill_tokens(seed, "test tokens", vocab, flat);
  std::vector<std::vector<float>> tokens(static_cast<size_t>(sequences));
  for (size_t i = 0; i < flat.size(); ++i) tokens[i / static_cast<size_t>(length)].push_back(static_cast<float>(flat[i]));
  return tokens;
}

// The result of processing `tokens` in pieces: logits [sequence][position][vocab] flattened per sequence, and rows taken per routed block.
struct Trace {
  std::vector<std::vector<float>> logits;
  std::vector<float> counts;              // of all caches, in program order
  std::vector<std::int64_t> taken;        // rows per routed block over the whole run
};

// pieces: lengths that sum to that of the sequences; 1 runs a decode step, more a chunk of prefill after what came before.
inline Trace trace(const Backend& backend, const Network& network, const std::vector<std::vector<float>>& tokens, const std::vector<std::int64_t>& pieces,
                   const std::vector<float>& thresholds, DType dtype = DType::kF32) {
  const auto batch = static_cast<std::int64_t>(tokens.size());
  const auto length = static_cast<std::int64_t>(tokens[0].size());
  Trace result;
  result.logits.resize(tokens.size());
  Bound chunk, decode;
  std::int64_t past = 0;
  const Bound* last = nullptr;
  for (const std::int64_t piece : pieces) {
    Bound next;
    if (piece > 1) next = bind_on(backend, network, prefill_scenario(batch, piece, past, dtype));
    if (piece == 1 && last != &decode) {
      decode = bind_on(backend, network, decode_scenario(batch, length, dtype));
      // Slots that were never written must not be read.
      for (const KvList& list : decode.run().kv_lists())
        decode.run().write(list.cache.at, std::vector<float>(static_cast<size_t>(list.cache.rows * list.cache.cols), std::nanf("")));
      decode.run().set_past(0);
      decode.run().keep_cache(true);
    }
    Bound& own = piece > 1 ? next : decode;
    if (last && last != &own) hand_over(last->run(), own.run(), past);
    ProgramExecution& run = own.run();
    run.set_thresholds(thresholds);
    run.write(tokens_of(run), columns(tokens, past, piece));
    run.set_positions(past);
    run.run();
    const std::vector<float> logits = logits_of(run);
    const size_t per_sequence = logits.size() / tokens.size();
    for (size_t b = 0; b < tokens.size(); ++b)
      result.logits[b].insert(result.logits[b].end(), logits.begin() + static_cast<std::ptrdiff_t>(b * per_sequence),
                              logits.begin() + static_cast<std::ptrdiff_t>((b + 1) * per_sequence));
    const std::vector<int> selects = instances_of<Select>(run);
    result.taken.resize(selects.size());
    for (size_t s = 0; s < selects.size(); ++s) result.taken[s] += run.executed(selects[s]).rows;
    result.counts = counts_of(run);
    past += piece;
    if (piece > 1) chunk = std::move(next);
    last = piece > 1 ? &chunk : &decode;
  }
  return result;
}

inline std::vector<float> calibrated(const Backend& backend, const Network& network, std::int64_t batch, std::int64_t length, DType dtype = DType::kF32) {
  Bound bound = bind_on(backend, network, prefill_scenario(batch, length, 0, dtype));
  bound.run().calibrate_participation();
  return bound.run().thresholds();
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = d <= most ? most : (std::isnan(d) ? INFINITY : d);
  }
  return most;
}

}  // namespace fathom::testing
