#include "models/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fathom {
namespace {

constexpr std::int64_t kPrefillLengths[] = {24, 96, 224, 544, 1120, 1888, 3000};
constexpr std::int64_t kTrainLengths[] = {88, 360, 1200, 2300};
constexpr std::int64_t kDecodeBatches[] = {1, 2, 5, 12};
constexpr std::int64_t kDecodeContexts[] = {700, 120, 1500, 360};

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
  const auto add = [&](const std::string& what, const Scenario& scenario) { cases.push_back({fmt::format("{}, {}", network.name, what), cut, scenario}); };
  const auto fits = [&](std::int64_t length) { return network.max_length == 0 || length <= network.max_length; };
  Scenario base;
  base.dtype = base.kv_dtype = base.grad_dtype = options.dtype;
  if (options.prefill) {
    for (const std::int64_t length : kPrefillLengths) {
      if (length > options.max_length || !fits(length)) continue;
      Scenario s = base;
      s.length = length;
      add(fmt::format("prefill {}", length), s);
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
  }
  if (options.train) {
    for (const std::int64_t length : kTrainLengths) {
      if (length > options.max_length || !fits(length)) continue;
      Scenario s = base;
      s.phase = Phase::kTrain;
      s.length = length;
      s.logits = LogitsKind::kAll;
      add(fmt::format("train {}", length), s);
    }
  }
  return cases;
}

}  // namespace fathom
