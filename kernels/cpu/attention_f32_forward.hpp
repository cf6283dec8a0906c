// Forward tile of f32 attention: online softmax over blocks of keys. Template, included by the instruction-set twins.
#pragma once

#include "kernels/cpu/attention_f32_micro.hpp"

namespace {

constexpr float kLowest = -1e30f;  // running maximum of a query that has seen no key: finite, so that -inf - m stays -inf
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

template <class V>
struct Forward {
  static constexpr int kTile = V::kTileVecs * V::kWidth;
  using Task = fathom::cpu::attention::ForwardTask;

  static Index floats(Index d_qk, Index d_v) { return (d_qk + d_v + V::kKeyBlock + 5) * kTile; }

  // p = exp2(s * c - m * c) in place, and its sum over the segment's keys.
  template <int kVecs>
  static void exponentiate(float* s, Index keys, float c, const float* m, float* sum) {
    typename V::T shift[kVecs], total[kVecs];
    const typename V::T factor = V::set1(c);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      shift[v] = V::mul(V::load(m + v * V::kWidth), V::set1(-c));
      total[v] = V::load(sum + v * V::kWidth);
    }
    for (Index j = 0; j < keys; ++j) {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        float* at = s + j * kTile + v * V::kWidth;
        const typename V::T p = V::exp2(V::fma(V::load(at), factor, shift[v]));
        V::store(at, p);
        total[v] = V::add(total[v], p);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) V::store(sum + v * V::kWidth, total[v]);
  }

  static void run(const Task& t) {
    float* q_t = t.scratch;
    float* s = q_t + t.d_qk * kTile;
    float* o_t = s + V::kKeyBlock * kTile;
    float* m = o_t + t.d_v * kTile;
    float* sum = m + kTile;
    float* block_max = sum + kTile;
    float* alpha = block_max + kTile;
    float* inverse = alpha + kTile;

    transpose_in<V>(t.q, t.q_stride, t.rows, t.d_qk, q_t);
    for (Index i = 0; i < t.d_v * kTile; i += V::kWidth) V::store(o_t + i, V::zero());
    for (int r = 0; r < kTile; ++r) m[r] = kLowest, sum[r] = 0.0f;

    const float c = t.scale * kLog2E;
    const int vecs = (t.rows + V::kWidth - 1) / V::kWidth;
    const Index begin = t.lo[0], end = t.hi[t.rows - 1];
    for (Index block = begin; block < end; block += V::kKeyBlock) {
      Segment segments[2 * V::kTileVecs + 1];
      const int count = split_block<V>(t.lo, t.hi, vecs, block, min_of(block + V::kKeyBlock, end), segments);
      if (count > 0) run_block(t, q_t, s, o_t, m, sum, block_max, alpha, c, block, segments, count);
    }

    for (int r = 0; r < kTile; ++r) inverse[r] = sum[r] > 0.0f ? 1.0f / sum[r] : (sum[r] == 0.0f ? 0.0f : sum[r]);
    transpose_out<V>(o_t, inverse, t.rows, t.d_v, t.out, t.out_stride);
    if (t.lse != nullptr) {
      for (int r = 0; r < t.rows; ++r) {
        t.lse[r * t.lse_stride] = m[r] * t.scale + kLn2 * __builtin_log2f(sum[r]);
      }
    }
  }

  static void run_block(const Task& t, const float* q_t, float* s, float* o_t, float* m, float* sum, float* block_max,
                        float* alpha, float c, Index block, const Segment* segments, int count) {
    for (int r = 0; r < kTile; r += V::kWidth) V::store(block_max + r, V::load(m + r));
    for (int g = 0; g < count; ++g) {
      const Segment& seg = segments[g];
      const int lane = seg.first * V::kWidth;
      by_vecs<V>(seg.last - seg.first, [&]<int kVecs>() {
        by_rows<V>(seg.end - seg.begin, [&]<int kRows>(Index i) {
          const Index key = seg.begin + i;
          const auto score = seg.masked ? score_rows<V, kRows, kVecs, true, true> : score_rows<V, kRows, kVecs, false, true>;
          score(t.k + key * t.k_stride, t.k_stride, q_t + lane, t.d_qk, s + (key - block) * kTile + lane, t.lo + lane,
                t.hi + lane, key, block_max + lane);
        });
      });
    }
    for (int r = 0; r < kTile; r += V::kWidth) {
      const typename V::T top = V::load(block_max + r);
      const typename V::T grown = V::exp2(V::mul(V::sub(V::load(m + r), top), V::set1(c)));
      V::store(alpha + r, grown);
      V::store(m + r, top);
      V::store(sum + r, V::mul(V::load(sum + r), grown));
    }
    for (int g = 0; g < count; ++g) {
      const Segment& seg = segments[g];
      const int lane = seg.first * V::kWidth;
      by_vecs<V>(seg.last - seg.first, [&]<int kVecs>() {
        exponentiate<kVecs>(s + (seg.begin - block) * kTile + lane, seg.end - seg.begin, c, m + lane, sum + lane);
      });
    }
    // With one segment the rescaling of the output rides on loading its accumulators.
    const bool fused = count == 1 && segments[0].first == 0 && segments[0].last == V::kTileVecs;
    if (!fused) {
      for (Index i = 0; i < t.d_v; ++i)
        for (int r = 0; r < kTile; r += V::kWidth) {
          float* at = o_t + i * kTile + r;
          V::store(at, V::mul(V::load(at), V::load(alpha + r)));
        }
    }
    for (int g = 0; g < count; ++g) {
      const Segment& seg = segments[g];
      const int lane = seg.first * V::kWidth;
      const float* value = t.v + seg.begin * t.v_stride;
      const float* p = s + (seg.begin - block) * kTile + lane;
      by_vecs<V>(seg.last - seg.first, [&]<int kVecs>() {
        by_rows<V>(t.d_v, [&]<int kRows>(Index i) {
          const auto add = fused ? accumulate_rows<V, kRows, kVecs, true, true> : accumulate_rows<V, kRows, kVecs, true, false>;
          add(value + i, t.v_stride, p, kTile, seg.end - seg.begin, o_t + i * kTile + lane, kTile, alpha + lane);
        });
      });
    }
  }
};

}  // namespace
