// Routing as a record keeps it, and records put together.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "reports/json_writer.hpp"
#include "reports/record.hpp"

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
