#include "tools/convention.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/count/convention.hpp"
#include "models/count/utilization.hpp"
#include "tools/generation.hpp"

namespace fathom {
namespace {

Scenario whole_square(Scenario scenario) {
  scenario.full_mask = true;
  return scenario;
}

// A signed or broken number as text, so that nothing is rounded; a count where it is one.
Cell exact_cell(const Rational& value) { return value.integer() && !value.negative() ? Cell::count(value.count()) : Cell::text(value.str()); }

// The same for files, where a number that a double holds exactly is a number.
Cell data_cell(const Rational& value) {
  constexpr i128 kExact = i128{1} << 53;
  const bool power = (value.den() & (value.den() - 1)) == 0;
  if (value.integer() && !value.negative()) return Cell::count(value.count());
  if (power && value.num() > -kExact && value.num() < kExact && value.den() < kExact) return Cell::number(value.value());
  return Cell::text(value.str());
}

std::string grouped_signed(const Rational& value, bool sign) {
  std::string text = value.str();
  const bool minus = !text.empty() && text[0] == '-';
  if (minus) text.erase(0, 1);
  const size_t end = std::min(text.find('.'), text.find('/'));
  for (size_t at = std::min(end, text.size()); at > 3; at -= 3) text.insert(at - 3, " ");
  return (minus ? "-" : sign ? "+" : "") + text;
}

KeyValues facts(const Convention& convention) {
  KeyValues list;
  list.add_text("counted so by", std::string(convention.summary));
  list.add_text("forward, per token", std::string(convention.formula));
  list.add_text("training", std::string(convention.training));
  list.add_text("source", std::string(convention.source));
  list.add_text("test values", convention.ran ? "the tool's own function was run and gave them" : "from the formula as read");
  list.add_text("depth routing", convention.routed ? "known: routed blocks count the rows they take" : "not known: routed blocks count on all rows");
  return list;
}

}  // namespace

void add_convention_flag(CLI::App& app, std::string& convention) {
  app.add_option("--convention", convention, "also give FLOPs as NAME counts them (fathom explain convention lists all) [exact]")->type_name("NAME")->check(known_names("--convention", [](const std::string& text) {
    if (text.find(',') != std::string::npos) throw_input(fmt::format("'{}' is a list, and one is taken here", text.substr(0, 60)), {"", 0, "convention"}, "fathom sweep takes lists: a row for each");
    find_convention(text);
  }));
}

void apply_convention(const std::string& name, const Network& network, const Scenario& scenario, Result& result) {
  const Convention& convention = find_convention(name.empty() ? "exact" : name);
  if (convention.name == "exact") return;
  result.convention = std::string(convention.name);
  if (const std::string_view warning = convention_warning(convention); !warning.empty())
    result.notes.push_back({Note::Severity::kWarning, fmt::format("{}: {}", convention.name, warning)});
  if (convention.name == "full") {  // the op list with another mask, in every phase
    const Scenario square = whole_square(scenario);
    result.convention_flops = scenario.phase == Phase::kGenerate ? count_generation({network, square, network.name}).convention_flops : Cell::count(build(network, square).total().flops);
    return;
  }
  std::string why;
  const std::optional<Rational> flops = convention_step(convention, network, scenario, why);
  result.convention_flops = flops ? exact_cell(*flops) : Cell::status(why);
  if (flops && scenario.phase == Phase::kPrefill && scenario.logits != LogitsKind::kAll && !count_convention(convention, network, scenario.length).terms[static_cast<size_t>(Term::kLogits)].zero())
    result.notes.push_back({Note::Severity::kNote, fmt::format("convention {} counts the logits of every position, the exact count {}; --logits all counts all in both", convention.name,
                                                               scenario.logits == LogitsKind::kLast ? "those of the last alone" : "none")});
  if (!flops) result.notes.push_back({Note::Severity::kSkipped, fmt::format("convention {}: {}", convention.name, why)});
}

std::optional<double> model_flops(const std::string& name, const Network& network, const Scenario& scenario) {
  const Convention& convention = find_convention(name);
  if (convention.name == "exact") return step_flops(build(network, scenario)).model;
  if (convention.name == "full") return step_flops(build(network, whole_square(scenario))).model;
  std::string why;
  const std::optional<Rational> flops = convention_model_step(convention, network, scenario, why);
  return flops ? std::optional(flops->value()) : std::nullopt;
}

Document explain_conventions() {
  Document document;
  document.title = "FLOP-counting conventions";
  document.paragraph("`--convention NAME` gives a model's FLOPs as NAME counts them; `fathom explain convention NAME MODEL` says why that differs from `exact`.");
  ReportTable table("conventions", "");
  table.add_column(ReportColumn{"convention", "name", Unit::kText, 0});
  table.add_column(ReportColumn{"summary", "who counts so", Unit::kText, 0});
  table.add_column(ReportColumn{"formula", "forward FLOP per token", Unit::kText, 1});
  table.add_column(ReportColumn{"source", "source", Unit::kText, 2});
  for (const Convention& c : conventions())
    table.add_row({Cell::text(std::string(c.name)), Cell::text(std::string(c.summary)), Cell::text(std::string(c.formula)), Cell::text(std::string(c.source))});
  document.add(std::move(table));
  document.note("L layers, h width, n query and m key/value heads of size d, f FFN width, g FFN matrices, E experts of which k are chosen and s shared, V vocabulary, S tokens, W window. "
                "Other names: maxtext, torch, nanotron, llm-foundry, bridge, ptflops, thop, mod-d.");
  return document;
}

Document explain_convention(const std::string& name) {
  const Convention& convention = find_convention(name);
  Document document;
  document.title = fmt::format("convention {}", convention.name);
  document.add(facts(convention));
  if (const std::string_view warning = convention_warning(convention); !warning.empty()) document.warning(std::string(warning));
  document.note(fmt::format("`fathom explain convention {} MODEL` compares it with `exact` for a model.", convention.name));
  return document;
}

Document explain_convention(const std::string& name, const Network& network, std::int64_t length, FigureStyle style) {
  const bool people = style == FigureStyle::kPeople;
  const auto figure = [people](const Rational& value, bool sign) { return people ? Cell::text(grouped_signed(value, sign)) : data_cell(value); };
  const Convention& convention = find_convention(name);
  const ConventionCount count = count_convention(convention, network, length);
  Document document;
  document.title = fmt::format("convention {} for {}, S = {}", convention.name, network.name, length);
  KeyValues list = facts(convention);
  const auto fact = [&](const std::string& label, const Rational& value) {
    if (people) list.add_text(label, grouped_signed(value, false) + " FLOP");
    else list.items.push_back({"", label, data_cell(value), Unit::kFlop, ""});
  };
  fact("exact, per token", count.exact);
  if (count.unavailable.empty()) fact(fmt::format("{}, per token", convention.name), count.per_token);
  document.add(std::move(list));
  if (const std::string_view warning = convention_warning(convention); !warning.empty()) document.warning(std::string(warning));
  if (!count.unavailable.empty()) {
    document.skipped(fmt::format("n/a: {}", count.unavailable));
    return document;
  }
  ReportTable table("reasons", fmt::format("From exact to {}: forward FLOP (2 per MAC) per token and per sequence", convention.name));
  table.add_column(ReportColumn{"reason", "reason", Unit::kText, 0});
  table.add_column(ReportColumn{"per_token", "per token", Unit::kText, 0});
  table.add_column(ReportColumn{"per_sequence", "per sequence", Unit::kText, 1});
  table.add_column(ReportColumn{"change", "change from exact", Unit::kSignedPercent, 1});
  const Rational tokens = length;
  const auto row = [&](const std::string& text, const Rational& flops, bool sign, bool total) {
    table.add_row({Cell::text(text), figure(flops, sign), figure(flops * tokens, sign),
                   sign || total ? Cell::number(((total ? flops - count.exact : flops) / count.exact).value()) : Cell()},
                  total);
  };
  row("exact", count.exact, false, false);
  for (const Reason& reason : count.reasons) row(reason.text, reason.flops, true, false);
  row(std::string(convention.name), count.per_token, false, true);
  document.add(std::move(table));
  ReportTable terms("terms", fmt::format("Terms of {}", convention.name));
  terms.add_column(ReportColumn{"term", "term", Unit::kText, 0});
  terms.add_column(ReportColumn{"per_token", "per token", Unit::kText, 0});
  terms.add_column(ReportColumn{"share", "share", Unit::kPercent, 0});
  for (int t = 0; t < kTermCount; ++t) {
    const Rational& value = count.terms[static_cast<size_t>(t)];
    if (!value.zero()) terms.add_row({Cell::text(std::string(term_name(static_cast<Term>(t)))), figure(value, false), Cell::number((value / count.per_token).value())});
  }
  document.add(std::move(terms));
  if (convention.name != "exact")
    document.note("Both sides count the logits of every position; `fathom count` counts the last one only in prefill unless `--logits all` is given.");
  return document;
}

}  // namespace fathom
