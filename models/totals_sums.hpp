// Arithmetic on the exact sums of op lists, for totals that follow from others (models/totals_memo.hpp, models/totals_context.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "models/network.hpp"
#include "models/scenario.hpp"
#include "models/totals.hpp"

namespace fathom {

// f(a, b) of every exact sum.
template <class F>
ListTotals combine(const ListTotals& a, const ListTotals& b, F&& f) {
  ListTotals into = a;
  const auto apply = [&](const auto& x, const auto& y, auto& z) { z = std::decay_t<decltype(z)>(f(x.value(), y.value())); };
  apply(a.total.flops, b.total.flops, into.total.flops);
  apply(a.total.flops_recompute, b.total.flops_recompute, into.total.flops_recompute);
  for (std::size_t i = 0; i < a.total.elements.size(); ++i) apply(a.total.elements[i], b.total.elements[i], into.total.elements[i]);
  apply(a.total.read, b.total.read, into.total.read);
  apply(a.total.written, b.total.written, into.total.written);
  for (std::size_t i = 0; i < a.flops_by_part.size(); ++i) apply(a.flops_by_part[i], b.flops_by_part[i], into.flops_by_part[i]);
  for (std::size_t i = 0; i < a.flops_by_pass.size(); ++i) apply(a.flops_by_pass[i], b.flops_by_pass[i], into.flops_by_pass[i]);
  return into;
}
inline ListTotals plus(const ListTotals& a, const ListTotals& b, u128 times) {
  return combine(a, b, [&](u128 x, u128 y) { return y == 0 ? x : checked_add(x, checked_mul(y, times)); });
}
inline ListTotals minus(const ListTotals& a, const ListTotals& b) {
  return combine(a, b, [](u128 x, u128 y) { return checked_sub(x, y); });
}

// Batches and lengths far from overflow anywhere in an op list.
inline bool moderate(const Scenario& s) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 24;
  return s.batch <= kLargest && std::max({s.length, s.context, s.past}) <= kLargest;
}

// A number that is the same for two numbers of keys iff no window or chunk of any layer ends between them: pairs and keys are polynomials from one to the other.
// Each term only rises, so equal sums mean equal terms.
inline std::int64_t stretch_of(const Network& network, std::int64_t keys) {
  std::int64_t stretch = 0;
  for (const BlockConfig& kind : network.kinds) {
    if (!kind.attention) continue;
    if (kind.attention->window > 0) stretch += kind.attention->window < keys ? 1 : 0;
    if (kind.attention->chunk > 0) stretch += (keys - 1) / kind.attention->chunk;
  }
  return stretch;
}

}  // namespace fathom
