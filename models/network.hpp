// What is modelled: a transformer as a list of layers, each of one block kind.
//
// A Network is pure data: no sizes of a run (batch, length) are in it. INI files and Hugging Face configs are read into it
// (models/import), the builder turns Network + Scenario into the op list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/fraction.hpp"
#include "lib/op.hpp"

namespace fathom {

enum class NormKind : std::uint8_t { kRms, kLayer };
enum class PositionKind : std::uint8_t { kRope, kLearned, kNone };
// Gains of the query/key norms: one vector for all heads (Qwen 3, Gemma 3), one per head (Cohere), or none (Llama 4).
enum class QkGain : std::uint8_t { kShared, kPerHead, kNone };

// Multi-head latent attention (DeepSeek). query_rank 0: queries are projected directly.
struct Mla {
  std::int64_t query_rank = 0;
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t v_dim = 0;
  friend bool operator==(const Mla&, const Mla&) = default;
};

struct AttentionConfig {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;      // query, key and value head size (MLA has its own)
  std::int64_t rope_dim = 0;      // rotated elements per head; 0: no rotation in this layer
  std::int64_t window = 0;        // sliding window in keys, the query included; 0: none
  std::int64_t chunk = 0;         // chunked attention; 0: none
  bool qkv_bias = false;
  bool out_bias = false;
  bool qk_norm = false;           // RMS norm per query and key head
  bool qk_norm_full = false;      // one norm over the whole projected row (OLMo 2); excludes qk_norm
  QkGain qk_gain = QkGain::kShared;  // gains of qk_norm
  bool sinks = false;             // one learned logit per head
  std::optional<Mla> mla;
  friend bool operator==(const AttentionConfig&, const AttentionConfig&) = default;
};

// Mixture of experts in place of the MLP.
struct MoeConfig {
  std::int64_t experts = 0;
  std::int64_t picks = 0;              // experts per token
  std::int64_t width = 0;              // FFN width of a routed expert
  std::int64_t shared = 0;             // shared experts
  std::int64_t shared_width = 0;       // FFN width of one shared expert
  bool shared_gate = false;            // sigmoid gate h -> 1 on the shared expert
  bool sigmoid = false;                // sigmoid scores instead of softmax
  bool router_bias = false;            // bias of the router projection
  bool correction_bias = false;        // per-expert score correction (parameters only)
  std::int64_t noops = 0;              // integrated MoDE: extra outputs of cost 0
  Fraction noop_share{0, 1};           // share of assignments that go to no-ops (analytic expectation)
  std::optional<Fraction> capacity{};  // capacity factor: expert slots = round(cf * T * k / E), at least 1; absent: dropless
  Rounding capacity_rounding = Rounding::kFloor;
  // How unevenly tokens choose, in expectation (a run routes as its router says). At most one of the two; neither: evenly.
  double skew = 0;                     // Zipf: the load of the expert of rank r is proportional to r^-skew
  std::vector<double> loads{};         // relative load of every expert
  friend bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

struct MlpConfig {
  std::int64_t width = 0;
  bool gated = false;
  ActivationKind activation = ActivationKind::kGeluTanh;
  bool bias = false;
  std::optional<MoeConfig> moe;  // replaces the dense MLP; `gated`, `activation`, `bias` apply to the experts
  friend bool operator==(const MlpConfig&, const MlpConfig&) = default;
};

enum class RouterKind : std::uint8_t { kLinear, kMlp };
enum class KvPolicy : std::uint8_t {
  kSelected,  // only routed tokens supply and store keys and values (the paper)
  kAll,       // every token supplies K/V, only routed ones query
};
enum class GateOn : std::uint8_t { kDelta, kMlp, kAttention, kWhole };
enum class RoutedPart : std::uint8_t { kBlock, kAttention, kMlp };

struct Predictor {
  std::int64_t hidden = 0;  // 0: linear; else an MLP h -> hidden -> 1
  friend bool operator==(const Predictor&, const Predictor&) = default;
};

// How a block is routed in depth. Absent route: every token takes the block.
struct Route {
  std::optional<Fraction> capacity;       // share of the tokens of a sequence; exactly one of capacity and slots
  std::optional<std::int64_t> slots;      // absolute slots per sequence
  Rounding rounding = Rounding::kFloor;
  std::int64_t min_slots = 0;
  RouterKind router = RouterKind::kLinear;
  std::int64_t router_hidden = 0;         // MLP router width
  bool router_bias = false;
  Gate gate;
  GateOn gate_on = GateOn::kDelta;
  RoutedPart part = RoutedPart::kBlock;
  KvPolicy kv = KvPolicy::kSelected;
  std::optional<Predictor> predictor;
  double aux_lambda = 0.01;               // weight of the auxiliary router loss; 0: none
  bool aux_detached = false;              // auxiliary gradient does not reach the residual stream
  std::int64_t adapter = 0;               // bypass adapter width (0: identity)
  friend bool operator==(const Route&, const Route&) = default;
};

struct BlockConfig {
  std::optional<AttentionConfig> attention;
  std::optional<MlpConfig> mlp;
  std::optional<Route> route;
  int norms = 2;                // 4: also after attention and MLP (Gemma 2, 3)
  bool post_norm_only = false;  // OLMo 2: norms stand after attention and MLP, none before
  bool parallel = false;        // attention and MLP read the same input (GPT-NeoX, Falcon, Cohere)
  int parallel_norms = 2;       // norms of a parallel block (1: shared)
  friend bool operator==(const BlockConfig&, const BlockConfig&) = default;
};

// Low-rank adapters of rank r on named matrices ("q", "k", "v", "o", "up", "gate", "down"); the base is frozen.
struct Lora {
  std::int64_t rank = 0;
  std::vector<std::string> targets;
  friend bool operator==(const Lora&, const Lora&) = default;
};

struct Network {
  std::string name;
  std::string source;             // file or preset it came from
  std::string summary;            // one line for lists
  std::int64_t width = 0;
  std::int64_t vocab = 0;
  std::int64_t padded_vocab = 0;  // rows of the table and of the head as stored; 0: vocab
  std::int64_t max_length = 0;    // 0: not stated
  PositionKind positions = PositionKind::kRope;
  double rope_base = 10000.0;
  NormKind norm = NormKind::kRms;
  bool norm_bias = true;          // LayerNorm only
  bool norm_gain = true;          // false: norms without any parameter (OLMo 1); excludes norm_bias
  double norm_epsilon = 1e-5;
  bool embedding_norm = false;
  bool final_norm = true;
  bool tied = true;               // the head uses the token table
  bool head_bias = false;
  std::vector<BlockConfig> kinds;
  std::vector<int> layers;        // index into kinds per layer
  std::vector<int> weights_of;    // weight set per layer (empty: each its own); equal numbers share weights
  std::int64_t mtp = 0;           // multi-token prediction modules that are counted (0: not asked for)
  std::optional<Lora> lora;
  bool freeze_embedding = false;  // the token table, and the first block's norms where nothing trained feeds them
  std::optional<DType> weight_dtype;  // stored type of the matrices inside the layers, routers apart; absent: that of the run
  std::vector<std::string> notes; // ignored keys and defaults used on import

  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }
  std::int64_t table_rows() const { return padded_vocab ? padded_vocab : vocab; }
  const BlockConfig& block(std::int64_t layer) const { return kinds[static_cast<size_t>(layers[static_cast<size_t>(layer)])]; }
  // Layers with a cache of their own to count: prediction modules are layers of the last one's kind.
  std::int64_t cached_layers() const { return layer_count() + mtp; }
  const BlockConfig& cached_block(std::int64_t layer) const { return block(layer < layer_count() ? layer : layer_count() - 1); }
  bool has_routes() const;
};

// Throws Error(kInput) naming the first contradiction (heads not a multiple of kv_heads, capacity outside [0, 1], window 0 ...).
void validate(const Network& network);

// The MoD twin: block l (from 0) gets `route` iff l mod every == every - 1. Layers that are already routed are an error.
Network with_routes(const Network& dense, std::int64_t every, const Route& route);
// The same network with every route removed.
Network dense_twin(const Network& network);

// Slots C of one sequence of `length` valid tokens (arXiv 2404.02258, 3.1).
std::int64_t slots_of(const Route& route, std::int64_t length);

}  // namespace fathom
