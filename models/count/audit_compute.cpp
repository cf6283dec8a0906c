// Claims 13-18 and 23-27: how much is computed, and with how many parameters.
#include <fmt/format.h>

#include "models/count/audit_parts.hpp"
#include "models/count/convention.hpp"
#include "models/count/depth.hpp"
#include "models/params.hpp"

namespace fathom::audit_parts {
namespace {

double saved(const Network& dense, std::int64_t every, const Fraction& capacity, std::string_view convention, std::int64_t length) {
  return 1 - forward_ratio(alternate(dense, every, capacity), convention, length).value();
}

// Savings with logits and without, for one pattern.
void add_savings(AuditClaim& c, const AuditSetting& s, const std::string& name, const std::string& claimed, std::int64_t every, const Fraction& capacity) {
  c.figures.push_back(percent(name + ", with logits", claimed, saved(s.dense, every, capacity, "mod-b", s.length), "op lists, convention mod-b"));
  c.figures.push_back(percent(name + ", layers only", claimed, saved(s.dense, every, capacity, "mod-a", s.length), "op lists, convention mod-a"));
}

AuditClaim half_flops(const AuditSetting& s) {
  AuditClaim c{13, "article", "50 % of the FLOPs at no loss of quality", {}, "paper: alternating blocks were decisive (unverified); no loss at rho = .5 in every block is not its finding", AuditVerdict::kConditional,
               "the FLOP figure needs every block routed at .5"};
  add_savings(c, s, "saved, every block at 1/2", "50 %", 1, {1, 2});
  add_savings(c, s, "saved, every second block at 1/2", "50 %", 2, {1, 2});
  add_savings(c, s, "saved, every second block at 1/8 (the paper's)", "", 2, {1, 8});
  return c;
}

AuditClaim typical_capacity(const AuditSetting& s) {
  AuditClaim c{14, "article", "the capacity is typically .50", {}, "paper: best at 12.5 % (256 of 2048) in every second block", AuditVerdict::kDoesNotHold, "half of the saving is left on the table"};
  c.figures.push_back(percent("saved at 1/2, every second block", "", saved(s.dense, 2, {1, 2}, "mod-b", s.length), "op lists, convention mod-b"));
  c.figures.push_back(percent("saved at 1/8, every second block", "", saved(s.dense, 2, {1, 8}, "mod-b", s.length), "op lists, convention mod-b"));
  return c;
}

AuditClaim bypass_cost(const AuditSetting& s) {
  const double h = static_cast<double>(s.dense.width);
  const double rows = static_cast<double>(s.length);
  AuditClaim c{15, "article, post", "a bypassed token costs exactly / about 0 FLOPs", {}, "", AuditVerdict::kConditional, "its update costs nothing; its score and its way past the block do"};
  const double blocks = rows * routed_share(s.routed).value() * static_cast<double>(s.routed.layer_count());
  c.figures.push_back(count("router FLOPs per token and routed block", "0", router_flops(s.routed, s.length) / blocks, "op list: 2h of a linear router, 2(hu + u) of an MLP; mean over the routed blocks"));
  c.figures.push_back(count("predictor FLOPs per token and routed block", "0", predictor_flops(s.routed, s.length) / blocks, "op list: 2h linear, 2(hu + u) with a hidden width, mean over the routed blocks; 0: this model has none"));
  c.figures.push_back(count("bytes read to score one sequence, bf16", "0", 2 * rows * h, "S h elements"));
  return c;
}

AuditClaim rounding_modes() {
  AuditClaim c{16, "article, post", "slots are floor(C S) (article) or round(C S) (post)", {}, "", AuditVerdict::kConditional, "they differ where the fraction is at least .5: choose one and say so"};
  for (const Rounding mode : {Rounding::kFloor, Rounding::kHalfUp}) {
    Route route;
    route.capacity = Fraction{1, 8};
    route.rounding = mode;
    c.figures.push_back(count(fmt::format("slots of 12 tokens at 1/8, {}", rounding_name(mode)), "", static_cast<double>(slots_of(route, 12)), "slots_of"));
  }
  return c;
}

AuditClaim static_shapes(const AuditSetting& s) {
  const std::vector<Rational> shares = capacity_shares(s.routed, s.length);
  AuditClaim c{17, "article, post", "static shapes keep the hardware fully used", {}, "", AuditVerdict::kConditional, "training and top-C prefill: yes; decode: the rows of a block are random and its KV lists ragged"};
  c.figures.push_back(number("mean rows of a routed block, 32 sequences", "", mean_over(shares, [](double p) { return 32 * p; }), "B p, mean over the routed blocks"));
  c.figures.push_back(number("99th percentile", "", mean_over(shares, [](double p) { return static_cast<double>(binomial_quantile(32, p, 0.99)); }), "Binomial(B, p), mean over the routed blocks"));
  c.figures.push_back(number("rows executed in buckets 0, 1, 2, 4, ...", "", mean_over(shares, [](double p) { return expected_bucket_rows(32, p, 0); }), "expectation over Binomial(B, p), mean over the routed blocks"));
  c.figures.push_back(number("rows executed in multiples of 8", "", mean_over(shares, [](double p) { return expected_bucket_rows(32, p, 8); }), "expectation over Binomial(B, p), mean over the routed blocks"));
  return c;
}

AuditClaim mode_saving(const AuditSetting& s) {
  const Forms forms(s.dense, s.length);
  const BlockConfig& block = s.dense.block(0);
  const Rational full = full_block_flops(forms, block);
  AuditClaim c{18, "article", "MoDE saves up to 75 %", {}, "", AuditVerdict::kDoesNotHold, "only staged routing of at least three quarters of the blocks: q (1 - rho) >= .75, for example every block at 1/4"};
  if (const std::optional<double> tokens = parts_ratio(s.routed, s.length, false, {Part::kProjection, Part::kFfn, Part::kExperts}))
    c.figures.push_back(percent("token work saved, this model's pattern", "75 %", 1 - *tokens, "op lists, 1 - token work of claim 2: q (1 - rho) where blocks are alike and routed whole"));
  c.figures.push_back(percent("most that every second block can save", "75 %", routed_share(alternate(s.dense, 2, {1, 8})).value(), "q (1 - rho) < q"));
  c.figures.push_back(percent("token work saved, every block at 1/4", "75 %", 1 - mean_slots(alternate(s.dense, 1, {1, 4}), s.length).value(), "q (1 - rho), q = 1"));
  for (const Fraction& nu : {Fraction{1, 2}, Fraction{7, 8}})
    c.figures.push_back(percent(fmt::format("one block saved, integrated, {} of the assignments no-ops", nu.str()), "",
                                (Rational::of(nu) * forms.length * forms.ffn(block) / full).value(), "nu x FFN / block, whole square, routers left out"));
  for (const Fraction& capacity : {Fraction{1, 2}, Fraction{1, 4}, Fraction{1, 8}}) {
    const Rational share = Rational(capacity.of(s.length, Rounding::kFloor)) / forms.length;
    TokenShares shares{share, share, share, share * share * forms.length * forms.length};
    c.figures.push_back(percent(fmt::format("one block saved, staged at {}", capacity.str()), "", (Rational(1) - block_flops(forms, block, shares) / full).value(), "C rows and C^2 pairs, routers left out"));
  }
  return c;
}

AuditClaim router_share(const AuditSetting& s) {
  const Forms forms(s.dense, s.length);
  const BlockConfig& block = s.dense.block(0);
  const Rational full = full_block_flops(forms, block) / forms.length;
  const auto routed_block = [](std::int64_t h, std::int64_t length) {  // multi-head, f = 4h, at 1/8
    const Rational c(length / 8);
    return Rational(24) * h * h * c + Rational(4) * h * c * c;
  };
  AuditClaim c{23, "post", "the router is below 0.1 % of a block's compute", {}, "", AuditVerdict::kConditional, "a linear router beside a full block; MLP routers and predictors cost percents"};
  c.figures.push_back(percent("linear router of a full block, this model", "< 0.1 %", (Rational(2) * s.dense.width / full).value(), "2h / (P + FFN + core over S keys)"));
  std::int64_t h = 1;
  while (Rational(2 * h) * Rational(1000) >= Rational(24) * h * h) ++h;
  c.figures.push_back(count("smallest width at which it holds at any length", "", static_cast<double>(h), "2h < 24 h^2 / 1000"));
  for (std::int64_t width : {896, 512, 128})
    c.figures.push_back(percent(fmt::format("of a 1/8 routed block, width {}", width), "< 0.1 %", (Rational(2) * width * s.length / routed_block(width, s.length)).value(), "2 S h / (24 h^2 C + 4 h C^2)"));
  const Rational hidden = Rational(s.dense.width / 2);
  const Rational predictor = Rational(2) * (Rational(s.dense.width) * hidden + hidden);
  const Rational share = Rational(s.length / 8) / forms.length;
  const TokenShares eighth{share, share, share, share * share * forms.length * forms.length};
  c.figures.push_back(percent("predictor of hidden width h/2, of a full block", "", (predictor / full).value(), "2 (hu + u) per token, u = h/2"));
  c.figures.push_back(percent("the same of a 1/8 routed block", "", (predictor * forms.length / block_flops(forms, block, eighth)).value(), "2 S (hu + u) over C rows and C^2 pairs"));
  c.figures.push_back(percent("MLP router of hidden width 512, of a full block", "", (Rational(2) * (Rational(s.dense.width) * 512 + 512) / full).value(), "2 (hu + u) per token"));
  return c;
}

AuditClaim capacity_saving(const AuditSetting& s) {
  AuditClaim c{24, "post", "the saving is 1 - capacity", {}, "", AuditVerdict::kConditional, "every block routed: attention pairs save more, the head nothing"};
  Route half;
  half.capacity = Fraction{1, 2};
  half.rounding = Rounding::kHalfUp;
  const double passes = static_cast<double>(slots_of(half, 12)) / 12;
  c.figures.push_back(percent("block passes of the 8 x 12 demonstration, router at 0.1 %", "50 %", 1 - passes - 0.001, "1 - slots/12 - 0.001 as the post counts"));
  add_savings(c, s, "every block at 1/2", "50 %", 1, {1, 2});
  add_savings(c, s, "every second block at 1/2", "50 %", 2, {1, 2});
  add_savings(c, s, "every block at 1/8", "87.5 %", 1, {1, 8});
  return c;
}

AuditClaim demo_semantics(const AuditSetting& s) {
  const Forms forms(s.dense, s.length);
  const BlockConfig& block = s.dense.block(0);
  const Rational full = full_block_flops(forms, block);
  const Rational share = Rational(slots_of(*alternate(s.dense, 2, {1, 8}).block(1).route, s.length)) / forms.length;
  const Rational square = forms.length * forms.length;
  const Rational router = Rational(2) * forms.width * forms.length;
  const Rational all_keys = (block_flops(forms, block, {share, 1, share, share * square}) + router) / full;
  const Rational selected = (block_flops(forms, block, {share, share, share, share * share * square}) + router) / full;
  const auto model = [](const Rational& ratio) { return ((Rational(1) + ratio) / Rational(2)).value(); };
  AuditClaim c{25, "post", "tok + sigmoid(w) * attnMlp(tok, all tokens) is Mixture-of-Depths", {}, "", AuditVerdict::kDoesNotHold, "it is another policy: every token supplies keys and values"};
  c.figures.push_back(number("routed block of a full one, all-token K/V, 1/8", "", all_keys.value(), "q, o, MLP on C rows; k, v on S; C S pairs; router"));
  c.figures.push_back(number("routed block of a full one, selected K/V, 1/8", "", selected.value(), "C rows, C^2 pairs, router"));
  c.figures.push_back(number("every second block, all-token K/V", "", model(all_keys), "(1 + block ratio)/2, no logits"));
  c.figures.push_back(number("every second block, selected K/V", "", model(selected), "(1 + block ratio)/2, no logits"));
  return c;
}

AuditClaim half_forward(const AuditSetting& s) {
  AuditClaim c{26, "post", "the paper has about 50 % of the FLOPs per forward pass", {}, "paper: upwards of 50 % less for the model with the loss of the dense optimum", AuditVerdict::kConditional, "for that model, not for every capacity of .5"};
  c.figures.push_back(percent("forward of the dense twin, this model", "50 %", forward_ratio(s.routed, "mod-b", s.length).value(), "op lists, convention mod-b"));
  c.figures.push_back(percent("every second block at 1/2", "50 %", forward_ratio(alternate(s.dense, 2, {1, 2}), "mod-b", s.length).value(), "op lists, convention mod-b"));
  return c;
}

AuditClaim parameters(const AuditSetting& s) {
  const u128 dense = count_parameters(dense_twin(s.routed)).total.value();  // of the same weight sets
  const u128 routed = count_parameters(s.routed).total.value();
  const double more = to_double(checked_sub(routed, dense));
  AuditClaim c{27, "article, post", "MoD has the parameters of the dense model, MoE has more", {}, "", AuditVerdict::kHolds, "but for h (+1) per routed block, and a predictor where there is one"};
  c.figures.push_back(count("parameters added, this model", "0", more, "parameter counts of the model and its dense twin"));
  c.figures.push_back(percent("of all parameters", "0 %", more / to_double(dense), "added / dense"));
  return c;
}

}  // namespace

std::vector<AuditClaim> compute_claims(const AuditSetting& s) {
  return {half_flops(s), typical_capacity(s), bypass_cost(s), rounding_modes(), static_shapes(s), mode_saving(s),
          router_share(s), capacity_saving(s), demo_semantics(s), half_forward(s), parameters(s)};
}

}  // namespace fathom::audit_parts
