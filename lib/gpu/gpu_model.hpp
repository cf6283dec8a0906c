// A GPU's calibrated predictor: physics forms, a clamped residual, intervals and the range it was fitted on.
//
// predicted = physics(shape) · exp(residual). The residual counts inside the hull of the calibration rows, fades to nothing
// within a quarter octave outside and is off beyond. More than one octave outside on any axis, or another dtype or
// head dimension, the answer is marked out_of_range with the axis and the nearest calibrated value, its provenance is
// `extrapolated` and its interval is doubled per octave, until it says nothing (lib/predict/unbounded.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/gpu/boosted_trees.hpp"
#include "lib/gpu/collective.hpp"
#include "lib/gpu/device.hpp"
#include "lib/gpu/physics_fit.hpp"
#include "lib/gpu/table.hpp"

namespace fathom::gpu {

// Inclusive range of one axis of the calibration rows; the last axis of each op is the product "work".
struct HullAxis {
  std::string name;
  double low = 0, high = 0;
};

// Split-conformal interval of one regime: 10 % and 90 % quantiles of ln(measured/predicted) on held-out shapes.
struct ConformalInterval {
  std::string regime;  // binding and decade, "compute/1e2"; "compute" and "all" are the pooled fallbacks
  int rows = 0;
  double low = 0, high = 0;
};

// Error on shapes the fit had not seen, in percent of the measured time.
struct HeldOut {
  std::string variant;  // "physics", "calibrated", "physics_400", "calibrated_400"
  int rows = 0;
  double mean = 0, median = 0, p90 = 0, bias = 0;
  double coverage = -1;  // share of rows inside the nominal 80 % interval; negative: not measured
};

struct OpModel {
  std::string name;  // "gemm", "gemm_sustained", "attention_prefill", "attention_decode"
  OpClass op = OpClass::kGemm;
  std::string dtype = "bf16";
  std::string source;  // where the rows come from
  int rows = 0;
  GemmParams gemm;
  std::vector<AttentionClass> classes;
  double clamp = 0.3;  // of the residual's logarithm
  BoostedTrees residual;
  std::vector<HullAxis> hull;
  std::vector<ConformalInterval> intervals;
  std::vector<HeldOut> held_out;
};

struct GpuModel {
  GpuDevice device;
  std::string date;   // of the fit, given by the caller
  std::string hash;   // of the file's content, set by write and read (model_io.hpp)
  std::vector<OpModel> ops;
  std::vector<CollectiveFit> collectives;

  const OpModel* find(std::string_view name) const;
};

enum class RangeStatus { kInside, kOutOfRange };

struct GpuPrediction {
  double predicted_s = 0, low_s = 0, high_s = 0;
  double physics_s = 0;             // before the residual
  RangeStatus status = RangeStatus::kInside;
  std::string axis;                 // the worst axis outside, empty inside
  double nearest = 0;               // nearest calibrated value on it
  double octaves = 0;               // distance outside on that axis
  const char* binding = "";         // "compute", "memory", "fixed"
  const char* provenance = "";      // "fitted", "extrapolated"

  // "ok", or "out_of_range(m, nearest 32768)".
  std::string status_text() const;
};

// For callers that ask often: `residual` is the packed form of model.residual, `candidates` those of the row's product.
GpuPrediction predict_op(const OpModel& model, const GpuDevice& device, const TableRow& row, const PackedTrees* residual = nullptr, const GemmCandidates* candidates = nullptr);

// One prediction per row; time_us and kernel are not read. `sustained` prefers gemm_sustained where the model has it.
// Throws an input Error for a row of another chip, or an op the model does not hold.
std::vector<GpuPrediction> predict_table(const std::vector<TableRow>& rows, const GpuModel& model, bool sustained = false);

// Physics alone, with its binding term; the op's classes decide the attention form.
struct PhysicsEstimate {
  double seconds = 0;
  const char* binding = "";
};
PhysicsEstimate physics_of(const OpModel& model, const GpuDevice& device, const TableRow& row);

// Tree features of a row (features.hpp) under the model's physics.
std::vector<double> residual_features(const OpModel& model, const GpuDevice& device, const TableRow& row);

// Axis values of a row in the order of the hull: the keys, then their product "work" (m·n·k; batch·length·heads).
std::vector<HullAxis> hull_of(const std::vector<TableRow>& rows);

std::string regime_of(const char* binding, double seconds);

// Bounds on ln(measured/predicted) of a regime: its own, else the pooled ones widened 1.5 times; low <= 0 <= high.
void interval_for(const OpModel& model, const char* binding, double seconds, double& low, double& high);

}  // namespace fathom::gpu
