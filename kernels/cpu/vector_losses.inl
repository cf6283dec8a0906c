// Cross-entropy, softmax, binary cross-entropy, argmax. Included by the twins only.

// log(1 + e) for 0 <= e <= 1: 2 atanh(s), s = e / (2 + e) <= 1/3, by its odd series (truncation below 1e-8).
inline vf log1p_unit(vf e) {
  const vf s = e / (splat(2.0f) + e);
  const vf q = s * s;
  vf p = splat(1.0f / 15);
  p = fma(p, q, splat(1.0f / 13));
  p = fma(p, q, splat(1.0f / 11));
  p = fma(p, q, splat(1.0f / 9));
  p = fma(p, q, splat(1.0f / 7));
  p = fma(p, q, splat(1.0f / 5));
  p = fma(p, q, splat(1.0f / 3));
  p = fma(p, q, splat(1.0f));
  return splat(2.0f) * s * p;
}

// BCE(sigma(r), z) = max(r, 0) - r z + log(1 + e^-|r|); its derivative sigma(r) - z. Returns the sum, unweighted.
double bce(const float* logits, const std::uint8_t* targets, std::int64_t count, float weight, float* grad, bool accumulate) {
  double total = 0;
  for (std::int64_t begin = 0; begin < count; begin += 1024) {
    const std::int64_t block = count - begin < 1024 ? count - begin : 1024;
    total += sum_over(block, [&](std::int64_t at, vf acc, auto n) {
      const std::int64_t i = begin + at;
      const vf r = load(logits + i, n);
      vf z = {};
      const int lanes = static_cast<int>(count - i < kLanes ? count - i : kLanes);
      for (int j = 0; j < lanes; ++j) z[j] = targets[i + j] != 0 ? 1.0f : 0.0f;
      const vf e = exp(-as_float(as_bits(r) & 0x7fffffffu));
      if (grad) {
        const vf s = splat(1.0f) / (splat(1.0f) + e);
        vf d = ((r < vf{} ? e * s : s) - z) * splat(weight);
        if (accumulate) d = d + load(grad + i, n);
        store(grad + i, d, n);
      }
      const vf term = (r > vf{} ? r : vf{}) - r * z + log1p_unit(e);
      return acc + keep(term, n, vf{});
    });
  }
  return total;
}

void softmax_row(const float* x, float* y, std::int64_t count, float inverse_temperature) {
  vf top = splat(-__builtin_inff());
  sweep(count, [&](std::int64_t i, auto n) { top = max(top, keep(load(x + i, n), n, splat(-__builtin_inff()))); });
  const vf maximum = splat(max_lane(top));
  const vf factor = splat(inverse_temperature);
  float total = sum_over(count, [&](std::int64_t i, vf acc, auto n) {
    const vf e = exp((load(x + i, n) - maximum) * factor);
    store(y + i, e, n);
    return acc + keep(e, n, vf{});
  });
  const vf inverse = splat(1.0f / total);
  sweep(count, [&](std::int64_t i, auto n) { store(y + i, load(y + i, n) * inverse, n); });
}

// One pass over memory: blocks of 1024 elements are maximised and then exponentiated while in L1, the running sum being rescaled
// when the maximum grows.
template <class T>
void row_log_sum(const void* row, std::int64_t count, float* maximum, float* total) {
  const T* x = static_cast<const T*>(row);
  const float lowest = -__builtin_inff();
  float best = lowest;
  double running = 0;
  for (std::int64_t begin = 0; begin < count; begin += 1024) {
    const std::int64_t block = count - begin < 1024 ? count - begin : 1024;
    const T* p = x + begin;
    vw top = splat(lowest);
    sweep_fours(block, [&](std::int64_t i, auto n) { max_to(top, keep(load(p + i, n), n, splat(lowest))); });
    const float here = max_lane(max(max(top.v[0], top.v[1]), max(top.v[2], top.v[3])));
    if (here > best) {
      if (best > lowest) running *= exp(splat(best - here))[0];
      best = here;
    }
    if (best == lowest) continue;  // only -infinity so far: nothing to add
    const vf shift = splat(best);
    vw sums = vf{};
    sweep_fours(block, [&](std::int64_t at, auto n) {
      using V = decltype(load(p + at, n));
      add_to(sums, keep(exp2_of(load(p + at, n) - V(shift), 1.44269502f, 1.0f), n, vf{}));
    });
    running += sum(sums);
  }
  *maximum = best;
  *total = static_cast<float>(running);
}

template <class T>
void softmax_grad(void* row, std::int64_t count, float maximum, float inverse_sum, std::int64_t label, float factor) {
  T* x = static_cast<T*>(row);
  const vf shift = splat(maximum);
  const vf f = splat(inverse_sum * factor);
  const float at_label = exp(splat(static_cast<float>(x[label]) - maximum))[0] * inverse_sum - 1.0f;
  sweep_fours(count, [&](std::int64_t i, auto n) {
    using V = decltype(load(x + i, n));
    store(x + i, exp2_of(load(x + i, n) - V(shift), 1.44269502f, 1.0f) * V(f), n);
  });
  x[label] = static_cast<T>(at_label * factor);
}

// First position of the largest element; -1 for an empty row or when there is a NaN.
template <class T>
std::int64_t argmax(const void* row, std::int64_t count) {
  const T* x = static_cast<const T*>(row);
  if (count <= 0) return -1;
  const float lowest = -__builtin_inff();
  vf top = splat(lowest);
  vi unordered = {};
  sweep(count, [&](std::int64_t i, auto n) {
    const vf v = keep(load(x + i, n), n, splat(lowest));
    top = max(v, top);
    unordered |= v != v;
  });
  if (any_lane(unordered)) return -1;
  const float best = max_lane(top);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    if (any_lane(load(x + i, Full{}) == best)) break;
  }
  while (static_cast<float>(x[i]) != best) ++i;
  return i;
}
