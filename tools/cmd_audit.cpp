// fathom audit: what is said about Mixture-of-Depths, recomputed for a model.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "models/count/audit.hpp"
#include "models/registry.hpp"
#include "reports/format.hpp"
#include "tools/cli.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct AuditArgs {
  std::string model = "dense-220m";
  std::int64_t length = 2048;
  OutputFlags output;
};

// Counts are whole numbers, and stay exact.
Cell exact(const AuditFigure& figure) {
  constexpr double kExactDouble = 9007199254740992.0;  // 2^53
  if (!std::isfinite(figure.value)) return Cell::status(figure_text(figure));
  const bool whole = figure.unit == FigureUnit::kCount && figure.value >= 0 && figure.value < kExactDouble && figure.value == std::floor(figure.value);
  return whole ? Cell::count(static_cast<u128>(figure.value)) : Cell::number(figure.value);
}

std::string shown(const AuditFigure& figure) {
  const Cell number = exact(figure);
  return number.exact() != nullptr ? grouped(*number.exact()) : figure_text(figure);
}

// The claim's figures in one cell: "56.25 % (token work); 50.78 % (pair work)".
std::string summary(const AuditClaim& claim) {
  std::string text;
  for (const AuditFigure& figure : claim.figures) text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", shown(figure), figure.name);
  if (!claim.reported.empty()) text += (text.empty() ? "" : "; ") + ("reported: " + claim.reported);
  return text;
}

Document audit_document(const AuditSetting& setting, const std::string& model) {
  Document document;
  document.title = "Claims about Mixture-of-Depths";
  std::int64_t routed = 0;
  for (std::int64_t l = 0; l < setting.routed.layer_count(); ++l) routed += setting.routed.block(l).route.has_value();
  document.paragraph(fmt::format("Recomputed for {} with {} of {} blocks routed and {} tokens. Texts, all on arXiv 2404.02258: the deck (lecture slides), the article (an English teardown) and the post (Korean, with a small JavaScript demo); each claim "
                                 "is given in whole, since they have no lasting address. Every figure stands in the second table with the way it was computed.",
                                 model, routed, setting.dense.layer_count(), setting.length));
  ReportTable claims("claims", "");
  claims.add_column(ReportColumn{"number", "#", Unit::kCount, 0});
  claims.add_column(ReportColumn{"text", "text", Unit::kText, 0});
  claims.add_column(ReportColumn{"claim", "claim", Unit::kText, 0});
  claims.add_column(ReportColumn{"value", "recomputed", Unit::kText, 0});
  claims.add_column(ReportColumn{"verdict", "verdict", Unit::kText, 0});
  claims.add_column(ReportColumn{"condition", "condition", Unit::kText, 1});
  ReportTable figures("figures", "Figures");
  figures.add_column(ReportColumn{"number", "#", Unit::kCount, 0});
  figures.add_column(ReportColumn{"figure", "figure", Unit::kText, 0});
  figures.add_column(ReportColumn{"claimed", "claimed", Unit::kText, 0});
  figures.add_column(ReportColumn{"value", "value", Unit::kText, 0});
  figures.add_column(ReportColumn{"exact_value", "number", Unit::kNone, 3, 10});
  figures.add_column(ReportColumn{"formula", "computed as", Unit::kText, 1});
  for (const AuditClaim& claim : audit(setting)) {
    const Cell number = Cell::count(static_cast<u128>(claim.number));
    claims.add_row({number, Cell::text(claim.text), Cell::text(claim.claim), Cell::text(summary(claim)), Cell::text(std::string(audit_verdict_name(claim.verdict))), Cell::text(claim.condition)});
    for (const AuditFigure& figure : claim.figures)
      figures.add_row({number, Cell::text(figure.name), Cell::text(figure.claimed), Cell::text(shown(figure)), exact(figure), Cell::text(figure.formula)});
  }
  document.add(std::move(claims));
  document.add(std::move(figures));
  document.note("The paper gives no layer count, width, vocabulary or predictor size: the default shape (width 896, 18 layers, vocabulary 32 000) is of its 220M class, not its model. "
                "Decode figures are rooflines, to be confirmed by measurement.");
  if (!setting.routed.weights_of.empty())
    document.note("Layers share weights here. A routed layer cannot share those of a full one, so in a variant that routes some layers of a weight set only, that set is two.");
  return document;
}

int run_audit(const AuditArgs& flags) {
  check_output_flags(flags.output);
  OtherForms forms;
  forms.asked = fmt::format("{}, seq {}", flags.model, grouped(static_cast<u128>(flags.length)));
  const Network network = load_network(flags.model);
  Document document = audit_document(AuditSetting(network, flags.length), flags.model);
  std::vector<RecordNote> notes;  // of imported files
  for (const std::string& note : network.notes) notes.push_back({Note::Severity::kNote, network.name + ": " + note});
  for (const RecordNote& note : notes) document.note(note.text);
  tell_notes(notes, flags.output.quiet || flags.output.format != "csv");  // a page has them
  return emit_document(document, flags.output, forms);
}

}  // namespace

void add_audit(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<AuditArgs>();
  CLI::App* command = app.add_subcommand("audit", "31 claims about Mixture-of-Depths, recomputed for a model: verdicts and conditions");
  command->add_option("MODEL", flags->model, "dense: its twin with every second block at 1/8; routed: as it is [dense-220m]");
  command->add_option("--seq", flags->length, "tokens per sequence [2048]")->type_name("S");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom audit\n  fathom audit llama-3-8b -o md\n  fathom audit mod-1.4b -o json");
  command->callback([flags, &exit_code] { exit_code = run_audit(*flags); });
}

}  // namespace fathom
