// From measured calibration workloads to a calibrated machine: curves for matrix products, fitted models for every other class, intervals.
//
// The calibration runs whole small workloads (few layers, lengths off the usual grid) by the same bracketed protocol that grades predictions, so
// both sides are the same statistic and operands are where a step leaves them. From their ops:
//   products    one curve t(rows) per (type, variant, n, k), interpolated in log rows
//   attention   t = fixed + per_pair x head pairs / threads + per_key x key bytes
//   the rest    t = fixed + scale x (roofline - launch)
// all by least squares on relative errors, coefficients not negative. Intervals are the 10 % and 90 % quantiles of measured / predicted where
// each point is predicted without itself; fewer than 30 points: widened 1.5 times.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/measure.hpp"
#include "lib/predict/roofline.hpp"

namespace fathom {

// One measured call, with what the models see of it.
struct CalibrationPoint {
  OpSpec spec;
  OpWork work;
  double roofline = 0;   // seconds without launch
  double launch = 0;
  double measured = 0;   // seconds, bracketed
};

// One calibration workload and its bracketed measurement.
struct CalibrationRun {
  const Workload* workload = nullptr;
  const Measurement* measurement = nullptr;
  double bytes_between_ops = 0;
};

// Points of the ops that were measured soundly (status ok, fixed rows).
std::vector<CalibrationPoint> calibration_points(const Machine& machine, std::span<const CalibrationRun> runs, int threads);

// Replaces curves and fits of this thread count by those of the points. Figures that were probed stay as they are.
void fit_points(Machine& machine, std::span<const CalibrationPoint> points, int threads);
void calibrate(Machine& machine, std::span<const CalibrationRun> runs, int threads);

// "forward", "tied" (transposed weight), "dx", "dw", each with "_grouped" for experts: what besides n and k decides a product's code path.
std::string gemm_variant(const Gemm& op);
// Sets of weights that have rows: a grouped product is that many products of an equal share of the rows.
double product_groups(const Gemm& op, const Executed& executed);
// The product's shape as executed: rows x k by k x n (dw: m = in, n = out, k = rows; its curve runs over k).
struct ProductShape {
  double rows = 0;
  std::int64_t n = 0, k = 0;
};
ProductShape product_shape(const Gemm& op, double rows);
// Seconds at `rows` on a curve: linear in log rows and log time between points; beyond its ends the end's time per row is kept above the last
// point and the first time below the first. `octaves`: how far outside.
double curve_time(const GemmCurve& curve, double rows, double* octaves = nullptr);

// Name of the class fit of an op: its class, and the pass, since backward ops run other kernels: "norm", "norm_backward".
std::string fit_name(const OpSpec& spec);
// Axis values whose hull is kept per fit: rows and bytes; attention: pairs and keys.
std::vector<std::pair<std::string, double>> fit_axes(const OpSpec& spec, const OpWork& work);
// The regressors of a fit, in the order of fit_terms(): coefficient names.
std::vector<std::string> fit_terms(const OpSpec& spec);
std::vector<double> fit_values(const OpSpec& spec, const OpWork& work, double roofline, int threads);

// Non-negative least squares of y = X c on relative errors (rows scaled by 1 / y), by cyclic coordinate descent. Exposed for tests.
std::vector<double> relative_least_squares(const std::vector<std::vector<double>>& rows, const std::vector<double>& y);

}  // namespace fathom
