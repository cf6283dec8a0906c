// What an op asks of a machine, as plain numbers: the input of every time model.
//
// From the exact cost at an executed size; bytes are the distinct ones, split into weights (which may be read once for all
// rows) and the rest. Exponentials and selections are not FLOPs but take time of their own.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/cost.hpp"
#include "lib/machine.hpp"
#include "lib/op.hpp"

namespace fathom {

// Ops that share a time model and whose errors go together.
enum class OpClass : std::uint8_t {
  kGemm, kAttention, kNorm, kActivation, kResidual, kRope, kRouter, kSelect, kGather, kScatter, kEmbedding, kKvAppend, kLoss, kOptimizer,
};
inline constexpr int kOpClasses = 14;
std::string_view op_class_name(OpClass c);
OpClass op_class(const OpSpec& spec);

struct OpWork {
  double rows = 0;
  double flops = 0;         // executed multiply-adds x 2, recomputation of fused kernels included
  double read = 0;          // bytes
  double written = 0;
  double exponentials = 0;  // elements that need one exp (softmax, GELU, SiLU, sigmoid)
  double candidates = 0;    // elements a selection looks at
  double lanes = 1;         // independent selections: no more threads than this can share them
  DType dtype = DType::kF32;  // whose peak applies
  Access access = Access::kCopy;
};

OpWork work_of(const OpSpec& spec, const Executed& executed);

// The size of an op when `rows` of its declared rows run (expected pairs, keys and distinct experts given that many).
// Equal to declared(spec) at the declared count.
Executed sized(const OpSpec& spec, std::int64_t rows);

}  // namespace fathom
