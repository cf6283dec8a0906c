#include "lib/predict/prediction.hpp"

#include <fmt/format.h>

#include <array>

namespace fathom {
namespace {

constexpr std::array<std::string_view, 3> kPredictors = {"light", "roofline", "calibrated"};
constexpr std::array<std::string_view, 8> kBindings = {"nothing", "compute", "elements", "L1", "L2", "L3", "DRAM", "launch"};

}  // namespace

std::string_view predictor_name(PredictorKind predictor) { return kPredictors[static_cast<size_t>(predictor)]; }

PredictorKind parse_predictor(std::string_view text) {
  for (size_t i = 0; i < kPredictors.size(); ++i)
    if (text == kPredictors[i]) return static_cast<PredictorKind>(i);
  throw_input(fmt::format("unknown predictor '{}'", text.substr(0, 60)), {}, name_hint(text, {"light", "roofline", "calibrated"}));
}

std::string_view binding_name(Binding binding) { return kBindings[static_cast<size_t>(binding)]; }

double StepPrediction::sum_of_ops(const Workload& w) const {
  double sum = 0;
  for (size_t i = 0; i < w.ops().size(); ++i) sum += ops[static_cast<int>(i)].total;
  return sum;
}

PairRatio pair_ratio(double flops, double base_flops, double seconds, double base_seconds) {
  PairRatio pair;
  if (!(base_flops > 0) || !(base_seconds > 0)) {
    pair.status = "the twin has no FLOPs or no time";
    return pair;
  }
  pair.flops_ratio = flops / base_flops;
  pair.time_ratio = seconds / base_seconds;
  if (pair.flops_ratio >= 1)
    pair.status = "no FLOPs saved";
  else
    pair.realised = (1 - pair.time_ratio) / (1 - pair.flops_ratio);
  return pair;
}

}  // namespace fathom
