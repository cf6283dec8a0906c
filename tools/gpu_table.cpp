#include "tools/gpu_table.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "lib/error.hpp"
#include "lib/gpu/gpu_model.hpp"
#include "lib/gpu/table_fit.hpp"
#include "models/machine_ini.hpp"
#include "models/registry.hpp"
#include "reports/format.hpp"
#include "tools/cli.hpp"
#include "tools/upper_cell.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kLargestDimension = std::int64_t{1} << 31;  // as of the networks

const gpu::GpuModel& fit_of(const Machine& machine) {
  if (!machine.gpu_fit)
    throw_input(fmt::format("machine '{}' has no fitted GPU model", machine.name), {"", 0, "--on"}, "use h200, h100, a100, b200 or l40s, or fit one: fathom calibrate --from-table FILE --save NAME.gpu");
  return machine.gpu_fit.model();
}

// Key columns over all rows, in the order of the tables.
std::vector<std::string> key_columns(const std::vector<gpu::TableRow>& rows) {
  std::vector<std::string> names;
  for (const gpu::OpClass op : {gpu::OpClass::kGemm, gpu::OpClass::kPrefill, gpu::OpClass::kDecode}) {
    if (std::none_of(rows.begin(), rows.end(), [op](const gpu::TableRow& r) { return r.op == op; })) continue;
    for (const std::string& name : gpu::key_names(op))
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

Cell key_cell(const gpu::TableRow& row, const std::string& name) {
  const auto& names = gpu::key_names(row.op);
  const auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? Cell() : Cell::count(static_cast<u128>(row.key[static_cast<size_t>(at - names.begin())]));
}

ReportTable predictions_table(const std::vector<gpu::TableRow>& rows, const std::vector<gpu::GpuPrediction>& predictions) {
  ReportTable table("predictions", "");
  for (const char* name : {"chip", "op", "dtype"}) table.add_column(ReportColumn{name, name, Unit::kText, 0});
  const std::vector<std::string> keys = key_columns(rows);
  for (const std::string& name : keys) table.add_column(ReportColumn{name, name, Unit::kCount, 0});
  table.add_column("predicted_s");
  table.add_column(ReportColumn{"low_s", "lower", Unit::kSeconds, 3});
  table.add_column(ReportColumn{"high_s", "upper", Unit::kSeconds, 3});
  table.add_column(ReportColumn{"physics_s", "physics alone", Unit::kSeconds, 4});
  table.add_column(ReportColumn{"status", "status", Unit::kText, 2});
  table.add_column(ReportColumn{"binding", "bound by", Unit::kText, 2});
  table.add_column(ReportColumn{"provenance", "source", Unit::kText, 5});
  for (size_t i = 0; i < rows.size(); ++i) {
    const gpu::TableRow& row = rows[i];
    const gpu::GpuPrediction& p = predictions[i];
    std::vector<Cell> cells = {Cell::text(row.chip), Cell::text(std::string(gpu::op_name(row.op))), Cell::text(row.dtype)};
    for (const std::string& name : keys) cells.push_back(key_cell(row, name));
    for (const double seconds : {p.predicted_s, p.low_s, p.high_s, p.physics_s}) cells.push_back(upper_cell(seconds));
    cells.push_back(Cell::text(p.status_text()));
    cells.push_back(Cell::text(p.binding));
    cells.push_back(Cell::text(p.provenance));
    table.add_row(std::move(cells));
  }
  return table;
}

struct Grade {
  std::vector<double> predicted, physics, measured;
  int inside = 0, out_of_range = 0;
};

ReportTable grade_table(const std::vector<gpu::TableRow>& rows, const std::vector<gpu::GpuPrediction>& predictions) {
  std::map<std::pair<std::string, gpu::OpClass>, Grade> grades;
  int untimed = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!(rows[i].time_us > 0)) {
      ++untimed;
      continue;
    }
    Grade& g = grades[{rows[i].chip, rows[i].op}];
    const double measured = rows[i].time_us * 1e-6;
    g.predicted.push_back(predictions[i].predicted_s);
    g.physics.push_back(predictions[i].physics_s);
    g.measured.push_back(measured);
    g.inside += measured >= predictions[i].low_s && measured <= predictions[i].high_s;
    g.out_of_range += predictions[i].status == gpu::RangeStatus::kOutOfRange;
  }
  if (grades.empty()) throw_input("no row has a time_us: there is nothing to grade", {"", 0, "--grade"});
  ReportTable table("grades", "");
  for (const char* name : {"chip", "op", "predictor"}) table.add_column(ReportColumn{name, name, Unit::kText, 0});
  table.add_column(ReportColumn{"rows", "rows", Unit::kCount, 0});
  for (const char* name : {"mean", "median", "p90"}) table.add_column(ReportColumn{name, std::string(name) + " |error|", Unit::kPercent, 0});
  table.add_column(ReportColumn{"bias", "mean error", Unit::kSignedPercent, 1});
  table.add_column(ReportColumn{"coverage", "in interval", Unit::kPercent, 2});
  table.add_column(ReportColumn{"out_of_range", "out of range", Unit::kCount, 3});
  for (const auto& [key, g] : grades)
    for (const bool physics : {false, true}) {
      const gpu::HeldOut e = gpu::error_summary("", physics ? g.physics : g.predicted, g.measured);
      table.add_row({Cell::text(key.first), Cell::text(std::string(gpu::op_name(key.second))), Cell::text(physics ? "physics alone" : "calibrated"), Cell::count(static_cast<u128>(e.rows)),
                     Cell::number(e.mean / 100), Cell::number(e.median / 100), Cell::number(e.p90 / 100), Cell::number(e.bias / 100),
                     physics ? Cell() : Cell::number(static_cast<double>(g.inside) / e.rows), Cell::count(static_cast<u128>(g.out_of_range))});
    }
  static_cast<void>(untimed);
  return table;
}

// Whether a word is meant as sizes joined by x, well written or not: one that is no model's name (demo-8x12, mixtral-8x7b) or path, and begins with a digit or a sign or has a
// whole number between two x or at an end: 4096x4096, -1x2, ax2x3, 4kx8.
bool meant_as_sizes(const std::string& word) {
  const auto digits = [](std::string_view part) { return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos; };
  std::error_code code;
  const std::vector<NetworkEntry> networks = list_networks();
  if (word.empty() || word.find('/') != std::string::npos || std::filesystem::exists(word, code)) return false;
  if (std::any_of(networks.begin(), networks.end(), [&](const NetworkEntry& each) { return each.name == word; })) return false;
  if ((std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '-' || word[0] == '+') && word.find_first_not_of("0123456789.eE+-xX*, ") == std::string::npos) return true;
  const std::vector<std::string> parts = split(word, 'x');
  return parts.size() > 1 && std::any_of(parts.begin(), parts.end(), digits);
}

// "4096x4096x4096"; empty where the word is a name.
std::vector<std::int64_t> dimensions(const std::string& shape, const std::string& op, const std::string& order) {
  if (!meant_as_sizes(shape)) return {};
  const auto refuse = [&](const std::string& what) {
    throw_input(fmt::format("'{}' {}", shape.substr(0, 80), what), {"", 0, op}, fmt::format("write whole numbers from 1 to {} joined by x, in the order {}", kLargestDimension, order));
  };
  std::vector<std::int64_t> values;
  for (const std::string& word : split(shape, 'x')) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool number = end == word.data() + word.size() && !word.empty();
    if (error == std::errc::result_out_of_range || (number && error == std::errc{} && value > kLargestDimension)) refuse(fmt::format("has a dimension that is too large: {}", word.substr(0, 40)));
    if (error != std::errc{} || !number) refuse(word.empty() ? "has an empty dimension" : fmt::format("has a dimension that is no whole number: {}", word.substr(0, 40)));
    if (value < 1) refuse(fmt::format("has a dimension below 1: {}", word));
    values.push_back(value);
  }
  return values;
}

std::string time_text(double seconds) { return format_value(seconds, Unit::kSeconds); }
std::string bytes_text(double bytes) { return grouped(static_cast<u128>(std::llround(bytes))); }

void gemm_terms(KeyValues& list, const gpu::GemmEstimate& e, const gpu::GpuDevice& d, const gpu::GemmParams& q) {
  const double alpha = static_cast<double>(e.tile_m) * e.tile_n / 16384;
  list.add_text("tile, split of k", fmt::format("{} x {}, {}", e.tile_m, e.tile_n, e.split));
  list.add_text("blocks = ceil(m/a) ceil(n/b) split", fmt::format("{:.0f}", e.blocks));
  list.add_text("waves = w ceil(v) + (1-w) v", fmt::format("{:.4f} with v = max(1, {:.0f}/{:.0f}), w = {:.3f}", e.waves, e.blocks, d.sms, q.w));
  list.add_text("rate per SM = P/N e alpha/(alpha+h)", fmt::format("{} with P = {}, e = {:.3f}, alpha = {:.3f}, h = {:.3f}", format_value(d.peak_flops / d.sms * q.e * alpha / (alpha + q.h), Unit::kFlopRate), format_value(d.peak_flops, Unit::kFlopRate), q.e, alpha, q.h));
  list.add_text("t_comp = waves 2ab64 (ceil(k/64s) + p) / rate", fmt::format("{} with p = {:.3f}", time_text(e.compute_s), q.p));
  list.add_text("bytes: weights, inputs, output", fmt::format("{}; {}; {}", bytes_text(e.weight_bytes), bytes_text(e.activation_bytes), bytes_text(e.output_bytes)));
  list.add_text("L2 hits: weights, others", fmt::format("{:.4f}, {:.4f}", e.hit_weights, e.hit_activations));
  list.add_text("t_mem = 4-norm of DRAM and all bytes", fmt::format("{}: {} B from DRAM at {:.3f} W, all at {:.3f} W, W = {}", time_text(e.memory_s), bytes_text(e.dram_bytes), q.b_eff, q.l, format_value(d.dram_bytes_per_s, Unit::kByteRate)));
  list.add_text("joined by q", fmt::format("{:.3f}", q.q));
  list.add_text("reduction of partial sums", time_text(e.split_s));
  list.add_text("power term", time_text(e.power_s));
  list.add_text("fixed cost t0", time_text(e.fixed_s));
}

void attention_terms(KeyValues& list, const gpu::AttentionEstimate& e, const gpu::AttentionClass& c) {
  list.add_text("kernel class", fmt::format("{}, head size {}", c.kernel.empty() ? "unnamed" : c.kernel, c.head_dim));
  list.add_text("work items, key blocks", fmt::format("{:.0f}, {:.0f}", e.items, e.blocks));
  list.add_text("KV splits, waves", fmt::format("{:.0f}, {:.3f}", e.split, e.waves));
  list.add_text("KV bytes, other bytes, L2 hits", fmt::format("{}; {}; {:.4f}", bytes_text(e.kv_bytes), bytes_text(e.io_bytes), e.hit));
  list.add_text("compute", time_text(e.compute_s));
  list.add_text("memory", time_text(e.memory_s));
  list.add_text("merge of splits", time_text(e.combine_s));
  list.add_text("sequence term", time_text(e.sequence_s));
  list.add_text("fixed cost t0", time_text(e.fixed_s));
}

}  // namespace

void add_table_flags(CLI::App& app, TableFlags& flags) {
  app.add_option("--table", flags.files, "predict every row of a CSV of GPU kernels instead of a model")->type_name("FILE")->group("Table");
  app.add_flag("--grade", flags.grade, "with --table: errors against time_us, per op, instead of the rows")->group("Table");
  app.add_flag("--sustained", flags.sustained, "with --table: products at sustained clocks, where the machine has them")->group("Table");
}

int predict_tables(const TableFlags& flags, const OutputFlags& output) {
  check_output_flags(output);
  std::vector<gpu::TableRow> rows;
  for (const std::string& file : flags.files) {
    const std::vector<gpu::TableRow> more = gpu::read_table(file);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  if (rows.empty()) throw_input("the table has no rows", {flags.files.front(), 0, ""});
  const Machine machine = load_machine(flags.on.empty() ? rows.front().chip : flags.on);
  const std::vector<gpu::GpuPrediction> predictions = gpu::predict_table(rows, fit_of(machine), flags.sustained);
  Document document;
  document.title = flags.grade ? fmt::format("Errors on {} ({})", machine.name, machine.gpu_fit.hash()) : fmt::format("Kernel times on {}", machine.name);
  document.add(flags.grade ? grade_table(rows, predictions) : predictions_table(rows, predictions));
  OtherForms forms;
  forms.asked = fmt::format("{} rows of {}, machine {}{}", rows.size(), fmt::join(flags.files, ", "), machine.name, flags.sustained ? ", sustained clocks" : "");
  return emit_document(document, output, forms);
}

bool explain_kernel_into(Document& document, const std::string& op, const std::string& shape, const std::string& name, bool sustained) {
  gpu::TableRow row;
  row.op = gpu::parse_op(op);
  const std::vector<std::int64_t> values = dimensions(shape, op, fmt::format("{}", fmt::join(gpu::key_names(row.op), " x ")));
  if (values.empty()) return false;
  if (values.size() != static_cast<size_t>(gpu::key_count(row.op)))
    throw_input(fmt::format("{} takes {} dimensions, '{}' has {}", op, gpu::key_count(row.op), shape, values.size()), {}, "order: " + fmt::format("{}", fmt::join(gpu::key_names(row.op), " x ")));
  std::copy(values.begin(), values.end(), row.key.begin());
  const Machine machine = load_machine(name.empty() ? "h200" : name);
  const gpu::GpuModel& fit = fit_of(machine);
  const gpu::OpModel* model = sustained && row.op == gpu::OpClass::kGemm ? fit.find("gemm_sustained") : nullptr;
  if (!model) model = fit.find(op);
  if (!model) throw_input(fmt::format("the fitted model of {} holds no {}", machine.name, op));
  const gpu::GpuPrediction p = gpu::predict_op(*model, fit.device, row);
  document.title = fmt::format("{} {} on {}", op, shape, machine.name);
  KeyValues list;
  if (row.op == gpu::OpClass::kGemm) {
    gemm_terms(list, gpu::explain_gemm(row.gemm(), fit.device, model->gemm), fit.device, model->gemm);
  } else {
    const gpu::AttentionClass& c = gpu::class_of(model->classes, row.attention());
    attention_terms(list, row.op == gpu::OpClass::kPrefill ? gpu::explain_prefill(row.attention(), fit.device, c.prefill) : gpu::explain_decode(row.attention(), fit.device, c.decode), c);
  }
  list.add_text("physics alone", time_text(p.physics_s));
  list.add_text("residual", fmt::format("x {:.4f} (logarithm clamped at {})", p.predicted_s / p.physics_s, model->clamp));
  list.add_text("predicted", fmt::format("{} [{}, {}], {}, bound by {}", time_text(p.predicted_s), time_text(p.low_s), time_text(p.high_s), p.status_text(), p.binding));
  list.add_text("calibrated on", fmt::format("{} rows: {}", model->rows, model->source));
  document.add(std::move(list));
  document.paragraph("As in the tables the fit comes from: operands rotate over six copies of the weights. Inside a step the reuse distances are the step's own.");
  return true;
}

}  // namespace fathom
