// Rows for the core of latent attention: copies of queries, keys and values per head, and their gradients taken apart again (lib/op.hpp).
#include <algorithm>
#include <cstring>

#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/ranges.hpp"

namespace fathom::cpu {
namespace {

// Copies to (or from) a place that moves on.
class Cursor {
 public:
  Cursor(std::byte* at, std::int64_t size) : at_(at), size_(size) {}
  void put(const std::byte* from, std::int64_t count) { std::memcpy(at_, from, bytes(count)), at_ += bytes(count); }
  void get(std::byte* to, std::int64_t count) { std::memcpy(to, at_, bytes(count)), at_ += bytes(count); }
  std::byte* here() const { return at_; }
  void skip(std::int64_t count) { at_ += bytes(count); }

 private:
  size_t bytes(std::int64_t count) const { return static_cast<size_t>(count * size_); }
  std::byte* at_;
  std::int64_t size_;
};

}  // namespace

void run_op(const fathom::LatentHeads& op, const OpCall& call) {
  const std::int64_t size = dtype_bytes(op.act), qk = op.qk_dim(), part = op.nope_dim + op.v_dim, width = op.row_width();
  const auto row_of = [&](size_t i, std::int64_t r) { return call.in(i).data + r * call.in(i).cols * size; };
  const size_t latent_at = op.queries ? 1 : 0;
  over_ranges(call.rows(), call.threads, 2 * width * size, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      Cursor out(call.out(0).data + r * width * size, size);
      if (op.absorbed) {
        for (std::int64_t h = 0; h < op.heads; ++h) {
          out.put(row_of(1, r) + h * op.rank * size, op.rank);
          out.put(row_of(0, r) + (h * qk + op.nope_dim) * size, op.rope_dim);
        }
        continue;
      }
      if (op.queries) out.put(row_of(0, r), op.heads * qk);
      const std::byte* rotated = row_of(latent_at, r) + op.rank * size;
      const std::byte* parts = row_of(latent_at + 1, r);
      for (std::int64_t h = 0; h < op.heads; ++h) {
        out.put(parts + h * part * size, op.nope_dim);
        out.put(rotated, op.rope_dim);
      }
      for (std::int64_t h = 0; h < op.heads; ++h) out.put(parts + (h * part + op.nope_dim) * size, op.v_dim);
    }
  });
}

void run_op(const fathom::LatentHeadsBackward& op, const OpCall& call) {
  const fathom::LatentHeads& f = op.forward;
  const std::int64_t size = dtype_bytes(f.act), qk = f.qk_dim(), part = f.nope_dim + f.v_dim;
  const size_t latent_at = f.queries ? 1 : 0;
  const auto row_of = [&](size_t i, std::int64_t r) { return call.out(i).data + r * call.out(i).cols * size; };
  float* sum = reinterpret_cast<float*>(call.scratch);  // of the heads' rotated keys
  for (std::int64_t r = 0; r < call.rows(); ++r) {
    Cursor in(call.in(0).data + r * call.in(0).cols * size, size);
    if (f.queries) in.get(row_of(0, r), f.heads * qk);
    std::byte* latent = row_of(latent_at, r);
    std::byte* parts = row_of(latent_at + 1, r);
    std::memset(latent, 0, static_cast<size_t>(call.out(latent_at).cols * size));
    std::fill_n(sum, f.rope_dim, 0.0f);
    for (std::int64_t h = 0; h < f.heads; ++h) {
      in.get(parts + h * part * size, f.nope_dim);
      for (std::int64_t i = 0; i < f.rope_dim; ++i)
        sum[i] += f.act == DType::kF32 ? reinterpret_cast<const float*>(in.here())[i] : static_cast<float>(reinterpret_cast<const bf16*>(in.here())[i]);
      in.skip(f.rope_dim);
    }
    store_values({sum, static_cast<size_t>(f.rope_dim)}, f.act, latent + f.rank * size);
    for (std::int64_t h = 0; h < f.heads; ++h) in.get(parts + (h * part + f.nope_dim) * size, f.v_dim);
  }
}

}  // namespace fathom::cpu
