#include "lib/gpu/gpu_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "lib/error.hpp"
#include "lib/gpu/features.hpp"
#include "lib/predict/unbounded.hpp"

namespace fathom::gpu {
namespace {

double work_of(const TableRow& row) {
  const auto& k = row.key;
  return static_cast<double>(k[0]) * static_cast<double>(k[1]) * static_cast<double>(k[2]);
}

struct Outside {
  double octaves = 0;
  std::string axis;
  double nearest = 0;
};

// The worst axis. head_dim is exact: its octaves count, and a value between two calibrated ones is at least one away.
Outside outside_of(const OpModel& model, const TableRow& row) {
  Outside worst;
  auto consider = [&](double octaves, const std::string& axis, double nearest) {
    if (octaves > worst.octaves) worst = {octaves, axis, nearest};
  };
  const int keys = key_count(row.op);
  for (std::size_t i = 0; i < model.hull.size(); ++i) {
    const HullAxis& axis = model.hull[i];
    const double value = static_cast<int>(i) < keys ? static_cast<double>(row.key[i]) : work_of(row);
    if (value > axis.high) consider(std::log2(value / axis.high), axis.name, axis.high);
    if (value < axis.low) consider(std::log2(axis.low / value), axis.name, axis.low);
  }
  if (!model.classes.empty()) {
    bool known = false;
    double nearest = 0, distance = std::numeric_limits<double>::infinity();
    for (const AttentionClass& c : model.classes) {
      known = known || c.head_dim == row.key[4];
      const double d = std::abs(std::log2(static_cast<double>(row.key[4]) / static_cast<double>(c.head_dim)));
      if (d < distance) distance = d, nearest = static_cast<double>(c.head_dim);
    }
    if (!known) consider(std::max(distance, std::nextafter(1.0, 2.0)), "head_dim", nearest);
  }
  return worst;
}

const ConformalInterval* find_interval(const OpModel& model, std::string_view regime) {
  for (const ConformalInterval& interval : model.intervals)
    if (interval.regime == regime) return &interval;
  return nullptr;
}

}  // namespace

const OpModel* GpuModel::find(std::string_view name) const {
  for (const OpModel& op : ops)
    if (op.name == name) return &op;
  return nullptr;
}

std::string GpuPrediction::status_text() const {
  if (status == RangeStatus::kInside) return "ok";
  char text[96];
  std::snprintf(text, sizeof text, "out_of_range(%s, nearest %.17g)", axis.c_str(), nearest);
  return text;
}

namespace {

// The physics of a row in full: what the residual's features are made of.
struct RowEstimate {
  GemmEstimate gemm;
  AttentionEstimate attention;
  PhysicsEstimate physics;
};

RowEstimate estimate_row(const OpModel& model, const GpuDevice& device, const TableRow& row, const GemmCandidates* candidates = nullptr) {
  RowEstimate e;
  if (model.op == OpClass::kGemm) {
    e.gemm = candidates ? explain_gemm(*candidates, row.gemm(), device, model.gemm) : explain_gemm(row.gemm(), device, model.gemm);
    e.physics = {e.gemm.seconds, e.gemm.binding};
    return e;
  }
  const AttentionShape shape = row.attention();
  const AttentionClass& c = class_of(model.classes, shape);
  e.attention = model.op == OpClass::kPrefill ? explain_prefill(shape, device, c.prefill) : explain_decode(shape, device, c.decode);
  e.physics = {e.attention.seconds, e.attention.binding};
  return e;
}

std::vector<double> features_of(const OpModel& model, const GpuDevice& device, const TableRow& row, const RowEstimate& e) {
  std::vector<double> features;
  if (model.op == OpClass::kGemm)
    gemm_features(row.gemm(), device, model.gemm, e.gemm, features);
  else
    attention_features(row.attention(), model.op, device, e.attention, features);
  return features;
}

}  // namespace

PhysicsEstimate physics_of(const OpModel& model, const GpuDevice& device, const TableRow& row) { return estimate_row(model, device, row).physics; }

std::vector<double> residual_features(const OpModel& model, const GpuDevice& device, const TableRow& row) {
  return features_of(model, device, row, estimate_row(model, device, row));
}

std::vector<HullAxis> hull_of(const std::vector<TableRow>& rows) {
  std::vector<HullAxis> hull;
  if (rows.empty()) return hull;
  const auto& names = key_names(rows.front().op);
  for (const auto& name : names) hull.push_back({name, std::numeric_limits<double>::infinity(), 0});
  hull.push_back({"work", std::numeric_limits<double>::infinity(), 0});
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < hull.size(); ++i) {
      const double value = i < names.size() ? static_cast<double>(row.key[i]) : work_of(row);
      hull[i].low = std::min(hull[i].low, value);
      hull[i].high = std::max(hull[i].high, value);
    }
  }
  return hull;
}

std::string regime_of(const char* binding, double seconds) {
  return std::string(binding) + "/1e" + std::to_string(static_cast<int>(std::floor(std::log10(seconds * 1e6))));
}

void interval_for(const OpModel& model, const char* binding, double seconds, double& low, double& high) {
  low = -0.7, high = 0.7;  // a model without held-out rows knows its physics to a factor of two at best
  double widen = 1;
  const ConformalInterval* interval = model.intervals.empty() ? nullptr : find_interval(model, regime_of(binding, seconds));
  if (!interval) {
    interval = find_interval(model, binding);
    if (!interval) interval = find_interval(model, "all");
    widen = 1.5;
  }
  if (interval) low = interval->low, high = interval->high;
  low = std::min(low, 0.0) * widen;
  high = std::max(high, 0.0) * widen;
}

GpuPrediction predict_op(const OpModel& model, const GpuDevice& device, const TableRow& row, const PackedTrees* packed, const GemmCandidates* candidates) {
  if (row.op != model.op) throw_internal("a row of another op was given to " + model.name);
  GpuPrediction p;
  const RowEstimate estimate = estimate_row(model, device, row, candidates);
  p.physics_s = estimate.physics.seconds;
  p.binding = estimate.physics.binding;
  Outside outside = outside_of(model, row);
  if (row.dtype != model.dtype) outside = {std::max(outside.octaves, std::nextafter(1.0, 2.0)), "dtype", 0};
  const double fade = std::max(0.0, 1 - 4 * outside.octaves);
  double residual = 0;
  if (fade > 0 && !model.residual.roots.empty()) {
    const auto features = features_of(model, device, row, estimate);
    residual = std::clamp(packed ? packed->predict(features.data()) : model.residual.predict(features.data()), -model.clamp, model.clamp) * fade;
  }
  p.predicted_s = p.physics_s * std::exp(residual);
  p.octaves = outside.octaves;
  p.axis = outside.axis;
  p.nearest = outside.nearest;
  p.status = outside.octaves > 1 ? RangeStatus::kOutOfRange : RangeStatus::kInside;
  p.provenance = outside.octaves > 0 ? "extrapolated" : "fitted";
  double low = 0, high = 0;
  interval_for(model, p.binding, p.predicted_s, low, high);
  p.low_s = p.predicted_s * std::exp(low * std::exp2(outside.octaves));
  p.high_s = p.predicted_s * upper_factor(std::exp(high * std::exp2(outside.octaves)));
  return p;
}

std::vector<GpuPrediction> predict_table(const std::vector<TableRow>& rows, const GpuModel& model, bool sustained) {
  std::vector<GpuPrediction> predictions;
  predictions.reserve(rows.size());
  for (const TableRow& row : rows) {
    if (!row.chip.empty() && row.chip != model.device.name)
      throw_input("the row is of chip '" + row.chip + "', the machine file of '" + model.device.name + "'", {{}, row.line, "chip"},
                  "predict it on the machine file of " + row.chip);
    const OpModel* op = nullptr;
    if (sustained && row.op == OpClass::kGemm) op = model.find("gemm_sustained");
    if (!op) op = model.find(op_name(row.op));
    if (!op) {
      std::vector<std::string> held;
      for (const OpModel& o : model.ops) held.push_back(o.name);
      throw_input("the machine file of " + model.device.name + " holds no model of " + std::string(op_name(row.op)), {{}, row.line, "op"}, name_hint(op_name(row.op), held));
    }
    predictions.push_back(predict_op(*op, model.device, row));
  }
  return predictions;
}

}  // namespace fathom::gpu
