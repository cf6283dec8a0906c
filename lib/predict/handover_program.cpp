#include "lib/predict/handover_program.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace fathom {
namespace {

constexpr std::size_t kMostKnown = 8;  // ways to divide that one history keeps: lengths and batches cross few thresholds to and fro

}  // namespace

HandoverProgram::HandoverProgram(const std::vector<Touch>& touches, std::vector<Use> uses) : uses_(std::move(uses)) {
  std::map<std::size_t, std::vector<std::int32_t>> of_memory;
  std::vector<std::int32_t> occurrence;
  for (const Touch& touch : touches) {
    std::vector<std::int32_t>& sites = of_memory[touch.memory];
    occurrence.push_back(static_cast<std::int32_t>(sites.size()));
    sites.push_back(touch.site);
  }
  std::map<std::vector<std::int32_t>, std::int32_t> known;  // first of taken_
  std::map<std::size_t, std::int32_t> first_of;
  for (const auto& [memory, sites] : of_memory) {
    const auto [found, fresh] = known.try_emplace(sites, static_cast<std::int32_t>(taken_.size()));
    if (fresh) {
      History& history = histories_.emplace_back();
      history.touches = history.distinct = sites;
      std::sort(history.distinct.begin(), history.distinct.end());
      history.distinct.erase(std::unique(history.distinct.begin(), history.distinct.end()), history.distinct.end());
      history.first = found->second;
      taken_.resize(taken_.size() + sites.size());
    }
    first_of[memory] = found->second;
  }
  for (std::size_t i = 0; i < touches.size(); ++i) steps_.push_back({touches[i].site, touches[i].point, first_of[touches[i].memory] + occurrence[i]});
}

// Two rounds, as steps repeat: the second finds what the first left.
HandoverProgram::Known HandoverProgram::follow(const History& history, const std::vector<Site>& sites, std::vector<Asked> asked) {
  Known known{std::move(asked), {}};
  known.taken.reserve(history.touches.size());
  HandoverTracker::Memory memory;
  for (int round = 0; round < 2; ++round)
    for (const std::int32_t touch : history.touches) {
      const Site& site = sites[static_cast<std::size_t>(touch)];
      const Taken taken = memory.touch(site.density, site.write, site.division);
      if (round == 1) known.taken.push_back(taken);
    }
  return known;
}

// The history's outcome for the list at hand: is it another than for the one before?
bool HandoverProgram::choose(History& history, const std::vector<Site>& sites) {
  const auto asks = [&](const Known& known) {
    for (std::size_t i = 0; i < history.distinct.size(); ++i) {
      const Site& site = sites[static_cast<std::size_t>(history.distinct[i])];
      if (known.asked[i] != Asked{site.division, site.density}) return false;
    }
    return true;
  };
  if (!history.known.empty() && asks(history.known[history.chosen])) return false;
  const auto found = std::find_if(history.known.begin(), history.known.end(), asks);
  history.chosen = static_cast<std::size_t>(found - history.known.begin());
  if (found == history.known.end()) {
    asked_.clear();
    for (const std::int32_t site : history.distinct) asked_.push_back({sites[static_cast<std::size_t>(site)].division, sites[static_cast<std::size_t>(site)].density});
    if (history.known.size() < kMostKnown)
      history.known.emplace_back();
    else
      history.chosen = history.oldest++ % kMostKnown;
    history.known[history.chosen] = follow(history, sites, asked_);
  }
  const std::vector<Taken>& taken = history.known[history.chosen].taken;
  std::copy(taken.begin(), taken.end(), taken_.begin() + history.first);
  return true;
}

void HandoverProgram::gather() {
  active_steps_.clear();
  active_uses_.clear();
  std::int32_t at = 0;
  for (const Use& use : uses_) {
    const std::size_t before = active_steps_.size();
    for (; at < use.end; ++at) {
      const Taken& taken = taken_[static_cast<std::size_t>(steps_[static_cast<std::size_t>(at)].taken)];
      if (taken[0].fetched > 0 || taken[0].reclaimed > 0 || taken[1].fetched > 0 || taken[1].reclaimed > 0) active_steps_.push_back(steps_[static_cast<std::size_t>(at)]);
    }
    if (active_steps_.size() > before) active_uses_.push_back({use.op, static_cast<std::int32_t>(active_steps_.size())});
  }
}

void HandoverProgram::evaluate(const std::vector<Site>& sites, const std::vector<double>& cached, std::vector<Sums>& sums) {
  bool changed = false;
  for (History& history : histories_) changed = choose(history, sites) || changed;
  if (changed) gather();
  std::int32_t at = 0;
  for (const Use& use : active_uses_) {
    HandedSides reading{}, writing{};
    for (; at < use.end; ++at) {
      const Step& step = active_steps_[static_cast<std::size_t>(at)];
      const Site& site = sites[static_cast<std::size_t>(step.site)];
      const Taken& taken = taken_[static_cast<std::size_t>(step.taken)];
      const double bytes = cached[static_cast<std::size_t>(step.point)] * site.bytes;
      HandedSides& into = site.write ? writing : reading;
      for (std::size_t side = 0; side < into.size(); ++side) {
        into[side].fetched += bytes * taken[side].fetched;
        into[side].reclaimed += bytes * taken[side].reclaimed;
      }
    }
    const std::size_t slower = slower_side(reading, writing);
    Sums& sum = sums[static_cast<std::size_t>(use.op)];
    sum.fetched_reads += kHandedSides * reading[slower].fetched;
    sum.fetched_writes += kHandedSides * writing[slower].fetched;
    sum.reclaimed += kHandedSides * writing[slower].reclaimed;
  }
}

}  // namespace fathom
