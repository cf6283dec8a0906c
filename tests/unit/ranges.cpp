// Lists of numbers kept as they are written, against the values that they stand for.
#include "tools/ranges.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <string>
#include <vector>

#include "lib/error.hpp"

using namespace fathom;

namespace {

std::vector<std::int64_t> values(const std::string& text) {
  const NumberList list = NumberList::parse(text, "--seq");
  std::vector<std::int64_t> all;
  for (std::uint64_t i = 0; i < list.size(); ++i) all.push_back(list.at(i));
  return all;
}

std::string fractions(const std::string& text) {
  const FractionList list = FractionList::parse(text, "--capacity");
  std::string all;
  for (std::uint64_t i = 0; i < list.size(); ++i) all += (i ? " " : "") + (list.at(i) ? list.at(i)->str() : "none");
  return all;
}

template <class F>
std::string refused(F&& parse, ErrorKind kind = ErrorKind::kInput) {
  try {
    parse();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("lists and ranges of whole numbers stand for their values", "[ranges]") {
  CHECK(values("8") == std::vector<std::int64_t>{8});
  CHECK(values("1,2,4") == std::vector<std::int64_t>{1, 2, 4});
  CHECK(values("64:200:64") == std::vector<std::int64_t>{64, 128, 192});
  CHECK(values("3:5") == std::vector<std::int64_t>{3, 4, 5});
  CHECK(values("1:128:x2") == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 64, 128});
  CHECK(values("1:100:x7") == std::vector<std::int64_t>{1, 7, 49});
  CHECK(values("5,1:3,9,2:8:x2,7:7") == std::vector<std::int64_t>{5, 1, 2, 3, 9, 2, 4, 8, 7});
  CHECK(values("-4:3:3") == std::vector<std::int64_t>{-4, -1, 2});
  // At the edges of 64 bits.
  CHECK(values("9223372036854775805:9223372036854775807:2") == std::vector<std::int64_t>{9223372036854775805, 9223372036854775807});
  CHECK(values("1:9223372036854775807:x2").size() == 63);
  CHECK(values("1:9223372036854775807:x2").back() == std::int64_t{1} << 62);
  CHECK(values("-9223372036854775808:9223372036854775807:9223372036854775807") ==
        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), -1, std::numeric_limits<std::int64_t>::max() - 1});
}

TEST_CASE("a range of a billion values is three numbers", "[ranges]") {
  const NumberList list = NumberList::parse("7:7000000000:7,1", "--seq");
  CHECK(list.size() == 1'000'000'001);
  CHECK(list.at(999'999'999) == 7'000'000'000);
  CHECK(list.at(1'000'000'000) == 1);
  CHECK(list.at(12345) == 7 * 12346);
  CHECK(!list.one_range());
  CHECK(NumberList::parse("7:7000000000:7", "--seq").one_range());
}

TEST_CASE("ranges that are none say why", "[ranges]") {
  const auto why = [](const char* text, ErrorKind kind = ErrorKind::kInput) { return refused([text] { NumberList::parse(text, "--seq"); }, kind); };
  CHECK(why("10:1") == "the range 10:1 runs backwards");
  CHECK(why("1:10:0") == "the range 1:10:0 never ends");
  CHECK(why("1:10:x1") == "the range 1:10:x1 never ends");
  CHECK(why("0:10:x2") == "the range 0:10:x2 never ends");
  CHECK(why("-9223372036854775808:9223372036854775807") == "the range -9223372036854775808:9223372036854775807 has more than 4e18 values");
  CHECK(why("99999999999999999999") == "'99999999999999999999' is too large");
  for (const char* text : {"", "1,,2", "a", "1:2:3:4", "1:", ":2", "1e3"}) {
    CAPTURE(text);
    CHECK(!why(text, ErrorKind::kUsage).empty());
  }
}

TEST_CASE("lists and ranges of fractions are exact", "[ranges]") {
  CHECK(fractions("1/8,0.25,none,1") == "1/8 1/4 none 1");
  CHECK(fractions("0.1:0.5:0.1") == "1/10 1/5 3/10 2/5 1/2");  // a double would stop at 0.4
  CHECK(fractions("0.125:0.9:1/4") == "1/8 3/8 5/8 7/8");
  CHECK(fractions("1/3:1/3:1") == "1/3");
  CHECK(fractions("0:1:0.3,none,1/2:1:1/4") == "0 3/10 3/5 9/10 none 1/2 3/4 1");
  CHECK(FractionList::parse("0.000001:1:0.000001", "--capacity").size() == 1'000'000);
  CHECK(FractionList::parse("0.000001:1:0.000001", "--capacity").at(124'999)->str() == "1/8");
  CHECK(FractionList::parse("1/8,none", "--capacity").has_none());
  CHECK(!FractionList::parse("1/8:1:1/8", "--capacity").has_none());
  const auto why = [](const char* text) { return refused([text] { FractionList::parse(text, "--capacity"); }); };
  CHECK(why("1/2:1/8:1/8") == "the range 1/2:1/8:1/8 runs backwards");
  CHECK(why("0:1:0") == "the range 0:1:0 never ends");
  CHECK(why("0:1:0.0000001").find("more than a million") != std::string::npos);
  CHECK(why("1/3000001:1:1/2").find("too fine") != std::string::npos);
  CHECK(why("0:9000000000000000000:9000000000000000/1000").find("too fine") != std::string::npos);
}
