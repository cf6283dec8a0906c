// Validation, visible ranges, work distribution and run-time dispatch of f32 attention; arithmetic is in the twins.
#include "kernels/cpu/attention_f32.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/cpu/attention_f32_impl.hpp"
#include "kernels/cpu/own_first.hpp"
#include "kernels/cpu/vector_isa.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

using attention::Kernels;
using Index = std::int64_t;

constexpr int kMaxParts = 4;

const Kernels& active_kernels() {
#if defined(__x86_64__)
  switch (active_vector_isa()) {
    case VectorIsa::kAvx512Bf16:  // the f32 kernels gain nothing from it
    case VectorIsa::kAvx512: return attention::avx512_kernels();
    case VectorIsa::kAvx2: return attention::avx2_kernels();
    case VectorIsa::kBaseline: break;
  }
#endif
  return attention::baseline_kernels();
}

void check(const AttentionShape& s, int threads) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw_internal(std::string("attention_f32: ") + what);
  };
  require(s.batch >= 0 && s.q_rows >= 0 && s.kv_rows >= 0, "negative number of sequences or rows");
  require(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, "heads must be a positive multiple of kv_heads");
  require(s.d_qk > 0 && s.d_v > 0, "head sizes must be positive");
  require(s.window >= 0 && s.chunk >= 0, "window and chunk must not be negative");
  require(s.window == 0 || s.causal, "a sliding window needs causal attention");
  require(std::isfinite(s.scale) && s.scale >= 0.0f, "scale must be positive, or 0 for 1/sqrt(d_qk)");
  require(s.q_rows + s.kv_rows + std::abs(s.q_offset) < std::numeric_limits<std::int32_t>::max(), "too many rows");
  require(threads > 0, "threads must be positive");
}

Index tiles_of(const AttentionShape& s, const Kernels& kernels) { return (s.q_rows + kernels.tile - 1) / kernels.tile; }

float scale_of(const AttentionShape& s) {
  return s.scale > 0.0f ? s.scale : 1.0f / std::sqrt(static_cast<float>(s.d_qk));
}

Index batch_stride(Index given, Index row_stride, Index rows) { return given != 0 ? given : rows * row_stride; }

// Hands out 64-byte aligned pieces of the caller's scratch, or only adds up their sizes (base null).
class Arena {
 public:
  explicit Arena(void* base) : base_((reinterpret_cast<std::uintptr_t>(base) + 63) & ~std::uintptr_t{63}) {}
  template <class T>
  T* take(Index count) {
    T* piece = reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) & ~std::size_t{63};
    return piece;
  }
  std::size_t bytes() const { return used_ + 64; }

 private:
  std::uintptr_t base_;
  std::size_t used_ = 0;
};

// Visible keys [lo, hi) of every query of every sequence, each sequence padded to whole tiles by its last query's range.
// Both bounds ascend because positions do.
void visible_ranges(const AttentionShape& s, Index lanes, std::int32_t* lo, std::int32_t* hi) {
  const auto below = [](Index a, Index b) { return a / b - (a % b < 0 ? 1 : 0); };  // floor division, b > 0
  for (Index b = 0; b < s.batch; ++b) {
    const auto key_position = [&](Index j) {
      return s.kv_positions != nullptr ? static_cast<Index>(s.kv_positions[b * s.kv_rows + j]) : j;
    };
    Index first = 0, past = 0, previous = std::numeric_limits<Index>::min();
    for (Index j = 1; s.kv_positions != nullptr && j < s.kv_rows; ++j) {
      if (key_position(j) < key_position(j - 1)) throw_internal("attention_f32: key positions must ascend");
    }
    for (Index i = 0; i < s.q_rows; ++i) {
      const Index position = s.q_positions != nullptr ? s.q_positions[b * s.q_rows + i] : s.q_offset + i;
      if (position < previous) throw_internal("attention_f32: query positions must ascend");
      previous = position;
      Index bottom = std::numeric_limits<Index>::min(), top = std::numeric_limits<Index>::max();  // visible positions
      if (s.causal) top = position;
      if (s.window > 0) bottom = position - s.window + 1;
      if (s.chunk > 0) {
        const Index begin = below(position, s.chunk) * s.chunk;
        if (begin > bottom) bottom = begin;
        if (begin + s.chunk - 1 < top) top = begin + s.chunk - 1;
      }
      while (first < s.kv_rows && key_position(first) < bottom) ++first;
      while (past < s.kv_rows && key_position(past) <= top) ++past;
      lo[b * lanes + i] = static_cast<std::int32_t>(first < past ? first : past);
      hi[b * lanes + i] = static_cast<std::int32_t>(past);
    }
    for (Index i = s.q_rows; i < lanes; ++i) {
      lo[b * lanes + i] = lo[b * lanes + s.q_rows - 1];
      hi[b * lanes + i] = hi[b * lanes + s.q_rows - 1];
    }
  }
}

struct Ranges {
  Index lanes;
  std::int32_t* lo;
  std::int32_t* hi;
};

Ranges take_ranges(const AttentionShape& s, const Kernels& kernels, Arena& arena) {
  Ranges r{};
  r.lanes = tiles_of(s, kernels) * kernels.tile;
  r.lo = arena.take<std::int32_t>(s.batch * r.lanes);
  r.hi = arena.take<std::int32_t>(s.batch * r.lanes);
  return r;
}

// Keys and values of one head are copied to dense rows before use: rows of a wide qkv buffer are a page or more apart, so
// they crowd a few cache sets and cost a translation each. Few queries would not repay the copy.
bool packs(const AttentionShape& s) { return s.q_rows * (s.heads / s.kv_heads) > 64; }

struct ForwardScratch {
  Ranges ranges;
  OwnFirst::Stretch* stretches;
  float* per_thread;  // per thread: tile scratch, then the packed keys and values of one head
  Index tile_floats;
  Index floats;
};

ForwardScratch forward_scratch(const AttentionShape& s, const Kernels& kernels, int threads, Arena& arena) {
  ForwardScratch f{};
  f.ranges = take_ranges(s, kernels, arena);
  f.stretches = arena.take<OwnFirst::Stretch>(threads);
  f.tile_floats = (kernels.forward_floats(s.d_qk, s.d_v) + 15) / 16 * 16;
  f.floats = f.tile_floats + (packs(s) ? (s.kv_rows * (s.d_qk + s.d_v) + 15) / 16 * 16 : 0);
  f.per_thread = arena.take<float>(f.floats * threads);
  return f;
}

void pack_rows(const float* in, Index stride, Index rows, Index d, float* out) {
  for (Index r = 0; r < rows; ++r) std::memcpy(out + r * d, in + r * stride, static_cast<std::size_t>(d) * sizeof(float));
}

// How the backward pass splits the keys: enough tasks for several threads, decided by the shape alone. Under a causal mask
// early keys are seen by more queries; the parts get equal shares of the (query, key) pairs of an unshifted triangle.
struct BackwardScratch {
  Ranges ranges;
  OwnFirst::Stretch* stretches;
  int parts;
  Index begin[kMaxParts + 1];  // key ranges of the parts
  Index largest;
  float* partial;  // [part][batch][head][tile][d_qk][tile]
  Index part_floats;
  float* per_thread;
  Index floats;
};

BackwardScratch backward_scratch(const AttentionShape& s, const Kernels& kernels, int threads, Arena& arena) {
  BackwardScratch f{};
  f.ranges = take_ranges(s, kernels, arena);
  f.stretches = arena.take<OwnFirst::Stretch>(threads);
  const Index heads = s.batch * s.kv_heads;
  f.parts = s.kv_rows < 512 ? 1 : heads >= 8 ? 2 : kMaxParts;
  for (int p = 1; p <= f.parts; ++p) {
    const double share = static_cast<double>(p) / f.parts;
    const double fraction = s.causal && s.window == 0 && s.chunk == 0 ? 1.0 - std::sqrt(1.0 - share) : share;
    const Index at = static_cast<Index>(fraction * static_cast<double>(s.kv_rows)) / 96 * 96;  // whole key blocks
    f.begin[p] = p == f.parts ? s.kv_rows : at;
    if (f.begin[p] - f.begin[p - 1] > f.largest) f.largest = f.begin[p] - f.begin[p - 1];
  }
  f.part_floats = s.batch * s.heads * f.ranges.lanes * s.d_qk;
  f.partial = arena.take<float>(f.part_floats * f.parts);
  f.floats = kernels.backward_floats(s.q_rows, f.largest, s.d_qk, s.d_v);
  const Index reduce = s.d_qk * kernels.tile;
  if (f.floats < reduce) f.floats = reduce;
  f.floats = (f.floats + 15) / 16 * 16;
  f.per_thread = arena.take<float>(f.floats * threads);
  return f;
}

int thread_index() {
#if defined(_OPENMP)
  return omp_get_thread_num();
#else
  return 0;
#endif
}

}  // namespace

std::size_t attention_f32_scratch_bytes(const AttentionShape& shape, int threads) {
  check(shape, threads);
  Arena arena(nullptr);
  forward_scratch(shape, active_kernels(), threads, arena);
  return arena.bytes();
}

std::size_t attention_f32_backward_scratch_bytes(const AttentionShape& shape, int threads) {
  check(shape, threads);
  Arena arena(nullptr);
  backward_scratch(shape, active_kernels(), threads, arena);
  return arena.bytes();
}

void attention_f32(const AttentionShape& s, ConstView q, ConstView k, ConstView v, View out, float* lse, void* scratch,
                   int threads) {
  check(s, threads);
  const Kernels& kernels = active_kernels();
  Arena arena(scratch);
  const ForwardScratch f = forward_scratch(s, kernels, threads, arena);
  visible_ranges(s, f.ranges.lanes, f.ranges.lo, f.ranges.hi);
  const Index tiles = tiles_of(s, kernels);
  const Index group = s.heads / s.kv_heads;
  const Index batch_heads = s.batch * s.heads;
  const bool pack = packs(s);

  // One tile of one head. `packed` remembers which key head the calling thread has packed.
  const auto run_tile = [&](Index batch_head, Index tile, Index& packed) {
    const Index head = batch_head % s.heads, b = batch_head / s.heads, row = tile * kernels.tile;
    float* scratch_floats = f.per_thread + thread_index() * f.floats;
    attention::ForwardTask t{};
    t.q = q.data + b * batch_stride(q.batch_stride, q.row_stride, s.q_rows) + row * q.row_stride + head * s.d_qk;
    t.k = k.data + b * batch_stride(k.batch_stride, k.row_stride, s.kv_rows) + head / group * s.d_qk;
    t.v = v.data + b * batch_stride(v.batch_stride, v.row_stride, s.kv_rows) + head / group * s.d_v;
    t.out = out.data + b * batch_stride(out.batch_stride, out.row_stride, s.q_rows) + row * out.row_stride + head * s.d_v;
    t.lse = lse == nullptr ? nullptr : lse + (b * s.q_rows + row) * s.heads + head;
    t.q_stride = q.row_stride;
    t.k_stride = k.row_stride;
    t.v_stride = v.row_stride;
    t.out_stride = out.row_stride;
    t.lse_stride = s.heads;
    t.d_qk = s.d_qk;
    t.d_v = s.d_v;
    t.rows = static_cast<int>(row + kernels.tile <= s.q_rows ? kernels.tile : s.q_rows - row);
    t.lo = f.ranges.lo + b * f.ranges.lanes + row;
    t.hi = f.ranges.hi + b * f.ranges.lanes + row;
    t.scale = scale_of(s);
    t.scratch = scratch_floats;
    if (pack) {
      float* keys = scratch_floats + f.tile_floats;
      float* values = keys + s.kv_rows * s.d_qk;
      if (packed != batch_head / group) {
        pack_rows(t.k, t.k_stride, s.kv_rows, s.d_qk, keys);
        pack_rows(t.v, t.v_stride, s.kv_rows, s.d_v, values);
        packed = batch_head / group;
      }
      t.k = keys;
      t.v = values;
      t.k_stride = s.d_qk;
      t.v_stride = s.d_v;
    }
    kernels.forward(t);
  };

  // Tile by tile, so that all threads end together: of a head the largest (last) first, and a thread's heads one after the other, so that each is
  // packed once, but for those in which two threads meet.
  OwnFirst deal(f.stretches, threads, batch_heads * tiles);
#pragma omp parallel num_threads(threads)
  {
    Index packed = -1;
    for (Index task = deal.next(thread_index()); task >= 0; task = deal.next(thread_index())) run_tile(task / tiles, tiles - 1 - task % tiles, packed);
  }
}

void attention_f32_backward(const AttentionShape& s, ConstView q, ConstView k, ConstView v, ConstView out,
                            const float* lse, ConstView d_out, View dq, View dk, View dv, void* scratch, int threads) {
  check(s, threads);
  const Kernels& kernels = active_kernels();
  Arena arena(scratch);
  const BackwardScratch f = backward_scratch(s, kernels, threads, arena);
  visible_ranges(s, f.ranges.lanes, f.ranges.lo, f.ranges.hi);
  const Index tiles = tiles_of(s, kernels);
  const Index group = s.heads / s.kv_heads;
  const Index head_floats = f.ranges.lanes * s.d_qk;
  OwnFirst deal(f.stretches, threads, s.batch * s.kv_heads * f.parts);
#pragma omp parallel num_threads(threads)
  {
    for (Index task = deal.next(thread_index()); task >= 0; task = deal.next(thread_index())) {
      const int part = static_cast<int>(task % f.parts);
      const Index kv_head = task / f.parts % s.kv_heads, b = task / f.parts / s.kv_heads;
      const Index head = kv_head * group;
      attention::BackwardTask t{};
      t.q = q.data + b * batch_stride(q.batch_stride, q.row_stride, s.q_rows) + head * s.d_qk;
      t.k = k.data + b * batch_stride(k.batch_stride, k.row_stride, s.kv_rows) + kv_head * s.d_qk;
      t.v = v.data + b * batch_stride(v.batch_stride, v.row_stride, s.kv_rows) + kv_head * s.d_v;
      t.out = out.data + b * batch_stride(out.batch_stride, out.row_stride, s.q_rows) + head * s.d_v;
      t.d_out = d_out.data + b * batch_stride(d_out.batch_stride, d_out.row_stride, s.q_rows) + head * s.d_v;
      t.lse = lse + b * s.q_rows * s.heads + head;
      t.dk = dk.data + b * batch_stride(dk.batch_stride, dk.row_stride, s.kv_rows) + kv_head * s.d_qk;
      t.dv = dv.data + b * batch_stride(dv.batch_stride, dv.row_stride, s.kv_rows) + kv_head * s.d_v;
      t.q_stride = q.row_stride;
      t.k_stride = k.row_stride;
      t.v_stride = v.row_stride;
      t.out_stride = out.row_stride;
      t.d_out_stride = d_out.row_stride;
      t.lse_stride = s.heads;
      t.dk_stride = dk.row_stride;
      t.dv_stride = dv.row_stride;
      t.d_qk = s.d_qk;
      t.d_v = s.d_v;
      t.q_rows = s.q_rows;
      t.key_begin = f.begin[part];
      t.key_end = f.begin[part + 1];
      t.group = static_cast<int>(group);
      t.lo = f.ranges.lo + b * f.ranges.lanes;
      t.hi = f.ranges.hi + b * f.ranges.lanes;
      t.scale = scale_of(s);
      t.dq_partial = f.partial + part * f.part_floats + (b * s.heads + head) * head_floats;
      t.scratch = f.per_thread + thread_index() * f.floats;
      kernels.backward(t);
    }
#pragma omp barrier
#pragma omp for schedule(static)
    for (Index task = 0; task < s.batch * s.heads * tiles; ++task) {
      const Index tile = task % tiles, head = task / tiles % s.heads, b = task / tiles / s.heads;
      const Index row = tile * kernels.tile;
      attention::ReduceTask t{};
      const std::int32_t* lo = f.ranges.lo + b * f.ranges.lanes + row;
      const std::int32_t* hi = f.ranges.hi + b * f.ranges.lanes + row;
      for (int part = 0; part < f.parts; ++part) {
        if (lo[0] < f.begin[part + 1] && hi[kernels.tile - 1] > f.begin[part]) {  // the rule of Backward::sees
          t.partial[t.parts++] =
              f.partial + part * f.part_floats + (b * s.heads + head) * head_floats + row * s.d_qk;
        }
      }
      t.rows = static_cast<int>(row + kernels.tile <= s.q_rows ? kernels.tile : s.q_rows - row);
      t.d_qk = s.d_qk;
      t.dq = dq.data + b * batch_stride(dq.batch_stride, dq.row_stride, s.q_rows) + row * dq.row_stride + head * s.d_qk;
      t.dq_stride = dq.row_stride;
      t.scale = scale_of(s);
      t.scratch = f.per_thread + thread_index() * f.floats;
      kernels.reduce(t);
    }
  }
}

}  // namespace fathom::cpu
