#include "reports/record_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "lib/error.hpp"
#include "reports/record_rules.hpp"

namespace fathom {
namespace {

constexpr double kTolerance = 1e-6;  // of figures that follow from others: both were written to 17 digits

// The part of a JSON pointer that names one member (RFC 6901).
std::string step(std::string_view name) {
  std::string text = "/";
  for (const char c : name) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

std::optional<double> number(const JsonValue& row, const char* key) {
  const JsonValue* value = row.find(key);
  if (!value || !value->is_number()) return std::nullopt;
  return value->as_double(key);
}

std::string words(const JsonValue& row, const char* key) {
  const JsonValue* value = row.find(key);
  return value && value->is_string() ? value->as_string() : std::string();
}

bool integer(const JsonValue& value) { return value.is_number() && std::get<JsonValue::Number>(value.data).token.find_first_not_of("0123456789") == std::string::npos; }

// Linear between order statistics, as measurements take them. `values` is not empty.
double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& at, const std::string& what) const {
    throw_input(what, {file_, 0, at}, "the file was changed or damaged: save the record again");
  }

  void result(const JsonValue& object, const std::string& at) const {
    if (!object.is_object()) fail(at, "is no result");
    for (const char* name : {"model", "scenario", "totals"})
      if (!object.find(name)) fail(at + step(name), "is missing: a result has a model, a scenario and totals");
    if (const JsonValue& scenario = object.at("scenario"); scenario.is_object() && !scenario.find("phase")) fail(at + "/scenario/phase", "is missing: nothing says what was run");
    for (const char* name : {"scenario", "totals"}) row(object.at(name), at + step(name));
    const JsonValue& totals = object.at("totals");
    if (!totals.find("flops_matmul")) fail(at + "/totals/flops_matmul", "is missing: every result counts its FLOPs");
    for (const char* name : {"parts", "ops"}) {
      const JsonValue* list = object.find(name);
      if (!list) continue;
      const JsonValue::Array& rows = list->as_array(name);
      if (rows.empty()) fail(at + step(name), "is an empty list: its rows were taken away");
      for (std::size_t i = 0; i < rows.size(); ++i) row(rows[i], at + step(name) + fmt::format("/{}", i));
    }
    convention(object, at);
    parts(object, at);
    samples(totals, at + "/totals");
    throughput(object.at("scenario"), totals, at + "/totals");
    if (object.find("ops")) ops(object, at);
  }

  // Ratios between results of one file: `all` are its results, `pointers` where they stand.
  void ratios(const std::vector<const JsonValue*>& all, const std::vector<std::string>& pointers) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const JsonValue& totals = all[i]->at("totals");
      std::vector<const JsonValue*> twins, alike, firsts;  // whose totals those ratios are to
      const auto flops_ratio = number(totals, "flops_ratio");
      const std::string first = words(totals, "relative_to");
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (k == i) continue;
        const JsonValue& other = all[k]->at("totals");
        if (flops_ratio && same_scenario(*all[i], *all[k])) (has_ratio(totals, other, *flops_ratio) ? twins : alike).push_back(&other);
        if (!first.empty() && (words(*all[k], "model") == first || (all[k]->find("model")->is_object() && words(*all[k]->find("model"), "name") == first))) firsts.push_back(&other);
      }
      const std::string at = pointers[i] + "/totals";
      // No twin by FLOPs, but one by time: the FLOP ratio is what was changed.
      for (const JsonValue* other : alike)
        for (const auto& [key, time] : {std::pair{"predicted_ratio", "predicted_s"}, std::pair{"measured_ratio", "measured_s"}})
          if (const auto told = number(totals, key), above = number(totals, time), below = number(*other, time); twins.empty() && told && above && below && *below > 0 && near(*told, *above / *below))
            flops_follow(at, "flops_ratio", totals, *other);
      if (firsts.size() == 1 && number(totals, "relative_flops") && !has_ratio(totals, *firsts[0], *number(totals, "relative_flops"))) flops_follow(at, "relative_flops", totals, *firsts[0]);
      noise_of(totals, "ratio_noise", twins, at);
      noise_of(totals, "relative_noise", firsts, at);
      ratio_to(totals, "predicted_ratio", "predicted_s", twins, at);
      ratio_to(totals, "measured_ratio", "measured_s", twins, at);
      ratio_to(totals, "relative_predicted", "predicted_s", firsts, at);
      ratio_to(totals, "relative_measured", "measured_s", firsts, at);
      const auto measured = number(totals, "measured_ratio"), realised = number(totals, "realised");
      if (measured && realised && flops_ratio && *flops_ratio != 1) follows(at, "realised", *realised, (1 - *measured) / (1 - *flops_ratio), "(1 - measured_ratio) / (1 - flops_ratio)", 1);
    }
  }

  void row(const JsonValue& figures, const std::string& at) const {
    if (!figures.is_object()) fail(at, "is no object of figures");
    for (const auto& [key, value] : figures.as_object()) {
      const Column* column = find_column(key);
      if (!column || key == "status") continue;
      if (key != "samples_s" && key != "rounds_s") {
        cell(*column, value, at + step(key));
        continue;
      }
      if (!value.is_array()) fail(at + step(key), "is no list of times");
      std::size_t place = 0;
      for (const JsonValue& each : value.as_array(key)) cell(*column, each, at + step(key) + fmt::format("/{}", place++));
    }
    for (const QuotientRule& rule : quotient_rules()) quotient(figures, rule, at);
    for (const OrderRule& rule : order_rules()) {
      const auto a = number(figures, rule.left), b = number(figures, rule.right);
      if (a && b && *a > *b * (1 + kTolerance)) fail(at + step(rule.left), fmt::format("is {}, expected at most {}: it is above {}", shortest(*a), shortest(*b), rule.right));
    }
    verdict(figures, at);
  }

 private:
  // `told` must be `expected`, which `why` says how to come by. `scale`: 1 for what is a difference of numbers near 1.
  void follows(const std::string& at, std::string_view key, double told, double expected, std::string_view why, double scale = 0) const {
    if (std::abs(told - expected) <= kTolerance * std::max({std::abs(told), std::abs(expected), scale})) return;
    fail(at + step(key), fmt::format("is {}, expected {}: {}", shortest(told), shortest(expected), why));
  }

  static bool near(double a, double b) { return std::abs(a - b) <= kTolerance * std::max(std::abs(a), std::abs(b)); }

  [[noreturn]] void flops_follow(const std::string& at, const char* key, const JsonValue& totals, const JsonValue& other) const {
    const auto flops = [](const JsonValue& row) { return number(row, "flops_expected").value_or(number(row, "flops_matmul").value_or(0)); };
    fail(at + step(key), fmt::format("is {}, expected {}: FLOPs over those of the other model", shortest(*number(totals, key)), flops(other) > 0 ? shortest(flops(totals) / flops(other)) : "none"));
  }

  // The noise of a ratio: that of both, in quadrature.
  void noise_of(const JsonValue& totals, const char* key, const std::vector<const JsonValue*>& others, const std::string& at) const {
    const auto told = number(totals, key), own = number(totals, "noise");
    std::optional<double> expected;
    for (const JsonValue* other : others) {
      const auto noise = number(*other, "noise");
      if (!told || !own || !noise) continue;
      expected = std::hypot(*own, *noise);
      if (std::abs(*told - *expected) <= kTolerance) return;
    }
    if (expected) follows(at, key, *told, *expected, "the noise of both, in quadrature", 1);
  }

  void quotient(const JsonValue& figures, const QuotientRule& rule, const std::string& at) const {
    const auto told = number(figures, rule.key), below = number(figures, rule.under);
    auto above = number(figures, rule.over);
    if (!above && rule.instead) above = number(figures, rule.instead);
    const auto also = rule.also ? number(figures, rule.also) : std::optional<double>(0);
    if (!told || !above || !also || !below || *below <= 0) return;
    const double shift = rule.change ? 1 : 0, expected = (*above + *also) / *below - shift;
    // Of a change the sum with 1 is the quotient, known to all its digits; the change itself may be a difference of nearly equal numbers.
    if (std::abs(*told - expected) <= kTolerance * std::max(std::abs(*told + shift), std::abs(expected + shift))) return;
    if (const auto other = rule.instead ? number(figures, rule.instead) : std::nullopt; other && std::abs(*told - (*other + *also) / *below) <= kTolerance * std::abs(*told)) return;
    const std::string sum = rule.also ? fmt::format("({} + {})", rule.over, rule.also) : rule.instead && !number(figures, rule.over) ? rule.instead : rule.over;
    fail(at + step(rule.key), fmt::format("is {}, expected {}: {} / {}{}", shortest(*told), shortest(expected), sum, rule.under, rule.change ? " - 1" : ""));
  }

  void cell(const Column& column, const JsonValue& value, const std::string& at) const {
    if (value.is_null()) return;
    if (value.is_array() || value.is_object()) fail(at, "is no single figure");
    if (column.unit == Unit::kText) {
      const std::vector<std::string_view> allowed = words_of_column(column.key);
      if (allowed.empty()) return;
      if (value.is_string() && std::find(allowed.begin(), allowed.end(), value.as_string()) != allowed.end()) return;
      fail(at, fmt::format("is {}, expected one of: {}", value.is_string() ? fmt::format("'{}'", value.as_string().substr(0, 40)) : "no text", fmt::join(allowed, ", ")));
    }
    if (!value.is_number()) fail(at, value.is_string() ? fmt::format("is the text '{}' where a number belongs", value.as_string().substr(0, 40)) : std::string("is no number"));
    double figure = 0;
    try {
      figure = value.as_double(column.key);
    } catch (const Error& error) {
      fail(at, error.message());
    }
    if (!std::isfinite(figure)) fail(at, "is out of range");
    const FigureRange range = range_of(column);
    if (figure < range.least) fail(at, range.least == 0 ? fmt::format("is {}: {} cannot be negative", shortest(figure), column.label) : fmt::format("is {}, expected at least {}", shortest(figure), shortest(range.least)));
    if (figure > range.most * (1 + kTolerance)) fail(at, fmt::format("is {}: {} is at most {}", shortest(figure), range.most == 1 ? "a share" : column.label, shortest(range.most)));
    if (range.whole && !integer(value)) fail(at, fmt::format("is {}, expected an integer", std::get<JsonValue::Number>(value.data).token));
  }

  // A grade says on which side of the interval the measurement lies (lib/compare).
  void verdict(const JsonValue& figures, const std::string& at) const {
    const std::string grade = words(figures, "verdict");
    const auto measured = number(figures, "measured_s"), predicted = number(figures, "predicted_s");
    if (!measured || !predicted || (grade != "within" && grade != "fast" && grade != "slow")) return;
    constexpr double kWithout = 0.1;  // where there is no interval
    const auto told_lo = number(figures, "predicted_lo_s"), told_hi = number(figures, "predicted_hi_s");
    const bool interval = told_lo || told_hi;
    const double lo = interval ? told_lo.value_or(0) : *predicted * (1 - kWithout);
    const double hi = interval ? told_hi.value_or(std::numeric_limits<double>::infinity()) : *predicted * (1 + kWithout);
    const std::string follows = *measured < lo * (1 - kTolerance) ? "fast" : *measured > hi * (1 + kTolerance) ? "slow" : *measured > lo * (1 + kTolerance) && *measured < hi * (1 - kTolerance) ? "within" : grade;
    if (follows != grade) fail(at + "/verdict", fmt::format("is '{}', expected '{}': measured_s is {}, its interval {} to {}", grade, follows, shortest(*measured), shortest(lo), std::isinf(hi) ? "unbounded" : shortest(hi)));
  }

  // FLOPs by a convention: a number, or as text where it is no integer ("1234.5", "7/3").
  void convention(const JsonValue& object, const std::string& at) const {
    const JsonValue* all = object.find("convention");
    const JsonValue* flops = all ? all->find("flops") : nullptr;
    if (!flops || flops->is_null()) return;
    const std::string pointer = at + "/convention/flops";
    if (flops->is_string()) {
      const std::string& text = flops->as_string();
      if (text.empty() || text.find_first_not_of("0123456789./") != std::string::npos) fail(pointer, fmt::format("is the text '{}' where a number belongs", text.substr(0, 40)));
      return;
    }
    if (!flops->is_number()) fail(pointer, "is no number");
    if (flops->as_double("flops") < 0) fail(pointer, "is negative");
    const JsonValue* exact = object.at("totals").find("flops_matmul");
    if (words(*all, "name") == "exact" && exact && exact->is_number() && !(*exact == *flops))
      fail(pointer, fmt::format("is {}, expected {}: flops_matmul is the same count", shortest(flops->as_double()), shortest(exact->as_double())));
  }

  // The sum of `key` over the rows that `wanted` takes; nothing where one of them has no integer.
  template <class Wanted>
  static std::optional<u128> exact_sum(const JsonValue::Array& rows, const char* key, const Wanted& wanted) {
    u128 sum = 0;
    for (const JsonValue& each : rows) {
      if (!wanted(each)) continue;
      const JsonValue* value = each.find(key);
      if (!value || !integer(*value)) return std::nullopt;
      sum = checked_add(sum, value->as_u128(key));
    }
    return sum;
  }

  // Integers of the totals are the sums over the parts, those of a part the sums over its ops.
  void parts(const JsonValue& object, const std::string& at) const {
    const JsonValue* list = object.find("parts");
    if (!list) return;
    const JsonValue* ops = object.find("ops");
    if (!ops) fail(at + "/ops", "is missing: `parts` are sums over it");
    const JsonValue::Array& rows = list->as_array("parts");
    for (const char* key : {"flops_matmul", "elements_vector", "bytes_read", "bytes_written"}) {
      const auto compare = [&](const JsonValue* told, const std::optional<u128>& sum, const std::string& pointer, const char* of) {
        if (told && integer(*told) && sum && *sum != told->as_u128(key)) fail(pointer + step(key), fmt::format("is {}, expected {}: the {} add up to that", to_string(told->as_u128(key)), to_string(*sum), of));
      };
      compare(object.at("totals").find(key), exact_sum(rows, key, [](const JsonValue&) { return true; }), at + "/totals", "parts");
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::string name = words(rows[i], "part");
        compare(rows[i].find(key), exact_sum(ops->as_array("ops"), key, [&](const JsonValue& op) { return words(op, "part") == name; }), at + fmt::format("/parts/{}", i), "ops of the part");
      }
    }
  }

  void samples(const JsonValue& totals, const std::string& at) const {
    const JsonValue* list = totals.find("samples_s");
    if (!list) return;
    std::vector<double> values;
    for (const JsonValue& each : list->as_array("samples_s")) values.push_back(each.as_double("samples_s"));
    if (values.empty()) fail(at + "/samples_s", "is an empty list: its passes were taken away");
    if (const auto count = number(totals, "samples")) follows(at, "samples", *count, static_cast<double>(values.size()), "the number of samples_s");
    for (const SampleRule& rule : sample_rules())
      if (const auto told = number(totals, rule.key)) follows(at, rule.key, *told, quantile(values, rule.quantile), fmt::format("the {:g} % quantile of samples_s", rule.quantile * 100));
    const double median = quantile(values, 0.5);
    if (const auto spread = number(totals, "spread"); spread && median > 0)
      follows(at, "spread", *spread, (quantile(values, 0.75) - quantile(values, 0.25)) / median, "(p75 - p25) / median of samples_s", 1);
  }

  void throughput(const JsonValue& scenario, const JsonValue& totals, const std::string& at) const {
    const std::string phase = words(scenario, "phase");
    const auto batch = number(scenario, "batch"), seq = number(scenario, "seq"), tokens = number(scenario, "tokens");
    if (!batch) return;
    const auto rate = [&](const char* key, const char* time, double made) {
      if (const auto told = number(totals, key), seconds = number(totals, time); told && seconds && *seconds > 0) follows(at, key, *told, made / *seconds, fmt::format("tokens of a step / {}", time));
    };
    if (phase == "generate") {
      rate("tokens_per_s", "tpot_s", *batch);
      for (const std::string before : {"", "predicted_"}) {
        const std::string all = before + (before.empty() ? "measured_s" : "s"), first = before + "ttft_s", each = before + "tpot_s";
        const auto told = number(totals, all.c_str()), ttft = number(totals, first.c_str()), tpot = number(totals, each.c_str());
        if (told && ttft && tpot && tokens && *tokens > 1) follows(at, all, *told, *ttft + (*tokens - 1) * *tpot, fmt::format("{} + (tokens - 1) * {}", first, each));
      }
      return;
    }
    if (phase != "decode" && !seq) return;
    const double made = *batch * (phase == "decode" ? 1 : *seq);
    rate("tokens_per_s", "measured_s", made);
    rate("predicted_tokens_per_s", "predicted_s", made);
  }

  // What the totals say of the ops, and an op of the totals.
  void ops(const JsonValue& object, const std::string& at) const {
    const JsonValue& totals = object.at("totals");
    const JsonValue::Array& rows = object.at("ops").as_array("ops");
    for (const SumRule& rule : sum_rules()) {
      const JsonValue* told = totals.find(rule.key);
      if (!told || !told->is_number()) continue;
      double sum = 0;
      bool any = false, whole = integer(*told);
      for (const JsonValue& op : rows) {
        auto value = number(op, rule.of);
        whole = whole && value && integer(*op.find(rule.of));
        if (!value && rule.otherwise) value = number(op, rule.otherwise);
        if (value) sum += *value, any = true;
      }
      if (!any) continue;
      const std::string why = fmt::format("the sum of {} over the ops", rule.of);
      follows(at + "/totals", rule.key, told->as_double(rule.key), sum, why);
      if (!whole) continue;
      const auto exact = exact_sum(rows, rule.of, [](const JsonValue&) { return true; });
      if (exact && *exact != told->as_u128(rule.key)) fail(at + "/totals" + step(rule.key), fmt::format("is {}, expected {}: {}", to_string(told->as_u128(rule.key)), to_string(*exact), why));
    }
    const auto compute = number(totals, "compute_s"), memory = number(totals, "memory_s"), launch = number(totals, "launch_s"), predicted = number(totals, "predicted_s");
    if (compute && memory && launch && predicted) follows(at + "/totals", "predicted_s", *predicted, *compute + *memory + *launch, "compute_s + memory_s + launch_s");
    std::vector<double> errors;
    const auto whole = number(totals, "normalised_s");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto share = number(rows[i], "share"), measured = number(rows[i], "measured_s"), error = number(rows[i], "error");
      if (share && measured && whole && *whole > 0) follows(at + fmt::format("/ops/{}", i), "share", *share, *measured / *whole, "measured_s / normalised_s of the step");
      const JsonValue* rounds = rows[i].find("rounds_s");
      if (const auto taken = number(rows[i], "samples"), times = number(rows[i], "times"); taken && times && rounds)
        follows(at + fmt::format("/ops/{}", i), "samples", *taken, *times * static_cast<double>(rounds->as_array("rounds_s").size()), "times x the number of rounds_s");
      const std::string grade = words(rows[i], "verdict");
      if (error && !grade.empty() && grade != "noisy" && grade != "too-short" && grade != "skipped") errors.push_back(std::abs(*error));
    }
    if (errors.empty()) return;
    double mean = 0;
    for (const double error : errors) mean += error / static_cast<double>(errors.size());
    if (const auto told = number(totals, "mape")) follows(at + "/totals", "mape", *told, mean, "the mean |error| of the graded ops", 1);
    if (const auto told = number(totals, "median_error")) follows(at + "/totals", "median_error", *told, quantile(errors, 0.5), "the median |error| of the graded ops", 1);
  }

  // Of one job, however tokens are routed.
  static bool same_scenario(const JsonValue& a, const JsonValue& b) {
    const auto of = [](const JsonValue& result) {
      std::vector<std::pair<std::string, const JsonValue*>> members;
      for (const auto& [key, value] : result.at("scenario").as_object())
        if (key != "routing") members.emplace_back(key, &value);
      std::sort(members.begin(), members.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
      return members;
    };
    const auto x = of(a), y = of(b);
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) { return p.first == q.first && *p.second == *q.second; });
  }

  static bool has_ratio(const JsonValue& a, const JsonValue& b, double ratio) {
    for (const char* x : {"flops_expected", "flops_matmul"})
      for (const char* y : {"flops_expected", "flops_matmul"})
        if (const auto above = number(a, x), below = number(b, y); above && below && *below > 0 && std::abs(*above / *below - ratio) <= kTolerance * ratio) return true;
    return false;
  }

  // The ratio must be that to one of `others`; where none is in the file, nothing can be said.
  void ratio_to(const JsonValue& totals, const char* key, const char* time, const std::vector<const JsonValue*>& others, const std::string& at) const {
    const auto told = number(totals, key), above = number(totals, time);
    if (!told || !above) return;
    std::optional<double> expected;
    for (const JsonValue* other : others) {
      const auto below = number(*other, time);
      if (!below || *below <= 0) continue;
      if (std::abs(*above / *below - *told) <= kTolerance * std::max(*told, *above / *below)) return;
      if (!expected) expected = *above / *below;
    }
    if (expected) follows(at, key, *told, *expected, fmt::format("{} over that of the other model", time));
  }

  const std::string& file_;
};

}  // namespace

void check_record_figures(const JsonValue& root, const std::string& file) {
  const Checker checker(file);
  if (const JsonValue* environment = root.find("environment")) checker.row(*environment, "/environment");
  const JsonValue* results = root.find("results");
  if (!results) return checker.result(root, "");
  const JsonValue::Array& list = results->as_array("results");
  if (list.empty()) checker.fail("/results", "is an empty list: its results were taken away");
  std::vector<const JsonValue*> all;
  std::vector<std::string> pointers;
  for (std::size_t i = 0; i < list.size(); ++i) {
    pointers.push_back(fmt::format("/results/{}", i));
    checker.result(list[i], pointers.back());
    all.push_back(&list[i]);
  }
  checker.ratios(all, pointers);
}

}  // namespace fathom
