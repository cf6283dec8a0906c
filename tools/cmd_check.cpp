// fathom check: the kernels of a backend against the reference, executed counts against analytic ones.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/registry.hpp"
#include "reports/csv.hpp"
#include "tools/check.hpp"
#include "tools/cli.hpp"
#include "tools/host.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace fathom {
namespace {

struct CheckArgs {
  std::string backend = "cpu";
  std::vector<std::string> kinds;
  std::string dtype = "all";
  double tolerance = 1;
  int threads = 0;
  OutputFlags output;
};

std::string status_of(const CheckRow& row) {
  if (!row.refused.empty() && row.cases == 0) return "refused: " + row.refused;
  if (row.wrong_values > 0) return fmt::format("{} wrong", row.wrong_values);
  if (row.wrong_counts > 0) return fmt::format("{} counts differ", row.wrong_counts);
  return "ok";
}

std::string kind_text(int kind) { return std::string(kind_names()[static_cast<size_t>(kind)]); }

ReportTable parts_table(const CheckReport& report) {
  ReportTable parts("parts", "What the kernels are built of");
  parts.add_column(ReportColumn{"part", "part", Unit::kText, 0});
  parts.add_column(ReportColumn{"cases", "cases", Unit::kCount, 0});
  parts.add_column(ReportColumn{"worst_error", "worst error", Unit::kNone, 0, 2});
  parts.add_column(ReportColumn{"tolerance", "tolerance", Unit::kNone, 0, 2});
  parts.add_column(ReportColumn{"status", "status", Unit::kText, 0});
  for (const SelfTest& part : report.parts)
    parts.add_row({Cell::text(part.name), Cell::count(static_cast<u128>(part.cases)), std::isinf(part.worst) ? Cell::status("differs") : Cell::number(part.worst), Cell::number(part.tolerance),
                   Cell::text(part.wrong == 0 ? "ok" : fmt::format("{} wrong, {}", part.wrong, part.first))});
  return parts;
}

// Tables of ops begin with the same two columns.
ReportTable table_of_ops(const std::string& key, const std::string& title) {
  ReportTable table(key, title);
  table.add_column(ReportColumn{"kind", "op", Unit::kText, 0});
  table.add_column(ReportColumn{"dtype", "dtype", Unit::kText, 0});
  return table;
}

ReportTable ops_table(const CheckReport& report) {
  ReportTable table = table_of_ops("check", "");
  table.add_column(ReportColumn{"cases", "cases", Unit::kCount, 0});
  table.add_column(ReportColumn{"worst_error", "worst error", Unit::kNone, 0, 2});
  table.add_column(ReportColumn{"tolerance", "tolerance", Unit::kNone, 0, 2});
  table.add_column(ReportColumn{"counts", "counts", Unit::kText, 0});
  table.add_column(ReportColumn{"status", "status", Unit::kText, 0});
  for (const CheckRow& row : report.rows) {
    const bool ran = row.cases > 0;
    table.add_row({Cell::text(kind_text(row.kind)), Cell::text(std::string(dtype_name(row.dtype))), Cell::count(static_cast<u128>(row.cases)),
                   !ran ? Cell::status("not run") : std::isinf(row.worst) ? Cell::status("no number") : Cell::number(row.worst), Cell::number(row.tolerance), Cell::text(!ran ? "-" : row.wrong_counts > 0 ? "differ" : "equal"), Cell::text(status_of(row))});
  }
  return table;
}

ReportTable cases_table(const CheckReport& report) {
  ReportTable table = table_of_ops("cases", "Cases");
  table.add_column(ReportColumn{"case", "case", Unit::kText, 0});
  table.add_column(ReportColumn{"ops", "ops", Unit::kCount, 1});
  table.add_column(ReportColumn{"worst_error", "worst error", Unit::kNone, 0, 2});
  for (const CheckedCase& row : report.cases)
    table.add_row({Cell::text(kind_text(row.kind)), Cell::text(std::string(dtype_name(row.dtype))), Cell::text(row.name), Cell::count(static_cast<u128>(row.ops)), Cell::number(row.worst)});
  return table;
}

ReportTable failures_table(const CheckReport& report) {
  ReportTable table = table_of_ops("failures", "Failures");
  table.add_column(ReportColumn{"what", "what", Unit::kText, 0});
  table.add_column(ReportColumn{"where", "where", Unit::kText, 0});
  for (const CheckFailure& each : report.failures)
    table.add_row({Cell::text(kind_text(each.kind)), Cell::text(std::string(dtype_name(each.dtype))), Cell::text(each.what), Cell::text(each.where)});
  return table;
}

Document check_document(const CheckReport& report, const CheckArgs& flags) {
  Document document;
  document.title = fmt::format("The {} backend against the reference", flags.backend);
  document.paragraph(fmt::format("{} lists of small networks, each op on the reference's own operands. Error: largest difference over the largest magnitude of an output "
                                 "(over that of its factors where terms cancel). Counts: rows, pairs, keys and experts executed, and counted multiply-adds against the analytic cost.",
                                 report.lists));
  if (!report.parts.empty()) document.add(parts_table(report));
  document.add(ops_table(report));
  if (!report.cases.empty()) document.add(cases_table(report));
  if (!report.failures.empty()) document.add(failures_table(report));
  if (!report.gave_up.empty()) document.warning(fmt::format("Given up: {}. The rest was not checked.", report.gave_up));
  if (report.stopped) document.warning("Interrupted: what is shown was checked, the rest was not.");
  return document;
}

// CSV is a row per op kind, with --ops a row per op kind and case.
OtherForms forms_of(const CheckReport& report, const CheckArgs& flags) {
  OtherForms forms;
  forms.ops = true;
  forms.asked = fmt::format("backend {}, {}, dtype {}{}", flags.backend, flags.kinds.empty() ? "all op kinds" : fmt::format("{}", fmt::join(flags.kinds, ", ")),
                            flags.dtype == "all" ? "f32 / bf16" : flags.dtype, flags.tolerance == 1 ? "" : fmt::format(", {:g} times the stated tolerances", flags.tolerance));
  set_host_facts(forms.environment, flags.backend, flags.threads);
  forms.csv = [&report, &flags] { return render_csv(flags.output.ops ? cases_table(report) : ops_table(report), "\n"); };
  return forms;
}

int run_check(const CheckArgs& flags) {
  check_output_flags(flags.output);
  const Backend& target = backend(flags.backend);
  if (target.name() == "fake") throw_input("the fake backend computes nothing that could be checked", {"", 0, "--backend"}, "take cpu or reference");
  CheckOptions options;
  options.kinds = flags.kinds;
  options.keep_cases = flags.output.ops;
  if (flags.dtype != "all") options.dtypes = {parse_dtype(flags.dtype)};
  for (const DType dtype : options.dtypes)
    if (dtype != DType::kF32 && dtype != DType::kBF16) throw_input("checked are f32 and bf16", {"", 0, "--dtype"});
  if (!(flags.tolerance >= 0)) throw_input("a tolerance factor is not negative", {"", 0, "--tolerance"});
  options.tolerance = flags.tolerance;
  options.threads = flags.threads;
  if (flags.threads > 0) {  // a number that cannot be run is refused, and not a failure of every kernel
    Scenario tiny;
    tiny.phase = Phase::kPrefill;
    tiny.length = 8;
    BindOptions bind;
    bind.threads = flags.threads;
    target.memory(build(builtin_network("mod-tiny"), tiny), bind);
  }
  Progress progress(flags.output.quiet);
  const auto start = std::chrono::steady_clock::now();
  catch_interrupts();
  const CheckReport nothing;
  bool read = true;
  options.progress = [&](size_t done, size_t of) {
    if (done == 0) read = begin_document(check_document(nothing, flags), flags.output, forms_of(nothing, flags));
    progress.show(fmt::format("checking {} of {}", done + 1, of), static_cast<double>(done) / static_cast<double>(of), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return !interrupted() && (!flags.output.save.empty() || (read && !reader_is_gone()));
  };
  const CheckReport report = check_backend(target, options, check_cases());
  progress.clear();
  const int code = emit_document(check_document(report, flags), flags.output, forms_of(report, flags));
  if (report.stopped) return interrupted() ? 130 : code;
  return code != 0 ? code : report.ok() ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CheckArgs>();
  CLI::App* command = app.add_subcommand("check", "a backend's kernels against the reference, executed counts against analytic ones");
  command->add_option("--backend", flags->backend, "cpu, cuda or reference (counts only: it is its own yardstick) [cpu]")->type_name("NAME");
  command->add_option("KIND", flags->kinds, "only these op kinds (fathom list ops)");
  command->add_option("--dtype", flags->dtype, "f32, bf16 or all [all]")->type_name("TYPE");
  command->add_option("--tolerance", flags->tolerance, "times the stated tolerances (f32 2e-5, bf16 2e-2) [1]")->type_name("X");
  command->add_option("--threads", flags->threads, "threads of the kernels [all cores]")->type_name("N")->check(CLI::Range(1, 4096));
  add_output_flags(*command, flags->output);
  command->footer("Exit code 1 when anything differs.\nExamples:\n  fathom check\n  fathom check attention attention_backward --dtype bf16 --ops");
  command->callback([flags, &exit_code] { exit_code = run_check(*flags); });
}

}  // namespace fathom
