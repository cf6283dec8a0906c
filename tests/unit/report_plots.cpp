// Axes and plots: round ticks that cover the data, and drawings that stay whole whatever the numbers are.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <sstream>

#include "lib/op.hpp"
#include "reports/columns.hpp"
#include "reports/gnuplot.hpp"
#include "reports/json_writer.hpp"
#include "reports/part_looks.hpp"
#include "reports/routing_grid.hpp"
#include "reports/scale.hpp"
#include "reports/svg.hpp"
#include "reports/text.hpp"
#include "reports/utf8.hpp"
#include "tests/unit/report_sample.hpp"

using namespace fathom;

namespace {

std::vector<std::string> labels(const Scale& scale) {
  std::vector<std::string> out;
  for (const Scale::Tick& tick : scale.ticks) out.push_back(tick.label);
  return out;
}

using Labels = std::vector<std::string>;

// A number from any decade, sometimes one that cannot be drawn.
double any_number(std::mt19937& random) {
  switch (random() % 12) {
    case 0:
      return 0;
    case 1:
      return -1.0 * (random() % 1000);
    case 2:
      return std::nan("");
    case 3:
      return std::numeric_limits<double>::infinity();
    case 4:
      return std::numeric_limits<double>::denorm_min();
    case 5:
      return std::numeric_limits<double>::max();
    default:
      return std::pow(10.0, static_cast<double>(random() % 4000) / 100 - 20);
  }
}

void check_drawing(const std::string& svg) {
  CHECK(svg.find("\"nan") == std::string::npos);
  CHECK(svg.find("nan ") == std::string::npos);
  CHECK(svg.find("inf\"") == std::string::npos);
  CHECK(svg.find("inf ") == std::string::npos);
  CHECK(svg.size() < 2'000'000);
}

}  // namespace

TEST_CASE("linear axes: round steps, one prefix in the title", "[reports]") {
  const Scale time = make_scale({"time", Unit::kSeconds, false}, {0.0061, 0.0131}, 5);
  CHECK(labels(time) == Labels{"0", "5", "10", "15"});  // 6.1 is below 0.6 of 13.1, so the axis starts at zero
  CHECK(time.title == "time (ms)");
  const Scale error = make_scale({"error", Unit::kPercent, false}, {0.034, 0.31}, 6, true);
  CHECK(labels(error) == Labels{"0", "10", "20", "30", "40"});
  CHECK(error.title == "error (%)");
  const Scale close = make_scale({"ratio", Unit::kRatio, false}, {0.93, 1.04}, 5);
  CHECK(labels(close) == Labels{"0.925", "0.950", "0.975", "1.000", "1.025", "1.050"});
}

TEST_CASE("log axes: decades with their own prefix, powers of two for batch sizes", "[reports]") {
  const Scale time = make_scale({"time", Unit::kSeconds, true}, {5e-6, 0.04}, 5);
  CHECK(labels(time) == Labels{"1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"});
  CHECK(time.position(1e-6) == Approx(0));
  CHECK(time.position(0.1) == Approx(1));
  CHECK(time.position(1e-3) == Approx(0.6));
  const Scale batch = make_scale({"batch", Unit::kCount, true}, {1, 2, 4, 8, 16, 32, 64}, 7);
  CHECK(labels(batch) == Labels{"1", "2", "4", "8", "16", "32", "64"});
  const Scale one = make_scale({"batch", Unit::kCount, true}, {8}, 5);
  CHECK(one.lo < 8);
  CHECK(one.hi > 8);
  CHECK_FALSE(time.drawable(0));
  CHECK_FALSE(time.drawable(-1));
}

TEST_CASE("an axis covers its values with few ascending ticks", "[reports]") {
  std::mt19937 random(17);
  for (int round = 0; round < 4000; ++round) {
    const PlotAxis axis{"x", random() % 2 ? Unit::kSeconds : Unit::kCount, random() % 2 == 0};
    std::vector<double> values;
    for (unsigned n = random() % 6; n > 0; --n) values.push_back(any_number(random));
    const int wanted = 2 + static_cast<int>(random() % 8);
    const Scale scale = make_scale(axis, values, wanted, random() % 2 == 0);
    REQUIRE(std::isfinite(scale.lo));
    REQUIRE(std::isfinite(scale.hi));
    REQUIRE(scale.lo < scale.hi);
    for (const double value : values) {
      if (!scale.drawable(value)) continue;
      REQUIRE(scale.position(value) >= -1e-6);
      REQUIRE(scale.position(value) <= 1 + 1e-6);
    }
    REQUIRE(!scale.ticks.empty());
    REQUIRE(scale.ticks.size() <= 3 * static_cast<std::size_t>(wanted) + 3);
    for (std::size_t i = 1; i < scale.ticks.size(); ++i) REQUIRE(scale.ticks[i - 1].value < scale.ticks[i].value);
  }
}

TEST_CASE("any numbers give whole drawings", "[reports]") {
  std::mt19937 random(23);
  for (int round = 0; round < 200; ++round) {
    XyPlot plot{
        "p", "Title",           "", {"x", Unit::kSeconds, random() % 2 == 0}, {"y", Unit::kSeconds, random() % 2 == 0},
        {},  random() % 2 == 0, 0.1};
    for (unsigned s = random() % 4; s > 0; --s) {
      PlotSeries series{"s", {}, random() % 2 == 0, random() % 2 == 0, random() % 2 == 0};
      for (unsigned n = random() % 6; n > 0; --n) {
        series.points.push_back({any_number(random), any_number(random), any_number(random), any_number(random), ""});
      }
      plot.series.push_back(series);
    }
    check_drawing(render_svg(plot, {random() % 2 ? 360 : 760, random() % 2 == 0, 0}));
    for (const bool unicode : {false, true}) {
      std::istringstream lines(render_text(plot, TextOptions{60, false, unicode}));
      for (std::string line; std::getline(lines, line);) REQUIRE(display_width(line) <= 60);
    }
    CHECK((gnuplot_script(plot).find("EOD\nset xlabel") != std::string::npos) == !plot.series.empty());
    BarPlot bars{"b", "", "", "value", Unit::kBytes, {"one", "two"}, {}, random() % 2 == 0};
    for (unsigned s = 1 + random() % 9; s > 0; --s)
      bars.series.push_back({"s", {any_number(random), any_number(random)}});
    check_drawing(render_svg(bars, {random() % 2 ? 360 : 760, false, 0}));
    render_text(bars, TextOptions{40, false, true});
    gnuplot_script(bars);
  }
}

TEST_CASE("a routing map groups tokens without losing one", "[reports]") {
  RoutingMap::Frame frame;
  using State = RoutingMap::State;
  frame.states = {std::vector<State>(10, State::kFull),
                  {State::kProcessed, State::kSkipped, State::kProcessed, State::kSkipped, State::kSkipped,
                   State::kSkipped, State::kProcessed, State::kProcessed, State::kProcessed, State::kProcessed}};
  const RoutingGrid grid = bucket(frame, 4);  // 10 tokens in cells of 3, 3, 3 and 1
  CHECK(grid.tokens_per_cell == 3);
  CHECK(grid.full[0]);
  CHECK_FALSE(grid.full[1]);
  REQUIRE(grid.shares[1].size() == 4);
  CHECK(grid.shares[1][0] == Approx(2.0 / 3));
  CHECK(grid.shares[1][1] == 0);
  CHECK(grid.shares[1][2] == 1);
  CHECK(grid.shares[1][3] == 1);
  CHECK(grid.participation[1] == Approx(0.6));
  CHECK(bucket(frame, 10).tokens_per_cell == 1);
}

TEST_CASE("a part of the model looks the same in every plot", "[reports]") {
  std::set<int> looks;
  std::set<std::string_view> fills;
  for (int p = 0; p < kPartCount; ++p) {
    const int look = part_look(part_name(static_cast<Part>(p)));
    INFO(part_name(static_cast<Part>(p)));
    CHECK(look < kOtherLook);  // each part has one of its own
    CHECK(looks.insert(look).second);
  }
  CHECK(part_look("other") == kOtherLook);
  for (const bool unicode : {false, true}) {
    fills.clear();
    for (int look = 0; look < kLooks; ++look) {
      CHECK(fills.insert(look_fill(look, unicode)).second);
      CHECK(display_width(look_fill(look, unicode)) == 1);
    }
  }
  // ffn is green alone and beside others, in SVG, gnuplot and on a terminal; a part of a colour's second half is hatched.
  BarPlot one{"k", "", "", "time", Unit::kSeconds, {"a"}, {{"ffn", {1.0}, part_look("ffn")}}, true, {}};
  BarPlot two = one;
  two.series = {{"core", {1.0}, part_look("core")}, {"kv_cache", {0.5}, part_look("kv_cache")}, {"ffn", {1.0}, part_look("ffn")}, {"other", {0.5}, kOtherLook}};
  for (const BarPlot* plot : {&one, &two}) {
    CHECK(render_svg(*plot).find("f seg c2") != std::string::npos);
    CHECK(gnuplot_script(*plot).find("lt 3 title 'ffn'") != std::string::npos);
    CHECK(render_text(*plot, {60, false, true}).find("▓▓▓") != std::string::npos);
  }
  CHECK(render_svg(one).find("class=\"ht\"") == std::string::npos);
  CHECK(render_svg(two).find("class=\"ht\"") != std::string::npos);
  CHECK(render_svg(two).find("f seg co") != std::string::npos);
  // On hatching a share stands in its colour's halo, on a plain bar without.
  CHECK(render_svg(one).find("class=\"in halo") == std::string::npos);
  CHECK(render_svg(two).find("class=\"in halo c1\">17 %<") != std::string::npos);  // .5 of 3
  CHECK(render_svg(two).find("class=\"in c2\">33 %<") != std::string::npos);
  CHECK(gnuplot_script(two).find("lt 2 fs pattern 5 title 'kv_cache'") != std::string::npos);
  check_drawing(render_svg(two));
}

TEST_CASE("labels of bars are whole, however narrow the page", "[reports]") {
  const std::string label = "mod-220m, decode, batch 128, context 4096, measured, op by op";
  const BarPlot plot{"k", "", "", "time", Unit::kSeconds, {label, "0.01234 to 0.05678"}, {{"t", {1.0, 2.0}}}, false, {}};
  for (const int width : {20, 40, 60, 100}) {
    std::string flat = render_text(plot, {width, false, true});
    for (std::size_t at = 0; (at = flat.find('\n', at)) != std::string::npos;) flat.replace(at, 1, " ");
    INFO(flat);
    CHECK(flat.find(label) != std::string::npos);
    CHECK(flat.find("0.01234 to 0.05678") != std::string::npos);
  }
  for (const int width : {360, 760}) CHECK(render_svg(plot, {width, false, 0}).find(">" + label + "</text>") != std::string::npos);
}

TEST_CASE("a routing map marks where the prompt ends", "[reports]") {
  using State = RoutingMap::State;
  RoutingMap map;
  map.key = "map";
  map.blocks = {"block 0"};
  map.frames = {{"", {{State::kProcessed, State::kSkipped, State::kProcessed, State::kSkipped, State::kSkipped}}, {}}};
  CHECK(render_text(map, {60, false, true}).find("▲") == std::string::npos);
  CHECK(render_svg(map).find("class=\"cut\"") == std::string::npos);
  map.prompt = 3;
  // Below token 3: behind the label of seven columns and a blank.
  CHECK(render_text(map, {60, false, true}).find("\n" + std::string(8 + 3, ' ') + "▲\n") != std::string::npos);
  CHECK(render_text(map, {60, false, false}).find("^ from token 3 on: generated") != std::string::npos);
  const std::string svg = render_svg(map);
  CHECK(svg.find("class=\"cut\"") != std::string::npos);
  CHECK(svg.find(">generated") != std::string::npos);
  CHECK(gnuplot_script(map, 0).find("set arrow from first 2.5, graph 0 to first 2.5, graph 1") != std::string::npos);
  // Two tokens a cell: the mark stands in the cell of the first that was generated.
  map.frames[0].states[0].resize(400, State::kSkipped);
  map.prompt = 100;
  const std::string narrow = render_text(map, {60, false, true});
  const RoutingGrid grid = bucket(map.frames[0], 60 - 7 - 8);
  CHECK(narrow.find("\n" + std::string(8 + 100 / grid.tokens_per_cell, ' ') + "▲\n") != std::string::npos);
  map.prompt = 401;
  CHECK_THROWS(check_plot(map));
}

TEST_CASE("explaining a column names unit, meaning and formula", "[reports]") {
  const std::string text = render_text(explain_column(column_named("realised")), {100, false, false});
  CHECK(text.find("(1 - measured_ratio) / (1 - flops_ratio)") != std::string::npos);
  CHECK(text.find("fraction") != std::string::npos);
  CHECK(text.find("totals") != std::string::npos);
}
