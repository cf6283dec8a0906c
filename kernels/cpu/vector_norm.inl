// RMSNorm and LayerNorm, forward and backward, and RoPE. Included by the twins only.
//
// A few rows go through together: their reductions overlap, the gain is loaded once for all of them, and parameter gradients are read and written once.
// A row is read twice or three times while it sits in L1, so the memory traffic is one read and one write. The second pass asks for the rows of the next
// group and the first for the lines to be written: out-of-order execution does not reach that far, and without it reads wait while a row is written. What a row gets depends on the width alone.

// kAll: every optional operand is given, as in a network's norms, and the loops ask no more whether.

// Rows of a group of the forward norms: as many as fit a quarter of a 48 KiB L1, 1 to 4.
inline int rows_together(std::int64_t row_bytes) {
  const std::int64_t fit = 12 * 1024 / row_bytes;
  return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}
// Of the backward norms: with three arrays from L3 f32 rows run best one by one (2048 x 768 on a core of family 26: 218 us, 290 in twos), and without being asked for;
// bf16 is bound by its arithmetic and gains from sharing the gain and the gradient (161 us in twos, 210 one by one).
template <class T>
constexpr int kGradRows = sizeof(T) == 2 ? 2 : 1;

// Calls body.template run<R>(first) for groups of rows that cover [begin, end), R = `together` and then single rows.
template <class Body>
inline void in_groups(std::int64_t begin, std::int64_t end, int together, const Body& body) {
  std::int64_t row = begin;
  if (together == 4) {
    for (; row + 4 <= end; row += 4) body.template run<4>(row);
  } else if (together == 2) {
    for (; row + 2 <= end; row += 2) body.template run<2>(row);
  }
  for (; row < end; ++row) body.template run<1>(row);
}

template <class T>
struct NormForward {
  const NormArgs& args;
  std::int64_t end;

  const T* input(std::int64_t row) const {
    const std::int64_t at = row < end ? row : end - 1;  // beyond the range: something that may be prefetched
    return static_cast<const T*>(args.x) + (args.indices ? args.indices[at] : at) * args.width;
  }
  T* output(std::int64_t row) const { return static_cast<T*>(args.y) + row * args.width; }
};

template <class T, bool kAll>
struct RmsNorm : NormForward<T> {
  template <int R>
  void run(std::int64_t row) const {
    const NormArgs& a = this->args;
    const T* gain = static_cast<const T*>(a.gain);
    const T *x[R], *next[R];
    T* y[R];
    for (int r = 0; r < R; ++r) x[r] = this->input(row + r), next[r] = this->input(row + R + r), y[r] = this->output(row + r);
    vn<2> squares[R];
    for (int r = 0; r < R; ++r) squares[r] = vf{};
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      for (int r = 0; r < R; ++r) {
        const auto v = load(x[r] + i, n);
        prefetch_to_write(y[r] + i, n);
        fma_to(squares[r], v, v);
      }
    });
    vf scale[R];
    for (int r = 0; r < R; ++r) {
      const float inverse = 1.0f / __builtin_sqrtf(sum(squares[r]) / static_cast<float>(a.width) + a.epsilon);
      if (a.inverse) a.inverse[row + r] = inverse;
      scale[r] = splat(inverse);
    }
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      for (int r = 0; r < R; ++r) {
        prefetch(next[r] + i, n);
        store(y[r] + i, load(x[r] + i, n) * V(scale[r]) * g, n);
      }
    });
  }
};

template <class T>
void rmsnorm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  const int together = rows_together(a.width * static_cast<std::int64_t>(sizeof(T)));
  if (a.gain) return in_groups(begin, end, together, RmsNorm<T, true>{{a, end}});
  in_groups(begin, end, together, RmsNorm<T, false>{{a, end}});
}

template <class T, bool kAll>
struct LayerNorm : NormForward<T> {
  template <int R>
  void run(std::int64_t row) const {
    const NormArgs& a = this->args;
    const T *gain = static_cast<const T*>(a.gain), *bias = static_cast<const T*>(a.bias);
    const float width = static_cast<float>(a.width);
    const T *x[R], *next[R];
    T* y[R];
    for (int r = 0; r < R; ++r) x[r] = this->input(row + r), next[r] = this->input(row + R + r), y[r] = this->output(row + r);
    // Mean and variance in one pass around a shift near the mean, that of the first lanes: mean = s + E[d], variance = E[d^2] - E[d]^2 with d = x - s. The shift is
    // off by at most sqrt(width / lanes) standard deviations, so a variance loses at most a factor width / lanes of its 24 bits, and about one on ordinary rows.
    vf shift[R];
    vn<2> totals[R], squares[R];
    for (int r = 0; r < R; ++r) {
      shift[r] = splat(a.width < kLanes ? static_cast<float>(x[r][0]) : sum(load(x[r], Full{})) / static_cast<float>(kLanes));
      totals[r] = squares[r] = vf{};
    }
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      for (int r = 0; r < R; ++r) {
        const V d = keep(load(x[r] + i, n) - V(shift[r]), n, vf{});  // lanes past the end of the row count as 0
        prefetch_to_write(y[r] + i, n);
        add_to(totals[r], d);
        fma_to(squares[r], d, d);
      }
    });
    vf center[R], scale[R];
    for (int r = 0; r < R; ++r) {
      const float offset = sum(totals[r]) / width, mean = shift[r][0] + offset;
      const float variance = sum(squares[r]) / width - offset * offset;
      const float inverse = 1.0f / __builtin_sqrtf((variance < 0 ? 0.0f : variance) + a.epsilon);  // a NaN stays one
      if (a.mean) a.mean[row + r] = mean;
      if (a.inverse) a.inverse[row + r] = inverse;
      center[r] = splat(mean);
      scale[r] = splat(inverse);
    }
    sweep_groups<2>(a.width, [&](std::int64_t i, auto n) {
      using V = decltype(load(x[0] + i, n));
      const V g = kAll || gain ? load(gain + i, n) : V(splat(1.0f));
      const V b = kAll || bias ? load(bias + i, n) : V(vf{});
      for (int r = 0; r < R; ++r) {
        prefetch(next[r] + i, n);
        store(y[r] + i, fma((load(x[r] + i, n) - V(center[r])) * V(scale[r]), g, b), n);
      }
    });
  }
};

template <class T>
void layernorm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  const int together = rows_together(a.width * static_cast<std::int64_t>(sizeof(T)));
  if (a.gain && a.bias) return in_groups(begin, end, together, LayerNorm<T, true>{{a, end}});
  in_groups(begin, end, together, LayerNorm<T, false>{{a, end}});
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
        if (R > 1) prefetch(next_x[r] + i, n), prefetch(next_dy[r] + i, n);
        const V up = load(dy[r] + i, n) * g;
        const V own = a.accumulate ? fma(V(scale[r]), up, load(dx[r] + i, n)) : V(scale[r]) * up;
        store(dx[r] + i, fma(V(pull[r]), load(x[r] + i, n), own), n);
      }
    });
  }
};

template <class T>
void rmsnorm_grad(const NormGradArgs& a, std::int64_t begin, std::int64_t end) {
  if (a.gain && a.dgain) return in_groups(begin, end, kGradRows<T>, RmsNormGrad<T, true>{{a, end}});
  in_groups(begin, end, kGradRows<T>, RmsNormGrad<T, false>{{a, end}});
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
        if (R > 1) prefetch(next_x[r] + i, n), prefetch(next_dy[r] + i, n);
        const V own = a.accumulate ? V(shift[r]) + load(dx[r] + i, n) : V(shift[r]);
        store(dx[r] + i, fma(load(x[r] + i, n) - V(center[r]), V(pull[r]), fma(V(scale[r]), load(dy[r] + i, n) * g, own)), n);
      }
    });
  }
};

template <class T>
void layernorm_grad(const NormGradArgs& a, std::int64_t begin, std::int64_t end) {
  if (a.gain && a.dgain && a.dbias) return in_groups(begin, end, kGradRows<T>, LayerNormGrad<T, true>{{a, end}});
  in_groups(begin, end, kGradRows<T>, LayerNormGrad<T, false>{{a, end}});
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
