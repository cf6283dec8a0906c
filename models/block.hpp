// Emits the ops of one layer: norms, attention, MLP, and the routing around them.
#pragma once

#include <string>

#include "models/tape.hpp"

namespace fathom {

// The rows that flow through (a part of) a block.
struct Stream {
  Rows rows;                 // all sequences
  std::int64_t sequences = 1;
  std::int64_t queries = 0;  // declared rows per sequence
  std::int64_t past = 0;     // cached tokens per sequence before this step
  Fraction key_share{1, 1};  // share of the past that this block's cache holds, in expectation
  bool cached = false;       // attention reads the KV cache
  Value positions;           // original position per row
  Value indices;             // which stream row each row is; tensor < 0: the identity
};

// y[next layer] = block(x[this layer]). Emits forward ops in the tape's current pass and records the backward.
class BlockEmitter {
 public:
  BlockEmitter(Tape& tape, const BlockConfig& config, const Stream& stream, Value x, Operand y)
      : tape_(tape), config_(config), stream_(stream), x_(x), y_(y) {}

  Value forward();                  // the whole block
  Value recompute();                // again inside the backward block, replaying the routing
  std::string label() const;        // "dense", "mod", "moe", "mode"

 private:
  struct Routing {
    Value scores, indices, positions, counts, dscores, gathered;
    Stream selected;
  };

  Value routed(bool replay);
  void route();                     // scores, selection and losses
  Value router_scores();
  void predictor_loss();
  // The block on `stream` rows. With `delta` the result is the update without the outer residual (f of SPEC_MOD 2); else it goes to `into`.
  Value sublayers(const Value& x, const Stream& stream, bool delta, Operand* into);
  Value attention(const Value& x, const Stream& stream);
  Value mlp(const Value& x, const Stream& stream);
  Value moe(const Value& x, const Stream& stream);

  Tape& tape_;
  const BlockConfig& config_;
  const Stream& stream_;
  Value x_;
  Operand y_;
  Routing routing_;
};

}  // namespace fathom
