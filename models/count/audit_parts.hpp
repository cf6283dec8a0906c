// The claims by what decides them (internal to models/count).
#pragma once

#include "models/count/audit.hpp"
#include "models/count/rational.hpp"

namespace fathom::audit_parts {

inline AuditFigure percent(std::string name, std::string claimed, double value, std::string formula) {
  return {std::move(name), std::move(claimed), value, FigureUnit::kPercent, std::move(formula)};
}
inline AuditFigure factor(std::string name, std::string claimed, double value, std::string formula) {
  return {std::move(name), std::move(claimed), value, FigureUnit::kFactor, std::move(formula)};
}
inline AuditFigure count(std::string name, std::string claimed, double value, std::string formula) {
  return {std::move(name), std::move(claimed), value, FigureUnit::kCount, std::move(formula)};
}
inline AuditFigure number(std::string name, std::string claimed, double value, std::string formula) {
  return {std::move(name), std::move(claimed), value, FigureUnit::kNumber, std::move(formula)};
}

// The mean of f over the routed blocks, which differ where a schedule gives each its share.
template <class F>
double mean_over(const std::vector<Rational>& shares, F&& f) {
  double sum = 0;
  for (const Rational& share : shares) sum += f(share.value());
  return sum / static_cast<double>(shares.size());
}

std::vector<AuditClaim> deck_claims(const AuditSetting& setting);         // 1-12
std::vector<AuditClaim> compute_claims(const AuditSetting& setting);      // 13-18, 23-27: arithmetic and parameters
std::vector<AuditClaim> deployment_claims(const AuditSetting& setting);   // 19-22, 28-31: memory, serving, time

}  // namespace fathom::audit_parts
