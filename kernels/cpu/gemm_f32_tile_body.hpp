// The register tile of the f32 product, over the vectors V of an instruction set. Each gemm_f32_tile_*.cpp includes it
// and has its own copies, in an unnamed namespace: none is shared between files compiled for different sets.
//
//   V::T, V::Mask            a vector of V::kWidth floats; which of its lanes
//   V::kSize                 of a full tile: two vectors of columns
//   V::kBroadcasts           whether a multiply-add can broadcast its operand from memory
//   V::kSecondPrefetch       bytes from the first column of a row of C to its last line
//   V::kStreamAhead          bytes: about the misses one core can have outstanding
//   V::zero(), add(a, b), lanes(columns, half), load(p, mask), store(p, x), store(p, x, mask)
#pragma once

#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/cpu/gemm_f32_tile.hpp"

namespace fathom::cpu {
namespace {

// One step of k: kRows elements of X, all (kApart) or every other one broadcast by an instruction of its own, the rest by both
// of the multiply-adds that use them. In volatile asm: the compiler would not broadcast twice, and reorders until accumulators spill.
template <class V, int kRows, bool kApart, int kRow = 0>
inline __attribute__((always_inline)) void multiply(const float* a, typename V::T b0, typename V::T b1, typename V::T (&acc)[kRows][2]) {
  if constexpr (kRow < kRows) {
    if constexpr (!kApart && kRow % 2 == 1) {
      asm volatile("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc[kRow][0]) : "v"(b0), "m"(a[kRow]));
      asm volatile("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc[kRow][1]) : "v"(b1), "m"(a[kRow]));
    } else {
      typename V::T each;
      asm volatile("vbroadcastss %1, %0" : "=v"(each) : "m"(a[kRow]));
      asm volatile("vfmadd231ps %2, %1, %0" : "+v"(acc[kRow][0]) : "v"(b0), "v"(each));
      asm volatile("vfmadd231ps %2, %1, %0" : "+v"(acc[kRow][1]) : "v"(b1), "v"(each));
    }
    multiply<V, kRows, kApart, kRow + 1>(a, b0, b1, acc);
  }
}

template <class V, int kRows, bool kMasked, bool kApart>
void tile(const F32Tile& t) {
  using T = typename V::T;
  struct Floats {
    float values[V::kWidth];
  };
  const std::int64_t columns = kMasked ? t.columns : V::kSize.columns;
  const typename V::Mask m0 = V::lanes(columns, 0), m1 = V::lanes(columns, 1);
  const auto load = [m0, m1](const float* p, int half) {
    if constexpr (kMasked) return V::load(p + V::kWidth * half, half == 0 ? m0 : m1);
    T out;
    asm volatile("vmovups %1, %0" : "=v"(out) : "m"(*reinterpret_cast<const Floats*>(p + V::kWidth * half)));  // in its place among the others
    return out;
  };
  for (int i = 0; i < kRows; ++i) {
    const char* c = reinterpret_cast<const char*>(t.c + i * t.c_stride);
    asm volatile("prefetchw (%0)\n prefetchw %c1(%0)" : : "r"(c), "i"(V::kSecondPrefetch));
  }
  T acc[kRows][2];
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) acc[i][0] = acc[i][1] = V::zero();
  const float* a = t.a;
  const float* b = t.b;
  const char* ahead = static_cast<const char*>(t.ahead);
  const float* row_ahead = t.row_ahead;
  std::int64_t k = t.k;
  for (; k >= 4; k -= 4) {
#pragma GCC unroll 4
    for (int step = 0; step < 4; ++step) multiply<V, kRows, kApart>(a + step * kRows, load(b + step * columns, 0), load(b + step * columns, 1), acc);
    if (t.stream) {
#pragma GCC unroll 8
      for (int line = 0; line < V::kWidth / 2; ++line) _mm_prefetch(reinterpret_cast<const char*>(b + 16 * line) + V::kStreamAhead, _MM_HINT_T0);
    } else {
      _mm_prefetch(ahead, _MM_HINT_T1);
      _mm_prefetch(ahead + t.ahead_step, _MM_HINT_T1);
      ahead += 2 * t.ahead_step;
      _mm_prefetch(reinterpret_cast<const char*>(row_ahead), _MM_HINT_T1);  // each line four times: cheaper than counting
      row_ahead += 4;
    }
    a += 4 * kRows;
    b += 4 * columns;
  }
  for (; k > 0; --k) {
    multiply<V, kRows, kApart>(a, load(b, 0), load(b, 1), acc);
    a += kRows;
    b += columns;
  }
  if (t.bias != nullptr) {
    const T bias0 = load(t.bias, 0), bias1 = load(t.bias, 1);
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) {
      acc[i][0] = V::add(acc[i][0], bias0);
      acc[i][1] = V::add(acc[i][1], bias1);
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
    float* c = t.c + i * t.c_stride;
    if (t.accumulate) {
      acc[i][0] = V::add(acc[i][0], load(c, 0));
      acc[i][1] = V::add(acc[i][1], load(c, 1));
    }
    if constexpr (kMasked) {
      V::store(c, acc[i][0], m0);
      V::store(c + V::kWidth, acc[i][1], m1);
    } else {
      V::store(c, acc[i][0]);
      V::store(c + V::kWidth, acc[i][1]);
    }
  }
}

using TileFunction = void (*)(const F32Tile&);
template <class V, bool kMasked, bool kApart, int... kRows>
constexpr std::array<TileFunction, sizeof...(kRows)> tiles(std::integer_sequence<int, kRows...>) {
  return {tile<V, kRows + 1, kMasked, kApart>...};
}
template <class V>
using Heights = std::make_integer_sequence<int, static_cast<int>(V::kSize.rows)>;
template <class V, bool kMasked, bool kApart>
constexpr auto kTiles = tiles<V, kMasked, kApart>(Heights<V>{});  // [rows - 1]

template <class V>
void run_tile(const F32Tile& t) {
  const bool full = t.columns == V::kSize.columns;
  const auto height = static_cast<std::size_t>(t.rows - 1);
  if constexpr (V::kBroadcasts) {
    if (!t.apart) return (full ? kTiles<V, false, false> : kTiles<V, true, false>)[height](t);
  }
  (full ? kTiles<V, false, true> : kTiles<V, true, true>)[height](t);
}

}  // namespace
}  // namespace fathom::cpu
