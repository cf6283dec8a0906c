#include "reports/record_check.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>

#include "lib/error.hpp"
#include "reports/columns.hpp"

namespace fathom {
namespace {

constexpr double kTolerance = 1e-6;  // of figures that follow from others: both were written to 17 digits

// ratio = a / b, or a / b - 1.
struct Ratio {
  const char *key, *above, *below;
  bool change;
};
constexpr std::array kRatios = {
    Ratio{"time_ratio", "measured_s", "predicted_s", false},       Ratio{"error", "predicted_s", "measured_s", true},
    Ratio{"kernel_error", "predicted_s", "kernel_s", true},        Ratio{"counter_flops_ratio", "counter_flops", "needed_flops", false},
    Ratio{"profile_overhead", "traced_s", "measured_s", true},
};
// Figures that rise from left to right. Not the fastest sample and the median: only the median has the machine's clock divided out.
constexpr std::array kOrders = {
    std::pair{"predicted_lo_s", "predicted_hi_s"}, std::pair{"predicted_p50_s", "predicted_p95_s"}, std::pair{"predicted_p95_s", "predicted_p99_s"}, std::pair{"p50_s", "p95_s"},
    std::pair{"p95_s", "p99_s"}, std::pair{"params_active", "params_total"},
};
constexpr std::array kShares = {"participation", "coverage", "interval_coverage", "capacity", "share"};
constexpr std::array kSummed = {"flops_matmul", "elements_vector", "bytes_read", "bytes_written"};

// The part of a JSON pointer that names one member (RFC 6901).
std::string step(std::string_view name) {
  std::string text = "/";
  for (const char c : name) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}

  void result(const JsonValue& object, const std::string& at) const {
    for (const char* name : {"scenario", "totals"})
      if (const JsonValue* figures = object.find(name)) row(*figures, at + step(name));
    for (const char* name : {"parts", "ops"}) {
      const JsonValue* list = object.find(name);
      if (!list) continue;
      const JsonValue::Array& rows = list->as_array(name);
      for (std::size_t i = 0; i < rows.size(); ++i) row(rows[i], at + step(name) + fmt::format("/{}", i));
    }
    convention(object, at);
    sums(object, at);
  }

 private:
  [[noreturn]] void fail(const std::string& at, const std::string& what) const {
    throw_input(what, {file_, 0, at}, "the file was changed or damaged: save the record again");
  }

  static std::optional<double> number(const JsonValue& row, const char* key) {
    const JsonValue* value = row.find(key);
    if (!value || !value->is_number()) return std::nullopt;
    return value->as_double(key);
  }

  static bool integer(const JsonValue& value) {
    return value.is_number() && std::get<JsonValue::Number>(value.data).token.find_first_not_of("0123456789") == std::string::npos;
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
      size_t place = 0;
      for (const JsonValue& each : value.as_array(key)) cell(*column, each, at + step(key) + fmt::format("/{}", place++));
    }
    for (const Ratio& ratio : kRatios) {
      const auto told = number(figures, ratio.key), above = number(figures, ratio.above), below = number(figures, ratio.below);
      if (!told || !above || !below || *below <= 0) continue;
      const double follows = *above / *below - (ratio.change ? 1 : 0);
      if (std::abs(*told - follows) > kTolerance * std::max(1.0, std::abs(follows)))
        fail(at + step(ratio.key), fmt::format("is {}, but {} and {} give {}", *told, ratio.above, ratio.below, follows));
    }
    for (const auto& [low, high] : kOrders) {
      const auto a = number(figures, low), b = number(figures, high);
      if (a && b && *a > *b * (1 + kTolerance)) fail(at + step(low), fmt::format("is {}, above {} of {}", *a, high, *b));
    }
  }

  void cell(const Column& column, const JsonValue& value, const std::string& at) const {
    if (value.is_null()) return;
    if (value.is_array() || value.is_object()) fail(at, "is no single figure");
    if (column.unit == Unit::kText) return;
    if (!value.is_number()) fail(at, value.is_string() ? fmt::format("is the text '{}' where a number belongs", value.as_string().substr(0, 40)) : std::string("is no number"));
    double figure = 0;
    try {
      figure = value.as_double(column.key);
    } catch (const Error& error) {
      fail(at, error.message());
    }
    if (!std::isfinite(figure)) fail(at, "is out of range");
    const bool has_sign = column.unit == Unit::kSignedPercent || column.key == "realised";
    if (figure < 0 && !has_sign) fail(at, fmt::format("is {}: {} cannot be negative", figure, column.label));
    for (const char* share : kShares)
      if (column.key == share && figure > 1 + kTolerance) fail(at, fmt::format("is {}: a share is at most 1", figure));
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
    const JsonValue* name = all->find("name");
    const JsonValue* totals = object.find("totals");
    const JsonValue* exact = totals ? totals->find("flops_matmul") : nullptr;
    if (name && name->is_string() && name->as_string() == "exact" && exact && exact->is_number() && !(*exact == *flops))
      fail(pointer, fmt::format("is {}, but flops_matmul, the same count, is {}", flops->as_double(), exact->as_double()));
  }

  void sums(const JsonValue& object, const std::string& at) const {
    const JsonValue* totals = object.find("totals");
    const JsonValue* parts = object.find("parts");
    if (!totals || !parts || parts->as_array("parts").empty()) return;
    for (const char* key : kSummed) {
      const JsonValue* total = totals->find(key);
      if (!total || !total->is_number()) continue;
      u128 sum = 0;
      bool whole = integer(*total);
      for (const JsonValue& part : parts->as_array("parts")) {
        const JsonValue* value = part.find(key);
        whole = whole && value && integer(*value);
        if (whole) sum = checked_add(sum, value->as_u128(key));
      }
      if (whole && sum != total->as_u128(key)) fail(at + "/totals" + step(key), fmt::format("is {}, but the parts add up to {}", to_string(total->as_u128(key)), to_string(sum)));
    }
  }

  const std::string& file_;
};

}  // namespace

void check_record_figures(const JsonValue& root, const std::string& file) {
  const Checker checker(file);
  const JsonValue* results = root.find("results");
  if (!results) return checker.result(root, "");
  const JsonValue::Array& list = results->as_array("results");
  for (std::size_t i = 0; i < list.size(); ++i) checker.result(list[i], fmt::format("/results/{}", i));
}

}  // namespace fathom
