#include "reports/record_sentences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reports/format.hpp"
#include "reports/record_faster.hpp"
#include "reports/record_names.hpp"
#include "reports/record_tables.hpp"

namespace fathom {
namespace {

std::string three_digits(double fraction) { return format_value(fraction, Unit::kPercent, 3); }

struct Said {
  Results of;
  std::string sentence;
};

// One after the other; neighbours of one model that say the same are one.
std::vector<Said> said_of(const Results& results, const std::function<std::string(const Result&)>& sentence) {
  std::vector<Said> all;
  for (const Result* result : results) {
    const std::string text = sentence(*result);
    if (!all.empty() && all.back().sentence == text && all.back().of.front()->model == result->model)
      all.back().of.push_back(result);  // a list of batch sizes may say the same over and over
    else
      all.push_back({{result}, text});
  }
  return all;
}

using Figure = std::function<double(const Result&)>;
using Written = std::function<std::string(double)>;

// "0.57 (batch 32) to 0.77 (batch 1)"; one value where all are written alike; empty: nobody has the figure.
std::string extremes(const Results& results, const std::vector<std::string>& keys, const Figure& figure, const Written& written) {
  const Result *least = nullptr, *most = nullptr;
  for (const Result* result : results) {
    const double value = figure(*result);
    if (std::isnan(value)) continue;
    if (!least || value < figure(*least)) least = result;
    if (!most || value > figure(*most)) most = result;
  }
  if (!least) return {};
  const std::string low = written(figure(*least)), high = written(figure(*most));
  if (low == high) return low;
  const bool of_one = one_model(results);
  const auto name = [&](const Result* result) {
    const std::string text = configuration_name({result}, keys), model = configuration_name({result}, {});
    return of_one && text.size() > model.size() + 2 ? text.substr(model.size() + 2) : text;
  };
  return fmt::format("{} ({}) to {} ({})", low, name(least), high, name(most));
}

std::string total_of(const Result& result, const char* key, const Written& written) {
  const double value = result.totals.number(key);
  return std::isnan(value) ? "" : written(value);
}

const Written kRatioText = [](double value) { return significant(value, 4); };
const Written kTimeText = [](double value) { return format_value(value, Unit::kSeconds); };
const Written kErrorText = [](double value) { return format_value(value, Unit::kSignedPercent, 3); };
const Written kSpreadText = [](double value) { return format_value(value, Unit::kPercent, 2); };

Figure figure_named(const char* key) {
  return [key](const Result& result) { return result.totals.number(key); };
}

// Results by model; all together where they are of many models.
std::vector<Results> few_groups(const Results& results) {
  std::vector<Results> groups = by_model(results);
  return groups.size() > kMostSentences ? std::vector<Results>{results} : groups;
}

// "`mod-60m` in 8 configurations" or "24 configurations of 8 models".
std::string group_name(const Results& results) {
  std::vector<std::string> models;
  for (const Result* result : results)
    if (std::find(models.begin(), models.end(), result->model) == models.end()) models.push_back(result->model);
  return models.size() == 1 ? fmt::format("`{}` in {} configurations", models[0], results.size()) : fmt::format("{} configurations of {} models", results.size(), models.size());
}

// Whether the step or its twin is too noisy to be graded: their two noises stand in quadrature in that of the ratio.
bool noisy_pair(const Result& result) {
  const double own = result.totals.number("noise"), both = result.totals.number("ratio_noise");
  const double twin = both > own ? std::sqrt(both * both - own * own) : both;
  return step_is_noisy(own) || step_is_noisy(twin);
}

// The result in one sentence, for a MoD result that knows its dense twin; empty for others.
std::string pair_sentence(const Result& result) {
  const double flops = result.totals.number("flops_ratio");
  if (std::isnan(flops)) return {};
  std::string text = fmt::format("needs {} of the FLOPs of its dense twin", significant(flops, 4));
  const double predicted = result.totals.number("predicted_ratio");
  const double measured = result.totals.number("measured_ratio");
  if (!std::isnan(predicted)) text += fmt::format("; predicted time ratio {}", significant(predicted, 4));
  const double noise = result.totals.number("ratio_noise");
  if (!std::isnan(measured)) text += fmt::format("; measured time ratio {}", significant(measured, 4));
  if (!std::isnan(measured) && noise >= 0.001) text += fmt::format(" ± {}", significant(measured * noise, 2));
  const Cell realised = realised_cell(result.totals);
  const double unsure = realised_noise(result.totals);
  if (realised.missing() && realised.missing()->reason == kTooNoisy)
    text += ". The noise of that ratio is too large to say how much of the FLOPs saved became time saved";
  else if (realised.is_number())
    text += fmt::format(". {} the FLOPs saved, {}{} became time saved", noisy_pair(result) ? "Noisy: of" : "Of", three_digits(realised.value()),
                        unsure > 0 ? fmt::format(" (± {} points)", significant(100 * unsure, 2)) : "");
  else if (realised.missing() && !realised.missing()->reason.empty())
    text += fmt::format(". Realised fraction: {}", realised.missing()->reason);
  return text;
}

// The same of many of them.
std::string pairs_sentence(const Results& results, const std::vector<std::string>& keys) {
  std::string text = fmt::format("{} {} of the FLOPs of {}", one_model(results) ? "needs" : "need", extremes(results, keys, figure_named("flops_ratio"), kRatioText), one_model(results) ? "its dense twin" : "their dense twins");
  if (const std::string predicted = extremes(results, keys, figure_named("predicted_ratio"), kRatioText); !predicted.empty()) text += "; predicted time ratio " + predicted;
  if (const std::string measured = extremes(results, keys, figure_named("measured_ratio"), kRatioText); !measured.empty()) text += "; measured time ratio " + measured;
  const auto realised = [](const Result& result) {
    const Cell cell = realised_cell(result.totals);
    return cell.is_number() ? cell.value() : std::nan("");
  };
  const auto ungraded = std::count_if(results.begin(), results.end(), [&](const Result* result) { return noisy_pair(*result) && !std::isnan(realised(*result)); });
  if (const std::string share = extremes(results, keys, realised, three_digits); !share.empty())
    text += fmt::format(". {} the FLOPs saved, {} became time saved", ungraded > 0 ? fmt::format("Noisy ({} of {}): of", ungraded, results.size()) : "Of", share);
  const auto noisy = std::count_if(results.begin(), results.end(), [](const Result* result) {
    const Cell cell = realised_cell(result->totals);
    return cell.missing() && cell.missing()->reason == kTooNoisy;
  });
  if (noisy > 0) text += fmt::format(". In {} of them noise hides how much of the FLOPs saved became time saved", noisy);
  return text;
}

void add_pair_sentences(Document& document, const Record& record) {
  Results results;
  for (const Result& result : record.results)
    if (!pair_sentence(result).empty()) results.push_back(&result);
  const std::vector<std::string> keys = telling_apart(results);
  const auto say = [&](const std::vector<Said>& all) {
    for (const Said& said : all) {
      const auto same_model = std::count_if(results.begin(), results.end(), [&](const Result* each) { return each->model == said.of.front()->model; });
      const bool whole = static_cast<std::ptrdiff_t>(said.of.size()) == same_model;  // it holds for the model as it was asked for
      const std::string name = configuration_name(said.of, whole ? std::vector<std::string>() : keys);
      document.paragraph(fmt::format("{}{} {}.", name, name == configuration_name(said.of, {}) ? "" : ":", said.sentence));
    }
  };
  const std::vector<Said> all = said_of(results, pair_sentence);
  if (all.size() <= kMostSentences) return say(all);
  for (const Results& group : few_groups(results)) {
    const std::vector<Said> alone = said_of(group, pair_sentence);
    if (alone.size() == 1) say(alone);
    else document.paragraph(fmt::format("{} {}.", group_name(group), pairs_sentence(group, keys)));
  }
}

double error_of(const Result& result) { return result.totals.number("predicted_s") / result.totals.number("measured_s") - 1; }

void add_error_sentence(Document& document, const Record& record) {
  Results results;
  for (const Result& result : record.results)
    if (!std::isnan(error_of(result))) results.push_back(&result);
  if (results.empty()) return;
  const std::vector<std::string> keys = telling_apart(all_results(record));
  if (results.size() > kMostSentences) {
    std::vector<double> sizes;
    for (const Result* result : results) sizes.push_back(std::abs(error_of(*result)));
    std::sort(sizes.begin(), sizes.end());
    const std::size_t half = sizes.size() / 2;
    const double median = sizes.size() % 2 == 1 ? sizes[half] : (sizes[half - 1] + sizes[half]) / 2;
    std::string text = fmt::format("{}: error of the prediction {}, median |error| {}", group_name(results), extremes(results, keys, error_of, kErrorText), three_digits(median));
    if (const std::string spread = extremes(results, keys, figure_named("spread"), kSpreadText); !spread.empty()) text += "; spread " + spread;
    document.paragraph(text + ".");
    return;
  }
  std::string text;
  for (const Result* result : results) {
    const double spread = result->totals.number("spread");
    text += fmt::format("{}{}: predicted {}, measured {} (error {}{})", text.empty() ? "" : "; ", configuration_name({result}, keys), total_of(*result, "predicted_s", kTimeText), total_of(*result, "measured_s", kTimeText),
                        kErrorText(error_of(*result)), spread > 0 ? ", spread " + kSpreadText(spread) : "");
  }
  document.paragraph(text + ".");
}

// A run that nothing was predicted for: what was measured, and how well it is known.
void add_measured_sentence(Document& document, const Record& record) {
  Results results;
  for (const Result& result : record.results)
    if (!std::isnan(result.totals.number("measured_s")) && std::isnan(result.totals.number("predicted_s"))) results.push_back(&result);
  if (results.empty()) return;
  const std::vector<std::string> keys = telling_apart(all_results(record));
  if (results.size() > kMostSentences) {
    std::string text = fmt::format("{}: measured {}", group_name(results), extremes(results, keys, figure_named("measured_s"), kTimeText));
    if (const std::string spread = extremes(results, keys, figure_named("spread"), kSpreadText); !spread.empty()) text += "; spread " + spread;
    document.paragraph(text + ".");
    return;
  }
  std::string text;
  for (const Result* result : results) {
    text += fmt::format("{}{}: measured {}", text.empty() ? "" : "; ", configuration_name({result}, keys), total_of(*result, "measured_s", kTimeText));
    if (const std::string spread = total_of(*result, "spread", kSpreadText); !spread.empty()) text += ", spread " + spread;
    if (const Cell* samples = result->totals.find("samples"); samples && samples->is_number()) text += fmt::format(", {} samples", format_cell(*samples, Unit::kCount));
    if (const double rate = result->totals.number("tokens_per_s"); !std::isnan(rate)) text += ", " + format_value(rate, Unit::kTokenRate, 3);
  }
  document.paragraph(text + ".");
}

constexpr std::pair<const char*, const char*> kRelative[] = {{"relative_flops", "the FLOPs"}, {"relative_predicted", "the predicted time"}, {"relative_measured", "the measured time"}};

// Two models that are no twins: ratios, and no word of FLOPs that were saved. Empty: it stands beside none.
std::string relative_sentence(const Result& result) {
  const Cell* to = result.totals.find("relative_to");
  if (!to || !to->words()) return {};
  std::string text;
  for (const auto& [key, what] : kRelative) {
    const std::string ratio = total_of(result, key, kRatioText);
    if (ratio.empty()) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ratio);
    if (const double noise = result.totals.number("relative_noise"); std::string_view(key) == "relative_measured" && noise >= 0.001)
      text += fmt::format(" ± {}", significant(result.totals.number(key) * noise, 2));
    text += fmt::format(" times {}", what);
  }
  return text.empty() ? "" : fmt::format("against `{}`: {}", *to->words(), text);
}

void add_relative_sentences(Document& document, const Record& record) {
  Results results;
  for (const Result& result : record.results)
    if (!relative_sentence(result).empty()) results.push_back(&result);
  const std::vector<std::string> keys = telling_apart(all_results(record));
  const std::vector<Said> all = said_of(results, relative_sentence);
  if (all.size() <= kMostSentences) {
    for (const Said& said : all) document.paragraph(fmt::format("{} {}.", configuration_name(said.of, keys), said.sentence));
    return;
  }
  for (const Results& group : few_groups(results)) {
    std::string text;
    for (const auto& [key, what] : kRelative)
      if (const std::string ratio = extremes(group, keys, figure_named(key), kRatioText); !ratio.empty()) text += fmt::format("{}{} times {}", text.empty() ? "" : ", ", ratio, what);
    const auto to = [](const Result* result) { return *result->totals.find("relative_to")->words(); };
    const bool one = std::all_of(group.begin(), group.end(), [&](const Result* each) { return to(each) == to(group.front()); });
    document.paragraph(fmt::format("{} against {}: {}.", group_name(group), one ? "`" + to(group.front()) + "`" : "their first models", text));
  }
}

}  // namespace

void add_sentences(Document& document, const Record& record) {
  add_error_sentence(document, record);
  add_measured_sentence(document, record);
  add_pair_sentences(document, record);
  add_relative_sentences(document, record);
}

}  // namespace fathom
