// The vocabulary of the op list: what a step computes, one struct per op kind.
//
// Every consumer (counter, predictor, executor, reports) reads these structs and nothing else. Adding a kind to OpSpec makes
// the compiler ask for its cost rule (lib/cost_rules.cpp), its name and formula (lib/explain.cpp), its reference kernel
// (kernels/reference) and its entry in every backend. GEMMs are written Y[rows,out] = X[rows,in] W[in,out].
//
// Each struct lists its fields in fields(f), which calls f(name, value): fingerprints, `fathom explain` and tests use it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "lib/op_backward.hpp"
#include "lib/op_forward.hpp"

namespace fathom {

using OpSpec = std::variant<Embedding, RmsNorm, LayerNorm, Gemm, Rope, Attention, KvAppend, Activation, AddResidual, RouterScore, Select,
                            GatherRows, ScatterAddRows, ExpertSelect, ExpertDispatch, ExpertCombine, CrossEntropy, RouterLoss,
                            RmsNormBackward, LayerNormBackward, AttentionBackward, ActivationBackward, ScatterAddBackward, GatherBackward,
                            RouterScoreBackward, ExpertSelectBackward, ExpertCombineBackward, ExpertDispatchBackward, EmbeddingBackward,
                            GradientNorm, AdamW, LatentHeads, LatentHeadsBackward>;

template <class... Overloads>
struct overloaded : Overloads... {
  using Overloads::operator()...;
};
template <class... Overloads>
overloaded(Overloads...) -> overloaded<Overloads...>;

// "gemm", "attention", "rms_norm_backward", ...: stable names used in JSON (ops[].kind), tables and `fathom explain`.
std::string_view kind_name(const OpSpec& spec);
// The kind names in variant order, for lists and hints.
const std::array<std::string_view, std::variant_size_v<OpSpec>>& kind_names();

// The rows that this op declares (0 where an op has no row dimension).
Rows rows_of(const OpSpec& spec);
// Whether it runs on rows at all, be there none at this size: the optimizer does not.
bool has_rows(const OpSpec& spec);

// Which part of a model an op belongs to; totals are reported by part.
enum class Part : std::uint8_t {
  kEmbedding, kNorm, kProjection, kCore, kFfn, kExperts, kRouter, kPredictor, kRouting, kResidual, kKvCache, kLogits, kLoss, kAdapter, kMtp, kOptimizer,
};
inline constexpr int kPartCount = 16;
std::string_view part_name(Part part);

enum class Pass : std::uint8_t { kForward, kRecompute, kBackward, kOptimizer };
std::string_view pass_name(Pass pass);

}  // namespace fathom
