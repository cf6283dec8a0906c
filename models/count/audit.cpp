#include "models/count/audit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/error.hpp"
#include "models/count/audit_parts.hpp"
#include "models/count/depth.hpp"

namespace fathom {

std::string_view audit_verdict_name(AuditVerdict verdict) {
  switch (verdict) {
    case AuditVerdict::kHolds: return "holds";
    case AuditVerdict::kConditional: return "conditional";
    case AuditVerdict::kDoesNotHold: return "does not hold";
  }
  return "?";
}

namespace {

// The least length at which every routed block takes a token, and every variant too: the smallest of their capacities is 1/8.
std::int64_t least_length(const Network& routed) {
  constexpr std::int64_t kVariants = 8, kMost = std::int64_t{1} << 30;
  const auto takes = [&](std::int64_t length) {
    return std::all_of(routed.kinds.begin(), routed.kinds.end(), [&](const BlockConfig& kind) { return !kind.route || slots_of(*kind.route, length) > 0; });
  };
  if (takes(kVariants) || !takes(kMost)) return kVariants;  // capacity 0 takes no token at any length
  std::int64_t none = kVariants, some = kMost;
  while (some - none > 1) (takes((none + some) / 2) ? some : none) = (none + some) / 2;
  return some;
}

}  // namespace

AuditSetting::AuditSetting(const Network& model, std::int64_t tokens)
    : dense(model.has_routes() ? dense_twin(model) : model), routed(model.has_routes() ? model : alternate(model, 2, Fraction{1, 8})), length(tokens) {
  if (tokens < 2) throw_input("an audit needs at least two tokens", {"", 0, "seq"});
  if (dense.layer_count() < 2) throw_input("an audit needs at least two layers, one of them routed", {model.source, 0, "layers"});
  if (const std::int64_t least = least_length(routed); tokens < least)
    throw_input(fmt::format("an audit of this model needs at least {} tokens: with {} a block that takes an eighth of them, or one of this model's routed blocks, takes none", least, tokens), {"", 0, "seq"},
                fmt::format("fathom audit MODEL --seq {}", least));
}

std::vector<AuditClaim> audit(const AuditSetting& setting) {
  std::vector<AuditClaim> all;
  for (auto&& claims : {audit_parts::deck_claims(setting), audit_parts::compute_claims(setting), audit_parts::deployment_claims(setting)})
    all.insert(all.end(), claims.begin(), claims.end());
  std::stable_sort(all.begin(), all.end(), [](const AuditClaim& a, const AuditClaim& b) { return a.number < b.number; });
  return all;
}

std::string figure_text(const AuditFigure& figure) {
  // Five digits, and never an exponent: 0.0000016201.
  const auto plain = [](double value) {
    std::string text = fmt::format("{:.5g}", value);
    if (text.find('e') == std::string::npos) return text;
    text = fmt::format("{:.{}f}", value, value == 0 ? 0 : std::clamp(4 - static_cast<int>(std::floor(std::log10(std::abs(value)))), 0, 30));
    while (text.find('.') != std::string::npos && text.back() == '0') text.pop_back();
    return text;
  };
  // A quotient by what nothing takes: capacity 0.
  if (!std::isfinite(figure.value)) return std::isnan(figure.value) ? "undefined" : "unbounded";
  switch (figure.unit) {
    case FigureUnit::kPercent: return plain(100 * figure.value) + " %";
    case FigureUnit::kFactor: return fmt::format("{:.3f} x", figure.value);
    case FigureUnit::kCount: return fmt::format("{:.0f}", figure.value);
    case FigureUnit::kNumber: return plain(figure.value);
  }
  return "?";
}

std::vector<std::int64_t> top_slots(const std::vector<double>& scores, std::int64_t slots) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  order.resize(static_cast<size_t>(std::clamp<std::int64_t>(slots, 0, static_cast<std::int64_t>(scores.size()))));
  std::sort(order.begin(), order.end());
  return order;
}

double interpolated_percentile(std::vector<double> scores, double share) {
  if (scores.empty()) throw_input("a percentile needs at least one score");
  std::sort(scores.begin(), scores.end());
  const double at = share * static_cast<double>(scores.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, scores.size() - 1);
  return scores[below] + (at - static_cast<double>(below)) * (scores[above] - scores[below]);
}

}  // namespace fathom
