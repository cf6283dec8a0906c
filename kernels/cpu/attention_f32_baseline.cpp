// Baseline twin of f32 attention: portable C++ on four-element compiler vectors, no instruction-set flags.
#include "kernels/cpu/attention_f32_backward.hpp"

namespace {

struct Baseline {
  using T = float __attribute__((vector_size(16)));
  using I = std::int32_t __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kTileVecs = 3;
  static constexpr int kUnroll = 4;
  static constexpr Index kKeyBlock = 96;
  static constexpr Index kBackwardKeyBlock = 96;

  static T load(const float* p) {
    T x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(float* p, T x) { __builtin_memcpy(p, &x, sizeof x); }
  static T set1(float x) { return T{x, x, x, x}; }
  static T zero() { return T{}; }
  static T add(T a, T b) { return a + b; }
  static T sub(T a, T b) { return a - b; }
  static T mul(T a, T b) { return a * b; }
  static T fma(T a, T b, T c) { return a * b + c; }
  static T max(T a, T b) { return a > b ? a : b; }

  // As the AVX2 twin; rounds to the nearest integer by adding and subtracting 1.5 * 2^23, exact for |x| < 2^22.
  static T exp2(T x) {
    const T low = set1(-127.0f), high = set1(128.0f);
    const T y = x < low ? low : (x > high ? high : x);
    const T magic = set1(12582912.0f);
    const T n = (y + magic) - magic;
    const T r = y - n;
    T p = set1(1.327647217e-03f);
    p = p * r + set1(9.675541331e-03f);
    p = p * r + set1(5.550713273e-02f);
    p = p * r + set1(2.402211972e-01f);
    p = p * r + set1(6.931469671e-01f);
    p = p * r + set1(1.000000072e+00f);
    const I exponent = __builtin_convertvector(n, I) << 23;
    p = (T)((I)p + exponent);
    p = x < set1(-126.0f) ? zero() : p;
    return x < set1(127.5f) ? p : x + set1(__builtin_inff());
  }

  static T between(T s, const std::int32_t* lo, const std::int32_t* hi, std::int32_t j) {
    I first, past;
    __builtin_memcpy(&first, lo, sizeof first);
    __builtin_memcpy(&past, hi, sizeof past);
    const I key = {j, j, j, j};
    return ((first <= key) & (past > key)) ? s : set1(-__builtin_inff());
  }

  static void transpose(T* r) {
    const T a = r[0], b = r[1], c = r[2], d = r[3];
    r[0] = T{a[0], b[0], c[0], d[0]};
    r[1] = T{a[1], b[1], c[1], d[1]};
    r[2] = T{a[2], b[2], c[2], d[2]};
    r[3] = T{a[3], b[3], c[3], d[3]};
  }
};

}  // namespace

namespace fathom::cpu::attention {

const Kernels& baseline_kernels() {
  static constexpr Kernels kernels = {Forward<Baseline>::kTile,    Forward<Baseline>::floats, Forward<Baseline>::run,
                                      Backward<Baseline>::floats, Backward<Baseline>::run,   Backward<Baseline>::reduce};
  return kernels;
}

}  // namespace fathom::cpu::attention
