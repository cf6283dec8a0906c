// What is said about Mixture-of-Depths, checked against counts: 31 claims, each number computed live.
//
// Three texts are audited: the deck (lecture slides on arXiv 2404.02258), the article (an English teardown) and the post (a Korean text with a
// small demonstration). Every figure comes from op lists, slot counts, parameter counts, binomial sums or the roofline of a decode step for the
// model given, and says which; a verdict holds under its condition only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/network.hpp"

namespace fathom {

enum class AuditVerdict : std::uint8_t { kHolds, kConditional, kDoesNotHold };
std::string_view audit_verdict_name(AuditVerdict verdict);  // "holds", "conditional", "does not hold"

enum class FigureUnit : std::uint8_t { kNumber, kPercent, kFactor, kCount };

struct AuditFigure {
  std::string name;      // "pair work at 256 of 2048"
  std::string claimed;   // as the text says it; empty where it gives no number
  double value = 0;
  FigureUnit unit = FigureUnit::kNumber;
  std::string formula;   // what was computed, with the source
};

struct AuditClaim {
  int number = 0;
  std::string text;      // "deck", "article", "post"
  std::string claim;
  std::vector<AuditFigure> figures;
  std::string reported;  // what other people report, where counting cannot decide
  AuditVerdict verdict = AuditVerdict::kHolds;
  std::string condition;
};

// The setting the claims are about: the model as given if it routes, else its twin with every second block at 1/8.
struct AuditSetting {
  explicit AuditSetting(const Network& model, std::int64_t length = 2048);
  Network dense;
  Network routed;
  std::int64_t length;
};

std::vector<AuditClaim> audit(const AuditSetting& setting);
// A figure as text: "56.25 %", "1.68 x", "524 288 000", "0.015678".
std::string figure_text(const AuditFigure& figure);

// Indices of the top `slots` scores in the order (higher first, ties to the lower position), ascending.
std::vector<std::int64_t> top_slots(const std::vector<double>& scores, std::int64_t slots);
// Linearly interpolated percentile of the scores at `share` in [0, 1].
double interpolated_percentile(std::vector<double> scores, double share);

}  // namespace fathom
