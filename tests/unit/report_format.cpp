// SI formatting: hand-worked digits, rounding across a prefix, units and statuses.
#include "reports/format.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace fathom;

TEST_CASE("counts keep their exact digits and are grouped", "[reports]") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(583334363136) == "583,334,363,136");
  CHECK(grouped(~u128{0}) == "340,282,366,920,938,463,463,374,607,431,768,211,455");
}

TEST_CASE("SI prefixes with four significant digits", "[reports]") {
  CHECK(format_value(u128{583334363136}, Unit::kFlop) == "583.3 GFLOP");
  CHECK(format_value(u128{124439808}, Unit::kCount) == "124.4 M");
  CHECK(format_value(u128{9999}, Unit::kCount) == "9,999");
  CHECK(format_value(u128{2048}, Unit::kBytes) == "2.048 kB");
  CHECK(format_value(u128{17}, Unit::kBytes) == "17 B");
  CHECK(format_value(0.0043, Unit::kSeconds) == "4.300 ms");
  CHECK(format_value(1.25e-6, Unit::kSeconds, 3) == "1.25 us");
  CHECK(format_value(2.039e12, Unit::kByteRate) == "2.039 TB/s");
  CHECK(format_value(1.319e12, Unit::kFlopRate, 3) == "1.32 TFLOP/s");
  CHECK(format_value(1.665e11, Unit::kFlopRate) == "166.5 GFLOP/s");
  CHECK(format_value(0.6382, Unit::kRatio) == "0.6382");
  CHECK(format_value(12.345678, Unit::kIntensity) == "12.35 FLOP/B");
}

TEST_CASE("rounding carries into the next prefix", "[reports]") {
  CHECK(format_value(u128{999949}, Unit::kCount) == "999.9 k");
  CHECK(format_value(u128{999950}, Unit::kCount) == "1.000 M");  // 999.95 k rounds to 1000 k, which is 1 M
  CHECK(format_value(0.00099996, Unit::kSeconds) == "1.000 ms");
  CHECK(format_value(u128{99995}, Unit::kCount) == "100.0 k");
}

TEST_CASE("a training total past 64 bits rounds on its decimal digits", "[reports]") {
  const u128 total = parse_u128("2351000000000000000000001");  // 2.351e24 > 2^64
  CHECK(format_value(total, Unit::kFlop) == "2.351 YFLOP");
  CHECK(exact_text(Cell::count(total)) == "2351000000000000000000001");
}

TEST_CASE("long times leave SI", "[reports]") {
  CHECK(format_value(99.99, Unit::kSeconds) == "99.99 s");
  CHECK(format_value(599.0, Unit::kSeconds) == "599.0 s");
  CHECK(format_value(1236.0, Unit::kSeconds) == "20.60 min");
  CHECK(format_value(36000.0, Unit::kSeconds) == "10.00 h");
  CHECK(format_value(86400.0 * 12, Unit::kSeconds) == "12.00 d");
}

TEST_CASE("percentages are fractions", "[reports]") {
  CHECK(format_value(0.638, Unit::kPercent) == "63.8 %");
  CHECK(format_value(0.031, Unit::kSignedPercent) == "+3.1 %");
  CHECK(format_value(-0.125, Unit::kSignedPercent) == "-12.5 %");
  CHECK(format_value(0.0, Unit::kSignedPercent) == "0.0 %");
  CHECK(format_value(0.0042, Unit::kPercent) == "0.42 %");
  CHECK(format_value(12.5, Unit::kSignedPercent) == "+1250 %");
}

TEST_CASE("what is not a number is never shown as one", "[reports]") {
  const Cell nan = Cell::number(std::nan(""));
  CHECK(nan.missing() != nullptr);
  CHECK(format_cell(nan, Unit::kSeconds) == "(not finite)");
  CHECK(format_cell(Cell::number(std::numeric_limits<double>::infinity()), Unit::kRatio) == "(not finite)");
  CHECK(format_cell(Cell::status("no device"), Unit::kSeconds) == "(no device)");
  CHECK(format_cell(Cell(), Unit::kSeconds).empty());
  CHECK(exact_text(Cell::status("no device")).empty());
  CHECK_THROWS(Cell::status("x").value());
}

TEST_CASE("zero and tiny values", "[reports]") {
  CHECK(format_value(0.0, Unit::kSeconds) == "0 s");
  CHECK(format_value(u128{0}, Unit::kFlop) == "0 FLOP");
  CHECK(format_value(3.2e-16, Unit::kSeconds, 2) == "3.2e-16 s");
  CHECK(format_value(0.25, Unit::kTokenRate, 3) == "0.250 tokens/s");
  CHECK(significant(-0.00012346) == "-0.0001235");
  CHECK(significant(1234.4) == "1234");
}

TEST_CASE("axis prefixes", "[reports]") {
  CHECK(prefix_for(0.0043, Unit::kSeconds).symbol == "m");
  CHECK(prefix_for(1000, Unit::kFlop).symbol == "k");
  CHECK(prefix_for(0.5, Unit::kRatio).exponent == 0);
  CHECK(prefix_for(1e9, Unit::kBytes).exponent == 9);
}

TEST_CASE("times of one column share the unit of one of them", "[reports]") {
  // 114.6 min = 6876 s and 2.012 h = 7243.2 s, each in its own unit; beside 7243.2 s the first is 6876 / 3600 = 1.91 h.
  CHECK(format_value(6876.0, Unit::kSeconds) == "114.6 min");
  CHECK(format_value(7243.2, Unit::kSeconds) == "2.012 h");
  CHECK(format_time_like(6876, 7243.2) == "1.910 h");
  CHECK(format_time_like(7243.2, 6876) == "120.7 min");
  CHECK(format_time_like(0.5, 7243.2) == "0.0001389 h");
  CHECK(format_time_like(0.0025, 0.5) == "2.500 ms");  // below 100 s prefixes do it
}

TEST_CASE("facts say what is exact and in which unit", "[reports]") {
  CHECK(exact_in_brackets(Cell::count(u128{25276510208ULL}), Unit::kBytes) == " (25,276,510,208 B)");
  CHECK(exact_in_brackets(Cell::count(u128{124439808}), Unit::kCount) == " (124,439,808)");
  CHECK(exact_in_brackets(Cell::count(u128{25276510208ULL}), Unit::kNone).empty());  // shown with all its digits already
  CHECK(exact_in_brackets(Cell::count(u128{9999}), Unit::kBytes).empty());
  CHECK(exact_in_brackets(Cell::number(2.5e10), Unit::kBytes).empty());
}
