#include "reports/markdown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "reports/footnotes.hpp"
#include "reports/format.hpp"
#include "reports/svg.hpp"
#include "reports/text.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

// Escapes what GitHub would read as markup; text in `backticks` stays code. Underscores inside words are no markup
// there.
std::string escape(std::string_view text) {
  const std::string clean = printable(text);
  const bool balanced = std::count(clean.begin(), clean.end(), '`') % 2 == 0;
  std::string out;
  bool code = false;
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const char c = clean[i];
    if (c == '`' && balanced) {
      code = !code;
      out += c;
    } else if (c == '|') {
      out += "\\|";  // also in code: table cells are split before code is found
    } else if (code) {
      out += c;
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '\\' || c == '`' || c == '*' || c == '[' || c == ']' || c == '~' || c == '$') {
      out += std::string("\\") + c;
    } else if (c == '_' && (i == 0 || clean[i - 1] == ' ' || i + 1 == clean.size() || clean[i + 1] == ' ')) {
      out += "\\_";
    } else {
      out += c;
    }
  }
  return out;
}

// A line that starts like a heading, list, quote or rule is kept a paragraph.
std::string paragraph_text(std::string_view text) {
  std::string out = escape(text);
  const std::size_t digits = out.find_first_not_of("0123456789");
  if (!out.empty() && std::string_view("#>-+=").find(out[0]) != std::string_view::npos) return "\\" + out;
  if (digits != std::string::npos && digits > 0 && (out[digits] == '.' || out[digits] == ')')) out.insert(digits, "\\");
  return out;
}

std::string fence(const std::string& text) {
  std::string ticks = "```";
  while (text.find(ticks) != std::string::npos) ticks += '`';
  return ticks + "\n" + text + (text.empty() || text.back() == '\n' ? "" : "\n") + ticks + "\n";
}

// A number and its unit stay on one line: GitHub gives a wide table the width of the page and breaks cells at spaces.
std::string unbroken(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? std::string("\u00a0") : std::string(1, c);
  return out;
}

std::vector<std::size_t> columns_of_page(const ReportTable& table) {
  std::vector<std::size_t> shown(table.columns.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  while (!table.wide && shown.size() > kPageColumns) {
    // The last of those with the highest number; 0 is never dropped.
    auto worst = shown.begin();
    for (auto at = shown.begin(); at != shown.end(); ++at)
      if (table.columns[*at].priority >= table.columns[*worst].priority) worst = at;
    if (table.columns[*worst].priority <= 0) break;
    shown.erase(worst);
  }
  return shown;
}

struct MarkdownParts {
  const MarkdownOptions& options;

  std::string operator()(const Heading& heading) const {
    return std::string(static_cast<std::size_t>(std::clamp(heading.level, 1, 6)), '#') + " " + escape(heading.text) +
           "\n";
  }
  std::string operator()(const Paragraph& paragraph) const { return paragraph_text(paragraph.text) + "\n"; }
  std::string operator()(const CodeBlock& code) const { return fence(valid_utf8(code.text)); }
  std::string operator()(const Note& note) const {
    const char* kind = note.severity == Note::Severity::kWarning ? "WARNING" : "NOTE";
    const char* prefix = note.severity == Note::Severity::kSkipped ? "Skipped: " : "";
    return fmt::format("> [!{}]\n> {}{}\n", kind, prefix, paragraph_text(note.text));
  }
  std::string operator()(const KeyValues& list) const {
    std::string out = list.title.empty() ? "" : "**" + escape(list.title) + "**\n\n";
    const bool sources =
        std::any_of(list.items.begin(), list.items.end(), [](const auto& i) { return !i.source.empty(); });
    out += sources ? "| | | source |\n|---|---|---|\n" : "| | |\n|---|---|\n";
    for (const KeyValues::Item& item : list.items) {
      std::string value = escape(format_cell(item.value, item.unit));
      value += exact_in_brackets(item.value, item.unit);
      out += fmt::format("| {} | {} |{}\n", escape(item.label), value, sources ? " " + escape(item.source) + " |" : "");
    }
    return out;
  }
  std::string operator()(const ReportTable& table) const { return render_markdown(table); }
  template <class Plot>
  std::string operator()(const Plot& plot) const {
    if (options.plot_folder.empty()) return fence(render_text(plot, TextOptions{80, false, true}));
    std::string out = fmt::format("![{}]({}{}.svg)\n", escape(plot.title), options.plot_folder, plot.key);
    if (!plot.caption.empty()) out += "\n" + paragraph_text(plot.caption) + "\n";
    return out;
  }
};

}  // namespace

std::string render_markdown(const ReportTable& table) {
  std::string out;
  if (!table.title.empty()) out += "**" + escape(table.title) + "**\n\n";
  std::string header = "|", rule = "|", hidden;
  const std::vector<std::size_t> shown = columns_of_page(table);
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    if (std::find(shown.begin(), shown.end(), c) == shown.end()) hidden += (hidden.empty() ? "" : ", ") + table.columns[c].label;
  for (const std::size_t c : shown) {
    const ReportColumn& column = table.columns[c];
    header += " " + escape(header_text(column)) + " |";
    rule += is_numeric(column.unit) ? "---:|" : "---|";
  }
  out += header + "\n" + rule + "\n";
  std::size_t plain = 0;
  Footnotes footnotes;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const ReportTable::Row& row = table.rows[r];
    if (!row.total && table.preview_rows > 0 && plain++ >= static_cast<std::size_t>(table.preview_rows)) continue;
    std::string line = "|";
    for (const std::size_t c : shown) {
      std::string text = c < table.group && repeats_group(table, r) ? "" : escape(footnotes.shown(row.cells[c], table.columns[c]));
      if (is_numeric(table.columns[c].unit)) text = unbroken(text);
      line += " " + (row.total && !text.empty() ? "**" + text + "**" : text) + " |";
    }
    out += line + "\n";
  }
  if (table.preview_rows > 0 && plain > static_cast<std::size_t>(table.preview_rows)) {
    out += fmt::format("\nand {} more rows (the CSV has all).\n", plain - static_cast<std::size_t>(table.preview_rows));
  }
  for (const std::string& line : footnotes.lines()) out += "\n" + paragraph_text(line) + "\n";
  if (!hidden.empty()) out += "\nNot shown: " + escape(hidden) + " (text, HTML and JSON have them).\n";
  if (!table.caption.empty()) out += "\n" + paragraph_text(table.caption) + "\n";
  return out;
}

std::string render_markdown(const Document& document, const MarkdownOptions& options) {
  std::string out = document.title.empty() ? "" : "# " + escape(document.title) + "\n";
  for (const DocumentPart& part : document.parts) {
    if (!out.empty()) out += "\n";
    out += std::visit(MarkdownParts{options}, part);
  }
  return out;
}

std::vector<PlotFile> plot_files(const Document& document) {
  std::vector<PlotFile> files;
  for (const DocumentPart& part : document.parts) {
    if (const auto* xy = std::get_if<XyPlot>(&part)) files.push_back({xy->key + ".svg", render_svg(*xy)});
    if (const auto* bars = std::get_if<BarPlot>(&part)) files.push_back({bars->key + ".svg", render_svg(*bars)});
    if (const auto* map = std::get_if<RoutingMap>(&part)) files.push_back({map->key + ".svg", render_svg(*map)});
  }
  return files;
}

}  // namespace fathom
