// The terminal renderer: aligned tables that fit the width, bars and small plots, optional colour.
#pragma once

#include <string>

#include "reports/document.hpp"

namespace fathom {

struct TextOptions {
  int width = 100;      // columns; at least 20 are assumed
  bool colour = false;  // ANSI attributes; tools/ decides by terminal, NO_COLOR and --color
  bool unicode = true;  // box and block characters; false: ASCII only in what is drawn
};

// No line is wider than options.width columns. Columns that do not fit are dropped, highest priority number first, and
// named below the table.
std::string render_text(const Document& document, const TextOptions& options = {});

// The parts, for commands that print one.
std::string render_text(const ReportTable& table, const TextOptions& options);
std::string render_text(const KeyValues& list, const TextOptions& options);
std::string render_text(const XyPlot& plot, const TextOptions& options);
std::string render_text(const BarPlot& plot, const TextOptions& options);
std::string render_text(const RoutingMap& map, const TextOptions& options);

// Lines of at most `width` columns, each ending in a newline; `indent` spaces before the second and later ones.
std::string text_block(std::string_view text, int width, int indent = 0);

// `cell` as people read it in this column; exact columns are grouped integers. Used by the Markdown and HTML tables
// too.
std::string cell_text(const Cell& cell, const ReportColumn& column);
// The column's header: its label, with the unit where the cells do not carry it.
std::string header_text(const ReportColumn& column);

}  // namespace fathom
