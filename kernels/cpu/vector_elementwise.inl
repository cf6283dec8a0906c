// Activations, sums, scales, conversions and column sums. Included by the twins only.

// Standard normal distribution function through erfc's Chebyshev fit (relative error below 1.2e-7 before f32 rounding;
// Press et al., Numerical Recipes, section 6.2), so that the negative tail keeps relative accuracy.
template <class V>
inline V normal_cdf(const V& x) {
  // erfc(z) = t exp(-z^2 + p(t)), t = 1 / (1 + z / 2), z = |x| / sqrt 2; here in powers of 2, so that the coefficients hold the log2 e.
  const V size = magnitude(x);
  const V t = reciprocal(fma(size, V(splat(0.35355339f)), V(splat(1.0f))));
  constexpr float e = 1.44269504f;
  constexpr float c[10] = {-1.26551223f * e, 1.00002368f * e,  0.37409196f * e, 0.09678418f * e,  -0.18628806f * e,
                           0.27886807f * e,  -1.13520398f * e, 1.48851587f * e, -0.82215223f * e, 0.17087277f * e};
  V p = splat(c[9]);
  for (int i = 8; i >= 0; --i) p = fma(p, t, V(splat(c[i])));
  const V tail = V(splat(0.5f)) * t * exp2_of(fma(size * size, V(splat(-0.5f * e)), p), 1.0f, 126.0f);
  return where_negative(x, tail, V(splat(1.0f)) - tail);
}

// V: one vector (vf) or four together (vw).
template <ActivationKind kind>
struct ActivationOf {
  template <class V>
  static V value(const V& x) {
    const V zero = vf{};
    if constexpr (kind == ActivationKind::kGeluTanh) {
      // 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
      const V u2 = x * fma(x * x, V(splat(0.07135481283f)), V(splat(1.5957691216f)));
      return x * sigmoid(u2);
    } else if constexpr (kind == ActivationKind::kGeluErf) {
      return x * normal_cdf(x);
    } else if constexpr (kind == ActivationKind::kSilu) {
      return x * sigmoid(x);
    } else if constexpr (kind == ActivationKind::kRelu) {
      return max(x, zero);
    } else {
      const V r = max(x, zero);
      return r * r;
    }
  }
  // Value and derivative together: they share the exponential.
  template <class V>
  static void both(const V& x, V& y, V& d) {
    const V zero = vf{}, one = splat(1.0f);
    if constexpr (kind == ActivationKind::kGeluTanh) {
      const V square = x * x;
      const V s = sigmoid(x * fma(square, V(splat(0.07135481283f)), V(splat(1.5957691216f))));
      const V slope = fma(square, V(splat(3 * 0.07135481283f)), V(splat(1.5957691216f)));
      y = x * s;
      d = fma(y * (one - s), slope, s);
    } else if constexpr (kind == ActivationKind::kGeluErf) {
      const V p = normal_cdf(x);
      y = x * p;
      d = fma(x * V(splat(0.3989422804f)), exp2_of(x * x, -0.5f * 1.44269504f, 126.0f), p);
    } else if constexpr (kind == ActivationKind::kSilu) {
      const V s = sigmoid(x);
      y = x * s;
      d = fma(y, one - s, s);
    } else if constexpr (kind == ActivationKind::kRelu) {
      y = max(x, zero);
      d = where_negative(zero - x, one, zero);
    } else {
      const V r = max(x, zero);
      y = r * r;
      d = r + r;
    }
  }
};

template <class T, ActivationKind kind>
void activation(const ActivationArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(a.gate) + row * a.gate_stride;
    T* y = static_cast<T*>(a.y) + row * a.y_stride;
    if (a.up) {
      const T* up = static_cast<const T*>(a.up) + row * a.up_stride;
      sweep_fours(a.columns, [&](std::int64_t i, auto n) { store(y + i, ActivationOf<kind>::value(load(gate + i, n)) * load(up + i, n), n); });
    } else {
      sweep_fours(a.columns, [&](std::int64_t i, auto n) { store(y + i, ActivationOf<kind>::value(load(gate + i, n)), n); });
    }
  }
}

template <class T, ActivationKind kind>
void activation_grad(const ActivationGradArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(a.gate) + row * a.gate_stride;
    const T* dy = static_cast<const T*>(a.dy) + row * a.dy_stride;
    T* dgate = static_cast<T*>(a.dgate) + row * a.dgate_stride;
    if (a.up) {
      const T* up = static_cast<const T*>(a.up) + row * a.up_stride;
      T* dup = static_cast<T*>(a.dup) + row * a.dup_stride;
      sweep_fours(a.columns, [&](std::int64_t i, auto n) {
        auto x = load(gate + i, n);
        decltype(x) y, d;
        ActivationOf<kind>::both(x, y, d);
        const auto g = load(dy + i, n);
        const auto u = load(up + i, n);
        store(dup + i, g * y, n);
        store(dgate + i, g * u * d, n);
      });
    } else {
      sweep_fours(a.columns, [&](std::int64_t i, auto n) {
        auto x = load(gate + i, n);
        decltype(x) y, d;
        ActivationOf<kind>::both(x, y, d);
        store(dgate + i, load(dy + i, n) * d, n);
      });
    }
  }
}

template <class T>
void add(const void* a, const void* b, void* y, std::int64_t begin, std::int64_t end) {
  const T* p = static_cast<const T*>(a) + begin;
  const T* q = static_cast<const T*>(b) + begin;
  T* out = static_cast<T*>(y) + begin;
  sweep_fours(end - begin, [&](std::int64_t i, auto n) { store(out + i, load(p + i, n) + load(q + i, n), n); });
}

template <class T>
void add_row(const void* x, const void* row, void* y, std::int64_t width, std::int64_t begin, std::int64_t end) {
  const T* bias = static_cast<const T*>(row);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* p = static_cast<const T*>(x) + r * width;
    T* out = static_cast<T*>(y) + r * width;
    sweep_fours(width, [&](std::int64_t i, auto n) { store(out + i, load(p + i, n) + load(bias + i, n), n); });
  }
}

template <class T>
void scale(const void* x, float factor, void* y, std::int64_t begin, std::int64_t end) {
  const T* p = static_cast<const T*>(x) + begin;
  T* out = static_cast<T*>(y) + begin;
  const vf f = splat(factor);
  sweep_fours(end - begin, [&](std::int64_t i, auto n) {
    const auto v = load(p + i, n);
    store(out + i, v * decltype(load(p + i, n))(f), n);
  });
}

// f32 sums of 4096 elements, added up in f64.
template <class T>
double sum_squares(const void* x, std::int64_t begin, std::int64_t end) {
  const T* p = static_cast<const T*>(x);
  double total = 0;
  for (std::int64_t i = begin; i < end; i += 4096) {
    const std::int64_t count = end - i < 4096 ? end - i : 4096;
    vw acc = vf{};
    sweep_fours(count, [&](std::int64_t j, auto n) {
      const auto v = load(p + i + j, n);
      fma_to(acc, v, v);
    });
    total += sum(acc);
  }
  return total;
}

void to_bf16(const float* x, bf16* y, std::int64_t begin, std::int64_t end) {
  sweep(end - begin, [&](std::int64_t i, auto n) { store(y + begin + i, load(x + begin + i, n), n); });
}
void to_f32(const bf16* x, float* y, std::int64_t begin, std::int64_t end) {
  sweep(end - begin, [&](std::int64_t i, auto n) { store(y + begin + i, load(x + begin + i, n), n); });
}

// Eight rows per pass over the sums, which stay in L1; the next eight are asked for.
template <class T>
void column_sums(const void* x, const float* factor, float* sums, std::int64_t width, std::int64_t begin, std::int64_t end) {
  constexpr int kRows = 8;
  std::int64_t row = begin;
  for (; row + kRows <= end; row += kRows) {
    const T* p = static_cast<const T*>(x) + row * width;
    const std::int64_t ahead = row + 2 * kRows <= end ? kRows * width : 0;
    vf f[kRows];
    for (int r = 0; r < kRows; ++r) f[r] = splat(factor ? factor[row + r] : 1.0f);
    sweep_groups<2>(width, [&](std::int64_t i, auto n) {
      using V = decltype(load_as<T>(sums + i, n));
      V acc = load_as<T>(sums + i, n);
      for (int r = 0; r < kRows; ++r) {
        prefetch(p + ahead + r * width + i, n);
        acc = fma(V(f[r]), load(p + r * width + i, n), acc);
      }
      store_as<T>(sums + i, acc, n);
    });
  }
  for (; row < end; ++row) {
    const T* p = static_cast<const T*>(x) + row * width;
    const vf f = splat(factor ? factor[row] : 1.0f);
    sweep(width, [&](std::int64_t i, auto n) { store(sums + i, fma(f, load(p + i, n), load(sums + i, n)), n); });
  }
}

template <class T>
void reduce_parts(const float* partial, std::int64_t parts, void* out, std::int64_t width, bool accumulate, std::int64_t begin,
                  std::int64_t end) {
  T* y = static_cast<T*>(out) + begin;
  const float* p = partial + begin;
  sweep_groups<2>(end - begin, [&](std::int64_t i, auto n) {
    decltype(load_as<T>(p + i, n)) acc = vf{};
    for (std::int64_t part = 0; part < parts; ++part) acc = acc + load_as<T>(p + part * width + i, n);
    if (accumulate) acc = acc + load(y + i, n);
    store(y + i, acc, n);
  });
}
