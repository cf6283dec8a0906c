// The twin of attention_bf16 without tiles: f32 arithmetic on bf16 storage, any head size. Compiled per instruction set;
// FATHOM_TWIN names the copy. Lanes are queries (lanes.inl: 16, or 8 with AVX2).
//
// Unnamed namespace and no std templates, so that code of a wider instruction set cannot be linked into another copy.
#include <cmath>
#include <cstring>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "kernels/cpu/attention_bf16_detail.hpp"
#include "kernels/cpu/lanes.inl"

namespace fathom::cpu::detail {
namespace {

constexpr int kKeys = 64;  // keys per block


int own_thread() {
#if defined(_OPENMP)
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// Rows of a head as f32, features padded with zeros to dp.
void widen_rows(const bf16* rows, std::int64_t stride, std::int64_t count, int head_dim, int dp, float* out) {
  for (std::int64_t r = 0; r < count; ++r) {
    const bf16* row = rows + r * stride;
    float* to = out + r * dp;
    for (int d = 0; d < head_dim; ++d) {
      const std::uint32_t bits = std::uint32_t{row[d].bits} << 16;
      std::memcpy(to + d, &bits, 4);
    }
    for (int d = head_dim; d < dp; ++d) to[d] = 0.0f;
  }
}

// Up to kLanes rows transposed: out[feature][kLanes], absent rows zero.
void widen_lanes(const bf16* rows, std::int64_t stride, std::int64_t count, int head_dim, float* out) {
  for (int d = 0; d < head_dim; ++d) {
    for (int i = 0; i < kLanes; ++i) {
      const std::uint32_t bits = i < count ? std::uint32_t{rows[i * stride + d].bits} << 16 : 0;
      std::memcpy(out + d * kLanes + i, &bits, 4);
    }
  }
}

// out[key] = <row of key, lanes> for `count` keys: lanes [feature][kLanes], rows [key][dp].
inline void dot_lanes(const float* rows, const float* lanes, int count, int head_dim, int dp, Vf* out) {
  int key = 0;
  for (; key + 4 <= count; key += 4) {
    Vf acc[4] = {};
    const float* row = rows + std::int64_t{key} * dp;
    for (int d = 0; d < head_dim; ++d) {
      const Vf lane = *reinterpret_cast<const Vf*>(lanes + d * kLanes);
      for (int j = 0; j < 4; ++j) acc[j] += lane * row[j * dp + d];
    }
    for (int j = 0; j < 4; ++j) out[key + j] = acc[j];
  }
  for (; key < count; ++key) {
    Vf acc = {};
    for (int d = 0; d < head_dim; ++d) {
      acc += *reinterpret_cast<const Vf*>(lanes + d * kLanes) * rows[std::int64_t{key} * dp + d];
    }
    out[key] = acc;
  }
}

struct Lanes {
  Vi last;   // last visible key of each lane
  Vi first;  // first visible key
};

Lanes visible_keys(const std::int32_t* first_key, std::int64_t first_query, std::int64_t real) {
  Lanes lanes = {};
  for (int i = 0; i < kLanes; ++i) {
    lanes.last[i] = static_cast<std::int32_t>(first_query + i);
    lanes.first[i] = first_key && i < real ? first_key[i] : 0;
  }
  return lanes;
}

inline Vi hidden(const Lanes& lanes, std::int64_t key) {
  const Vi a = Vi{} + static_cast<std::int32_t>(key);
  return (a > lanes.last) | (a < lanes.first);
}

std::int64_t forward_thread_floats(int dp) { return std::int64_t{2} * kKeys * dp + 2 * kLanes * std::int64_t{dp} + 2 * kLanes * kKeys; }

}  // namespace

#if defined(FATHOM_TWIN_BASE)
std::int64_t forward_bytes_f32(const AttentionCall& call) {
  return call.threads * forward_thread_floats(padded_head(call.in.head_dim, kLanes)) * 4;
}
#endif

void FATHOM_TWIN(forward)(const AttentionCall& call, bf16* out, std::int64_t out_stride, float* lse) {
  const AttentionInputs& in = call.in;
  const int dp = padded_head(in.head_dim, kLanes), group = in.heads / in.kv_heads;
  const std::int64_t blocks = (call.max_rows + kLanes - 1) / kLanes, tasks = in.batch * in.heads * blocks;
  const float c = in.scale * 1.44269504088896340736f;

#pragma omp parallel for schedule(dynamic, 1) num_threads(call.threads)
  for (std::int64_t t = 0; t < tasks; ++t) {
    const std::int64_t block = blocks - 1 - t % blocks, head = t / blocks % in.heads, s = t / blocks / in.heads;
    const std::int64_t begin = in.begin(s), rows = in.begin(s + 1) - begin, first_query = block * kLanes;
    if (first_query >= rows) continue;
    const std::int64_t real = rows - first_query < kLanes ? rows - first_query : kLanes;
    float* const keys = reinterpret_cast<float*>(call.scratch) + own_thread() * forward_thread_floats(dp);
    float* const values = keys + std::int64_t{kKeys} * dp;
    float* const queries = values + std::int64_t{kKeys} * dp;
    Vf* const o = reinterpret_cast<Vf*>(queries + std::int64_t{kLanes} * dp);
    Vf* const p = o + dp;
    widen_lanes(in.q + (begin + first_query) * in.q_stride + head * in.head_dim, in.q_stride, real, in.head_dim, queries);
    const std::int32_t* first_key = call.first_key ? call.first_key + begin + first_query : nullptr;
    const Lanes lanes = visible_keys(first_key, first_query, real);
    for (int d = 0; d < dp; ++d) o[d] = Vf{};
    Vf max = Vf{} - 1e30f, sum = {};
    const std::int64_t kv_head = head / group * in.head_dim;
    for (std::int64_t key = first_key ? first_key[0] : 0; key < first_query + real; key += kKeys) {
      const int count = static_cast<int>(first_query + real - key < kKeys ? first_query + real - key : kKeys);
      widen_rows(in.k + (begin + key) * in.k_stride + kv_head, in.k_stride, count, in.head_dim, dp, keys);
      widen_rows(in.v + (begin + key) * in.v_stride + kv_head, in.v_stride, count, in.head_dim, dp, values);
      dot_lanes(keys, queries, count, in.head_dim, dp, p);
      Vf raised = max;
      for (int i = 0; i < count; ++i) {
        p[i] = hidden(lanes, key + i) ? Vf{} - 3e38f : p[i] * c;
        raised = raised > p[i] ? raised : p[i];
      }
      const Vf factor = exp2_lanes(max - raised);
      max = raised;
      sum *= factor;
      for (int i = 0; i < count; ++i) {
        const Vf e = exp2_lanes(p[i] - max);
        p[i] = hidden(lanes, key + i) ? Vf{} : e;
        sum += p[i];
      }
      for (int d = 0; d < in.head_dim; ++d) o[d] *= factor;
      int i = 0;
      for (; i + 4 <= count; i += 4) {
        const Vf p0 = p[i], p1 = p[i + 1], p2 = p[i + 2], p3 = p[i + 3];
        const float* v = values + std::int64_t{i} * dp;
        for (int d = 0; d < in.head_dim; ++d) {
          Vf acc = o[d];
          acc += p0 * v[d];
          acc += p1 * v[dp + d];
          acc += p2 * v[2 * dp + d];
          acc += p3 * v[3 * dp + d];
          o[d] = acc;
        }
      }
      for (; i < count; ++i) {
        for (int d = 0; d < in.head_dim; ++d) o[d] += p[i] * values[std::int64_t{i} * dp + d];
      }
    }
    const Vf inverse = 1.0f / sum;
    bf16* const to = out + (begin + first_query) * out_stride + head * in.head_dim;
    for (int d = 0; d < in.head_dim; ++d) {
      const Vf value = o[d] * inverse;
      for (int i = 0; i < real; ++i) to[i * out_stride + d].bits = narrow(value[i]);
    }
    if (lse) {
      for (int i = 0; i < real; ++i) {
        lse[(begin + first_query + i) * in.heads + head] = max[i] * 0.69314718055994530942f + logf(sum[i]);
      }
    }
  }
}

namespace {

// Per thread: K, V, Q, dO of a head widened, dQ, and dK, dV where they are not kept for a group sum; then lanes and scores.
std::int64_t backward_thread_floats(const AttentionCall& call, int dp) {
  return 7 * call.total_padded * dp + 2 * kLanes * std::int64_t{dp} + 2 * kLanes * kKeys;
}

}  // namespace

#if defined(FATHOM_TWIN_BASE)
std::int64_t backward_bytes_f32(const AttentionCall& call) {
  const int dp = padded_head(call.in.head_dim, kLanes);
  return call.threads * backward_thread_floats(call, dp) * 4 + group_partial_bytes(call, dp);
}
#endif

void FATHOM_TWIN(backward)(const AttentionCall& call, const AttentionGradInputs& grad, const AttentionGrads& out) {
  const AttentionInputs& in = call.in;
  const int dp = padded_head(in.head_dim, kLanes), group = in.heads / in.kv_heads;
  const float log2e = 1.44269504088896340736f, c = in.scale * log2e;
  float* const partials = reinterpret_cast<float*>(call.scratch);
  float* const thread_floats = partials + group_partial_bytes(call, dp) / 4;
  const std::int64_t tasks = in.batch * in.heads;

#pragma omp parallel for schedule(dynamic, 1) num_threads(call.threads)
  for (std::int64_t t = 0; t < tasks; ++t) {
    const std::int64_t head = t % in.heads, s = t / in.heads;
    const std::int64_t begin = in.begin(s), rows = in.begin(s + 1) - begin, size = rows * dp;
    const std::int64_t kv_head = head / group;
    float* const k = thread_floats + own_thread() * backward_thread_floats(call, dp);
    float* const v = k + call.total_padded * dp;
    float* const q = v + call.total_padded * dp;
    float* const dout = q + call.total_padded * dp;
    float* const dq = dout + call.total_padded * dp;
    float* dk = dq + call.total_padded * dp;
    float* dv = dk + call.total_padded * dp;
    float* const lanes_q = dv + call.total_padded * dp;
    float* const lanes_do = lanes_q + kLanes * dp;
    Vf* const p = reinterpret_cast<Vf*>(lanes_do + kLanes * dp);
    Vf* const ds = p + kKeys;
    if (group > 1) {
      dk = partials + (2 * head) * call.total_padded * dp + padded_begin(begin, s) * dp;
      dv = dk + call.total_padded * dp;
    }
    const bf16* const q_rows = in.q + begin * in.q_stride + head * in.head_dim;
    const bf16* const do_rows = grad.dout + begin * grad.dout_stride + head * in.head_dim;
    const bf16* const out_rows = grad.out + begin * grad.out_stride + head * in.head_dim;
    widen_rows(in.k + begin * in.k_stride + kv_head * in.head_dim, in.k_stride, rows, in.head_dim, dp, k);
    widen_rows(in.v + begin * in.v_stride + kv_head * in.head_dim, in.v_stride, rows, in.head_dim, dp, v);
    widen_rows(q_rows, in.q_stride, rows, in.head_dim, dp, q);
    widen_rows(do_rows, grad.dout_stride, rows, in.head_dim, dp, dout);
    for (std::int64_t i = 0; i < size; ++i) dq[i] = dk[i] = dv[i] = 0.0f;

    for (std::int64_t first_query = 0; first_query < rows; first_query += kLanes) {
      const std::int64_t real = rows - first_query < kLanes ? rows - first_query : kLanes;
      widen_lanes(q_rows + first_query * in.q_stride, in.q_stride, real, in.head_dim, lanes_q);
      widen_lanes(do_rows + first_query * grad.dout_stride, grad.dout_stride, real, in.head_dim, lanes_do);
      Vf lse2 = {}, delta = {};
      for (int i = 0; i < real; ++i) {
        lse2[i] = grad.lse[(begin + first_query + i) * in.heads + head] * log2e;
        float sum = 0;
        for (int d = 0; d < in.head_dim; ++d) {
          sum += dout[(first_query + i) * dp + d] * float{out_rows[(first_query + i) * grad.out_stride + d]};
        }
        delta[i] = sum;
      }
      const std::int32_t* first_key = call.first_key ? call.first_key + begin + first_query : nullptr;
      const Lanes lanes = visible_keys(first_key, first_query, real);
      for (std::int64_t key = first_key ? first_key[0] : 0; key < first_query + real; key += kKeys) {
        const int count = static_cast<int>(first_query + real - key < kKeys ? first_query + real - key : kKeys);
        dot_lanes(k + key * dp, lanes_q, count, in.head_dim, dp, p);
        dot_lanes(v + key * dp, lanes_do, count, in.head_dim, dp, ds);
        for (int i = 0; i < count; ++i) {
          const Vf e = exp2_lanes(p[i] * c - lse2);
          p[i] = hidden(lanes, key + i) ? Vf{} : e;
          ds[i] = p[i] * (ds[i] - delta);
        }
        for (int i = 0; i < count; ++i) {
          float* const dk_row = dk + (key + i) * dp;
          float* const dv_row = dv + (key + i) * dp;
          for (int d = 0; d < dp; d += kLanes) {
            Vf dk_acc, dv_acc;
            std::memcpy(&dk_acc, dk_row + d, sizeof(Vf));
            std::memcpy(&dv_acc, dv_row + d, sizeof(Vf));
            for (int j = 0; j < real; ++j) {
              const std::int64_t at = (first_query + j) * dp + d;
              dk_acc += *reinterpret_cast<const Vf*>(q + at) * ds[i][j];
              dv_acc += *reinterpret_cast<const Vf*>(dout + at) * p[i][j];
            }
            std::memcpy(dk_row + d, &dk_acc, sizeof(Vf));
            std::memcpy(dv_row + d, &dv_acc, sizeof(Vf));
          }
        }
        for (int j = 0; j < real; ++j) {
          float* const dq_row = dq + (first_query + j) * dp;
          for (int d = 0; d < dp; d += kLanes) {
            Vf acc;
            std::memcpy(&acc, dq_row + d, sizeof(Vf));
            for (int i = 0; i < count; ++i) acc += *reinterpret_cast<const Vf*>(k + (key + i) * dp + d) * ds[i][j];
            std::memcpy(dq_row + d, &acc, sizeof(Vf));
          }
        }
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      bf16* const dq_to = out.dq + (begin + r) * out.dq_stride + head * in.head_dim;
      bf16* const dk_to = out.dk + (begin + r) * out.dk_stride + kv_head * in.head_dim;
      bf16* const dv_to = out.dv + (begin + r) * out.dv_stride + kv_head * in.head_dim;
      for (int d = 0; d < in.head_dim; ++d) {
        dq_to[d].bits = narrow(dq[r * dp + d] * in.scale);
        if (group == 1) {
          dk_to[d].bits = narrow(dk[r * dp + d] * in.scale);
          dv_to[d].bits = narrow(dv[r * dp + d]);
        }
      }
    }
  }
  if (group > 1) write_group_gradients(call, partials, dp, out);
}

}  // namespace fathom::cpu::detail
