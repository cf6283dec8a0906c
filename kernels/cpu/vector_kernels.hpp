// The table of serial vector kernels that each instruction set fills. Internal to kernels/cpu: callers use norm.hpp, rope.hpp,
// activation.hpp, elementwise.hpp, rows.hpp, topk.hpp, router.hpp, losses.hpp, optimizer.hpp and the like, which add threads.
//
// Entries that store f32 or bf16 come in pairs, indexed by storage(dtype): 0 is f32, 1 is bf16; arithmetic is f32 in both.
// A kernel works on [begin, end) of its outermost dimension and touches nothing else, so a range gives the same bits
// whichever thread runs it.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {

enum class ActivationKind { kGeluTanh, kGeluErf, kSilu, kRelu, kReluSquared };
constexpr int kActivationKinds = 5;

struct NormArgs {
  const void* x;
  const void* gain;             // null: 1
  const void* bias;             // LayerNorm only; null: 0
  void* y;
  float* mean;                  // LayerNorm only; null: not saved
  float* inverse;               // 1 / rms or 1 / standard deviation; null: not saved
  const std::int32_t* indices;  // null: row i reads x[i]; else x[indices[i]]
  std::int64_t width;
  float epsilon;
};

struct NormGradArgs {
  const void* x;
  const void* gain;
  const void* dy;
  const float* mean;
  const float* inverse;
  void* dx;         // null: not wanted
  bool accumulate;  // dx += instead of dx =
  float* dgain;     // this range's own sums, accumulated; null: not wanted
  float* dbias;
  std::int64_t width;
};

struct RopeArgs {
  void* rows;
  std::int64_t row_stride;
  std::int64_t heads, head_dim, rotary_dim;
  const std::int32_t* positions;
  const float* table;
  bool inverse;
};

struct ActivationArgs {
  const void* gate;  // x of the plain form
  const void* up;    // null: plain
  void* y;
  std::int64_t columns;                             // of this call
  std::int64_t gate_stride, up_stride, y_stride;    // elements between rows
};
struct ActivationGradArgs {
  const void* gate;
  const void* up;
  const void* dy;
  void* dgate;
  void* dup;
  std::int64_t columns;
  std::int64_t gate_stride, up_stride, dy_stride, dgate_stride, dup_stride;
};

struct ScatterArgs {
  const void* f;
  const float* scale;  // null: 1
  const std::int32_t* indices;
  void* y;
  std::int64_t width;
};
struct ScatterGradArgs {
  const void* dy;
  const void* f;
  const float* gate;        // g(r)
  const float* derivative;  // g'(r)
  const std::int32_t* indices;
  void* df;
  float* dscore;
  std::int64_t width;
};

struct AdamWArgs {
  float* master;
  float* first;
  float* second;
  const void* grad;
  bf16* copy;  // null: none
  float beta1, beta2, decay, step, inverse_root2, epsilon, grad_scale;
};

struct VectorKernels {
  int lanes;

  void (*rmsnorm[2])(const NormArgs&, std::int64_t begin, std::int64_t end);
  void (*rmsnorm_grad[2])(const NormGradArgs&, std::int64_t begin, std::int64_t end);
  void (*layernorm[2])(const NormArgs&, std::int64_t begin, std::int64_t end);
  void (*layernorm_grad[2])(const NormGradArgs&, std::int64_t begin, std::int64_t end);
  void (*rope[2])(const RopeArgs&, std::int64_t begin, std::int64_t end);
  void (*activation[2][kActivationKinds])(const ActivationArgs&, std::int64_t begin, std::int64_t end);
  void (*activation_grad[2][kActivationKinds])(const ActivationGradArgs&, std::int64_t begin, std::int64_t end);

  void (*add[2])(const void* a, const void* b, void* y, std::int64_t begin, std::int64_t end);
  void (*add_row[2])(const void* x, const void* row, void* y, std::int64_t width, std::int64_t begin, std::int64_t end);
  void (*scale[2])(const void* x, float factor, void* y, std::int64_t begin, std::int64_t end);
  double (*sum_squares[2])(const void* x, std::int64_t begin, std::int64_t end);
  void (*to_bf16)(const float* x, bf16* y, std::int64_t begin, std::int64_t end);
  void (*to_f32)(const bf16* x, float* y, std::int64_t begin, std::int64_t end);
  // sums[j] += sum over rows of factor[row] * x[row][j]; factor null: 1.
  void (*column_sums[2])(const void* x, const float* factor, float* sums, std::int64_t width, std::int64_t begin, std::int64_t end);
  // out[j] (+)= sum over parts of partial[part][j], out in f32 or bf16.
  void (*reduce_parts[2])(const float* partial, std::int64_t parts, void* out, std::int64_t width, bool accumulate, std::int64_t begin,
                          std::int64_t end);

  void (*gather[2])(const void* x, const std::int32_t* indices, void* y, std::int64_t width, std::int64_t begin, std::int64_t end);
  void (*scatter_add[2])(const ScatterArgs&, std::int64_t begin, std::int64_t end);
  void (*scatter_grad[2])(const ScatterGradArgs&, std::int64_t begin, std::int64_t end);
  void (*embedding[2])(const void* table, const std::int32_t* ids, const void* position_table, const std::int32_t* positions, void* y,
                       std::int64_t width, std::int64_t begin, std::int64_t end);
  // gradient[id][j] += sum of dy[row][j] over the entries (id << 32 | row) of the ascending order, for the ids that begin in [begin, end).
  void (*sum_rows[2])(const void* dy, const std::uint64_t* order, std::int64_t count, void* gradient, std::int64_t width, std::int64_t begin,
                      std::int64_t end);
  void (*combine[2])(const void* rows, const std::int32_t* slots, const float* weights, std::int64_t top_k, void* y, bool accumulate,
                     std::int64_t width, std::int64_t begin, std::int64_t end);
  void (*combine_grad[2])(const void* dy, const void* rows, const std::int32_t* slots, const float* weights, std::int64_t top_k,
                          void* drows, float* dweights, std::int64_t width, std::int64_t begin, std::int64_t end);

  void (*scores[2])(const void* x, const void* w, float bias, float* r, std::int64_t width, std::int64_t begin, std::int64_t end);
  void (*outer_add[2])(const float* dr, const void* w, const std::int32_t* indices, void* dx, std::int64_t width, std::int64_t begin,
                       std::int64_t end);

  std::int64_t (*make_keys)(const float* scores, std::int64_t count, std::uint32_t* keys);
  std::uint32_t (*select_key)(const std::uint32_t* keys, std::int64_t count, std::int64_t k, std::uint32_t* scratch, std::int64_t* above);
  void (*collect)(const std::uint32_t* keys, std::int64_t count, std::uint32_t key, std::int64_t ties, std::int64_t total,
                  std::int32_t* out);
  std::int64_t (*above_threshold)(const float* scores, std::int64_t count, float threshold, std::int32_t* out, std::int64_t* nan_index);

  double (*bce)(const float* logits, const std::uint8_t* targets, std::int64_t count, float weight, float* grad, bool accumulate);
  void (*softmax_row)(const float* x, float* y, std::int64_t count, float inverse_temperature);
  // Maximum and sum of exp(x - maximum) of one row.
  void (*row_log_sum[2])(const void* x, std::int64_t count, float* maximum, float* sum);
  // x = (exp(x - maximum) * inverse_sum - [i == label]) * scale in place.
  void (*softmax_grad[2])(void* x, std::int64_t count, float maximum, float inverse_sum, std::int64_t label, float scale);
  std::int64_t (*argmax[2])(const void* x, std::int64_t count);

  void (*adamw[2])(const AdamWArgs&, std::int64_t begin, std::int64_t end);

  float (*probe_read)(const float* x, std::int64_t count);
  void (*probe_copy)(const float* x, float* y, std::int64_t count);
  void (*probe_copy_stream)(const float* x, float* y, std::int64_t count);  // non-temporal stores
  void (*probe_update)(float* x, std::int64_t count);
  void (*probe_triad)(const float* x, const float* y, float* z, std::int64_t count);
  void (*probe_exp)(float* x, std::int64_t count);
};

// null where this build has no such twin.
const VectorKernels* vector_kernels_baseline();
const VectorKernels* vector_kernels_avx2();
const VectorKernels* vector_kernels_avx512();
const VectorKernels* vector_kernels_avx512_bf16();

// The table in use.
const VectorKernels& vector_kernels();

// Index into the pairs; throws an internal Error for other storage types.
inline int storage(DType type) {
  if (type == DType::kF32) return 0;
  if (type == DType::kBF16) return 1;
  throw_internal("vector kernels store f32 or bf16 only, not " + std::string(dtype_name(type)));
}

}  // namespace fathom::cpu
