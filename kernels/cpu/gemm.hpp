// Matrix products of a transformer step, planned once per shape and run without allocating or creating anything.
//
//   Y[m, n] (+)= X[m, k] W[k, n] (+ bias[n])          row-major, dense, f32 accumulation
//
// transpose_x: X is stored [k, m] (weight gradient, dW = X^T dY). transpose_w: W is stored [n, k] (input gradient
// dX = dY W^T, tied head Y = X E^T). Work: 2 m n k FLOPs, whatever the transposes.
//
// The product itself is oneDNN's, or, in f32 with AVX2 or AVX-512, our own (gemm_f32.hpp). What is added here is the choice among
// code paths, because several of the library's lose a factor of two on shapes that occur in every model: rows that are no
// multiple of 32, k >= 1792 in bf16, 3072-wide f32 weights (gemm_choice.cpp states what was measured).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_info.hpp"
#include "lib/dtype.hpp"

namespace fathom::cpu {

struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Code paths. kAuto picks by the measured rules; the others exist for tests and for the benchmark that justifies the
// rules.
enum class GemmPath : std::uint8_t {
  kAuto,
  kMatmul,  // oneDNN matmul primitive on row panels (one panel: the whole product)
  kGemm,    // oneDNN sgemm (f32, plain weights), whole or in row panels
  kOwn,     // gemm_f32.hpp (f32, AVX2 or AVX-512)
};

struct GemmOptions {
  DType dtype = DType::kF32;  // of X and W: kF32 or kBF16
  DType out = DType::kF32;    // of Y: kF32, or kBF16 where dtype is kBF16
  bool transpose_x = false;
  bool transpose_w = false;
  bool accumulate = false;  // add to what Y holds
  bool bias = false;        // run() takes bias[n], f32
  bool packed = false;      // run() takes weights that pack() has laid out
  bool pad_rows = true;     // X and Y have room for padded_rows() rows (ignored with transpose_x: its rows are columns)
  int threads = 1;          // OpenMP threads, fixed here
  GemmPath path = GemmPath::kAuto;
  std::int64_t panel_rows = 0;  // rows per call of the library; 0: by rule
};

// Which path a shape takes, and in which pieces. Pure; unit-tested.
struct GemmChoice {
  GemmPath path = GemmPath::kMatmul;
  std::int64_t padded_rows = 0;      // rows executed, >= m
  std::vector<std::int64_t> panels;  // rows per call; sums to padded_rows
  bool convert = false;              // bf16 computed in f32, because this CPU has no fast bf16 products
};
GemmChoice choose_gemm(const GemmShape& shape, const GemmOptions& options, Isa isa);

// Whether weights that stay the same over many runs should be packed for this shape: always for AMX and for our own f32
// product; for the library's f32 only with few rows or very wide weights, because from 64 rows on its sgemm on plain
// weights is as fast or up to 10 % faster.
bool gemm_prefers_packed(const GemmShape& shape, DType dtype, Isa isa);

// One product, ready to run. Holds library objects whose operand addresses change per run: one run at a time per plan.
class GemmPlan {
 public:
  // Throws an input Error for an impossible request (negative size, dtype), an environment Error when oneDNN cannot
  // create it. m, n or k of 0 are legal. With `layout` the weights take that plan's packed layout, so that plans of
  // several row counts share one packed copy (same n, k and options).
  GemmPlan(const GemmShape& shape, const GemmOptions& options, const GemmPlan* layout = nullptr);
  ~GemmPlan();
  GemmPlan(GemmPlan&&) noexcept;
  GemmPlan& operator=(GemmPlan&&) noexcept;

  const GemmShape& shape() const;
  const GemmOptions& options() const;
  // Rows that X and Y must have room for. Rows past m are read and overwritten, but never influence rows below m; give
  // them finite, normal numbers (zeros), or f32 arithmetic on stale denormals may take a slow path of the CPU.
  std::int64_t padded_rows() const;

  // Bytes of the packed weights (0 where options.packed is off) and their layout from the plain W. pack() uses the
  // plan's threads; it may be called again after W changed.
  std::int64_t packed_bytes() const;
  void pack(const void* w, void* packed) const;

  // Bytes run() needs at `scratch`, 64-byte aligned; may be 0.
  std::int64_t scratch_bytes() const;

  // Computes. w: packed weights when options.packed, else plain ones. bias: f32[n] when options.bias. Reads and writes
  // rows 0 .. padded_rows()-1 of X and Y and nothing beyond.
  void run(const void* x, const void* w, void* y, void* scratch, const float* bias = nullptr) const;

  // What executes, for the record: oneDNN's implementation name, "sgemm", "fathom avx512", "fathom avx2", with "f32 instead of bf16: no AMX" where so.
  // Different implementations of a plan's pieces are joined by '+'.
  std::string impl() const;
  // 2 m n k, and the same on the rows that are really executed.
  std::int64_t useful_flops() const;
  std::int64_t executed_flops() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Plans for rows known only at run time (a routed block): one per padded row count up to max_rows, made up front, all
// on one packed copy of the weights.
class GemmCache {
 public:
  // Plans for 16, 32, 64, 96, ... rows covering max_rows, and for 1 to 15 where rows are not padded. threads etc. as in options.
  GemmCache(std::int64_t max_rows, std::int64_t n, std::int64_t k, const GemmOptions& options);

  // The plan to run for `rows` (0 <= rows <= max_rows): it executes the next step up, and X and Y need that room.
  // Throws an internal Error beyond max_rows.
  const GemmPlan& plan(std::int64_t rows) const;
  // The largest padded_rows() of its plans.
  std::int64_t padded_rows() const;
  std::int64_t packed_bytes() const { return plans_.back().packed_bytes(); }
  void pack(const void* w, void* packed) const { plans_.back().pack(w, packed); }
  // Enough for any of its plans.
  std::int64_t scratch_bytes() const;
  // Rows executed for `rows` real ones.
  std::int64_t executed_rows(std::int64_t rows) const { return plan(rows).padded_rows(); }

 private:
  std::int64_t max_rows_;
  std::vector<std::int64_t> steps_;  // ascending row counts; steps_[i] belongs to plans_[i]
  std::vector<GemmPlan> plans_;
};

}  // namespace fathom::cpu
