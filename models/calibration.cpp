#include "models/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/params.hpp"

namespace fathom {
namespace {

// Rows of prefill and training, and in how many sequences: of several, every thread has its own, of one, its own heads, so that other operands change hands.
struct RowsOf {
  std::int64_t rows, sequences;
};
constexpr RowsOf kPrefillRows[] = {{24, 1}, {96, 1}, {224, 2}, {544, 1}, {1120, 2}, {1888, 1}, {3000, 1}};
constexpr RowsOf kTrainRows[] = {{88, 1}, {360, 2}, {1200, 1}, {2300, 1}};
// Decode reads its weights from memory in any model worth predicting; a network cut to its kinds may fit a cache. Kinds are repeated as often as the
// cut network, its head and token table included, goes into this size (rounded up): two to four times the last cache of most CPUs.
constexpr double kDecodeWeightBytes = 100e6;
constexpr std::int64_t kMostDecodeLayers = 32;
constexpr std::int64_t kDecodeBatches[] = {1, 2, 5, 7, 12};
constexpr std::int64_t kDecodeContexts[] = {700, 120, 1500, 260, 360};
constexpr std::int64_t kShallowBatches[] = {1, 5}, kShallowContext = 120;

}  // namespace

Network small_network(const SmallShape& shape, std::int64_t layers) {
  Network n;
  n.name = fmt::format("{}{}", shape.experts > 0 ? "moe-" : "", shape.width);
  n.width = shape.width;
  n.vocab = kSmallVocab;
  BlockConfig block;
  AttentionConfig attention;
  attention.heads = attention.kv_heads = shape.heads;
  attention.head_dim = attention.rope_dim = shape.head_dim;
  block.attention = attention;
  MlpConfig mlp;
  mlp.width = shape.mlp;
  mlp.gated = shape.gated;
  mlp.activation = shape.gated ? ActivationKind::kSilu : ActivationKind::kGeluTanh;
  if (shape.experts > 0) {
    MoeConfig moe;
    moe.experts = shape.experts;
    moe.picks = shape.picks;
    moe.width = shape.mlp;
    mlp.moe = moe;
  }
  block.mlp = mlp;
  n.kinds = {block};
  n.layers.assign(static_cast<size_t>(layers), 0);
  validate(n);
  return n;
}

const std::vector<SmallShape>& small_shapes() {
  static const std::vector<SmallShape> shapes = {
      {256, 4, 64, 1024, false, 0, 0}, {512, 8, 64, 1408, true, 0, 0}, {768, 12, 64, 3072, false, 0, 0}, {1024, 8, 128, 4096, false, 0, 0}, {512, 8, 64, 1024, false, 4, 1}};
  return shapes;
}

std::vector<CalibrationCase> default_calibration_set(DType dtype) {
  std::vector<CalibrationCase> cases;
  for (const SmallShape& shape : small_shapes()) {
    Network network = small_network(shape, 2);
    if (shape.experts == 0) {
      Route route;
      route.capacity = Fraction{1, 8};
      network = with_routes(network, 2, route);
    }
    network.name = fmt::format("{}{}", shape.experts > 0 ? "moe-" : "mod-", shape.width);
    CalibrationSetOptions options;
    options.dtype = dtype;
    options.max_length = 1200;  // wide ones take long, and beyond this the efficiency of a product no longer changes
    for (CalibrationCase& each : calibration_set(network, options)) cases.push_back(std::move(each));
  }
  return cases;
}

namespace {

// `cut` with its kinds over and over.
Network deep_enough(Network cut, DType dtype) {
  const std::vector<int> kinds = cut.layers;
  const double bytes = to_double(count_parameters(cut).total.value()) * static_cast<double>(dtype_bytes(dtype));
  const auto most = std::max<std::int64_t>(1, kMostDecodeLayers / static_cast<std::int64_t>(std::max<size_t>(1, kinds.size())));
  const auto times = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(kDecodeWeightBytes / std::max(1.0, bytes))), 1, most);
  for (std::int64_t i = 1; i < times; ++i) cut.layers.insert(cut.layers.end(), kinds.begin(), kinds.end());
  return cut;
}

}  // namespace

Network cut_to_kinds(const Network& network) {
  Network cut = network;
  cut.layers.clear();
  for (const int kind : network.layers)
    if (std::find(cut.layers.begin(), cut.layers.end(), kind) == cut.layers.end()) cut.layers.push_back(kind);
  cut.weights_of.clear();
  cut.mtp = 0;
  return cut;
}

std::vector<CalibrationCase> calibration_set(const Network& network, const CalibrationSetOptions& options) {
  const Network cut = cut_to_kinds(network);
  std::vector<CalibrationCase> cases;
  const Network deep = deep_enough(cut, options.dtype);
  const auto add = [&](const std::string& what, const Scenario& scenario) { cases.push_back({fmt::format("{}, {}", network.name, what), scenario.phase == Phase::kDecode ? deep : cut, scenario}); };
  const auto fits = [&](std::int64_t length) { return network.max_length == 0 || length <= network.max_length; };
  Scenario base;
  base.dtype = base.kv_dtype = base.grad_dtype = options.dtype;
  if (options.prefill) {
    for (const auto& [rows, sequences] : kPrefillRows) {
      if (rows > options.max_length || !fits(rows / sequences)) continue;
      Scenario s = base;
      s.batch = sequences;
      s.length = rows / sequences;
      add(fmt::format("prefill {} x {}", s.batch, s.length), s);
    }
  }
  if (options.decode) {
    for (size_t i = 0; i < std::size(kDecodeBatches); ++i) {
      if (!fits(kDecodeContexts[i])) continue;
      Scenario s = base;
      s.phase = Phase::kDecode;
      s.batch = kDecodeBatches[i];
      s.context = kDecodeContexts[i];
      add(fmt::format("decode {} x {}", s.batch, s.context), s);
    }
    // Once more from a cache, where the network fits one: what separates the two is fitted.
    if (deep.layers.size() > cut.layers.size() && fits(kShallowContext)) {
      for (const std::int64_t batch : kShallowBatches) {
        Scenario s = base;
        s.phase = Phase::kDecode;
        s.batch = batch;
        s.context = kShallowContext;
        cases.push_back({fmt::format("{}, decode {} x {}, shallow", network.name, batch, s.context), cut, s});
      }
    }
  }
  if (options.train) {
    for (const auto& [rows, sequences] : kTrainRows) {
      if (rows > options.max_length || !fits(rows / sequences)) continue;
      Scenario s = base;
      s.phase = Phase::kTrain;
      s.batch = sequences;
      s.length = rows / sequences;
      s.logits = LogitsKind::kAll;
      add(fmt::format("train {} x {}", s.batch, s.length), s);
    }
  }
  return cases;
}

}  // namespace fathom
