// Writes the sample report in every format under the build folder, for tests/cli/report_files.py to read back with
// other programs (XML parser, csv and JSON modules, gnuplot) and for looking at.
#include <catch2/catch.hpp>

#include "reports/csv.hpp"
#include "reports/gnuplot.hpp"
#include "reports/html.hpp"
#include "reports/markdown.hpp"
#include "reports/save.hpp"
#include "reports/text.hpp"
#include "tests/unit/report_sample.hpp"

using namespace fathom;

TEST_CASE("the sample report in every format", "[reports][report_files]") {
  const std::string folder = FATHOM_BINARY_DIR "/report_sample/";
  const Document report = sample::document();
  save_file(folder + "report.html", render_html(report));
  save_file(folder + "report.md", render_markdown(report, {"plots/"}));
  save_file(folder + "one_file.md", render_markdown(report));
  save_file(folder + "report.txt", render_text(report, {100, false, true}));
  save_file(folder + "narrow.txt", render_text(report, {40, false, false}));
  for (const PlotFile& file : plot_files(report)) save_file(folder + "plots/" + file.name, file.content);
  save_file(folder + "ops.csv", render_csv(table_of(report, "ops")));
  JsonWriter writer;
  write_table(writer, table_of(report, "ops"));
  save_file(folder + "ops.json", writer.finish());
  save_file(folder + "scatter.gp", gnuplot_script(sample::scatter()));
  save_file(folder + "decode.gp", gnuplot_script(sample::latency()));
  save_file(folder + "time.gp", gnuplot_script(sample::where_time_goes()));
  save_file(folder + "errors.gp", gnuplot_script(sample::errors()));
  save_file(folder + "map.gp", gnuplot_script(sample::routing()));
  CHECK(load_file(folder + "report.html").find("http://") == std::string::npos);
  CHECK(load_file(folder + "report.html").find("https://") == std::string::npos);
  CHECK_THROWS(table_of(report, "opps"));
}
