// AdamW and the bandwidth probes. Included by the twins only.

// One pass, 28 bytes per parameter (bf16: gradient 2 read, copy 2 written; f32: gradient 4 read; master and both moments 8 each).
// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = p decay - step m / (sqrt(v) inverse_root2 + epsilon), with
// step = lr / (1 - b1^t), inverse_root2 = 1 / sqrt(1 - b2^t), decay = 1 - lr weight_decay.
template <class T>
void adamw(const AdamWArgs& a, std::int64_t begin, std::int64_t end) {
  const T* grad = static_cast<const T*>(a.grad);
  const vf b1 = splat(a.beta1), c1 = splat(1.0f - a.beta1), b2 = splat(a.beta2), c2 = splat(1.0f - a.beta2);
  const vf decay = splat(a.decay), step = splat(-a.step), root = splat(a.inverse_root2), epsilon = splat(a.epsilon);
  const vf factor = splat(a.grad_scale);
  sweep(end - begin, [&](std::int64_t at, auto n) {
    const std::int64_t i = begin + at;
    const vf g = load(grad + i, n) * factor;
    const vf m = fma(b1, load(a.first + i, n), c1 * g);
    const vf v = fma(b2, load(a.second + i, n), c2 * g * g);
    const vf p = fma(step, m / fma(sqrt(v), root, epsilon), load(a.master + i, n) * decay);
    store(a.first + i, m, n);
    store(a.second + i, v, n);
    store(a.master + i, p, n);
    if (a.copy) store(a.copy + i, p, n);
  });
}

float probe_read(const float* x, std::int64_t count) {
  vf acc[8] = {};
  std::int64_t i = 0;
  for (; i + 8 * kLanes <= count; i += 8 * kLanes) {
    for (int j = 0; j < 8; ++j) acc[j] = acc[j] + load(x + i + j * kLanes, Full{});
  }
  return sum(((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7])));
}

void probe_copy(const float* x, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    vf v[4];
    for (int j = 0; j < 4; ++j) v[j] = load(x + i + j * kLanes, Full{});
    for (int j = 0; j < 4; ++j) store(y + i + j * kLanes, v[j], Full{});
    asm volatile("" ::: "memory");  // keeps the loop from becoming a call of memcpy, which would choose its own stores
  }
}

void probe_copy_stream(const float* x, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
#if defined(FATHOM_SIMD_512)
    _mm512_stream_ps(y + i, _mm512_loadu_ps(x + i));
#elif defined(FATHOM_SIMD_256)
    for (int j = 0; j < 16; j += 8) _mm256_stream_ps(y + i + j, _mm256_loadu_ps(x + i + j));
#elif defined(__SSE__)
    for (int j = 0; j < 16; j += 4) _mm_stream_ps(y + i + j, _mm_loadu_ps(x + i + j));
#else
    for (int j = 0; j < 16; ++j) y[i + j] = x[i + j];
#endif
  }
#if defined(__SSE__)
  _mm_sfence();
#endif
}

// Adds 0, which the compiler may not drop (-0 becomes +0): whatever the operands hold stays what it is.
void probe_update(float* x, std::int64_t count) {
  sweep(count, [&](std::int64_t i, auto n) { store(x + i, load(x + i, n) + splat(0.0f), n); });
}

void probe_triad(const float* x, const float* y, float* z, std::int64_t count) {
  const vf c = splat(0.5f);
  sweep(count, [&](std::int64_t i, auto n) { store(z + i, fma(c, load(y + i, n), load(x + i, n)), n); });
}

void probe_exp(float* x, std::int64_t count) {
  sweep(count, [&](std::int64_t i, auto n) { store(x + i, exp(-load(x + i, n)), n); });
}
