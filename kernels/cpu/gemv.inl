// The body of gemv.hpp for one instruction set; FATHOM_TWIN names the copy.
#include "kernels/cpu/gemv_detail.hpp"
#include "kernels/cpu/lanes.inl"

#include <omp.h>

namespace fathom::cpu::detail {
namespace {

constexpr int kMaxRows = 8;
constexpr int kAhead = 6144;  // bytes of prefetch distance: about the misses one core can have outstanding

// bf16 pairs are multiplied as they are: half the products, so fewer columns keep the units busy, and what is asked for may lie further ahead. One core of an EPYC
// (family 26), weights [4096][768], fraction of the stream: 4 rows 0.97, 0.86 in two columns; 8 rows 0.96, 0.74 with 4 KiB ahead, 0.85 in three columns.
#if defined(__AVX512BF16__)
template <class T>
constexpr bool kPairs = sizeof(T) == 2;
#else
template <class T>
constexpr bool kPairs = false;
#endif
constexpr int kPairsAhead = 9216;

// A value that several products share is loaded once: a compiler that gives each product an operand in memory loads it for every one, and loads come no faster than
// products. One core of an EPYC (family 26), f32 weights [50304][768], fraction of the stream: 8 rows 0.80, 0.60 with operands in memory; 4 rows 0.93 and 0.87.
template <class F>
inline void hold(F&) {}
#if defined(__AVX512F__)
inline void hold(Vf& value) { asm("" : "+v"(value)); }
#endif
#if defined(__AVX512BF16__)
inline void hold(__m512bh& value) { asm("" : "+v"(value)); }
#endif

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

// Outputs [column, column + kColumns) of kRows rows from row0. The hardware's own prefetching reaches further than ours, and follows few streams and long ones: W is read
// row by row, or two or three rows at a time where rows of x to load are many, and what is asked for comes in the order of memory.
template <class T, int kRows, int kColumns>
inline void dot_columns(const Gemv& call, std::int64_t row0, std::int64_t column) {
  using F = Factor<T>;
  constexpr std::int64_t kElements = Chunk<T>::kElements;
  constexpr int kSplit = kRows * kColumns == 1 ? 2 : 1;  // accumulators of one sum, so that a step need not wait for the one before
  const T* const w = static_cast<const T*>(call.w) + column * call.w_stride;
  const T* const x = static_cast<const T*>(call.x) + row0 * call.x_stride;
  const std::int64_t group = kColumns * call.w_stride, size = sizeof(T);
  const bool in_order = kColumns > 1 && call.w_stride == call.k && (kPairs<T> || group * size <= 16384);
  const T* next = w + (!in_order ? kAhead / kColumns / size : kPairs<T> ? kPairsAhead / size : group);
  const std::int64_t next_step = in_order ? kColumns * kElements : kElements, next_column = in_order ? kElements : call.w_stride;
  Vf acc[kColumns][kRows][kSplit] = {};
  std::int64_t k = 0;
  const auto step = [&](std::int64_t at, int half) {
    F weights[kColumns];
#pragma GCC unroll 3
    for (int c = 0; c < kColumns; ++c) {
      __builtin_prefetch(next + c * next_column);
      weights[c] = load_factor(w + c * call.w_stride + at);
    }
    next += next_step;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      F value = load_factor(x + r * call.x_stride + at);
      if constexpr (kColumns > 1) hold(value);
#pragma GCC unroll 3
      for (int c = 0; c < kColumns; ++c) acc[c][r][half] = add_product(acc[c][r][half], weights[c], value);
    }
  };
  for (; k + kSplit * kElements <= call.k; k += kSplit * kElements) {
#pragma GCC unroll 2
    for (int half = 0; half < kSplit; ++half) step(k + half * kElements, half);
  }
  if (kSplit > 1 && k + kElements <= call.k) step(k, 0), k += kElements;
  if (k < call.k) {
    F weights[kColumns];
    for (int c = 0; c < kColumns; ++c) weights[c] = load_factor(w + c * call.w_stride + k, call.k - k);
    for (int r = 0; r < kRows; ++r) {
      const F value = load_factor(x + r * call.x_stride + k, call.k - k);
      for (int c = 0; c < kColumns; ++c) acc[c][r][0] = add_product(acc[c][r][0], weights[c], value);
    }
  }
  if constexpr (kRows * kColumns >= 8) {
    // As many sums as lanes by one transposed reduction, where as many reductions would take as long as the products.
    constexpr int kSums = kRows * kColumns;
    for (int first = 0; first < kSums; first += kLanes) {
      Vf lanes[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) lanes[i] = first + i < kSums ? acc[(first + i) / kRows % kColumns][(first + i) % kRows][0] : Vf{};
      const Vf sums = sum_rows(lanes);
      for (int i = 0; i < kLanes && first + i < kSums; ++i) finish(call, row0 + (first + i) % kRows, column + (first + i) / kRows, sums[i]);
    }
  } else {
    for (int c = 0; c < kColumns; ++c) {
      for (int r = 0; r < kRows; ++r) finish(call, row0 + r, column + c, lane_sum(kSplit > 1 ? acc[c][r][0] + acc[c][r][kSplit - 1] : acc[c][r][0]));
    }
  }
}

template <class T, int kRows>
void range_nk(const Gemv& call, std::int64_t row0, std::int64_t begin, std::int64_t end) {
  // At most 24 accumulators of 32 registers; of the 16 of AVX2 12, or 8 beside the two halves of bf16. There 8 rows of bf16 take 16 multiply-adds for 32 bytes of W, or
  // 4 bytes a cycle, and memory gives one core of an EPYC (family 25) 5: 0.75 of the stream, one to four rows all of it.
  constexpr int kNarrow = kRows <= 2 || kRows > (sizeof(T) == 2 ? 4 : 6) ? 1 : 2;
  constexpr int kColumns = kLanes == 8 ? kNarrow : kPairs<T> ? (kRows <= 4 ? 1 : 2) : kRows <= 2 ? 1 : kRows <= 4 ? 2 : 3;
  std::int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) dot_columns<T, kRows, kColumns>(call, row0, column);
  for (; column < end; ++column) dot_columns<T, kRows, 1>(call, row0, column);
}

// Two weights of a column and the two factors of a row that they meet, for a chunk of columns of [k][n] storage. Sums lie in the lane order of this step: see
// column_lane.
template <class T>
struct ColumnStep {
  using C = Chunk<T>;
  C first, second;
  typedef struct { float first, second; } Pair;
  static Pair pair(const T* x) {
    if constexpr (sizeof(T) == 2) {
      return {widen(x[0]), widen(x[1])};
    } else {
      return {x[0], x[1]};
    }
  }
  static ColumnStep load(const T* p, std::int64_t stride) { return {C::load(p), C::load(p + stride)}; }
  static ColumnStep load(const T* p, std::int64_t stride, std::int64_t count) { return {load_tail(p, count), load_tail(p + stride, count)}; }
  void add_to(Vf* sums, Pair x) const {
#pragma GCC unroll 2
    for (int i = 0; i < C::kParts; ++i) {
      sums[i] += first.part[i] * x.first;
      sums[i] += second.part[i] * x.second;
    }
  }
};
template <class T>
inline float column_lane(const Vf* sums, int i) { return element<T>(sums, i); }

#if defined(__AVX512BF16__)
// The two weights side by side, eight columns from each quarter of a register at a time.
template <>
struct ColumnStep<bf16> {
  __m512bh low, high;
  typedef std::uint32_t Pair;
  static Pair pair(const bf16* x) {
    Pair both;
    std::memcpy(&both, x, sizeof(both));
    return both;
  }
  static ColumnStep of(__m512i a, __m512i b) { return {(__m512bh)_mm512_unpacklo_epi16(a, b), (__m512bh)_mm512_unpackhi_epi16(a, b)}; }
  static ColumnStep load(const bf16* p, std::int64_t stride) { return of(_mm512_loadu_si512(p), _mm512_loadu_si512(p + stride)); }
  static ColumnStep load(const bf16* p, std::int64_t stride, std::int64_t count) {
    const auto mask = static_cast<__mmask32>((1ull << count) - 1);
    return of(_mm512_maskz_loadu_epi16(mask, p), _mm512_maskz_loadu_epi16(mask, p + stride));
  }
  void add_to(Vf* sums, Pair x) const {
    const __m512bh both = (__m512bh)_mm512_set1_epi32(static_cast<int>(x));
    sums[0] = (Vf)_mm512_dpbf16_ps((__m512)sums[0], low, both);
    sums[1] = (Vf)_mm512_dpbf16_ps((__m512)sums[1], high, both);
  }
};
template <>
inline float column_lane<bf16>(const Vf* sums, int i) { return sums[i % 8 / 4][i / 8 * 4 + i % 4]; }
#endif

// W as [k][n]: column blocks whose sums stay in L1, kDepth rows of W per pass over them. Many rows of x are bound by reading and writing sums, so they take more rows of W
// per pass.
template <class T, int kRows>
void range_kn(const Gemv& call, std::int64_t row0, std::int64_t begin, std::int64_t end) {
  using C = Chunk<T>;
  using Step = ColumnStep<T>;
  constexpr int kBlock = 512;
  constexpr int kChunks = kBlock / C::kElements;
  constexpr int kDepth = kRows <= 4 || kLanes == 8 ? 4 : 8;  // AVX2 has registers for four
  alignas(64) Vf sums[kRows][kChunks * C::kParts];
  const T* const x = static_cast<const T*>(call.x) + row0 * call.x_stride;
  for (std::int64_t first = begin; first < end; first += kBlock) {
    const std::int64_t columns = end - first < kBlock ? end - first : kBlock;
    const int whole = static_cast<int>(columns / C::kElements);
    const std::int64_t tail = columns % C::kElements;
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < (whole + (tail > 0)) * C::kParts; ++i) sums[r][i] = Vf{};
    }
    const T* const w = static_cast<const T*>(call.w) + first;
    const std::int64_t ahead_rows = kDepth + kAhead / (kBlock * static_cast<std::int64_t>(sizeof(T)));
    std::int64_t k = 0;
    for (; k + kDepth <= call.k; k += kDepth) {
      typename Step::Pair scale[kRows][kDepth / 2];
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kDepth / 2; ++j) scale[r][j] = Step::pair(x + r * call.x_stride + k + 2 * j);
      }
      const T* const rows = w + k * call.w_stride;
      for (int c = 0; c < whole; ++c) {
        Step steps[kDepth / 2];
        const T* const p = rows + c * C::kElements;
#pragma GCC unroll 8
        for (int j = 0; j < kDepth; ++j) __builtin_prefetch(p + (ahead_rows + j) * call.w_stride);
#pragma GCC unroll 4
        for (int j = 0; j < kDepth / 2; ++j) steps[j] = Step::load(p + 2 * j * call.w_stride, call.w_stride);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          Vf sum[C::kParts];
          for (int i = 0; i < C::kParts; ++i) sum[i] = sums[r][c * C::kParts + i];
#pragma GCC unroll 4
          for (int j = 0; j < kDepth / 2; ++j) steps[j].add_to(sum, scale[r][j]);
          for (int i = 0; i < C::kParts; ++i) sums[r][c * C::kParts + i] = sum[i];
        }
      }
      if (tail > 0) {
        for (int j = 0; j < kDepth / 2; ++j) {
          const Step step = Step::load(rows + 2 * j * call.w_stride + whole * C::kElements, call.w_stride, tail);
          for (int r = 0; r < kRows; ++r) step.add_to(sums[r] + whole * C::kParts, scale[r][j]);
        }
      }
    }
    for (; k < call.k; ++k) {
      // Of a last row alone the second half is a row of zeros.
      const bool two = k + 1 < call.k;
      for (int c = 0; c < whole + (tail > 0); ++c) {
        alignas(64) T pair[2][C::kElements] = {};
        const std::int64_t count = c < whole ? C::kElements : tail;
        for (int j = 0; j < 1 + two; ++j) std::memcpy(static_cast<void*>(pair[j]), w + (k + j) * call.w_stride + c * C::kElements, static_cast<std::size_t>(count) * sizeof(T));
        const Step step = Step::load(pair[0], C::kElements);
        for (int r = 0; r < kRows; ++r) {
          const T factors[2] = {x[r * call.x_stride + k], two ? x[r * call.x_stride + k + 1] : T{}};
          step.add_to(sums[r] + c * C::kParts, Step::pair(factors));
        }
      }
      k += two;
    }
    for (int r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const float sum = column_lane<T>(sums[r] + c / C::kElements * C::kParts, static_cast<int>(c % C::kElements));
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
