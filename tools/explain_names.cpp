#include "tools/explain_names.hpp"

#include <fmt/format.h>

#include "models/machine_ini.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"
#include "reports/format.hpp"
#include "tools/help.hpp"
#include "tools/machines.hpp"

namespace fathom {

void explain_exit_codes_into(Document& document) {
  document.title = "Exit codes";
  ReportTable table("exit-codes", "");
  table.add_column(ReportColumn{"code", "code", Unit::kCount, 0});
  table.add_column(ReportColumn{"name", "says", Unit::kText, 0});
  table.add_column(ReportColumn{"meaning", "when", Unit::kText, 0});
  for (const ExitCode& each : exit_codes()) table.add_row({Cell::count(static_cast<u128>(each.code)), Cell::text(each.brief), Cell::text(each.meaning)});
  document.add(std::move(table));
}

void explain_defaults_into(Document& document) {
  document.title = "The defaults file";
  document.paragraph("Options for every run stand in $XDG_CONFIG_HOME/fathom/defaults.ini, else in ~/.config/fathom/defaults.ini: below [common] for all commands that have such an option, below the name of "
                     "a command for that one; each as `option = value` without the dashes, a flag as yes or no.");
  document.paragraph("What is typed wins over a command's section, and that over [common]. --no-defaults ignores the file. Records and their Reproduce line show the options as if they had been typed.");
  document.code("[common]\ncolor = never\n\n[predict]\non = h200\nphase = decode");
}

bool explain_name_into(Document& document, const std::string& name) {
  for (const NetworkEntry& entry : list_networks()) {
    if (entry.name != name) continue;
    const Network network = builtin_network(name);
    const ParameterCount params = count_parameters(network);
    document.title = name;
    document.paragraph(entry.summary);
    KeyValues list;
    list.add_text("kind", "built-in model");
    list.add_text("inputs", fmt::format("width {}, {} layers, vocabulary {}", grouped(static_cast<u128>(network.width)), network.layer_count(), grouped(static_cast<u128>(network.vocab))));
    list.add_text("formula", "parameters: every matrix, bias, gain and table once; active: k of E experts");
    list.add_text("result", fmt::format("{} parameters, {} active", grouped(params.total.value()), grouped(params.active.value())));
    list.add_text("source", "models/networks; models/params.hpp");
    document.add(std::move(list));
    document.note(fmt::format("`fathom count {}` counts a step of it; `fathom explain total {}` adds it up.", name, name));
    return true;
  }
  for (const auto& [machine_name, summary] : list_machine_names()) {
    if (machine_name != name) continue;
    document.title = name;
    document.paragraph(summary);
    KeyValues list;
    list.add_text("kind", "machine");
    if (name != "this-machine") {
      const Machine machine = load_machine(name);
      for (const Peak& peak : machine.peaks)
        for (const auto& [threads, rate] : peak.rate)
          list.add_text(fmt::format("{} peak{}", dtype_name(peak.dtype), peak.rate.size() > 1 ? fmt::format(", {} threads", threads) : ""), format_value(rate.value, Unit::kFlopRate), rate.source);
    }
    list.add_text("source", name == "this-machine" ? "probed here: fathom calibrate" : "models/machines: data sheets, and fits to measured kernels");
    document.add(std::move(list));
    document.note(fmt::format("`fathom predict MODEL --on {}` predicts for it.", name));
    return true;
  }
  for (const auto& [backend_name, summary] : list_backend_names()) {
    if (backend_name != name) continue;
    document.title = name;
    document.paragraph(summary);
    KeyValues list;
    list.add_text("kind", "backend");
    list.add_text("source", "kernels/");
    document.add(std::move(list));
    document.note(fmt::format("`fathom run MODEL --backend {}` runs on it.", name));
    return true;
  }
  return false;
}

}  // namespace fathom
