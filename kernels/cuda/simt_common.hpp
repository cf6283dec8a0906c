// What both sides of the wrapper header share: lanes, reductions in a fixed order, and element access in packs of 16 bytes.
#pragma once

namespace fathom::cuda {

FATHOM_DEV std::int64_t rows_of(const RowCount& rows) {
  if (rows.device == nullptr) return rows.limit;
  const std::int64_t n = *rows.device;
  return n < rows.limit ? n : rows.limit;
}
FATHOM_DEV std::int64_t first_row(const Ragged& ragged, std::int64_t sequence) {
  return ragged.offsets != nullptr ? static_cast<std::int64_t>(ragged.offsets[sequence]) : sequence * ragged.each;
}

}  // namespace fathom::cuda

namespace fathom::dev {

FATHOM_DEV int lane() { return tid() & 31; }
FATHOM_DEV int warp() { return tid() >> 5; }
FATHOM_DEV int warps() { return threads() >> 5; }

// The xor tree: every lane gets the same bits.
FATHOM_DEV float warp_sum(float v) {
  FATHOM_UNROLL
  for (int m = 16; m > 0; m >>= 1) v += shfl_xor(v, m);
  return v;
}
FATHOM_DEV float warp_max(float v) {
  FATHOM_UNROLL
  for (int m = 16; m > 0; m >>= 1) v = fmaxf_(v, shfl_xor(v, m));
  return v;
}
FATHOM_DEV double warp_sum(double v) {
  FATHOM_UNROLL
  for (int m = 16; m > 0; m >>= 1) v += shfl_xor(v, m);
  return v;
}
FATHOM_DEV std::int32_t warp_sum(std::int32_t v) {
  FATHOM_UNROLL
  for (int m = 16; m > 0; m >>= 1) v += shfl_xor(v, m);
  return v;
}
// Inclusive prefix sum over the lanes.
FATHOM_DEV std::int32_t warp_scan(std::int32_t v) {
  FATHOM_UNROLL
  for (int by = 1; by < 32; by <<= 1) {
    const std::int32_t left = shfl_up(v, by);
    if (lane() >= by) v += left;
  }
  return v;
}

// Sum over the block in warp order; `scratch` holds one value per warp. A barrier comes first (earlier readers of scratch) and none
// after, so the scratch may be reused only behind another barrier or by another block_sum.
template <class V>
FATHOM_DEV V block_sum(V v, V* scratch) {
  v = warp_sum(v);
  block_sync();
  if (lane() == 0) scratch[warp()] = v;
  block_sync();
  V total = V(0);
  for (int w = 0; w < warps(); ++w) total += scratch[w];
  return total;
}
FATHOM_DEV float block_max(float v, float* scratch) {
  v = warp_max(v);
  block_sync();
  if (lane() == 0) scratch[warp()] = v;
  block_sync();
  float top = scratch[0];
  for (int w = 1; w < warps(); ++w) top = fmaxf_(top, scratch[w]);
  return top;
}
// Exclusive prefix over the threads of the block, and the total.
FATHOM_DEV std::int32_t block_scan(std::int32_t v, std::int32_t* scratch, std::int32_t& total) {
  const std::int32_t inclusive = warp_scan(v);
  block_sync();
  if (lane() == 31) scratch[warp()] = inclusive;
  block_sync();
  std::int32_t before = 0;
  total = 0;
  for (int w = 0; w < warps(); ++w) {
    if (w < warp()) before += scratch[w];
    total += scratch[w];
  }
  return before + inclusive - v;
}

// ---- elements ----

FATHOM_DEV float bf16_low(u32 pair) { return bits_float(pair << 16); }
FATHOM_DEV float bf16_high(u32 pair) { return bits_float(pair & 0xffff0000u); }

FATHOM_DEV float load(const float* p) { return *p; }
FATHOM_DEV float load(const bf16* p) { return bits_float(static_cast<u32>(p->bits) << 16); }
FATHOM_DEV void store(float* p, float v) { *p = v; }
FATHOM_DEV void store(bf16* p, float v) { p->bits = static_cast<std::uint16_t>(pack_bf16(v, 0.0f)); }
// What v becomes when it is stored as T.
FATHOM_DEV float rounded(const float*, float v) { return v; }
FATHOM_DEV float rounded(const bf16*, float v) { return bf16_low(pack_bf16(v, 0.0f)); }

// kVector elements at once: 16 bytes, or one element.
template <int kVector, class T>
FATHOM_DEV void load(const T* p, float (&v)[kVector]) {
  if constexpr (kVector == 1) {
    v[0] = load(p);
  } else {
    static_assert(kVector * sizeof(T) == 16);
    const Quad q = load16(p);
    if constexpr (sizeof(T) == 4) {
      FATHOM_UNROLL
      for (int i = 0; i < 4; ++i) v[i] = bits_float(q.w[i]);
    } else {
      FATHOM_UNROLL
      for (int i = 0; i < 4; ++i) v[2 * i] = bf16_low(q.w[i]), v[2 * i + 1] = bf16_high(q.w[i]);
    }
  }
}
template <int kVector, class T>
FATHOM_DEV void store(T* p, const float (&v)[kVector]) {
  if constexpr (kVector == 1) {
    store(p, v[0]);
  } else {
    static_assert(kVector * sizeof(T) == 16);
    Quad q;
    if constexpr (sizeof(T) == 4) {
      FATHOM_UNROLL
      for (int i = 0; i < 4; ++i) q.w[i] = float_bits(v[i]);
    } else {
      FATHOM_UNROLL
      for (int i = 0; i < 4; ++i) q.w[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
    }
    store16(p, q);
  }
}

// kCount elements of any type as accesses of at most 16 bytes (the pack of another tensor's type): kCount * sizeof(T) is 8, 16 or 32.
template <int kCount, class T>
FATHOM_DEV void load_wide(const T* p, float (&v)[kCount]) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  if constexpr (kCount < kPack) {
    FATHOM_UNROLL
    for (int i = 0; i < kCount; ++i) v[i] = load(p + i);
  } else {
    FATHOM_UNROLL
    for (int b = 0; b < kCount; b += kPack) {
      float part[kPack];
      load<kPack>(p + b, part);
      FATHOM_UNROLL
      for (int i = 0; i < kPack; ++i) v[b + i] = part[i];
    }
  }
}
template <int kCount, class T>
FATHOM_DEV void store_wide(T* p, const float (&v)[kCount]) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  if constexpr (kCount < kPack) {
    FATHOM_UNROLL
    for (int i = 0; i < kCount; ++i) store(p + i, v[i]);
  } else {
    FATHOM_UNROLL
    for (int b = 0; b < kCount; b += kPack) {
      float part[kPack];
      FATHOM_UNROLL
      for (int i = 0; i < kPack; ++i) part[i] = v[b + i];
      store<kPack>(p + b, part);
    }
  }
}

}  // namespace fathom::dev

namespace fathom::cuda {

// Calls f.template operator()<T, V>() for the element type and vector width of a launch.
template <class F>
void with_elements(DType type, int vector, const F& f) {
  if (type == DType::kBF16) {
    if (vector == 1) return f.template operator()<bf16, 1>();
    return f.template operator()<bf16, 8>();
  }
  if (vector == 1) return f.template operator()<float, 1>();
  f.template operator()<float, 4>();
}
template <class F>
void with_type(DType type, const F& f) {
  if (type == DType::kBF16) return f.template operator()<bf16>();
  f.template operator()<float>();
}

}  // namespace fathom::cuda
