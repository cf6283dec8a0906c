// softmax(Q K^T / sqrt(d) + mask) V, row by row with the scores of one query at a time; its backward; and decode over a KV cache.
//
// Rows of the qkv buffer are [q heads | k heads | v heads]; query head h reads key head h / (heads / kv_heads). With shared_kv (absorbed MLA)
// there are no v heads: a value is the first v_dim elements of its key.
// Visible (on original positions P): causal P_k <= P_q; window W > 0: P_q - P_k < W; chunk K > 0: the same chunk of K.
// A full mask sees every row of its sequence. Cache rows are [sequence][slot], each [k of all kv heads | v of all kv heads].
#pragma once

#include <cmath>

#include "kernels/reference/counting.hpp"
#include "kernels/reference/matrix.hpp"
#include "lib/op.hpp"

namespace fathom::reference {

struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
  Mask mask;
  bool shared_kv = false;
  bool apart = false;  // keys and values are rows of their own tensor
  std::int64_t scale_dim = 0;

  std::int64_t k_at() const { return apart ? 0 : heads * qk_dim; }
  std::int64_t v_at() const { return shared_kv ? k_at() : k_at() + kv_heads * qk_dim; }
  std::int64_t v_stride() const { return shared_kv ? qk_dim : v_dim; }
  std::int64_t kv_head(std::int64_t head) const { return head / (heads / kv_heads); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(scale_dim > 0 ? scale_dim : qk_dim)); }
  bool visible(std::int64_t query, std::int64_t key) const {
    if (mask.kind == MaskKind::kFull) return true;
    if (key > query) return false;
    if (mask.window > 0 && query - key >= mask.window) return false;
    return mask.chunk <= 0 || query / mask.chunk == key / mask.chunk;
  }
};

inline AttentionShape shape_of(const Attention& op) { return {op.heads, op.kv_heads, op.qk_dim, op.v_dim, op.mask, op.shared_kv, op.apart, op.scale_dim}; }

// What was really computed.
struct AttentionExtent {
  u128 pairs = 0;
  std::int64_t keys = 0;  // key rows that some query sees
};

template <class T>
struct AttentionOperands {
  Matrix<T> qkv, o, lse;  // lse may be empty; [rows, heads], natural logarithm
  const std::int32_t* positions = nullptr;
  Matrix<T> kv;                                // apart only
  const std::int32_t* kv_positions = nullptr;
  Matrix<T> sinks;                             // one logit per head that joins the denominator; may be empty

  const Matrix<T>& keys() const { return kv ? kv : qkv; }
  const std::int32_t* key_positions() const { return kv ? kv_positions : positions; }
  std::int64_t key_rows(size_t sequence, const std::vector<std::int64_t>& rows, std::int64_t sequences) const {
    return kv ? kv.rows / sequences : rows[sequence];
  }
};

// One query head against `count` keys given by key(j) and value(j), each a pointer; writes out[v_dim] and returns the log-sum-exp.
// A query that sees nothing gets zeros and -infinity.
template <class T, class Key, class Val>
T attend(const AttentionShape& s, const T* q, std::int64_t count, const Key& key, const Val& value, T* out, const T* sink) {
  using std::exp;
  using std::log;
  std::vector<T> scores(static_cast<size_t>(count));
  T top = sink ? *sink : T(-INFINITY);
  for (std::int64_t j = 0; j < count; ++j) {
    T dot = T(0);
    const T* k = key(j);
    for (std::int64_t i = 0; i < s.qk_dim; ++i) mac(dot, q[i], k[i]);
    scores[static_cast<size_t>(j)] = dot * T(s.scale());
    if (scores[static_cast<size_t>(j)] > top) top = scores[static_cast<size_t>(j)];
  }
  for (std::int64_t i = 0; i < s.v_dim; ++i) out[i] = T(0);
  if (count == 0) return top;
  T sum = sink ? exp(*sink - top) : T(0);
  for (T& score : scores) {
    score = exp(score - top);
    sum += score;
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const T p = scores[static_cast<size_t>(j)] / sum;
    const T* v = value(j);
    for (std::int64_t i = 0; i < s.v_dim; ++i) mac(out[i], p, v[i]);
  }
  return top + log(sum);
}

// Self-attention of each sequence's rows among themselves.
template <class T>
AttentionExtent attention(const AttentionShape& s, const RowsPerSequence& sequences, const AttentionOperands<T>& a) {
  AttentionExtent extent;
  const std::int64_t count = static_cast<std::int64_t>(sequences.size());
  std::int64_t first = 0, first_key = 0;
  for (size_t q = 0; q < sequences.size(); ++q) {
    const std::int64_t rows = sequences[q], key_rows = a.key_rows(q, sequences, count);
    std::vector<bool> seen(static_cast<size_t>(key_rows), false);
    for (std::int64_t b = first; b < first + rows; ++b) {
      std::vector<std::int64_t> keys;
      for (std::int64_t c = first_key; c < first_key + key_rows; ++c) {
        if (!s.visible(a.positions[b], a.key_positions()[c])) continue;
        keys.push_back(c);
        seen[static_cast<size_t>(c - first_key)] = true;
      }
      extent.pairs += keys.size();
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t kv = s.kv_head(h);
        const auto key = [&](std::int64_t j) { return a.keys().row(keys[static_cast<size_t>(j)]) + s.k_at() + kv * s.qk_dim; };
        const auto value = [&](std::int64_t j) { return a.keys().row(keys[static_cast<size_t>(j)]) + s.v_at() + kv * s.v_stride(); };
        const T lse = attend(s, static_cast<const T*>(a.qkv.row(b) + h * s.qk_dim), static_cast<std::int64_t>(keys.size()), key, value,
                             a.o.row(b) + h * s.v_dim, a.sinks ? static_cast<const T*>(a.sinks.data + h) : nullptr);
        if (a.lse) a.lse(b, h) = lse;
      }
    }
    for (const bool key : seen) extent.keys += key;
    first += rows, first_key += key_rows;
  }
  return extent;
}

// Attention over the cache: the `n` new rows of a sequence are the last n of its `counts` cached keys, so new row j sees the first
// counts - n + j + 1 of them. Cached positions are slot numbers where the list is complete (the only case with a window or chunk).
template <class T>
AttentionExtent cached_attention(const AttentionShape& s, const RowsPerSequence& sequences, const AttentionOperands<T>& a, Matrix<T> cache,
                                 const std::int32_t* counts, const std::int32_t* kept) {
  AttentionExtent extent;
  const std::int64_t room = cache.rows / static_cast<std::int64_t>(sequences.size());
  const std::int64_t cache_v_at = s.shared_kv ? 0 : s.kv_heads * s.qk_dim;
  std::int64_t row = 0;
  for (size_t b = 0; b < sequences.size(); ++b) {
    const std::int64_t n = sequences[b];
    std::vector<bool> seen(static_cast<size_t>(counts[b]), false);
    for (std::int64_t j = 0; j < n; ++j, ++row) {
      // Where every token keeps keys and only some query, a query's place in the list is its position.
      const std::int64_t own = a.kv && a.kv_positions != a.positions ? a.positions[row] : counts[b] - n + j;
      const std::int64_t last = s.mask.kind == MaskKind::kFull ? counts[b] : own + 1;
      std::vector<std::int64_t> keys;
      for (std::int64_t slot = 0; slot < last; ++slot) {
        const bool limited = s.mask.window > 0 || s.mask.chunk > 0;
        if (limited && !s.visible(a.positions[row], kept ? kept[static_cast<std::int64_t>(b) * room + slot] : slot)) continue;
        keys.push_back(static_cast<std::int64_t>(b) * room + slot);
        seen[static_cast<size_t>(slot)] = true;
      }
      extent.pairs += keys.size();
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t kv = s.kv_head(h);
        const auto key = [&](std::int64_t k) { return cache.row(keys[static_cast<size_t>(k)]) + kv * s.qk_dim; };
        const auto value = [&](std::int64_t k) { return cache.row(keys[static_cast<size_t>(k)]) + cache_v_at + kv * s.v_stride(); };
        const T lse = attend(s, static_cast<const T*>(a.qkv.row(row) + h * s.qk_dim), static_cast<std::int64_t>(keys.size()), key, value,
                             a.o.row(row) + h * s.v_dim, a.sinks ? static_cast<const T*>(a.sinks.data + h) : nullptr);
        if (a.lse) a.lse(row, h) = lse;
      }
    }
    for (const bool key : seen) extent.keys += key;
  }
  return extent;
}

// dQ, dK, dV by the saved log-sum-exp, repeating QK^T as fused kernels do: with D = <dO, O>,
//   P = exp(S - lse), dV += P dO, dP = dO V^T, dS = P (dP - D) scale, dQ += dS K, dK += dS Q.
// With a sink t: dt = -sum over queries of P_t <dO, O>, P_t = exp(t - lse). dq and dkv are one tensor unless apart.
template <class T>
AttentionExtent attention_backward(const AttentionShape& s, const RowsPerSequence& sequences, const AttentionOperands<T>& a, Matrix<T> d_o,
                                   Matrix<T> dq_rows, Matrix<T> dkv_rows, Matrix<T> dsinks) {
  using std::exp;
  AttentionExtent extent;
  const std::int64_t count = static_cast<std::int64_t>(sequences.size());
  std::int64_t first = 0, first_key = 0;
  for (size_t sequence = 0; sequence < sequences.size(); ++sequence) {
    const std::int64_t rows = sequences[sequence], key_rows = a.key_rows(sequence, sequences, count);
    for (std::int64_t b = first; b < first + rows; ++b)
      for (std::int64_t c = 0; c < dq_rows.cols; ++c) dq_rows(b, c) = T(0);
    for (std::int64_t b = first_key; b < first_key + key_rows; ++b)
      for (std::int64_t c = 0; c < dkv_rows.cols; ++c) dkv_rows(b, c) = T(0);
    std::vector<bool> seen(static_cast<size_t>(key_rows), false);
    for (std::int64_t b = first; b < first + rows; ++b) {
      for (std::int64_t c = first_key; c < first_key + key_rows; ++c) {
        if (!s.visible(a.positions[b], a.key_positions()[c])) continue;
        ++extent.pairs;
        seen[static_cast<size_t>(c - first_key)] = true;
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const std::int64_t kv = s.kv_head(h);
          const T* q = a.qkv.row(b) + h * s.qk_dim;
          const T* k = a.keys().row(c) + s.k_at() + kv * s.qk_dim;
          const T* v = a.keys().row(c) + s.v_at() + kv * s.v_stride();
          const T* o = a.o.row(b) + h * s.v_dim;
          const T* g = d_o.row(b) + h * s.v_dim;
          T* dq = dq_rows.row(b) + h * s.qk_dim;
          T* dk = dkv_rows.row(c) + s.k_at() + kv * s.qk_dim;
          T* dv = dkv_rows.row(c) + s.v_at() + kv * s.v_stride();
          T score = T(0), dp = T(0), delta = T(0);
          for (std::int64_t i = 0; i < s.qk_dim; ++i) mac(score, q[i], k[i]);
          const T p = exp(score * T(s.scale()) - a.lse(b, h));
          for (std::int64_t i = 0; i < s.v_dim; ++i) {
            mac(dp, g[i], v[i]);
            mac(dv[i], p, g[i]);
            delta += g[i] * o[i];
          }
          const T ds = p * (dp - delta) * T(s.scale());
          for (std::int64_t i = 0; i < s.qk_dim; ++i) {
            mac(dq[i], ds, k[i]);
            mac(dk[i], ds, q[i]);
          }
        }
      }
      for (std::int64_t h = 0; dsinks && h < s.heads; ++h) {
        T delta = T(0);
        for (std::int64_t i = 0; i < s.v_dim; ++i) delta += d_o(b, h * s.v_dim + i) * a.o(b, h * s.v_dim + i);
        dsinks.data[h] -= exp(a.sinks.data[h] - a.lse(b, h)) * delta;
      }
    }
    for (const bool key : seen) extent.keys += key;
    first += rows, first_key += key_rows;
  }
  return extent;
}

}  // namespace fathom::reference
