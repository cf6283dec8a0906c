#include "models/network_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace fathom {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 40;  // validate() knows the real limits

std::string text(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string text(bool value) {
  return value ? "yes" : "no";
}
std::string text(double value) {
  return fmt::format("{}", value);
}
std::string text(const std::string& value) {
  return value;
}
std::string text(const Fraction& value) {
  return value.str();
}
std::string text(DType value) {
  return std::string(dtype_name(value));
}
std::string text(Rounding value) {
  return std::string(rounding_name(value));
}
template <class T>
std::string text(const std::optional<T>& value) {
  return value ? text(*value) : std::string();
}

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

template <class Enum, std::size_t N>
std::string all_names(const Named<Enum> (&table)[N]) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

constexpr Named<NormKind> kNorms[] = {{"rms", NormKind::kRms}, {"layer", NormKind::kLayer}};
constexpr Named<PositionKind> kPositions[] = {
    {"rope", PositionKind::kRope}, {"learned", PositionKind::kLearned}, {"none", PositionKind::kNone}};
constexpr Named<ActivationKind> kActivations[] = {{"gelu-tanh", ActivationKind::kGeluTanh},
                                                  {"gelu-erf", ActivationKind::kGeluErf},
                                                  {"silu", ActivationKind::kSilu},
                                                  {"relu", ActivationKind::kRelu},
                                                  {"relu2", ActivationKind::kRelu2}};
constexpr Named<RouterKind> kRouters[] = {{"linear", RouterKind::kLinear}, {"mlp", RouterKind::kMlp}};
constexpr Named<KvPolicy> kKvPolicies[] = {{"selected", KvPolicy::kSelected}, {"all", KvPolicy::kAll}};
constexpr Named<GateKind> kGates[] = {{"none", GateKind::kNone},
                                      {"raw", GateKind::kRaw},
                                      {"sigmoid", GateKind::kSigmoid},
                                      {"scaled-sigmoid", GateKind::kScaledSigmoid},
                                      {"tanh", GateKind::kTanh}};
constexpr Named<GateOn> kGatesOn[] = {
    {"delta", GateOn::kDelta}, {"mlp", GateOn::kMlp}, {"attention", GateOn::kAttention}, {"whole", GateOn::kWhole}};
constexpr Named<RoutedPart> kParts[] = {
    {"block", RoutedPart::kBlock}, {"attention", RoutedPart::kAttention}, {"mlp", RoutedPart::kMlp}};

constexpr Named<bool> kExpertScores[] = {{"softmax", false}, {"sigmoid", true}};

// One key each of query/key norm: none, shared gains, gains per head, no gains, one norm over the row.
enum class QkNorm { kNone, kHead, kPerHead, kNoGain, kFull };
constexpr Named<QkNorm> kQkNorms[] = {{"none", QkNorm::kNone},
                                      {"head", QkNorm::kHead},
                                      {"per-head-gain", QkNorm::kPerHead},
                                      {"no-gain", QkNorm::kNoGain},
                                      {"full", QkNorm::kFull}};
QkNorm qk_norm_of(const AttentionConfig& a) {
  if (a.qk_norm_full) return QkNorm::kFull;
  if (!a.qk_norm) return QkNorm::kNone;
  return a.qk_gain == QkGain::kShared    ? QkNorm::kHead
         : a.qk_gain == QkGain::kPerHead ? QkNorm::kPerHead
                                         : QkNorm::kNoGain;
}
void set_qk_norm(AttentionConfig& a, QkNorm kind) {
  a.qk_norm_full = kind == QkNorm::kFull;
  a.qk_norm = kind != QkNorm::kNone && kind != QkNorm::kFull;
  a.qk_gain = kind == QkNorm::kPerHead ? QkGain::kPerHead : kind == QkNorm::kNoGain ? QkGain::kNone : QkGain::kShared;
}

// A row names its member by a path of member pointers: value_row<BlockDraft, &BlockDraft::moe,
// &MoeConfig::experts>(...). Reading engages an optional group on the way; peek() gives nullptr where a group is
// absent.
template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

template <auto Head, auto... Rest, class T>
auto& reach(T& object) {
  auto& found = object.*Head;
  if constexpr (sizeof...(Rest) == 0) {
    return found;
  } else if constexpr (kIsOptional<std::remove_cvref_t<decltype(found)>>) {
    if (!found) found.emplace();
    return reach<Rest...>(*found);
  } else {
    return reach<Rest...>(found);
  }
}

template <auto Head, auto... Rest, class T>
const auto* peek(const T& object) {
  const auto& found = object.*Head;
  if constexpr (sizeof...(Rest) == 0) {
    return &found;
  } else if constexpr (kIsOptional<std::remove_cvref_t<decltype(found)>>) {
    return found ? peek<Rest...>(*found) : decltype(peek<Rest...>(*found)){};
  } else {
    return peek<Rest...>(found);
  }
}

// How a member's type is written in a file.
void read_into(std::int64_t& member, const IniValue& value) {
  member = value.integer(0, kMax);
}
void read_into(bool& member, const IniValue& value) {
  member = value.boolean();
}
void read_into(double& member, const IniValue& value) {
  member = value.real();
}
void read_into(std::string& member, const IniValue& value) {
  member = value.text();
}
void read_into(Fraction& member, const IniValue& value) {
  member = value.fraction();
}
void read_into(DType& member, const IniValue& value) {
  member = value.parse(parse_dtype);
}
void read_into(Rounding& member, const IniValue& value) {
  member = value.parse(parse_rounding);
}
template <class T>
void read_into(std::optional<T>& member, const IniValue& value) {
  read_into(member.emplace(), value);
}
const char* values_of(std::int64_t) {
  return "integer";
}
const char* values_of(bool) {
  return "yes, no";
}
const char* values_of(double) {
  return "number";
}
const char* values_of(const std::string&) {
  return "text";
}
const char* values_of(const Fraction&) {
  return "fraction";
}
const char* values_of(DType) {
  return "f32, bf16, f16, f8, i8";
}
const char* values_of(Rounding) {
  return "floor, half-up, ceil";
}
template <class T>
const char* values_of(const std::optional<T>&) {
  return values_of(T{});
}

template <class T, auto... Path>
KeyRow<T> value_row(const char* key, const char* standard, const char* meaning) {
  using Value = std::remove_cvref_t<decltype(reach<Path...>(std::declval<T&>()))>;
  return {key,
          values_of(Value{}),
          standard,
          meaning,
          [](T& object, const IniValue& value) { read_into(reach<Path...>(object), value); },
          [](const T& object) {
            const auto* member = peek<Path...>(object);
            return member != nullptr ? text(*member) : std::string();
          }};
}

template <class T, const auto& Table, auto... Path>
KeyRow<T> named_row(const char* key, const char* standard, const char* meaning) {
  return {key,
          all_names(Table),
          standard,
          meaning,
          [](T& object, const IniValue& value) { reach<Path...>(object) = choose(value, Table); },
          [](const T& object) {
            const auto* member = peek<Path...>(object);
            return member != nullptr ? named(Table, *member) : std::string();
          }};
}

}  // namespace

const std::vector<KeyRow<Network>>& network_rows() {
  using T = Network;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::name>("name", "the file's name", "name in reports"),
      value_row<T, &T::summary>("summary", "none", "one line for lists"),
      value_row<T, &T::width>("width", "required", "h, elements of the residual stream"),
      value_row<T, &T::vocab>("vocab", "required", "V, tokens"),
      value_row<T, &T::padded_vocab>("padded_vocab", "0 (vocab)", "stored rows of token table and head"),
      value_row<T, &T::max_length>("max_length", "0 (not stated)",
                                   "longest sequence; rows of a learned position table"),
      named_row<T, kPositions, &T::positions>("positions", "rope", "position information"),
      value_row<T, &T::rope_base>("rope_base", "10000", "base of the rotation frequencies"),
      named_row<T, kNorms, &T::norm>("norm", "rms", "RMSNorm or LayerNorm"),
      value_row<T, &T::norm_bias>("norm_bias", "yes", "LayerNorm has a bias"),
      value_row<T, &T::norm_gain>("norm_gain", "yes", "norms have a gain"),
      value_row<T, &T::norm_epsilon>("norm_epsilon", "1e-05", "added to the variance"),
      value_row<T, &T::embedding_norm>("embedding_norm", "no", "norm after the embedding"),
      value_row<T, &T::final_norm>("final_norm", "yes", "norm before the head"),
      value_row<T, &T::tied>("tied", "yes", "the head uses the token table"),
      value_row<T, &T::head_bias>("head_bias", "no", "the head has a bias"),
      value_row<T, &T::freeze_embedding>("freeze_embedding", "no", "the token table is not trained"),
      value_row<T, &T::weight_dtype>("weight_dtype", "none (the run's type)",
                                     "stored type of the matrices inside the layers, routers apart"),
      value_row<T, &T::mtp>("mtp", "0", "multi-token prediction modules that are counted"),
  };
  return rows;
}

namespace {

// window and chunk: a length of at least 1, or none; 0 is refused because it would silently mean none.
template <auto Member>
KeyRow<BlockDraft> span_row(const char* key, const char* meaning) {
  return {key,
          "integer >= 1, none",
          "none",
          meaning,
          [](BlockDraft& t, const IniValue& v) { t.att.*Member = v.text() == "none" ? 0 : v.integer(1, kMax); },
          [](const BlockDraft& t) { return t.att.*Member ? text(t.att.*Member) : std::string("none"); }};
}

template <auto Member>
KeyRow<BlockDraft> small_row(const char* key, const char* values, const char* standard, const char* meaning) {
  return {key,
          values,
          standard,
          meaning,
          [](BlockDraft& t, const IniValue& v) { t.*Member = static_cast<int>(v.integer(1, 4)); },
          [](const BlockDraft& t) { return text(std::int64_t{t.*Member}); }};
}

}  // namespace

const std::vector<KeyRow<BlockDraft>>& block_rows() {
  using T = BlockDraft;
  using A = AttentionConfig;
  using M = MlpConfig;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::attention>("attention", "yes", "the block has attention"),
      value_row<T, &T::att, &A::heads>("heads", "required", "n, query heads"),
      value_row<T, &T::att, &A::kv_heads>("kv_heads", "heads", "m, key/value heads; divides heads"),
      value_row<T, &T::att, &A::head_dim>("head_dim", "width / heads", "d, elements per head"),
      value_row<T, &T::rope_dim>("rope_dim", "head_dim with rope, else 0",
                                 "rotated elements per head; 0: none in this block; with latent attention d_r"),
      span_row<&A::window>("window", "W, sliding window in keys, the query included"),
      span_row<&A::chunk>("chunk", "K, attention inside chunks of K tokens"),
      value_row<T, &T::att, &A::qkv_bias>("qkv_bias", "no", "biases of the q, k and v projections"),
      value_row<T, &T::att, &A::out_bias>("out_bias", "no", "bias of the output projection"),
      {"qk_norm", all_names(kQkNorms), "none",
       "norm of queries and keys: per head with shared, own or no gains, or over the whole row",
       [](T& t, const IniValue& v) { set_qk_norm(t.att, choose(v, kQkNorms)); },
       [](const T& t) { return named(kQkNorms, qk_norm_of(t.att)); }},
      value_row<T, &T::att, &A::sinks>("sinks", "no", "one learned logit per head in the softmax"),
      value_row<T, &T::mlp, &M::width>("mlp", "0 (none)", "f, width of the MLP"),
      value_row<T, &T::mlp, &M::gated>("gated", "no", "MLP and experts have a gate matrix (three matrices, not two)"),
      named_row<T, kActivations, &T::mlp, &M::activation>("activation", "gelu-tanh", "activation of MLP and experts"),
      value_row<T, &T::mlp, &M::bias>("mlp_bias", "no", "biases of MLP and experts"),
      small_row<&T::norms>("norms", "2, 4", "2", "norms per block; 4: also after attention and MLP"),
      value_row<T, &T::post_norm_only>("post_norm_only", "no", "norms stand after attention and MLP only"),
      value_row<T, &T::parallel>("parallel", "no", "attention and MLP read the same input"),
      small_row<&T::parallel_norms>("parallel_norms", "1, 2", "2", "norms of a parallel block; 1: shared"),
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& mla_rows() {
  using T = BlockDraft;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::mla, &Mla::kv_rank>("kv_rank", "required", "c, rank of the key/value latent"),
      value_row<T, &T::mla, &Mla::query_rank>("q_rank", "0 (queries projected directly)",
                                              "q_r, rank of the query latent"),
      value_row<T, &T::mla, &Mla::nope_dim>("nope_dim", "required",
                                            "d_n, query/key elements per head without position"),
      value_row<T, &T::mla, &Mla::v_dim>("v_dim", "required", "d_v, value elements per head"),
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& moe_rows() {
  using T = BlockDraft;
  using E = MoeConfig;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::moe, &E::experts>("experts", "required", "E, routed experts"),
      value_row<T, &T::moe, &E::picks>("picks", "required", "k, experts per token"),
      value_row<T, &T::moe, &E::width>("expert_width", "required", "f_e, width of a routed expert"),
      value_row<T, &T::moe, &E::shared>("shared_experts", "0", "s, experts that every token visits"),
      value_row<T, &T::moe, &E::shared_width>("shared_width", "expert_width", "f_s, width of one shared expert"),
      value_row<T, &T::moe, &E::shared_gate>("shared_gate", "no", "sigmoid gate h -> 1 on the shared expert"),
      named_row<T, kExpertScores, &T::moe, &E::sigmoid>("expert_scores", "softmax", "scores of the expert router"),
      value_row<T, &T::moe, &E::router_bias>("expert_router_bias", "no", "bias of the expert router"),
      value_row<T, &T::moe, &E::correction_bias>("correction_bias", "no", "score correction per expert"),
      value_row<T, &T::moe, &E::noops>("noops", "0", "E0, extra no-op experts of cost 0 (integrated MoDE)"),
      value_row<T, &T::moe, &E::noop_share>("noop_share", "0", "nu, expected share of assignments that go to no-ops"),
      value_row<T, &T::moe, &E::capacity>("expert_capacity", "none (dropless)",
                                          "capacity factor cf: slots per expert = round(cf T k / E)"),
      value_row<T, &T::moe, &E::capacity_rounding>("expert_rounding", "floor", "rounding of the slots per expert"),
      value_row<T, &T::moe, &E::skew>("expert_skew", "0 (even)",
                                      "uneven loads in expectation: the expert of rank r gets a share ~ r^-skew"),
      {"expert_loads", "list of numbers, none", "none (even)", "uneven loads in expectation: relative load of every expert",
       [](T& t, const IniValue& v) {
         auto& loads = reach<&T::moe, &E::loads>(t);
         loads.clear();
         if (v.text() == "none") return;
         for (const IniValue& element : v.list()) loads.push_back(element.real());
       },
       [](const T& t) { return t.moe ? fmt::format("{}", fmt::join(t.moe->loads, ", ")) : std::string(); }},
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& route_rows() {
  using T = BlockDraft;
  using R = Route;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::route, &R::capacity>("capacity", "one of capacity, slots",
                                            "rho, share of a sequence's tokens that take the block"),
      value_row<T, &T::route, &R::slots>("slots", "one of capacity, slots", "C, absolute slots per sequence"),
      value_row<T, &T::route, &R::rounding>("rounding", "floor", "rounding of capacity x length"),
      value_row<T, &T::route, &R::min_slots>("min_slots", "0", "least slots per sequence"),
      named_row<T, kRouters, &T::route, &R::router>("router", "linear", "depth router"),
      value_row<T, &T::route, &R::router_hidden>("router_hidden", "0", "u, width of an MLP router"),
      value_row<T, &T::route, &R::router_bias>("router_bias", "no", "bias of the router"),
      named_row<T, kGates, &T::route, &R::gate, &Gate::kind>("gate", "raw", "g(r), the weight of a routed update"),
      value_row<T, &T::route, &R::gate, &Gate::alpha>("gate_alpha", "1", "alpha of scaled-sigmoid and tanh"),
      value_row<T, &T::route, &R::gate, &Gate::beta>("gate_beta", "0", "beta of tanh"),
      named_row<T, kGatesOn, &T::route, &R::gate_on>("gate_on", "delta", "what the gate multiplies"),
      named_row<T, kParts, &T::route, &R::part>("part", "block", "which part of the block is skipped"),
      named_row<T, kKvPolicies, &T::route, &R::kv>("kv", "selected", "which tokens supply and store keys and values"),
      {"predictor", "none, linear, integer", "none", "sampling-time predictor: linear, or an MLP of this width",
       [](T& t, const IniValue& v) {
         auto& predictor = reach<&T::route, &R::predictor>(t);
         predictor.reset();
         if (v.text() != "none") predictor = Predictor{v.text() == "linear" ? 0 : v.integer(1, kMax)};
       },
       [](const T& t) -> std::string {
         if (!t.route) return "";
         if (!t.route->predictor) return "none";
         return t.route->predictor->hidden == 0 ? "linear" : text(t.route->predictor->hidden);
       }},
      value_row<T, &T::route, &R::aux_lambda>("aux_lambda", "0.01", "weight of the auxiliary router loss; 0: none"),
      value_row<T, &T::route, &R::aux_detached>("aux_detached", "no",
                                                "the auxiliary gradient stays out of the residual stream"),
      value_row<T, &T::route, &R::adapter>("adapter", "0 (identity)", "width of an adapter on the bypass"),
  };
  return rows;
}

const std::vector<KeyRow<Lora>>& lora_rows() {
  static const std::vector<KeyRow<Lora>> rows = {
      value_row<Lora, &Lora::rank>("rank", "required", "r, rank of the adapters; the base is frozen"),
      {"targets", "list of q, k, v, o, up, gate, down", "required", "matrices with an adapter",
       [](Lora& t, const IniValue& v) {
         for (const IniValue& element : v.list()) t.targets.push_back(element.text());
       },
       [](const Lora& t) { return fmt::format("{}", fmt::join(t.targets, ", ")); }},
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
          throw_input(fmt::format("the width {} is no multiple of {} heads", network.width, a.heads),
                      {network.source, 0, "head_dim"}, "state head_dim");
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
