#include "reports/text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/format.hpp"
#include "reports/text_style.hpp"
#include "reports/utf8.hpp"

namespace fathom {

std::string text_block(std::string_view text, int width, int indent) {
  std::string out;
  bool first = true;
  // The first line is as long as the others when the caller has put a prefix of `indent` columns before the text.
  for (const std::string& line : wrap(text, std::max(width - indent, 10))) {
    out += first ? "" : std::string(static_cast<std::size_t>(indent), ' ');
    out += line + "\n";
    first = false;
  }
  return out;
}

std::string cell_text(const Cell& cell, const ReportColumn& column) {
  if (column.exact && cell.exact() != nullptr) return grouped(*cell.exact());
  if (column.like > 0 && cell.is_number()) return format_time_like(cell.value(), column.like, column.digits);
  return printable(format_cell(cell, column.unit, column.digits));
}

std::string header_text(const ReportColumn& column) {
  const std::string_view symbol = unit_symbol(column.unit);
  if (!column.exact || symbol.empty() || column.label.find(symbol) != std::string::npos) return column.label;
  return fmt::format("{} ({})", column.label, symbol);
}

std::string render_text(const KeyValues& list, const TextOptions& options) {
  const int width = std::max(options.width, 20);
  std::string out;
  if (!list.title.empty()) out += bold(list.title, options) + "\n";
  int label_width = 0;
  for (const KeyValues::Item& item : list.items) label_width = std::max(label_width, display_width(item.label));
  label_width = std::min(label_width, width / 2);
  for (const KeyValues::Item& item : list.items) {
    std::string value = printable(format_cell(item.value, item.unit));
    value += exact_in_brackets(item.value, item.unit);
    if (!item.source.empty()) value += "  [" + printable(item.source) + "]";
    out += pad_right(clip_middle(item.label, label_width), label_width) + "  " +
           text_block(without_ticks(value), width, label_width + 2);
  }
  return out;
}

namespace {

struct TextParts {
  const TextOptions& options;
  int width;

  std::string operator()(const Heading& heading) const {
    const std::string text = without_ticks(printable(heading.text));
    std::string out;
    for (const std::string& line : wrap(text, width)) out += bold(line, options) + "\n";
    const int rule = std::min(display_width(text), width);
    std::string mark = heading.level <= 2 ? (options.unicode ? "─" : "-") : "";
    if (!mark.empty()) {
      for (int i = 0; i < rule; ++i) out += mark;
      out += "\n";
    }
    return out;
  }
  std::string operator()(const Paragraph& paragraph) const {
    return text_block(without_ticks(printable(paragraph.text)), width);
  }
  std::string operator()(const CodeBlock& code) const {
    std::string out;  // verbatim, so that it can be copied; not wrapped
    std::size_t at = 0;
    while (at < code.text.size()) {
      const std::size_t end = std::min(code.text.find('\n', at), code.text.size());
      out += "  " + printable(code.text.substr(at, end - at)) + "\n";
      at = end + 1;
    }
    return out;
  }
  std::string operator()(const Note& note) const {
    const char* word = note.severity == Note::Severity::kWarning   ? "warning"
                       : note.severity == Note::Severity::kSkipped ? "skipped"
                                                                   : "note";
    const std::string prefix = std::string(word) + ": ";
    return (note.severity == Note::Severity::kNote ? prefix : yellow(prefix, options)) +
           text_block(without_ticks(printable(note.text)), width, display_width(prefix));
  }
  template <class Part>
  std::string operator()(const Part& part) const {
    return render_text(part, options);
  }
};

}  // namespace

std::string render_text(const Document& document, const TextOptions& options) {
  const TextParts parts{options, std::max(options.width, 20)};
  std::string out;
  if (!document.title.empty()) {
    for (const std::string& line : wrap(printable(document.title), parts.width)) out += bold(line, options) + "\n";
  }
  const Note* last_note = nullptr;
  for (const DocumentPart& part : document.parts) {
    const Note* note = std::get_if<Note>(&part);
    // Notes stand together; everything else is set off by an empty line.
    if (!out.empty() && !(note != nullptr && last_note != nullptr)) out += "\n";
    out += std::visit(parts, part);
    last_note = note;
  }
  return out;
}

}  // namespace fathom
