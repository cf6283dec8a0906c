#include "models/network_keys.hpp"

#include <fmt/format.h>

namespace fathom {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 40;  // validate() knows the real limits

std::string text(std::int64_t value) { return fmt::format("{}", value); }
std::string text(bool value) { return value ? "yes" : "no"; }
std::string text(double value) { return fmt::format("{}", value); }

template <class Enum>
struct Named {
  const char* name;
  Enum value;
};
template <class Enum, std::size_t N>
std::string named(const Named<Enum> (&table)[N], Enum value) {
  for (const auto& row : table)
    if (row.value == value) return row.name;
  return "?";
}
template <class Enum, std::size_t N>
Enum choose(const IniValue& value, const Named<Enum> (&table)[N]) {
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (value.text() == row.name) return row.value;
    names.emplace_back(row.name);
  }
  value.fail(fmt::format("unknown value '{}'", value.text().substr(0, 60)), name_hint(value.text(), names));
}

constexpr Named<NormKind> kNorms[] = {{"rms", NormKind::kRms}, {"layer", NormKind::kLayer}};
constexpr Named<PositionKind> kPositions[] = {{"rope", PositionKind::kRope}, {"learned", PositionKind::kLearned}, {"none", PositionKind::kNone}};
constexpr Named<ActivationKind> kActivations[] = {{"gelu-tanh", ActivationKind::kGeluTanh}, {"gelu-erf", ActivationKind::kGeluErf},
                                                  {"silu", ActivationKind::kSilu}, {"relu", ActivationKind::kRelu}, {"relu2", ActivationKind::kRelu2}};
constexpr Named<RouterKind> kRouters[] = {{"linear", RouterKind::kLinear}, {"mlp", RouterKind::kMlp}};
constexpr Named<KvPolicy> kKvPolicies[] = {{"selected", KvPolicy::kSelected}, {"all", KvPolicy::kAll}};
constexpr Named<GateKind> kGates[] = {{"none", GateKind::kNone}, {"raw", GateKind::kRaw}, {"sigmoid", GateKind::kSigmoid},
                                      {"scaled-sigmoid", GateKind::kScaledSigmoid}, {"tanh", GateKind::kTanh}};
constexpr Named<GateOn> kGatesOn[] = {{"delta", GateOn::kDelta}, {"mlp", GateOn::kMlp}, {"attention", GateOn::kAttention}, {"whole", GateOn::kWhole}};
constexpr Named<RoutedPart> kParts[] = {{"block", RoutedPart::kBlock}, {"attention", RoutedPart::kAttention}, {"mlp", RoutedPart::kMlp}};

// One key each of query/key norm: none, shared gains, gains per head, no gains, one norm over the row.
enum class QkNorm { kNone, kHead, kPerHead, kNoGain, kFull };
constexpr Named<QkNorm> kQkNorms[] = {{"none", QkNorm::kNone}, {"head", QkNorm::kHead}, {"per-head-gain", QkNorm::kPerHead},
                                      {"no-gain", QkNorm::kNoGain}, {"full", QkNorm::kFull}};
QkNorm qk_norm_of(const AttentionConfig& a) {
  if (a.qk_norm_full) return QkNorm::kFull;
  if (!a.qk_norm) return QkNorm::kNone;
  return a.qk_gain == QkGain::kShared ? QkNorm::kHead : a.qk_gain == QkGain::kPerHead ? QkNorm::kPerHead : QkNorm::kNoGain;
}
void set_qk_norm(AttentionConfig& a, QkNorm kind) {
  a.qk_norm_full = kind == QkNorm::kFull;
  a.qk_norm = kind != QkNorm::kNone && kind != QkNorm::kFull;
  a.qk_gain = kind == QkNorm::kPerHead ? QkGain::kPerHead : kind == QkNorm::kNoGain ? QkGain::kNone : QkGain::kShared;
}

template <class T>
T& engaged(std::optional<T>& group) {
  if (!group) group.emplace();
  return *group;
}

}  // namespace

// A row: where(T& t) names the member; the macros keep each row to the facts.
#define INT_ROW(Type, key, standard, meaning, member) \
  {key, "integer", standard, meaning, [](Type& t, const IniValue& v) { t.member = v.integer(0, kMax); }, [](const Type& t) { return text(static_cast<std::int64_t>(t.member)); }}
#define BOOL_ROW(Type, key, standard, meaning, member) \
  {key, "yes, no", standard, meaning, [](Type& t, const IniValue& v) { t.member = v.boolean(); }, [](const Type& t) { return text(static_cast<bool>(t.member)); }}
#define REAL_ROW(Type, key, standard, meaning, member) \
  {key, "number", standard, meaning, [](Type& t, const IniValue& v) { t.member = v.real(); }, [](const Type& t) { return text(t.member); }}
#define ENUM_ROW(Type, key, values, standard, meaning, member, table) \
  {key, values, standard, meaning, [](Type& t, const IniValue& v) { t.member = choose(v, table); }, [](const Type& t) { return named(table, t.member); }}
// The same for members of an optional group (moe, mla, route): writing an absent group gives "".
#define GROUP_INT(group, key, standard, meaning, member) \
  {key, "integer", standard, meaning, [](BlockDraft& t, const IniValue& v) { engaged(t.group).member = v.integer(0, kMax); }, \
   [](const BlockDraft& t) { return t.group ? text(static_cast<std::int64_t>(t.group->member)) : std::string(); }}
#define GROUP_BOOL(group, key, standard, meaning, member) \
  {key, "yes, no", standard, meaning, [](BlockDraft& t, const IniValue& v) { engaged(t.group).member = v.boolean(); }, \
   [](const BlockDraft& t) { return t.group ? text(static_cast<bool>(t.group->member)) : std::string(); }}
#define GROUP_REAL(group, key, standard, meaning, member) \
  {key, "number", standard, meaning, [](BlockDraft& t, const IniValue& v) { engaged(t.group).member = v.real(); }, \
   [](const BlockDraft& t) { return t.group ? text(t.group->member) : std::string(); }}
#define GROUP_ENUM(group, key, values, standard, meaning, member, table) \
  {key, values, standard, meaning, [](BlockDraft& t, const IniValue& v) { engaged(t.group).member = choose(v, table); }, \
   [](const BlockDraft& t) { return t.group ? named(table, t.group->member) : std::string(); }}
#define GROUP_FRACTION(group, key, standard, meaning, member) \
  {key, "fraction", standard, meaning, [](BlockDraft& t, const IniValue& v) { engaged(t.group).member = v.fraction(); }, \
   [](const BlockDraft& t) { return t.group && t.group->member ? t.group->member->str() : std::string(); }}

const std::vector<KeyRow<Network>>& network_rows() {
  using T = Network;
  static const std::vector<KeyRow<T>> rows = {
      {"name", "text", "the file's name", "name in reports", [](T& t, const IniValue& v) { t.name = v.text(); }, [](const T& t) { return t.name; }},
      {"summary", "text", "none", "one line for lists", [](T& t, const IniValue& v) { t.summary = v.text(); }, [](const T& t) { return t.summary; }},
      INT_ROW(T, "width", "required", "h, elements of the residual stream", width),
      INT_ROW(T, "vocab", "required", "V, tokens", vocab),
      INT_ROW(T, "padded_vocab", "0 (vocab)", "stored rows of token table and head", padded_vocab),
      INT_ROW(T, "max_length", "0 (not stated)", "longest sequence; rows of a learned position table", max_length),
      ENUM_ROW(T, "positions", "rope, learned, none", "rope", "position information", positions, kPositions),
      REAL_ROW(T, "rope_base", "10000", "base of the rotation frequencies", rope_base),
      ENUM_ROW(T, "norm", "rms, layer", "rms", "RMSNorm or LayerNorm", norm, kNorms),
      BOOL_ROW(T, "norm_bias", "yes", "LayerNorm has a bias", norm_bias),
      BOOL_ROW(T, "norm_gain", "yes", "norms have a gain", norm_gain),
      REAL_ROW(T, "norm_epsilon", "1e-05", "added to the variance", norm_epsilon),
      BOOL_ROW(T, "embedding_norm", "no", "norm after the embedding", embedding_norm),
      BOOL_ROW(T, "final_norm", "yes", "norm before the head", final_norm),
      BOOL_ROW(T, "tied", "yes", "the head uses the token table", tied),
      BOOL_ROW(T, "head_bias", "no", "the head has a bias", head_bias),
      BOOL_ROW(T, "freeze_embedding", "no", "the token table is not trained", freeze_embedding),
      INT_ROW(T, "mtp", "0", "multi-token prediction modules that are counted", mtp),
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& block_rows() {
  using T = BlockDraft;
  static const std::vector<KeyRow<T>> rows = {
      BOOL_ROW(T, "attention", "yes", "the block has attention", attention),
      INT_ROW(T, "heads", "required", "n, query heads", att.heads),
      INT_ROW(T, "kv_heads", "heads", "m, key/value heads; divides heads", att.kv_heads),
      INT_ROW(T, "head_dim", "width / heads", "d, elements per head", att.head_dim),
      {"rope_dim", "integer", "head_dim with rope, else 0", "rotated elements per head; 0: none in this block; with latent attention d_r",
       [](T& t, const IniValue& v) { t.rope_dim = v.integer(0, kMax); }, [](const T& t) { return text(t.rope_dim); }},
      {"window", "integer >= 1, none", "none", "W, sliding window in keys, the query included",
       [](T& t, const IniValue& v) { t.att.window = v.text() == "none" ? 0 : v.integer(1, kMax); },
       [](const T& t) { return t.att.window ? text(t.att.window) : std::string("none"); }},
      {"chunk", "integer >= 1, none", "none", "K, attention inside chunks of K tokens",
       [](T& t, const IniValue& v) { t.att.chunk = v.text() == "none" ? 0 : v.integer(1, kMax); },
       [](const T& t) { return t.att.chunk ? text(t.att.chunk) : std::string("none"); }},
      BOOL_ROW(T, "qkv_bias", "no", "biases of the q, k and v projections", att.qkv_bias),
      BOOL_ROW(T, "out_bias", "no", "bias of the output projection", att.out_bias),
      {"qk_norm", "none, head, per-head-gain, no-gain, full", "none",
       "norm of queries and keys: per head with shared, own or no gains, or over the whole row",
       [](T& t, const IniValue& v) { set_qk_norm(t.att, choose(v, kQkNorms)); }, [](const T& t) { return named(kQkNorms, qk_norm_of(t.att)); }},
      BOOL_ROW(T, "sinks", "no", "one learned logit per head in the softmax", att.sinks),
      INT_ROW(T, "mlp", "0 (none)", "f, width of the MLP", mlp.width),
      BOOL_ROW(T, "gated", "no", "MLP and experts have a gate matrix (three matrices instead of two)", mlp.gated),
      ENUM_ROW(T, "activation", "gelu-tanh, gelu-erf, silu, relu, relu2", "gelu-tanh", "activation of MLP and experts", mlp.activation, kActivations),
      BOOL_ROW(T, "mlp_bias", "no", "biases of MLP and experts", mlp.bias),
      {"norms", "2, 4", "2", "norms per block; 4: also after attention and MLP", [](T& t, const IniValue& v) { t.norms = static_cast<int>(v.integer(2, 4)); },
       [](const T& t) { return text(std::int64_t{t.norms}); }},
      BOOL_ROW(T, "post_norm_only", "no", "norms stand after attention and MLP only", post_norm_only),
      BOOL_ROW(T, "parallel", "no", "attention and MLP read the same input", parallel),
      {"parallel_norms", "1, 2", "2", "norms of a parallel block; 1: shared",
       [](T& t, const IniValue& v) { t.parallel_norms = static_cast<int>(v.integer(1, 2)); }, [](const T& t) { return text(std::int64_t{t.parallel_norms}); }},
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& mla_rows() {
  static const std::vector<KeyRow<BlockDraft>> rows = {
      GROUP_INT(mla, "kv_rank", "required", "c, rank of the key/value latent", kv_rank),
      GROUP_INT(mla, "q_rank", "0 (queries projected directly)", "q_r, rank of the query latent", query_rank),
      GROUP_INT(mla, "nope_dim", "required", "d_n, query/key elements per head without position", nope_dim),
      GROUP_INT(mla, "v_dim", "required", "d_v, value elements per head", v_dim),
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& moe_rows() {
  static const std::vector<KeyRow<BlockDraft>> rows = {
      GROUP_INT(moe, "experts", "required", "E, routed experts", experts),
      GROUP_INT(moe, "picks", "required", "k, experts per token", picks),
      GROUP_INT(moe, "expert_width", "required", "f_e, width of a routed expert", width),
      GROUP_INT(moe, "shared_experts", "0", "s, experts that every token visits", shared),
      GROUP_INT(moe, "shared_width", "expert_width", "f_s, width of one shared expert", shared_width),
      GROUP_BOOL(moe, "shared_gate", "no", "sigmoid gate h -> 1 on the shared expert", shared_gate),
      {"expert_scores", "softmax, sigmoid", "softmax", "scores of the expert router",
       [](BlockDraft& t, const IniValue& v) {
         static constexpr Named<bool> kScores[] = {{"softmax", false}, {"sigmoid", true}};
         engaged(t.moe).sigmoid = choose(v, kScores);
       },
       [](const BlockDraft& t) { return std::string(!t.moe ? "" : t.moe->sigmoid ? "sigmoid" : "softmax"); }},
      GROUP_BOOL(moe, "expert_router_bias", "no", "bias of the expert router", router_bias),
      GROUP_BOOL(moe, "correction_bias", "no", "score correction per expert", correction_bias),
      GROUP_INT(moe, "noops", "0", "E0, extra no-op experts of cost 0 (integrated MoDE)", noops),
      {"noop_share", "fraction", "0", "nu, expected share of assignments that go to no-ops",
       [](BlockDraft& t, const IniValue& v) { engaged(t.moe).noop_share = v.fraction(); },
       [](const BlockDraft& t) { return t.moe ? t.moe->noop_share.str() : std::string(); }},
      GROUP_FRACTION(moe, "expert_capacity", "none (dropless)", "capacity factor cf: slots per expert = round(cf T k / E)", capacity),
      {"expert_rounding", "floor, half-up, ceil", "floor", "rounding of the slots per expert",
       [](BlockDraft& t, const IniValue& v) { engaged(t.moe).capacity_rounding = v.parse(parse_rounding); },
       [](const BlockDraft& t) { return t.moe ? std::string(rounding_name(t.moe->capacity_rounding)) : std::string(); }},
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& route_rows() {
  static const std::vector<KeyRow<BlockDraft>> rows = {
      GROUP_FRACTION(route, "capacity", "one of capacity, slots", "rho, share of a sequence's tokens that take the block", capacity),
      {"slots", "integer", "one of capacity, slots", "C, absolute slots per sequence",
       [](BlockDraft& t, const IniValue& v) { engaged(t.route).slots = v.integer(0, kMax); },
       [](const BlockDraft& t) { return t.route && t.route->slots ? text(*t.route->slots) : std::string(); }},
      {"rounding", "floor, half-up, ceil", "floor", "rounding of capacity x length",
       [](BlockDraft& t, const IniValue& v) { engaged(t.route).rounding = v.parse(parse_rounding); },
       [](const BlockDraft& t) { return t.route ? std::string(rounding_name(t.route->rounding)) : std::string(); }},
      GROUP_INT(route, "min_slots", "0", "least slots per sequence", min_slots),
      GROUP_ENUM(route, "router", "linear, mlp", "linear", "depth router", router, kRouters),
      GROUP_INT(route, "router_hidden", "0", "u, width of an MLP router", router_hidden),
      GROUP_BOOL(route, "router_bias", "no", "bias of the router", router_bias),
      GROUP_ENUM(route, "gate", "none, raw, sigmoid, scaled-sigmoid, tanh", "raw", "g(r), the weight of a routed update", gate.kind, kGates),
      GROUP_REAL(route, "gate_alpha", "1", "alpha of scaled-sigmoid and tanh", gate.alpha),
      GROUP_REAL(route, "gate_beta", "0", "beta of tanh", gate.beta),
      GROUP_ENUM(route, "gate_on", "delta, mlp, attention, whole", "delta", "what the gate multiplies", gate_on, kGatesOn),
      GROUP_ENUM(route, "part", "block, attention, mlp", "block", "which part of the block is skipped", part, kParts),
      GROUP_ENUM(route, "kv", "selected, all", "selected", "which tokens supply and store keys and values", kv, kKvPolicies),
      {"predictor", "none, linear, integer", "none", "sampling-time predictor: linear, or an MLP of this width",
       [](BlockDraft& t, const IniValue& v) {
         auto& predictor = engaged(t.route).predictor;
         predictor.reset();
         if (v.text() != "none") predictor = Predictor{v.text() == "linear" ? 0 : v.integer(1, kMax)};
       },
       [](const BlockDraft& t) {
         if (!t.route) return std::string();
         return !t.route->predictor ? std::string("none") : t.route->predictor->hidden == 0 ? std::string("linear") : text(t.route->predictor->hidden);
       }},
      GROUP_REAL(route, "aux_lambda", "0.01", "weight of the auxiliary router loss; 0: none", aux_lambda),
      GROUP_BOOL(route, "aux_detached", "no", "the auxiliary gradient stays out of the residual stream", aux_detached),
      GROUP_INT(route, "adapter", "0 (identity)", "width of an adapter on the bypass", adapter),
  };
  return rows;
}

const std::vector<KeyRow<Lora>>& lora_rows() {
  static const std::vector<KeyRow<Lora>> rows = {
      INT_ROW(Lora, "rank", "required", "r, rank of the adapters; the base is frozen", rank),
      {"targets", "list of q, k, v, o, up, gate, down", "required", "matrices with an adapter",
       [](Lora& t, const IniValue& v) {
         for (const IniValue& element : v.list()) t.targets.push_back(element.text());
       },
       [](const Lora& t) {
         std::string list;
         for (const std::string& target : t.targets) list += (list.empty() ? "" : ", ") + target;
         return list;
       }},
  };
  return rows;
}

BlockConfig finished(const BlockDraft& draft, const Network& network) {
  BlockConfig block;
  block.norms = draft.norms, block.post_norm_only = draft.post_norm_only;
  block.parallel = draft.parallel, block.parallel_norms = draft.parallel_norms;
  block.route = draft.route;
  if (draft.attention) {
    AttentionConfig a = draft.att;
    if (a.kv_heads == 0) a.kv_heads = a.heads;
    if (draft.mla) {
      a.mla = draft.mla;
      a.mla->rope_dim = std::max<std::int64_t>(0, draft.rope_dim);
      if (a.head_dim == 0) a.head_dim = a.mla->nope_dim + a.mla->rope_dim;
      a.rope_dim = network.positions == PositionKind::kRope ? a.mla->rope_dim : 0;
    } else {
      if (a.head_dim == 0 && a.heads > 0) {
        if (network.width % a.heads != 0)
          throw_input(fmt::format("the width {} is no multiple of {} heads", network.width, a.heads), {network.source, 0, "head_dim"}, "state head_dim");
        a.head_dim = network.width / a.heads;
      }
      a.rope_dim = draft.rope_dim >= 0 ? draft.rope_dim : network.positions == PositionKind::kRope ? a.head_dim : 0;
    }
    block.attention = a;
  }
  if (draft.mlp.width > 0 || draft.moe) {
    block.mlp = draft.mlp;
    block.mlp->moe = draft.moe;
    if (draft.moe) {
      block.mlp->width = 0;
      if (draft.moe->shared > 0 && draft.moe->shared_width == 0) block.mlp->moe->shared_width = draft.moe->width;
    }
  }
  return block;
}

BlockDraft draft_of(const BlockConfig& block, const Network& network) {
  BlockDraft draft;
  draft.norms = block.norms, draft.post_norm_only = block.post_norm_only;
  draft.parallel = block.parallel, draft.parallel_norms = block.parallel_norms;
  draft.route = block.route;
  draft.attention = block.attention.has_value();
  if (block.attention) {
    AttentionConfig a = *block.attention;
    draft.mla = a.mla;
    a.mla.reset();
    if (a.kv_heads == a.heads) a.kv_heads = 0;
    if (draft.mla) {
      draft.rope_dim = draft.mla->rope_dim;
      if (a.head_dim == draft.mla->nope_dim + draft.mla->rope_dim) a.head_dim = 0;
    } else {
      draft.rope_dim = a.rope_dim == (network.positions == PositionKind::kRope ? a.head_dim : 0) ? -1 : a.rope_dim;
      if (a.heads > 0 && network.width % a.heads == 0 && a.head_dim == network.width / a.heads) a.head_dim = 0;
    }
    draft.att = a;
  }
  if (block.mlp) {
    draft.mlp = *block.mlp;
    draft.moe = block.mlp->moe;
    draft.mlp.moe.reset();
    if (draft.moe) draft.mlp.width = 0;
    if (draft.moe && draft.moe->shared_width == draft.moe->width && draft.moe->shared > 0) draft.moe->shared_width = 0;
  }
  return draft;
}

}  // namespace fathom
