// Backward and optimizer ops of the op list: one struct per kind, each holding the forward op whose gradient it forms.
//
// `accumulate` adds to a gradient that holds an earlier contribution, else the op overwrites it. Read lib/op.hpp first.
#pragma once

#include <cstdint>

#include "lib/op_forward.hpp"

namespace fathom {

// ---- backward ----

// dx (accumulated if `accumulate`) and dgain. inputs: x[, gain], stats, dy; outputs: dx[, dgain]. With a stride dx and dy are the same
// columns of one buffer (in place) and x is the saved copy.
struct RmsNormBackward {
  RmsNorm forward;
  bool accumulate = false;          // dx
  bool accumulate_weights = false;  // dgain
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate", accumulate), f("accumulate_weights", accumulate_weights); }
};
// inputs: x[, gain], stats, dy; outputs: dx[, dgain][, dbias].
struct LayerNormBackward {
  LayerNorm forward;
  bool accumulate = false;          // dx
  bool accumulate_weights = false;  // dgain, dbias
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate", accumulate), f("accumulate_weights", accumulate_weights); }
};
// inputs: qkv, positions, o, lse, do[, kv, key positions][, sinks]; outputs: dqkv | dq, dkv[, dsinks]. 2x the forward's model FLOPs; a fused kernel also recomputes QK^T.
// Unfused: probabilities in place of o and lse; then the gradients of probabilities and scores are outputs too.
struct AttentionBackward {
  Attention forward;
  bool accumulate_weights = false;  // dsinks
  template <class F> void fields(F&& f) const { forward.fields(f), f("accumulate_weights", accumulate_weights); }
};
// Takes the gradients of naive attention rows apart again; the common rotated key's gradient is the sum over heads, and the latent columns of
// dlatent are cleared (the product that expands them adds to them next). inputs: dqkv; outputs: [dq, ]dlatent, dkv.
struct LatentHeadsBackward {
  LatentHeads forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// inputs: x, dy | gate, up, dy; outputs: dx | dgate, dup.
struct ActivationBackward {
  Activation forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// df = g(r) * dy[indices]; dscore_i (+)= g'(r_i) <dy_i, f_i> for selected rows. inputs: dy, f (no gate: dy), indices[, scores]; outputs: df[, dscores]
// (no scores where the gate is none). With `replace` the rows of dy are cleared after use: their identity path runs through the block, and dy
// goes on as the gradient of x; outputs: df[, dscores], dy.
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
// reads the scores. inputs: y (xg again where only selected rows count), xg, w, dscores, indices[, scores]; outputs: dw[, db], dx (in place).
// `plain`: the last layer of an MLP router or a predictor, whose input x is kept, of all rows or of the selected ones (forward.rows). inputs: x, w, dscores; outputs: dw[, db][, dx (overwritten)];
// dx only with input_rows. In both forms a frozen router has no dw and db.
struct RouterScoreBackward {
  RouterScore forward;
  Rows weight_rows;
  Rows input_rows;
  bool accumulate = false;     // dw
  double detached_lambda = 0;  // weight of a detached auxiliary loss; 0: none
  bool plain = false;
  template <class F> void fields(F&& f) const {
    forward.fields(f), f("weight_rows", weight_rows), f("input_rows", input_rows), f("accumulate", accumulate);
    f("detached_lambda", detached_lambda), f("plain", plain);
  }
};
// inputs: logits, permutation, offsets, dweights; outputs: dlogits.
struct ExpertSelectBackward {
  ExpertSelect forward;
  template <class F> void fields(F&& f) const { forward.fields(f); }
};
// dx_j = weight_j * dy[token]; dweight_j = <dy[token], x_j>. inputs: dy, x, permutation, weights[, shared, gate logit]; outputs: dx, dweights[,
// dshared, dgate] (with a gate on the shared expert; without one its gradient is dy itself).
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
  static bool keeps_master(DType weight) { return dtype_bytes(weight) < dtype_bytes(DType::kF32); }
  bool master() const { return keeps_master(weight); }
  template <class F> void fields(F&& f) const { f("params", params), f("weight", weight), f("grad", grad); }
};

}  // namespace fathom
