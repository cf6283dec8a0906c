// Laws of a routed block that whole lists must keep when they train, on the reference and on the CPU: T11, T12, T17, T18, T27.
// Where a mutant is easy to state it stands beside its law, and must break it.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "lib/cost.hpp"
#include "tests/kernels/mod_laws.hpp"

namespace fathom::testing {

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

TEST_CASE("T18: with a schedule of capacities, recomputation and micro-steps give every layer its own rows", "[laws]") {
  // Slots of 12 tokens: 6, all, 1, 3. Layer 0 and 5 are full.
  const std::int64_t slots[] = {12, 6, 12, 1, 3, 12};
  Tiny t;
  t.layers = 6;
  Network net = network(t);
  const Fraction capacities[] = {{1, 2}, {1, 1}, {1, 12}, {1, 4}};
  for (int layer = 1; layer <= 4; ++layer) {
    BlockConfig kind = net.kinds[0];
    kind.route.emplace();
    kind.route->capacity = capacities[layer - 1];
    net.kinds.push_back(kind);
    net.layers[static_cast<size_t>(layer)] = layer;
  }
  for (const Backend* backend : backends()) {
    for (const bool ties : {false, true}) {
      CAPTURE(backend->name(), ties);
      std::map<std::pair<std::string, int>, std::vector<float>> first;
      for (const Recompute policy : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        CAPTURE(recompute_name(policy));
        Scenario s = scenario(Phase::kTrain, 2, 12);
        s.recompute = policy;
        s.optimizer = false;
        s.grad_accumulation = 2;  // a schedule that counted passes would be further on in the second
        const Bound bound = bind_on(*backend, net, s);
        ProgramExecution& run = bound.run();
        if (ties)
          for (const auto& [key, at] : tensors_of(run, Role::kWeight))
            if (key.first == "route/score/weight") run.write(at, std::vector<float>(run.read(at).size(), 0.0f));
        run.run();
        int products = 0, again = 0;
        for (int i = 0; i < run.instance_count(); ++i) {
          const Op& op = run.workload().ops()[static_cast<size_t>(run.bound(i).op)];
          if (!std::holds_alternative<Gemm>(op.spec) || op.part == Part::kLogits) continue;
          CHECK(run.executed(i).rows == 2 * slots[run.bound(i).layer]);
          ++products;
          again += op.pass == Pass::kRecompute;
        }
        CHECK((products > 0 && (again > 0) == (policy == Recompute::kFull)));
        CHECK(instances_of<Select>(run).size() == 2 * 4);  // one per routed layer and micro-step, whatever is recomputed
        for (const auto& [key, at] : tensors_of(run, Role::kGradient)) {
          CAPTURE(key.first, key.second);
          const std::vector<float> gradient = run.read(at);
          if (policy == Recompute::kNone) first[key] = gradient;
          double size = 1e-6;
          for (const float g : first.at(key)) size = std::max(size, std::abs(static_cast<double>(g)));
          CHECK(largest_difference(gradient, first.at(key)) <= 1e-5 * size);
        }
      }
    }
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

}  // namespace fathom::testing
