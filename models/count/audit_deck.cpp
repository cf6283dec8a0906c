// Claims 1-12: the deck on the paper.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/count/audit_parts.hpp"
#include "models/count/convention.hpp"
#include "models/count/depth.hpp"
#include "models/pairs.hpp"
#include "models/registry.hpp"

namespace fathom::audit_parts {
namespace {

bool near(double a, double b, double margin) { return std::abs(a - b) <= margin; }

double pair_share(std::int64_t slots, std::int64_t length) {
  const Mask causal{};
  return Rational(static_cast<i128>(visible_pairs(causal, slots, 0)), static_cast<i128>(visible_pairs(causal, length, 0))).value();
}

AuditClaim pairs_claim(const AuditSetting& s) {
  AuditClaim c{1, "deck", "token work scales with the capacity rho, pair work with rho^2", {}, "", AuditVerdict::kHolds, "selected tokens see selected tokens only; if all tokens supply keys and values, pair work scales with rho"};
  std::vector<int> seen;
  for (std::int64_t l = 0; l < s.routed.layer_count(); ++l) {
    const int kind = s.routed.layers[static_cast<std::size_t>(l)];
    const BlockConfig& block = s.routed.block(l);
    if (!block.route || std::find(seen.begin(), seen.end(), kind) != seen.end()) continue;
    seen.push_back(kind);
    const std::int64_t slots = slots_of(*block.route, s.length);
    const double rho = static_cast<double>(slots) / static_cast<double>(s.length);
    const std::optional<double> share = parts_ratio(only_block(s.routed, l), s.length, false, {Part::kCore});
    if (!share) continue;
    c.figures.push_back(number(fmt::format("causal pairs, {} of {} tokens", slots, s.length), fmt::format("{:.6g}", rho * rho), *share, "op lists, this block and its dense twin: C(C+1) / S(S+1) where selected tokens see each other alone"));
    if (!near(*share, pair_share(slots, s.length), 1e-9)) c.verdict = AuditVerdict::kConditional;
  }
  c.figures.push_back(number("causal pairs, 6 of 12 tokens", "0.25", pair_share(6, 12), "C(C+1) / S(S+1)"));
  return c;
}

AuditClaim components_claim(const AuditSetting& s) {
  const double q = routed_share(s.routed).value();
  const double rho = mean_slots(s.routed, s.length).value();
  const auto of_tokens = {Part::kProjection, Part::kFfn, Part::kExperts};
  AuditClaim c{2, "deck", "half of the blocks at 1/8: 56.25 % of the token work, 50.78125 % of the pair work", {}, "", AuditVerdict::kHolds, "ratios of components, not of the model; exact for an even number of layers"};
  const std::optional<double> tokens = parts_ratio(s.routed, s.length, false, of_tokens), square = parts_ratio(s.routed, s.length, true, {Part::kCore});
  if (tokens) c.figures.push_back(percent("token work", "56.25 %", *tokens, "op lists, projections and MLPs: 1 - q (1 - rho) where blocks are alike and routed whole"));
  if (square) {
    c.figures.push_back(percent("pair work, whole square", "50.78125 %", *square, "op lists, attention cores: 1 - q (1 - rho^2) where blocks are alike and selected tokens see each other alone"));
    c.figures.push_back(percent("pair work, causal", "", *parts_ratio(s.routed, s.length, false, {Part::kCore}), "op lists, attention cores: 1 - q (1 - C(C+1)/S(S+1)) under the same conditions"));
  }
  c.figures.push_back(percent("model forward, layers only", "", forward_ratio(s.routed, "mod-a", s.length).value(), "op lists, convention mod-a"));
  c.figures.push_back(percent("model forward, with logits", "", forward_ratio(s.routed, "mod-b", s.length).value(), "op lists, convention mod-b"));
  c.figures.push_back(percent("model forward, exact", "", forward_ratio(s.routed, "exact", s.length).value(), "op lists, causal pairs, logits"));
  if (!near(tokens.value_or(0), 0.5625, 5e-5) || !near(square.value_or(0), 0.5078125, 5e-5)) {
    c.verdict = AuditVerdict::kConditional;
    c.condition = fmt::format("half of the blocks and capacity 1/8; this model routes {:.4g} of its blocks at {:.4g}", q, rho);
  }
  return c;
}

AuditClaim steps_claim() {
  AuditClaim c{3, "deck", "+66 % steps per second means 39.8 % less time per step", {}, "paper, figure 3: +66 % (caption), upwards of 60 % (text)", AuditVerdict::kHolds, "arithmetic"};
  c.figures.push_back(number("time ratio at +66 %", "0.602", 1 / 1.66, "1 / 1.66"));
  c.figures.push_back(percent("time saved at +66 %", "39.8 %", 1 - 1 / 1.66, "1 - 1/1.66"));
  c.figures.push_back(percent("time saved at +60 %", "", 1 - 1 / 1.6, "1 - 1/1.60"));
  return c;
}

std::vector<AuditClaim> predictor_claims(const AuditSetting& s) {
  const std::vector<Rational> shares = slot_shares(s.routed, s.length);
  const double larger = mean_over(shares, [](double rho) { return std::max(rho, 1 - rho); }), guessed = mean_over(shares, [](double rho) { return rho * rho + (1 - rho) * (1 - rho); });
  AuditClaim bypass{4, "deck", "a predictor that always says bypass is right for 87.5 % of the tokens", {}, "", AuditVerdict::kHolds, "rho = 1/8 and labels that hold exactly C ones"};
  bypass.figures.push_back(percent("always the larger class", "87.5 %", larger, "max(rho, 1 - rho), mean over the routed blocks"));
  bypass.figures.push_back(percent("guessing at the base rate", "", guessed, "rho^2 + (1 - rho)^2, mean over the routed blocks"));
  if (!near(larger, 0.875, 5e-5)) bypass.verdict = AuditVerdict::kConditional;

  AuditClaim threshold{5, "deck", "thresholds do not enforce the capacity", {}, "", AuditVerdict::kHolds, "accuracy alone bounds the participation; contradicts claim 22"};
  AuditClaim accuracy{6, "deck", "accuracy 97 % early, 98 % later, 99 % in the text", {}, "paper, figure 6", AuditVerdict::kHolds, "as a report; accuracy is no guarantee of cost"};
  const double work = routed_work(s.routed, s.length, {0, 1});
  for (const std::int64_t wrong : {3, 2, 1}) {  // of a hundred tokens
    const std::string at = fmt::format("accuracy {} %", 100 - wrong);
    const double e = static_cast<double>(wrong) / 100;
    threshold.figures.push_back(percent("lowest participation, " + at, "", mean_over(shares, [e](double rho) { return std::max(0.0, rho - e); }), "rho - (1 - a), not below 0; mean over the routed blocks"));
    threshold.figures.push_back(percent("highest participation, " + at, "", mean_over(shares, [e](double rho) { return std::min(1.0, rho + e); }), "rho + (1 - a), not above 1; mean over the routed blocks"));
    accuracy.figures.push_back(number("lowest recall, " + at, "", mean_over(shares, [e](double rho) { return std::max(0.0, 1 - e / rho); }), "1 - (1 - a)/rho, every error a missed token; mean over the routed blocks"));
    accuracy.figures.push_back(percent("most extra routed work, " + at, "", routed_work(s.routed, s.length, make_fraction(wrong, 100)) / work - 1, "op lists, every error an extra token: (1 - a)/rho where blocks are alike"));
  }
  return {bypass, threshold, accuracy};
}

AuditClaim sigmoid_claim() {
  std::int64_t wrong = 0, tried = 0;
  for (int i = -4096; i <= 4096; ++i) {
    const float r = static_cast<float>(i) / 128.0f;
    wrong += (1.0f / (1.0f + std::exp(-r)) > 0.5f) != (r > 0.0f);
    ++tried;
  }
  const float tiny = 1e-9f;
  const bool lost = !(1.0f / (1.0f + std::exp(-tiny)) > 0.5f);
  AuditClaim c{7, "deck", "sigma(r) > 0.5 exactly where r > 0", {}, "", AuditVerdict::kHolds, "r with its bias; in f32 sigma rounds to 0.5 for the smallest positive r, so the raw score is what to test"};
  c.figures.push_back(count(fmt::format("disagreements among {} scores in [-32, 32]", tried), "0", static_cast<double>(wrong), "evaluated in f32"));
  c.figures.push_back(count("f32 sigma(1e-9) fails the test", "", lost ? 1 : 0, "evaluated in f32; 1: yes"));
  return c;
}

std::vector<AuditClaim> selection_claims() {
  std::vector<double> scores = {.9, .1, .2, .3, .1, .2, .3, .1};
  const std::vector<std::int64_t> before = top_slots(scores, 2);
  scores[6] = 1.0;
  scores[7] = 1.1;
  const std::vector<std::int64_t> after = top_slots(scores, 2);
  AuditClaim evict{8, "deck", "later scores of 1.0 and 1.1 push a 0.9 out of the top two", {}, "", AuditVerdict::kHolds, "top-C looks at the whole sequence: it is not causal"};
  evict.figures.push_back(count("the token with 0.9 is chosen before", "1", before.front() == 0 ? 1 : 0, "top-C of 8 scores; 1: yes"));
  evict.figures.push_back(count("and after", "0", after.front() == 0 ? 1 : 0, "the same with the last two scores raised"));

  const std::vector<double> example = {.1, .9, .2, .3, .8, .4, .05, .6};
  const std::vector<std::int64_t> chosen = top_slots(example, 2);
  AuditClaim pick{9, "deck", "scores .1 .9 .2 .3 .8 .4 .05 .6 with two slots choose positions 2 and 5", {}, "", AuditVerdict::kHolds, "the percentile form agrees where scores are distinct and the percentile is linearly interpolated"};
  pick.figures.push_back(count("first position, from 1", "2", static_cast<double>(chosen[0] + 1), "top-C"));
  pick.figures.push_back(count("second position, from 1", "5", static_cast<double>(chosen[1] + 1), "top-C"));
  pick.figures.push_back(number("percentile threshold", "0.65", interpolated_percentile(example, 1 - 2.0 / 8), "linear interpolation at 1 - C/S"));
  return {evict, pick};
}

AuditClaim sampling_claim(const AuditSetting& s) {
  const Network llama3 = alternate(builtin_network("llama-3-8b"), 2, {1, 8});
  const Network llama2 = alternate(builtin_network("llama-2-7b"), 2, {1, 8});
  const std::string how = "decode roofline: weights and keys at 4 TB/s, 600 TFLOP/s, bf16; rows binomial";
  AuditClaim c{12, "deck", "sampling is more than 50 % faster per step (abstract)", {}, "paper: upwards of 50 % faster to step; no latency table", AuditVerdict::kConditional,
               "one sequence, or a batch whose step is bound by the KV cache; with an empty context the gain is gone by 32 to 128 sequences"};
  c.figures.push_back(percent("this model, B = 1, empty context", "> 50 %", decode_gain(s.routed, 1, 0) - 1, how));
  c.figures.push_back(percent("Llama-3-8B dimensions, B = 1, empty context", "> 50 %", decode_gain(llama3, 1, 0) - 1, how));
  c.figures.push_back(percent("Llama-2-7B dimensions, B = 1, empty context", "> 50 %", decode_gain(llama2, 1, 0) - 1, how));
  c.figures.push_back(percent("this model, B = 16, empty context", "> 50 %", decode_gain(s.routed, 16, 0) - 1, how));
  c.figures.push_back(percent("this model, B = 128, empty context", "> 50 %", decode_gain(s.routed, 128, 0) - 1, how));
  c.figures.push_back(percent("this model, B = 128, 2048 cached tokens", "> 50 %", decode_gain(s.routed, 128, 2048) - 1, how));
  return c;
}

}  // namespace

std::vector<AuditClaim> deck_claims(const AuditSetting& s) {
  std::vector<AuditClaim> all = {pairs_claim(s), components_claim(s), steps_claim()};
  for (AuditClaim& c : predictor_claims(s)) all.push_back(std::move(c));
  all.push_back(sigmoid_claim());
  for (AuditClaim& c : selection_claims()) all.push_back(std::move(c));
  AuditClaim tokens{10, "deck", "256 000 sequences are about 500 million tokens", {}, "", AuditVerdict::kHolds, "2048 tokens each"};
  tokens.figures.push_back(count("tokens", "500M", 256000.0 * 2048, "256 000 x 2048"));
  all.push_back(tokens);
  all.push_back({11, "deck", "up to 1.5 % better on the training objective at equal FLOPs and time", {}, "paper: relative change of the language loss", AuditVerdict::kHolds, "as a report: no count can check it"});
  all.push_back(sampling_claim(s));
  return all;
}

}  // namespace fathom::audit_parts
