// --save FILE.svg, FILE.png, FILE.gp: the plots of a report as files of their own, in the folder FILE_plots beside it.
#pragma once

#include <string>

#include "reports/document.hpp"

namespace fathom {

// The folder for the plots of `path` as a file beside it would name it, with a slash: "report.md" -> "report_plots/".
std::string plot_folder_of(const std::string& path);

bool is_plot_format(const std::string& extension);  // svg, png, gp

// Writes every plot of the document: svg by our own renderer, gp as gnuplot scripts with their data, png by running gnuplot. Throws
// Error(kInput) when there is no plot, Error(kEnvironment) when gnuplot is not there or a file cannot be written. Routing maps have no script.
void save_plots(const std::string& path, const std::string& extension, const Document& document);
// One line on stderr: where they are, since no file of the name that was typed comes to be.
void tell_plots(const std::string& path, const std::string& extension);

}  // namespace fathom
