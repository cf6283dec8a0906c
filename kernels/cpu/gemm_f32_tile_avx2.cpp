#if defined(__AVX2__)

#include "kernels/cpu/gemm_f32_tile_body.hpp"

namespace fathom::cpu {
namespace {

struct Avx2 {
  using T = __m256;
  using Mask = __m256i;
  static constexpr int kWidth = 8;
  static constexpr F32TileSize kSize = kTileAvx2;
  static constexpr bool kBroadcasts = false;
  static constexpr int kSecondPrefetch = 60, kStreamAhead = 4096;

  static T zero() { return _mm256_setzero_ps(); }
  static T add(T a, T b) { return _mm256_add_ps(a, b); }
  static Mask lanes(std::int64_t columns, int half) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(columns) - 8 * half), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static T load(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask); }
  static void store(float* p, T x) { _mm256_storeu_ps(p, x); }
  static void store(float* p, T x, Mask mask) { _mm256_maskstore_ps(p, mask, x); }
};
constexpr std::int64_t kTileColumns = Avx2::kSize.columns;

// The first kCount lanes, without masks: masked stores are slow on some CPUs.
template <int kCount>
inline void store(float* to, __m256 v) {
  if constexpr (kCount == 8) {
    _mm256_storeu_ps(to, v);
  } else {
    __m128 rest = _mm256_castps256_ps128(v);
    if constexpr ((kCount & 4) != 0) {
      _mm_storeu_ps(to, rest);
      rest = _mm256_extractf128_ps(v, 1);
      to += 4;
    }
    if constexpr ((kCount & 2) != 0) {
      _mm_storel_pi(reinterpret_cast<__m64*>(to), rest);
      rest = _mm_movehl_ps(rest, rest);
      to += 2;
    }
    if constexpr ((kCount & 1) != 0) _mm_store_ss(to, rest);
  }
}

// kRows rows of `columns` floats become `columns` rows of kRows floats.
template <int kRows>
void transpose_rows(const float* from, std::int64_t from_stride, std::int64_t columns, float* to, std::int64_t to_stride) {
  constexpr std::int64_t kAhead = 64;
  const float* row[8];
  for (int i = 0; i < 8; ++i) row[i] = from + (i < kRows ? i : 0) * from_stride;
  std::int64_t j = 0;
  for (; j + 8 <= columns; j += 8) {
    if (j % 16 == 0)
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) _mm_prefetch(reinterpret_cast<const char*>(row[i] + j + kAhead), _MM_HINT_T0);
#pragma GCC unroll 2
    for (int half = 0; half < 8; half += 4) {
      // Rows i and i + 4 side by side, four columns of each: 4 x 4 transposed within the halves of the register.
      __m256 r[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[i] + j + half)), _mm_loadu_ps(row[i + 4] + j + half), 1);
      const __m256 t0 = _mm256_unpacklo_ps(r[0], r[1]), t1 = _mm256_unpackhi_ps(r[0], r[1]);
      const __m256 t2 = _mm256_unpacklo_ps(r[2], r[3]), t3 = _mm256_unpackhi_ps(r[2], r[3]);
      float* const out = to + (j + half) * to_stride;
      store<kRows>(out, _mm256_shuffle_ps(t0, t2, 0x44));
      store<kRows>(out + to_stride, _mm256_shuffle_ps(t0, t2, 0xee));
      store<kRows>(out + 2 * to_stride, _mm256_shuffle_ps(t1, t3, 0x44));
      store<kRows>(out + 3 * to_stride, _mm256_shuffle_ps(t1, t3, 0xee));
    }
  }
  for (; j < columns; ++j)
    for (int i = 0; i < kRows; ++i) to[j * to_stride + i] = row[i][j];
}

// A whole panel lies in one line: what is fetched ahead is a later row's. Of narrower columns the next ones follow in the same rows.
template <int kColumns>
void copy(const float* from, std::int64_t from_stride, std::int64_t rows, float* to, std::int64_t to_stride) {
  const std::int64_t ahead = kColumns == kTileColumns ? 8 * from_stride : 32;
  for (std::int64_t i = 0; i < rows; ++i, from += from_stride, to += to_stride) {
    _mm_prefetch(reinterpret_cast<const char*>(from + ahead), _MM_HINT_T0);
    if constexpr (kColumns == kTileColumns) _mm_prefetch(reinterpret_cast<const char*>(from + ahead + 15), _MM_HINT_T0);
    if constexpr (kColumns >= 8) _mm256_storeu_ps(to, _mm256_loadu_ps(from));
    constexpr int kAt = kColumns / 8 * 8;
    if constexpr (kColumns == 16) _mm256_storeu_ps(to + 8, _mm256_loadu_ps(from + 8));
    if constexpr (kColumns < 16 && (kColumns & 4) != 0) _mm_storeu_ps(to + kAt, _mm_loadu_ps(from + kAt));
    constexpr int kPair = kColumns / 4 * 4;
    if constexpr ((kColumns & 2) != 0) _mm_storel_pi(reinterpret_cast<__m64*>(to + kPair), _mm_loadl_pi(_mm_setzero_ps(), reinterpret_cast<const __m64*>(from + kPair)));
    if constexpr ((kColumns & 1) != 0) to[kColumns - 1] = from[kColumns - 1];
  }
}

using CopyFunction = void (*)(const float*, std::int64_t, std::int64_t, float*, std::int64_t);
template <int... kColumns>
constexpr std::array<CopyFunction, sizeof...(kColumns)> copies(std::integer_sequence<int, kColumns...>) {
  return {copy<kColumns + 1>...};
}
constexpr auto kCopies = copies(std::make_integer_sequence<int, kTileColumns>{});  // [columns - 1]

using TransposeFunction = void (*)(const float*, std::int64_t, std::int64_t, float*, std::int64_t);
template <int... kRows>
constexpr std::array<TransposeFunction, sizeof...(kRows)> transposes(std::integer_sequence<int, kRows...>) {
  return {transpose_rows<kRows + 1>...};
}
constexpr auto kTransposes = transposes(std::make_integer_sequence<int, 8>{});  // [rows - 1]

}  // namespace

void f32_tile_avx2(const F32Tile& t) { run_tile<Avx2>(t); }

void copy_rows_avx2(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride) {
  for (std::int64_t j = 0; j < columns; j += kTileColumns) {
    const std::int64_t width = columns - j < kTileColumns ? columns - j : kTileColumns;
    kCopies[static_cast<std::size_t>(width - 1)](from + j, from_stride, rows, to + j, to_stride);
  }
}

void transpose_avx2(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += 8) {
    const std::int64_t height = rows - i < 8 ? rows - i : 8;
    kTransposes[static_cast<std::size_t>(height - 1)](from + i * from_stride, from_stride, columns, to + i, to_stride);
  }
}

}  // namespace fathom::cpu

#endif
