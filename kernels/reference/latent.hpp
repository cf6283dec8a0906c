// Rows for the core of latent attention: copies of queries, keys and values per head, and their gradients taken apart again.
#pragma once

#include <algorithm>

#include "kernels/reference/matrix.hpp"
#include "lib/op.hpp"

namespace fathom::reference {

// Naive: y = [q | k of every head: nope part of kv, then the latent row's rotated key | v of every head]; without q where there are no queries.
// Absorbed: y = per head qa, then the rotated part of q.
template <class T>
void latent_heads(const LatentHeads& s, std::int64_t rows, Matrix<T> q, Matrix<T> latent, Matrix<T> parts, Matrix<T> y) {
  const std::int64_t qk = s.qk_dim();
  for (std::int64_t r = 0; r < rows; ++r) {
    T* out = y.row(r);
    if (s.absorbed) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        out = std::copy(parts.row(r) + h * s.rank, parts.row(r) + (h + 1) * s.rank, out);
        out = std::copy(q.row(r) + h * qk + s.nope_dim, q.row(r) + (h + 1) * qk, out);
      }
      continue;
    }
    const std::int64_t part = s.nope_dim + s.v_dim;
    if (s.queries) out = std::copy(q.row(r), q.row(r) + s.heads * qk, out);
    for (std::int64_t h = 0; h < s.heads; ++h) {
      out = std::copy(parts.row(r) + h * part, parts.row(r) + h * part + s.nope_dim, out);
      out = std::copy(latent.row(r) + s.rank, latent.row(r) + s.rank + s.rope_dim, out);
    }
    for (std::int64_t h = 0; h < s.heads; ++h) out = std::copy(parts.row(r) + h * part + s.nope_dim, parts.row(r) + (h + 1) * part, out);
  }
}

// Naive only. dlatent is overwritten: zeros, and the sum of the heads' rotated keys.
template <class T>
void latent_heads_backward(const LatentHeads& s, std::int64_t rows, Matrix<T> dy, Matrix<T> dq, Matrix<T> dlatent, Matrix<T> dparts) {
  const std::int64_t qk = s.qk_dim(), part = s.nope_dim + s.v_dim;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* in = dy.row(r);
    if (s.queries) {
      std::copy(in, in + s.heads * qk, dq.row(r));
      in += s.heads * qk;
    }
    for (std::int64_t c = 0; c < dlatent.cols; ++c) dlatent(r, c) = T(0);
    for (std::int64_t h = 0; h < s.heads; ++h, in += qk) {
      std::copy(in, in + s.nope_dim, dparts.row(r) + h * part);
      for (std::int64_t c = 0; c < s.rope_dim; ++c) dlatent(r, s.rank + c) += in[s.nope_dim + c];
    }
    for (std::int64_t h = 0; h < s.heads; ++h, in += s.v_dim) std::copy(in, in + s.v_dim, dparts.row(r) + h * part + s.nope_dim);
  }
}

}  // namespace fathom::reference
