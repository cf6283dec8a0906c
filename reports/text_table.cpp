// Tables on a terminal: which columns fit, how wide each is, and how cells are broken.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "reports/footnotes.hpp"
#include "reports/text.hpp"
#include "reports/text_style.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

constexpr int kGap = 2;
constexpr int kMinText = 8;

struct Layout {
  std::vector<std::size_t> shown;  // column indices
  std::vector<int> widths;         // per shown column
  std::vector<std::size_t> dropped;
};

int total_width(const std::vector<std::size_t>& shown, const std::vector<int>& natural) {
  int total = shown.empty() ? 0 : kGap * (static_cast<int>(shown.size()) - 1);
  for (const std::size_t column : shown) total += natural[column];
  return total;
}

// Takes `excess` columns from the widest text columns, none below kMinText; returns what is left to take.
int shrink(const ReportTable& table, const std::vector<std::size_t>& shown, std::vector<int>& widths, int excess) {
  while (excess > 0) {
    int* widest = nullptr;
    for (const std::size_t column : shown) {
      if (is_numeric(table.columns[column].unit) || widths[column] <= kMinText) continue;
      if (widest == nullptr || widths[column] > *widest) widest = &widths[column];
    }
    if (widest == nullptr) return excess;
    --*widest;
    --excess;
  }
  return 0;
}

Layout fit(const ReportTable& table, const std::vector<int>& natural, int width) {
  Layout layout;
  layout.shown.resize(table.columns.size());
  std::iota(layout.shown.begin(), layout.shown.end(), std::size_t{0});
  std::vector<int> widths = natural;
  const auto drop = [&](std::vector<std::size_t>::iterator at) {
    layout.dropped.push_back(*at);
    layout.shown.erase(at);
  };
  // A long text column gives way a little (to 24 columns) before any column is dropped, fully afterwards.
  const auto too_wide = [&](int text_floor) {
    int total = kGap * (static_cast<int>(layout.shown.size()) - 1);
    for (const std::size_t c : layout.shown)
      total += is_numeric(table.columns[c].unit) ? natural[c] : std::min(natural[c], text_floor);
    return total > width;
  };
  while (layout.shown.size() > 1 && too_wide(24)) {
    auto worst = layout.shown.begin();
    for (auto at = layout.shown.begin(); at != layout.shown.end(); ++at) {
      if (table.columns[*at].priority >= table.columns[*worst].priority) worst = at;
    }
    if (table.columns[*worst].priority <= 0) break;
    drop(worst);
  }
  // Dropping a wide column may have made room for narrower ones that went before it.
  std::vector<std::size_t> again = layout.dropped;
  std::sort(again.begin(), again.end());
  std::stable_sort(again.begin(), again.end(),
                   [&](std::size_t a, std::size_t b) { return table.columns[a].priority < table.columns[b].priority; });
  for (const std::size_t column : again) {
    const std::vector<std::size_t> before = layout.shown;
    layout.shown.insert(std::upper_bound(layout.shown.begin(), layout.shown.end(), column), column);
    if (too_wide(24)) {
      layout.shown = before;
    } else {
      std::erase(layout.dropped, column);
    }
  }
  int excess = shrink(table, layout.shown, widths, total_width(layout.shown, widths) - width);
  while (excess > 0 && layout.shown.size() > 1) {  // even the essential columns do not fit: the last go too, names of rows (below 0) after all figures but one
    auto worst = layout.shown.begin();
    const auto figures = std::count_if(layout.shown.begin(), layout.shown.end(), [&](std::size_t c) { return table.columns[c].priority >= 0; });
    for (auto at = layout.shown.begin(); at != layout.shown.end(); ++at) {
      const bool only = figures == 1 && table.columns[*at].priority >= 0;
      const bool worst_only = figures == 1 && table.columns[*worst].priority >= 0;
      if (!only && (worst_only || table.columns[*at].priority >= table.columns[*worst].priority)) worst = at;
    }
    drop(worst);
    widths = natural;
    excess = shrink(table, layout.shown, widths, total_width(layout.shown, widths) - width);
  }
  for (const std::size_t column : layout.shown) layout.widths.push_back(std::min(widths[column], width));
  std::sort(layout.dropped.begin(), layout.dropped.end());
  return layout;
}

// Prose is wrapped, a path or a number keeps one line.
std::vector<std::string> cell_lines(const std::string& text, int width) {
  if (display_width(text) <= width) return {text};
  if (text.find(' ') == std::string::npos) return {clip_middle(text, width)};
  return wrap(text, width);
}

std::string rtrim(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string render_text(const ReportTable& table, const TextOptions& options) {
  const int width = std::max(options.width, 20);
  const std::size_t columns = table.columns.size();
  std::size_t limit = table.rows.size(), hidden = 0;
  if (table.preview_rows > 0) {
    limit = 0;
    std::size_t plain = 0;
    for (const ReportTable::Row& row : table.rows) plain += row.total ? 0 : 1;
    limit = std::min(plain, static_cast<std::size_t>(table.preview_rows));
    hidden = plain - limit;
  }
  Footnotes footnotes;
  std::vector<std::vector<std::string>> texts;
  std::vector<const ReportTable::Row*> rows;
  std::size_t taken = 0;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const ReportTable::Row& row = table.rows[r];
    if (!row.total && taken++ >= limit) continue;
    std::vector<std::string> line;
    for (std::size_t c = 0; c < columns; ++c) line.push_back(c < table.group && repeats_group(table, r) ? "" : without_ticks(footnotes.shown(row.cells[c], table.columns[c])));
    texts.push_back(std::move(line));
    rows.push_back(&row);
  }
  std::vector<int> natural(columns, 1);
  for (std::size_t c = 0; c < columns; ++c) {
    natural[c] = std::max(1, display_width(header_text(table.columns[c])));
    for (const auto& line : texts) natural[c] = std::max(natural[c], display_width(line[c]));
  }
  const Layout layout = fit(table, natural, width);

  const auto emit = [&](const std::vector<std::string>& line, auto&& style) {
    std::vector<std::vector<std::string>> broken;
    std::size_t height = 1;
    for (std::size_t i = 0; i < layout.shown.size(); ++i) {
      broken.push_back(cell_lines(line[layout.shown[i]], layout.widths[i]));
      height = std::max(height, broken.back().size());
    }
    std::string out;
    for (std::size_t h = 0; h < height; ++h) {
      std::string text;
      for (std::size_t i = 0; i < layout.shown.size(); ++i) {
        const ReportColumn& column = table.columns[layout.shown[i]];
        const std::string part = h < broken[i].size() ? broken[i][h] : "";
        const std::string padded =
            is_numeric(column.unit) ? pad_left(part, layout.widths[i]) : pad_right(part, layout.widths[i]);
        if (i > 0) text += std::string(kGap, ' ');
        text += style(padded, column);
      }
      out += rtrim(text) + "\n";
    }
    return out;
  };
  const auto as_header = [&](const std::string& text, const ReportColumn&) { return bold(text, options); };
  const auto as_cell = [&](const std::string& text, const ReportColumn& column) {
    return column.key == "verdict" ? verdict_colour(text, options) : text;
  };

  std::string out;
  if (!table.title.empty()) out += bold(table.title, options) + "\n";
  std::vector<std::string> headers;
  for (const ReportColumn& column : table.columns) headers.push_back(header_text(column));
  out += emit(headers, as_header);
  const std::string dash = options.unicode ? "─" : "-";
  std::string rule;
  for (std::size_t i = 0; i < layout.shown.size(); ++i) {
    if (i > 0) rule += std::string(kGap, ' ');
    for (int k = 0; k < layout.widths[i]; ++k) rule += dash;
  }
  out += dim(rule, options) + "\n";
  bool above_total = true;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r]->total && above_total && r > 0) out += dim(rule, options) + "\n";
    above_total = !rows[r]->total;
    out += emit(texts[r], as_cell);
  }
  std::vector<std::string> remarks = footnotes.lines();
  if (hidden > 0) remarks.push_back(fmt::format("and {} more rows (-o csv has all)", hidden));
  if (!layout.dropped.empty()) {
    std::string names;
    for (const std::size_t column : layout.dropped) names += (names.empty() ? "" : ", ") + table.columns[column].label;
    remarks.push_back(fmt::format("not shown at {} columns: {}", width, names));
  }
  if (!table.caption.empty()) remarks.push_back(without_ticks(printable(table.caption)));
  for (const std::string& remark : remarks) {
    for (const std::string& line : wrap(remark, width)) out += dim(line, options) + "\n";
  }
  return out;
}

}  // namespace fathom
