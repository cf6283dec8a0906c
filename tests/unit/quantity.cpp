#include "lib/quantity.hpp"

#include <catch2/catch.hpp>

#include <set>
#include <string>

#include "lib/error.hpp"

namespace fathom {
namespace {

std::string error_text(std::string_view text, Dimension dimension) {
  try {
    parse_quantity(text, dimension);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

// The whole unit table, written out by hand: a wrong power here is a prediction wrong by a thousand.
struct Row {
  Dimension dimension;
  const char* text;
  double value;
};
const Row kRows[] = {
    {Dimension::kTime, "1 ns", 1e-9},
    {Dimension::kTime, "1 us", 1e-6},
    {Dimension::kTime, "1 \xc2\xb5s", 1e-6},
    {Dimension::kTime, "1 \xce\xbcs", 1e-6},
    {Dimension::kTime, "1 ms", 1e-3},
    {Dimension::kTime, "1 s", 1.0},
    {Dimension::kBytes, "1 B", 1.0},
    {Dimension::kBytes, "1 kB", 1000.0},
    {Dimension::kBytes, "1 MB", 1000000.0},
    {Dimension::kBytes, "1 GB", 1000000000.0},
    {Dimension::kBytes, "1 TB", 1000000000000.0},
    {Dimension::kBytes, "1 PB", 1000000000000000.0},
    {Dimension::kBytes, "1 EB", 1000000000000000000.0},
    {Dimension::kBytes, "1 KiB", 1024.0},
    {Dimension::kBytes, "1 MiB", 1048576.0},
    {Dimension::kBytes, "1 GiB", 1073741824.0},
    {Dimension::kBytes, "1 TiB", 1099511627776.0},
    {Dimension::kBytes, "1 PiB", 1125899906842624.0},
    {Dimension::kByteRate, "1 B/s", 1.0},
    {Dimension::kByteRate, "1 kB/s", 1e3},
    {Dimension::kByteRate, "1 MB/s", 1e6},
    {Dimension::kByteRate, "1 GB/s", 1e9},
    {Dimension::kByteRate, "1 TB/s", 1e12},
    {Dimension::kByteRate, "1 PB/s", 1e15},
    {Dimension::kByteRate, "1 EB/s", 1e18},
    {Dimension::kByteRate, "1 KiB/s", 1024.0},
    {Dimension::kByteRate, "1 MiB/s", 1048576.0},
    {Dimension::kByteRate, "1 GiB/s", 1073741824.0},
    {Dimension::kByteRate, "1 TiB/s", 1099511627776.0},
    {Dimension::kByteRate, "1 PiB/s", 1125899906842624.0},
    {Dimension::kFlops, "1 FLOP", 1.0},
    {Dimension::kFlops, "1 kFLOP", 1e3},
    {Dimension::kFlops, "1 MFLOP", 1e6},
    {Dimension::kFlops, "1 GFLOP", 1e9},
    {Dimension::kFlops, "1 TFLOP", 1e12},
    {Dimension::kFlops, "1 PFLOP", 1e15},
    {Dimension::kFlops, "1 EFLOP", 1e18},
    {Dimension::kFlopRate, "1 FLOP/s", 1.0},
    {Dimension::kFlopRate, "1 kFLOP/s", 1e3},
    {Dimension::kFlopRate, "1 MFLOP/s", 1e6},
    {Dimension::kFlopRate, "1 GFLOP/s", 1e9},
    {Dimension::kFlopRate, "1 TFLOP/s", 1e12},
    {Dimension::kFlopRate, "1 PFLOP/s", 1e15},
    {Dimension::kFlopRate, "1 EFLOP/s", 1e18},
    {Dimension::kElementRate, "1 elem/s", 1.0},
    {Dimension::kElementRate, "1 kelem/s", 1e3},
    {Dimension::kElementRate, "1 Melem/s", 1e6},
    {Dimension::kElementRate, "1 Gelem/s", 1e9},
    {Dimension::kElementRate, "1 Telem/s", 1e12},
    {Dimension::kElementRate, "1 Pelem/s", 1e15},
    {Dimension::kElementRate, "1 Eelem/s", 1e18},
    {Dimension::kFrequency, "1 Hz", 1.0},
    {Dimension::kFrequency, "1 kHz", 1e3},
    {Dimension::kFrequency, "1 MHz", 1e6},
    {Dimension::kFrequency, "1 GHz", 1e9},
    {Dimension::kFrequency, "1 THz", 1e12},
    {Dimension::kFrequency, "1 PHz", 1e15},
    {Dimension::kFrequency, "1 EHz", 1e18},
    {Dimension::kPower, "1 W", 1.0},
    {Dimension::kPower, "1 kW", 1e3},
    {Dimension::kPower, "1 MW", 1e6},
    {Dimension::kPower, "1 GW", 1e9},
    {Dimension::kPower, "1 TW", 1e12},
    {Dimension::kPower, "1 PW", 1e15},
    {Dimension::kPower, "1 EW", 1e18},
};

constexpr Dimension kDimensions[] = {Dimension::kTime,     Dimension::kBytes,       Dimension::kByteRate,  Dimension::kFlops,
                                     Dimension::kFlopRate, Dimension::kElementRate, Dimension::kFrequency, Dimension::kPower};

TEST_CASE("every unit has the power written here, and no other unit exists") {
  std::set<std::pair<Dimension, std::string>> seen;
  for (const Row& row : kRows) {
    INFO(row.text);
    CHECK(parse_quantity(row.text, row.dimension) == row.value);
    seen.emplace(row.dimension, std::string(row.text).substr(2));
  }
  for (Dimension dimension : kDimensions)
    for (const std::string& unit : unit_names(dimension)) {
      INFO(unit);
      CHECK(seen.count({dimension, unit}) == 1);
    }
}

TEST_CASE("a unit is accepted for its own dimension only") {
  for (const Row& row : kRows)
    for (Dimension dimension : kDimensions)
      if (dimension != row.dimension) {
        INFO(row.text);
        CHECK_THROWS_AS(parse_quantity(row.text, dimension), Error);
      }
}

TEST_CASE("values are rounded once") {
  CHECK(parse_quantity("3.35 TB/s", Dimension::kByteRate) == 3.35e12);
  CHECK(parse_quantity("989 TFLOP/s", Dimension::kFlopRate) == 989e12);
  CHECK(parse_quantity("50 MiB", Dimension::kBytes) == 52428800.0);
  CHECK(parse_quantity("1.98 GHz", Dimension::kFrequency) == 1.98e9);
  CHECK(parse_quantity("2.5 us", Dimension::kTime) == 2.5e-6);
  CHECK(parse_quantity("0.1 GB/s", Dimension::kByteRate) == 1e8);
  CHECK(parse_quantity("1e3GB/s", Dimension::kByteRate) == 1e12);
  CHECK(parse_quantity("1.5E-3 s", Dimension::kTime) == 1.5e-3);
  CHECK(parse_quantity("1e+2\tms", Dimension::kTime) == 0.1);
  CHECK(parse_quantity("3elem/s", Dimension::kElementRate) == 3.0);  // this 'e' begins the unit
  CHECK(parse_quantity("0 us", Dimension::kTime) == 0.0);
  CHECK(parse_seconds("4 ms").value() == 4e-3);
  CHECK(parse_byte_rate("1 GB/s").value() == 1e9);
  CHECK(parse_flop_rate("2 TFLOP/s").value() == 2e12);
}

TEST_CASE("a quantity that is not one says what is needed") {
  const auto has = [](const std::string& text, Dimension dimension, const std::string& part) {
    INFO(text);
    CHECK_THAT(error_text(text, dimension), Catch::Contains(part));
  };
  has("3.35", Dimension::kByteRate, "'3.35' has no unit");
  has("3.35", Dimension::kByteRate, "such as 3.35 TB/s");
  has("0", Dimension::kTime, "has no unit");
  has("3.35 TB", Dimension::kByteRate, "'TB' is an amount of memory");
  has("5 GB/s", Dimension::kBytes, "'GB/s' is bytes per second");
  has("64 KB", Dimension::kBytes, "write kB (1000) or KiB (1024)");
  has("64 KHz", Dimension::kFrequency, "write kHz (1000)");
  has("989 TFLOPS", Dimension::kFlopRate, "did you mean 'TFLOP/s'?");
  has("989 tflop/s", Dimension::kFlopRate, "did you mean 'TFLOP/s'?");
  has("10 Gb", Dimension::kBytes, "did you mean");
  has("1 fortnight", Dimension::kTime, "this is a time");
  has("1 FLOP/s/s", Dimension::kFlopRate, "unknown unit");
  has("-1 us", Dimension::kTime, "is negative");
  has("TB/s", Dimension::kByteRate, "does not begin with a number");
  has("", Dimension::kTime, "does not begin with a number");
  has(". s", Dimension::kTime, "does not begin with a number");
  has("nan s", Dimension::kTime, "does not begin with a number");
  has("inf s", Dimension::kTime, "does not begin with a number");
  has("0x10 s", Dimension::kTime, "unknown unit 'x10 s'");
  has("1,5 s", Dimension::kTime, "unknown unit");
  has("1.2.3 s", Dimension::kTime, "unknown unit");
  has("1e400 s", Dimension::kTime, "out of range");
  has("1e999999999999 s", Dimension::kTime, "out of range");
  has("1e300 EB", Dimension::kBytes, "out of range");
  has("1e-400 s", Dimension::kTime, "out of range");
  has(std::string(5000, '9') + " s", Dimension::kTime, "out of range");
}

TEST_CASE("bytes are exact") {
  CHECK(parse_bytes("1.5 GiB") == Bytes(1610612736));
  CHECK(parse_bytes("0.1 kB") == Bytes(100));
  CHECK(parse_bytes("141 GB") == Bytes(141'000'000'000));
  CHECK(parse_bytes("9007199254740993 B") == Bytes(9007199254740993));  // 2^53 + 1: no double holds it
  CHECK_THROWS_WITH(parse_bytes("0.5 B"), Catch::Contains("not a whole number of bytes"));
  CHECK_THROWS_WITH(parse_bytes("1e3 MB"), Catch::Contains("exponent"));
  CHECK_THROWS_AS(parse_bytes(std::string(60, '9') + " B"), Error);
  CHECK_THROWS_AS(parse_bytes("50"), Error);
}

}  // namespace
}  // namespace fathom
