// From measured rows to a GpuModel, and its honest error: whole shapes held out, never single rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/gpu/gpu_model.hpp"

namespace fathom::gpu {

struct TableFitOptions {
  FitOptions physics;
  std::optional<TreeOptions> trees;  // default_trees(rows) when not given
  bool residual = true;
  double clamp = 0;         // of the residual's logarithm; 0: 0.3 for gemm, 0.7 for attention
  int folds = 5;            // of the cross-validation behind intervals and held-out errors; 0: neither
  bool few_rows = true;     // also hold out a fit on 400 rows, what a 90-second probe gives
  std::uint64_t seed = 11;  // of the folds
  std::string source;       // printed in the model
};

// Tree settings that did best in cross-validation over shapes for so many rows.
TreeOptions default_trees(int rows);

// Physics and residual on all rows of one op (rows without time are ignored); no intervals, no held-out errors.
// The residual is fitted on the same physics that a query sees. Out-of-fold physics was tried and is worse on held-out
// shapes (A100: decode 6.7 against 3.7 %, GEMM 4.9 against 4.6 %): nine to twelve parameters on hundreds of rows hardly
// overfit, while a blind fit steps at other waves and classes than the one it stands in for.
OpModel fit_op(const std::vector<TableRow>& rows, const GpuDevice& device, const TableFitOptions& options = {});

// fit_op, then a cross-validation over whole shapes that fills intervals and held_out.
OpModel fit_op_with_errors(const std::vector<TableRow>& rows, const GpuDevice& device, const TableFitOptions& options = {});

// All ops of one chip's rows. Throws an input Error when rows are of several chips or of none known.
GpuModel fit_from_table(const std::vector<TableRow>& rows, const TableFitOptions& options = {});

// mean, median, p90 of |pred/meas - 1| and the signed mean, in percent.
HeldOut error_summary(const std::string& variant, const std::vector<double>& predicted_s, const std::vector<double>& measured_s);

// Every rows.size()/count-th row in hash order: a calibration set of `count` rows that covers the table.
std::vector<TableRow> choose_rows(const std::vector<TableRow>& rows, int count, std::uint64_t seed);

}  // namespace fathom::gpu
