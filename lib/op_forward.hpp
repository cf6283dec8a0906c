// Forward ops of the op list: the row dimension, and one struct per kind with its sizes. Read lib/op.hpp first.
//
// GEMMs are written Y[rows,out] = X[rows,in] W[in,out]. Each struct lists its fields in fields(f), which
// calls f(name, value): fingerprints, `fathom explain` and tests use it.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"
#include "lib/fraction.hpp"
#include "lib/units.hpp"

namespace fathom {

// A row dimension. Fixed rows are always all executed. A routed dimension of a decode or threshold step holds at most `count`
// rows of which each is executed with `probability` (independent unless a scenario says otherwise): declared = count, expected =
// count x probability, executed = what a run reports. The three are never printed as one another.
enum class RowSource : std::uint8_t {
  kSelected,  // rows that the layer's Select chose
  kRest,      // rows that it did not choose
  kAssigned,  // assignments that ExpertSelect made to real experts and kept
};
struct Rows {
  std::int64_t count = 0;
  Fraction probability{1, 1};
  RowSource source = RowSource::kSelected;  // who decides, where the rows are not fixed
  std::int64_t each = 1;                    // rows that are executed or not as one (the `picks` assignments of a token)

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

// y = x / rms(x) * gain. `groups` norms per row (query/key norms: one per head). inputs: x[, gain]; outputs: y[, stats][, x].
// With a stride it works in place on columns offset .. offset + groups * width of rows of `stride` elements (the query part of a qkv row), leaves
// the other columns alone, and with stats also saves the columns it overwrites, [rows, groups * width], as the third output.
struct RmsNorm {
  Rows rows;
  std::int64_t width = 0;
  std::int64_t groups = 1;
  bool stats = false;  // saves 1/rms in f32 for the backward pass
  DType act = DType::kF32;
  std::int64_t gains = 1;   // rows of the gain: 0 no gain, 1 the same for every group, groups
  std::int64_t stride = 0;  // 0: rows of groups * width elements, out of place
  std::int64_t offset = 0;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("width", width), f("groups", groups), f("stats", stats), f("act", act), f("gains", gains), f("stride", stride), f("offset", offset);
  }
};

// y = (x - mean) / std * gain + bias. inputs: x[, gain][, bias]; outputs: y[, stats].
struct LayerNorm {
  Rows rows;
  std::int64_t width = 0;
  bool bias = true;
  bool stats = false;  // saves mean and 1/std in f32 for the backward pass
  DType act = DType::kF32;
  bool gain = true;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("width", width), f("bias", bias), f("stats", stats), f("act", act), f("gain", gain);
  }
};

enum class GemmRole : std::uint8_t {
  kForward,         // Y[rows,out] = X[rows,in] W[in,out]; inputs: x, w[, bias][, offsets]; outputs: y
  kInputGradient,   // dX[rows,in] = dY[rows,out] W^T;     inputs: dy, w[, offsets];        outputs: dx
  kWeightGradient,  // dW[in,out] += X^T dY;               inputs: x, dy[, offsets];        outputs: dw[, db] (f32 sums, stored in the gradient's type)
};

// One matrix product, or with experts > 1 a grouped product: rows are split over `experts` weight sets by the offsets tensor.
// 2 * rows * in * out FLOP in every role. `transposed`: the weight is stored [out,in] (tied head: the token table).
// With batch > 1 every row has `batch` parts, each with its own weight [in,out] (absorbed latent attention: one per head): part b is read at
// column b * batch_stride and written at column b * out; the weight is [batch * in, out]. FLOPs are batch times as many.
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
  std::int64_t capacity = 0;      // grouped: slots per expert, rows = experts * capacity are declared; 0: dropless
  std::int64_t batch = 1;
  std::int64_t batch_stride = 0;  // 0: in
  std::int64_t in_stride = 0;     // elements from one row of x (or dx) to the next; 0: batch * in
  std::int64_t out_stride = 0;    // the same of y (or dy); 0: batch * out
  std::int64_t out_offset = 0;    // first column of y (adapters add to a part of a qkv row)
  double expected_experts = -1;   // grouped: distinct weight sets read in expectation; negative: every expert is as likely as another
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("in", in), f("out", out), f("role", static_cast<int>(role)), f("bias", bias), f("transposed", transposed);
    f("accumulate", accumulate), f("experts", experts), f("tokens", tokens), f("picks", picks), f("act", act), f("weight", weight), f("result", result);
    f("capacity", capacity), f("batch", batch), f("batch_stride", batch_stride), f("in_stride", in_stride), f("out_stride", out_stride);
    f("out_offset", out_offset);
    if (expected_experts >= 0) f("expected_experts", expected_experts);
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
  std::int64_t offset = 0;  // first rotated element of a head (latent attention: behind the unrotated ones)
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("heads", heads), f("width", width), f("head_dim", head_dim), f("row_stride", row_stride), f("base", base), f("inverse", inverse), f("act", act), f("offset", offset);
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
// `apart`: queries are rows of their own tensor and keys and values those of another (all tokens supply them, some query).
// inputs: qkv, positions | apart: q, positions, kv, key positions; cached: then cache, counts[, indices][, kept positions]; sinks: then the sinks [1, heads];
// Unfused (`fused` = false, counted but run by no backend) scores and probabilities pass through memory.
// outputs: o[, lse] | unfused: o, probabilities, scores, both [pairs, heads].
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
  bool sinks = false;           // one learned logit per head joins the softmax's denominator
  bool apart = false;
  std::int64_t scale_dim = 0;   // scores are scaled by 1 / sqrt of this; 0: qk_dim (absorbed latent attention keeps that of its naive form)
  // In expectation, where they depend on which rows are chosen (windows, all-token keys); negative: they follow from rows and pairs.
  double expected_pairs = -1;
  double expected_keys = -1;
  bool kept_positions = false;  // cached: the list has gaps and the mask acts on the positions kept with it
  bool fused = true;            // one kernel: scores and probabilities never leave it
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("sequences", sequences), f("heads", heads), f("kv_heads", kv_heads), f("qk_dim", qk_dim), f("v_dim", v_dim);
    f("mask", static_cast<int>(mask.kind)), f("window", mask.window), f("chunk", mask.chunk), f("pairs", pairs), f("keys", keys), f("past", past);
    f("key_share", key_share), f("cached", cached), f("shared_kv", shared_kv), f("lse", lse), f("act", act), f("kv", kv);
    f("sinks", sinks), f("apart", apart), f("scale_dim", scale_dim), f("expected_pairs", expected_pairs), f("expected_keys", expected_keys);
    if (kept_positions) f("kept_positions", kept_positions);
    if (!fused) f("fused", fused);
  }
};

// Builds the rows that attention reads from the parts of latent attention (copies only). Per row: queries q [heads, nope + rope], the latent row
// [rank | rotated key of all heads], and
//   naive:    kv [heads, nope + v]; output [q | k of every head: its nope part, then the common rotated key | v of every head],
//             without the q part where there are no `queries`
//   absorbed: qa [heads, rank], queries times W_uk; output per head: qa, then the query's rotated part (keys and values are the latent row)
// inputs: naive [q, ]latent, kv | absorbed q, qa; outputs: qkv, kv or q.
struct LatentHeads {
  Rows rows;
  std::int64_t heads = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t v_dim = 0;
  std::int64_t rank = 0;
  bool absorbed = false;
  DType act = DType::kF32;
  bool queries = true;
  std::int64_t qk_dim() const { return nope_dim + rope_dim; }
  // Elements of one output row.
  std::int64_t row_width() const { return absorbed ? heads * (rank + rope_dim) : heads * ((queries ? 2 : 1) * qk_dim() + v_dim); }
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("heads", heads), f("nope_dim", nope_dim), f("rope_dim", rope_dim), f("v_dim", v_dim), f("rank", rank);
    f("absorbed", absorbed), f("act", act), f("queries", queries);
  }
};

// Appends the new keys and values to each sequence's list in the cache (ragged in routed blocks) and advances its count. `width` = elements of
// K and V per row. `positions`: the rows' original positions are kept beside them, where a window acts on lists with gaps.
// inputs: qkv[, indices (which stream rows these are)][, positions]; outputs: cache, counts (per sequence, in place)[, kept positions].
struct KvAppend {
  Rows rows;
  std::int64_t width = 0;
  DType act = DType::kF32;
  DType kv = DType::kF32;
  bool positions = false;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("width", width), f("act", act), f("kv", kv);
    if (positions) f("positions", positions);
  }
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

// Chooses the rows of a routed block. Top-k: per sequence, order (-score, index), ascending result (arXiv 2404.02258, 3.3).
// Threshold and predictor: score > 0, at most `slots` per sequence. inputs: scores[, positions]; outputs: indices, positions, counts[, rest:
// the rows that were not chosen, ascending].
struct Select {
  std::int64_t sequences = 1;
  std::int64_t length = 0;  // candidates per sequence
  Rows selected;            // rows chosen over all sequences
  RoutingRule rule = RoutingRule::kTopK;
  bool rest = false;
  template <class F> void fields(F&& f) const {
    f("sequences", sequences), f("length", length), f("selected", selected), f("rule", static_cast<int>(rule)), f("rest", rest);
  }
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

// y = x, then y[indices] += g(score) * f (replace: = g(score) * f), in place where x dies here. Indices are unique per sequence.
// inputs: x, f, indices[, scores: unless the gate is none]; outputs: y (shares x's memory).
struct ScatterAddRows {
  Rows rows;
  std::int64_t width = 0;
  Gate gate;
  DType act = DType::kF32;
  bool replace = false;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("width", width), f("gate", static_cast<int>(gate.kind)), f("alpha", gate.alpha), f("beta", gate.beta), f("act", act), f("replace", replace);
  }
};

// Token-to-expert routing: softmax (or sigmoid) over `experts` + `noops` logits, `picks` best, their weights, and the permutation that sorts
// assignments by expert. Picks of a no-op get no row; beyond `capacity` (> 0) rows of one expert the later tokens are dropped.
// inputs: logits[, correction: added for the choice, not for the weights]; outputs: permutation (token per row), weights, offsets.
struct ExpertSelect {
  Rows rows;  // tokens
  std::int64_t experts = 0;
  std::int64_t noops = 0;
  std::int64_t picks = 0;
  bool sigmoid = false;
  std::int64_t capacity = 0;
  bool correction = false;
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("experts", experts), f("noops", noops), f("picks", picks), f("sigmoid", sigmoid), f("capacity", capacity);
    f("correction", correction);
  }
};

// y[j] = x[token of assignment j]. inputs: x, permutation; outputs: y.
struct ExpertDispatch {
  Rows rows;  // assignments
  std::int64_t width = 0;
  DType act = DType::kF32;
  template <class F> void fields(F&& f) const { f("rows", rows), f("width", width), f("act", act); }
};

// y[token] = sum of weight_j * x[j] over the token's assignments. inputs: x, permutation, weights[, shared[, shared gate logit]]; outputs: y.
struct ExpertCombine {
  Rows rows;  // assignments
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  bool shared = false;  // adds the shared expert's output
  DType act = DType::kF32;
  bool shared_gate = false;  // weighted by sigma(gate logit)
  template <class F> void fields(F&& f) const {
    f("rows", rows), f("tokens", tokens), f("width", width), f("shared", shared), f("act", act), f("shared_gate", shared_gate);
  }
};

// Mean cross-entropy of `rows` logit rows, times `weight`; with gradient, logits are overwritten by weight (p - onehot) / rows.
// inputs: logits, targets; outputs: loss[, dlogits (shares logits' memory)].
struct CrossEntropy {
  Rows rows;
  std::int64_t vocab = 0;
  bool gradient = false;
  DType act = DType::kF32;
  double weight = 1;  // of this loss in that of the optimizer step: 1 / micro-steps
  template <class F> void fields(F&& f) const { f("rows", rows), f("vocab", vocab), f("gradient", gradient), f("act", act), f("weight", weight); }
};

// Binary cross-entropy of router or predictor logits against "was selected", mean over rows, times `lambda`: adds to the loss
// and yields d(loss)/d(score). Micro-steps share the lambda of a step. inputs: scores, indices, counts; outputs: loss, dscores.
struct RouterLoss {
  Rows rows;
  double lambda = 0.01;
  template <class F> void fields(F&& f) const { f("rows", rows), f("lambda", lambda); }
};

}  // namespace fathom
