#include "models/output.hpp"

#include <algorithm>

namespace fathom {
namespace {

// Most columns of a block are zero.
void add_times(const Cost& cost, u128 times, Cost& sum) {
  sum.flops += cost.flops * times;
  if (cost.flops_recompute.value() > 0) sum.flops_recompute += cost.flops_recompute * times;
  for (size_t i = 0; i < cost.elements.size(); ++i)
    if (cost.elements[i].value() > 0) sum.elements[i] += cost.elements[i] * times;
  sum.read += cost.read * times;
  sum.written += cost.written * times;
}

}  // namespace

bool Output::by_rows(const OpSpec& spec) {
  const auto* gemm = std::get_if<Gemm>(&spec);
  return !std::holds_alternative<AttentionBackward>(spec) && !(gemm && gemm->experts > 1);
}

BlockExpectation::Random Output::kept(const OpSpec& spec) {
  const auto* attention = std::get_if<Attention>(&spec);
  const Rows rows = rows_of(spec);
  BlockExpectation::Random random;
  random.units = expected_units(spec);
  random.rows = static_cast<double>(rows.count);
  random.rest = rows.source == RowSource::kRest;
  random.sequences = 1;
  if (!attention) return random;
  random.sequences = static_cast<double>(attention->sequences);
  random.pairs = attention->expected_pairs;
  random.keys = attention->expected_keys;
  random.attention = true;
  random.share = attention->key_share.value();
  // Absorbed latents are apart from the queries although only the chosen rows' are there: then the cache holds a share of the past.
  const bool apart = attention->apart && random.share == 1;
  const std::int64_t queries = attention->sequences > 0 ? rows.count / attention->sequences : 0;  // all candidates, where rows are random
  random.chosen = {attention->mask, std::max<std::int64_t>(1, queries), queries, rows.routed() ? rows.probability.value() : -1, random.share, random.sequences, apart};
  return random;
}

bool Output::expectations(std::vector<BlockExpectation>& into) const {
  into.clear();
  if (keep_ == Keep::kSum || (keep_ == Keep::kBatch && !by_rows_)) return false;
  for (const BlockSums& block : blocks_) {
    BlockExpectation& e = into.emplace_back();
    e.uses = static_cast<double>(block.uses);
    const Cost& fixed = block.fixed;
    e.fixed = {fixed.flops.value(), fixed.flops_recompute.value(), fixed.elements_total().value(), fixed.read.value(), fixed.written.value()};
    e.random = block.kept;
  }
  return by_rows_;
}

ListTotals Output::totals() const {
  ListTotals result;
  for (const BlockSums& block : blocks_) {
    const u128 uses = static_cast<u128>(block.uses);
    add_times(block.fixed, uses, result.total);
    if (expectations_ && !linear_) {
      if (block.any_random) add_times(block.random, uses, result.total);
      const Cost& fixed = block.fixed;
      ExpectedCost expected = block.expected;
      expected += ExpectedCost{0, fixed.flops.to_double(), fixed.flops_recompute.to_double(), fixed.elements_total().to_double(),
                               fixed.read.to_double(), fixed.written.to_double()};
      result.expected += expected * static_cast<double>(block.uses);
    }
    for (size_t i = 0; i < block.parts.size(); ++i)
      if (block.parts[i] > 0) result.flops_by_part[i] += Flops(checked_mul(block.parts[i], uses));
    for (size_t i = 0; i < block.passes.size(); ++i)
      if (block.passes[i] > 0) result.flops_by_pass[i] += Flops(checked_mul(block.passes[i], uses));
  }
  if (expectations_ && linear_) result.expected = declared_as_expected(result.total);
  return result;
}

}  // namespace fathom
