// Sums of ops by part of the model and by pass, and why they are not the times of the whole step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/record_tables.hpp"

namespace fathom {
namespace {

constexpr const char* kAllOps = "all ops";

// Why the rows of a table of sums do not add up to the times of their configurations; empty where they do.
std::string sums_caption(const Record& record) {
  constexpr double kSame = 0.0005;
  bool measured = false, predicted = false;
  for (const Result& result : record.results) {
    double sum = 0;
    for (const Figures& op : result.ops) sum += op.number("predicted_s") > 0 ? op.number("predicted_s") : 0;
    const double whole = result.totals.number("predicted_s");
    predicted = predicted || (sum > 0 && std::abs(sum - whole) > kSame * whole);
    measured = measured || result.totals.number("normalised_s") > 0;
  }
  std::string text;
  if (measured)
    text = "Op by op: each op is timed in place, between reference kernels, and scaled to one state of the machine. These times add up to `normalised`. `measured` of a configuration is the whole step as it ran.";
  if (!predicted) return text;
  const Cell* predictor = record.environment.find("predictor");
  const bool light = predictor && predictor->words() && *predictor->words() == "light";
  text += text.empty() ? "" : " ";
  text += light      ? "The lower bound of a step is not the sum of those of its ops: what its ops may share is bounded once for all."
          : measured ? "`predicted` is here of ops timed in that way (reference kernels push what the op before has written out of the caches), so the error here and that of a configuration are two figures."
                     : "`predicted` of a configuration has more than its ops: what launching a step costs beside them.";
  return text;
}

// Predicted and measured time, FLOPs and bytes by part of the model; in training also by pass.
void add_sums(Document& document, const Record& record, const std::string& by, const std::string& title) {
  std::vector<Figures> rows;
  bool several = false;
  for (const Result& result : record.results) {
    std::vector<std::string> groups;
    for (const Figures& op : result.ops)
      if (const Cell* cell = op.find(by); cell && cell->words() && std::find(groups.begin(), groups.end(), *cell->words()) == groups.end()) groups.push_back(*cell->words());
    several = several || groups.size() > 1;
    double all = 0;
    for (const Figures& op : result.ops) all += op.number("measured_s") > 0 ? op.number("measured_s") : 0;
    if (groups.size() > 1) groups.emplace_back();  // all ops
    for (const std::string& group : groups) {
      const bool whole = group.empty();
      Figures row = identified(result, {});
      row.set(by, Cell::text(whole ? kAllOps : group));
      double predicted = 0, measured = 0;
      std::vector<std::pair<const char*, u128>> counts = {{"flops_matmul", 0}, {"bytes_read", 0}, {"bytes_written", 0}};
      for (const Figures& op : result.ops) {
        const Cell* cell = op.find(by);
        if (!cell || !cell->words() || (!whole && *cell->words() != group)) continue;
        predicted += op.number("predicted_s") > 0 ? op.number("predicted_s") : 0;
        measured += op.number("measured_s") > 0 ? op.number("measured_s") : 0;
        for (auto& [key, sum] : counts)
          if (const Cell* count = op.find(key); count && count->exact()) sum += *count->exact();
      }
      if (predicted > 0) row.set("predicted_s", Cell::number(predicted));
      // Ops of a measurement are normalised, which their configuration's measured_s is not; those of a trace are as they ran.
      if (measured > 0) row.set(result.totals.has("normalised_s") ? "normalised_s" : "measured_s", Cell::number(measured));
      if (predicted > 0 && measured > 0) row.set("error", Cell::number(predicted / measured - 1));
      if (measured > 0 && all > 0) row.set("share", Cell::number(measured / all));
      row.set("flops_matmul", Cell::count(counts[0].second));
      row.set("bytes_moved", Cell::count(counts[1].second + counts[2].second));
      rows.push_back(std::move(row));
    }
  }
  if (!several) return;
  std::vector<std::string> lead = varying(rows);
  lead.push_back(by);
  ReportTable table = make_table("by-" + by, title, rows, lead, {"predicted_s", "normalised_s", "measured_s", "share", "error", "flops_matmul", "bytes_moved"});
  name_column(table, "normalised_s", kOpByOp);
  if (std::any_of(rows.begin(), rows.end(), [](const Figures& row) { return row.has("normalised_s"); })) {
    name_column(table, "predicted_s", "predicted, op by op");
    name_column(table, "error", "error, op by op");
  }
  for (std::size_t r = 0; r < rows.size(); ++r) table.rows[r].total = *rows[r].find(by)->words() == kAllOps;
  table.caption = sums_caption(record);
  document.add(std::move(table));
}

}  // namespace

void add_sum_tables(Document& document, const Record& record) {
  add_sums(document, record, "part", "By part of the model");
  add_sums(document, record, "pass", "By pass");
}

}  // namespace fathom
