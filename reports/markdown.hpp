// GitHub-flavoured Markdown, with plots as SVG files beside it.
#pragma once

#include <string>
#include <vector>

#include "reports/document.hpp"

namespace fathom {

struct MarkdownOptions {
  // Where the document's plots lie, relative to the Markdown file ("plots/"); a plot is then an image "plots/KEY.svg".
  // Empty: plots are drawn with characters in a code block, and the document is one file.
  std::string plot_folder;
};

std::string render_markdown(const Document& document, const MarkdownOptions& options = {});
// A page has some ten columns' room: of a wider table those with the highest priority number are left out and named, unless it is `wide`.
std::string render_markdown(const ReportTable& table);

// The files that render_markdown with a plot folder refers to: name ("roofline.svg") and content.
struct PlotFile {
  std::string name;
  std::string content;
};
std::vector<PlotFile> plot_files(const Document& document);

}  // namespace fathom
