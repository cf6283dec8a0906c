#include "tools/sweep_front.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lib/error.hpp"

namespace fathom {
namespace {

// More is better for rates and shares of a peak.
bool better_when_large(const std::string& key) {
  return key == "tokens_per_s" || key == "intensity" || key == "achieved_flops_per_s";
}

bool worse(const SweepFront::Entry& a, const SweepFront::Entry& b) {  // a before b in the order "best first" is: !worse(a, b)
  for (std::size_t i = 0; i < a.values.size(); ++i)
    if (a.values[i] != b.values[i]) return a.values[i] > b.values[i];
  return a.row > b.row;
}
bool before(const SweepFront::Entry& a, const SweepFront::Entry& b) { return worse(b, a); }

}  // namespace

std::vector<Objective> parse_objectives(const std::string& text, SweepKind kind) {
  std::vector<Objective> objectives;
  for (std::string name : split(text, ',')) {
    std::optional<bool> maximise;
    if (name.starts_with("max:") || name.starts_with("min:")) {
      maximise = name.starts_with("max:");
      name.erase(0, 4);
    }
    const std::string key = figure_key(name, kind);
    for (const Objective& other : objectives)
      if (other.key == key) throw_input(fmt::format("'{}' is named twice", name));
    objectives.push_back({key, maximise.value_or(better_when_large(key))});
  }
  return objectives;
}

void SweepFront::offer(std::uint64_t row, const std::vector<double>& values, std::string_view line) {
  Entry entry{row, values, {}};
  for (std::size_t i = 0; i < objectives_.size(); ++i)
    if (objectives_[i].maximise) entry.values[i] = -entry.values[i];
  if (objectives_.size() <= 2) offer_pair(std::move(entry), line);
  else tree_.offer(std::move(entry), line);
}

// A front over two objectives is a staircase: its neighbours alone decide about a row, however long it is.
void SweepFront::offer_pair(Entry entry, std::string_view line) {
  const auto second = [](const Entry& each) { return each.values.size() > 1 ? each.values[1] : 0.0; };
  const double x = entry.values[0], y = second(entry);
  auto above = stairs_.upper_bound(x);  // the first stair behind
  if (above != stairs_.begin()) {
    const auto& [at, rows] = *std::prev(above);
    if (at == x && second(rows.front()) == y) {
      entry.line = line;
      std::prev(above)->second.push_back(std::move(entry));
      return;
    }
    if (second(rows.front()) <= y) return;  // dominated
    if (at == x) --above;
  }
  while (above != stairs_.end() && second(above->second.front()) >= y) above = stairs_.erase(above);
  entry.line = line;
  stairs_[x].push_back(std::move(entry));
}

std::vector<SweepFront::Entry> SweepFront::sorted() const {
  std::vector<Entry> entries;
  tree_.append_to(entries);
  for (const auto& [x, rows] : stairs_) entries.insert(entries.end(), rows.begin(), rows.end());
  std::sort(entries.begin(), entries.end(), before);
  return entries;
}

void SweepTop::offer(std::uint64_t row, double value, std::string_view line) {
  if (count_ == 0) return;
  const double v = objective_.maximise ? -value : value;
  if (heap_.size() == count_) {
    if (v >= heap_.front().values[0]) return;  // an equal one that came earlier stays
    std::pop_heap(heap_.begin(), heap_.end(), before);
    heap_.pop_back();
  }
  heap_.push_back({row, {v}, std::string(line)});
  std::push_heap(heap_.begin(), heap_.end(), before);
}

std::vector<SweepFront::Entry> SweepTop::sorted() const {
  std::vector<SweepFront::Entry> entries = heap_;
  std::sort(entries.begin(), entries.end(), before);
  return entries;
}

}  // namespace fathom
