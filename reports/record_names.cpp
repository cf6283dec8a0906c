#include "reports/record_names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/format.hpp"
#include "reports/record_tables.hpp"

namespace fathom {
namespace {

constexpr std::size_t kMostValues = 4;  // written one by one in a name
constexpr std::size_t kMostNames = 8;   // configurations of a list

std::string value_of(const Cell& cell) { return cell.exact() ? grouped(*cell.exact()) : exact_text(cell); }

}  // namespace

Results all_results(const Record& record) {
  Results results;
  for (const Result& result : record.results) results.push_back(&result);
  return results;
}

std::vector<Results> by_model(const Results& results) {
  std::vector<Results> groups;
  for (const Result* result : results) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Results& each) { return each.front()->model == result->model; });
    if (group == groups.end()) groups.push_back({result});
    else group->push_back(result);
  }
  return groups;
}

std::vector<std::string> telling_apart(const Results& results) {
  std::vector<Figures> rows;
  for (const Result* result : results) rows.push_back(identified(*result, {}));
  std::vector<std::string> keys = varying(rows);
  std::erase(keys, "model");
  return keys;
}

std::string configuration_name(const Results& results, const std::vector<std::string>& keys) {
  std::string text = fmt::format("`{}`", results.front()->model);
  for (const std::string& key : keys) {
    std::vector<std::string> values;
    bool words = false;
    for (const Result* result : results) {
      const Figures row = identified(*result, {});
      const Cell* cell = row.find(key);
      if (!cell) continue;
      words = cell->words() != nullptr;
      if (const std::string value = value_of(*cell); std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    if (values.empty()) continue;
    const std::string list = values.size() > kMostValues ? fmt::format("{} ... {}", values.front(), values.back()) : fmt::format("{}", fmt::join(values, " / "));
    text += fmt::format(", {}{}", words ? "" : key + " ", list);
  }
  return text;
}

std::string names_of(const Results& some, const Results& all) {
  if (some.size() == all.size() && all.size() > kMostValues) return fmt::format("all {} configurations", all.size());
  const std::vector<Results> groups = by_model(all);
  const std::vector<std::string> keys = groups.size() == all.size() ? std::vector<std::string>{} : telling_apart(all);
  std::vector<std::string> names;
  std::size_t listed = 0;
  for (const Results& group : by_model(some)) {
    const auto whole = std::find_if(groups.begin(), groups.end(), [&](const Results& each) { return each.front()->model == group.front()->model; });
    if (group.size() == whole->size()) {
      names.push_back(configuration_name(group, {}));
      ++listed;
      continue;
    }
    // Four at a time: a longer list would be written as if it had no gaps.
    for (std::size_t from = 0; from < group.size(); from += kMostValues)
      names.push_back(configuration_name(Results(group.begin() + static_cast<std::ptrdiff_t>(from), group.begin() + static_cast<std::ptrdiff_t>(std::min(group.size(), from + kMostValues))), keys));
    listed += group.size();
  }
  return listed > kMostNames ? fmt::format("{} of {} configurations", some.size(), all.size()) : fmt::format("{}", fmt::join(names, names.size() == 2 ? " and " : "; "));
}

bool one_model(const Results& results) {
  return std::all_of(results.begin(), results.end(), [&](const Result* each) { return each->model == results.front()->model; });
}

bool same_job(const Result& a, const Result& b) {
  for (const char* key : {"phase", "batch", "seq", "past", "prompt", "tokens", "context", "dtype", "logits", "recompute", "weight_dtype", "kv_dtype", "mask", "fusion"}) {
    const Cell *x = a.scenario.find(key), *y = b.scenario.find(key);
    if ((x != nullptr) != (y != nullptr) || (x && exact_text(*x) != exact_text(*y))) return false;
  }
  return a.machine == b.machine;
}

}  // namespace fathom
