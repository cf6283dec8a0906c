#include "reports/record_faster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/compare.hpp"
#include "lib/validate.hpp"
#include "reports/format.hpp"
#include "reports/record_names.hpp"

namespace fathom {
namespace {

constexpr std::size_t kMostJobs = 4;    // told one by one
constexpr double kNoError = 0.0005;     // relative: below, as of the fake backend, there is none to tell

double measured(const Result& result) { return result.totals.number("measured_s"); }

// Those with a measured time, by job, each job's fastest first.
std::vector<Results> jobs_of(const Record& record) {
  std::vector<Results> jobs;
  for (const Result& result : record.results) {
    if (!(measured(result) > 0)) continue;
    const Cell* file = result.scenario.find("record");  // records are of different moments: compare a.json b.json sets them against each other
    const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const Results& each) {
      const Cell* other = each.front()->scenario.find("record");
      return same_job(*each.front(), result) && (file && other ? exact_text(*file) == exact_text(*other) : !file && !other);
    });
    if (job == jobs.end()) jobs.push_back({&result});
    else job->push_back(&result);
  }
  for (Results& job : jobs) std::stable_sort(job.begin(), job.end(), [](const Result* a, const Result* b) { return measured(*a) < measured(*b); });
  std::erase_if(jobs, [](const Results& job) { return one_model(job); });
  return jobs;
}

struct Faster {
  const Result* fast;
  const Result* slow;
  double ratio, error;  // error: NaN where the samples do not tell it
};

Faster faster(const Result* fast, const Result* slow) {
  const double ratio = measured(*slow) / measured(*fast);
  return {fast, slow, ratio, ratio * std::hypot(median_uncertainty(fast->totals), median_uncertainty(slow->totals))};
}

bool noisy(const Faster& f) { return step_is_noisy(f.fast->totals.number("noise")) || step_is_noisy(f.slow->totals.number("noise")); }

std::string sentence(const Faster& f, const std::vector<std::string>& keys) {
  std::string where = configuration_name({f.fast}, keys).substr(configuration_name({f.fast}, {}).size());  // ", batch 8"
  if (!where.empty()) where = " (" + where.substr(2) + ")";
  const std::string fast = fmt::format("`{}`", f.fast->model), slow = fmt::format("`{}`", f.slow->model);
  if (std::isnan(f.error)) return fmt::format("{} ran {} times faster than {}{}; how far that is off is not known, each ran once", fast, ratio_text(f.ratio, 0), slow, where);
  if (f.error > kNoError * f.ratio && f.ratio - f.error <= 1) return fmt::format("{} and {} cannot be told apart{}: {} times", fast, slow, where, ratio_text(f.ratio, f.error));
  return fmt::format("{}{} ran {} times faster than {}{}", noisy(f) ? "noisy: " : "", fast, ratio_text(f.ratio, f.error), slow, where);
}

// Many jobs: `one` against `other` over all that both have.
std::string range_sentence(const std::vector<Results>& jobs, const std::string& one, const std::string& other, const std::vector<std::string>& keys) {
  const Faster none{nullptr, nullptr, 0, 0};
  Faster least = none, most = none;
  std::size_t both = 0, unsure = 0;
  for (const Results& job : jobs) {
    const auto of = [&](const std::string& model) { return std::find_if(job.begin(), job.end(), [&](const Result* each) { return each->model == model; }); };
    const auto a = of(one), b = of(other);
    if (a == job.end() || b == job.end()) continue;
    ++both;
    const Faster f = faster(*a, *b);
    if (noisy(f)) ++unsure;
    if (!least.fast || f.ratio < least.ratio) least = f;
    if (!most.fast || f.ratio > most.ratio) most = f;
  }
  if (both == 0) return {};
  const auto at = [&](const Faster& f) {
    const std::string name = configuration_name({f.fast}, keys), model = configuration_name({f.fast}, {});
    return name.size() > model.size() + 2 ? fmt::format(" ({})", name.substr(model.size() + 2)) : std::string();
  };
  const auto number = [](const Faster& f) { return ratio_text(f.ratio, std::isnan(f.error) ? 0 : f.error); };
  return fmt::format("{}`{}` ran {}{} to {}{} times {} `{}`, over {} configurations", unsure > 0 ? fmt::format("noisy ({} of {}): ", unsure, both) : "", one, number(least), at(least), number(most), at(most), least.ratio >= 1 ? "faster than" : "as fast as", other, both);
}

}  // namespace

bool step_is_noisy(double noise) { return too_noisy(noise, CompareOptions{}.step_target); }

double median_uncertainty(const Figures& figures) {
  const double noise = figures.number("noise");
  const double samples = figures.number("samples");
  const double spread = figures.number("spread");
  double known = std::numeric_limits<double>::quiet_NaN();
  if (noise >= 0) known = noise;
  if (spread >= 0 && samples >= 2) known = std::fmax(known, 2 * 0.93 * spread / std::sqrt(samples));
  return known;
}

std::string ratio_text(double ratio, double error) {
  if (!(error > kNoError * ratio)) return significant(ratio, 3);
  const int first = static_cast<int>(std::floor(std::log10(error)));
  const int places = std::clamp(error / std::pow(10, first) < 1.95 ? 1 - first : -first, 1, 6);
  return fmt::format("{:.{}f} ± {:.{}f}", ratio, places, error, places);
}

std::vector<std::string> faster_sentences(const Record& record) {
  const std::vector<Results> jobs = jobs_of(record);
  const std::vector<std::string> keys = telling_apart(all_results(record));
  std::vector<std::string> sentences;
  if (jobs.size() <= kMostJobs) {
    for (const Results& job : jobs)
      for (std::size_t i = 1; i < job.size(); ++i)
        if (job[i]->model != job[0]->model) sentences.push_back(sentence(faster(job[0], job[i]), keys));
    return sentences;
  }
  // Who is first in most jobs is set against the others.
  std::vector<std::pair<std::string, int>> wins;
  for (const Results& job : jobs)
    for (const Result* result : job) {
      auto known = std::find_if(wins.begin(), wins.end(), [&](const auto& each) { return each.first == result->model; });
      if (known == wins.end()) known = wins.insert(wins.end(), {result->model, 0});
      if (result == job.front()) ++known->second;
    }
  const auto best = std::max_element(wins.begin(), wins.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [model, count] : wins)
    if (model != best->first)
      if (const std::string text = range_sentence(jobs, best->first, model, keys); !text.empty()) sentences.push_back(text);
  return sentences;
}

}  // namespace fathom
