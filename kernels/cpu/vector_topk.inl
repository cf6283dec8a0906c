// Exact top-k by a radix select on order-preserving keys, and threshold selection. Included by the twins only.
//
// A float becomes an unsigned key of the same order (sign flipped, negatives inverted; -0 first made +0). The k-th largest key is
// found by halving the candidate list bit by bit from the highest bit on which candidates differ: no branch depends on data
// order, expected work is about 2n keys, and equal keys end the search at once. A second pass emits positions in ascending order.

std::int64_t make_keys(const float* score, std::int64_t count, std::uint32_t* keys) {
  std::int64_t bad = -1;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const auto one = [&](auto n) {
      const vf x = load(score + i, n) + splat(0.0f);
      const vu u = as_bits(x);
      const vu key = u ^ ((vu)((vi)u >> 31) | 0x80000000u);
      store(reinterpret_cast<float*>(keys) + i, as_float(key), n);
      return any_lane(x != x);
    };
    const bool nan = i + kLanes <= count ? one(Full{}) : one(Tail{static_cast<int>(count - i)});
    if (nan && bad < 0) {
      bad = i;
      while (score[bad] == score[bad]) ++bad;
    }
  }
  return bad;
}

#if defined(FATHOM_SIMD_512)
inline __mmask16 lanes_left(std::int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << left) - 1);
}
#endif

// Keeps the keys whose `bit` is set (or clear) and returns how many; also their or and and. out may equal in, and needs room
// for `count` rounded up to a whole vector.
inline std::int64_t keep_bit(const std::uint32_t* in, std::int64_t count, std::uint32_t bit, bool set, std::uint32_t* out,
                             std::uint32_t* any, std::uint32_t* all) {
  std::int64_t kept = 0;
#if defined(FATHOM_SIMD_512)
  const __m512i test = _mm512_set1_epi32(static_cast<int>(bit));
  __m512i ors = _mm512_setzero_si512(), ands = _mm512_set1_epi32(-1);
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 valid = lanes_left(count - i);
    const __m512i v = _mm512_maskz_loadu_epi32(valid, in + i);
    __mmask16 m = _mm512_test_epi32_mask(v, test);
    if (!set) m = static_cast<__mmask16>(~m);
    m &= valid;
    ors = _mm512_mask_or_epi32(ors, m, ors, v);
    ands = _mm512_mask_and_epi32(ands, m, ands, v);
    _mm512_storeu_si512(out + kept, _mm512_maskz_compress_epi32(m, v));
    kept += __builtin_popcount(m);
  }
  *any = static_cast<std::uint32_t>(_mm512_reduce_or_epi32(ors));
  *all = static_cast<std::uint32_t>(_mm512_reduce_and_epi32(ands));
#else
  std::uint32_t ors = 0, ands = ~0u;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t v = in[i];
    const bool take = ((v & bit) != 0) == set;
    const std::uint32_t mask = take ? ~0u : 0u;
    out[kept] = v;
    ors |= v & mask;
    ands &= v | ~mask;
    kept += take;
  }
  *any = ors;
  *all = ands;
#endif
  return kept;
}

inline std::int64_t count_bit(const std::uint32_t* keys, std::int64_t count, std::uint32_t bit) {
  std::int64_t total = 0;
#if defined(FATHOM_SIMD_512)
  const __m512i test = _mm512_set1_epi32(static_cast<int>(bit));
  for (std::int64_t i = 0; i < count; i += 16) {
    total += __builtin_popcount(_mm512_test_epi32_mask(_mm512_maskz_loadu_epi32(lanes_left(count - i), keys + i), test));
  }
#else
  for (std::int64_t i = 0; i < count; ++i) total += (keys[i] & bit) != 0;
#endif
  return total;
}

// The k-th largest key (1 <= k <= count) and how many keys are larger. scratch: count + 16 entries.
std::uint32_t select_key(const std::uint32_t* keys, std::int64_t count, std::int64_t k, std::uint32_t* scratch, std::int64_t* above) {
  std::uint32_t any = 0, all = ~0u;
  for (std::int64_t i = 0; i < count; ++i) {
    any |= keys[i];
    all &= keys[i];
  }
  const std::uint32_t* candidates = keys;
  std::int64_t larger = 0;
  while (any != all) {
    const std::uint32_t bit = 0x80000000u >> __builtin_clz(any ^ all);
    const std::int64_t ones = count_bit(candidates, count, bit);
    const bool set = ones >= k - larger;
    if (!set) larger += ones;
    count = keep_bit(candidates, count, bit, set, scratch, &any, &all);
    candidates = scratch;
  }
  *above = larger;
  return any;
}

// Ascending positions of all keys above `key` and of the first `ties` keys equal to it, `total` in all.
void collect(const std::uint32_t* keys, std::int64_t count, std::uint32_t key, std::int64_t ties, std::int64_t total, std::int32_t* out) {
  std::int64_t kept = 0;
#if defined(FATHOM_SIMD_512)
  static_cast<void>(total);
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(key));
  __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t i = 0; i < count; i += 16, lane = _mm512_add_epi32(lane, _mm512_set1_epi32(16))) {
    const __mmask16 valid = lanes_left(count - i);
    const __m512i v = _mm512_maskz_loadu_epi32(valid, keys + i);
    unsigned m = _mm512_mask_cmpgt_epu32_mask(valid, v, limit);
    unsigned equal = ties > 0 ? _mm512_mask_cmpeq_epu32_mask(valid, v, limit) : 0;
    while (equal != 0 && ties > 0) {
      m |= equal & (0u - equal);
      equal &= equal - 1;
      --ties;
    }
    if (m == 0) continue;
    const int found = __builtin_popcount(m);
    _mm512_mask_storeu_epi32(out + kept, static_cast<__mmask16>((1u << found) - 1), _mm512_maskz_compress_epi32(static_cast<__mmask16>(m), lane));
    kept += found;
  }
#else
  // Stored unconditionally and kept by advancing: no branch on the data. It stops with the last one, so nothing is written past it.
  for (std::int64_t i = 0; i < count && kept < total; ++i) {
    const bool tie = (keys[i] == key) & (ties > 0);
    out[kept] = static_cast<std::int32_t>(i);
    kept += (keys[i] > key) | tie;
    ties -= tie;
  }
#endif
}

std::int64_t above_threshold(const float* score, std::int64_t count, float threshold, std::int32_t* out, std::int64_t* nan_index) {
  std::int64_t kept = 0;
  *nan_index = -1;
#if defined(FATHOM_SIMD_512)
  const __m512 limit = _mm512_set1_ps(threshold);
  __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t i = 0; i < count; i += 16, lane = _mm512_add_epi32(lane, _mm512_set1_epi32(16))) {
    const __mmask16 valid = lanes_left(count - i);
    const __m512 v = _mm512_maskz_loadu_ps(valid, score + i);
    const unsigned nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    if (nan != 0 && *nan_index < 0) *nan_index = i + __builtin_ctz(nan);
    const unsigned m = _mm512_mask_cmp_ps_mask(valid, v, limit, _CMP_GT_OQ);
    if (m == 0) continue;
    const int found = __builtin_popcount(m);
    _mm512_mask_storeu_epi32(out + kept, static_cast<__mmask16>((1u << found) - 1), _mm512_maskz_compress_epi32(static_cast<__mmask16>(m), lane));
    kept += found;
  }
#else
  for (std::int64_t i = 0; i < count; ++i) {
    if (score[i] != score[i] && *nan_index < 0) *nan_index = i;
    if (score[i] > threshold) out[kept++] = static_cast<std::int32_t>(i);
  }
#endif
  return kept;
}
