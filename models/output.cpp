#include "models/output.hpp"

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

bool Output::keep(const OpSpec& spec, BlockSums& block) const {
  const auto* gemm = std::get_if<Gemm>(&spec);
  const auto* attention = std::get_if<Attention>(&spec);
  if (std::holds_alternative<AttentionBackward>(spec) || (gemm && gemm->experts > 1)) return false;
  const Rows rows = rows_of(spec);
  const std::size_t b = blocks_.size() - 1, n = block.kept.size();
  const BlockExpectation::Random* known = known_ && b < known_->size() && n < (*known_)[b].random.size() ? &(*known_)[b].random[n] : nullptr;
  const bool chosen = attention && attention->expected_pairs >= 0;
  const bool same = known && known->rows == static_cast<double>(rows.count) && known->units.probability == rows.probability.value() &&
                    known->units.attention == (attention && !chosen) && (known->pairs >= 0) == chosen;
  block.kept.push_back({same ? known->units : expected_units(spec), static_cast<double>(rows.count), attention ? static_cast<double>(attention->sequences) : 1.0,
                        attention ? attention->expected_pairs : -1, attention ? attention->expected_keys : 0});
  // The one coefficient in which the context takes part.
  if (attention) block.kept.back().units.past = static_cast<double>(attention->past) * attention->key_share.value();
  return true;
}

bool Output::expectations(std::vector<BlockExpectation>& into) const {
  into.clear();
  if (!keep_ || !keepable_) return false;
  for (const BlockSums& block : blocks_) {
    BlockExpectation& e = into.emplace_back();
    e.uses = static_cast<double>(block.uses);
    const Cost& fixed = block.fixed;
    e.fixed = {fixed.flops.value(), fixed.flops_recompute.value(), fixed.elements_total().value(), fixed.read.value(), fixed.written.value()};
    e.random = block.kept;
  }
  return true;
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
