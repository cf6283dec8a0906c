// fathom calibrate: a machine file for this CPU or GPU by probing it, or for a GPU from measured kernel tables.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "lib/error.hpp"
#include "lib/gpu/model_io.hpp"
#include "lib/gpu/table_fit.hpp"
#include "reports/save.hpp"
#include "tools/cli.hpp"
#include "tools/calibrate_cpu.hpp"
#include "tools/calibrate_gpu.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct CalibrateArgs {
  std::vector<std::string> tables;
  std::string source;
  int folds = 5;
  std::uint64_t seed = 11;
  std::string backend = "cpu";
  CpuCalibrationFlags cpu;
  OutputFlags output;
};

// What is not from 1 s to an hour, in words; empty where it is.
std::string probe_seconds(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return fmt::format("'{}' is not a number of seconds, such as 30", text.substr(0, 80));
  return value >= 1 && value <= 3600 ? std::string() : fmt::format("'{}' is not in range: seconds from 1 to 3600", text);
}

// The first line that is no comment.
std::string header_of(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw_input("cannot read the table", {file, 0, ""});
  std::string line;
  while (std::getline(in, line))
    if (!line.empty() && line[0] != '#') return line;
  return {};
}

ReportTable held_out_table(const gpu::GpuModel& model) {
  ReportTable table("held_out", "");
  for (const char* name : {"op", "predictor"}) table.add_column(ReportColumn{name, name, Unit::kText, 0});
  table.add_column(ReportColumn{"rows", "rows", Unit::kCount, 0});
  for (const char* name : {"mean", "median", "p90"}) table.add_column(ReportColumn{name, std::string(name) + " |error|", Unit::kPercent, 0});
  table.add_column(ReportColumn{"bias", "mean error", Unit::kSignedPercent, 1});
  table.add_column(ReportColumn{"coverage", "in interval", Unit::kPercent, 2});
  for (const gpu::OpModel& op : model.ops)
    for (const gpu::HeldOut& e : op.held_out)
      table.add_row({Cell::text(op.name), Cell::text(e.variant), Cell::count(static_cast<u128>(e.rows)), Cell::number(e.mean / 100), Cell::number(e.median / 100), Cell::number(e.p90 / 100),
                     Cell::number(e.bias / 100), e.coverage < 0 ? Cell() : Cell::number(e.coverage)});
  return table;
}

// A file "*sustained*", or one with a power_w column, holds products at sustained clocks.
bool is_sustained(const std::string& file) { return std::filesystem::path(file).filename().string().find("sustained") != std::string::npos || header_of(file).find("power_w") != std::string::npos; }

int calibrate_from_tables(const CalibrateArgs& flags) {
  std::vector<std::string> fits, pages;
  for (const std::string& path : flags.output.save) (std::filesystem::path(path).extension() == ".gpu" ? fits : pages).push_back(path);
  std::vector<gpu::TableRow> rows, sustained;
  std::vector<gpu::CollectiveRow> collectives;
  std::string names;
  for (const std::string& file : flags.tables) {
    names += (names.empty() ? "" : ", ") + std::filesystem::path(file).filename().string();
    if (header_of(file).find("library") != std::string::npos) {
      const auto more = gpu::read_collectives(file);
      collectives.insert(collectives.end(), more.begin(), more.end());
      continue;
    }
    const auto more = gpu::read_table(file);
    auto& into = is_sustained(file) ? sustained : rows;
    into.insert(into.end(), more.begin(), more.end());
  }
  gpu::TableFitOptions options;
  options.folds = flags.folds;
  options.seed = flags.seed;
  options.source = flags.source.empty() ? names : flags.source;
  const double start = 0;
  Progress progress(flags.output.quiet);
  progress.show("fitting " + names, 0.05, start);
  if (rows.empty() && sustained.empty()) throw_input("the tables hold no kernel rows", {flags.tables.front(), 0, ""}, "give at least a gemm table");
  gpu::GpuModel model = gpu::fit_from_table(rows.empty() ? sustained : rows, options);
  if (!sustained.empty()) {
    gpu::OpModel op = gpu::fit_op_with_errors(sustained, model.device, options);
    op.name = "gemm_sustained";
    const auto after = std::find_if(model.ops.begin(), model.ops.end(), [](const gpu::OpModel& m) { return m.name != "gemm"; });
    model.ops.insert(after, std::move(op));
  }
  if (!collectives.empty()) model.collectives = gpu::fit_collectives(collectives, model.device.name);
  model.date = utc_now().substr(0, 10);
  const std::string text = gpu::write_model(model);
  model.hash = gpu::model_hash(text);
  progress.clear();
  for (const std::string& path : fits) save_file(path, text);
  Document document;
  document.title = fmt::format("{} fitted from {} ({})", model.device.board, names, model.hash);
  document.paragraph("Errors on whole shapes or head configurations that the fit had not seen; _400: a fit on 400 rows, what a short probe gives.");
  document.add(held_out_table(model));
  if (fits.empty()) document.paragraph("Not saved: give --save NAME.gpu.");
  OutputFlags print = flags.output;
  print.save = pages;
  return emit_document(document, print);
}

// A machine that is probed is a file NAME.ini, tables make a fit NAME.gpu: the other one is refused before minutes are spent.
void check_files(const CalibrateArgs& flags) {
  check_output_flags(flags.output);
  const bool tables = !flags.tables.empty();
  for (const std::string& path : flags.output.save)
    if (std::filesystem::path(path).extension() == (tables ? ".ini" : ".gpu"))
      throw_input(tables ? fmt::format("a fitted GPU model is saved as NAME.gpu, not '{}'", path) : fmt::format("a machine that was probed is saved as NAME.ini, not '{}'", path), {"", 0, "--save"},
                  tables ? "NAME.gpu; pages end in .md, .csv, .json, .html or .txt" : "NAME.ini (of a GPU its NAME.gpu is written beside it); pages end in .md, .csv, .json, .html or .txt");
}

// Options that this kind of calibration does not read.
void tell_unread(const CLI::App& command, const CalibrateArgs& flags) {
  std::vector<RecordNote> unread;
  if (!flags.tables.empty()) {
    note_unused(command, {"--backend", "--dtype", "--threads", "--time", "MODEL"}, "tables are fitted as they are (--from-table)", unread);
  } else {
    note_unused(command, {"--source"}, "only --from-table reads it", unread);
    if (flags.backend == "cpu") note_unused(command, {"--folds", "--seed"}, "only the fit of a GPU reads it", unread);
    if (flags.backend == "cuda") note_unused(command, {"--dtype", "--threads"}, "a GPU is probed as a whole", unread);
  }
  note_unused(command, {"--verbose"}, "a calibration has tables of its own", unread);
  tell_notes(unread, flags.output.quiet);
}

int calibrate_with(const CalibrateArgs& flags, bool timed) {
  check_files(flags);
  if (!flags.tables.empty()) return calibrate_from_tables(flags);
  if (flags.backend == "cpu") return calibrate_cpu(flags.cpu, flags.output);
  if (flags.backend != "cuda") throw_input(fmt::format("'{}' cannot be calibrated", flags.backend), {"", 0, "--backend"}, "cpu and cuda can");
  if (!flags.cpu.models.empty()) throw_input("a GPU is calibrated on shapes of its own, not on a model's", {"", 0, "MODEL"}, "leave the model out");
  return calibrate_gpu(timed ? flags.cpu.time : 15, flags.folds, flags.seed, flags.output);
}

}  // namespace

void add_calibrate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CalibrateArgs>();
  CLI::App* command = app.add_subcommand("calibrate", "a machine file: this CPU or GPU probed, or a GPU fitted from measured kernel tables");
  command->add_option("MODEL", flags->cpu.models, "networks whose shapes are calibrated [small networks of common widths]")->type_name("MODEL");
  command->add_option("--backend", flags->backend, "what is calibrated, cpu or cuda [cpu]")->type_name("B")->group("Calibration");
  command->add_option("--dtype", flags->cpu.dtypes, "types to calibrate, comma-separated [f32]")->delimiter(',')->type_name("T")->group("Calibration");
  command->add_option("--threads", flags->cpu.threads, "threads [all physical cores]")->type_name("N")->check(CLI::Range(1, 4096))->group("Calibration");
  command->add_option("--time", flags->cpu.time, "seconds for the workloads [70, less where the probes took more than 12], after about 15 for the probes: those for which there is no time are left out; of a GPU's probes [15]")->type_name("S")->check(probe_seconds)->group("Calibration");
  command->add_option("--from-table", flags->tables, "measured tables of one GPU: gemm, attention, sustained gemm, collectives")->type_name("FILE")->group("Calibration");
  command->add_option("--source", flags->source, "where the rows come from, kept in the file [their file names]")->type_name("TEXT")->group("Calibration");
  command->add_option("--folds", flags->folds, "folds of whole shapes behind held-out errors and intervals; 0: neither [5]")->type_name("N")->check(CLI::Range(0, 20))->group("Calibration");
  command->add_option("--seed", flags->seed, "of the folds [11]")->type_name("N")->group("Calibration");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom calibrate\n  fathom calibrate mod-220m dense-220m --save here.ini\n  fathom calibrate --backend cuda --save gpu.ini\n  fathom calibrate --from-table gemm_h200.csv prefill_h200.csv --save mine.gpu");
  command->callback([flags, command, &exit_code] {
    tell_unread(*command, *flags);
    exit_code = calibrate_with(*flags, command->count("--time") > 0);
  });
}

}  // namespace fathom
