// Products on parts of rows: operands that are columns of wider rows, or rows of several parts with a weight each (op list: Gemm with strides,
// an offset, or batch > 1; latent attention and adapters).
//
// The blocked products want dense operands, so parts are copied out and back; a few rows stream with strides instead (gemv.hpp). The copies are a
// fraction (in + out) / (in x out) of the product's multiply-adds.
#pragma once

#include <optional>
#include <string>

#include "kernels/cpu/gemm.hpp"
#include "lib/op.hpp"

namespace fathom::cpu {

// Whether this product needs one.
inline bool has_parts(const fathom::Gemm& op) { return op.batch > 1 || op.in_stride > 0 || op.out_stride > 0 || op.out_offset > 0; }

class PartGemm {
 public:
  PartGemm(const fathom::Gemm& op, int threads);

  // first, second, result: the op's operands in its role (x, w, y | dy, w, dx | x, dy, dw). bias: [batch * out] f32, forward only.
  // db: [batch * out] of db_type, weight gradient only; null: not wanted.
  struct Call {
    std::int64_t rows = 0;
    const void* first = nullptr;
    const void* second = nullptr;
    void* result = nullptr;
    const float* bias = nullptr;
    void* db = nullptr;
    DType db_type = DType::kF32;
    void* scratch = nullptr;
  };
  void run(const Call& call) const;

  std::int64_t scratch_bytes() const;
  std::int64_t executed_flops(std::int64_t rows) const;
  std::string impl() const;

 private:
  const GemmPlan& plan(std::int64_t rows) const { return plan_ ? *plan_ : cache_->plan(rows); }
  bool streams(std::int64_t rows) const;
  std::int64_t in_stride() const { return op_.in_stride > 0 ? op_.in_stride : op_.batch * op_.in; }
  std::int64_t out_stride() const { return op_.out_stride > 0 ? op_.out_stride : op_.batch * op_.out; }
  std::int64_t in_at(std::int64_t part) const { return part * (op_.batch_stride > 0 ? op_.batch_stride : op_.in); }
  std::int64_t out_at(std::int64_t part) const { return op_.out_offset + part * op_.out; }
  void run_part(const Call& call, std::int64_t part) const;

  fathom::Gemm op_;
  int threads_;
  std::optional<GemmPlan> plan_;    // fixed rows
  std::optional<GemmCache> cache_;  // rows known at run time
};

}  // namespace fathom::cpu
