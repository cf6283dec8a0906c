// Laws of a routed block that whole lists must keep, on the reference and on the CPU: T2, T4, T6, T11, T12, T14, T17, T18, T23, T25-T27.
// Where a mutant is easy to state it stands beside its law, and must break it.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/reference/backend.hpp"
#include "lib/cost.hpp"
#include "tests/kernels/run_testing.hpp"
#include "tests/tiny_models.hpp"

#if FATHOM_CPU
#include "kernels/cpu/backend.hpp"
#endif

namespace fathom::testing {
namespace {

std::vector<const Backend*> backends() {
  static const reference::ReferenceBackend reference(reference::Precision::kF64);
  std::vector<const Backend*> all = {&reference};
#if FATHOM_CPU
  static const cpu::CpuBackend cpu;
  all.push_back(&cpu);
#endif
  return all;
}

Network tiny_mod(Fraction capacity, std::int64_t every = 2) {
  Tiny t;
  t.every = every;
  t.capacity = capacity;
  t.max_length = 512;
  return network(t);
}

// "mod/attn/qkv/weight" -> "attn/qkv/weight"; names outside the layers stay whole.
std::string leaf_of(const Tensor& tensor) { return tensor.scope == Scope::kGlobal ? tensor.name : tensor.name.substr(tensor.name.find('/') + 1); }

using Named = std::map<std::pair<std::string, int>, TensorInstance>;
Named tensors_of(const ProgramExecution& run, Role role) {
  Named found;
  for (int i = 0; i < run.instance_count(); ++i)
    for (const auto* views : {&run.bound(i).in, &run.bound(i).out})
      for (const OperandView& view : *views) {
        const Tensor& tensor = run.workload().tensors()[static_cast<size_t>(view.at.tensor)];
        if (tensor.role == role) found[{leaf_of(tensor), view.at.copy}] = view.at;
      }
  return found;
}

void copy_weights(const ProgramExecution& from, ProgramExecution& to) {
  const Named sources = tensors_of(from, Role::kWeight);
  for (const auto& [key, at] : tensors_of(to, Role::kWeight))
    if (const auto found = sources.find(key); found != sources.end()) to.write(at, from.read(found->second));
}

std::vector<float> values_of(const OperandView& view, const ProgramExecution& run, std::int64_t rows) {
  std::vector<float> values = run.read(view.at);
  values.resize(static_cast<size_t>(rows * view.cols));
  return values;
}

}  // namespace

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

TEST_CASE("T11: every sequence has its own ones as targets of the router's loss, and the mean is over all tokens", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    Network network = tiny_mod(Fraction{1, 4}, 1);
    const Bound bound = bind_on(*backend, network, scenario(Phase::kTrain, 4, 16));
    ProgramExecution& run = bound.run();
    run.begin_pass();
    int losses = 0;
    for (int i = 0; i < run.instance_count(); ++i) {
      run.run_instance(i);
      if (!std::holds_alternative<RouterLoss>(*run.bound(i).spec)) continue;
      ++losses;
      const std::vector<float> scores = run.read(run.bound(i).in[0].at), d = run.read(run.bound(i).out[1].at);
      double loss = 0;
      for (size_t b = 0; b < 4; ++b) {
        int ones = 0;
        for (size_t t = 16 * b; t < 16 * b + 16; ++t) {
          const double sigma = 1 / (1 + std::exp(-static_cast<double>(scores[t])));
          const bool one = d[t] < 0;  // sigma - z is negative only where z = 1
          ones += one;
          CHECK(static_cast<double>(d[t]) == Approx(0.01 / 64 * (sigma - (one ? 1 : 0))).epsilon(1e-4));
          loss -= std::log(one ? sigma : 1 - sigma);
        }
        CHECK(ones == 4);  // flat targets without the batch offset would give 16 in the first sequence
      }
      CHECK(static_cast<double>(run.read(run.bound(i).out[0].at)[0]) == Approx(0.01 / 64 * loss).epsilon(1e-4));
    }
    CHECK(losses == 3);
  }
}

TEST_CASE("T12: a predictor's gradient reaches nothing but the predictor", "[laws]") {
  for (const Backend* backend : backends()) {
    for (const std::int64_t hidden : {0, 6}) {
      CAPTURE(backend->name(), hidden);
      const Network without = tiny_mod(Fraction{1, 2});
      Network with = without;
      for (BlockConfig& kind : with.kinds)
        if (kind.route) kind.route->predictor = Predictor{hidden};
      Scenario s = scenario(Phase::kTrain, 2, 12);
      s.optimizer = false;
      const Bound a = bind_on(*backend, without, s), b = bind_on(*backend, with, s);
      a.run().run();
      b.run().run();
      const Named plain = tensors_of(a.run(), Role::kGradient), predicted = tensors_of(b.run(), Role::kGradient);
      CHECK(predicted.size() > plain.size());
      for (const auto& [key, at] : predicted) {
        CAPTURE(key.first, key.second);
        const std::vector<float> gradient = b.run().read(at);
        if (key.first.find("predict/") == 0) {
          CHECK(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
          continue;
        }
        CHECK(gradient == a.run().read(plain.at(key)));  // bit for bit: exactly zero came from the predictor
      }
    }
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

TEST_CASE("T17: a target of -1 is left out of the loss, its mean and the gradients", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    const Network network = tiny_mod(Fraction{1, 4});
    Scenario s = scenario(Phase::kTrain, 2, 12);
    s.optimizer = false;
    const Bound bound = bind_on(*backend, network, s);
    ProgramExecution& run = bound.run();
    run.begin_pass();
    int losses = 0;
    for (int i = 0; i < run.instance_count(); ++i) {
      const BoundOp& op = run.bound(i);
      if (!std::holds_alternative<CrossEntropy>(*op.spec)) {
        run.run_instance(i);
        continue;
      }
      ++losses;
      std::vector<float> targets = run.read(op.in[1].at);
      for (size_t r = 0; r < targets.size(); ++r)
        if (r % 12 >= 7) targets[r] = -1;  // the last five of each twelve are padding
      run.write(op.in[1].at, targets);
      // Read first: the gradient may take the place of the logits.
      const std::vector<float> logits = run.read(op.in[0].at);
      run.run_instance(i);
      const std::vector<float> d = run.read(op.out[1].at);
      const size_t stride = logits.size() / targets.size(), vocab = static_cast<size_t>(network.vocab);
      double loss = 0;
      for (size_t r = 0; r < targets.size(); ++r) {
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[r * stride + v]));
        for (size_t v = 0; v < vocab; ++v) {
          const double p = std::exp(static_cast<double>(logits[r * stride + v])) / sum;
          const double want = targets[r] < 0 ? 0 : (p - (static_cast<float>(v) == targets[r])) / 14;
          CHECK(static_cast<double>(d[r * stride + v]) == Approx(want).epsilon(1e-4).margin(1e-7));
        }
        if (targets[r] >= 0) loss += std::log(sum) - static_cast<double>(logits[r * stride + static_cast<size_t>(targets[r])]);
      }
      CHECK(static_cast<double>(run.read(op.out[0].at)[0]) == Approx(loss / 14).epsilon(1e-4));  // 2 x 7 valid tokens, not 24
    }
    CHECK(losses == 1);
  }
}

TEST_CASE("T18: recomputation replays the selection: the same gradients, with equal scores too", "[laws]") {
  for (const Backend* backend : backends()) {
    for (const bool ties : {false, true}) {
      CAPTURE(backend->name(), ties);
      std::map<std::pair<std::string, int>, std::vector<float>> first;
      size_t selects = 0;
      for (const char* policy : {"none", "selective", "full", "mlp/act", "attn,mlp,norm1,norm2", "gemm,attention,route/gather"}) {
        CAPTURE(policy);
        Scenario s = scenario(Phase::kTrain, 2, 12);
        parse_recompute(policy, s);
        s.optimizer = false;
        const Bound bound = bind_on(*backend, tiny_mod(Fraction{1, 4}), s);
        ProgramExecution& run = bound.run();
        if (ties)  // a router that scores all tokens alike
          for (const auto& [key, at] : tensors_of(run, Role::kWeight))
            if (key.first == "route/score/weight") run.write(at, std::vector<float>(run.read(at).size(), 0.0f));
        run.run();
        if (first.empty()) selects = instances_of<Select>(run).size();
        CHECK(instances_of<Select>(run).size() == selects);  // none is repeated
        for (const auto& [key, at] : tensors_of(run, Role::kGradient)) {
          CAPTURE(key.first, key.second);
          const std::vector<float> gradient = run.read(at);
          if (s.recompute == Recompute::kNone) first[key] = gradient;
          double size = 1e-6;
          for (const float g : first.at(key)) size = std::max(size, std::abs(static_cast<double>(g)));
          CHECK(largest_difference(gradient, first.at(key)) <= 1e-5 * size);
        }
      }
    }
  }
}

TEST_CASE("a router learns the same from the selected rows as from all of them", "[laws]") {
  // The auxiliary loss takes the router's backward over every row. With a weight of 1e-30 it says nothing, so the language loss gives the same gradients both ways.
  for (const Backend* backend : backends())
    for (const RoutingRule rule : {RoutingRule::kTopK, RoutingRule::kThreshold})
      for (const auto& [part, mlp] : {std::pair{RoutedPart::kBlock, true}, {RoutedPart::kMlp, true}, {RoutedPart::kBlock, false}, {RoutedPart::kAttention, false}})
        for (const char* policy : {"none", "full", "gather_rows,activation"})
          for (const Fraction capacity : {Fraction{1, 3}, Fraction{0, 1}, Fraction{1, 1}}) {
            if (rule == RoutingRule::kThreshold && backend != backends().front()) continue;  // products over random rows have no gradient kernel there
            CAPTURE(backend->name(), static_cast<int>(rule), static_cast<int>(part), mlp, policy, capacity.str());
            Scenario s = scenario(Phase::kTrain, 2, 12);
            s.optimizer = false;
            s.routing = rule;
            parse_recompute(policy, s);
            std::map<std::pair<std::string, int>, std::vector<float>> first;
            for (const double lambda : {1e-30, 0.0}) {
              Network net = tiny_mod(capacity);
              for (BlockConfig& kind : net.kinds)
                if (kind.route) {
                  if (mlp) kind.route->router = RouterKind::kMlp, kind.route->router_hidden = 5;
                  kind.route->router_bias = true, kind.route->aux_lambda = lambda, kind.route->part = part;
                }
              const Bound bound = bind_on(*backend, net, s);
              ProgramExecution& run = bound.run();
              run.run();
              for (const auto& [key, at] : tensors_of(run, Role::kGradient)) {
                CAPTURE(key.first, key.second);
                const std::vector<float> gradient = run.read(at);
                if (lambda > 0) first[key] = gradient;
                double size = 1e-6;
                for (const float g : first.at(key)) size = std::max(size, std::abs(static_cast<double>(g)));
                CHECK(largest_difference(gradient, first.at(key)) <= 1e-5 * size);
                if (key.first == "route/hidden/weight" && capacity.num > 0)
                  CHECK(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
              }
            }
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

TEST_CASE("T27: routing changes the executed multiply-adds by what is declared", "[laws]") {
  for (const Backend* backend : backends()) {
    CAPTURE(backend->name());
    const Network routed = tiny_mod(Fraction{1, 4});
    Scenario s = scenario(Phase::kTrain, 2, 16);
    const auto executed = [&](const Network& network) {
      const Bound bound = bind_on(*backend, network, s);
      bound.run().run();
      Flops sum;
      for (int i = 0; i < bound.run().instance_count(); ++i) sum += cost_at(*bound.run().bound(i).spec, bound.run().executed(i)).flops;
      CHECK(sum == bound.workload.total().flops);
      return sum;
    };
    const Flops with = executed(routed), without = executed(dense_twin(routed));
    CHECK(with < without);
    CHECK(with.to_double() / without.to_double() < 0.85);  // one of three blocks at a quarter of the rows
  }
}

}  // namespace fathom::testing
