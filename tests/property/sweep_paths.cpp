// The two ways to predict: one list made, walked and searched in full, and many lists one after the other with what they share remembered.
#include <catch2/catch.hpp>

#include <cmath>
#include <optional>
#include <random>

#include "lib/error.hpp"
#include "lib/gpu/gpu_model.hpp"
#include "lib/predict/handover.hpp"
#include "lib/predict/predictor.hpp"
#include "models/builder.hpp"
#include "models/machine_ini.hpp"
#include "models/registry.hpp"
#include "tests/random_networks.hpp"
#include "tests/unit/predict_sample.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

constexpr double kSame = 1e-12;

// `scale`: of the sum that a difference was taken from.
bool same(double a, double b, double scale = 0) { return a == b || std::abs(a - b) <= kSame * std::max({std::abs(a), std::abs(b), scale}); }

Machine probed_cpu() { return load_machine(FATHOM_SOURCE_DIR "/reports/samples/validation_machine.ini"); }

// Predicts one network's scenarios by both ways and compares every figure. Returns how many lists there were.
int compare(StepPredictor& fast, const Network& network, const std::vector<Scenario>& scenarios, const Machine& machine, const PredictOptions& options) {
  WorkloadBuilder memory;
  int lists = 0;
  for (const Scenario& scenario : scenarios) {
    std::optional<Workload> list;
    try {
      list = build(network, scenario);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      CHECK_THROWS_AS(build_in_place(network, scenario, memory), Error);
      continue;
    }
    CAPTURE(network.name, phase_name(scenario.phase), scenario.batch, scenario.length, scenario.context, machine.name);
    const Workload& bare = build_in_place(network, scenario, memory);
    REQUIRE(bare.ops().size() == list->ops().size());
    const StepPrediction slow = predict(*list, machine, options);
    const StepPrediction& quick = fast.predict(bare);
    ++lists;
    const auto figures = [](const StepPrediction& p) { return std::vector<double>{p.seconds, p.lo, p.hi, p.overhead, p.compute, p.memory, p.launch, p.p50, p.p95, p.p99}; };
    const std::vector<double> a = figures(slow), b = figures(quick);
    for (std::size_t i = 0; i < a.size(); ++i) {
      CAPTURE(i, a[i], b[i]);
      CHECK(same(a[i], b[i], slow.seconds));
    }
    CHECK(slow.provenance == quick.provenance);
    CHECK(slow.out_of_range == quick.out_of_range);
    for (int i = 0; i < static_cast<int>(list->ops().size()); ++i) {
      CAPTURE(list->path(i), slow.ops[i].total, quick.ops[i].total / slow.ops[i].total - 1, quick.ops[i].each.memory / slow.ops[i].each.memory - 1);
      CHECK(same(slow.ops[i].total, quick.ops[i].total));
      CHECK(same(slow.ops[i].total_lo, quick.ops[i].total_lo));
      CHECK(same(slow.ops[i].each.memory, quick.ops[i].each.memory));
      CHECK(slow.ops[i].uses == quick.ops[i].uses);
      CHECK(slow.ops[i].each.binding == quick.ops[i].each.binding);
    }
  }
  return lists;
}

std::vector<Scenario> around(Scenario scenario, std::int64_t scale) {
  std::vector<Scenario> scenarios;
  for (const std::int64_t k : {1, 2, 3, 5, 2, 7, 9, 3}) {
    scenario.batch = 1 + k % 4;
    scenario.length = 1 + scale * k;
    if (scenario.phase == Phase::kDecode) scenario.context = scenario.length;
    scenarios.push_back(scenario);
  }
  return scenarios;
}

}  // namespace

TEST_CASE("many lists are predicted as each is alone: every kind of network", "[sweep_paths]") {
  const Machine cpu = toy_machine(), gpu = load_machine("h200");
  int lists = 0;
  for (std::uint64_t seed = 0; seed < seeds(250); ++seed) {
    const Network network = random_network(seed);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      CAPTURE(seed);
      if (seed % 7 == 3) scenario.fusions = parse_fusions(seed % 2 == 0 ? "all" : "none");
      if (seed % 5 == 4 && phase == Phase::kTrain) scenario.recompute = Recompute::kNamed, scenario.recompute_ops = {"norm"};
      PredictOptions options;
      options.follow_placement = false;
      // Alternately: bounds on a CPU with bytes touched between the ops, and a fitted GPU.
      const bool on_gpu = seed % 2 == 0;
      if (on_gpu) options.predictor = PredictorKind::kCalibrated;
      if (!on_gpu && seed % 4 == 1) options.bytes_between_ops = 3e6;
      const Machine& machine = on_gpu ? gpu : cpu;
      if (on_gpu) scenario.dtype = scenario.kv_dtype = scenario.grad_dtype = DType::kBF16;
      StepPredictor fast(machine, options, true);
      lists += compare(fast, network, around(scenario, on_gpu ? 40 : 3), machine, options);
    }
  }
  CHECK(lists > static_cast<int>(seeds(4000)));
}

TEST_CASE("many lists are predicted as each is alone: real sizes", "[sweep_paths]") {
  const Machine gpu = load_machine("h200"), cpu = probed_cpu();
  for (const char* name : {"dense-60m", "mod-220m", "mixtral-8x7b", "llama-3-8b"}) {
    Network network = builtin_network(name);
    if (network.layers.size() > 6) network.layers.resize(6);
    if (!network.weights_of.empty()) network.weights_of.resize(network.layers.size());
    for (const Machine* machine : {&gpu, &cpu}) {
      PredictOptions options;
      options.predictor = PredictorKind::kCalibrated;
      options.follow_placement = false;
      StepPredictor fast(*machine, options, true);
      for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
        Scenario scenario;
        scenario.phase = phase;
        if (machine == &gpu) scenario.dtype = scenario.kv_dtype = scenario.grad_dtype = DType::kBF16;
        CHECK(compare(fast, network, around(scenario, 130), *machine, options) == 8);
        if (phase != Phase::kTrain) continue;
        scenario.recompute = Recompute::kFull;
        CHECK(compare(fast, network, around(scenario, 130), *machine, options) == 8);
      }
    }
  }
}

TEST_CASE("many lists are predicted as each is alone: wherever the cores of a CPU lie", "[sweep_paths]") {
  const Machine measured = load_machine(FATHOM_SOURCE_DIR "/reports/samples/validation_epyc_machine.ini");
  REQUIRE(has_apart_caches(measured, 2));
  int lists = 0;
  for (std::uint64_t seed = 0; seed < seeds(60); ++seed) {
    const Network network = random_network(seed);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      const Scenario scenario = random_scenario(seed, phase);
      PredictOptions options;
      options.follow_placement = false;
      if (seed % 3 != 0) options.predictor = PredictorKind::kCalibrated;
      if (seed % 4 == 1) options.bytes_between_ops = 3e6;
      const Machine machine = placed(measured, seed % 5 == 2 ? Placement::kTogether : Placement::kApart);
      CAPTURE(seed);
      StepPredictor fast(machine, options, true);
      lists += compare(fast, network, around(scenario, seed % 2 == 0 ? 40 : 3), machine, options);
    }
  }
  CHECK(lists > static_cast<int>(seeds(800)));
  // Sizes at which the threads divide products by rows and by columns, and small vector ops not at all.
  for (const char* name : {"dense-60m", "mod-220m", "mixtral-8x7b"}) {
    Network network = builtin_network(name);
    if (network.layers.size() > 6) network.layers.resize(6);
    if (!network.weights_of.empty()) network.weights_of.resize(network.layers.size());
    PredictOptions options;
    options.predictor = PredictorKind::kCalibrated;
    options.follow_placement = false;
    StepPredictor fast(measured, options, true);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario;
      scenario.phase = phase;
      CHECK(compare(fast, network, around(scenario, 130), measured, options) == 8);
      if (phase != Phase::kTrain) continue;
      scenario.recompute = Recompute::kFull;
      CHECK(compare(fast, network, around(scenario, 130), measured, options) == 8);
    }
  }
}

TEST_CASE("packed trees answer as the trees they were packed from", "[sweep_paths]") {
  const Machine machine = load_machine("h200");
  std::mt19937_64 random(3);
  for (const gpu::OpModel& op : machine.gpu_fit.model().ops) {
    const gpu::PackedTrees packed(op.residual);
    const std::vector<std::vector<double>>& edges = op.residual.edges;
    std::vector<double> x(edges.size());
    double least = 1e9, most = -1e9;
    for (int trial = 0; trial < 2000; ++trial) {
      for (std::size_t f = 0; f < x.size(); ++f) {
        const std::vector<double>& list = edges[f];
        if (list.empty()) continue;
        // On a threshold, just below it, or anywhere around.
        const double edge = list[random() % list.size()];
        const auto how = random() % 4;
        x[f] = how == 0 ? edge : how == 1 ? std::nextafter(edge, -1e9) : how == 2 ? edge + std::uniform_real_distribution<>(-1, 1)(random) : (trial % 50 == 0 ? std::nan("") : list.back() + 1);
      }
      const double plain = op.residual.predict(x.data());
      REQUIRE(packed.predict(x.data()) == plain);
      least = std::min(least, plain), most = std::max(most, plain);
    }
    CHECK(most > least);
  }
}

TEST_CASE("the tile that wins is the one that a search through all of them finds", "[sweep_paths]") {
  const Machine machine = load_machine("h200");
  const gpu::GpuModel& model = machine.gpu_fit.model();
  std::mt19937_64 random(11);
  const auto size = [&](double most) { return std::floor(std::exp(std::uniform_real_distribution<>(0, std::log(most))(random))); };
  int split = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    gpu::GemmShape s;
    s.m = size(40000), s.n = size(40000), s.k = size(40000);
    if (trial % 3 == 0) s.groups = size(16);
    gpu::Reuse reuse;
    if (trial % 2 == 0) reuse.weights = size(1e12), reuse.activations = size(1e12);
    const gpu::GemmParams& params = model.find("gemm")->gemm;
    const gpu::GemmEstimate all = gpu::reference_gemm(s, model.device, params, reuse), quick = gpu::explain_gemm(s, model.device, params, reuse);
    CAPTURE(s.m, s.n, s.k, s.groups, reuse.weights);
    REQUIRE(quick.seconds == all.seconds);
    REQUIRE(quick.tile_m == all.tile_m);
    REQUIRE(quick.tile_n == all.tile_n);
    REQUIRE(quick.split == all.split);
    REQUIRE(quick.compute_s == all.compute_s);
    REQUIRE(quick.waves == all.waves);
    split += all.split > 1;
  }
  CHECK(split > 100);
}
