#include "tools/plot_output.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "lib/error.hpp"
#include "reports/gnuplot.hpp"
#include "reports/markdown.hpp"
#include "reports/save.hpp"
#include "reports/utf8.hpp"
#include "tools/terminal.hpp"

namespace fathom {
namespace {

// gnuplot draws KEY.png from KEY.gp in that folder.
void run_gnuplot(const std::filesystem::path& folder, const std::string& script) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw Error(ErrorKind::kEnvironment, "cannot start gnuplot");
  if (child == 0) {
    if (folder.empty() || chdir(folder.c_str()) == 0) execlp("gnuplot", "gnuplot", "-e", "format='png'", script.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) throw Error(ErrorKind::kEnvironment, "PNG is drawn by gnuplot, which is not installed", {}, "install gnuplot-nox, or save as .svg");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error(ErrorKind::kEnvironment, fmt::format("gnuplot could not draw {}", (folder / script).string()));
}

}  // namespace

std::string plot_folder_of(const std::string& path) { return std::filesystem::path(path).stem().string() + "_plots/"; }

bool is_plot_format(const std::string& extension) { return extension == "svg" || extension == "png" || extension == "gp"; }

void save_plots(const std::string& path, const std::string& extension, const Document& document) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path() / plot_folder_of(path);
  int saved = 0;
  if (extension == "svg") {
    for (const PlotFile& plot : plot_files(document)) {
      save_file((folder / plot.name).string(), plot.content);
      ++saved;
    }
  } else {
    for (const DocumentPart& part : document.parts) {
      std::string key, script;
      if (const auto* xy = std::get_if<XyPlot>(&part)) key = xy->key, script = gnuplot_script(*xy);
      if (const auto* bars = std::get_if<BarPlot>(&part)) key = bars->key, script = gnuplot_script(*bars);
      if (const auto* map = std::get_if<RoutingMap>(&part)) key = map->key, script = gnuplot_script(*map);
      if (key.empty()) continue;
      save_file((folder / (key + ".gp")).string(), script);
      if (extension == "png") run_gnuplot(folder, key + ".gp");
      ++saved;
    }
  }
  if (saved == 0) throw_input(fmt::format("this report has no plot for '{}'", path), {"", 0, "--save"}, "per-op figures make plots: save the report of predict, run or compare");
}

void tell_plots(const std::string& path, const std::string& extension) {
  tell(fmt::format("fathom: plots are files of their own: wrote {}\n", printable((std::filesystem::path(path).parent_path() / plot_folder_of(path) / ("*." + extension)).string())));
}

}  // namespace fathom
