// One self-contained HTML file: no network, readable on a phone and in dark mode, sortable tables.
#pragma once

#include <string>

#include "reports/document.hpp"

namespace fathom {

// A complete page. Style, script and plots are inline, and a content security policy forbids loading anything. Every
// plot is drawn twice, for wide and narrow screens. Hovering a number shows its exact value. Without JavaScript
// everything but sorting works.
std::string render_html(const Document& document);

// A self-contained fragment for one table, used by render_html.
std::string render_html(const ReportTable& table);

}  // namespace fathom
