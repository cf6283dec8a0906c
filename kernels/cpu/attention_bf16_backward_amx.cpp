// Backward attention on AMX tiles.
//
// One task is one head of one sequence, so dQ, dK and dV are summed in a fixed order whatever the number of threads. Its
// operands are packed once into the tile orders the five products need. Then, per block of kBlock keys, over the query blocks
// that see it:
//   S^T = K Q^T and dP^T = V dO^T in units of 16 keys x 32 queries, each unit's tiles issued before the vector work of the
//   one before; P^T = 2^(S^T c - lse log2 e), dS^T = P^T (dP^T - D), both rounded to bf16 in the orders needed next;
//   dV += P^T dO and dK += dS^T Q (keys are rows), dQ^T += K^T dS^T (queries are columns).
// dK and dV of a key block and dQ of the head stay in f32 until they are complete.
#include "kernels/cpu/attention_bf16_detail.hpp"

#if FATHOM_CPU && defined(__AMX_BF16__)

#include <cstring>
#include <type_traits>

#include <omp.h>

#include "kernels/cpu/attention_amx_tiles.hpp"

namespace fathom::cpu::detail {
namespace {

constexpr int kBlock = 128;  // keys and queries of a block
constexpr int kGroups = kBlock / 32;
constexpr int kKeyTiles = kBlock / 16;
constexpr float kLog2e = 1.44269504088896340736f;

// Scratch of one thread, carved from one piece (carve; without a workspace it only measures).
struct Workspace {
  bf16 *k, *v;              // natural tiles
  bf16* k_features;         // feature tiles
  bf16 *q_columns, *do_columns;
  bf16 *q_pairs, *do_pairs;
  float* dq;                // [32 queries][feature tile][half] tiles, transposed
  float *dk, *dv;           // [16 keys][feature tile] tiles of the current key block
  bf16 *p, *ds;             // A operands [16 keys][32 queries]
  bf16* ds_pairs;           // B operands [32 queries][32 keys][half]
  float* scores;            // two buffers of S^T and dP^T, [16][32] each
  float *lse2, *delta;      // per query: lse log2 e, D
};

std::int64_t carve(std::int64_t padded_rows, int dp, char* base, Workspace* w) {
  std::int64_t used = 0;
  const auto take = [&](auto& pointer, std::int64_t bytes) {
    if (w) pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + used);
    used += (bytes + 63) / 64 * 64;
  };
  const std::int64_t form = padded_rows * dp * 2;
  Workspace local{};
  Workspace& to = w ? *w : local;
  take(to.k, form);
  take(to.v, form);
  take(to.k_features, form);
  take(to.q_columns, form);
  take(to.do_columns, form);
  take(to.q_pairs, form);
  take(to.do_pairs, form);
  take(to.dq, 2 * form);
  take(to.dk, std::int64_t{kBlock} * dp * 4);
  take(to.dv, std::int64_t{kBlock} * dp * 4);
  take(to.p, std::int64_t{kBlock} * kBlock * 2);
  take(to.ds, std::int64_t{kBlock} * kBlock * 2);
  take(to.ds_pairs, std::int64_t{kBlock} * kBlock * 2);
  take(to.scores, 4 * 16 * 32 * 4);
  take(to.lse2, padded_rows * 4);
  take(to.delta, padded_rows * 4);
  return used;
}

std::int64_t padded_rows(const AttentionCall& call) { return (call.max_rows + 31) / 32 * 32; }

std::int64_t thread_bytes(const AttentionCall& call) {
  return carve(padded_rows(call), padded_head(call.in.head_dim, 32), nullptr, nullptr) + 4096;
}

// One head of one sequence.
struct HeadTask {
  Workspace w;
  std::int64_t rows;
  const std::int32_t* first_key;  // of row 0; null without window
  float c;                        // scale * log2 e
};

template <int kSteps>
void pack_head(HeadTask& task, const HeadView& q, const HeadView& k, const HeadView& v, const HeadView& out, const HeadView& dout,
               const float* lse, std::int64_t lse_stride) {
  Workspace& w = task.w;
  for (std::int64_t row = 0; row < task.rows; row += 32) {
    const std::int64_t at = row * kSteps * 32;
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t upper = step * kTileHalves, lower = (kSteps + step) * kTileHalves, both = 2 * upper;
      pack_natural(k, row, step, w.k + at + upper);
      pack_natural(k, row + 16, step, w.k + at + lower);
      pack_natural(v, row, step, w.v + at + upper);
      pack_natural(v, row + 16, step, w.v + at + lower);
      pack_features(k, row, step, w.k_features + at + both);
      pack_columns(q, row, step, w.q_columns + at + both);
      pack_columns(q, row + 16, step, w.q_columns + at + both + kTileHalves);
      pack_columns(dout, row, step, w.do_columns + at + both);
      pack_columns(dout, row + 16, step, w.do_columns + at + both + kTileHalves);
      pack_row_pairs(q, row, step, w.q_pairs + at + both);
      pack_row_pairs(dout, row, step, w.do_pairs + at + both);
    }
    for (std::int64_t r = row; r < row + 32; ++r) {
      __m512 sum = _mm512_setzero_ps();
      for (int step = 0; step < kSteps; ++step) {
        sum = _mm512_dpbf16_ps(sum, (__m512bh)out.load(r, 32 * step), (__m512bh)dout.load(r, 32 * step));
      }
      w.delta[r] = _mm512_reduce_add_ps(sum);
      w.lse2[r] = r < task.rows ? lse[r * lse_stride] * kLog2e : 0.0f;
    }
  }
}

// S^T and dP^T of 16 keys x 32 queries -> scores[16][32], scores[512 + ...].
template <int kSteps>
inline void unit_tiles(const Workspace& w, std::int64_t key, std::int64_t query, float* scores) {
  const bf16* const k = w.k + key * kSteps * 32;
  const bf16* const v = w.v + key * kSteps * 32;
  const bf16* const q = w.q_columns + query * kSteps * 32;
  const bf16* const d = w.do_columns + query * kSteps * 32;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
#pragma GCC unroll 8
  for (int step = 0; step < kSteps; ++step) {
    _tile_loadd(4, k + step * kTileHalves, 64);
    _tile_loadd(5, q + 2 * step * kTileHalves, 64);
    _tile_loadd(6, q + (2 * step + 1) * kTileHalves, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, v + step * kTileHalves, 64);
    _tile_loadd(5, d + 2 * step * kTileHalves, 64);
    _tile_loadd(6, d + (2 * step + 1) * kTileHalves, 64);
    _tile_dpbf16ps(2, 7, 5);
    _tile_dpbf16ps(3, 7, 6);
  }
  _tile_stored(0, scores, 128);
  _tile_stored(1, scores + 16, 128);
  _tile_stored(2, scores + 512, 128);
  _tile_stored(3, scores + 528, 128);
}

inline __m512 probability(__m512 s, __m512 c, __m512 lse2) {
  const __m512 x = _mm512_max_ps(_mm512_set1_ps(-125.0f), _mm512_fmsub_ps(s, c, lse2));
  const __m512 shifted = _mm512_add_ps(x, _mm512_set1_ps(kRound));
  const __m512 n = _mm512_sub_ps(shifted, _mm512_set1_ps(kRound));
  return scale_by_exponent(exp2_fraction(_mm512_sub_ps(x, n)), shifted);
}

// Vector part of a unit: p, ds are its A tiles, pairs the 8 rows of its two B tiles (kTileHalves apart).
template <bool kMasked>
inline void unit_vectors(const HeadTask& task, std::int64_t key, std::int64_t query, const float* scores, bf16* p, bf16* ds, bf16* pairs) {
  const __m512 c = _mm512_set1_ps(task.c);
  const __m512 lse2[2] = {_mm512_load_ps(task.w.lse2 + query), _mm512_load_ps(task.w.lse2 + query + 16)};
  const __m512 delta[2] = {_mm512_load_ps(task.w.delta + query), _mm512_load_ps(task.w.delta + query + 16)};
  __m512i last[2], first[2];
  if constexpr (kMasked) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = query + 16 * half, left = task.rows - row;
      last[half] = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(row)), lane);
      first[half] = _mm512_setzero_si512();
      if (task.first_key) {
        const __mmask16 real = left >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>(left > 0 ? (1u << left) - 1 : 0);
        first[half] = _mm512_maskz_loadu_epi32(real, task.first_key + row);
      }
    }
  }
#pragma GCC unroll 2
  for (int pair = 0; pair < 8; ++pair) {
    __m512i p_row[2], ds_row[2];
    for (int i = 0; i < 2; ++i) {
      const float* row = scores + (2 * pair + i) * 32;
      __m512 e[2], g[2];
      for (int half = 0; half < 2; ++half) {
        e[half] = probability(_mm512_load_ps(row + 16 * half), c, lse2[half]);
        if constexpr (kMasked) {
          const __m512i a = _mm512_set1_epi32(static_cast<int>(key) + 2 * pair + i);
          const __mmask16 visible = _mm512_cmple_epi32_mask(a, last[half]) & _mm512_cmpge_epi32_mask(a, first[half]);
          e[half] = _mm512_maskz_mov_ps(visible, e[half]);
        }
        g[half] = _mm512_mul_ps(e[half], _mm512_sub_ps(_mm512_load_ps(row + 512 + 16 * half), delta[half]));
      }
      p_row[i] = to_bf16(e[0], e[1]);
      ds_row[i] = to_bf16(g[0], g[1]);
      _mm512_store_si512(p + (2 * pair + i) * 32, p_row[i]);
      _mm512_store_si512(ds + (2 * pair + i) * 32, ds_row[i]);
    }
    _mm512_store_si512(pairs + pair * 32, pair_low(ds_row[0], ds_row[1]));
    _mm512_store_si512(pairs + kTileHalves + pair * 32, pair_high(ds_row[0], ds_row[1]));
  }
}

// C[2 tiles][2 tiles] += sum over `count` of A[i] B[i]; a_next is the distance between the two A tiles, c_next between C rows.
inline void multiply_add(float* c, std::int64_t c_next, const bf16* a, std::int64_t a_next, std::int64_t a_step, const bf16* b,
                         std::int64_t b_step, int count) {
  _tile_loadd(0, c, 64);
  _tile_loadd(1, c + kTileFloats, 64);
  _tile_loadd(2, c + c_next, 64);
  _tile_loadd(3, c + c_next + kTileFloats, 64);
  for (int i = 0; i < count; ++i) {
    _tile_loadd(4, a + i * a_step, 64);
    _tile_loadd(6, b + i * b_step, 64);
    _tile_loadd(7, b + i * b_step + kTileHalves, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + i * a_step + a_next, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, 64);
  _tile_stored(1, c + kTileFloats, 64);
  _tile_stored(2, c + c_next, 64);
  _tile_stored(3, c + c_next + kTileFloats, 64);
}

template <int kSteps>
void run_block(const HeadTask& task, std::int64_t key0, int key_tiles, std::int64_t query0, int groups) {
  const Workspace& w = task.w;
  enum Kind { kHidden, kPartial, kWhole };
  const auto kind = [&](std::int64_t key, std::int64_t query) {
    if (key > query + 31) return kHidden;
    bool partial = key + 15 > query;
    if (task.first_key && query < task.rows) {
      if (key + 15 < task.first_key[query]) return kHidden;
      const std::int64_t last = query + 31 < task.rows ? query + 31 : task.rows - 1;
      partial = partial || key < task.first_key[last];
    }
    return partial ? kPartial : kWhole;
  };
  const auto compute = [&](int unit, int buffer) {
    const std::int64_t key = key0 + 16 * (unit % key_tiles), query = query0 + 32 * (unit / key_tiles);
    if (kind(key, query) != kHidden) unit_tiles<kSteps>(w, key, query, w.scores + 1024 * buffer);
  };
  const int units = key_tiles * groups;
  publish_stores();
  compute(0, 0);
  for (int unit = 0; unit < units; ++unit) {
    if (unit + 1 < units) compute(unit + 1, (unit + 1) & 1);
    const int tile = unit % key_tiles, group = unit / key_tiles;
    const std::int64_t key = key0 + 16 * tile, query = query0 + 32 * group;
    bf16* const p = w.p + (tile * kGroups + group) * kTileHalves;
    bf16* const ds = w.ds + (tile * kGroups + group) * kTileHalves;
    bf16* const pairs = w.ds_pairs + (group * kGroups + tile / 2) * 2 * kTileHalves + tile % 2 * (kTileHalves / 2);
    const float* const scores = w.scores + 1024 * (unit & 1);
    switch (kind(key, query)) {
      case kWhole: unit_vectors<false>(task, key, query, scores, p, ds, pairs); break;
      case kPartial: unit_vectors<true>(task, key, query, scores, p, ds, pairs); break;
      case kHidden:
        memset(static_cast<void*>(p), 0, 1024);
        memset(static_cast<void*>(ds), 0, 1024);
        memset(static_cast<void*>(pairs), 0, 512);
        memset(static_cast<void*>(pairs + kTileHalves), 0, 512);
        break;
    }
  }
  publish_stores();
  constexpr std::int64_t kFeatureTiles = 2 * kSteps;
  constexpr std::int64_t kBlockHalves = kFeatureTiles * kTileHalves;  // of 32 packed rows
  for (int tile = 0; tile < key_tiles; tile += 2) {
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t c = (tile * kFeatureTiles + 2 * step) * kTileFloats, c_next = kFeatureTiles * kTileFloats;
      const std::int64_t a = tile * kGroups * kTileHalves, b = query0 / 32 * kBlockHalves + 2 * step * kTileHalves;
      multiply_add(w.dv + c, c_next, w.p + a, kGroups * kTileHalves, kTileHalves, w.do_pairs + b, kBlockHalves, groups);
      multiply_add(w.dk + c, c_next, w.ds + a, kGroups * kTileHalves, kTileHalves, w.q_pairs + b, kBlockHalves, groups);
    }
  }
  for (int group = 0; group < groups; ++group) {
    for (int step = 0; step < kSteps; ++step) {
      float* const c = w.dq + ((query0 / 32 + group) * kFeatureTiles + 2 * step) * 2 * kTileFloats;
      multiply_add(c, 2 * kTileFloats, w.k_features + key0 / 32 * kBlockHalves + 2 * step * kTileHalves, kTileHalves, kBlockHalves,
                   w.ds_pairs + group * kGroups * 2 * kTileHalves, 2 * kTileHalves, key_tiles / 2);
    }
  }
}

// Where the gradients of a head go: bf16 rows, or f32 partials (stride dp) of a group.
struct HeadOutput {
  bf16 *dq, *dk, *dv;
  std::int64_t dq_stride, dk_stride, dv_stride;
  float *dk_partial, *dv_partial;
  float scale;
  int head_dim;
};

template <int kSteps>
void write_keys(const HeadTask& task, const HeadOutput& out, std::int64_t key0, int key_tiles) {
  constexpr int kFeatureTiles = 2 * kSteps;
  const __m512 scale = _mm512_set1_ps(out.scale);
  for (int tile = 0; tile < key_tiles; ++tile) {
    for (int f = 0; f < kFeatureTiles; ++f) {
      for (int i = 0; i < 16; ++i) {
        const std::int64_t row = key0 + 16 * tile + i, at = (tile * kFeatureTiles + f) * kTileFloats + 16 * i;
        if (row >= task.rows) break;
        const __m512 dk = _mm512_load_ps(task.w.dk + at), dv = _mm512_load_ps(task.w.dv + at);
        if (out.dk_partial) {
          _mm512_storeu_ps(out.dk_partial + row * kSteps * 32 + 16 * f, dk);
          _mm512_storeu_ps(out.dv_partial + row * kSteps * 32 + 16 * f, dv);
        } else {
          store_features(out.dk + row * out.dk_stride, 16 * f, out.head_dim, _mm512_mul_ps(dk, scale));
          store_features(out.dv + row * out.dv_stride, 16 * f, out.head_dim, dv);
        }
      }
    }
  }
}

template <int kSteps>
void write_queries(const HeadTask& task, const HeadOutput& out) {
  constexpr int kFeatureTiles = 2 * kSteps;
  const __m512 scale = _mm512_set1_ps(out.scale);
  for (std::int64_t query = 0; query < task.rows; query += 32) {
    for (int tile = 0; tile < 2 * kFeatureTiles; ++tile) {
      const float* const from = task.w.dq + (query / 32 * 2 * kFeatureTiles + tile) * kTileFloats;
      __m512i r[16];
      for (int i = 0; i < 16; ++i) r[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(from + 16 * i), scale));
      transpose16(r);
      for (int i = 0; i < 16; ++i) {
        const std::int64_t row = query + pair_query(tile % 2, i);
        if (row < task.rows) store_features(out.dq + row * out.dq_stride, 16 * (tile / 2), out.head_dim, _mm512_castsi512_ps(r[i]));
      }
    }
  }
}

template <int kSteps>
void run_head(HeadTask& task, const HeadView& q, const HeadView& k, const HeadView& v, const HeadView& out, const HeadView& dout,
              const float* lse, std::int64_t lse_stride, const HeadOutput& to) {
  pack_head<kSteps>(task, q, k, v, out, dout, lse, lse_stride);
  const std::int64_t end = (task.rows + 31) / 32 * 32;
  memset(task.w.dq, 0, static_cast<std::size_t>(end * kSteps * 32 * 4));
  for (std::int64_t key0 = 0; key0 < end; key0 += kBlock) {
    const int key_tiles = static_cast<int>((end - key0 < kBlock ? end - key0 : kBlock) / 16);
    memset(task.w.dk, 0, static_cast<std::size_t>(key_tiles * kSteps * 2048));
    memset(task.w.dv, 0, static_cast<std::size_t>(key_tiles * kSteps * 2048));
    for (std::int64_t query0 = key0; query0 < end; query0 += kBlock) {
      if (task.first_key && task.first_key[query0] >= key0 + 16 * key_tiles) break;
      run_block<kSteps>(task, key0, key_tiles, query0, static_cast<int>((end - query0 < kBlock ? end - query0 : kBlock) / 32));
    }
    write_keys<kSteps>(task, to, key0, key_tiles);
  }
  write_queries<kSteps>(task, to);
}

using RunHead = void (*)(HeadTask&, const HeadView&, const HeadView&, const HeadView&, const HeadView&, const HeadView&, const float*,
                         std::int64_t, const HeadOutput&);
constexpr RunHead kRunHead[] = {run_head<1>, run_head<2>, run_head<3>, run_head<4>,
                                run_head<5>, run_head<6>, run_head<7>, run_head<8>};

}  // namespace

std::int64_t backward_bytes_amx(const AttentionCall& call) {
  return group_partial_bytes(call, padded_head(call.in.head_dim, 32)) + call.threads * thread_bytes(call);
}

void backward_amx(const AttentionCall& call, const AttentionGradInputs& grad, const AttentionGrads& out) {
  const AttentionInputs& in = call.in;
  const int d = in.head_dim, dp = padded_head(d, 32), group = in.heads / in.kv_heads;
  float* const partials = reinterpret_cast<float*>(call.scratch);
  char* const buffers = call.scratch + group_partial_bytes(call, dp);
  const std::int64_t bytes = thread_bytes(call), part = call.total_padded * dp;

#pragma omp parallel num_threads(call.threads)
  {
    configure_tiles();
    HeadTask task;
    carve(padded_rows(call), dp, buffers + omp_get_thread_num() * bytes, &task.w);
    task.c = in.scale * kLog2e;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t t = 0; t < in.batch * in.heads; ++t) {
      const std::int64_t head = t % in.heads, s = t / in.heads, kv = head / group, begin = in.begin(s);
      task.rows = in.begin(s + 1) - begin;
      if (task.rows == 0) continue;
      task.first_key = call.first_key ? call.first_key + begin : nullptr;
      const auto view = [&](const bf16* data, std::int64_t stride, std::int64_t h) {
        return HeadView{data + begin * stride + h * d, stride, task.rows, d};
      };
      HeadOutput to;
      to.dq = out.dq + begin * out.dq_stride + head * d;
      to.dk = out.dk + begin * out.dk_stride + kv * d;
      to.dv = out.dv + begin * out.dv_stride + kv * d;
      to.dq_stride = out.dq_stride;
      to.dk_stride = out.dk_stride;
      to.dv_stride = out.dv_stride;
      to.dk_partial = group > 1 ? partials + 2 * head * part + padded_begin(begin, s) * dp : nullptr;
      to.dv_partial = group > 1 ? to.dk_partial + part : nullptr;
      to.scale = in.scale;
      to.head_dim = d;
      kRunHead[dp / 32 - 1](task, view(in.q, in.q_stride, head), view(in.k, in.k_stride, kv), view(in.v, in.v_stride, kv),
                            view(grad.out, grad.out_stride, head), view(grad.dout, grad.dout_stride, head),
                            grad.lse + begin * in.heads + head, in.heads, to);
    }
    _tile_release();
  }
  if (group > 1) write_group_gradients(call, partials, dp, out);
}

}  // namespace fathom::cpu::detail

#elif FATHOM_CPU

#include "lib/error.hpp"

namespace fathom::cpu::detail {
std::int64_t backward_bytes_amx(const AttentionCall&) { throw_internal("attention_bf16: this build has no AMX kernels"); }
void backward_amx(const AttentionCall& call, const AttentionGradInputs&, const AttentionGrads&) { backward_bytes_amx(call); }
}  // namespace fathom::cpu::detail

#endif
