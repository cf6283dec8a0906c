// RMSNorm and LayerNorm, forward and backward, and RoPE. Included by the twins only.
// kAll: every optional operand is given, as in a network's norms, and the loops ask no more whether. What a row gets depends on the width alone.

// A forward pass sums one row while it writes the row kLag before it, which still sits in L1: the memory traffic is one read and one write at an even rate (a row summed and then
// written makes reads wait for writes and back: out-of-order execution does not reach that far), and a row's reduction has a row's time to finish.
constexpr int kLag = 2;

template <class T>
inline const T* norm_input(const NormArgs& a, std::int64_t row) { return static_cast<const T*>(a.x) + (a.indices ? a.indices[row] : row) * a.width; }

template <class T, bool kAll>
inline void rmsnorm_rows(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  const T* gain = static_cast<const T*>(a.gain);
  vf scales[kLag] = {};
  for (std::int64_t row = begin; row < end + kLag; ++row) {
    const bool sums = row < end, writes = row - kLag >= begin;
    const std::int64_t old_row = writes ? row - kLag : begin;
    const T *x = norm_input<T>(a, sums ? row : begin), *old = norm_input<T>(a, old_row);
    T* y = static_cast<T*>(a.y) + old_row * a.width;
    const vf scale = scales[kLag - 1];
    vn<2> squares = vf{};
    const auto add = [&](std::int64_t i, auto n) {
      const auto v = load(x + i, n);
      fma_to(squares, v, v);
    };
    const auto write = [&](std::int64_t i, auto n) {
      using V = decltype(load(x + i, n));
      const V h = load(old + i, n) * V(scale);
      store(y + i, kAll || gain ? h * load(gain + i, n) : h, n);
    };
    if (sums && writes) {
      sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
        add(i, n);
        write(i, n);
      });
    } else if (sums) {
      sweep_groups<2>(a.width, add);
    } else if (writes) {
      sweep_groups<2>(a.width, write);
    }
    for (int lag = kLag - 1; lag > 0; --lag) scales[lag] = scales[lag - 1];
    if (!sums) continue;
    const float inverse = 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(a.width) + a.epsilon);
    if (a.inverse) a.inverse[row] = inverse;
    scales[0] = splat(inverse);
  }
}

template <class T>
void rmsnorm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  if (a.gain) return rmsnorm_rows<T, true>(a, begin, end);
  rmsnorm_rows<T, false>(a, begin, end);
}

template <class T, bool kAll>
inline void layernorm_rows(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  const T *gain = static_cast<const T*>(a.gain), *bias = static_cast<const T*>(a.bias);
  const float width = static_cast<float>(a.width);
  vf centers[kLag] = {}, scales[kLag] = {};
  for (std::int64_t row = begin; row < end + kLag; ++row) {
    const bool sums = row < end, writes = row - kLag >= begin;
    const std::int64_t old_row = writes ? row - kLag : begin;
    const T *x = norm_input<T>(a, sums ? row : begin), *old = norm_input<T>(a, old_row);
    T* y = static_cast<T*>(a.y) + old_row * a.width;
    const vf center = centers[kLag - 1], scale = scales[kLag - 1];
    // Mean and variance in one pass around a shift near the mean, that of the first lanes: mean = s + E[d], variance = E[d^2] - E[d]^2 with d = x - s. The shift is
    // off by at most sqrt(width / lanes) standard deviations, so a variance loses at most a factor width / lanes of its 24 bits, and about one on ordinary rows.
    const vf shift = splat(a.width < kLanes ? static_cast<float>(x[0]) : sum(load(x, Full{})) / static_cast<float>(kLanes));
    vn<2> totals = vf{}, squares = vf{};
    const auto add = [&](std::int64_t i, auto n) {
      using V = decltype(load(x + i, n));
      const V d = keep(load(x + i, n) - V(shift), n, vf{});  // lanes past the end of the row count as 0
      add_to(totals, d);
      fma_to(squares, d, d);
    };
    const auto write = [&](std::int64_t i, auto n) {
      using V = decltype(load(x + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      const V b = kAll || bias ? load(bias + i, n) : V(vf{});
      store(y + i, fma((load(old + i, n) - V(center)) * V(scale), g, b), n);
    };
    if (sums && writes) {
      sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
        add(i, n);
        write(i, n);
      });
    } else if (sums) {
      sweep_groups<2>(a.width, add);
    } else if (writes) {
      sweep_groups<2>(a.width, write);
    }
    for (int lag = kLag - 1; lag > 0; --lag) centers[lag] = centers[lag - 1], scales[lag] = scales[lag - 1];
    if (!sums) continue;
    const float offset = sum(totals) / width, mean = shift[0] + offset;
    const float variance = sum(squares) / width - offset * offset;
    const float inverse = 1.0f / __builtin_sqrtf((variance < 0 ? 0.0f : variance) + a.epsilon);  // a NaN stays one
    if (a.mean) a.mean[row] = mean;
    if (a.inverse) a.inverse[row] = inverse;
    centers[0] = splat(mean);
    scales[0] = splat(inverse);
  }
}

template <class T>
void layernorm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  if (a.gain && a.bias) return layernorm_rows<T, true>(a, begin, end);
  layernorm_rows<T, false>(a, begin, end);
}

// A backward pass reads a group of rows twice, from memory and then from L1. With three arrays from L3 f32 rows run best one by one (2048 x 768 on a core of family 26: 218 us, 290
// in twos); bf16 is bound by its arithmetic and gains from sharing the gain and the gradient (161 us in twos, 210 one by one), and from asking for the next rows meanwhile. A core
// with AVX2 only (family 25) does in f32 too: 0.85 of the stream's rate, 0.78 without.
template <class T>
constexpr int kGradRows = sizeof(T) == 2 ? 2 : 1;

template <class T, class Body>
inline void in_groups(std::int64_t begin, std::int64_t end, const Body& body) {
  std::int64_t row = begin;
  for (; row + kGradRows<T> <= end; row += kGradRows<T>) body.template run<kGradRows<T>>(row);
  for (; row < end; ++row) body.template run<1>(row);
}

template <class T>
struct NormBackward {
  const NormGradArgs& args;
  std::int64_t end;

  std::int64_t at(std::int64_t row) const { return (row < end ? row : end - 1) * args.width; }
};

// With h = x * inverse: dx = inverse * (dy * gain - h * mean(dy * gain * h)), dgain = sum of dy * h.
template <class T, bool kAll>
struct RmsNormGrad : NormBackward<T> {
  template <int R>
  void run(std::int64_t row) const {
    const NormGradArgs& a = this->args;
    const T* gain = static_cast<const T*>(a.gain);
    const T *x[R], *dy[R], *next_x[R], *next_dy[R];
    vf scale[R];
    vn<2> dots[R];
    for (int r = 0; r < R; ++r) {
      x[r] = static_cast<const T*>(a.x) + this->at(row + r), next_x[r] = static_cast<const T*>(a.x) + this->at(row + R + r);
      dy[r] = static_cast<const T*>(a.dy) + this->at(row + r), next_dy[r] = static_cast<const T*>(a.dy) + this->at(row + R + r);
      scale[r] = splat(a.inverse[row + r]);
      dots[r] = vf{};
    }
    // One pass for the parameter gradient and the dot product, one for dx.
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      V dgain = kAll || a.dgain ? load_as<T>(a.dgain + i, n) : V(vf{});
      for (int r = 0; r < R; ++r) {
        const V product = load(dy[r] + i, n) * load(x[r] + i, n);
        dgain = fma(product, V(scale[r]), dgain);
        fma_to(dots[r], product, g);
      }
      if (kAll || a.dgain) store_as<T>(a.dgain + i, dgain, n);
    });
    if (!a.dx) return;
    T* dx[R];
    vf pull[R];
    for (int r = 0; r < R; ++r) {
      const float inverse = a.inverse[row + r];
      dx[r] = static_cast<T*>(a.dx) + this->at(row + r);
      pull[r] = splat(-sum(dots[r]) * inverse * inverse * inverse / static_cast<float>(a.width));
    }
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      for (int r = 0; r < R; ++r) {
        if (R > 1 || kLanes < 16) prefetch(next_x[r] + i, n), prefetch(next_dy[r] + i, n);
        const V up = load(dy[r] + i, n) * g;
        const V own = a.accumulate ? fma(V(scale[r]), up, load(dx[r] + i, n)) : V(scale[r]) * up;
        store(dx[r] + i, fma(V(pull[r]), load(x[r] + i, n), own), n);
      }
    });
  }
};

template <class T>
void rmsnorm_grad(const NormGradArgs& a, std::int64_t begin, std::int64_t end) {
  if (a.gain && a.dgain) return in_groups<T>(begin, end, RmsNormGrad<T, true>{{a, end}});
  in_groups<T>(begin, end, RmsNormGrad<T, false>{{a, end}});
}

// With h = (x - mean) * inverse and u = dy * gain: dx = inverse * (u - mean(u) - h * mean(u * h)).
template <class T, bool kAll>
struct LayerNormGrad : NormBackward<T> {
  template <int R>
  void run(std::int64_t row) const {
    const NormGradArgs& a = this->args;
    const T* gain = static_cast<const T*>(a.gain);
    const T *x[R], *dy[R], *next_x[R], *next_dy[R];
    vf center[R], scale[R];
    vn<2> totals[R], dots[R];
    for (int r = 0; r < R; ++r) {
      x[r] = static_cast<const T*>(a.x) + this->at(row + r), next_x[r] = static_cast<const T*>(a.x) + this->at(row + R + r);
      dy[r] = static_cast<const T*>(a.dy) + this->at(row + r), next_dy[r] = static_cast<const T*>(a.dy) + this->at(row + R + r);
      center[r] = splat(a.mean[row + r]);
      scale[r] = splat(a.inverse[row + r]);
      totals[r] = dots[r] = vf{};
    }
    // One pass for the parameter gradients, the sum of u and that of u h; lanes past the end of the row have dy = 0, whatever their h.
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      V dgain = kAll || a.dgain ? load_as<T>(a.dgain + i, n) : V(vf{});
      V dbias = kAll || a.dbias ? load_as<T>(a.dbias + i, n) : V(vf{});
      for (int r = 0; r < R; ++r) {
        const V d = load(dy[r] + i, n);
        const V h = (load(x[r] + i, n) - V(center[r])) * V(scale[r]);
        dgain = fma(d, h, dgain);
        dbias = dbias + d;
        const V up = d * g;
        add_to(totals[r], up);
        fma_to(dots[r], up, h);
      }
      if (kAll || a.dgain) store_as<T>(a.dgain + i, dgain, n);
      if (kAll || a.dbias) store_as<T>(a.dbias + i, dbias, n);
    });
    if (!a.dx) return;
    // dx = scale u + shift + pull (x - mean), with the factors of a row taken together.
    T* dx[R];
    vf shift[R], pull[R];
    for (int r = 0; r < R; ++r) {
      const float inverse = a.inverse[row + r], width = static_cast<float>(a.width);
      dx[r] = static_cast<T*>(a.dx) + this->at(row + r);
      shift[r] = splat(-inverse * (sum(totals[r]) / width));
      pull[r] = splat(-inverse * inverse * (sum(dots[r]) / width));
    }
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      for (int r = 0; r < R; ++r) {
        if (R > 1 || kLanes < 16) prefetch(next_x[r] + i, n), prefetch(next_dy[r] + i, n);
        const V own = a.accumulate ? V(shift[r]) + load(dx[r] + i, n) : V(shift[r]);
        store(dx[r] + i, fma(load(x[r] + i, n) - V(center[r]), V(pull[r]), fma(V(scale[r]), load(dy[r] + i, n) * g, own)), n);
      }
    });
  }
};

template <class T>
void layernorm_grad(const NormGradArgs& a, std::int64_t begin, std::int64_t end) {
  if (a.gain && a.dgain && a.dbias) return in_groups<T>(begin, end, LayerNormGrad<T, true>{{a, end}});
  in_groups<T>(begin, end, LayerNormGrad<T, false>{{a, end}});
}

// Half-split pairing: (a, b) = (x[i], x[i + rotary/2]) becomes (a cos - b sin, b cos + a sin); the inverse flips sin.
// The table holds, per position, rotary/2 cosines and then rotary/2 sines; all heads of a row use them while they are in registers.
template <class T>
void rope(const RopeArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = a.rotary_dim / 2, heads = a.heads, dim = a.head_dim;
  const vf sign = splat(a.inverse ? -1.0f : 1.0f);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* cosine = a.table + a.positions[row] * a.rotary_dim;
    const float* sine = cosine + half;
    T* first = static_cast<T*>(a.rows) + row * a.row_stride;
    sweep_groups<2>(half, [&](std::int64_t i, auto n) {
      using V = decltype(load_as<T>(cosine + i, n));
      const V c = load_as<T>(cosine + i, n);
      const V s = V(sign) * load_as<T>(sine + i, n);
      T* x = first + i;
      for (std::int64_t head = 0; head < heads; ++head, x += dim) {
        const V low = load(x, n);
        const V high = load(x + half, n);
        store(x, fma(low, c, -(high * s)), n);
        store(x + half, fma(high, c, low * s), n);
      }
    });
  }
}
