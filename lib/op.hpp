// The vocabulary of the op list: what a step computes, one struct per op kind.
//
// Every consumer (counter, predictor, executor, reports) reads these structs and nothing else. Adding a kind to OpSpec makes
// the compiler ask for its cost rule (lib/cost.cpp), its name and formula (lib/explain.cpp), its reference kernel
// (kernels/reference) and its entry in every backend. Symbols follow SPEC_COUNT 2; GEMMs are written Y[rows,out] = X[rows,in] W[in,out].
//
// Each struct lists its fields in fields(f), which calls f(name, value): fingerprints, `fathom explain` and tests use it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "lib/dtype.hpp"
#include "lib/fraction.hpp"
#include "lib/units.hpp"

namespace fathom {

// A row dimension. Fixed rows are always all executed. A routed dimension of a decode or threshold step holds at most `count`
// rows of which each is executed with `probability` (independent unless a scenario says otherwise): declared = count, expected =
// count x probability, executed = what a run reports. The three are never printed as one another.
struct Rows {
  std::int64_t count = 0;
  Fraction probability{1, 1};

  bool routed() const { return probability != Fraction{1, 1}; }
  double expected() const { return static_cast<double>(count) * probability.value(); }
  friend bool operator==(const Rows&, const Rows&) = default;
};

// ---- forward ----

// Gathers token rows of the table and, with learned positions, adds the position row. inputs: tokens, table[, positions, position table]; outputs: x.
struct Embedding {
  Rows rows;
  std::int64_t width = 0;
  bool learned_positions = false;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("learned_positions", learned_positions), f("act", act); }
};

// y = x / rms(x) * gain. `groups` norms per row (query/key norms: one per head). inputs: x, gain; outputs: y[, stats].
struct RmsNorm {
  Rows rows;
  std::int64_t width = 0;
  std::int64_t groups = 1;
  bool stats = false;  // saves 1/rms in f32 for the backward pass
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("groups", groups), f("stats", stats), f("act", act); }
};

// y = (x - mean) / std * gain + bias. inputs: x, gain, bias; outputs: y[, stats].
struct LayerNorm {
  Rows rows;
  std::int64_t width = 0;
  bool bias = true;
  bool stats = false;  // saves mean and 1/std in f32 for the backward pass
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("bias", bias), f("stats", stats), f("act", act); }
};

enum class GemmRole : std::uint8_t {
  kForward,         // Y[rows,out] = X[rows,in] W[in,out]; inputs: x, w[, bias][, offsets]; outputs: y
  kInputGradient,   // dX[rows,in] = dY[rows,out] W^T;     inputs: dy, w[, offsets];        outputs: dx
  kWeightGradient,  // dW[in,out] += X^T dY;               inputs: x, dy[, offsets];        outputs: dw[, db] (f32 sums, stored in the gradient's type)
};

// One matrix product, or with experts > 1 a grouped product: rows are split over `experts` weight sets by the offsets tensor.
// 2 * rows * in * out FLOP in every role. `transposed`: the weight is stored [out,in] (tied head: the token table).
struct Gemm {
  Rows rows;
  std::int64_t in = 0;
  std::int64_t out = 0;
  GemmRole role = GemmRole::kForward;
  bool bias = false;
  bool transposed = false;
  bool accumulate = false;     // adds to the output instead of overwriting it
  std::int64_t experts = 1;    // weight sets
  std::int64_t tokens = 0;     // grouped: tokens that choose, each `picks` experts (for the number of distinct experts read)
  std::int64_t picks = 0;
  DType act = DType::kF32;
  DType weight = DType::kF32;
  DType result = DType::kF32;  // type of the output
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("in", in), f("out", out), f("role", static_cast<int>(role)), f("bias", bias), f("transposed", transposed);
    f("accumulate", accumulate), f("experts", experts), f("tokens", tokens), f("picks", picks), f("act", act), f("weight", weight), f("result", result);
  }
};

// Rotates q and k in place by their original positions. `heads` = query plus key heads, `width` = rotated elements per head,
// `stride_width` = elements per head. inputs: qkv, positions; outputs: qkv (in place).
struct Rope {
  Rows rows;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t head_dim = 0;
  std::int64_t row_stride = 0;  // elements of one row of the qkv buffer
  double base = 10000.0;
  bool inverse = false;  // backward: rotates gradients back
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("heads", heads), f("width", width), f("head_dim", head_dim), f("row_stride", row_stride), f("base", base), f("inverse", inverse), f("act", act);
  }
};

enum class MaskKind : std::uint8_t { kCausal, kFull };

// Which (query, key) pairs are computed. A window of W keys includes the query itself; window and chunk act on original
// positions. 0 = none.
struct Mask {
  MaskKind kind = MaskKind::kCausal;
  std::int64_t window = 0;
  std::int64_t chunk = 0;
  friend bool operator==(const Mask&, const Mask&) = default;
};

// softmax(QK^T * scale + mask) V. One atomic op (fused kernels keep it atomic, so the count does too).
// `pairs` counts visible (query, key) pairs of all sequences with all rows executed; `keys` the key rows read.
// inputs: qkv, positions | cached: qkv, positions, cache, counts[, indices]; outputs: o[, lse].
struct Attention {
  Rows rows;                    // queries of all sequences
  std::int64_t sequences = 1;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t qk_dim = 0;      // query and key head size
  std::int64_t v_dim = 0;
  Mask mask;
  u128 pairs = 0;
  std::int64_t keys = 0;
  std::int64_t past = 0;        // keys per sequence that were cached before this step
  Fraction key_share{1, 1};     // decode in a routed block: share of the past that this block holds, in expectation
  bool cached = false;          // keys and values come from the KV cache (decode, chunked prefill)
  bool shared_kv = false;       // key and value are one latent store (absorbed MLA)
  bool lse = false;             // saves the log-sum-exp in f32 for the backward pass
  DType act = DType::kF32;
  DType kv = DType::kF32;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("sequences", sequences), f("heads", heads), f("kv_heads", kv_heads), f("qk_dim", qk_dim), f("v_dim", v_dim);
    f("mask", static_cast<int>(mask.kind)), f("window", mask.window), f("chunk", mask.chunk), f("pairs", pairs), f("keys", keys), f("past", past);
    f("key_share", key_share), f("cached", cached), f("shared_kv", shared_kv), f("lse", lse), f("act", act), f("kv", kv);
  }
};

// Appends the new keys and values to each sequence's list in the cache (ragged in routed blocks) and advances its count. `width` = elements of
// K and V per row. inputs: qkv[, indices (which stream rows these are)]; outputs: cache, counts (per sequence, in place).
struct KvAppend {
  Rows rows;
  std::int64_t width = 0;
  DType act = DType::kF32;
  DType kv = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("act", act), f("kv", kv); }
};

enum class ActivationKind : std::uint8_t { kGeluTanh, kGeluErf, kSilu, kRelu, kRelu2 };

// y = act(x), or gated: y = act(gate) * up. inputs: x | gate, up; outputs: y.
struct Activation {
  Rows rows;
  std::int64_t width = 0;
  ActivationKind kind = ActivationKind::kGeluTanh;
  bool gated = false;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("kind", static_cast<int>(kind)), f("gated", gated), f("act", act); }
};

// y = a + b. inputs: a, b; outputs: y (may share a's memory).
struct AddResidual {
  Rows rows;
  std::int64_t width = 0;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("act", act); }
};

// r = x w (+ b) in f32, fixed summation order. inputs: x, w[, b]; outputs: scores.
struct RouterScore {
  Rows rows;
  std::int64_t width = 0;
  bool bias = false;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("bias", bias), f("act", act); }
};

enum class RoutingRule : std::uint8_t { kTopK, kThreshold, kPredictor, kRandom };

// Chooses the rows of a routed block. Top-k: per sequence, order (-score, index), ascending result (SPEC_MOD 2.2).
// Threshold and predictor: score > 0, at most `slots` per sequence. inputs: scores[, positions]; outputs: indices, positions, counts.
struct Select {
  std::int64_t sequences = 1;
  std::int64_t length = 0;  // candidates per sequence
  Rows selected;            // rows chosen over all sequences
  RoutingRule rule = RoutingRule::kTopK;
  template <class F> void fields(F&& f) const { f("sequences", sequences), f("length", length), f("selected", selected), f("rule", static_cast<int>(rule)); }
};

// y = x[indices]. inputs: x, indices; outputs: y.
struct GatherRows {
  Rows rows;
  std::int64_t width = 0;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("act", act); }
};

enum class GateKind : std::uint8_t { kNone, kRaw, kSigmoid, kScaledSigmoid, kTanh };

// g(r) = 1, r, sigma(r), alpha sigma(r), alpha tanh(r) + beta.
struct Gate {
  GateKind kind = GateKind::kRaw;
  double alpha = 1.0;
  double beta = 0.0;
  friend bool operator==(const Gate&, const Gate&) = default;
};

// y = x, then y[indices] += g(score) * f, in place where x dies here. Indices are unique per sequence.
// inputs: x, f, indices, scores; outputs: y (shares x's memory).
struct ScatterAddRows {
  Rows rows;
  std::int64_t width = 0;
  Gate gate;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("width", width), f("gate", static_cast<int>(gate.kind)), f("alpha", gate.alpha), f("beta", gate.beta), f("act", act);
  }
};

// Token-to-expert routing: softmax (or sigmoid) over `experts` + `noops` logits, `picks` best, their weights, and the permutation that sorts
// assignments by expert. inputs: logits; outputs: expert rows (permutation), weights, offsets.
struct ExpertSelect {
  Rows rows;
  std::int64_t experts = 0;
  std::int64_t noops = 0;
  std::int64_t picks = 0;
  bool sigmoid = false;
  template <class F> void fields(F&& f) const { f("rows", rows), f("experts", experts), f("noops", noops), f("picks", picks), f("sigmoid", sigmoid); }
};

// y[j] = x[token of assignment j]. inputs: x, permutation; outputs: y.
struct ExpertDispatch {
  Rows rows;  // assignments
  std::int64_t width = 0;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("act", act); }
};

// y[token] = sum of weight_j * x[j] over the token's assignments. inputs: x, permutation, weights[, shared]; outputs: y.
struct ExpertCombine {
  Rows rows;  // assignments
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  bool shared = false;  // adds the shared expert's output
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("tokens", tokens), f("width", width), f("shared", shared), f("act", act); }
};

// Mean cross-entropy of `rows` logit rows; with gradient, logits are overwritten by (p - onehot) / rows.
// inputs: logits, targets; outputs: loss[, dlogits (shares logits' memory)].
struct CrossEntropy {
  Rows rows;
  std::int64_t vocab = 0;
  bool gradient = false;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("vocab", vocab), f("gradient", gradient), f("act", act); }
};

// Binary cross-entropy of router or predictor logits against "was selected", mean over rows, times `lambda`: adds to the loss
// and yields d(loss)/d(score). inputs: scores, indices, counts; outputs: loss, dscores.
struct RouterLoss {
  Rows rows;
  double lambda = 0.01;
  template <class F> void fields(F&& f) const { f("rows", rows), f("lambda", lambda); }
};

// ---- backward ----

// dx (accumulated if `accumulate`) and dgain. inputs: x, gain, stats, dy; outputs: dx, dgain.
struct RmsNormBackward {
  RmsNorm forward;
  bool accumulate = false;          // dx
  bool accumulate_weights = false;  // dgain
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate", accumulate), f("accumulate_weights", accumulate_weights); }
};
// inputs: x, gain, stats, dy; outputs: dx, dgain[, dbias].
struct LayerNormBackward {
  LayerNorm forward;
  bool accumulate = false;          // dx
  bool accumulate_weights = false;  // dgain, dbias
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate", accumulate), f("accumulate_weights", accumulate_weights); }
};
// inputs: qkv, o, lse, do[, positions]; outputs: dqkv. 2x the forward's model FLOPs; a fused kernel also recomputes QK^T.
struct AttentionBackward {
  Attention forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// inputs: x, dy | gate, up, dy; outputs: dx | dgate, dup.
struct ActivationBackward {
  Activation forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// df = g(r) * dy[indices]; dscore_i (+)= g'(r_i) <dy_i, f_i> for selected rows. inputs: dy, f, indices, scores; outputs: df, dscores.
struct ScatterAddBackward {
  ScatterAddRows forward;
  bool accumulate = false;  // dscores already holds the auxiliary loss's gradient
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate", accumulate); }
};
// dx[indices] += dy. inputs: dy, indices; outputs: dx (in place).
struct GatherBackward {
  GatherRows forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// dw (+)= sum dr_i x_i over `weight_rows`; dx_i += dr_i w over `input_rows` (0: detached). Rows that were not selected left the block
// unchanged, so x is read from the block's *output* y for them and from the gathered copy xg for the selected ones: the input
// stream need not be kept for the backward pass. With all rows (auxiliary loss) every row counts, else only the selected ones.
// A detached auxiliary loss trains w but not the stream: its share lambda / rows * (sigma(r) - 1) is taken off dr for dx, which then
// reads the scores. inputs: y, xg, w, dscores, indices[, scores]; outputs: dw[, db], dx (in place).
struct RouterScoreBackward {
  RouterScore forward;
  Rows weight_rows;
  Rows input_rows;
  bool accumulate = false;     // dw
  double detached_lambda = 0;  // weight of a detached auxiliary loss; 0: none
  template <class F> void fields(F&& f) const {
    forward.fields(f), f("weight_rows", weight_rows), f("input_rows", input_rows), f("accumulate", accumulate), f("detached_lambda", detached_lambda);
  }
};
// inputs: weights, dweights, logits...; outputs: dlogits.
struct ExpertSelectBackward {
  ExpertSelect forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// dx_j = weight_j * dy[token]; dweight_j = <dy[token], x_j>. inputs: dy, x, permutation, weights; outputs: dx, dweights.
struct ExpertCombineBackward {
  ExpertCombine forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// dx[token] (+)= sum of dy_j. inputs: dy, permutation; outputs: dx.
struct ExpertDispatchBackward {
  ExpertDispatch forward;
  std::int64_t tokens = 0;
  bool accumulate = false;
  template <class F> void fields(F&& f) const { forward.fields(f), f("tokens", tokens), f("accumulate", accumulate); }
};
// dtable[token] += dx, the tables being cleared first unless they `accumulate` (tied head: its dW came first).
// inputs: tokens, dx[, positions]; outputs: dtable[, dposition table].
struct EmbeddingBackward {
  Embedding forward;
  bool accumulate = false;            // token table
  bool accumulate_positions = false;  // position table
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate", accumulate), f("accumulate_positions", accumulate_positions); }
};

// ---- optimizer ----

// Sum of squares of one block's gradients, added to the step's total (the `first` op overwrites it). inputs: gradients; outputs: sum of squares.
struct GradientNorm {
  std::int64_t params = 0;
  bool first = false;
  DType grad = DType::kF32;
  template <class F> void fields(F&& f) const { f("params", params), f("first", first), f("grad", grad); }
};
// One fused pass over the `params` parameters of a block, with f32 moments (and an f32 master copy where weights are narrower); gradients are
// scaled by min(1, clip / norm). inputs: sum of squares, then per tensor grad; outputs: per tensor weight, m, v[, master] (in place).
struct AdamW {
  std::int64_t params = 0;
  DType weight = DType::kF32;
  DType grad = DType::kF32;
  template <class F> void fields(F&& f) const { f("params", params), f("weight", weight), f("grad", grad); }
};

using OpSpec = std::variant<Embedding, RmsNorm, LayerNorm, Gemm, Rope, Attention, KvAppend, Activation, AddResidual, RouterScore, Select,
                            GatherRows, ScatterAddRows, ExpertSelect, ExpertDispatch, ExpertCombine, CrossEntropy, RouterLoss,
                            RmsNormBackward, LayerNormBackward, AttentionBackward, ActivationBackward, ScatterAddBackward, GatherBackward,
                            RouterScoreBackward, ExpertSelectBackward, ExpertCombineBackward, ExpertDispatchBackward, EmbeddingBackward,
                            GradientNorm, AdamW>;

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

// Which part of a model an op belongs to; totals are reported by part (SPEC_COUNT 16).
enum class Part : std::uint8_t {
  kEmbedding, kNorm, kProjection, kCore, kFfn, kExperts, kRouter, kPredictor, kRouting, kResidual, kKvCache, kLogits, kLoss, kAdapter, kMtp, kOptimizer,
};
inline constexpr int kPartCount = 16;
std::string_view part_name(Part part);

enum class Pass : std::uint8_t { kForward, kRecompute, kBackward, kOptimizer };
std::string_view pass_name(Pass pass);

}  // namespace fathom
