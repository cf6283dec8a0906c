// fathom report: renders saved records.
#include <CLI/CLI.hpp>

#include <memory>

#include "lib/error.hpp"
#include "reports/save.hpp"
#include "tools/cli.hpp"
#include "tools/output_offer.hpp"
#include "tools/plot_output.hpp"

namespace fathom {
namespace {

struct ReportArgs {
  std::vector<std::string> files;
  OutputFlags output;
};

int run_report(const ReportArgs& flags) {
  check_output_flags(flags.output);
  std::vector<Record> records;
  for (const std::string& file : flags.files) records.push_back(read_record(load_file(file), file));
  OutputFlags output = flags.output;
  output.quiet = true;  // the notes were said when it was measured; every form has them
  const int code = emit(join_records(std::move(records), flags.files), output);
  for (const std::string& file : flags.output.save)
    if (const std::string format = format_of_file(file); is_plot_format(format) && !flags.output.quiet) tell_plots(file, format);
  return code;
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ReportArgs>();
  CLI::App* command = app.add_subcommand("report", "render saved records to table, md, csv, json, html");
  command->add_option("RECORD", flags->files, "record files (JSON)")->required();
  add_output_flags(*command, flags->output);
  add_columns_flag(*command, flags->output);
  command->footer("Examples:\n  fathom report reports/out/compare.json -o md --ops\n  fathom report a.json b.json --save both.html");
  command->callback([flags, &exit_code] { exit_code = run_report(*flags); });
}

}  // namespace fathom
