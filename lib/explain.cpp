#include "lib/explain.hpp"

#include <fmt/format.h>

#include "lib/error.hpp"

namespace fathom {
namespace {

constexpr std::string_view kNoFlops = "0: no matrix arithmetic";

// Fields that are a choice are integers in the list; people read its name. In the order of the enumerations of lib/op_forward.hpp.
std::string word_of(std::string_view name, int value) {
  static const std::vector<std::pair<std::string_view, std::vector<std::string_view>>> kChoices = {
      {"mask", {"causal", "full"}},
      {"role", {"forward", "input gradient", "weight gradient"}},
      {"kind", {"gelu-tanh", "gelu", "silu", "relu", "relu2"}},
      {"rule", {"topk", "threshold", "predictor", "random"}},
      {"gate", {"none", "raw", "sigmoid", "scaled-sigmoid", "tanh"}},
  };
  for (const auto& [field, words] : kChoices)
    if (field == name && value >= 0 && static_cast<std::size_t>(value) < words.size()) return std::string(words[static_cast<std::size_t>(value)]);
  return fmt::format("{}", value);
}

struct FieldText {
  std::vector<std::pair<std::string, std::string>>& out;
  void operator()(std::string_view name, const Rows& rows) const {
    out.emplace_back(name, rows.routed() ? fmt::format("{} at most, each with probability {}", rows.count, rows.probability.str()) : fmt::format("{}", rows.count));
  }
  void operator()(std::string_view name, const Fraction& value) const { out.emplace_back(name, value.str()); }
  void operator()(std::string_view name, DType type) const { out.emplace_back(name, std::string(dtype_name(type))); }
  void operator()(std::string_view name, u128 value) const { out.emplace_back(name, to_string(value)); }
  void operator()(std::string_view name, bool value) const { out.emplace_back(name, value ? "yes" : "no"); }
  void operator()(std::string_view name, double value) const {
    if (value >= 0 || !name.starts_with("expected_")) out.emplace_back(name, fmt::format("{}", value));  // an expectation below 0: it follows from rows and pairs
  }
  void operator()(std::string_view name, std::int64_t value) const { out.emplace_back(name, fmt::format("{}", value)); }
  void operator()(std::string_view name, int value) const { out.emplace_back(name, word_of(name, value)); }
};

}  // namespace

const std::vector<KindExplanation>& kind_explanations() {
  static const std::vector<KindExplanation> kAll = {
      {"embedding", "Gathers one table row per token; learned positions add a second row.", kNoFlops, "embedding: rows x width (twice with positions)",
       "read: token ids, rows x width per table; written: rows x width", "a gather is no matrix product; lib/cost_rules.cpp"},
      {"rms_norm", "y = x / rms(x) x gain.", kNoFlops, "norm: rows x groups x width", "read: x, gain; written: y (and 1/rms in training)", "Zhang and Sennrich, arXiv 1910.07467; lib/cost_rules.cpp"},
      {"layer_norm", "y = (x - mean) / std x gain + bias.", kNoFlops, "norm: rows x width", "read: x, gain, bias; written: y (and mean, 1/std in training)", "Ba et al., arXiv 1607.06450; lib/cost_rules.cpp"},
      {"gemm", "Matrix product of rows with a weight; dX and dW of the backward pass are products of the same size.", "2 x rows x in x out",
       "bias: rows x out where there is a bias", "read: X, W once per distinct weight set; written: Y", "2 FLOP per multiply-add as in Kaplan et al., arXiv 2001.08361, 2.1; lib/cost_rules.cpp"},
      {"rope", "Rotates queries and keys by their original positions.", kNoFlops, "rope: rows x (heads + kv_heads) x rotated width", "read and written: the rotated elements",
       "Su et al., arXiv 2104.09864; lib/cost_rules.cpp"},
      {"attention", "softmax(QK^T) V over visible (query, key) pairs, one atomic op. A whole causal sequence has S(S+1)/2 of them; a window or chunk leaves fewer, a decode step has one per key.",
       "2 x heads x (qk_dim + v_dim) x pairs",
       "softmax: heads x pairs", "read: Q, and K and V of the keys read. A pass without cached tokens reads the K and V that it has just made, in the type of compute, and writes the cache beside (kv_append); behind cached tokens, and in decode, all K and V are read back from the cache, in its type. Written: output (and log-sum-exp in training)", "Vaswani et al., arXiv 1706.03762, 3.2; pairs: models/pairs.hpp; lib/cost_rules.cpp"},
      {"kv_append", "Stores new keys and values in the cache.", kNoFlops, "kv_append: rows x width", "read and written: rows x width", "Shazeer, arXiv 1911.02150 (incremental decoding); lib/cost_rules.cpp"},
      {"activation", "y = act(x), gated: act(gate) x up.", kNoFlops, "activation: rows x width; gate_product: the same where gated", "read: inputs; written: output", "gated: Shazeer, arXiv 2002.05202; lib/cost_rules.cpp"},
      {"add_residual", "y = a + b.", kNoFlops, "residual: rows x width", "read: a, b; written: y", "He et al., arXiv 1512.03385; lib/cost_rules.cpp"},
      {"router_score", "One score per token: r = x w (+ b).", "2 x rows x width", "router_probability: rows", "read: x, w; written: scores in f32", "Raposo et al., arXiv 2404.02258, 3.4; lib/cost_rules.cpp"},
      {"select", "Chooses the rows of a routed block: top-k per sequence by (-score, position), or score above the threshold.", kNoFlops, "select: candidates",
       "read: scores; written: indices and positions of the selected rows", "Raposo et al., arXiv 2404.02258, 3.3 (expert choice) and 3.5 (sampling); lib/cost_rules.cpp"},
      {"gather_rows", "y = x[indices].", kNoFlops, "gather: rows x width", "read: rows x width, indices; written: rows x width", "Raposo et al., arXiv 2404.02258, 3.4; lib/cost_rules.cpp"},
      {"scatter_add_rows", "y[indices] += g(score) x f, in place on the stream.", kNoFlops, "gate and scatter: rows x width each", "read: stream rows and f; written: stream rows",
       "Raposo et al., arXiv 2404.02258, 3.4, equation 1; lib/cost_rules.cpp"},
      {"expert_select", "Softmax and top-k over experts, weights, permutation by expert.", kNoFlops, "router_probability and select: rows x (experts + no-ops)",
       "read: logits; written: permutation, weights, offsets", "Shazeer et al., arXiv 1701.06538; lib/cost_rules.cpp"},
      {"expert_dispatch", "Copies each token's row to its experts' rows.", kNoFlops, "gather: assignments x width", "read and written: assignments x width", "Lepikhin et al., arXiv 2006.16668; lib/cost_rules.cpp"},
      {"expert_combine", "Weighted sum of a token's expert outputs.", kNoFlops, "gate and scatter: assignments x width", "read: expert rows; written: tokens x width", "Lepikhin et al., arXiv 2006.16668; lib/cost_rules.cpp"},
      {"cross_entropy", "Mean negative log-likelihood; in training it also writes the logits' gradient in place.", kNoFlops, "cross_entropy: rows x vocabulary",
       "read: logits; written: loss (and gradient)", "lib/cost_rules.cpp"},
      {"router_loss", "Binary cross-entropy of scores against the selection.", kNoFlops, "router_probability: rows", "read: scores, indices; written: score gradients", "Raposo et al., arXiv 2404.02258, 3.5; lib/cost_rules.cpp"},
      {"rms_norm_backward", "Gradient of the norm: dx and dgain.", kNoFlops, "norm: rows x groups x width", "read: x, dy (dx where added to); written: dx, dgain", "lib/cost_rules.cpp"},
      {"layer_norm_backward", "Gradient of the norm: dx, dgain, dbias.", kNoFlops, "norm: rows x width", "read: x, dy (dx where added to); written: dx, dgain, dbias", "lib/cost_rules.cpp"},
      {"attention_backward", "dQ, dK, dV. Model FLOPs are twice the forward's; a fused kernel repeats QK^T, counted apart.",
       "4 x heads x (qk_dim + v_dim) x pairs; recomputed on top: 2 x heads x qk_dim x pairs", "softmax: heads x pairs", "read: Q, K, V, output, its gradient; written: dQ, dK, dV",
       "repeated QK^T: Dao et al., arXiv 2205.14135, algorithm 4; lib/cost_rules.cpp"},
      {"activation_backward", "Gradient of the activation.", kNoFlops, "activation (and gate_product): rows x width", "read: inputs, dy; written: gradients", "lib/cost_rules.cpp"},
      {"scatter_add_backward", "df = g dy[indices]; dscore = g' <dy, f>.", kNoFlops, "gate: 2 x rows x width; gather: rows x width", "read: dy rows, f; written: df, dscores",
       "the derivative of Raposo et al., arXiv 2404.02258, equation 1; lib/cost_rules.cpp"},
      {"gather_backward", "dx[indices] += dy.", kNoFlops, "scatter: rows x width", "read: dx rows, dy; written: dx rows", "lib/cost_rules.cpp"},
      {"router_score_backward", "dw = sum dr_i x_i over the rows with a score gradient; dx_i += dr_i w.", "2 x width x (weight rows + input rows)", "none",
       "read: x, dx rows; written: dx rows, dw", "the derivative of Raposo et al., arXiv 2404.02258, equation 1; lib/cost_rules.cpp"},
      {"expert_select_backward", "Gradient of the expert weights through the softmax.", kNoFlops, "router_probability: rows x (experts + no-ops)", "read: weights; written: dlogits", "lib/cost_rules.cpp"},
      {"expert_combine_backward", "Gradient of the weighted sum.", kNoFlops, "gate: 2 x assignments x width; gather: assignments x width", "read: dy, expert rows; written: gradients",
       "lib/cost_rules.cpp"},
      {"expert_dispatch_backward", "Sums the gradients of a token's copies.", kNoFlops, "scatter: assignments x width", "read: copies; written: tokens x width", "lib/cost_rules.cpp"},
      {"embedding_backward", "Adds each token's gradient to its table row.", kNoFlops, "embedding: rows x width per table", "read: dx, table rows; written: table rows", "lib/cost_rules.cpp"},
      {"gradient_norm", "Sum of squares of gradients, for clipping.", kNoFlops, "optimizer: parameters", "read: gradients", "Pascanu et al., arXiv 1211.5063; lib/cost_rules.cpp"},
      {"adamw", "One fused update of parameters and moments.", kNoFlops, "optimizer: 15 x parameters",
       "28 bytes per parameter with gradients as wide as the weights: read g, p, m, v; written p, m, v (and the narrow copy)", "Loshchilov and Hutter, arXiv 1711.05101; lib/cost_rules.cpp"},
      {"latent_heads", "Builds the rows that attention reads from the parts of latent attention: copies.", kNoFlops, "gather: rows x elements of a row",
       "read: queries, keys and values, the common rotated key once; written: the rows", "DeepSeek-V2, arXiv 2405.04434, 2.1; lib/cost_rules.cpp"},
      {"latent_heads_backward", "Takes the gradients of those rows apart; the rotated key's is the sum over heads.", kNoFlops, "gather: rows x elements of a row",
       "read: row gradients; written: gradients of the parts", "DeepSeek-V2, arXiv 2405.04434, 2.1; lib/cost_rules.cpp"},
  };
  return kAll;
}

const KindExplanation& explain_kind(std::string_view kind) {
  for (const KindExplanation& entry : kind_explanations())
    if (entry.kind == kind) return entry;
  std::vector<std::string> names;
  for (std::string_view name : kind_names()) names.emplace_back(name);
  throw_input(fmt::format("unknown op kind '{}'", kind), {"", 0, "explain"}, name_hint(kind, names));
}

std::string flops_with_numbers(const OpSpec& spec) {
  const std::string result = declared_cost(spec).flops.str();
  return std::visit(overloaded{
                        [&](const Gemm& op) {
                          if (op.batch > 1) return fmt::format("2 x {} x {} x {} x {} = {}", op.rows.count, op.batch, op.in, op.out, result);
                          return fmt::format("2 x {} x {} x {} = {}", op.rows.count, op.in, op.out, result);
                        },
                        [&](const Attention& op) { return fmt::format("2 x {} x ({} + {}) x {} = {}", op.heads, op.qk_dim, op.v_dim, to_string(op.pairs), result); },
                        [&](const AttentionBackward& op) {
                          return fmt::format("4 x {} x ({} + {}) x {} = {}", op.forward.heads, op.forward.qk_dim, op.forward.v_dim, to_string(op.forward.pairs), result);
                        },
                        [&](const RouterScore& op) { return fmt::format("2 x {} x {} = {}", op.rows.count, op.width, result); },
                        [&](const RouterScoreBackward& op) {
                          return fmt::format("2 x {} x ({} + {}) = {}", op.forward.width, op.weight_rows.count, op.input_rows.count, result);
                        },
                        [&](const auto&) { return result; },
                    },
                    spec);
}

std::vector<std::pair<std::string, std::string>> fields_of(const OpSpec& spec) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::visit([&](const auto& op) { op.fields(FieldText{fields}); }, spec);
  return fields;
}

}  // namespace fathom
