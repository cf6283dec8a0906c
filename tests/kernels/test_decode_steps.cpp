// Decode and chunked prefill of whole networks on the CPU: the causal laws (T3, T5, T13-T16, T20), executed sizes, memory.
#if FATHOM_CPU
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/error.hpp"
#include "tests/kernels/run_testing.hpp"

namespace fathom::testing {
namespace {

const cpu::CpuBackend kCpu;

// An attention window that is shorter than the sequences.
Network windowed(std::int64_t window, std::int64_t chunk) {
  Network network = builtin_network("mod-tiny");
  network.layers.assign(network.layers.size(), 0);  // dense blocks only
  for (BlockConfig& kind : network.kinds) kind.attention->window = window, kind.attention->chunk = chunk;
  return network;
}

}  // namespace

// What the counts of a prefill's core say: without cached tokens it reads the keys and values that the projection wrote, so that a narrower cache changes no bit; behind
// cached tokens (none of which are there yet, so that all keys are new) it reads them back from the cache, rounded.
TEST_CASE("a prefill reads fresh keys in the type of compute, a continued one from the cache") {
  Network network = small_mod();
  network.layers.assign(network.layers.size(), 0);
  const std::int64_t length = 16;
  const auto tokens = test_tokens(2, length, network.vocab);
  const auto logits = [&](std::int64_t past, DType cache) {
    Scenario s = prefill_scenario(2, length, past);
    s.kv_dtype = cache;
    const Bound bound = bind_on(kCpu, network, s);
    ProgramExecution& run = bound.run();
    if (past > 0) run.set_past(0);
    run.write(tokens_of(run), columns(tokens, 0, length));
    run.set_positions(0);
    run.run();
    return logits_of(run);
  };
  CHECK(logits(0, DType::kF32) == logits(0, DType::kBF16));
  CHECK(largest_difference(logits(8, DType::kF32), logits(0, DType::kF32)) < 1e-4);
  CHECK(largest_difference(logits(8, DType::kF32), logits(8, DType::kBF16)) > 1e-4);
}

TEST_CASE("T13, T16: any chunking of a threshold prefill and token-by-token decode are the same") {
  const Network network = small_mod();
  const std::int64_t length = 24;
  const auto tokens = test_tokens(3, length, network.vocab);
  const std::vector<float> thresholds = calibrated(kCpu, network, 3, length);
  const Trace whole = trace(kCpu, network, tokens, {length}, thresholds);
  REQUIRE(whole.taken.size() == 2);
  for (const std::int64_t taken : whole.taken) {  // T14: blocks are taken and skipped
    CHECK(taken > 3);
    CHECK(taken < 3 * length - 3);
  }
  const std::vector<std::int64_t> one_by_one(static_cast<size_t>(length), 1);
  for (const auto& pieces : {one_by_one, {2, 22}, {7, 17}, {10, 10, 4}, {13, 1, 1, 9}, {20, 1, 1, 1, 1}}) {
    CAPTURE(pieces);
    const Trace pieced = trace(kCpu, network, tokens, pieces, thresholds);
    CHECK(pieced.taken == whole.taken);
    CHECK(pieced.counts == whole.counts);
    for (size_t b = 0; b < tokens.size(); ++b) CHECK(largest_difference(pieced.logits[b], whole.logits[b]) < 2e-5);
  }
}

TEST_CASE("T15: a sequence does not see its batch mates") {
  const Network network = small_mod();
  const std::int64_t length = 16;
  const auto tokens = test_tokens(7, length, network.vocab);
  const std::vector<float> thresholds = calibrated(kCpu, network, 7, length);
  const std::vector<std::int64_t> pieces = {6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const Trace all = trace(kCpu, network, tokens, pieces, thresholds);
  std::vector<std::vector<float>> shuffled;
  const size_t order[] = {4, 2, 6, 0, 5, 1, 3};
  for (const size_t b : order) shuffled.push_back(tokens[b]);
  const Trace mixed = trace(kCpu, network, shuffled, pieces, thresholds);
  for (size_t b = 0; b < 7; ++b) {
    CAPTURE(b);
    CHECK(largest_difference(mixed.logits[b], all.logits[order[b]]) < 1e-5);
    const Trace alone = trace(kCpu, network, {tokens[b]}, pieces, thresholds);
    CHECK(largest_difference(alone.logits[0], all.logits[b]) < 1e-5);
    for (size_t list = 0; list < 4; ++list) CHECK(alone.counts[list] == all.counts[list * 7 + b]);
  }
}

TEST_CASE("windows and chunks of a mask act the same in prefill, chunked prefill and decode") {
  for (const auto& [window, chunk] : {std::pair<int, int>{5, 0}, {0, 6}, {1, 0}}) {
    CAPTURE(window, chunk);
    const Network network = windowed(window, chunk);
    const auto tokens = test_tokens(2, 20, network.vocab);
    const Trace whole = trace(kCpu, network, tokens, {20}, {});
    for (const auto& pieces : {std::vector<std::int64_t>(20, 1), {11, 9}, {3, 1, 15, 1}}) {
      const Trace pieced = trace(kCpu, network, tokens, pieces, {});
      for (size_t b = 0; b < 2; ++b) CHECK(largest_difference(pieced.logits[b], whole.logits[b]) < 2e-5);
    }
  }
}

TEST_CASE("T13: windows and chunks act on original positions in the lists of routed blocks, which have gaps") {
  for (const auto& [window, chunk] : {std::pair<int, int>{5, 0}, {0, 6}, {1, 0}}) {
    CAPTURE(window, chunk);
    Network network = small_mod();
    for (BlockConfig& kind : network.kinds) kind.attention->window = window, kind.attention->chunk = chunk;
    const auto tokens = test_tokens(2, 20, network.vocab);
    const std::vector<float> thresholds = calibrated(kCpu, network, 2, 20);
    const Trace whole = trace(kCpu, network, tokens, {20}, thresholds);
    for (const std::int64_t taken : whole.taken) CHECK((taken > 0 && taken < 40));
    for (const auto& pieces : {std::vector<std::int64_t>(20, 1), {11, 9}, {3, 1, 15, 1}}) {
      const Trace pieced = trace(kCpu, network, tokens, pieces, thresholds);
      CHECK(pieced.taken == whole.taken);
      for (size_t b = 0; b < 2; ++b) CHECK(largest_difference(pieced.logits[b], whole.logits[b]) < 2e-5);
    }
  }
}

TEST_CASE("bf16: prefill, chunked prefill and decode agree to the precision of their storage") {
  Network network = small_mod();
  network.layers.assign(network.layers.size(), 0);  // dense: a rounding must not turn into a routing decision
  const auto tokens = test_tokens(3, 20, network.vocab);
  const Trace exact = trace(kCpu, network, tokens, {20}, {});
  double size = 0;
  for (const float logit : exact.logits[0]) size = std::max(size, std::abs(static_cast<double>(logit)));
  for (const auto& pieces : {std::vector<std::int64_t>{20}, std::vector<std::int64_t>(20, 1), {11, 9}}) {
    CAPTURE(pieces);
    const Trace pieced = trace(kCpu, network, tokens, pieces, {}, DType::kBF16);
    for (size_t b = 0; b < 3; ++b) CHECK(largest_difference(pieced.logits[b], exact.logits[b]) < 0.03 * size);
  }
}

TEST_CASE("T3, T20: a selected row gains g(r) f of the main router, a bypassed row stays bit for bit") {
  const Network network = small_mod();
  Bound bound = bind_on(kCpu, network, decode_scenario(5, 40));
  ProgramExecution& run = bound.run();
  run.calibrate_participation(1, 20);
  std::int64_t selected = 0, bypassed = 0;
  for (int step = 0; step < 6; ++step) {
    run.vary_tokens(true);
    run.begin_pass();
    for (int i = 0; i < run.instance_count(); ++i) {
      if (!std::holds_alternative<ScatterAddRows>(*run.bound(i).spec)) {
        run.run_instance(i);
        continue;
      }
      const BoundOp& op = run.bound(i);
      const auto x = run.read(op.in[0].at), f = run.read(op.in[1].at), indices = run.read(op.in[2].at), scores = run.read(op.in[3].at);
      run.run_instance(i);
      const auto y = run.read(op.out[0].at);
      const size_t width = static_cast<size_t>(network.width);
      std::vector<int> row_of(5, -1);
      for (std::int64_t r = 0; r < run.executed(i).rows; ++r) row_of[static_cast<size_t>(indices[static_cast<size_t>(r)])] = static_cast<int>(r);
      for (size_t b = 0; b < 5; ++b) {
        CHECK((row_of[b] >= 0) == (scores[b] > run.threshold(op)));
        for (size_t c = 0; c < width; ++c) {
          if (row_of[b] < 0)
            CHECK(y[b * width + c] == x[b * width + c]);
          else
            CHECK(y[b * width + c] == Approx(x[b * width + c] + scores[b] * f[static_cast<size_t>(row_of[b]) * width + c]).margin(1e-5));
        }
        (row_of[b] < 0 ? bypassed : selected) += 1;
      }
    }
  }
  CHECK(selected > 0);
  CHECK(bypassed > 0);
}

TEST_CASE("T20: routing by predictor decides with the predictor and gates with the main router, in prefill and decode") {
  for (const std::int64_t hidden : {0, 6}) {
    Network network = small_mod();
    for (BlockConfig& kind : network.kinds)
      if (kind.route) kind.route->predictor = Predictor{hidden};
    for (Scenario s : {prefill_scenario(2, 12), decode_scenario(9, 20)}) {
      CAPTURE(hidden, phase_name(s.phase));
      s.routing = RoutingRule::kPredictor;
      const Bound bound = bind_on(kCpu, network, s);
      ProgramExecution& run = bound.run();
      run.set_thresholds(std::vector<float>(instances_of<Select>(run).size(), 0.0f));
      run.begin_pass();
      std::vector<float> router, predictor;
      std::int64_t selected = 0, candidates = 0, scatters = 0;
      for (int i = 0; i < run.instance_count(); ++i) {
        const BoundOp& op = run.bound(i);
        const bool scatter = std::holds_alternative<ScatterAddRows>(*op.spec);
        const std::vector<float> x = scatter ? run.read(op.in[0].at) : std::vector<float>{};
        run.run_instance(i);
        if (std::holds_alternative<RouterScore>(*op.spec))
          (bound.workload.ops()[static_cast<size_t>(op.op)].part == Part::kPredictor ? predictor : router) = run.read(op.out[0].at);
        if (!scatter) continue;
        const auto f = run.read(op.in[1].at), indices = run.read(op.in[2].at), y = run.read(op.out[0].at);
        REQUIRE(router.size() == predictor.size());
        CHECK(router != predictor);
        ++scatters;
        const size_t width = static_cast<size_t>(network.width);
        size_t next = 0;
        for (size_t row = 0; row < router.size(); ++row) {
          const bool taken = static_cast<std::int64_t>(next) < run.executed(i).rows && indices[next] == static_cast<float>(row);
          CHECK(taken == (predictor[row] > 0));
          for (size_t c = 0; c < width; ++c)
            if (taken)
              CHECK(y[row * width + c] == Approx(x[row * width + c] + router[row] * f[next * width + c]).margin(1e-5));
            else
              CHECK(y[row * width + c] == x[row * width + c]);
          next += taken;
        }
        CHECK(static_cast<std::int64_t>(next) == run.executed(i).rows);
        selected += run.executed(i).rows, candidates += static_cast<std::int64_t>(router.size());
      }
      CHECK(scatters == 2);
      CHECK((selected > 0 && selected < candidates));
    }
  }
}

TEST_CASE("T5: a block that nobody takes is the identity, runs no FLOPs but the router's, and its weights are not read") {
  const Network network = small_mod();
  Bound bound = bind_on(kCpu, network, decode_scenario(3, 12));
  ProgramExecution& run = bound.run();
  const std::vector<int> selects = instances_of<Select>(run);
  run.set_thresholds(std::vector<float>(selects.size(), INFINITY));
  run.run();
  const std::vector<float> before = logits_of(run);
  int poisoned = 0;
  for (int i = 0; i < run.instance_count(); ++i) {
    const Op& op = bound.workload.ops()[static_cast<size_t>(run.bound(i).op)];
    if (!rows_of(op.spec).routed() || std::holds_alternative<Select>(op.spec)) continue;
    CHECK(run.executed(i).rows == 0);
    CHECK(run.executed(i).keys == 0);
    CHECK(run.executed_flops(i) == Flops(0));
    for (const OperandView& v : run.bound(i).in) {
      if (bound.workload.tensors()[static_cast<size_t>(v.at.tensor)].role != Role::kWeight) continue;
      run.write(v.at, std::vector<float>(static_cast<size_t>(v.rows * v.cols), std::nanf("")));
      ++poisoned;
    }
  }
  CHECK(poisoned == 2 * 6);  // two norms, qkv, out, up, down of two blocks
  run.run();
  CHECK(logits_of(run) == before);
  // The other way round the poison arrives at the next router.
  run.set_thresholds(std::vector<float>(selects.size(), -INFINITY));
  CHECK_THROWS_AS(run.run(), Error);
}

TEST_CASE("executed sizes of a decode step are those of its lists, and executed FLOPs their cost") {
  const Network network = small_mod();
  Bound bound = bind_on(kCpu, network, decode_scenario(6, 50));
  ProgramExecution& run = bound.run();
  run.calibrate_participation(1, 20);
  run.begin_pass();
  for (int i = 0; i < run.instance_count(); ++i) {
    const BoundOp& op = run.bound(i);
    run.run_instance(i);
    CHECK(run.executed_flops(i) == cost_at(*op.spec, run.executed(i)).flops);  // few rows: no padding
    if (!std::holds_alternative<Attention>(*op.spec)) continue;
    const auto counts = run.read(op.in[3].at);
    std::int64_t keys = 0;
    if (op.selection < 0) {
      for (const float count : counts) keys += static_cast<std::int64_t>(count);
      CHECK(keys == 6 * 50);
    } else {
      const auto indices = run.read(op.in[4].at);
      for (std::int64_t r = 0; r < run.executed(i).rows; ++r) keys += static_cast<std::int64_t>(counts[static_cast<size_t>(indices[static_cast<size_t>(r)])]);
    }
    CHECK(run.executed(i).keys == keys);
    CHECK(run.executed(i).pairs == static_cast<u128>(keys));
  }
}

TEST_CASE("calibration gives untrained routers the wanted participation") {
  Network network = small_mod();
  for (const auto& [batch, context, share] : {std::tuple<int, int, Fraction>{4, 32, {1, 4}}, {1, 16, {1, 8}}, {8, 8, {3, 4}}}) {
    CAPTURE(batch, context);
    Scenario scenario = decode_scenario(batch, context);
    scenario.participation = share;
    Bound bound = bind_on(kCpu, network, scenario);
    ProgramExecution& run = bound.run();
    const std::vector<float> tokens = run.read(tokens_of(run));
    run.calibrate_participation();
    CHECK(run.read(tokens_of(run)) == tokens);
    for (const Participation& block : run.participation()) CHECK(block.candidates == 0);
    run.vary_tokens(true);
    const int steps = 800 / batch;
    for (int step = 0; step < steps; ++step) run.run();
    const std::vector<Participation> blocks = run.participation();
    REQUIRE(blocks.size() == 2);
    for (const Participation& block : blocks) {
      CHECK(block.wanted == share.value());
      CHECK(block.candidates == steps * batch);
      // 512 scores set the threshold and 800 test it: standard deviation below .03.
      CHECK(block.rate() == Approx(share.value()).margin(0.08));
    }
    CHECK(blocks[0].layer == 1);
    CHECK(blocks[1].layer == 3);
  }
}

TEST_CASE("memory that a decode step allocates is what was planned") {
  const Network network = small_mod();
  BindOptions options;
  options.threads = 2;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Scenario& scenario : {decode_scenario(3, 40, dtype), decode_scenario(24, 9, dtype), prefill_scenario(2, 30, 17, dtype)}) {
      const Workload workload = build(network, scenario);
      const BackendMemory planned = kCpu.memory(workload, options);
      CHECK(planned.plan.arena == plan_memory(workload).arena);
      CHECK(kCpu.bind(workload, options)->allocated_bytes() == planned.total());
    }
}

TEST_CASE("larger batches mix streaming and blocked products and agree with small ones") {
  const Network network = small_mod();
  const auto tokens = test_tokens(40, 6, network.vocab);
  for (const DType dtype : {DType::kF32}) {
    const std::vector<float> thresholds = calibrated(kCpu, network, 40, 6, dtype);
    const std::vector<std::int64_t> pieces(6, 1);
    const Trace all = trace(kCpu, network, tokens, pieces, thresholds, dtype);
    for (size_t b = 0; b < 40; b += 13) {
      const Trace alone = trace(kCpu, network, {tokens[b]}, pieces, thresholds, dtype);
      CHECK(largest_difference(alone.logits[0], all.logits[b]) < 1e-5);
    }
  }
}

}  // namespace fathom::testing
#endif
