#include "models/network_keys.hpp"

#include <fmt/format.h>

#include "models/key_rows.hpp"

namespace fathom {
namespace {

using keys::all_names, keys::choose, keys::Limits, keys::Named, keys::named, keys::named_row, keys::number_row, keys::reach, keys::read_number, keys::text, keys::value_row;

// What validate() enforces (models/network.cpp).
constexpr Limits kSize{1, kMaxSize}, kSizeOrNone{0, kMaxSize}, kSpan{1, kMaxTokens}, kTokens{0, kMaxTokens}, kExperts{1, kMaxExperts}, kExpertsOrNone{0, kMaxExperts}, kModules{0, kMaxModules};
constexpr Limits kPadded{0, kMaxSize, "0, or vocab to 2147483648"}, kKvHeads{1, kMaxSize, "1 to heads, which it divides"}, kRotated{0, kMaxSize, "0 to head_dim"},
    kPicks{1, 2 * kMaxExperts, "1 to experts + noops"};
static_assert(kMaxSize == 2147483648);

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

}  // namespace

const std::vector<KeyRow<Network>>& network_rows() {
  using T = Network;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::name>("name", "the file's name", "name in reports"),
      value_row<T, &T::summary>("summary", "none", "one line for lists"),
      number_row<T, kSize, &T::width>("width", "required", "h, elements of the residual stream"),
      number_row<T, kSize, &T::vocab>("vocab", "required", "V, tokens"),
      number_row<T, kPadded, &T::padded_vocab>("padded_vocab", "0 (vocab)", "stored rows of token table and head"),
      number_row<T, kTokens, &T::max_length>("max_length", "0 (not stated)",
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
      value_row<T, &T::freeze_embedding>("freeze_embedding", "no", "the token table is not trained, nor the bias of a head tied to it, nor norms before the first products that nothing trained feeds (an embedding norm is trained, and so are those behind it)"),
      value_row<T, &T::weight_dtype>("weight_dtype", "none (the run's type)",
                                     "stored type of the matrices inside the layers, routers apart"),
      number_row<T, kModules, &T::mtp>("mtp", "0", "multi-token prediction modules that are counted"),
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
          [](BlockDraft& t, const IniValue& v) { t.att.*Member = v.text() == "none" ? 0 : read_number(v, kSpan); },
          [](const BlockDraft& t) { return t.att.*Member ? text(t.att.*Member) : std::string("none"); }};
}

// A size that follows from others where it is not stated; 0 is refused because it would silently mean that.
template <auto Member, const Limits& kLimits>
KeyRow<BlockDraft> count_row(const char* key, const char* standard, const char* meaning) {
  return {key,
          "integer >= 1",
          standard,
          meaning,
          [](BlockDraft& t, const IniValue& v) { t.att.*Member = read_number(v, kLimits); },
          [](const BlockDraft& t) { return text(t.att.*Member); }};
}

// One of two small numbers.
template <auto Member, int kOne, int kOther>
KeyRow<BlockDraft> small_row(const char* key, const char* standard, const char* meaning) {
  return {key,
          fmt::format("{}, {}", kOne, kOther),
          standard,
          meaning,
          [](BlockDraft& t, const IniValue& v) {
            const std::int64_t value = v.integer(std::numeric_limits<std::int64_t>::min());
            if (value != kOne && value != kOther) v.fail(fmt::format("must be {} or {}, not {}", kOne, kOther, value));
            t.*Member = static_cast<int>(value);
          },
          [](const BlockDraft& t) { return text(std::int64_t{t.*Member}); }};
}

}  // namespace

const std::vector<KeyRow<BlockDraft>>& block_rows() {
  using T = BlockDraft;
  using A = AttentionConfig;
  using M = MlpConfig;
  static const std::vector<KeyRow<T>> rows = {
      value_row<T, &T::attention>("attention", "yes", "the block has attention"),
      number_row<T, kSize, &T::att, &A::heads>("heads", "required", "n, query heads"),
      count_row<&A::kv_heads, kKvHeads>("kv_heads", "heads", "m, key/value heads; divides heads"),
      count_row<&A::head_dim, kSize>("head_dim", "width / heads", "d, elements per head"),
      number_row<T, kRotated, &T::rope_dim>("rope_dim", "head_dim with rope, else 0",
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
      number_row<T, kSizeOrNone, &T::mlp, &M::width>("mlp", "0 (none)", "f, width of the MLP"),
      value_row<T, &T::mlp, &M::gated>("gated", "no", "MLP and experts have a gate matrix (three matrices, not two)"),
      named_row<T, kActivations, &T::mlp, &M::activation>("activation", "gelu-tanh", "activation of MLP and experts"),
      value_row<T, &T::mlp, &M::bias>("mlp_bias", "no", "biases of MLP and experts"),
      small_row<&T::norms, 2, 4>("norms", "2", "norms per block; 4: also after attention and MLP"),
      value_row<T, &T::post_norm_only>("post_norm_only", "no", "norms stand after attention and MLP only"),
      value_row<T, &T::parallel>("parallel", "no", "attention and MLP read the same input"),
      small_row<&T::parallel_norms, 1, 2>("parallel_norms", "2", "norms of a parallel block; 1: shared"),
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& mla_rows() {
  using T = BlockDraft;
  static const std::vector<KeyRow<T>> rows = {
      number_row<T, kSize, &T::mla, &Mla::kv_rank>("kv_rank", "required", "c, rank of the key/value latent"),
      number_row<T, kSizeOrNone, &T::mla, &Mla::query_rank>("q_rank", "0 (queries projected directly)",
                                              "q_r, rank of the query latent"),
      number_row<T, kSize, &T::mla, &Mla::nope_dim>("nope_dim", "required",
                                            "d_n, query/key elements per head without position"),
      number_row<T, kSize, &T::mla, &Mla::v_dim>("v_dim", "required", "d_v, value elements per head"),
  };
  return rows;
}

const std::vector<KeyRow<BlockDraft>>& moe_rows() {
  using T = BlockDraft;
  using E = MoeConfig;
  static const std::vector<KeyRow<T>> rows = {
      number_row<T, kExperts, &T::moe, &E::experts>("experts", "required", "E, routed experts"),
      number_row<T, kPicks, &T::moe, &E::picks>("picks", "required", "k, experts per token"),
      number_row<T, kSize, &T::moe, &E::width>("expert_width", "required", "f_e, width of a routed expert"),
      number_row<T, kExpertsOrNone, &T::moe, &E::shared>("shared_experts", "0", "s, experts that every token visits"),
      number_row<T, kSizeOrNone, &T::moe, &E::shared_width>("shared_width", "expert_width", "f_s, width of one shared expert"),
      value_row<T, &T::moe, &E::shared_gate>("shared_gate", "no", "sigmoid gate h -> 1 on the shared expert"),
      named_row<T, kExpertScores, &T::moe, &E::sigmoid>("expert_scores", "softmax", "scores of the expert router"),
      value_row<T, &T::moe, &E::router_bias>("expert_router_bias", "no", "bias of the expert router"),
      value_row<T, &T::moe, &E::correction_bias>("correction_bias", "no", "score correction per expert"),
      number_row<T, kExpertsOrNone, &T::moe, &E::noops>("noops", "0", "E0, extra no-op experts of cost 0 (integrated MoDE)"),
      value_row<T, &T::moe, &E::noop_share>("noop_share", "0", "nu, expected share of assignments that go to no-ops"),
      value_row<T, &T::moe, &E::capacity>("expert_capacity", "none (dropless)",
                                          "capacity factor cf: slots per expert = round(cf T k / E), at least 1; more than the T tokens stay empty"),
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
      number_row<T, kTokens, &T::route, &R::slots>("slots", "one of capacity, slots", "C, absolute slots per sequence"),
      value_row<T, &T::route, &R::rounding>("rounding", "floor", "rounding of capacity x length"),
      number_row<T, kTokens, &T::route, &R::min_slots>("min_slots", "0", "least slots per sequence"),
      named_row<T, kRouters, &T::route, &R::router>("router", "linear", "depth router"),
      number_row<T, kSizeOrNone, &T::route, &R::router_hidden>("router_hidden", "0", "u, width of an MLP router"),
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
         if (v.text() != "none") predictor = Predictor{v.text() == "linear" ? 0 : read_number(v, kSize)};
       },
       [](const T& t) -> std::string {
         if (!t.route) return "";
         if (!t.route->predictor) return "none";
         return t.route->predictor->hidden == 0 ? "linear" : text(t.route->predictor->hidden);
       }},
      value_row<T, &T::route, &R::aux_lambda>("aux_lambda", "0.01", "weight of the auxiliary router loss; 0: none"),
      value_row<T, &T::route, &R::aux_detached>("aux_detached", "no",
                                                "the auxiliary gradient stays out of the residual stream"),
      number_row<T, kSizeOrNone, &T::route, &R::adapter>("adapter", "0 (identity)", "width of an adapter on the bypass"),
  };
  return rows;
}

const std::vector<KeyRow<Lora>>& lora_rows() {
  static const std::vector<KeyRow<Lora>> rows = {
      number_row<Lora, kSize, &Lora::rank>("rank", "required", "r, rank of the adapters; the base is frozen"),
      {"targets", "list of q, k, v, o, up, gate, down", "required", "matrices with an adapter",
       [](Lora& t, const IniValue& v) {
         for (const IniValue& element : v.list()) t.targets.push_back(element.text());
       },
       [](const Lora& t) { return fmt::format("{}", fmt::join(t.targets, ", ")); }},
  };
  return rows;
}

}  // namespace fathom
