#include "tools/sweep_generation.hpp"

#include "tools/generation.hpp"

namespace fathom {

const ListTotals& GenerationMemo::totals(const Network& network, std::uint64_t network_id, const Scenario& scenario, bool expectations) {
  validate(scenario);
  std::int64_t done = 0;  // tokens that sums_ holds
  if (scenario_ && id_ == network_id && expectations_ == expectations && scenario_->tokens <= scenario.tokens) {
    Scenario longer = *scenario_;
    longer.tokens = scenario.tokens;
    if (longer == scenario) done = scenario_->tokens;
  }
  scenario_.reset();  // until the sums are complete: a step may be refused
  if (done == 0) {
    const ListTotals& prefill = prefills_.totals(network, network_id, generation_prefill(scenario), expectations);
    sums_ = ListTotals();
    sums_.total = prefill.total;
    sums_.expected = prefill.expected;
    done = 1;
  }
  for (; done < scenario.tokens; ++done) {
    const ListTotals& step = steps_.totals(network, network_id, generation_decode(scenario, scenario.length + done), expectations);
    sums_.total += step.total;
    if (expectations) sums_.expected += step.expected;
  }
  id_ = network_id;
  expectations_ = expectations;
  scenario_ = scenario;
  return sums_;
}

}  // namespace fathom
