// fathom list: what is built in.
#include <CLI/CLI.hpp>

#include <memory>

#include "lib/error.hpp"
#include "lib/explain.hpp"
#include "models/registry.hpp"
#include "reports/columns.hpp"
#include "tools/cli.hpp"
#include "tools/machines.hpp"

namespace fathom {
namespace {

const std::vector<std::string> kWhat = {"models", "machines", "backends", "ops", "columns"};

struct ListArgs {
  std::string what = "models";
  OutputFlags output;
};

int run_list(const ListArgs& flags) {
  check_output_flags(flags.output);
  Document document;
  ReportTable table("list", "");
  table.add_column(ReportColumn{"name", "name", Unit::kText, 0});
  table.add_column(ReportColumn{"summary", "what it is", Unit::kText, 0});
  if (flags.what == "models") {
    document.title = "Built-in models";
    for (const NetworkEntry& entry : list_networks()) table.add_row({Cell::text(entry.name), Cell::text(entry.summary)});
  } else if (flags.what == "machines") {
    document.title = "Built-in machines";
    for (const auto& [name, summary] : list_machine_names()) table.add_row({Cell::text(name), Cell::text(summary)});
  } else if (flags.what == "backends") {
    document.title = "Backends";
    for (const auto& [name, summary] : list_backend_names()) table.add_row({Cell::text(name), Cell::text(summary)});
  } else if (flags.what == "ops") {
    document.title = "Op kinds";
    for (const KindExplanation& kind : kind_explanations()) table.add_row({Cell::text(std::string(kind.kind)), Cell::text(std::string(kind.what))});
    table.caption = "`fathom explain NAME` has its FLOP, elements, bytes and source.";
  } else if (flags.what == "columns") {
    document.title = "Columns and JSON keys";
    for (const Column& column : all_columns()) table.add_row({Cell::text(std::string(column.key)), Cell::text(std::string(column.meaning))});
  } else {
    throw_input("unknown list '" + flags.what + "'", {"", 0, "list"}, name_hint(flags.what, kWhat));
  }
  document.add(std::move(table));
  return emit_document(document, flags.output);
}

}  // namespace

void add_list(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ListArgs>();
  CLI::App* command = app.add_subcommand("list", "what is built in: models, machines, backends, ops, columns");
  command->add_option("WHAT", flags->what, "models, machines, backends, ops or columns [models]");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom list models\n  fathom list columns -o md");
  command->callback([flags, &exit_code] { exit_code = run_list(*flags); });
}

}  // namespace fathom
