// The body of gemv.hpp for one instruction set; FATHOM_TWIN names the copy.
#include "kernels/cpu/gemv_detail.hpp"
#include "kernels/cpu/lanes16.inl"

#include <omp.h>

namespace fathom::cpu::detail {
namespace {

constexpr int kMaxRows = 8;
constexpr int kAhead = 6144;  // bytes of prefetch distance: about the misses one core can have outstanding

inline void finish(const Gemv& call, std::int64_t row, std::int64_t column, float sum) {
  if (call.bias) sum += call.bias[column];
  const std::int64_t at = row * call.y_stride + column;
  if (call.out == DType::kF32) {
    float* y = static_cast<float*>(call.y) + at;
    *y = call.accumulate ? *y + sum : sum;
  } else {
    bf16* y = static_cast<bf16*>(call.y) + at;
    y->bits = narrow(call.accumulate ? widen(*y) + sum : sum);
  }
}

// Outputs [column, column + kColumns) of kRows rows from row0; W rows are streams.
template <class T, int kRows, int kColumns>
inline void dot_columns(const Gemv& call, std::int64_t row0, std::int64_t column) {
  using F = Factor<T>;
  const T* const w = static_cast<const T*>(call.w) + column * call.w_stride;
  const T* const x = static_cast<const T*>(call.x) + row0 * call.x_stride;
  // What is asked for is the same place of the next columns, as long as they come soon; of long rows, the same row further on.
  const std::int64_t group = kColumns * call.w_stride;
  const std::int64_t ahead = group * static_cast<std::int64_t>(sizeof(T)) <= 16384 ? group : kAhead / kColumns / static_cast<std::int64_t>(sizeof(T));
  V16 acc[kColumns][kRows] = {};
  std::int64_t k = 0;
  for (; k + F::kElements <= call.k; k += F::kElements) {
    F weights[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const T* p = w + c * call.w_stride + k;
      __builtin_prefetch(p + ahead);
      weights[c] = F::load(p);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F value = F::load(x + r * call.x_stride + k);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) acc[c][r] = add_product(acc[c][r], weights[c], value);
    }
  }
  if (k < call.k) {
    F weights[kColumns];
    for (int c = 0; c < kColumns; ++c) weights[c] = F::tail(w + c * call.w_stride + k, call.k - k);
    for (int r = 0; r < kRows; ++r) {
      const F value = F::tail(x + r * call.x_stride + k, call.k - k);
      for (int c = 0; c < kColumns; ++c) acc[c][r] = add_product(acc[c][r], weights[c], value);
    }
  }
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) finish(call, row0 + r, column + c, lane_sum(acc[c][r]));
  }
}

template <class T, int kRows>
void range_nk(const Gemv& call, std::int64_t row0, std::int64_t begin, std::int64_t end) {
  constexpr int kColumns = kRows <= 4 ? 4 : 3;  // at most 24 accumulators
  std::int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) dot_columns<T, kRows, kColumns>(call, row0, column);
  for (; column < end; ++column) dot_columns<T, kRows, 1>(call, row0, column);
}

// W as [k][n]: column blocks whose sums stay in L1, four rows of W per pass over them. The fewer rows, the wider a block, up to the whole row of W: then the
// weights are one stream.
template <class T, int kRows>
void range_kn(const Gemv& call, std::int64_t row0, std::int64_t begin, std::int64_t end) {
  using C = Chunk<T>;
  constexpr int kBlock = kRows == 1 ? 4096 : kRows == 2 ? 2048 : kRows <= 4 ? 1024 : 512;
  constexpr int kChunks = kBlock / C::kElements;
  alignas(64) V16 sums[kRows][kChunks * C::kParts];
  const T* const x = static_cast<const T*>(call.x) + row0 * call.x_stride;
  const auto value = [&](int r, std::int64_t k) {
    if constexpr (sizeof(T) == 2) {
      return widen(x[r * call.x_stride + k]);
    } else {
      return x[r * call.x_stride + k];
    }
  };
  for (std::int64_t first = begin; first < end; first += kBlock) {
    const std::int64_t columns = end - first < kBlock ? end - first : kBlock;
    const int whole = static_cast<int>(columns / C::kElements);
    const std::int64_t tail = columns % C::kElements;
    for (int r = 0; r < kRows; ++r) {
      for (V16& sum : sums[r]) sum = V16{};
    }
    const T* const w = static_cast<const T*>(call.w) + first;
    const std::int64_t ahead_rows = 4 + kAhead / (columns * static_cast<std::int64_t>(sizeof(T)));
    std::int64_t k = 0;
    for (; k + 4 <= call.k; k += 4) {
      float scale[kRows][4];
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < 4; ++j) scale[r][j] = value(r, k + j);
      }
      const T* const rows = w + k * call.w_stride;
      for (int c = 0; c < whole; ++c) {
        C weights[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const T* p = rows + j * call.w_stride + c * C::kElements;
          __builtin_prefetch(p + ahead_rows * call.w_stride);
          weights[j] = C::load(p);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          for (int i = 0; i < C::kParts; ++i) {
            V16 sum = sums[r][c * C::kParts + i];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) sum += weights[j].part[i] * scale[r][j];
            sums[r][c * C::kParts + i] = sum;
          }
        }
      }
      if (tail > 0) {
        for (int j = 0; j < 4; ++j) {
          const C weights = load_tail(rows + j * call.w_stride + whole * C::kElements, tail);
          for (int r = 0; r < kRows; ++r) {
            for (int i = 0; i < C::kParts; ++i) sums[r][whole * C::kParts + i] += weights.part[i] * scale[r][j];
          }
        }
      }
    }
    for (; k < call.k; ++k) {
      for (int c = 0; c < whole + (tail > 0); ++c) {
        const T* p = w + k * call.w_stride + c * C::kElements;
        const C weights = c < whole ? C::load(p) : load_tail(p, tail);
        for (int r = 0; r < kRows; ++r) {
          for (int i = 0; i < C::kParts; ++i) sums[r][c * C::kParts + i] += weights.part[i] * value(r, k);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const float sum = element<T>(sums[r] + c / C::kElements * C::kParts, static_cast<int>(c % C::kElements));
        finish(call, row0 + r, first + c, sum);
      }
    }
  }
}

template <class T, int kRows>
void range(const Gemv& call, std::int64_t row0, std::int64_t begin, std::int64_t end) {
  if (call.layout == GemvLayout::kNK) {
    range_nk<T, kRows>(call, row0, begin, end);
  } else {
    range_kn<T, kRows>(call, row0, begin, end);
  }
}

template <class T>
void share(const Gemv& call, std::int64_t begin, std::int64_t end) {
  using Range = void (*)(const Gemv&, std::int64_t, std::int64_t, std::int64_t);
  constexpr Range kRange[] = {range<T, 1>, range<T, 2>, range<T, 3>, range<T, 4>, range<T, 5>, range<T, 6>, range<T, 7>, range<T, 8>};
  for (std::int64_t row = 0; row < call.m; row += kMaxRows) {
    const std::int64_t rows = call.m - row < kMaxRows ? call.m - row : kMaxRows;
    kRange[rows - 1](call, row, begin, end);
  }
}

}  // namespace

void FATHOM_TWIN(gemv)(const Gemv& call, int threads) {
  // Shares are multiples of 32 columns: four-column groups and 64-byte lines of [k][n] rows stay whole.
  const std::int64_t groups = (call.n + 31) / 32;
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
    const std::int64_t begin = groups * self / team * 32, last = groups * (self + 1) / team * 32;
    const std::int64_t end = last < call.n ? last : call.n;
    if (begin < end) {
      if (call.dtype == DType::kBF16) {
        share<bf16>(call, begin, end);
      } else {
        share<float>(call, begin, end);
      }
    }
  }
}

}  // namespace fathom::cpu::detail
