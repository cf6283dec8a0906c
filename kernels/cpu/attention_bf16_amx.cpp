// Forward attention on AMX tiles.
//
// One task is 32 queries of one head. Scores are computed transposed, S^T = K Q^T: keys are tile rows and can be used as
// they lie, queries are vector lanes, so row maxima, sums and rescaling need no horizontal operation. P^T is converted to
// bf16 in place as a B operand and O^T = V^T P^T stays transposed until the task ends.
//
// Per block of kKeyBlock keys: the scores of block j+1 (tiles) are issued between the exponentials of block j (vectors), in
// steps of 16 keys, so that both units work at once; then O^T += V^T P^T.
//
// Softmax: exponents are kept base 2 and the running maximum is rounded up to an integer M. Then p = 2^(s c - M) needs no
// subtraction: with n = round(s c), s c - n is the polynomial's argument and n - M comes out of the same rounding addition.
#include "kernels/cpu/attention_bf16_detail.hpp"

#if FATHOM_CPU && defined(__AMX_BF16__)

#include <cmath>

#include <omp.h>

#include "kernels/cpu/attention_amx_tiles.hpp"

namespace fathom::cpu::detail {
namespace {

constexpr int kQueries = 32;
constexpr int kKeyBlock = 128;
constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
constexpr float kMinMax = -1048576.0f;  // floor of M: finite, so that a block without visible keys leaves no NaN
constexpr float kMaxMax = 4194304.0f;   // above this the integers of the rounding trick are no longer exact

struct Layout {
  int steps;                  // feature steps of 32
  std::int64_t head_halves;   // bf16 elements of one packed head of K or V
  std::int64_t packed_bytes;  // K and V of all heads
  std::int64_t thread_bytes;  // per thread: Q^T, two score blocks, O^T
};

std::int64_t query_bytes(int steps) { return std::int64_t{2} * steps * 1024; }
constexpr std::int64_t kScoreBytes = std::int64_t{kKeyBlock} * kQueries * 4;

Layout layout(const AttentionCall& call) {
  Layout l;
  l.steps = padded_head(call.in.head_dim, 32) / 32;
  l.head_halves = call.total_padded * l.steps * 32;
  l.packed_bytes = 2 * 2 * l.head_halves * call.in.kv_heads;
  l.thread_bytes = query_bytes(l.steps) + 2 * kScoreBytes + std::int64_t{4} * l.steps * 1024 + 4096;
  return l;
}

// Running state of 32 queries: two vectors each.
struct RowState {
  __m512 max[2];   // M, integer-valued
  __m512 sum[2];
  __m512 peak[2];  // largest raw score of the block being computed
};

struct Task {
  const AttentionCall* call;
  const bf16* keys;             // packed, natural tiles, of this sequence and head
  const bf16* values;           // packed, feature tiles
  const bf16* queries;          // column tiles [step][2]
  const std::int32_t* first_key;  // of query 0 of the task; null without window
  std::int64_t first_query;     // compact row of lane 0
  std::int64_t rows;            // of the sequence
  std::int64_t key_rows;        // keys visible to any query of the task end here
  float c;                      // scale * log2 e
};

// Scores of 16 keys x 32 queries -> out[16][32] f32.
template <int kSteps>
inline void score_tiles(const bf16* key_tiles, const bf16* queries, float* out) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kSteps <= 2) {  // Q^T tiles 4..7 were loaded by load_queries
    _tile_loadd(2, key_tiles, 64);
    _tile_dpbf16ps(0, 2, 4);
    _tile_dpbf16ps(1, 2, 5);
    if constexpr (kSteps == 2) {
      _tile_loadd(3, key_tiles + kTileHalves, 64);
      _tile_dpbf16ps(0, 3, 6);
      _tile_dpbf16ps(1, 3, 7);
    }
  } else {
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) {
      _tile_loadd(2, key_tiles + step * kTileHalves, 64);
      _tile_loadd(4, queries + (2 * step) * kTileHalves, 64);
      _tile_loadd(5, queries + (2 * step + 1) * kTileHalves, 64);
      _tile_dpbf16ps(0, 2, 4);
      _tile_dpbf16ps(1, 2, 5);
    }
  }
  _tile_stored(0, out, kQueries * 4);
  _tile_stored(1, out + 16, kQueries * 4);
}

template <int kSteps>
inline void load_queries(const bf16* queries) {
  publish_stores();
  if constexpr (kSteps <= 2) {
    _tile_loadd(4, queries, 64);
    _tile_loadd(5, queries + kTileHalves, 64);
    if constexpr (kSteps == 2) {
      _tile_loadd(6, queries + 2 * kTileHalves, 64);
      _tile_loadd(7, queries + 3 * kTileHalves, 64);
    }
  }
}

// Hides keys [key, key + 16) that a query must not see: after it, or before its window.
inline void mask_scores(const Task& task, std::int64_t key, float* scores) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = task.first_query + 16 * half;
    const __m512i last = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(query)), lane);
    __m512i first = _mm512_setzero_si512();
    if (task.first_key) {
      const std::int64_t left = task.rows - query;
      const __mmask16 real = left >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>(left > 0 ? (1u << left) - 1 : 0);
      first = _mm512_maskz_loadu_epi32(real, task.first_key + 16 * half);
    }
    for (int i = 0; i < 16; ++i) {
      const __m512i a = _mm512_set1_epi32(static_cast<int>(key) + i);
      const __mmask16 hidden = _mm512_cmpgt_epi32_mask(a, last) | _mm512_cmpgt_epi32_mask(first, a);
      float* p = scores + i * kQueries + 16 * half;
      _mm512_mask_storeu_ps(p, hidden, _mm512_set1_ps(-INFINITY));
    }
  }
}

inline void peak_scores(const float* scores, RowState& state) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    state.peak[0] = _mm512_max_ps(state.peak[0], _mm512_load_ps(scores + i * kQueries));
    state.peak[1] = _mm512_max_ps(state.peak[1], _mm512_load_ps(scores + i * kQueries + 16));
  }
}

// p = 2^(s c - M), with s held above `low` so that the exponent stays legal. max(low, s) keeps a NaN in s.
inline __m512 exp2_score(__m512 s, __m512 c, __m512 low, __m512 base) {
  s = _mm512_max_ps(low, s);
  const __m512 shifted = _mm512_fmadd_ps(s, c, base);  // base = kRound - M
  const __m512 n = _mm512_sub_ps(shifted, base);
  return scale_by_exponent(exp2_fraction(_mm512_fmsub_ps(s, c, n)), shifted);
}

struct ExpConstants {
  __m512 c, low[2], base[2];
};

// Exponentials of 16 keys x 32 queries, written over the first of each two score rows as two B-operand rows.
inline void exp_scores(float* scores, const ExpConstants& k, RowState& state) {
#pragma GCC unroll 2
  for (int pair = 0; pair < 8; ++pair) {
    float* row = scores + 2 * pair * kQueries;
    const __m512 a0 = exp2_score(_mm512_load_ps(row), k.c, k.low[0], k.base[0]);
    const __m512 a1 = exp2_score(_mm512_load_ps(row + 16), k.c, k.low[1], k.base[1]);
    const __m512 b0 = exp2_score(_mm512_load_ps(row + 32), k.c, k.low[0], k.base[0]);
    const __m512 b1 = exp2_score(_mm512_load_ps(row + 48), k.c, k.low[1], k.base[1]);
    state.sum[0] = _mm512_add_ps(state.sum[0], _mm512_add_ps(a0, b0));
    state.sum[1] = _mm512_add_ps(state.sum[1], _mm512_add_ps(a1, b1));
    const __m512i a = to_bf16(a0, a1), b = to_bf16(b0, b1);
    _mm512_store_si512(row, pair_low(a, b));
    _mm512_store_si512(row + 16, pair_high(a, b));
  }
}

// O^T += V^T P^T over `blocks` steps of 32 keys. values: feature tiles of the first step; o: [feature tile][half] tiles.
template <int kSteps>
inline void accumulate_output(const bf16* values, const float* probabilities, int blocks, bool first, float* o) {
  publish_stores();
  for (int d = 0; d < kSteps; ++d) {
    float* c = o + std::int64_t{4} * d * kTileFloats;
    if (first) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    } else {
      _tile_loadd(0, c, 64);
      _tile_loadd(1, c + kTileFloats, 64);
      _tile_loadd(2, c + 2 * kTileFloats, 64);
      _tile_loadd(3, c + 3 * kTileFloats, 64);
    }
    for (int block = 0; block < blocks; ++block) {
      const bf16* a = values + (std::int64_t{block} * kSteps + d) * 2 * kTileHalves;
      const float* b = probabilities + std::int64_t{block} * 32 * kQueries;
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, 256);
      _tile_loadd(7, b + 16, 256);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a + kTileHalves, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 64);
    _tile_stored(1, c + kTileFloats, 64);
    _tile_stored(2, c + 2 * kTileFloats, 64);
    _tile_stored(3, c + 3 * kTileFloats, 64);
  }
}

// Raises M to the new peak; O^T and the sums follow only if some row's M grew.
template <int kSteps>
inline void raise_max(float c, bool first, RowState& state, float* o) {
  __m512 factor[2];
  unsigned grew = 0;
  for (int half = 0; half < 2; ++half) {
    const __m512 scaled = _mm512_roundscale_ps(_mm512_mul_ps(state.peak[half], _mm512_set1_ps(c)), _MM_FROUND_TO_POS_INF);
    const __m512 raised = _mm512_min_ps(_mm512_max_ps(state.max[half], scaled), _mm512_set1_ps(kMaxMax));
    factor[half] = _mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_sub_ps(state.max[half], raised));
    grew |= _mm512_cmp_ps_mask(raised, state.max[half], _CMP_GT_OQ);
    state.max[half] = raised;
  }
  if (first || grew == 0) return;
  for (int half = 0; half < 2; ++half) {
    state.sum[half] = _mm512_mul_ps(state.sum[half], factor[half]);
    const __m512 f = pair_order(half, factor[0], factor[1]);
    for (int tile = half; tile < 4 * kSteps; tile += 2) {
      float* p = o + tile * kTileFloats;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_store_ps(p + 16 * i, _mm512_mul_ps(_mm512_load_ps(p + 16 * i), f));
    }
  }
}

template <int kSteps>
void write_output(const Task& task, const RowState& state, const float* o, bf16* out, std::int64_t out_stride) {
  __m512 inverse[2];
  for (int half = 0; half < 2; ++half) inverse[half] = _mm512_div_ps(_mm512_set1_ps(1.0f), state.sum[half]);
  for (int half = 0; half < 2; ++half) {
    const __m512 f = pair_order(half, inverse[0], inverse[1]);
    for (int tile = 0; tile < 2 * kSteps; ++tile) {
      __m512i r[16];
      const float* p = o + (2 * tile + half) * kTileFloats;
      for (int i = 0; i < 16; ++i) r[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(p + 16 * i), f));
      transpose16(r);
      for (int i = 0; i < 16; ++i) {
        const std::int64_t query = task.first_query + pair_query(half, i);
        if (query >= task.rows) continue;
        store_features(out + query * out_stride, 16 * tile, task.call->in.head_dim, _mm512_castsi512_ps(r[i]));
      }
    }
  }
}

template <int kSteps>
void run_task(const Task& task, char* buffers, bf16* out, std::int64_t out_stride, float* lse) {
  float* scores[2];
  scores[0] = reinterpret_cast<float*>(buffers + query_bytes(kSteps));
  scores[1] = scores[0] + kScoreBytes / 4;
  float* o = scores[1] + kScoreBytes / 4;

  RowState state;
  for (int half = 0; half < 2; ++half) {
    state.max[half] = _mm512_set1_ps(kMinMax);
    state.sum[half] = _mm512_setzero_ps();
  }
  const std::int64_t key_end = (task.key_rows + 31) / 32 * 32;
  std::int64_t key_begin = 0;
  std::int64_t masked_before = 0;  // keys below this may be outside some query's window
  if (task.first_key) {
    key_begin = task.first_key[0] / 32 * 32;
    const std::int64_t real = task.rows - task.first_query < kQueries ? task.rows - task.first_query : kQueries;
    masked_before = task.first_key[real - 1];
  }
  const std::int64_t masked_from = task.first_query;  // keys above the first query: the triangle

  // Scores of unit `u` (16 keys) of the block at `key`, and the maximum of the unit before it.
  const auto unit_scores = [&](std::int64_t key, int u, float* block) {
    score_tiles<kSteps>(task.keys + (key / 16 + u) * kSteps * kTileHalves, task.queries, block + u * 16 * kQueries);
  };
  const auto unit_peak = [&](std::int64_t key, int u, float* block) {
    const std::int64_t k = key + 16 * u;
    float* unit = block + u * 16 * kQueries;
    if (k + 15 > masked_from || k < masked_before) mask_scores(task, k, unit);
    peak_scores(unit, state);
  };
  const auto units_of = [&](std::int64_t key) {
    const std::int64_t left = key_end - key;
    return static_cast<int>((left < kKeyBlock ? left : kKeyBlock) / 16);
  };

  load_queries<kSteps>(task.queries);
  state.peak[0] = state.peak[1] = _mm512_set1_ps(-INFINITY);
  int units = units_of(key_begin);
  for (int u = 0; u < units; ++u) unit_scores(key_begin, u, scores[0]);
  for (int u = 0; u < units; ++u) unit_peak(key_begin, u, scores[0]);
  raise_max<kSteps>(task.c, true, state, o);

  int current = 0;
  for (std::int64_t key = key_begin; key < key_end; key += kKeyBlock, current ^= 1) {
    ExpConstants k;
    k.c = _mm512_set1_ps(task.c);
    for (int half = 0; half < 2; ++half) {
      k.base[half] = _mm512_sub_ps(_mm512_set1_ps(kRound), state.max[half]);
      k.low[half] = _mm512_div_ps(_mm512_sub_ps(state.max[half], _mm512_set1_ps(120.0f)), k.c);
    }
    state.peak[0] = state.peak[1] = _mm512_set1_ps(-INFINITY);
    const std::int64_t next = key + kKeyBlock;
    const int next_units = next < key_end ? units_of(next) : 0;
    for (int u = 0; u < units; ++u) {
      if (u < next_units) unit_scores(next, u, scores[current ^ 1]);
      exp_scores(scores[current] + u * 16 * kQueries, k, state);
      if (u > 0 && u <= next_units) unit_peak(next, u - 1, scores[current ^ 1]);
    }
    if (next_units == units) unit_peak(next, next_units - 1, scores[current ^ 1]);
    accumulate_output<kSteps>(task.values + key / 32 * kSteps * 2 * kTileHalves, scores[current], units / 2, key == key_begin, o);
    if (next_units > 0) {
      load_queries<kSteps>(task.queries);
      raise_max<kSteps>(task.c, false, state, o);
    }
    units = next_units;
  }

  write_output<kSteps>(task, state, o, out, out_stride);
  if (lse) {
    alignas(64) float max[kQueries], sum[kQueries];
    for (int half = 0; half < 2; ++half) {
      _mm512_store_ps(max + 16 * half, state.max[half]);
      _mm512_store_ps(sum + 16 * half, state.sum[half]);
    }
    for (int i = 0; i < kQueries && task.first_query + i < task.rows; ++i) {
      lse[(task.first_query + i) * task.call->in.heads] = max[i] * kLn2 + logf(sum[i]);
    }
  }
}

using RunTask = void (*)(const Task&, char*, bf16*, std::int64_t, float*);
constexpr RunTask kRunTask[] = {run_task<1>, run_task<2>, run_task<3>, run_task<4>,
                                run_task<5>, run_task<6>, run_task<7>, run_task<8>};

}  // namespace

std::int64_t forward_bytes_amx(const AttentionCall& call) {
  const Layout l = layout(call);
  return l.packed_bytes + call.threads * l.thread_bytes;
}

void forward_amx(const AttentionCall& call, bf16* out, std::int64_t out_stride, float* lse) {
  const AttentionInputs& in = call.in;
  const Layout l = layout(call);
  bf16* const keys = reinterpret_cast<bf16*>(call.scratch);
  bf16* const values = keys + l.head_halves * in.kv_heads;
  char* const thread_buffers = call.scratch + l.packed_bytes;
  const int group = in.heads / in.kv_heads;
  constexpr std::int64_t kPackRows = 256;
  const std::int64_t pack_chunks = (call.max_rows + kPackRows - 1) / kPackRows;
  const std::int64_t query_blocks = (call.max_rows + kQueries - 1) / kQueries;
  const std::int64_t pack_tasks = in.batch * in.kv_heads * pack_chunks;
  const std::int64_t tasks = in.batch * in.heads * query_blocks;

#pragma omp parallel num_threads(call.threads)
  {
#pragma omp for schedule(static)
    for (std::int64_t t = 0; t < pack_tasks; ++t) {
      const std::int64_t chunk = t % pack_chunks, head = t / pack_chunks % in.kv_heads, s = t / pack_chunks / in.kv_heads;
      const std::int64_t begin = in.begin(s), rows = in.begin(s + 1) - begin;
      const HeadView k{in.k + begin * in.k_stride + head * in.head_dim, in.k_stride, rows, in.head_dim};
      const HeadView v{in.v + begin * in.v_stride + head * in.head_dim, in.v_stride, rows, in.head_dim};
      const std::int64_t base = head * l.head_halves + padded_begin(begin, s) * l.steps * 32;
      for (std::int64_t row = chunk * kPackRows; row < rows && row < (chunk + 1) * kPackRows; row += 32) {
        for (int step = 0; step < l.steps; ++step) {
          bf16* const tile = keys + base + row * l.steps * 32;
          pack_natural(k, row, step, tile + step * kTileHalves);
          pack_natural(k, row + 16, step, tile + (l.steps + step) * kTileHalves);
          pack_features(v, row, step, values + base + row * l.steps * 32 + 2 * step * kTileHalves);
        }
      }
    }
    configure_tiles();
    char* const buffers = thread_buffers + omp_get_thread_num() * l.thread_bytes;
    // Heads one after another, each from its last (longest) query block down: a head's K and V stay in L2 meanwhile, and the
    // last tasks of all are the shortest.
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t t = 0; t < tasks; ++t) {
      const std::int64_t block = query_blocks - 1 - t % query_blocks, head = t / query_blocks % in.heads;
      const std::int64_t s = t / query_blocks / in.heads;
      const std::int64_t begin = in.begin(s), rows = in.begin(s + 1) - begin, first = block * kQueries;
      if (first >= rows) continue;
      const HeadView q{in.q + begin * in.q_stride + head * in.head_dim, in.q_stride, rows, in.head_dim};
      bf16* const queries = reinterpret_cast<bf16*>(buffers);
      for (int step = 0; step < l.steps; ++step) {
        pack_columns(q, first, step, queries + 2 * step * kTileHalves);
        pack_columns(q, first + 16, step, queries + (2 * step + 1) * kTileHalves);
      }
      const std::int64_t base = head / group * l.head_halves + padded_begin(begin, s) * l.steps * 32;
      Task task;
      task.call = &call;
      task.keys = keys + base;
      task.values = values + base;
      task.queries = queries;
      task.first_key = call.first_key ? call.first_key + begin + first : nullptr;
      task.first_query = first;
      task.rows = rows;
      task.key_rows = first + kQueries < rows ? first + kQueries : rows;
      task.c = in.scale * kLog2e;
      kRunTask[l.steps - 1](task, buffers, out + begin * out_stride + head * in.head_dim, out_stride,
                            lse ? lse + begin * in.heads + head : nullptr);
    }
    _tile_release();
  }
}

}  // namespace fathom::cpu::detail

#elif FATHOM_CPU

#include "lib/error.hpp"

// Built for a machine without AMX: isa() never selects these.
namespace fathom::cpu::detail {
std::int64_t forward_bytes_amx(const AttentionCall&) { throw_internal("attention_bf16: this build has no AMX kernels"); }
void forward_amx(const AttentionCall&, bf16*, std::int64_t, float*) { forward_bytes_amx({}); }
}  // namespace fathom::cpu::detail

#endif
