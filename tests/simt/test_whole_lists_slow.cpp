// Whole op lists on the CUDA backend over the emulated device, against the reference: every kernel with the arguments that the host side gives it.
#include <cmath>
#include <numeric>

#include "kernels/cuda_host/conform.hpp"
#include "kernels/cuda_host/execution.hpp"
#include "kernels/cuda_host/probe.hpp"
#include "lib/error.hpp"
#include "models/machine_ini.hpp"
#include "tests/kernels/against_reference.hpp"
#include "tests/kernels/whole_list_cases.hpp"
#include "tests/simt/emulated_module.hpp"
#include "tests/simt/misread_wrappers.hpp"
#include "tests/tiny_models.hpp"
#include "tools/calibrate_gpu.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

void compare_cuda(const Network& net, const Scenario& s, double op_tolerance, double list_tolerance) {
  for (const Op& op : build(net, s).ops()) REQUIRE(cuda::supported(op.spec).ok);  // else nothing would be compared
  compare_backend(EmulatedBackend(), net, s, op_tolerance, list_tolerance);
}

}  // namespace

TEST_CASE("the CUDA backend equals the reference on prefills", "[cuda]") { compare_zoo(compare_cuda, Phase::kPrefill, 2e-5, 2e-4); }

TEST_CASE("the CUDA backend equals the reference on training steps", "[cuda]") { compare_zoo(compare_cuda, Phase::kTrain, 2e-5, 5e-4); }

TEST_CASE("the CUDA backend equals the reference with recomputation and gradient accumulation", "[cuda]") { compare_recomputation(compare_cuda); }

TEST_CASE("the CUDA backend equals the reference on threshold and random routing and on decode", "[cuda]") { compare_routing_and_decode(compare_cuda); }

TEST_CASE("the CUDA backend equals the reference on windows and chunks over the ragged caches of routed blocks", "[cuda]") {
  Tiny t;
  t.every = 2;
  t.capacity = Fraction{1, 2};
  t.window = GENERATE(0, 1, 3);
  t.chunk = t.window == 0 ? 4 : 0;
  CAPTURE(t.window, t.chunk);
  compare_cuda(network(t), scenario(Phase::kDecode, 4, 11), 2e-5, 2e-4);
  Scenario chunked = scenario(Phase::kPrefill, 3, 7);
  chunked.past = 9;
  chunked.routing = RoutingRule::kThreshold;
  compare_cuda(network(t), chunked, 2e-5, 2e-4);
}

TEST_CASE("the CUDA backend equals the reference where every token keeps its keys", "[cuda]") {
  Tiny t;
  t.every = 2;
  t.capacity = Fraction{1, 2};
  t.window = GENERATE(0, 3);
  Network net = network(t);
  for (BlockConfig& kind : net.kinds)
    if (kind.route) kind.route->kv = KvPolicy::kAll;
  compare_cuda(net, scenario(Phase::kDecode, 4, 11), 2e-5, 2e-4);
  Scenario chunked = scenario(Phase::kPrefill, 3, 7);
  chunked.past = 9;
  chunked.routing = RoutingRule::kThreshold;
  compare_cuda(net, chunked, 2e-5, 2e-4);
}

TEST_CASE("the CUDA backend equals the reference with adapters on the rows that are not chosen", "[cuda]") {
  Tiny t;
  t.every = 2;
  t.capacity = Fraction{1, 2};
  Network net = network(t);
  for (BlockConfig& kind : net.kinds)
    if (kind.route) kind.route->adapter = 6;
  compare_cuda(net, scenario(Phase::kTrain, 2, 9), 2e-5, 5e-4);
  compare_cuda(net, scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4);
  Scenario s = scenario(Phase::kPrefill, 3, 11);
  s.routing = RoutingRule::kThreshold;
  compare_cuda(net, s, 2e-5, 2e-4);
}

TEST_CASE("the CUDA backend equals the reference on experts, also inside routed blocks", "[cuda]") {
  Tiny t;
  MoeConfig moe;
  moe.experts = 4, moe.picks = 2, moe.width = 24;
  if (GENERATE(false, true)) t.every = 2, t.capacity = Fraction{1, 2}, t.biases = true, moe.noops = 1, moe.noop_share = Fraction{1, 5};
  Network net = network(t);
  for (BlockConfig& kind : net.kinds) kind.mlp->moe = moe, kind.mlp->width = 0;
  compare_cuda(net, scenario(Phase::kTrain, 2, 13), 2e-5, 5e-4);
  compare_cuda(net, scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4);
  Scenario s = scenario(Phase::kPrefill, 3, 11);
  s.routing = RoutingRule::kThreshold;
  compare_cuda(net, s, 2e-5, 2e-4);
  s = scenario(Phase::kTrain, 2, 13);
  s.dtype = s.grad_dtype = s.kv_dtype = DType::kBF16;
  compare_cuda(net, s, 2e-2, 0);
}

TEST_CASE("the CUDA backend equals the reference in bf16", "[cuda]") { compare_zoo_in_bf16(compare_cuda); }

TEST_CASE("the arena is the planned one and the rest is what memory() said", "[cuda]") {
  Tiny t;
  t.every = 2;
  const Workload w = build(network(t), scenario(Phase::kTrain, 2, 13));
  const EmulatedBackend backend;
  const BackendMemory said = backend.memory(w, {});
  CHECK(said.plan.arena == plan_memory(w).arena);
  const std::int64_t before = emulated().allocated;
  const auto execution = backend.bind(w, {});
  CHECK(emulated().allocated - before == said.total());
  CHECK(execution->allocated_bytes() == said.total());
}

TEST_CASE("a workload that does not fit is refused before anything is allocated", "[cuda]") {
  const Workload w = build(network(Tiny{}), scenario(Phase::kPrefill, 2, 13));
  const std::int64_t before = emulated().allocated;
  emulated().memory = 1000;
  try {
    EmulatedBackend().bind(w, {});
    FAIL("bound");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kEnvironment);
    CHECK(error.message().find("GB are free") != std::string::npos);
  }
  emulated().memory = std::int64_t{1} << 30;
  CHECK(emulated().allocated == before);
}

TEST_CASE("top-k passes read nothing back on the way; a threshold reads its counts", "[cuda]") {
  Tiny t;
  t.every = 2;
  t.layers = 4;
  const auto downloads = [&](const Scenario& s) {
    const Workload w = build(network(t), s);
    const auto execution = EmulatedBackend().bind(w, {});
    execution->run();
    const std::int64_t before = emulated().downloads;
    execution->run();
    return emulated().downloads - before;
  };
  CHECK(downloads(scenario(Phase::kTrain, 2, 13)) == 1);  // the flags, at the end
  Scenario threshold = scenario(Phase::kPrefill, 2, 13);
  threshold.routing = RoutingRule::kThreshold;
  threshold.write_cache = false;
  CHECK(downloads(threshold) == 3);  // two routed blocks, and the flags
}

TEST_CASE("graphs give the same bits as launches op by op, with row counts that change", "[cuda]") {
  Tiny t;
  t.every = 2;
  t.layers = 4;
  t.capacity = Fraction{1, 2};
  const Workload w = build(network(t), scenario(Phase::kDecode, 5, 9));
  const auto passes = [&](GraphMode mode, std::int64_t& graphs) {
    BindOptions options;
    options.graph = mode;
    const auto execution = EmulatedBackend().bind(w, options);
    auto& cuda = dynamic_cast<CudaExecution&>(*execution);
    cuda.calibrate_participation(1, 12);
    cuda.vary_tokens(true);
    std::vector<float> seen;
    for (int pass = 0; pass < 6; ++pass) {
      if (pass % 2 == 0)
        cuda.run();
      else
        CHECK(cuda.timed_run() > 0);
      for (int i = 0; i < cuda.instance_count(); ++i) {
        const Op& op = w.ops()[static_cast<size_t>(cuda.bound(i).op)];
        seen.push_back(static_cast<float>(cuda.executed(i).rows));
        if (std::holds_alternative<Attention>(op.spec)) seen.push_back(static_cast<float>(cuda.executed(i).pairs));
        if (op.part == Part::kLogits && std::holds_alternative<Gemm>(op.spec))
          for (const float value : cuda.read(cuda.bound(i).out[0].at)) seen.push_back(value);
      }
    }
    graphs = cuda.graph_count();
    CHECK(cuda.participation()[0].candidates == 6 * 5);
    return seen;
  };
  std::int64_t none = 0, whole = 0, buckets = 0;
  const std::vector<float> eager = passes(GraphMode::kNone, none);
  CHECK(passes(GraphMode::kWhole, whole) == eager);
  CHECK(passes(GraphMode::kBuckets, buckets) == eager);
  CHECK(none == 0);
  CHECK(whole == 1);
  CHECK(buckets > 3);  // three segments, of which two have buckets
}

TEST_CASE("a watched pass shows every op while it is queued or captured, and the launches of graphs", "[cuda]") {
  struct Seen : PassWatcher {
    std::vector<int> ops;
    int open = 0, launches = 0;
    void begin_op(int instance) override { ops.push_back(instance), ++open; }
    void end_op(int instance) override {
      CHECK(ops.back() == instance);
      --open;
    }
    void begin_launch() override {
      CHECK(open == 0);
      ++launches;
    }
    void end_launch() override { CHECK(open == 0); }
  };
  Tiny t;
  t.every = 2;
  t.layers = 4;
  t.capacity = Fraction{1, 2};
  for (const GraphMode mode : {GraphMode::kNone, GraphMode::kWhole, GraphMode::kBuckets}) {
    const Workload w = build(network(t), scenario(Phase::kDecode, 5, 9));
    BindOptions options;
    options.graph = mode;
    const auto execution = EmulatedBackend().bind(w, options);
    auto& cuda = dynamic_cast<CudaExecution&>(*execution);
    std::vector<int> once(static_cast<size_t>(cuda.instance_count()));
    std::iota(once.begin(), once.end(), 0);
    Seen eager, second, third;
    cuda.run_watched(eager);  // the first pass is launched op by op
    CHECK(eager.ops == once);
    CHECK(eager.launches == 0);
    cuda.run_watched(second);
    cuda.run_watched(third);
    CHECK(second.open == 0);
    if (mode == GraphMode::kNone) {
      CHECK((second.ops == once && third.ops == once && third.launches == 0));
      continue;
    }
    const int segments = mode == GraphMode::kWhole ? 1 : 3;
    CHECK(second.launches == segments);
    CHECK(second.ops.size() >= once.size());  // one capture per bucket
    CHECK(third.ops.empty());
    CHECK(third.launches == segments);
    const std::int64_t launches = emulated().graph_launches;
    cuda.run();  // nobody watches
    CHECK(emulated().graph_launches == launches + segments);
    CHECK(third.launches == segments);
  }
}

TEST_CASE("a training step is launched op by op whatever was asked for", "[cuda]") {
  BindOptions options;
  options.graph = GraphMode::kWhole;
  const Workload w = build(network(Tiny{}), scenario(Phase::kTrain, 2, 5));
  const auto execution = EmulatedBackend().bind(w, options);
  CHECK(dynamic_cast<CudaExecution&>(*execution).graph_mode() == GraphMode::kNone);
}

TEST_CASE("a timed pass has a time for every op and reports what ran", "[cuda]") {
  Tiny t;
  t.every = 2;
  const Workload w = build(network(t), scenario(Phase::kTrain, 2, 13));
  const auto execution = EmulatedBackend().bind(w, {});
  std::vector<double> seconds(w.instances().size());
  execution->timed_pass(seconds);
  for (size_t i = 0; i < seconds.size(); ++i) {
    CAPTURE(w.path(w.instances()[i]));
    CHECK(seconds[i] > 0);
  }
  CHECK(execution->implementation(0).find("sm_90") != std::string::npos);
}

TEST_CASE("a score that is not a number is an input error that names its token", "[cuda]") {
  Tiny t;
  t.every = 2;
  t.positions = PositionKind::kNone;
  const Workload w = build(network(t), scenario(Phase::kPrefill, 2, 13));
  const auto execution = EmulatedBackend().bind(w, {});
  auto& program = dynamic_cast<ProgramExecution&>(*execution);
  for (int i = 0; i < program.instance_count(); ++i) {
    if (!std::holds_alternative<RouterScore>(*program.bound(i).spec)) continue;
    std::vector<float> weights = program.read(program.bound(i).in[1].at);
    weights[0] = std::nanf("");
    program.write(program.bound(i).in[1].at, weights);
    break;
  }
  try {
    execution->run();
    FAIL("ran");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.message().find("router score of token") != std::string::npos);
  }
}

TEST_CASE("the probes of a GPU run every kernel within its buffers and give a machine file that can be read back", "[probe]") {
  cuda::ProbePlan plan;
  plan.stream_bytes = 512 << 10;
  plan.ceilings = {32, 24};
  plan.rows = {1, 5};
  plan.layers = {{16, 8}, {24, 40}};
  plan.heads = {{4, 2, 16}};
  plan.lengths = {20};
  plan.contexts = {40};
  plan.vector_width = 64;
  plan.candidates = {64};
  plan.launches = 3;
  plan.seconds = 0;
  plan.most_calls = 1;
  const std::int64_t before = emulated().allocated;
  int told = 0;
  const cuda::DeviceProbe probe = cuda::probe_gpu(emulated_device(), plan, [&](double share, const std::string&) {
    ++told;
    CHECK((share >= 0 && share <= 1));
  });
  CHECK(told > 10);
  CHECK(emulated().allocated > before);
  // One per size of the ceilings (f32 runs the last), four accesses of two levels, two launches, five vector ops, two top-ks, then the tables' rows.
  CHECK(probe.points.size() == 3 + 8 + 2 + 5 + 2 + probe.rows.size());
  REQUIRE(probe.rows.size() == 4 + 6);
  CHECK(probe.skipped.empty());
  for (const cuda::ProbePoint& point : probe.points) {
    CAPTURE(point.name);
    CHECK(point.seconds > 0);
    CHECK(point.samples >= 3);
  }
  for (const gpu::TableRow& row : probe.rows) CHECK(row.time_us > 0);
  const Machine& m = probe.machine;
  CHECK(m.kind == MachineKind::kGpu);
  CHECK(m.isa == "sm_90");
  CHECK(m.peaks.size() == 2);
  REQUIRE(m.levels.size() == 2);
  CHECK(m.levels[0].name == "L2");
  for (const MemoryLevel& level : m.levels)
    for (const PerThreads& rate : level.rate) CHECK(rate.at(0).provenance == Provenance::kProbed);
  CHECK(m.launch.count(0) == 1);
  const GpuCalibration made = gpu_calibration(probe, 0, 11);
  CHECK(made.model.empty());  // the emulated chip is none that can be fitted
  const Machine again = parse_machine_ini(made.machine, "probed");
  CHECK(write_machine_ini(again) == made.machine);
}

TEST_CASE("probes that do not fit are named, and a stop leaves what there is", "[probe]") {
  cuda::ProbePlan plan;
  plan.stream_bytes = 64 << 10;
  plan.ceilings = {16};
  plan.rows = {4096};
  plan.layers = {{64, 64}};
  plan.heads.clear();
  plan.candidates.clear();
  plan.vector_width = 64;
  plan.launches = 2;
  plan.seconds = 0;
  plan.most_calls = 1;
  const cuda::DeviceProbe probe = cuda::probe_gpu(emulated_device(), plan);
  CHECK(probe.rows.empty());
  REQUIRE(probe.skipped.size() == 1);
  CHECK(probe.skipped[0].find("product 4096 x 64 x 64: needs") == 0);
  CHECK(cuda::probe_gpu(emulated_device(), plan, nullptr, [] { return true; }).points.empty());
}

TEST_CASE("a call that fails under a held stream lets the stream go and says so", "[probe]") {
  static Module failing = emulation::make();
  static int releases = 0;
  failing.kernels.router_score = [](Device*, const RouterScoreArgs*, Text* text) {
    std::snprintf(text->text, sizeof text->text, "an illegal address");
    return Status::kFailed;
  };
  failing.release_stream = [](Device*, Text*) { return ++releases, Status::kOk; };
  cuda::ProbePlan plan;
  plan.stream_bytes = 64 << 10;
  plan.ceilings = {16};
  plan.launches = 2;
  plan.seconds = 0;
  CHECK_THROWS_WITH(cuda::probe_gpu(std::make_shared<OpenDevice>(failing), plan), Catch::Matchers::Contains("an illegal address"));
  CHECK(releases > 0);
}

TEST_CASE("every wrapper of device code means what the kernels take it for", "[cuda]") {
  const std::vector<SelfTest> parts = cuda::conform(emulated_device(), 16, 3);
  REQUIRE(parts.size() == cuda::kWrappers);
  for (const SelfTest& part : parts) {
    CAPTURE(part.name, part.first, part.worst);
    CHECK(part.cases == 16);
    CHECK(part.wrong == 0);
  }
}

TEST_CASE("a wrapper that means something else is found", "[cuda]") {
  static cuda::Module module = emulation::make();
  module.kernels.conform = [](cuda::Device*, const cuda::ConformArgs* args, cuda::Text*) {
    misread(*args);
    return cuda::Status::kOk;
  };
  for (const SelfTest& part : cuda::conform(std::make_shared<cuda::OpenDevice>(module), 8, 5)) {
    CAPTURE(part.name);
    CHECK(part.wrong > 0);
    CHECK(part.first != "");
  }
}
