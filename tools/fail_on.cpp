#include "tools/fail_on.hpp"

#include <CLI/CLI.hpp>

#include "tools/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lib/error.hpp"
#include "reports/format.hpp"
#include "reports/record_tables.hpp"

namespace fathom {
namespace {

using Kind = Condition::Kind;

struct Known {
  const char* name;
  Kind kind;
  const char* example;  // of its limit; nullptr: takes none
  bool records;         // of two records; else of one run (kError is of both: the second record)
  bool limited() const { return example != nullptr; }
};
constexpr Known kKnown[] = {
    {"slower", Kind::kSlower, "5%", true},    {"op-slower", Kind::kOpSlower, "5%", true}, {"faster", Kind::kFaster, "5%", true},       {"predicted", Kind::kPredicted, "5%", true},
    {"memory", Kind::kMemory, "5%", true},    {"counts", Kind::kCounts, nullptr, true},   {"missing", Kind::kMissing, nullptr, true},  {"undecided", Kind::kUndecided, nullptr, true},
    {"error", Kind::kError, "25%", false},    {"realised", Kind::kRealised, "50%", false}, {"noisy", Kind::kNoisy, nullptr, false},     {"faster-than-light", Kind::kFasterThanLight, nullptr, false},
};

std::string percent(double fraction) { return format_value(std::abs(fraction), Unit::kPercent, 3); }

double parse_percent(const std::string& text, const Known& condition) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() - 1 || *end != '%' || !(value >= 0) || value > 1e6)
    throw Error(ErrorKind::kUsage, fmt::format("--fail-on {}: '{}' is not a percentage", condition.name, text), {}, fmt::format("write {}={}", condition.name, condition.example));
  return value / 100;
}

// Relative error of the prediction; NaN where one of both is missing.
double prediction_error(const Result& result) { return result.totals.number("predicted_s") / result.totals.number("measured_s") - 1; }

// A generation has no single list of ops and stands beside no twin.
bool is_routed(const Result& result) {
  const Cell* phase = result.scenario.find("phase");
  const bool generates = phase && phase->words() && *phase->words() == "generate";
  return !generates && (result.scenario.has("routing") || result.totals.has("flops_ratio"));
}

// An error that is not there is not within its limit.
void judge_error(std::vector<std::string>& reasons, const Condition& condition, const std::string& where, const Result& result) {
  const double error = prediction_error(result);
  if (std::isnan(error))
    reasons.push_back(fmt::format("{}: {} has no error: it was not {}", condition.text, where, std::isnan(result.totals.number("measured_s")) ? "measured" : "predicted"));
  else if (std::abs(error) > condition.limit)
    reasons.push_back(fmt::format("{}: the prediction of {} is off by {}", condition.text, where, percent(error)));
}

// Met where the fraction is below its limit by more than its noise, and where there is none; what noise hides is neither.
void judge_realised(std::vector<std::string>& reasons, const Condition& condition, const std::string& where, const Result& result) {
  const Cell cell = realised_cell(result.totals);
  if (cell.is_number()) {
    const double realised = cell.value(), noise = realised_noise(result.totals);
    if (realised + noise < condition.limit)
      reasons.push_back(fmt::format("{}: {} turned only {:.1f} % of its saved FLOPs into time{}", condition.text, where, realised * 100, noise > 0 ? fmt::format(" (± {:.1f} points)", noise * 100) : ""));
  } else if (!result.totals.has("flops_ratio")) {
    reasons.push_back(fmt::format("{}: {}: {}", condition.text, where, kNoTwin));
  } else if (const Cell::Status* missing = cell.missing(); !missing || missing->reason != kTooNoisy) {
    reasons.push_back(fmt::format("{}: {}: no realised fraction: {}", condition.text, where, missing && !missing->reason.empty() ? missing->reason : "it was not measured"));
  }
}

// A change of a time that the condition is about.
void judge(std::vector<std::string>& reasons, const Condition& condition, const std::string& where, const TimeChange& time) {
  const bool predicted = time.figure.rfind("predicted", 0) == 0;
  const std::string direction = time.change > 0 ? "slower" : "faster";
  switch (condition.kind) {
    case Kind::kSlower:
    case Kind::kFaster:
    case Kind::kOpSlower: {
      const double change = condition.kind == Kind::kFaster ? -time.change : time.change;
      if (!predicted && time.told() && change > condition.limit)
        reasons.push_back(fmt::format("{}: {} is {} {} (noise {})", condition.text, where, percent(time.change), direction, percent(time.noise)));
      break;
    }
    case Kind::kPredicted:
      if (predicted && std::abs(time.change) > condition.limit) reasons.push_back(fmt::format("{}: {} is predicted {} {}", condition.text, where, percent(time.change), direction));
      break;
    case Kind::kUndecided:
      if (!predicted && !time.told() && time.change != 0)
        reasons.push_back(fmt::format("{}: {}: {} {} cannot be told from noise{}", condition.text, where, percent(time.change), direction,
                                      std::isnan(time.noise) ? "" : fmt::format(" ({})", percent(time.noise))));
      break;
    default: break;
  }
}

}  // namespace

void add_fail_on(CLI::App& app, std::vector<std::string>& texts) {
  // The first condition that takes a limit shows how it is written.
  const auto listed = [](bool records) {
    std::string text;
    for (const Known& known : kKnown)
      if (known.records == records) text += (text.empty() ? "" : ", ") + std::string(known.name) + (!known.limited() ? "" : text.empty() ? std::string("=") + known.example : "=");
    return text;
  };
  app.add_option("--fail-on", texts, fmt::format("exit 1 if: {} of two records; {} of a run", listed(true), listed(false)))->allow_extra_args(false)->type_name("COND")->group("Conditions");
}

std::vector<std::string> condition_words() {
  std::vector<std::string> words;
  for (const Known& known : kKnown) words.push_back(std::string(known.name) + (known.limited() ? "=" : ""));
  return words;
}

std::vector<Condition> parse_conditions(const std::vector<std::string>& texts, bool records) {
  std::vector<Condition> conditions;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const Known* known = nullptr;
    std::vector<std::string> names;
    for (const Known& each : kKnown) {
      names.emplace_back(each.name);
      if (name == each.name) known = &each;
    }
    if (!known) throw_input(fmt::format("unknown condition '{}'", name), {"", 0, "--fail-on"}, name_hint(name, names));
    const std::string written = known->limited() && equals == std::string::npos ? fmt::format("{}={}", name, known->example) : text;
    if (known->records && !records) throw_input(fmt::format("'{}' compares two records", name), {"", 0, "--fail-on"}, "fathom compare before.json after.json --fail-on " + written);
    if (known->kind != Kind::kError && !known->records && records)
      throw_input(fmt::format("'{}' is a condition of one run", name), {"", 0, "--fail-on"}, "fathom compare MODEL --fail-on " + written);
    if (known->limited() != (equals != std::string::npos))
      throw Error(ErrorKind::kUsage, fmt::format("--fail-on {}: {}", name, known->limited() ? "the limit is missing" : "takes no limit"), {}, known->limited() ? fmt::format("write {}={}", name, known->example) : "");
    conditions.push_back({known->kind, known->limited() ? parse_percent(text.substr(equals + 1), *known) : 0.0, text});
  }
  return conditions;
}

std::vector<std::string> met(const std::vector<Condition>& conditions, const RecordDifference& difference) {
  std::vector<std::string> reasons;
  for (const Condition& condition : conditions) {
    for (const ResultDifference& pair : difference.pairs) {
      const std::string where = configuration_text(*pair.after);
      if (condition.kind == Kind::kOpSlower)
        for (const OpChange& op : pair.ops) judge(reasons, condition, fmt::format("{} of {}", op.path, where), op.time);
      else
        for (const TimeChange& time : pair.times) judge(reasons, condition, where, time);
      if (condition.kind == Kind::kCounts)
        for (const std::string& count : pair.counts) reasons.push_back(fmt::format("{}: {}: {}", condition.text, where, count));
      const double before = pair.before->totals.number("peak_bytes"), after = pair.after->totals.number("peak_bytes");
      if (condition.kind == Kind::kMemory && after > before * (1 + condition.limit))
        reasons.push_back(fmt::format("{}: {} needs {} more memory", condition.text, where, percent(after / before - 1)));
      if (condition.kind == Kind::kError) judge_error(reasons, condition, where, *pair.after);
    }
    for (const ResultDifference& pair : difference.pairs)
      for (const std::string& time : pair.lost)
        if (condition.kind == Kind::kMissing || condition.kind == Kind::kUndecided)
          reasons.push_back(fmt::format("{}: {}: the new record has no {}", condition.text, configuration_text(*pair.after), time));
    if (condition.kind == Kind::kMissing)
      for (const Result* result : difference.only_before) reasons.push_back(fmt::format("{}: {} is gone", condition.text, configuration_text(*result)));
  }
  return reasons;
}

std::vector<std::string> met(const std::vector<Condition>& conditions, const Record& record) {
  std::vector<std::string> reasons;
  for (const Condition& condition : conditions) {
    if (condition.kind == Kind::kRealised && std::none_of(record.results.begin(), record.results.end(), is_routed)) reasons.push_back(fmt::format("{}: {}", condition.text, kNoTwin));
    for (const Result& result : record.results) {
      const std::string where = configuration_text(result);
      const Cell* verdict = result.totals.find("verdict");
      const std::string words = verdict && verdict->words() ? *verdict->words() : "";
      if (condition.kind == Kind::kError) judge_error(reasons, condition, where, result);
      if (condition.kind == Kind::kRealised && is_routed(result)) judge_realised(reasons, condition, where, result);
      if (condition.kind == Kind::kNoisy && words == "noisy") reasons.push_back(fmt::format("{}: {} is noisy", condition.text, where));
      if (condition.kind == Kind::kFasterThanLight)
        for (const Figures& op : result.ops)
          if (const Cell* each = op.find("verdict"); each && each->words() && *each->words() == "faster-than-light")
            reasons.push_back(fmt::format("{}: {} of {}", condition.text, exact_text(*op.find("path")), where));
    }
  }
  return reasons;
}

int fail_code(const std::vector<std::string>& reasons, int otherwise) {
  for (const std::string& reason : reasons) tell(fmt::format("fathom: {}\n", reason));
  return reasons.empty() ? otherwise : 1;
}

}  // namespace fathom
