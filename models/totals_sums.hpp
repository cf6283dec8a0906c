// Arithmetic on the exact sums of op lists, for totals that follow from others (models/totals_memo.hpp and the files it names).
#pragma once

#include <algorithm>
#include <array>
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

inline bool same_totals(const ListTotals& a, const ListTotals& b, bool expectations) {
  return a.total == b.total && a.flops_by_part == b.flops_by_part && a.flops_by_pass == b.flops_by_pass && (!expectations || a.expected == b.expected);
}

// Every exact sum of a list in one row. Differences of them may be negative: they are taken modulo 2^128, where sums of whole polynomials come out right.
inline constexpr std::size_t kSums = 4 + kElementKinds + kPartCount + 4;
using Sums = std::array<u128, kSums>;
inline Sums sums_of(const ListTotals& totals) {
  Sums sums{};
  std::size_t at = 0;
  const Cost& total = totals.total;
  sums[at++] = total.flops.value();
  sums[at++] = total.flops_recompute.value();
  sums[at++] = total.read.value();
  sums[at++] = total.written.value();
  for (const Elements& each : total.elements) sums[at++] = each.value();
  for (const Flops& each : totals.flops_by_part) sums[at++] = each.value();
  for (const Flops& each : totals.flops_by_pass) sums[at++] = each.value();
  return sums;
}
inline ListTotals totals_of(const Sums& sums) {
  ListTotals totals;
  std::size_t at = 0;
  Cost& total = totals.total;
  total.flops = Flops(sums[at++]);
  total.flops_recompute = Flops(sums[at++]);
  total.read = Bytes(sums[at++]);
  total.written = Bytes(sums[at++]);
  for (Elements& each : total.elements) each = Elements(sums[at++]);
  for (Flops& each : totals.flops_by_part) each = Flops(sums[at++]);
  for (Flops& each : totals.flops_by_pass) each = Flops(sums[at++]);
  return totals;
}
inline u128 wrap(std::int64_t n) { return n < 0 ? u128{0} - static_cast<u128>(-n) : static_cast<u128>(n); }

// Whole numbers that are polynomials of degree 2 in one number x = 0, 1, 2 ...: f(x) = at + x rise + x (x - 1) / 2 bend.
template <std::size_t N>
struct Parabolas {
  using Row = std::array<u128, N>;
  Row at{}, rise{}, bend{};
  static Parabolas through(const Row& zero, const Row& one, const Row& two) {
    Parabolas p{zero, {}, {}};
    for (std::size_t i = 0; i < N; ++i) p.rise[i] = one[i] - zero[i], p.bend[i] = two[i] - 2 * one[i] + zero[i];
    return p;
  }
  Row value(std::int64_t x) const {
    const u128 linear = wrap(x), square = wrap(x * (x - 1) / 2);
    Row row = at;
    for (std::size_t i = 0; i < N; ++i)
      if ((rise[i] | bend[i]) != 0) row[i] += linear * rise[i] + square * bend[i];
    return row;
  }
};

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
