// Published scaling laws: how large a dense model should be for a training budget, and what loss it should reach.
//
// Parametric form (Hoffmann et al. 2022, arXiv 2203.15556, eq. 10): L(N, D) = E + A/N^alpha + B/D^beta. With C = 6 N D the
// optimum is N = G (C/6)^(beta/(alpha+beta)), G = (alpha A / (beta B))^(1/(alpha+beta)). Power form: N = k C^a.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fathom {

struct ScalingLaw {
  enum class Form : std::uint8_t { kParametric, kPower };
  std::string name;
  std::string source;
  Form form = Form::kParametric;
  double e = 0, a = 0, b = 0, alpha = 0, beta = 0;  // parametric
  double coefficient = 0, exponent = 0;             // power

  double optimal_params(double budget) const;
  double optimal_tokens(double budget) const { return budget / (6 * optimal_params(budget)); }
  // Loss in nats per token; the power form gives none.
  std::optional<double> loss(double params, double tokens) const;
};

std::span<const ScalingLaw> scaling_laws();
// Throws Error(kInput) with the nearest name.
const ScalingLaw& find_law(std::string_view name);
// An INI file with one section [law]: form = parametric (E, A, B, alpha, beta) or power (coefficient, exponent), name, source.
ScalingLaw read_law(const std::string& path);
ScalingLaw parse_law(std::string_view text, const std::string& file);

}  // namespace fathom
