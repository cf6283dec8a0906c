// RMSNorm and LayerNorm, forward and backward, and RoPE. Included by the twins only.
// The row is read twice or three times while it sits in L1, so the memory traffic is one read and one write.

template <class T>
void rmsnorm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  const T* gain = static_cast<const T*>(a.gain);
  const std::int64_t width = a.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + (a.indices ? a.indices[row] : row) * width;
    T* y = static_cast<T*>(a.y) + row * width;
    const float squares = sum_over(width, [&](std::int64_t i, vf acc, auto n) {
      const vf v = load(x + i, n);
      return fma(v, v, acc);
    });
    const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + a.epsilon);
    if (a.inverse) a.inverse[row] = inverse;
    const vf scale = splat(inverse);
    if (gain) {
      sweep(width, [&](std::int64_t i, auto n) { store(y + i, load(x + i, n) * scale * load(gain + i, n), n); });
    } else {
      sweep(width, [&](std::int64_t i, auto n) { store(y + i, load(x + i, n) * scale, n); });
    }
  }
}

// With h = x * inverse: dx = inverse * (dy * gain - h * mean(dy * gain * h)), dgain = sum of dy * h.
template <class T>
void rmsnorm_grad(const NormGradArgs& a, std::int64_t begin, std::int64_t end) {
  const T* gain = static_cast<const T*>(a.gain);
  const std::int64_t width = a.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * width;
    const T* dy = static_cast<const T*>(a.dy) + row * width;
    const float inverse = a.inverse[row];
    const vf scale = splat(inverse);
    const auto upstream = [&](std::int64_t i, auto n) {
      return gain ? load(dy + i, n) * load(gain + i, n) : load(dy + i, n);
    };
    // One pass for the parameter gradient and the dot product, one for dx.
    const float dot = sum_over(width, [&](std::int64_t i, vf acc, auto n) {
      const vf product = load(dy + i, n) * load(x + i, n);
      if (a.dgain) store(a.dgain + i, fma(product, scale, load(a.dgain + i, n)), n);
      return gain ? fma(product, load(gain + i, n), acc) : acc + product;
    });
    if (!a.dx) continue;
    T* dx = static_cast<T*>(a.dx) + row * width;
    const vf pull = splat(-dot * inverse * inverse * inverse / static_cast<float>(width));
    if (a.accumulate) {
      sweep(width, [&](std::int64_t i, auto n) {
        store(dx + i, fma(pull, load(x + i, n), fma(scale, upstream(i, n), load(dx + i, n))), n);
      });
    } else {
      sweep(width, [&](std::int64_t i, auto n) { store(dx + i, fma(pull, load(x + i, n), scale * upstream(i, n)), n); });
    }
  }
}

template <class T>
void layernorm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  const T* gain = static_cast<const T*>(a.gain);
  const T* bias = static_cast<const T*>(a.bias);
  const std::int64_t width = a.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + (a.indices ? a.indices[row] : row) * width;
    T* y = static_cast<T*>(a.y) + row * width;
    const float mean = sum_over(width, [&](std::int64_t i, vf acc, auto n) { return acc + load(x + i, n); }) / static_cast<float>(width);
    // Lanes past the end of the row would each add mean^2; the zero-filled load makes them exactly -mean, so they are masked.
    const vf center = splat(mean);
    const float squares = sum_over(width, [&](std::int64_t i, vf acc, auto n) {
      const vf d = keep(load(x + i, n) - center, n, vf{});
      return fma(d, d, acc);
    });
    const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + a.epsilon);
    if (a.mean) a.mean[row] = mean;
    if (a.inverse) a.inverse[row] = inverse;
    const vf scale = splat(inverse);
    sweep(width, [&](std::int64_t i, auto n) {
      vf h = (load(x + i, n) - center) * scale;
      if (gain) h = h * load(gain + i, n);
      if (bias) h = h + load(bias + i, n);
      store(y + i, h, n);
    });
  }
}

// With h = (x - mean) * inverse and u = dy * gain: dx = inverse * (u - mean(u) - h * mean(u * h)).
template <class T>
void layernorm_grad(const NormGradArgs& a, std::int64_t begin, std::int64_t end) {
  const T* gain = static_cast<const T*>(a.gain);
  const std::int64_t width = a.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * width;
    const T* dy = static_cast<const T*>(a.dy) + row * width;
    const vf center = splat(a.mean[row]);
    const vf scale = splat(a.inverse[row]);
    // One pass for the parameter gradients, sum of u and sum of u h (two accumulators each, in an order fixed by the width).
    vf totals[2] = {}, dots[2] = {};
    const auto gather_sums = [&](std::int64_t i, int j, auto n) {
      const vf d = load(dy + i, n);
      const vf h = (load(x + i, n) - center) * scale;
      if (a.dgain) store(a.dgain + i, fma(d, h, load(a.dgain + i, n)), n);
      if (a.dbias) store(a.dbias + i, load(a.dbias + i, n) + d, n);
      const vf up = gain ? d * load(gain + i, n) : d;  // zero past the end of the row, so h there does not matter
      totals[j] = totals[j] + up;
      dots[j] = fma(up, h, dots[j]);
    };
    std::int64_t at = 0;
    for (; at + 2 * kLanes <= width; at += 2 * kLanes) {
      gather_sums(at, 0, Full{});
      gather_sums(at + kLanes, 1, Full{});
    }
    sweep(width - at, [&](std::int64_t i, auto n) { gather_sums(at + i, 0, n); });
    if (!a.dx) continue;
    T* dx = static_cast<T*>(a.dx) + row * width;
    const float total = sum(totals[0] + totals[1]);
    const float dot = sum(dots[0] + dots[1]);
    const auto upstream = [&](std::int64_t i, auto n) {
      return gain ? load(dy + i, n) * load(gain + i, n) : load(dy + i, n);
    };
    const auto hat = [&](std::int64_t i, auto n) { return (load(x + i, n) - center) * scale; };
    const vf shift = splat(total / static_cast<float>(width));
    const vf pull = splat(-dot / static_cast<float>(width));
    sweep(width, [&](std::int64_t i, auto n) {
      vf d = scale * fma(pull, hat(i, n), upstream(i, n) - shift);
      if (a.accumulate) d = d + load(dx + i, n);
      store(dx + i, d, n);
    });
  }
}

// Half-split pairing: (a, b) = (x[i], x[i + rotary/2]) becomes (a cos - b sin, b cos + a sin); the inverse flips sin.
// The table holds, per position, rotary/2 cosines and then rotary/2 sines.
template <class T>
void rope(const RopeArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = a.rotary_dim / 2;
  const vf sign = splat(a.inverse ? -1.0f : 1.0f);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* cosine = a.table + a.positions[row] * a.rotary_dim;
    const float* sine = cosine + half;
    T* x = static_cast<T*>(a.rows) + row * a.row_stride;
    for (std::int64_t head = 0; head < a.heads; ++head, x += a.head_dim) {
      sweep(half, [&](std::int64_t i, auto n) {
        const vf c = load(cosine + i, n);
        const vf s = sign * load(sine + i, n);
        const vf low = load(x + i, n);
        const vf high = load(x + half + i, n);
        store(x + i, fma(low, c, -(high * s)), n);
        store(x + half + i, fma(high, c, low * s), n);
      });
    }
  }
}
