#include "reports/html.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/footnotes.hpp"
#include "reports/format.hpp"
#include "reports/html_assets.hpp"
#include "reports/svg.hpp"
#include "reports/text.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

constexpr int kWide = 1160;
constexpr int kNarrow = 360;

// Escaped text with `backticks` as code elements.
std::string inline_html(std::string_view text) {
  const std::string clean = printable(text);
  if (std::count(clean.begin(), clean.end(), '`') % 2 != 0) return xml_escape(clean);
  std::string out;
  bool code = false;
  std::size_t at = 0;
  while (at <= clean.size()) {
    const std::size_t tick = std::min(clean.find('`', at), clean.size());
    out += xml_escape(std::string_view(clean).substr(at, tick - at));
    if (tick == clean.size()) break;
    out += code ? "</code>" : "<code>";
    code = !code;
    at = tick + 1;
  }
  return out;
}

const char* verdict_class(std::string_view verdict) {
  if (verdict.starts_with("within")) return " v-within";
  if (verdict.starts_with("faster-than-light")) return " v-light";
  if (verdict.starts_with("slow")) return " v-slow";
  if (verdict.starts_with("fast")) return " v-fast";
  return "";
}

// `named`: the cell says its heading where the table is shown without its head (on a phone). `more`: further classes, each with a blank before it.
std::string table_cell(const Cell& cell, const ReportColumn& column, bool named, std::string_view more, Footnotes& footnotes) {
  const bool numeric = is_numeric(column.unit);
  const std::string shown = footnotes.shown(cell, column);
  std::string classes = "n";
  const bool path = shown.find('/') != std::string::npos && shown.find(' ') == std::string::npos;  // a slash in a sentence makes no path
  if (!numeric) classes = path ? "p" : shown.size() > 40 ? "w" : "k";
  if (cell.missing() != nullptr) classes += " s";
  if (column.key == "verdict") classes += verdict_class(shown);
  classes += more;
  std::string out = "<td";
  if (!classes.empty()) out += " class=\"" + classes + "\"";
  if (named) out += " data-l=\"" + xml_escape(printable(column.label)) + "\"";
  if (cell.is_number()) {
    const std::string exact = exact_text(cell);
    out += " data-v=\"" + exact + "\"";
    const std::string title = cell.exact() != nullptr ? grouped(*cell.exact()) : exact;
    if (title != shown) {
      const std::string_view symbol = unit_symbol(column.unit);
      const bool fraction = column.unit == Unit::kPercent || column.unit == Unit::kSignedPercent;
      out += " title=\"" + title + (symbol.empty() || fraction ? "" : " " + std::string(symbol)) + "\"";
    }
  }
  if (cell.missing() != nullptr && shown != cell_text(cell, column)) out += " title=\"" + xml_escape(printable(cell.missing()->reason)) + "\"";
  std::string content = inline_html(shown);
  if (!numeric && path) {  // a path may be broken after its slashes
    for (std::size_t at = 0; (at = content.find('/', at)) != std::string::npos; at += 6) {
      if (at > 0 && content[at - 1] == '<') continue;  // a closing tag
      content.insert(at + 1, "<wbr>");
    }
  }
  return out + ">" + content + "</td>";
}

// A command line may be broken between its words, not behind the hyphens of an option.
std::string code_html(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const bool option = word.size() > 1 && word[0] == '-' && word.size() < 30;
    out += option ? "<span class=\"o\">" + xml_escape(word) + "</span>" : xml_escape(word);
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out;
}

template <class Plot>
std::string both_widths(const Plot& plot, std::size_t frame = 0) {
  return "<div class=\"wide\">" + render_svg(plot, {kWide, false, frame}) + "</div>\n<div class=\"narrow\">" +
         render_svg(plot, {kNarrow, false, frame}) + "</div>\n";
}

std::string caption(const std::string& text) {
  return text.empty() ? "" : "<figcaption class=\"caption\">" + inline_html(text) + "</figcaption>\n";
}

struct HtmlParts {
  std::string operator()(const Heading& heading) const {
    const int level = std::clamp(heading.level, 2, 4);
    return fmt::format("<h{0}>{1}</h{0}>\n", level, inline_html(heading.text));
  }
  std::string operator()(const Paragraph& paragraph) const { return "<p>" + inline_html(paragraph.text) + "</p>\n"; }
  std::string operator()(const CodeBlock& code) const { return "<pre>" + code_html(code.text) + "</pre>\n"; }
  std::string operator()(const Note& note) const {
    const bool warning = note.severity == Note::Severity::kWarning, skipped = note.severity == Note::Severity::kSkipped;
    return fmt::format("<div class=\"note{}\"><b>{}</b>{}</div>\n",
                       warning   ? " warning"
                       : skipped ? " skipped"
                                 : "",
                       warning   ? "Warning"
                       : skipped ? "Skipped"
                                 : "Note",
                       inline_html(note.text));
  }
  std::string operator()(const KeyValues& list) const {
    std::string out = list.title.empty() ? "" : "<h3>" + inline_html(list.title) + "</h3>\n";
    out += "<dl>\n";
    for (const KeyValues::Item& item : list.items) {
      std::string value = inline_html(format_cell(item.value, item.unit));
      value += exact_in_brackets(item.value, item.unit);
      if (!item.source.empty()) value += " <span class=\"source\">" + inline_html(item.source) + "</span>";
      out += "<dt>" + inline_html(item.label) + "</dt><dd>" + value + "</dd>\n";
    }
    return out + "</dl>\n";
  }
  std::string operator()(const ReportTable& table) const { return render_html(table); }
  std::string operator()(const XyPlot& plot) const {
    return "<figure>\n" + both_widths(plot) + caption(plot.caption) + "</figure>\n";
  }
  std::string operator()(const BarPlot& plot) const {
    return "<figure>\n" + both_widths(plot) + caption(plot.caption) + "</figure>\n";
  }
  // Several frames become radio buttons; which drawing shows is decided by style alone.
  std::string operator()(const RoutingMap& map) const {
    if (map.frames.size() == 1) return "<figure>\n" + both_widths(map) + caption(map.caption) + "</figure>\n";
    std::string inputs, frames, rules;
    const std::string id = "f-" + anchor(map.key);
    for (std::size_t i = 0; i < map.frames.size(); ++i) {
      inputs += fmt::format("<input type=\"radio\" name=\"{0}\" id=\"{0}-{1}\"{2}><label for=\"{0}-{1}\">{3}</label>\n",
                            id, i, i == 0 ? " checked" : "", inline_html(map.frames[i].label));
      frames += fmt::format("<div class=\"frame {}-{}\">\n", id, i) + both_widths(map, i) + "</div>\n";
      rules += fmt::format("#{0}-{1}:checked~.{0}-{1}{{display:block}}\n", id, i);
    }
    return "<figure class=\"frames\">\n<style>" + rules + "</style>\n" + inputs + frames + caption(map.caption) +
           "</figure>\n";
  }

  static std::string anchor(std::string_view key) {
    std::string out;
    for (const char c : key) out += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
    return out;
  }
};

// "mod-60m, batch 8" above the rows that it is said of.
std::string group_line(const ReportTable& table, const ReportTable::Row& row) {
  std::string text;
  for (std::size_t c = 0; c < table.group; ++c) {
    if (row.cells[c].empty()) continue;
    const std::string shown = cell_text(row.cells[c], table.columns[c]);
    text += (text.empty() ? "" : ", ") + (is_numeric(table.columns[c].unit) ? table.columns[c].label + " " : std::string()) + shown;
  }
  return fmt::format("<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{}\"><span>{}</span></th></tr>\n", table.columns.size() - table.group, inline_html(text));
}

}  // namespace

std::string render_html(const ReportTable& table) {
  // A table of words, at most after a number of its row, is read, not compared: it is shown in full, and on a phone its rows become paragraphs.
  const bool prose =
      table.columns.size() > 1 && std::none_of(table.columns.begin() + 1, table.columns.end(), [](const auto& c) { return is_numeric(c.unit); });
  const bool grouped = table.group > 0;
  std::string out = fmt::format("<div class=\"scroll{0}\"><table class=\"sortable{0}{1}\" id=\"t-{2}\">\n",
                                prose ? " prose" : "", grouped ? " grouped" : "", HtmlParts::anchor(table.key));
  if (!table.title.empty()) out += "<caption>" + inline_html(table.title) + "</caption>\n";
  out += "<thead><tr>";
  // The columns of a group stand in a line above its rows, until a reader sorts the table; the first of the others stays in sight on a phone.
  const auto place = [&](std::size_t c) { return std::string_view(!grouped || c > table.group ? "" : c < table.group ? " gc" : " h"); };
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const std::string classes = std::string(is_numeric(table.columns[c].unit) ? "n" : "") + std::string(place(c));
    out += fmt::format("<th scope=\"col\"{}>{}</th>", classes.empty() ? "" : " class=\"" + classes.substr(classes[0] == ' ' ? 1 : 0) + "\"",
                       xml_escape(printable(header_text(table.columns[c]))));
  }
  out += "</tr></thead>\n<tbody>\n";
  std::string footer;
  Footnotes footnotes;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const ReportTable::Row& row = table.rows[r];
    if (grouped && !repeats_group(table, r)) out += (r > 0 ? "</tbody>\n<tbody>\n" : "") + group_line(table, row);
    std::string line = row.total && grouped ? "<tr class=\"total\">" : "<tr>";
    for (std::size_t c = 0; c < row.cells.size(); ++c) line += table_cell(row.cells[c], table.columns[c], prose && table.columns.size() > 3, place(c), footnotes);
    (row.total && !grouped ? footer : out) += line + "</tr>\n";
  }
  out += "</tbody>\n";
  if (!footer.empty()) out += "<tfoot>\n" + footer + "</tfoot>\n";
  out += "</table></div>\n";
  for (const std::string& line : footnotes.lines()) out += "<p class=\"caption\">" + inline_html(line) + "</p>\n";
  if (!table.caption.empty()) out += "<p class=\"caption\">" + inline_html(table.caption) + "</p>\n";
  return out;
}

std::string render_html(const Document& document) {
  const std::string title = xml_escape(printable(document.title));
  std::string out = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
)";
  out += "<title>" + title + "</title>\n<style>\n" + svg_colours() + svg_rules() + std::string(html_style()) +
         "</style>\n</head>\n<body>\n<main>\n";
  if (!title.empty()) out += "<h1>" + title + "</h1>\n";
  for (const DocumentPart& part : document.parts) out += std::visit(HtmlParts{}, part);
  out += "</main>\n<script>\n" + std::string(html_script()) + "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace fathom
