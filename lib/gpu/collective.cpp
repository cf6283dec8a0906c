#include "lib/gpu/collective.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "lib/error.hpp"
#include "lib/gpu/csv_lines.hpp"
#include "lib/gpu/nelder_mead.hpp"

namespace fathom::gpu {
namespace {

double traffic_factor(std::string_view op, int gpus) {
  const double share = (gpus - 1.0) / gpus;
  return op == "all_reduce" ? 2 * share : share;
}

double positive(std::string_view text, const std::string& file, int line, const char* column) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0)) throw_input("'" + std::string(text) + "' is not a positive number", {file, line, column});
  return value;
}

// Interpolation in ln t over ln bytes; `skip` leaves one point out. Bytes must lie inside the remaining points.
double interpolate(const CollectiveFit& fit, double bytes, std::size_t skip) {
  std::size_t below = fit.bytes.size(), above = fit.bytes.size();
  for (std::size_t i = 0; i < fit.bytes.size(); ++i) {
    if (i == skip) continue;
    if (fit.bytes[i] <= bytes) below = i;
    if (fit.bytes[i] >= bytes && above == fit.bytes.size()) above = i;
  }
  if (below == fit.bytes.size() || above == fit.bytes.size()) throw_internal("collective size outside its table");
  if (fit.bytes[below] == fit.bytes[above]) return fit.time_us[below] * 1e-6;
  const double x = std::log(bytes / fit.bytes[below]) / std::log(fit.bytes[above] / fit.bytes[below]);
  return std::exp((1 - x) * std::log(fit.time_us[below]) + x * std::log(fit.time_us[above])) * 1e-6;
}

double short_number(double value) {  // six significant digits are plenty
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 5).ptr;
  double back = 0;
  std::from_chars(text, end, back);
  return back;
}

void fit_form(CollectiveFit& fit) {
  const double largest = fit.bytes.back();
  const double beta0 = traffic_factor(fit.op, fit.gpus) * largest / (fit.time_us.back() * 1e-6);
  auto unpack = [&](const std::vector<double>& x) {
    fit.alpha_us = std::exp(std::clamp(x[0], -3.0, 8.0));
    fit.sigma_us = std::exp(std::clamp(x[1], -6.0, 10.0));
    fit.beta = std::exp(std::clamp(x[2], std::log(1e6), std::log(1e14)));
    fit.q = std::exp(std::clamp(x[3], 0.0, std::log(12.0)));
  };
  auto loss = [&](const std::vector<double>& x) {
    unpack(x);
    double sum = 0;
    for (std::size_t i = 0; i < fit.bytes.size(); ++i) sum += std::abs(std::log(fit.form_s(fit.bytes[i]) * 1e6 / fit.time_us[i]));
    return sum / static_cast<double>(fit.bytes.size());
  };
  const std::vector<double> start = {std::log(fit.time_us.front()), std::log(fit.time_us.front()), std::log(beta0 * 1.1), std::log(2.0)};
  const auto result = nelder_mead(loss, start, {0.2, 0.6, 0.2, 0.3}, 1500);
  unpack(result.x);
  for (double* v : {&fit.alpha_us, &fit.sigma_us, &fit.beta, &fit.q}) *v = short_number(*v);
}

}  // namespace

double CollectiveFit::form_s(double message_bytes) const {
  const std::array<double, 3> terms = {alpha_us * 1e-6, sigma_us * 1e-6 * std::sqrt(message_bytes / 1e6), traffic_factor(op, gpus) * message_bytes / beta};
  const double largest = *std::max_element(terms.begin(), terms.end());
  double sum = 0;
  for (double term : terms) sum += std::pow(term / largest, q);
  return largest * std::pow(sum, 1 / q);
}

std::vector<CollectiveRow> parse_collectives(std::string_view text, const std::string& file) {
  constexpr std::array<const char*, 6> kColumns = {"chip", "library", "op", "gpus", "bytes", "time_us"};
  std::array<std::size_t, 6> at{};
  std::vector<CollectiveRow> rows;
  int line_number = 0;
  std::size_t width = 0;
  std::string_view line;
  while (next_line(text, line, line_number)) {
    const auto fields = comma_fields(line);
    if (width == 0) {
      width = fields.size();
      for (std::size_t c = 0; c < kColumns.size(); ++c) {
        const auto found = std::find(fields.begin(), fields.end(), kColumns[c]);
        if (found == fields.end()) throw_input(std::string("the table has no column '") + kColumns[c] + "'", {file, line_number, kColumns[c]});
        at[c] = static_cast<std::size_t>(found - fields.begin());
      }
      continue;
    }
    if (fields.size() != width) throw_input("expected " + std::to_string(width) + " columns, found " + std::to_string(fields.size()), {file, line_number, {}});
    CollectiveRow row{std::string(fields[at[0]]), std::string(fields[at[1]]), std::string(fields[at[2]]), 0, 0, 0};
    row.gpus = static_cast<int>(positive(fields[at[3]], file, line_number, "gpus"));
    row.bytes = positive(fields[at[4]], file, line_number, "bytes");
    row.time_us = positive(fields[at[5]], file, line_number, "time_us");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<CollectiveRow> read_collectives(const std::string& file) {
  return parse_collectives(file_text(file, "the table"), file);
}

std::vector<CollectiveFit> fit_collectives(const std::vector<CollectiveRow>& rows, std::string_view chip) {
  std::map<std::tuple<std::string, std::string, int>, std::map<double, double>> groups;
  for (const CollectiveRow& row : rows)
    if (row.chip == chip) groups[{row.op, row.library, row.gpus}][row.bytes] = row.time_us;
  std::vector<CollectiveFit> fits;
  for (const auto& [key, points] : groups) {
    CollectiveFit fit;
    std::tie(fit.op, fit.library, fit.gpus) = key;
    if (points.size() < 5) throw_input("a collective needs at least 5 sizes: " + fit.library + " " + fit.op + " on " + std::to_string(fit.gpus) + " has " + std::to_string(points.size()));
    for (const auto& [bytes, time] : points) {
      fit.bytes.push_back(bytes);
      fit.time_us.push_back(time);
    }
    fit_form(fit);
    const std::size_t n = fit.bytes.size();
    for (std::size_t i = 0; i < n; ++i) {
      fit.form_error += 100 * std::abs(fit.form_s(fit.bytes[i]) * 1e6 / fit.time_us[i] - 1) / static_cast<double>(n);
      if (i > 0 && i + 1 < n) fit.table_error += 100 * std::abs(interpolate(fit, fit.bytes[i], i) * 1e6 / fit.time_us[i] - 1) / static_cast<double>(n - 2);
    }
    fit.form_error = std::round(fit.form_error * 100) / 100;
    fit.table_error = std::round(fit.table_error * 100) / 100;
    fits.push_back(std::move(fit));
  }
  return fits;
}

namespace {

CollectivePrediction predict_one(const CollectiveFit& fit, double bytes) {
  CollectivePrediction p;
  p.library = fit.library;
  if (bytes >= fit.bytes.front() && bytes <= fit.bytes.back()) {
    p.seconds = interpolate(fit, bytes, fit.bytes.size());
    p.provenance = "probed";
    const double margin = 2 * fit.table_error / 100;  // twice the mean error covers about nine in ten
    p.low_s = p.seconds / (1 + margin), p.high_s = p.seconds * (1 + margin);
    return p;
  }
  // The form, scaled to meet the table at its end: no step where the range ends.
  const bool above = bytes > fit.bytes.back();
  const double edge = above ? fit.bytes.back() : fit.bytes.front(), edge_us = above ? fit.time_us.back() : fit.time_us.front();
  p.seconds = fit.form_s(bytes) * edge_us * 1e-6 / fit.form_s(edge);
  p.provenance = "extrapolated";
  const double margin = 2 * fit.form_error / 100 * std::exp2(std::min(4.0, std::abs(std::log2(bytes / edge))));
  p.low_s = p.seconds / (1 + margin), p.high_s = p.seconds * (1 + margin);
  return p;
}

}  // namespace

CollectivePrediction predict_collective(const std::vector<CollectiveFit>& fits, std::string_view op, int gpus, double bytes, std::string_view library) {
  if (gpus < 1 || !(bytes >= 0)) throw_input("a collective needs at least one GPU and a size");
  if (gpus == 1 || bytes == 0) return {0, 0, 0, std::string(library), "probed"};
  CollectivePrediction best;
  bool found = false;
  std::vector<std::string> known;
  std::map<std::string, std::vector<const CollectiveFit*>> by_library;
  for (const CollectiveFit& fit : fits) {
    known.push_back(fit.op);
    if (fit.op == op && (library.empty() || fit.library == library)) by_library[fit.library].push_back(&fit);
  }
  if (by_library.empty()) {
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    throw_input("no measured collective '" + std::string(op) + "'" + (library.empty() ? "" : " of " + std::string(library)), {}, name_hint(op, known));
  }
  for (const auto& [name, list] : by_library) {
    const CollectiveFit *below = nullptr, *above = nullptr;
    for (const CollectiveFit* fit : list) {
      if (fit->gpus <= gpus && (!below || fit->gpus > below->gpus)) below = fit;
      if (fit->gpus >= gpus && (!above || fit->gpus < above->gpus)) above = fit;
    }
    if (!below || !above) continue;
    CollectivePrediction p = predict_one(*below, bytes);
    if (below != above) {
      const CollectivePrediction high = predict_one(*above, bytes);
      const double x = std::log2(static_cast<double>(gpus) / below->gpus) / std::log2(static_cast<double>(above->gpus) / below->gpus);
      auto blend = [x](double a, double b) { return std::exp((1 - x) * std::log(a) + x * std::log(b)); };
      p.low_s = std::min(p.low_s, high.low_s);
      p.high_s = std::max(p.high_s, high.high_s);
      p.seconds = blend(p.seconds, high.seconds);
      p.provenance = "extrapolated";
    }
    if (!found || p.seconds < best.seconds) best = p, found = true;
  }
  if (!found) throw_input("no measured " + std::string(op) + " spans " + std::to_string(gpus) + " GPUs", {}, "measure it, or use a group inside one node");
  return best;
}

}  // namespace fathom::gpu
