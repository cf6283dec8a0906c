// What is run: phase, batch, length, types and policies. Together with a Network it decides the op list completely.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/dtype.hpp"
#include "lib/fraction.hpp"
#include "lib/op.hpp"

namespace fathom {

enum class Phase : std::uint8_t { kTrain, kPrefill, kDecode, kGenerate };
enum class LogitsKind : std::uint8_t { kAll, kLast, kNone };
enum class Recompute : std::uint8_t { kNone, kSelective, kFull, kNamed };
enum class MlaStrategy : std::uint8_t { kNaive, kAbsorbed, kDecompress };

// Between which ops nothing passes through memory. The default is what the op list and the kernels do; the rest changes
// bytes and memory only, and is counted, not executed.
struct Fusions {
  bool qkv = true;        // q, k and v are one product: their input is read once
  bool attention = true;  // scores and probabilities stay inside the kernel
  bool gate_up = false;   // gate, up and their product: one read of the input, and gate and up stay inside
  bool norm = false;      // a norm is the head of the products that read it
  bool residual = false;  // a residual sum is the tail of the product that it adds
  friend bool operator==(const Fusions&, const Fusions&) = default;
};

struct Scenario {
  Phase phase = Phase::kPrefill;
  std::int64_t batch = 1;
  std::int64_t length = 2048;   // new tokens per sequence (train, prefill); prompt tokens (generate)
  std::int64_t past = 0;        // cached tokens before a chunk of prefill
  std::int64_t context = 0;     // decode: keys visible to the new token, itself included
  std::int64_t tokens = 0;      // generate: output tokens
  DType dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  DType grad_dtype = DType::kF32;
  LogitsKind logits = LogitsKind::kLast;
  std::optional<RoutingRule> routing;     // default: top-k in train and prefill, threshold in decode and generate
  std::optional<Fraction> participation;  // decode and threshold prefill: p; default: the declared capacity
  Recompute recompute = Recompute::kNone;
  std::vector<std::string> recompute_ops{};  // kNamed: op names ("attn/core"), their first parts ("mlp") or kinds ("activation")
  MlaStrategy mla = MlaStrategy::kNaive;
  bool full_mask = false;               // count the whole square instead of the causal triangle
  std::int64_t kv_page = 1;             // cache rows per page
  std::int64_t grad_accumulation = 1;   // micro-steps per optimizer step; the step's loss is the mean of theirs
  bool optimizer = true;                // train: include gradient clipping and AdamW
  bool write_cache = true;              // prefill: append keys and values to the cache
  std::optional<DType> weight_dtype{};  // of the matrices inside the layers, routers apart; absent: the network's, else dtype
  Fusions fusions{};

  RoutingRule rule() const;
  double micro_weight() const { return 1.0 / static_cast<double>(grad_accumulation); }  // of a micro-step's losses in the step's
  friend bool operator==(const Scenario&, const Scenario&) = default;
};

std::string_view phase_name(Phase phase);
Phase parse_phase(std::string_view text);
std::string_view logits_name(LogitsKind logits);
LogitsKind parse_logits(std::string_view text);
std::string_view routing_name(RoutingRule rule);
RoutingRule parse_routing(std::string_view text);
std::string_view recompute_name(Recompute recompute);
// "none", "selective", "full", or op names joined by ',' or '+' (kNamed): sets recompute and recompute_ops.
void parse_recompute(std::string_view text, Scenario& scenario);
// What parse_recompute reads.
std::string recompute_text(const Scenario& scenario);

// "all", "none", or names of groups joined by ',' or '+': qkv, attention, gate-up, norm, residual.
Fusions parse_fusions(std::string_view text);
std::string fusions_text(const Fusions& fusions);

std::string_view mla_name(MlaStrategy mla);
MlaStrategy parse_mla(std::string_view text);

// Throws Error(kInput) on sizes that are zero where they may not be, negative, or contradictory.
void validate(const Scenario& scenario);

}  // namespace fathom
