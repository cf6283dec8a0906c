// What `fathom check` does: every op kind of a backend against the reference, op by op.
//
// Lists come from the builder, for networks that differ in one thing at a time and lengths at the edges of row tiles (check_cases.hpp). The
// reference runs a list; each op is run by the other backend on the very same operands, so that an error belongs to one op. Compared are
//   values    largest difference over the largest magnitude of the output, against a tolerance per data type
//   counts    rows, pairs, keys and experts executed, and the multiply-adds that the reference counted against the analytic cost at that size
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/program.hpp"
#include "tools/check_cases.hpp"

namespace fathom {

struct CheckOptions {
  std::vector<std::string> kinds;  // empty: all
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  double tolerance = 1;          // times the stated one
  int threads = 0;
  bool keep_cases = false;       // also report every case
  std::function<bool(size_t done, size_t of)> progress;  // false: stop
};

// One op kind in one data type.
struct CheckRow {
  int kind = 0;  // index into kind_names()
  DType dtype = DType::kF32;
  std::int64_t cases = 0;
  std::int64_t wrong_values = 0, wrong_counts = 0;
  double worst = 0;      // relative
  double tolerance = 0;
  std::string refused;   // the backend's reason, where it has no kernel
  bool ok() const { return wrong_values == 0 && wrong_counts == 0; }
};

struct CheckFailure {
  int kind = 0;
  DType dtype = DType::kF32;
  std::string where;  // case and path
  std::string what;
  double error = 0;
};

// One op kind in one list.
struct CheckedCase {
  int kind = 0;
  DType dtype = DType::kF32;
  std::string name;
  std::int64_t ops = 0;
  double worst = 0;
};

struct CheckReport {
  std::vector<SelfTest> parts;         // what the kernels are built of; run unless single kinds are asked for
  std::vector<CheckRow> rows;          // by kind, then data type; kinds that occurred
  std::vector<CheckFailure> failures;  // the first of each kind and data type, then up to kMostFailures
  std::vector<CheckedCase> cases;      // by list, where asked for
  std::int64_t lists = 0;
  bool stopped = false;
  std::string gave_up;                 // why the rest was not run: the backend failed in list after list
  bool ok() const;
};
inline constexpr size_t kMostFailures = 20;

// Throws Error(kInput) for an unknown op kind. A backend that refuses or fails in one list is reported there and the next list is tried, unless it
// fails in kMostBroken of them in a row: a device that is lost answers nothing any more.
inline constexpr int kMostBroken = 3;
CheckReport check_backend(const Backend& backend, const CheckOptions& options, const std::vector<CheckCase>& cases);

// Relative tolerance of one op: f32 sums of a few hundred products against f64, bf16 one or two roundings of 2^-9.
double check_tolerance(DType dtype);

// Largest difference over the largest magnitude of `want`, or over `scale` where that is larger.
double relative_difference(const std::vector<float>& got, const std::vector<float>& want, double scale);
// Rows of output `o` that mean something: a routed or assigned op leaves those behind its executed rows alone.
std::int64_t live_rows(const OpSpec& spec, size_t o, const OperandView& view, const Executed& executed);
// Columns of an output that are compared by a measure of their own: the largest difference over the larger of `scale` and the largest magnitude.
struct HeldColumns {
  std::int64_t first = 0;
  std::int64_t count = 0;
  double scale = 0;
};
// The columns of every output of an op, to be asked before it runs (it may overwrite its operands). Results that are differences of larger terms
// (scalar products of gradients, and what softmax and norms take off) have the size of these terms as their scale, the rest 0; the gradients of
// queries, keys and values are apart, so that none hides behind a larger one.
std::vector<std::vector<HeldColumns>> held_columns(const ProgramExecution& run, const BoundOp& bound);
double relative_difference(const std::vector<float>& got, const std::vector<float>& want, std::int64_t cols, const std::vector<HeldColumns>& held);

}  // namespace fathom
