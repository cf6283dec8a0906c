// Row movement: gather, weighted scatter-add, embedding, expert combine, router scores. Included by the twins only.
// Rows are at least a few hundred bytes, so plain vector loops run at memory speed and need no prefetch beyond the hardware's, except that the next
// row's address is irregular: its lines are asked for while the current row is moved.
//
// Picked rows that lie in L2 move at 4.2 cycles a line read and written, a long stream at 3.0 (256 of 2048 bf16 rows of 768 on a core of family 26: 5.8 and 3.6 us). It is the
// same for 64 rows as for 256, for every order tried (down, two or four rows side by side, a row in registers) and for rep movs, with prefetches or without.

// The row after `row`, or the row itself at the end of the range: something that may be prefetched.
template <class T>
inline const T* next_row(const T* x, const std::int32_t* indices, std::int64_t width, std::int64_t row, std::int64_t end) {
  const std::int64_t next = row + 1 < end ? row + 1 : row;
  return x + indices[next] * width;
}

template <class T>
void gather(const void* x, const std::int32_t* indices, void* y, std::int64_t width, std::int64_t begin, std::int64_t end) {
  // Moved as f32 words of either type: a bf16 row of odd width ends in half a word.
  constexpr std::int64_t kWord = 4 / static_cast<std::int64_t>(sizeof(T));
  const T* source = static_cast<const T*>(x);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* next = next_row(source, indices, width, row, end);
    const T* from = source + indices[row] * width;
    T* to = static_cast<T*>(y) + row * width;
    const std::int64_t words = width / kWord / kLanes * kLanes;
    sweep_fours(words, [&](std::int64_t i, auto n) {
      prefetch(reinterpret_cast<const float*>(next) + i, n);
      store(reinterpret_cast<float*>(to) + i, load(reinterpret_cast<const float*>(from) + i, n), n);
    });
    const std::int64_t done = words * kWord;
    if (done < width) __builtin_memcpy(static_cast<void*>(to + done), static_cast<const void*>(from + done), static_cast<std::size_t>(width - done) * sizeof(T));
  }
}

template <class T>
void scatter_add(const ScatterArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = a.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* f = static_cast<const T*>(a.f) + row * width;
    T* y = static_cast<T*>(a.y) + a.indices[row] * width;
    const T* next = next_row(static_cast<const T*>(a.y), a.indices, width, row, end);
    const vf g = splat(a.scale ? a.scale[row] : 1.0f);
    sweep_fours(width, [&](std::int64_t i, auto n) {
      prefetch(next + i, n);
      const auto v = load(f + i, n);
      using V = decltype(load(f + i, n));
      store(y + i, fma(V(g), v, load(y + i, n)), n);
    });
  }
}

template <class T>
void scatter_grad(const ScatterGradArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = a.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* dy = static_cast<const T*>(a.dy) + a.indices[row] * width;
    const T* f = static_cast<const T*>(a.f) + row * width;
    T* df = static_cast<T*>(a.df) + row * width;
    const T* next = next_row(static_cast<const T*>(a.dy), a.indices, width, row, end);
    const vf g = splat(a.gate[row]);
    vw dot = vf{};
    sweep_fours(width, [&](std::int64_t i, auto n) {
      prefetch(next + i, n);
      const auto d = load(dy + i, n);
      using V = decltype(load(dy + i, n));
      fma_to(dot, d, load(f + i, n));
      store(df + i, V(g) * d, n);
    });
    a.dscore[row] = a.derivative[row] * sum(dot);
  }
}

template <class T>
void embedding(const void* table, const std::int32_t* ids, const void* position_table, const std::int32_t* positions, void* y,
               std::int64_t width, std::int64_t begin, std::int64_t end) {
  const T* source = static_cast<const T*>(table);
  if (!position_table) return gather<T>(table, ids, y, width, begin, end);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* e = source + ids[row] * width;
    const T* p = static_cast<const T*>(position_table) + positions[row] * width;
    T* out = static_cast<T*>(y) + row * width;
    const T* next = next_row(source, ids, width, row, end);
    const T* next_position = next_row(static_cast<const T*>(position_table), positions, width, row, end);
    sweep_fours(width, [&](std::int64_t i, auto n) {
      prefetch(next + i, n);
      prefetch(next_position + i, n);
      store(out + i, load(e + i, n) + load(p + i, n), n);
    });
  }
}

// An order entry is an id and, in its low half, a row; entries ascend. A range sums the groups of one id that begin in it: rows ascending, the f32 sum rounded once. The next
// group's first row is asked for.
template <class T>
void sum_rows(const void* dy, const std::uint64_t* order, std::int64_t count, void* gradient, std::int64_t width, std::int64_t begin, std::int64_t end) {
  const auto id = [&](std::int64_t i) { return order[i] >> 32; };
  const auto row = [&](std::int64_t i) { return static_cast<const T*>(dy) + static_cast<std::int64_t>(order[i] & 0xffffffffu) * width; };
  std::int64_t at = begin;
  while (at > 0 && at < end && id(at) == id(at - 1)) ++at;
  while (at < end) {
    std::int64_t last = at + 1;
    while (last < count && id(last) == id(at)) ++last;
    const T *first = row(at), *next = row(last < count ? last : at);
    T* y = static_cast<T*>(gradient) + static_cast<std::int64_t>(id(at)) * width;
    if (last == at + 1) {
      sweep_fours(width, [&](std::int64_t i, auto n) {
        prefetch(next + i, n);
        store(y + i, load(first + i, n) + load(y + i, n), n);
      });
      at = last;
      continue;
    }
    sweep_fours(width, [&](std::int64_t i, auto n) {
      prefetch(next + i, n);
      auto acc = load(first + i, n);
      for (std::int64_t j = at + 1; j < last; ++j) acc = acc + load(row(j) + i, n);
      store(y + i, acc + load(y + i, n), n);
    });
    at = last;
  }
}

template <class T>
void combine(const void* rows, const std::int32_t* slots, const float* weights, std::int64_t top_k, void* y, bool accumulate,
             std::int64_t width, std::int64_t begin, std::int64_t end) {
  const T* source = static_cast<const T*>(rows);
  for (std::int64_t token = begin; token < end; ++token) {
    const std::int32_t* slot = slots + token * top_k;
    const float* weight = weights ? weights + token * top_k : nullptr;
    T* out = static_cast<T*>(y) + token * width;
    sweep(width, [&](std::int64_t i, auto n) {
      vf acc = {};
      for (std::int64_t j = 0; j < top_k; ++j) {
        if (slot[j] < 0) continue;
        acc = fma(splat(weight ? weight[j] : 1.0f), load(source + slot[j] * width + i, n), acc);
      }
      if (accumulate) acc = acc + load(out + i, n);
      store(out + i, acc, n);
    });
  }
}

template <class T>
void combine_grad(const void* dy, const void* rows, const std::int32_t* slots, const float* weights, std::int64_t top_k, void* drows,
                  float* dweights, std::int64_t width, std::int64_t begin, std::int64_t end) {
  for (std::int64_t token = begin; token < end; ++token) {
    const T* g = static_cast<const T*>(dy) + token * width;
    for (std::int64_t j = 0; j < top_k; ++j) {
      const std::int64_t at = token * top_k + j;
      if (slots[at] < 0) {
        dweights[at] = 0;
        continue;
      }
      const T* row = static_cast<const T*>(rows) + slots[at] * width;
      T* out = static_cast<T*>(drows) + slots[at] * width;
      const vf w = splat(weights[at]);
      dweights[at] = sum_over(width, [&](std::int64_t i, vf acc, auto n) {
        const vf d = load(g + i, n);
        const vf next = fma(d, load(row + i, n), acc);
        store(out + i, w * d, n);
        return next;
      });
    }
  }
}

// One dot product per row, each with the same four accumulators whatever the range: r depends on neither threads nor batch.
template <class T>
void scores(const void* x, const void* w, float bias, float* r, std::int64_t width, std::int64_t begin, std::int64_t end) {
  const T* weight = static_cast<const T*>(w);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* p = static_cast<const T*>(x) + row * width;
    vw dot = vf{};
    sweep_fours(width, [&](std::int64_t i, auto n) { fma_to(dot, load(p + i, n), load(weight + i, n)); });
    r[row] = bias + sum(dot);
  }
}

template <class T>
void outer_add(const float* dr, const void* w, const std::int32_t* indices, void* dx, std::int64_t width, std::int64_t begin,
               std::int64_t end) {
  const T* weight = static_cast<const T*>(w);
  for (std::int64_t row = begin; row < end; ++row) {
    T* out = static_cast<T*>(dx) + (indices ? indices[row] : row) * width;
    const vf d = splat(dr[row]);
    sweep_fours(width, [&](std::int64_t i, auto n) {
      using V = decltype(load(out + i, n));
      store(out + i, fma(V(d), load(weight + i, n), load(out + i, n)), n);
    });
  }
}
