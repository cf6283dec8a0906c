// Routing as a record keeps it, and records put together.
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/error.hpp"
#include "reports/format.hpp"
#include "reports/json_writer.hpp"
#include "reports/record.hpp"
#include "reports/svg.hpp"

using namespace fathom;

namespace {

Record with_routing() {
  Record record;
  record.command = "run";
  record.arguments = "run m";
  Result result;
  result.model = "m";
  result.scenario.set("phase", Cell::text("prefill"));
  result.totals.set("flops_matmul", Cell::count(7));
  result.routing.tokens = 4;
  result.routing.layers = {{0, false, "", {}}, {1, true, "0110", {-1.0, 0.5, 1.0, 0.25}}};
  result.routing.make_histogram();
  record.results.push_back(result);
  return record;
}

}  // namespace

TEST_CASE("the histogram holds every score, the largest in the last bin") {
  // 16 bins of width 2/16 = 0.125 from -1: -1 -> bin 0, 0.25 -> 10, 0.5 -> 12, 1 -> 15.
  const RoutingRecord routing = with_routing().results[0].routing;
  CHECK(routing.low == -1.0);
  CHECK(routing.high == 1.0);
  REQUIRE(routing.counts.size() == 16);
  for (std::size_t b = 0; b < 16; ++b) CHECK(routing.counts[b] == (b == 0 || b == 10 || b == 12 || b == 15 ? 1u : 0u));
}

TEST_CASE("routing survives the record") {
  const Record record = with_routing();
  const Record again = read_record(write_record(record), "r.json");
  const RoutingRecord& routing = again.results.at(0).routing;
  CHECK(routing.tokens == 4);
  REQUIRE(routing.layers.size() == 2);
  CHECK_FALSE(routing.layers[0].routed);
  CHECK(routing.layers[1].taken == "0110");
  CHECK(routing.counts == record.results[0].routing.counts);
  CHECK(write_record(again) == write_record(record));
}

TEST_CASE("a trace keeps every score and label, and its rows are a table") {
  Record record = with_routing();
  RoutingRecord& routing = record.results[0].routing;
  routing.complete = true;
  routing.labels = {"a", "b", "c", "d"};
  routing.classes = {{"letters", 4, 0.5}};
  const Record again = read_record(write_record(record), "r.json");
  CHECK(again.results[0].routing.layers[1].weights == routing.layers[1].weights);
  CHECK(again.results[0].routing.labels == routing.labels);
  CHECK(again.results[0].routing.classes.at(0).participation == 0.5);
  CHECK(write_record(again) == write_record(record));
  const ReportTable table = routing_table(again.results[0].routing);
  REQUIRE(table.rows.size() == 8);  // 2 blocks x 4 tokens
  CHECK(table.columns[2].key == "token_text");
  CHECK(exact_text(table.rows[0].cells[4]) == "1");  // block 0 is not routed: taken by all, without a score
  CHECK(table.rows[0].cells[5].empty());
  CHECK(exact_text(table.rows[4].cells[4]) == "0");  // "0110"
  CHECK(exact_text(table.rows[5].cells[5]) == "0.5");
  // One score changed, and the histogram is another.
  routing.layers[1].weights[1] = -0.5;
  try {
    read_record(write_record(record), "r.json");
    FAIL("read");
  } catch (const Error& error) {
    CHECK(error.where().key == "/routing/weights");
  }
}

TEST_CASE("of a generation it is kept which tokens were generated") {
  Record record = with_routing();
  RoutingRecord& routing = record.results[0].routing;
  CHECK(write_record(record).find("\"prompt\"") == std::string::npos);
  routing.prompt = 3;
  const Record again = read_record(write_record(record), "r.json");
  CHECK(again.results[0].routing.prompt == 3);
  const ReportTable table = routing_table(again.results[0].routing);
  REQUIRE(table.columns[2].key == "generated");
  for (std::size_t t = 0; t < 4; ++t) CHECK(exact_text(table.rows[t].cells[2]) == (t < 3 ? "0" : "1"));
  CHECK(table.columns[3].key == "routed");
  std::string text = write_record(record);
  text.replace(text.find("\"prompt\": 3"), 11, "\"prompt\": 5");  // of 4 tokens
  CHECK_THROWS_AS(read_record(text, "r.json"), Error);
}

TEST_CASE("routing that contradicts itself is refused with the file's name") {
  std::string text = write_record(with_routing());
  text.replace(text.find("0110"), 4, "011");
  try {
    read_record(text, "r.json");
    FAIL("read");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("r.json") != std::string::npos);
    CHECK(error.kind() == ErrorKind::kInput);
  }
}

TEST_CASE("participation is the share of tokens") {
  Document document;
  add_routing(document, with_routing().results[0].routing, "m");
  REQUIRE(document.parts.size() == 3);
  const auto& bars = std::get<BarPlot>(document.parts[1]);
  CHECK(bars.categories == std::vector<std::string>{"block 0 (full)", "block 1"});
  CHECK(bars.series[0].values == std::vector<double>{1.0, 0.5});
  const auto& histogram = std::get<BarPlot>(document.parts[2]);  // bars of log10(1 + n), said to be, with n beside them
  CHECK(histogram.value_label == "log10 of (1 + n), n scores");
  CHECK(histogram.series[0].values[0] == std::log10(2.0));
  CHECK(histogram.shown[0] == "n = 1");
  // From -1 to 1 in 16 bins of .125: two digits of the width, .13, are two decimals, of all edges; nothing is no less than nothing.
  CHECK(histogram.categories[0] == "-1.00 to -0.88");
  CHECK(histogram.categories[8] == "0.00 to 0.12");
  CHECK(histogram.categories[15] == "0.88 to 1.00");
}

TEST_CASE("letters of a routing map stand upright, words along their column") {
  RoutingMap map;
  map.key = "map";
  map.blocks = {"block 0"};
  map.tokens = {"a", "b"};
  map.frames.push_back({"m", {{RoutingMap::State::kProcessed, RoutingMap::State::kSkipped}}, {}});
  CHECK(render_svg(map).find("rotate(") == std::string::npos);
  CHECK(render_svg(map).find(">b</text>") != std::string::npos);
  map.tokens[1] = "bc";
  CHECK(render_svg(map).find("rotate(-90") != std::string::npos);
}

TEST_CASE("records put together keep their runs apart") {
  Record a = with_routing(), b = with_routing();
  b.arguments = "run m --seed 2";
  b.note("a note");
  const Record all = join_records({a, b}, {"a.json", "b.json"});
  CHECK(all.results.size() == 2);
  REQUIRE(all.sources.size() == 2);
  CHECK(all.sources[1].arguments == "run m --seed 2");
  CHECK(all.notes.at(0).text == "b.json: a note");
  const Record more = join_records({read_record(write_record(all), "all.json"), a}, {"all.json", "c.json"});
  REQUIRE(more.sources.size() == 3);
  CHECK(more.sources[0].file == "a.json");
  CHECK(more.sources[2].file == "c.json");
  CHECK(join_records({a}, {"a.json"}).sources.empty());
}
