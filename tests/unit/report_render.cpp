// Golden texts of the renderers, and the laws they keep at every width.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <sstream>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/csv.hpp"
#include "reports/html.hpp"
#include "reports/markdown.hpp"
#include "reports/svg.hpp"
#include "reports/record_tables.hpp"
#include "reports/text.hpp"
#include "reports/utf8.hpp"
#include "tests/unit/report_sample.hpp"

using namespace fathom;

namespace {

ReportTable small() {
  ReportTable table("ops", "Ops");
  table.add_column("path");
  table.add_column("flops_matmul").exact = true;
  table.add_column("predicted_s");
  table.add_column("measured_s");
  table.add_column("verdict");
  table.add_row({Cell::text("layers.00/up"), Cell::count(u128{5435817984}), Cell::number(0.0327), Cell::number(0.0329),
                 Cell::text("within")});
  table.add_row({Cell::text("a,b \"c\"|d"), Cell::count(parse_u128("18446744073709551616")), Cell::number(9e-6),
                 Cell::status("no device was found here"), Cell::text("skipped")});
  table.add_row({Cell::text("total"), Cell(), Cell::number(0.032709), Cell(), Cell()}, true);
  return table;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("terminal table, golden", "[reports]") {
  CHECK(render_text(small(), {100, false, false}) == R"(Ops
op                           matmul FLOP  predicted  measured  verdict
------------  --------------------------  ---------  --------  -------
layers.00/up               5,435,817,984   32.70 ms  32.90 ms  within
a,b "c"|d     18,446,744,073,709,551,616   9.000 us   n/a [1]  skipped
------------  --------------------------  ---------  --------  -------
total                                      32.71 ms
[1] no device was found here
)");
}

TEST_CASE("narrow terminals drop the least important columns and say so", "[reports]") {
  CHECK(render_text(small(), {48, false, false}) == R"(Ops
op            predicted  measured  verdict
------------  ---------  --------  -------
layers.00/up   32.70 ms  32.90 ms  within
a,b "c"|d      9.000 us   n/a [1]  skipped
------------  ---------  --------  -------
total          32.71 ms
[1] no device was found here
not shown at 48 columns: matmul FLOP
)");
}

TEST_CASE("what names a row goes after the figures, and what is the same in every row before them", "[reports]") {
  std::vector<Figures> rows(2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].set("model", Cell::text("gpt2-124m"));
    rows[i].set("part", Cell::text(i == 0 ? "projections" : "core"));
    rows[i].set("predicted_s", Cell::number(0.001));
    rows[i].set("measured_s", Cell::number(0.002));
    rows[i].set("share", Cell::number(0.5));
    rows[i].set("flops_matmul", Cell::count(1000000));
  }
  const ReportTable table = make_table("by-part", "", rows, {"model", "part"}, {"predicted_s", "measured_s", "share", "flops_matmul"});
  // 9 + 11 + 9 + 8 + 7 + 12 columns and 5 gaps of 2: 66.
  CHECK(render_text(table, {66, false, false}).find("gpt2-124m") != std::string::npos);
  for (const int width : {48, 40, 30, 22}) {
    const std::string text = render_text(table, {width, false, false});
    CAPTURE(width, text);
    CHECK(text.find("gpt2") == std::string::npos);
    CHECK(text.find("core") != std::string::npos);
    CHECK(text.find("1.000 ms") != std::string::npos);
  }
}

TEST_CASE("no line is wider than the terminal, whatever the width", "[reports]") {
  const Document report = sample::document();
  for (int width = 20; width <= 200; ++width) {
    for (const bool unicode : {false, true}) {
      for (const std::string& line : lines_of(render_text(report, {width, false, unicode}))) {
        if (line.find("fathom compare") != std::string::npos) continue;  // commands are kept whole
        if (display_width(line) > width) FAIL(width << ": " << line);
      }
    }
  }
}

TEST_CASE("random tables keep the width and lose no row", "[reports]") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    ReportTable table("t", "");
    const unsigned columns = 1 + random() % 8;
    for (unsigned c = 0; c < columns; ++c) {
      table.add_column({"c" + std::to_string(c), std::string(1 + random() % 14, 'h'),
                        random() % 2 ? Unit::kText : Unit::kSeconds, static_cast<int>(random() % 4), 4, false});
    }
    const unsigned rows = 1 + random() % 5;
    for (unsigned r = 0; r < rows; ++r) {
      std::vector<Cell> cells;
      for (unsigned c = 0; c < columns; ++c) {
        cells.push_back(table.columns[c].unit == Unit::kText ? Cell::text(std::string(random() % 30, 'w'))
                                                             : Cell::number(random() * 1e-9));
      }
      table.add_row(std::move(cells));
    }
    const int width = 20 + static_cast<int>(random() % 100);
    const auto lines = lines_of(render_text(table, {width, false, true}));
    for (const std::string& line : lines) REQUIRE(display_width(line) <= width);
    REQUIRE(lines.size() >= rows + 2);
  }
}

TEST_CASE("colour adds attributes and changes nothing else", "[reports]") {
  const std::string plain = render_text(small(), {100, false, true});
  std::string coloured = render_text(small(), {100, true, true});
  CHECK(coloured.find("\x1b[32m") != std::string::npos);
  std::string stripped;
  for (std::size_t i = 0; i < coloured.size(); ++i) {
    if (coloured[i] == '\x1b') {
      i = coloured.find('m', i);
    } else {
      stripped += coloured[i];
    }
  }
  const auto a = lines_of(plain), b = lines_of(stripped);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(pad_right(a[i], 100) == pad_right(b[i], 100));
}

TEST_CASE("previews say how many rows follow; totals stay", "[reports]") {
  ReportTable table = small();
  table.preview_rows = 1;
  const std::string text = render_text(table, {100, false, false});
  CHECK(text.find("layers.00/up") != std::string::npos);
  CHECK(text.find("a,b") == std::string::npos);
  CHECK(text.find("total") != std::string::npos);
  CHECK(text.find("and 1 more row") != std::string::npos);
  CHECK(render_csv(table).find("a,b") != std::string::npos);
}

TEST_CASE("markdown table, golden", "[reports]") {
  CHECK(render_markdown(small()) == R"(**Ops**

| op | matmul FLOP | predicted | measured | verdict |
|---|---:|---:|---:|---|
| layers.00/up | 5,435,817,984 | 32.70 ms | 32.90 ms | within |
| a,b "c"\|d | 18,446,744,073,709,551,616 | 9.000 us | n/a \[1\] | skipped |
| **total** |  | **32.71 ms** |  |  |

\[1\] no device was found here
)");
}

TEST_CASE("markdown escapes what GitHub would take for markup", "[reports]") {
  Document report;
  report.title = "a_b *c* <script>";
  report.paragraph("# not a heading, 2 < 3, `code_with_*stars*`, [x](y), _z_");
  report.paragraph("1. not a list");
  report.warning("`x` is odd");
  report.code("a ``` b");
  CHECK(render_markdown(report) == R"(# a_b \*c\* &lt;script>

\# not a heading, 2 &lt; 3, `code_with_*stars*`, \[x\](y), \_z\_

1\. not a list

> [!WARNING]
> `x` is odd

````
a ``` b
````
)");
}

TEST_CASE("CSV, golden: RFC 4180, all digits, missing numbers empty with a reason", "[reports]") {
  CHECK(render_csv(small()) ==
        "path,flops_matmul,predicted_s,measured_s,verdict,status\r\n"
        "layers.00/up,5435817984,0.0327,0.0329,within,\r\n"
        "\"a,b \"\"c\"\"|d\",18446744073709551616,9e-06,,skipped,measured_s: no device was found here\r\n");
  ReportTable odd("odd", "");
  odd.add_column({"k", "k", Unit::kText, 0, 4, false});
  odd.add_row({Cell::text("two\nlines")});
  odd.add_row({Cell::text(" blank ")});
  odd.add_row({Cell::text("\xff")});
  CHECK(render_csv(odd, "\n") == "k,status\n\"two\nlines\",\n\" blank \",\n\xef\xbf\xbd,\n");
}

TEST_CASE("JSON rows, golden", "[reports]") {
  JsonWriter writer(0);
  write_table(writer, small());
  CHECK(writer.finish() ==
        "[{\"path\":\"layers.00/"
        "up\",\"flops_matmul\":5435817984,\"predicted_s\":0.0327,\"measured_s\":0.0329,\"verdict\":\"within\"},"
        "{\"path\":\"a,b \\\"c\\\"|d\",\"flops_matmul\":18446744073709551616,\"predicted_s\":9e-06,\"measured_s\":null,"
        "\"verdict\":\"skipped\",\"status\":{\"measured_s\":\"no device was found here\"}}]\n");
}

TEST_CASE("HTML table, golden row", "[reports]") {
  const std::string html = render_html(small());
  CHECK(html.find("<tr><td class=\"p\">layers.00/<wbr>up</td><td class=\"n\" data-v=\"5435817984\">5,435,817,984</td>"
                  "<td class=\"n\" data-v=\"0.0327\" title=\"0.0327 s\">32.70 ms</td><td class=\"n\" data-v=\"0.0329\" "
                  "title=\"0.0329 s\">32.90 ms</td><td class=\"k v-within\">within</td></tr>") != std::string::npos);
  CHECK(html.find("<td class=\"n s\" title=\"no device was found here\">n/a [1]</td>") != std::string::npos);
  CHECK(html.find("</table></div>\n<p class=\"caption\">[1] no device was found here</p>") != std::string::npos);
  CHECK(html.find("<tfoot>\n<tr><td class=\"k\">total</td>") != std::string::npos);
}

TEST_CASE("HTML: what rows share stands above them, and in each of them once the table is sorted", "[reports]") {
  ReportTable table("t", "");
  table.add_column("model");
  table.add_column("batch");
  table.add_column("measured_s");
  table.group = 1;
  for (const char* model : {"a", "b"})
    for (unsigned batch : {1U, 2U}) table.add_row({Cell::text(model), Cell::count(u128{batch}), Cell::number(0.5)}, batch == 2);
  const std::string html = render_html(table);
  CHECK(html.find("<table class=\"sortable grouped\" id=\"t-t\">") != std::string::npos);
  CHECK(html.find("<th scope=\"col\" class=\"gc\">model</th><th scope=\"col\" class=\"n h\">batch</th>") != std::string::npos);
  const std::string group = "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"2\"><span>a</span></th></tr>\n<tr><td class=\"k gc\">a</td><td class=\"n h\" data-v=\"1\">1</td>";
  CHECK(html.find(group) != std::string::npos);
  CHECK(html.find("</tbody>\n<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"2\"><span>b</span>") != std::string::npos);
  CHECK(html.find("<tr class=\"total\"><td class=\"k gc\">a</td>") != std::string::npos);  // a sum stays with its group
  CHECK(html.find("<tfoot>") == std::string::npos);
}

TEST_CASE("HTML: a path breaks at its slashes, a sentence with a slash at its spaces", "[reports]") {
  ReportTable table("t", "");
  table.add_column({"x", "x", Unit::kText, 0, 4, false});
  table.add_row({Cell::text("half of the blocks and a capacity of 1/8, which is long")});
  table.add_row({Cell::text("2048 rows, 9/9 heads x 64")});
  const std::string html = render_html(table);
  CHECK(html.find("<td class=\"w\">half of the blocks and a capacity of 1/8, which") != std::string::npos);
  CHECK(html.find("<td class=\"k\">2048 rows, 9/9 heads x 64</td>") != std::string::npos);
}

TEST_CASE("SVG titles stay inside the drawing: moved left, then condensed", "[reports]") {
  BarPlot plot;
  plot.categories = {"a category with a long name"};  // bars begin far from the left edge
  plot.series = {{"s", {1}}};
  plot.title = "short";
  CHECK(render_svg(plot, {700, false, 0}).find("textLength") == std::string::npos);
  plot.title = std::string(60, 'w');  // 60 * 0.56 * 14 * 1.1 = 517
  CHECK(render_svg(plot, {700, false, 0}).find("x=\"172.56\" y=\"20\"") != std::string::npos);  // 700 - 10 - 517.44
  CHECK(render_svg(plot, {340, false, 0}).find("textLength=\"320\"") != std::string::npos);
}

TEST_CASE("hostile text cannot leave its place in HTML or the terminal", "[reports]") {
  Document report;
  report.title = "</title><script>alert(1)</script>";
  ReportTable table("\"><img>", "<b>");
  table.add_column({"x\"y", "<i>", Unit::kText, 0, 4, false});
  table.add_row({Cell::text("<script>alert('x')</script>`</td>`\x1b[2J")});
  report.add(table);
  const std::string html = render_html(report);
  CHECK(html.find("<script>alert") == std::string::npos);
  CHECK(html.find("<img>") == std::string::npos);
  CHECK(html.find("<i>") == std::string::npos);
  CHECK(html.find('\x1b') == std::string::npos);
  CHECK(render_text(report, {80, false, false}).find('\x1b') == std::string::npos);
}

TEST_CASE("bars, golden", "[reports]") {
  // 41 columns for 1.685 s; parts end at their rounded running sums: 0.62 -> 15.1, 1.14 -> 27.7, 1.56 -> 38.0.
  CHECK(render_text(sample::where_time_goes(), {60, false, false}) == R"(Where the time goes
dense-60m ###############=============++++++++++%%% 1.685 s
mod-60m   #########========+++++++-%%%%% 1.232 s
# projections  = attention core  + MLP  - router and gather
% logits and loss
Measured, per step.
)");
}

TEST_CASE("routing map on a terminal, golden", "[reports]") {
  RoutingMap map = sample::routing();
  map.frames.resize(1);
  map.caption.clear();
  CHECK(render_text(map, {50, false, false}) == R"(Routing map
capacity 1/2
block 7 #..#.#.##.#. 50.0 %
block 6 ============   full
block 5 .#.#.##.#.#. 50.0 %
block 4 ============   full
block 3 .#.##.#.#..# 50.0 %
block 2 ============   full
block 1 .##.#.#..#.# 50.0 %
block 0 ============   full
# processed  . skipped  = full block (not routed)
)");
}

TEST_CASE("tables and plots refuse what does not fit together", "[reports]") {
  ReportTable table("t", "");
  table.add_column("path");
  CHECK_THROWS_AS(table.add_column("path"), Error);
  CHECK_THROWS_AS(table.add_column("no_such_column"), Error);
  CHECK_THROWS_AS(table.add_row({}), Error);
  BarPlot bars = sample::errors();
  bars.series[0].values.pop_back();
  CHECK_THROWS_AS(render_text(bars, TextOptions{}), Error);
  RoutingMap map = sample::routing();
  map.frames[0].states[2].pop_back();
  CHECK_THROWS_AS(render_svg(map), Error);
}
