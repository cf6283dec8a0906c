// The JSON writer and reader: exact integers, round trips, escaping, refusals.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "lib/error.hpp"
#include "reports/json_reader.hpp"
#include "reports/json_writer.hpp"
#include "reports/utf8.hpp"

using namespace fathom;

namespace {

std::string written(const JsonValue& value, int indent = 0) {
  JsonWriter writer(indent);
  write_json(writer, value);
  return writer.finish();
}

}  // namespace

TEST_CASE("a record in miniature, golden", "[reports]") {
  JsonWriter writer;
  writer.begin_object().member("schema", "fathom-record-1");
  writer.key("totals").begin_object();
  writer.member("flops_matmul", u128{583334363136}).member("predicted_s", 0.125).key("measured_s").null();
  writer.end_object();
  writer.key("ops").begin_array().end_array();
  writer.key("ok").value(true).key("delta").value(-3);
  writer.key("rows").begin_array().value(1).value(2).end_array();
  writer.end_object();
  CHECK(writer.finish() == R"({
  "schema": "fathom-record-1",
  "totals": {
    "flops_matmul": 583334363136,
    "predicted_s": 0.125,
    "measured_s": null
  },
  "ops": [],
  "ok": true,
  "delta": -3,
  "rows": [
    1,
    2
  ]
}
)");
}

TEST_CASE("integers of any size survive writing and reading", "[reports]") {
  for (const char* digits : {"0", "9007199254740993", "18446744073709551615", "18446744073709551616",
                             "2351000000000000000000001", "340282366920938463463374607431768211455"}) {
    JsonWriter writer(0);
    writer.begin_array().value(parse_u128(digits)).end_array();
    const std::string text = writer.finish();
    CHECK(text == std::string("[") + digits + "]\n");
    CHECK(to_string(parse_json(text).as_array()[0].as_u128()) == digits);
    CHECK(written(parse_json(text)) == text);
  }
  CHECK_THROWS_AS(parse_json("340282366920938463463374607431768211456").as_u128(), Error);
  CHECK_THROWS_AS(parse_json("-1").as_u128(), Error);
  CHECK_THROWS_AS(parse_json("1.0").as_u128(), Error);
  CHECK_THROWS_AS(parse_json("1e3").as_u128("flops"), Error);
}

TEST_CASE("doubles read back to the same bits", "[reports]") {
  std::mt19937_64 random(7);
  int checked = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const double back = parse_json(shortest(value)).as_double();
    if (std::memcmp(&back, &value, sizeof value) != 0) FAIL(shortest(value));
    ++checked;
  }
  CHECK(checked > 19000);
  CHECK(shortest(0.1) == "0.1");
  CHECK(std::signbit(parse_json(shortest(-0.0)).as_double()));
  CHECK(parse_json("5e-324").as_double() == std::numeric_limits<double>::denorm_min());
}

TEST_CASE("NaN and infinity are refused, with the path", "[reports]") {
  JsonWriter writer;
  writer.begin_object().key("ops").begin_array().begin_object().key("measured_s");
  try {
    writer.value(std::nan(""));
    FAIL("accepted NaN");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInternal);
    CHECK(error.message().find("ops[0].measured_s") != std::string::npos);
  }
  JsonWriter other(0);
  other.begin_array().number_or_null(std::numeric_limits<double>::infinity()).number_or_null(0.5).end_array();
  CHECK(other.finish() == "[null,0.5]\n");
}

TEST_CASE("strings: escapes and invalid UTF-8", "[reports]") {
  CHECK(json_quote("a\"b\\c\n\t\x01") == R"("a\"b\\c\n\t\u0001")");
  CHECK(json_quote("\xc3\xa9") == "\"\xc3\xa9\"");
  CHECK(json_quote("\xff") == "\"\xef\xbf\xbd\"");
  CHECK(json_quote("\xed\xa0\x80") ==
        "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");    // a surrogate: three bytes, none valid
  CHECK(json_quote("\xe2\x82") == "\"\xef\xbf\xbd\"");  // cut short: one replacement
  CHECK(json_quote(std::string("a\0b", 3)) == "\"a\\u0000b\"");
}

TEST_CASE("any bytes are written as JSON that reads back as their repaired text", "[reports]") {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 4 == 0 ? random() % 256 : 0x20 + random() % 0x60);
    JsonWriter writer(static_cast<int>(random() % 3));
    writer.begin_object().key(bytes).value(bytes).end_object();
    const JsonValue back = parse_json(writer.finish());
    REQUIRE(back.as_object().size() == 1);
    REQUIRE(back.as_object()[0].first == valid_utf8(bytes));
    REQUIRE(back.as_object()[0].second.as_string() == valid_utf8(bytes));
  }
}

TEST_CASE("the writer refuses malformed sequences", "[reports]") {
  CHECK_THROWS_AS(JsonWriter().finish(), Error);
  CHECK_THROWS_AS(JsonWriter().begin_object().value(1), Error);
  CHECK_THROWS_AS(JsonWriter().begin_object().key("a").key("b"), Error);
  CHECK_THROWS_AS(JsonWriter().begin_object().key("a").end_object(), Error);
  CHECK_THROWS_AS(JsonWriter().begin_array().end_object(), Error);
  CHECK_THROWS_AS(JsonWriter().begin_array().key("a"), Error);
  CHECK_THROWS_AS(JsonWriter().begin_array().finish(), Error);
  CHECK_THROWS_AS(JsonWriter().value(1).value(2), Error);
}

TEST_CASE("reading mistakes say where", "[reports]") {
  try {
    parse_json("{\n  \"a\": 1,\n  \"b\": }\n", "run.json");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.where().file == "run.json");
    CHECK(error.where().line == 3);
  }
  CHECK_THROWS_AS(parse_json(""), Error);
  CHECK_THROWS_AS(parse_json("1 2"), Error);
  CHECK_THROWS_AS(parse_json("[1,]"), Error);
  CHECK_THROWS_AS(parse_json("NaN"), Error);
  CHECK_THROWS_AS(parse_json("1e999"), Error);
  CHECK_THROWS_AS(parse_json("\"\xff\""), Error);
  CHECK_THROWS_AS(parse_json(R"({"a":1,"a":2})"), Error);
  CHECK_THROWS_AS(parse_json(std::string(1000, '[')), Error);
  CHECK_NOTHROW(parse_json(R"([{"a":1},{"a":2}])"));  // the same key in two objects is fine
}

TEST_CASE("typed access names the key", "[reports]") {
  const JsonValue value = parse_json(R"({"totals":{"flops_matmul":12,"predicted_s":null},"name":"x"})");
  REQUIRE(value.find_path("totals.flops_matmul") != nullptr);
  CHECK(value.find_path("totals.flops_matmul")->as_u128() == 12);
  CHECK(value.find_path("totals.flops") == nullptr);
  CHECK(value.find_path("name.x") == nullptr);
  CHECK(value.at("totals").at("predicted_s").is_null());
  try {
    value.at("totls");
    FAIL("found");
  } catch (const Error& error) {
    CHECK(error.hint().find("totals") != std::string::npos);
  }
  CHECK_THROWS_AS(value.at("name").as_double("name"), Error);
}
