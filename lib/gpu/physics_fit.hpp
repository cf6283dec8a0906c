// Fits of the physics forms: Nelder-Mead inside the box on the robust loss mean |ln(pred/meas)|.
#pragma once

#include <string>
#include <vector>

#include "lib/gpu/attention_form.hpp"
#include "lib/gpu/gemm_tile.hpp"
#include "lib/gpu/table.hpp"

namespace fathom::gpu {

struct FitOptions {
  int max_evaluations = 2500;  // per start
  int max_rows = 400;          // a hash-chosen subset: twelve parameters do not need more
};

// The fitted parameters for this chip, or of the nearest architecture by FLOP per byte.
GemmParams gemm_prior(const GpuDevice& device);

// Two starts, w = 0.05 and 0.95 (at 0 the wave weight is a flat direction); the better one is kept. `loss` receives
// the loss per start when given. Rows must be gemm rows with times.
GemmParams fit_gemm(const std::vector<TableRow>& rows, const GpuDevice& device, const FitOptions& options = {},
                    std::vector<double>* loss = nullptr);

// One attention kernel class: rows of one head dimension and one code path, told apart by key columns alone. Inclusive.
struct AttentionClass {
  std::string kernel;  // as named by the table, for people
  std::int64_t head_dim = 0;
  std::int64_t seq_lo = 1, seq_hi = INT64_MAX;
  std::int64_t group_lo = 1, group_hi = INT64_MAX;  // heads / kv_heads
  std::int64_t batch_lo = 1, batch_hi = INT64_MAX;
  int rows = 0;
  PrefillParams prefill;
  DecodeParams decode;
};

// Groups rows by head_dim, where one head_dim has two kernels by a threshold on the length, and in decode by grouped
// against ungrouped heads (FlashAttention 2 splits the keys of groups only). Kernels that no threshold separates are one
// class. Then fits each class, a class with few rows being pulled towards its kernel's common fit. A decode class is
// divided once by batch where two fits miss by a quarter less than one: a library that switches its schedule leaves such a
// step. Both divisions were tried for prefill and do not pay on held-out shapes.
std::vector<AttentionClass> fit_attention(const std::vector<TableRow>& rows, OpClass op, const GpuDevice& device, const FitOptions& options = {});

// The class of a query, or the class of the nearest head_dim with `exact` false. Throws when `classes` is empty.
const AttentionClass& class_of(const std::vector<AttentionClass>& classes, const AttentionShape& shape, bool* exact = nullptr);

}  // namespace fathom::gpu
