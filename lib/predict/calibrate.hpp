// From measured calibration workloads to a calibrated machine: curves for matrix products, fitted models for every other class, intervals.
//
// The calibration runs whole small workloads (few layers, lengths off the usual grid) by the same bracketed protocol that grades predictions, so
// both sides are the same statistic and operands are where a step leaves them. From their ops:
//   products    one curve t(rows) per (type, variant, n, k), interpolated in log rows
//   attention   t = fixed + per_score x scores / threads + per_row x rows x heads / threads [+ bytes that pass each level of memory, cached keys]
//   the rest    t = fixed + scale x (roofline - launch), or fixed + per_row x rows / threads + per_exp x exponentials / threads + bytes that pass each level of memory,
//               whichever predicts points that were left out better
//   selection   t = fixed + scale x (roofline - launch) [+ per_row x rows that stay]
// all by least squares on relative errors, noisy points counting less, coefficients not negative. Intervals are the 10 % and 90 % quantiles of measured / predicted
// where each point is predicted without itself; fewer than 30 points: widened 1.5 times.
//
// Where a product's operands come from differs between the small calibration workloads and what is asked. So the products of a kind share a model
// t = fixed + per_flop x FLOPs + bytes that pass each level ("product_few", "product_forward", "product_dx", "product_dw"); a curve holds times as if everything came
// from main memory, and a prediction is its time x model(where the operands are) / model(main memory). Few rows: those that stream the weights past them, another
// code path with curves of its own ("forward_few"); up to how many rows is asked of the backend and kept as the range of "product_few".
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/measure.hpp"
#include "lib/predict/roofline.hpp"

namespace fathom {

// Bytes of an op that pass each level of memory, served by it or by one further out, and those that come from another core's last cache.
struct Passing {
  LevelShares levels{};
  double fetched = 0, reclaimed = 0;
  double near_memory = 0;  // of the levels' last: what cores that share their last cache fetch from memory, over one path instead of two
  bool apart = false;      // the cores have last caches of their own
};

// One measured call, with what the models see of it.
struct CalibrationPoint {
  OpSpec spec;
  OpWork work;
  double roofline = 0;   // seconds without launch
  double launch = 0;
  double measured = 0;   // seconds, bracketed
  double noise = 0;      // A/A spread of `measured`, relative
  Passing passing{};
  bool plain_weights = false;  // of a list that changes its weights
};

// One calibration workload and its bracketed measurement.
struct CalibrationRun {
  const Workload* workload = nullptr;
  const Measurement* measurement = nullptr;
  double bytes_between_ops = 0;  // where its cores lay: Measurement::placement
};

// Points of the ops that were measured soundly (status ok, fixed rows).
std::vector<CalibrationPoint> calibration_points(const Machine& machine, std::span<const CalibrationRun> runs, int threads);

// Most rows of a forward product that stream its weights, by type; a type that is missing has no such path.
using StreamedRows = std::map<DType, std::int64_t>;

// Replaces curves and fits of this thread count by those of the points. Figures that were probed stay as they are.
void fit_points(Machine& machine, std::span<const CalibrationPoint> points, int threads, const StreamedRows& streamed = {});

// "forward", "tied" (transposed weight), "dx", "dw", each with "_grouped" for experts, and of a forward product "_few" up to `few` rows (per expert), "_plain" where
// weights change (tied ones always stay as they are): what besides n and k decides a product's code path.
std::string gemm_variant(const Gemm& op, double rows = 0, double few = 0, bool plain = false);
// Sets of weights that have rows: a grouped product is that many products of an equal share of the rows.
double product_groups(const Gemm& op, const Executed& executed);
// The product's shape as executed: rows x k by k x n (dw: m = in, n = out, k = rows; its curve runs over k).
struct ProductShape {
  double rows = 0;
  std::int64_t n = 0, k = 0;
};
ProductShape product_shape(const Gemm& op, double rows);
// Seconds at `rows` on a curve: linear in log rows and log time between points; beyond its ends the end's time per row is kept above the last
// point (few rows: the last slope) and the first time below the first. `octaves`: how far outside.
double curve_time(const GemmCurve& curve, double rows, double* octaves = nullptr);

// Small vector ops run on one thread, whatever there are, and the smallest find their operands in the innermost cache (they are measured several times over, and their
// producer has just left): the points of one size say nothing about those of another.
enum class FitSize : std::uint8_t { kAny, kOneThread, kInnermost };
inline constexpr int kFitSizes = 3;
FitSize fit_size(const OpSpec& spec, const OpWork& work, int threads);
// Name of the class fit of an op: its kind, since kinds run other kernels: "rms_norm", "rms_norm_backward"; small ones "rms_norm_one", "rms_norm_tiny".
std::string fit_name(const OpSpec& spec, FitSize size = FitSize::kAny);
// Axis values whose hull is kept per fit: rows and bytes; attention: pairs and keys.
std::vector<std::pair<std::string, double>> fit_axes(const OpSpec& spec, const OpWork& work);
// The regressors of every fit, in one order; those that a fit does not use have no coefficient. The last ones are the levels of memory, by their names.
inline constexpr int kFitTerms = 8 + kMaxLevels;
using FitValues = std::array<double, kFitTerms>;
struct FitTerm {
  enum : int { kFixed, kScale, kPerRow, kPerExp, kPerFlop, kHanded, kHandedNear, kNearMemory, kFirstLevel };
};
// The machine's fit of that name; null where it has none.
const ClassFit* fit_named(const Machine& machine, const std::string& name, DType dtype, int threads);
// "fixed" (1), "scale" (roofline without launch), "per_row", "per_exp" (attention: "per_score"), "per_flop", "handed" (bytes fetched and, kReclaiming times,
// reclaimed) where cores have last caches of their own, "handed_near" where they share one, and "memory_near"
// what their bytes from memory take longer there, then "L1", "L2",
// ... as the machine names them.
std::string fit_term(int term, const OpSpec& spec, const Machine& machine);
FitValues fit_values(const OpSpec& spec, const OpWork& work, double roofline, const Passing& passing, int threads);
// "product_few" up to `few` rows of a forward product, else by the role.
std::string product_fit_name(const Gemm& op, double rows, double few);
// Most rows of that path as the machine file has it; 0: none.
double streamed_rows(const Machine& machine, DType dtype, int threads);
// The same order as numbers; 0 where the fit does not use a regressor.
FitValues fit_coefficients(const ClassFit& fit, const OpSpec& spec, const Machine& machine);
// Bytes that pass each level where the operands are, and when nothing is in a cache.
Passing passing_of(const OpWork& work, const Residency& residency);
Passing all_from_memory(const OpWork& work, int levels);
double fit_time(const FitValues& coefficients, const FitValues& values);

// Non-negative least squares of y = X c on relative errors (rows scaled by 1 / y, and by `weights` where given), by an active set. Exposed for tests.
std::vector<double> relative_least_squares(const std::vector<std::vector<double>>& rows, const std::vector<double>& y, const std::vector<double>& weights = {});

}  // namespace fathom
