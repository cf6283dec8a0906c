// The products of experts: rows sorted by expert, each expert's rows times its own weight set (op list: Gemm with experts > 1).
//
// How many rows an expert gets is known only at run time, so there is one plan per padded row count, made up front and shared by all experts; an
// expert with few rows streams its weights (gemv.hpp), one with none does not touch them. Padded rows of one expert spill into the rows
// of the next, which is computed after it; where that is impossible (last expert, accumulation) the rows go through scratch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.hpp"
#include "lib/op.hpp"

namespace fathom::cpu {

class GroupedGemm {
 public:
  // expert_room: bytes that one expert's weights may take when packed (those of the plain ones); -1: keep them plain.
  GroupedGemm(const fathom::Gemm& op, std::int64_t expert_room, int threads);

  // Operands of all experts: rows offsets[e] .. offsets[e+1]-1 of x and y belong to expert e, whose weights are the e-th of w. y_room: rows that
  // x and y have room for. Forward: y = x w (+ bias [experts][out]). Input gradient: x is dy, y is dx. Weight gradient: y is dw, w is dy.
  struct Call {
    const std::int32_t* offsets = nullptr;
    const void* x = nullptr;
    const void* w = nullptr;
    void* y = nullptr;
    const float* bias = nullptr;
    std::int64_t y_room = 0;
    void* scratch = nullptr;
  };
  void run(const Call& call) const;

  std::int64_t scratch_bytes() const;
  bool packed() const { return packed_; }
  std::int64_t pack_bytes() const { return packed_ ? cache_->packed_bytes() : 0; }  // of one expert
  void pack(const void* w, void* packed) const { cache_->pack(w, packed); }
  // FLOPs of the products that run() makes for these offsets, padding included.
  std::int64_t executed_flops(const std::int32_t* offsets) const;
  std::string impl() const;

 private:
  void run_rows(const Call& call, std::int64_t expert) const;
  void run_weight_gradient(const Call& call, std::int64_t expert) const;
  const GemmPlan& weight_plan(std::int64_t rows) const { return weight_plans_[static_cast<size_t>((rows - 1) / kStep)]; }

  static constexpr std::int64_t kStep = 32;
  fathom::Gemm op_;
  int threads_;
  bool packed_ = false;
  std::int64_t gemv_rows_ = 0;
  std::int64_t max_rows_ = 0;            // of one expert
  std::optional<GemmCache> cache_;       // forward, input gradient
  std::vector<GemmPlan> weight_plans_;   // weight gradient: for kStep, 2 kStep, ... rows
};

}  // namespace fathom::cpu
