// Claims 19-22 and 28-31: devices, caches, serving and time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/count/audit_parts.hpp"
#include "models/count/depth.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"

namespace fathom::audit_parts {
namespace {

AuditClaim communication(const AuditSetting& s) {
  const Network alternating = alternate(s.dense, 2, {1, 8});
  const double slots = static_cast<double>(slots_of(*alternating.block(1).route, s.length));
  const double h = static_cast<double>(s.dense.width);
  AuditClaim c{19, "article", "no communication between GPUs", {}, "", AuditVerdict::kConditional,
               "data parallel: none is added; tensor parallel: the usual all-reduces, on C rows; sequence parallel: scores are gathered and rows are unbalanced"};
  c.figures.push_back(count("tensor parallel: bytes all-reduced per routed block and sequence, bf16", "0", 2 * slots * h * 2, "two all-reduces of C h elements"));
  c.figures.push_back(count("the same of a full block", "", 2 * static_cast<double>(s.length) * h * 2, "two all-reduces of S h elements"));
  c.figures.push_back(count("sequence parallel: bytes of scores gathered per routed block", "0", 4.0 * static_cast<double>(s.length), "S f32 scores"));
  return c;
}

double page_waste(double rho, double page, double tokens) { return page / 2 / (rho * tokens); }

AuditClaim cache_saving(const AuditSetting& s) {
  AuditClaim c{20, "article", "the KV cache is up to 40 % smaller", {}, "p-MoD 46.2 %, D-LLM 45-50 %", AuditVerdict::kConditional,
               "one setting, not a bound; 0 % where all tokens keep K/V or holes are not compacted; page waste comes off"};
  c.figures.push_back(percent("saved by this model", "40 %", kv_saving(s.routed, s.length).value(), "KV bytes of model and dense twin: q (1 - rho) where layers are alike"));
  for (const Fraction& capacity : {Fraction{1, 8}, Fraction{1, 5}, Fraction{1, 4}, Fraction{1, 2}})
    c.figures.push_back(percent(fmt::format("every second block at {}", capacity.str()), "40 %", kv_saving(alternate(s.dense, 2, capacity), s.length).value(), "KV bytes of model and dense twin"));
  for (const Fraction& capacity : {Fraction{1, 2}, Fraction{1, 8}})
    c.figures.push_back(percent(fmt::format("every block at {}", capacity.str()), "40 %", kv_saving(alternate(s.dense, 1, capacity), s.length).value(), "KV bytes of model and dense twin"));
  Network all = alternate(s.dense, 2, {1, 8});
  for (BlockConfig& kind : all.kinds)
    if (kind.route) kind.route->kv = KvPolicy::kAll;
  c.figures.push_back(percent("every second block at 1/8, all tokens keep K/V", "40 %", kv_saving(all, s.length).value(), "KV bytes of model and dense twin"));
  for (double tokens : {512.0, 2048.0})
    c.figures.push_back(percent(fmt::format("page waste of a 1/8 list, pages of 16, {:.0f} tokens", tokens), "", page_waste(0.125, 16, tokens), "half a page / (rho T)"));
  return c;
}

AuditClaim concurrency(const AuditSetting& s) {
  AuditClaim c{21, "article", "twice the concurrent requests because half of the products are gone", {}, "", AuditVerdict::kConditional, "only where the KV cache limits the batch and skipped entries are really not stored: decode is bound by memory, not by products"};
  const auto gain = [&](const Network& network) { return 1 / (1 - kv_saving(network, s.length).value()); };
  c.figures.push_back(factor("sequences in the same cache, this model", "2 x", gain(s.routed), "1 / (1 - KV saving)"));
  c.figures.push_back(factor("every second block at 1/8", "2 x", gain(alternate(s.dense, 2, {1, 8})), "1 / (1 - KV saving)"));
  c.figures.push_back(factor("every second block at 1/2", "2 x", gain(alternate(s.dense, 2, {1, 2})), "1 / (1 - KV saving)"));
  c.figures.push_back(factor("every block at 1/2", "2 x", gain(alternate(s.dense, 1, {1, 2})), "1 / (1 - KV saving)"));
  return c;
}

AuditClaim fixed_budget(const AuditSetting& s) {
  const std::vector<Rational> shares = capacity_shares(s.routed, s.length);
  const double declared = mean_capacity(s.routed, s.length).value();
  AuditClaim c{22, "post", "the predictor keeps a fixed budget at inference", {}, "", AuditVerdict::kDoesNotHold, "a threshold decides each token alone; contradicts claim 5"};
  c.figures.push_back(percent("highest participation at accuracy 97 %", fmt::format("{:.4g} %", 100 * declared), mean_over(shares, [](double p) { return std::min(1.0, p + 0.03); }), "p + (1 - a), not above 1; mean over the routed blocks"));
  c.figures.push_back(number("standard deviation of rows, 128 sequences", "0", mean_over(shares, [](double p) { return std::sqrt(128 * p * (1 - p)); }), "sqrt(B p (1 - p)), mean over the routed blocks"));
  c.figures.push_back(number("99th percentile of rows, 128 sequences", "", mean_over(shares, [](double p) { return static_cast<double>(binomial_quantile(128, p, 0.99)); }), "Binomial(B, p), mean over the routed blocks"));
  return c;
}

AuditClaim experts() {
  const ParameterCount params = count_parameters(builtin_network("mixtral-8x7b"));
  AuditClaim c{28, "article", "MoE: constant share of active parameters, large memory", {}, "", AuditVerdict::kHolds, "by definition of top-k experts"};
  c.figures.push_back(percent("active share of Mixtral 8x7B", "", params.active.to_double() / params.total.to_double(), "active / total parameters"));
  c.figures.push_back(count("its bytes in bf16", "", 2 * params.total.to_double(), "2 x parameters"));
  return c;
}

AuditClaim skipping(const AuditSetting& s) {
  const double q = routed_share(s.routed).value();
  const double rho = mean_slots(s.routed, s.length).value();
  AuditClaim c{29, "article", "important tokens use all layers, filler skips 40-80 %", {}, "", AuditVerdict::kDoesNotHold, "80 % needs at least 80 % of the blocks routed; with every second block routed nobody skips more than half"};
  c.figures.push_back(percent("layers a token skips on average, this model", "40-80 %", q * (1 - rho), "q (1 - rho)"));
  c.figures.push_back(percent("most a token can skip, this model", "80 %", skipping_share(s.routed, s.length).value(), "share of the blocks that leave some token out"));
  return c;
}

// The share of a predicted saving that became time.
double realised(double predicted_gain, double measured_gain) { return (1 - 1 / measured_gain) / (1 - 1 / predicted_gain); }

AuditClaim time_saved(const AuditSetting& s) {
  const double paper = 1 / forward_ratio(alternate(builtin_network("dense-220m"), 2, {1, 8}), "mod-b", 2048).value();
  const double gpt2_half = 1 / forward_ratio(alternate(builtin_network("gpt2-124m"), 2, {1, 2}), "full", 1024).value();
  AuditClaim c{31, "article, post", "saved seconds are saved FLOPs", {}, "eta 0.4-0.7 on GPUs; p-MoD 0.50, FlexiDepth 0", AuditVerdict::kDoesNotHold, "large steps on one accelerator come near; small models, small batches and masks instead of gathering do not"};
  c.figures.push_back(factor("predicted, this model", "", 1 / forward_ratio(s.routed, "mod-b", s.length).value(), "op lists, convention mod-b"));
  c.figures.push_back(factor("predicted, 217M of the paper's class", "", paper, "op lists, dense-220m, convention mod-b"));
  c.figures.push_back(number("realised there, measured 1.66 x", "1", realised(paper, 1.66), "(1 - 1/measured)/(1 - 1/predicted)"));
  c.figures.push_back(factor("predicted, GPT-2 124M at 1/2, S = 1024", "", gpt2_half, "op lists, whole square"));
  c.figures.push_back(number("realised by EduardoPach/nanoMoD, 24 to 21 minutes", "1", realised(gpt2_half, 24.0 / 21.0), "(1 - 1/measured)/(1 - 1/predicted)"));
  c.figures.push_back(number("realised by p-MoD 7B, GPU-hours 77.7 % at FLOPs 55.6 %", "1", (1 - 0.777) / (1 - 0.556), "(1 - time)/(1 - FLOPs), both as reported"));
  return c;
}

}  // namespace

std::vector<AuditClaim> deployment_claims(const AuditSetting& s) {
  std::vector<AuditClaim> all = {communication(s), cache_saving(s), concurrency(s), fixed_budget(s), experts(), skipping(s)};
  all.push_back({30, "article", "over 65 % trivial tokens; parity on MMLU and GSM8K; in production in vLLM and TensorRT-LLM", {},
                 "the paper has no downstream suite; MoD models cannot be served by vLLM (hiyouga/LLaMA-Factory #3884)", AuditVerdict::kDoesNotHold, "unsupported"});
  all.push_back(time_saved(s));
  return all;
}

}  // namespace fathom::audit_parts
