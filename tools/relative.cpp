#include "tools/relative.hpp"

#include <fmt/format.h>

#include <cmath>

#include "reports/format.hpp"
#include "reports/record_names.hpp"

namespace fathom {
namespace {

// "seq 2,048 and 1,024": what keeps two models of one phase from having done the same job; empty where it is more than their lengths.
std::string other_length(const Result& a, const Result& b) {
  Result level = b;
  std::string text;
  for (const char* key : {"seq", "context", "prompt"}) {
    const Cell *x = a.scenario.find(key), *y = b.scenario.find(key);
    if (!x || !y || !x->exact() || !y->exact() || exact_text(*x) == exact_text(*y)) continue;
    level.scenario.set(key, *x);
    text += fmt::format("{}{} {} and {}", text.empty() ? "" : ", ", key, grouped(*x->exact()), grouped(*y->exact()));
  }
  return same_job(a, level) ? text : std::string();
}

double flops_of(const Result& result) {
  const double expected = result.totals.number("flops_expected");
  return std::isnan(expected) ? result.totals.number("flops_matmul") : expected;
}

void set_relative(Result& result, const Result& first) {
  const auto ratio = [&](const char* key, double a, double b) {
    if (a > 0 && b > 0) result.totals.set(key, Cell::number(a / b));
  };
  result.totals.set("relative_to", Cell::text(first.model));
  ratio("relative_flops", flops_of(result), flops_of(first));
  ratio("relative_predicted", result.totals.number("predicted_s"), first.totals.number("predicted_s"));
  ratio("relative_measured", result.totals.number("measured_s"), first.totals.number("measured_s"));
  const double noise = std::hypot(result.totals.number("noise"), first.totals.number("noise"));
  if (result.totals.has("relative_measured") && !std::isnan(noise)) result.totals.set("relative_noise", Cell::number(noise));
}

}  // namespace

void add_relatives(std::vector<Result>& results, const std::function<bool(size_t, size_t)>& twins) {
  std::vector<bool> placed(results.size(), false);
  for (size_t first = 0; first < results.size(); ++first) {
    if (placed[first]) continue;
    for (size_t i = first + 1; i < results.size(); ++i) {
      if (placed[i] || !same_job(results[first], results[i])) continue;
      placed[i] = true;
      if (results[i].model != results[first].model && !twins(first, i)) set_relative(results[i], results[first]);
    }
  }
  if (results.size() != 2 || results[0].model == results[1].model || twins(0, 1)) return;
  if (const std::string lengths = other_length(results[0], results[1]); !lengths.empty())
    results[1].notes.push_back({Note::Severity::kNote, fmt::format("no ratio to {}: {} (give both the same, such as --seq)", results[0].model, lengths)});
}

}  // namespace fathom
