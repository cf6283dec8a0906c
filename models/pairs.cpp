#include "models/pairs.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

u128 triangle(std::int64_t n) { return product(n, n + 1) / 2; }

// Pairs of the first n queries of a causal sequence.
u128 prefix_pairs(const Mask& mask, std::int64_t n) {
  if (mask.window > 0) {  // the first W queries grow, the others see W keys
    const std::int64_t w = std::min(mask.window, n);
    return product(w, n) - product(w, w - 1 < 0 ? 0 : w - 1) / 2;
  }
  if (mask.chunk > 0) return product(n / mask.chunk, triangle(mask.chunk)) + triangle(n % mask.chunk);
  return triangle(n);
}

}  // namespace

u128 visible_pairs(const Mask& mask, std::int64_t queries, std::int64_t past) {
  if (mask.kind == MaskKind::kFull) return product(queries, past + queries);
  return prefix_pairs(mask, past + queries) - prefix_pairs(mask, past);
}

u128 new_pairs(const Mask& mask, std::int64_t queries, std::int64_t past) {
  if (mask.kind == MaskKind::kFull) return product(queries, queries);
  if (mask.window > 0 || mask.chunk == 0) return prefix_pairs(mask, queries);
  const std::int64_t first = std::min(queries, mask.chunk - past % mask.chunk);  // rows that still belong to the chunk begun before
  return triangle(first) + prefix_pairs(mask, queries - first);
}

std::int64_t visible_keys(const Mask& mask, std::int64_t queries, std::int64_t past) {
  if (queries == 0) return 0;
  if (mask.kind == MaskKind::kFull) return past + queries;
  if (mask.window > 0) return std::min(past, mask.window - 1) + queries;
  if (mask.chunk > 0) return past % mask.chunk + queries;
  return past + queries;
}

ExpectedReach expected_reach(const ChosenCore& core, std::int64_t past) {
  const u128 all = visible_pairs(core.mask, core.length, past);
  const std::int64_t keys = visible_keys(core.mask, core.length, past);
  // Chances that one row, and that two rows, are chosen.
  const bool random = core.probability >= 0;
  const double n = static_cast<double>(core.length), queries = static_cast<double>(core.queries);
  const double chosen = queries / n;
  const double one = random ? core.probability : chosen;
  const double any = random ? 1 - std::pow(1 - one, n) : core.queries > 0 ? 1.0 : 0.0;
  if (core.apart) return {core.sequences * one * to_double(all), core.sequences * any * static_cast<double>(keys)};
  const double two = random ? one * one : core.length > 1 ? chosen * (queries - 1) / (n - 1) : 0.0;
  const u128 among_new = new_pairs(core.mask, core.length, past);
  const double with_past = to_double(all - among_new);
  return {core.sequences * (one * n + two * (to_double(among_new) - n) + one * core.share * with_past),
          core.sequences * (one * n + any * core.share * static_cast<double>(keys - core.length))};
}

}  // namespace fathom
