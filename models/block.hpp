// Emits the ops of one layer: norms, attention, MLP, experts, and the routing around them.
//
// models/block.cpp arranges norms and residuals, attention.cpp and mla.cpp emit the attention, moe.cpp the experts, route.cpp the depth
// routing (arXiv 2404.02258, section 3). Order matters for training: the backward is the recorded forward in reverse, and the stream's gradient is
// one buffer, so whatever reads a block's output gradient is recorded after everything that adds to its input gradient.
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
  bool selected = false;     // chosen by a router
  std::int64_t candidates = 0;  // selected: rows per sequence that were chosen from
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
  const char* label() const;        // "dense", "mod", "moe", "mode"

 private:
  // What a routed step computes on the selected rows.
  enum class Piece : std::uint8_t { kDelta, kWhole, kAttention, kMlp };
  struct Routing {
    Value input, scores, indices, positions, counts, rest, dscores, gathered, normed_all;
    Value hidden, act;  // of an MLP router that learns from the language loss alone: of the selected rows, for the backward pass
    std::vector<std::function<void()>> backward;  // of the router
    Stream selected;
    Rows rest_rows;
    RoutingRule rule = RoutingRule::kTopK;  // that decides
  };

  std::int64_t width() const { return tape_.network().width; }
  [[noreturn]] void refuse(const char* what, const char* key, const char* hint = "") const;

  // The block on `stream` rows. With `delta` the result is the update without the outer residual (f of the block, x + g f(x)); else it goes to `into`.
  Value block(const Value& x, const Stream& stream, bool delta, const Operand* into);
  Value attention_update(const Value& x, const Stream& stream);  // with its norms, without the residual
  Value mlp_update(const Value& x, const Stream& stream);

  Value attention(const Value& x, const Stream& stream);
  Value latent_attention(const Value& x, const Stream& stream);
  struct Heads {  // what the attention core reads
    Value q, kv;              // kv is q where they are one tensor
    Value kv_positions;
    Rows kv_rows;
    std::int64_t q_width = 0, kv_width = 0;
  };
  // `append`: the new keys and values go to the cache, which a cached core then reads.
  Value core(const Attention& spec, const Heads& heads, const Stream& stream, bool append);
  struct Cache {
    Operand rows, counts;
    Operand positions;  // tensor < 0: none are kept
  };
  // `held`: keys that the list of one sequence has room for, the new ones included.
  Cache append_cache(const Value& source, const Rows& rows, const Stream& stream, std::int64_t width, std::int64_t held);
  void query_key_norm(const Name& leaf, Value& x, Rows rows, std::int64_t heads, std::int64_t stride, std::int64_t offset);
  void rotate(const Name& leaf, const Value& x, const Rope& spec, const Value& positions);
  Attention core_spec(const Stream& stream, std::int64_t heads, std::int64_t kv_heads, std::int64_t qk_dim, std::int64_t v_dim) const;
  // Whether the cache keeps positions: its lists have gaps, and a window or chunks act on positions.
  bool keeps_positions(const Stream& stream) const {
    const AttentionConfig& a = *config_.attention;
    return stream.selected && !all_keys(stream) && !tape_.scenario().full_mask && (a.window > 0 || a.chunk > 0);
  }
  // Whether every token of the block supplies keys and values while only selected ones query.
  bool all_keys(const Stream& stream) const { return stream.selected && config_.route->kv == KvPolicy::kAll; }

  Value ffn(const Name& gate, const Name& up, const Name& act, const Name& down, const Value& x, Tape::Linear rows, std::int64_t ffn_width, bool adapters);
  Value mlp(const Value& x, const Stream& stream);
  Value moe(const Value& x, const Stream& stream);
  Rows assignments(const MoeConfig& moe, const Stream& stream, std::int64_t* capacity) const;
  double distinct_experts(const MoeConfig& moe, const Stream& stream) const;

  // Routing.
  Value routed_block(bool replay, const Operand* into);
  void route(const Value& x, const Operand& block_output);
  Value router_scores(const Value& x, const Operand& block_output);
  Value predictor_scores(const Value& x);
  void choose_rows();
  void select(const Value& scores);
  void replay_router(const Value& x);
  Value gather(const Name& leaf, const Value& x, Rows rows, const Value& indices);
  // Without `emits` only the backward is recorded (recomputation needs no output).
  Value scatter(const Name& leaf, const Value& x, const Value& f, Rows rows, const Value& indices, const Gate& gate, bool replace, bool emits, const Operand* into);
  // y = x; y[selected] (+)= g * piece(x[selected]); and the bypass adapter on the other rows.
  Value routed(const Name& leaf, const Value& x, Piece piece, bool gated, bool replay, bool first, const Operand* into);
  Value piece(Piece piece, const Value& x, const Stream& stream);
  // Whether an MLP router's gradient comes from the selected rows alone.
  bool router_by_selected() const { return config_.route->router == RouterKind::kMlp && !(config_.route->aux_lambda > 0); }
  // What the router's second product leaves for the others: their backward on the selected rows.
  void router_by_selected_backward(const Value& x, const RouterScore& spec, const Weight& hidden, const Weight& hidden_bias, const Weight& w, const Weight& b);
  bool score_gradient() const { return config_.route->gate.kind != GateKind::kNone; }

  Tape& tape_;
  const BlockConfig& config_;
  const Stream& stream_;
  Value x_;
  Operand y_;
  Routing routing_;
};

}  // namespace fathom
