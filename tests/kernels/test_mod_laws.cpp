// Laws of a routed block that whole lists must keep when they infer, on the reference and on the CPU: T2, T4, T6, T14, T23, T25, T26.
// Where a mutant is easy to state it stands beside its law, and must break it.
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/cost.hpp"
#include "tests/kernels/mod_laws.hpp"

namespace fathom::testing {

TEST_CASE("T2: selected positions ascend, and rows and gates stand in their order", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    Scenario s = prefill_scenario(2, 16);
    s.routing = RoutingRule::kTopK;
    const Bound bound = bind_on(*backend, tiny_mod(Fraction{1, 4}, 1), s);
    ProgramExecution& run = bound.run();
    run.begin_pass();
    std::vector<float> indices, scores;
    int gathers = 0, scatters = 0, off_order = 0;
    for (int i = 0; i < run.instance_count(); ++i) {
      const BoundOp& op = run.bound(i);
      std::vector<float> x;
      if (std::holds_alternative<ScatterAddRows>(*op.spec)) x = run.read(op.in[0].at);
      run.run_instance(i);
      if (std::holds_alternative<Select>(*op.spec)) {
        scores = run.read(op.in[0].at);
        indices = values_of(op.out[0], run, 8);
        for (size_t b = 0; b < 2; ++b) {
          const auto first = indices.begin() + static_cast<std::ptrdiff_t>(4 * b);
          CHECK(std::is_sorted(first, first + 4));
          CHECK((first[0] >= static_cast<float>(16 * b) && first[3] < static_cast<float>(16 * b + 16)));
          // In the order of scores they would stand elsewhere: the law says something.
          off_order += !std::is_sorted(first, first + 4, [&](float a, float c) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(c)]; });
        }
      }
      if (std::holds_alternative<GatherRows>(*op.spec)) {
        const std::vector<float> from = run.read(op.in[0].at), rows = run.read(op.out[0].at);
        const size_t width = static_cast<size_t>(op.out[0].cols);
        bool first_rows = true;  // the mutant: rows 0..C-1
        for (size_t k = 0; k < 8; ++k)
          for (size_t c = 0; c < width; ++c) {
            CHECK(rows[k * width + c] == from[static_cast<size_t>(indices[k]) * width + c]);
            first_rows = first_rows && rows[k * width + c] == from[k * width + c];
          }
        CHECK_FALSE(first_rows);
        ++gathers;
      }
      if (std::holds_alternative<ScatterAddRows>(*op.spec)) {
        const std::vector<float> f = run.read(op.in[1].at), y = run.read(op.out[0].at);
        const size_t width = static_cast<size_t>(op.out[0].cols);
        for (size_t k = 0; k < 8; ++k)
          for (size_t c = 0; c < width; ++c) {
            const size_t row = static_cast<size_t>(indices[k]);
            CHECK(y[row * width + c] == Approx(x[row * width + c] + scores[row] * f[k * width + c]).margin(1e-5));
          }
        ++scatters;
      }
    }
    CHECK(gathers == 3);
    CHECK(scatters == 3);
    CHECK(off_order > 0);
  }
}

TEST_CASE("T4: with every slot and a gate of one a routed block is the dense block", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    Scenario s = prefill_scenario(2, 13);
    s.routing = RoutingRule::kTopK;
    const auto logits = [&](const Network& network, const ProgramExecution* weights) {
      Bound bound = bind_on(*backend, network, s);
      if (weights) copy_weights(*weights, bound.run());
      bound.run().run();
      return std::pair{logits_of(bound.run()), std::move(bound)};
    };
    Network all = tiny_mod(Fraction{1, 1});
    for (BlockConfig& kind : all.kinds)
      if (kind.route) kind.route->gate.kind = GateKind::kNone;
    // On plain weights: a packed one cannot be read back. The reference's are the same by name and seed.
    const Bound source = bind_on(*backends()[0], dense_twin(all), s);
    const auto dense = logits(dense_twin(all), &source.run());
    CHECK(largest_difference(logits(all, &source.run()).first, dense.first) < 1e-5);
    Network most = all;
    for (BlockConfig& kind : most.kinds)
      if (kind.route) kind.route->capacity = Fraction{12, 13};
    CHECK(largest_difference(logits(most, &source.run()).first, dense.first) > 1e-3);
    Network doubled = all;  // mutant: a gate of one half
    for (BlockConfig& kind : doubled.kinds)
      if (kind.route) kind.route->gate = Gate{GateKind::kTanh, 0, 0.5};
    CHECK(largest_difference(logits(doubled, &source.run()).first, dense.first) > 1e-3);
  }
}

TEST_CASE("T6: with fixed positions a suffix moves no prefix row", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    Scenario s = prefill_scenario(1, 16);
    s.routing = RoutingRule::kRandom;  // the same positions whatever the tokens
    const Network network = tiny_mod(Fraction{1, 2}, 1);
    const Bound bound = bind_on(*backend, network, s);
    std::vector<std::vector<float>> tokens = test_tokens(1, 16, network.vocab);
    const auto run = [&] {
      bound.run().write(tokens_of(bound.run()), tokens[0]);
      bound.run().run();
      return logits_of(bound.run());
    };
    const std::vector<float> before = run();
    for (size_t i = 10; i < 16; ++i) tokens[0][i] = static_cast<float>((static_cast<int>(tokens[0][i]) + 5) % static_cast<int>(network.vocab));
    const std::vector<float> after = run();
    const size_t prefix = 10 * static_cast<size_t>(network.vocab);
    CHECK(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(prefix), after.begin()));
    CHECK_FALSE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(prefix), before.end(), after.begin() + static_cast<std::ptrdiff_t>(prefix)));
  }
}

TEST_CASE("T14: single-token decode takes and skips a block over many tokens", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    const Bound bound = bind_on(*backend, tiny_mod(Fraction{1, 4}), decode_scenario(1, 9));
    ProgramExecution& run = bound.run();
    run.calibrate_participation();
    run.vary_tokens(true);
    std::vector<std::int64_t> taken(instances_of<Select>(run).size(), 0);
    for (int step = 0; step < 96; ++step) {
      run.run();
      for (size_t k = 0; k < taken.size(); ++k) taken[k] += run.executed(instances_of<Select>(run)[k]).rows;
    }
    for (const std::int64_t count : taken) CHECK((count > 4 && count < 60));  // max(1, rho) would give 96, floor(rho) 0
  }
}

TEST_CASE("T23: slots scale with the sequence: 37 of 300 at 1/8, not a constant", "[laws]") {
  Route route;
  route.capacity = Fraction{1, 8};
  for (const auto& [length, slots] : {std::pair{300, 37}, {2048, 256}, {7, 0}, {12, 1}, {100, 12}}) CHECK(slots_of(route, length) == slots);
  for (const Backend* backend : backends()) {
    Scenario s = prefill_scenario(1, 300);
    s.routing = RoutingRule::kTopK;
    const Bound bound = bind_on(*backend, tiny_mod(Fraction{1, 8}), s);
    bound.run().run();
    for (const int select : instances_of<Select>(bound.run())) CHECK(bound.run().executed(select).rows == 37);
  }
}

TEST_CASE("T25: the realised participation is reported, and one of .155 costs 24 % more than 1/8", "[laws]") {
  const Network network = tiny_mod(Fraction{1, 8});
  for (const Backend* backend : backends()) {
    const Bound bound = bind_on(*backend, network, prefill_scenario(4, 64));
    bound.run().set_thresholds(std::vector<float>(instances_of<Select>(bound.run()).size(), 0.0f));  // untrained and not calibrated: not 1/8
    bound.run().run();
    for (const Participation& block : bound.run().participation()) {
      CHECK(block.wanted == 0.125);
      CHECK(block.candidates == 4 * 64);
      CHECK(block.taken > 0);
      CHECK(block.rate() != 0.125);
    }
  }
  const auto routed_flops = [&](const Fraction& share) {
    Scenario s = decode_scenario(64, 128);
    s.participation = make_fraction(share.num, share.den);
    double flops = 0;
    const Workload w = build(network, s);
    for (size_t i = 0; i < w.ops().size(); ++i)
      if (rows_of(w.ops()[i].spec).routed() && std::holds_alternative<Gemm>(w.ops()[i].spec)) flops += expected_cost(w.ops()[i].spec).flops;
    return flops;
  };
  CHECK(routed_flops(Fraction{155, 1000}) / routed_flops(Fraction{1, 8}) == Approx(1.24));
}

TEST_CASE("T26: weights that were written elsewhere and read back give the same selection", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    const Network network = tiny_mod(Fraction{1, 4});
    Scenario s = scenario(Phase::kTrain, 2, 16);
    const Bound first = bind_on(*backend, network, s);
    first.run().run();  // one optimizer step moves the routers
    BindOptions other;
    other.seed = 77;
    const Workload list = build(network, s);
    const auto owner = backend->bind(list, other);
    auto& second = dynamic_cast<ProgramExecution&>(*owner);
    const auto selections = [&](ProgramExecution& run) {
      std::vector<std::vector<float>> all;
      run.write(tokens_of(run), columns(test_tokens(2, 16, network.vocab), 0, 16));
      run.begin_pass();
      for (int i = 0; i < run.instance_count(); ++i) {
        if (run.workload().ops()[static_cast<size_t>(run.bound(i).op)].pass != Pass::kForward) break;
        run.run_instance(i);
        if (std::holds_alternative<Select>(*run.bound(i).spec)) all.push_back(run.read(run.bound(i).out[0].at));
      }
      return all;
    };
    const auto want = selections(first.run());
    CHECK(selections(second) != want);
    copy_weights(first.run(), second);
    CHECK(selections(second) == want);
  }
}

}  // namespace fathom::testing
