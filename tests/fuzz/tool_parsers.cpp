// Fuzzing of what else is read: saved records, machine files, measured tables, ranges, fractions and quantities, on a fixed corpus damaged in
// reproducible ways. Whatever the input, a parser returns a value or throws a stated Error (input or usage); no other exception, no crash, no hang.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lib/error.hpp"
#include "lib/fraction.hpp"
#include "lib/gpu/table.hpp"
#include "lib/quantity.hpp"
#include "models/machine_ini.hpp"
#include "models/registry.hpp"
#include "reports/record.hpp"
#include "tools/cli.hpp"

using namespace fathom;

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % std::max<std::size_t>(1, n)); }

 private:
  std::mt19937_64 engine_;
};

std::string damaged(std::string text, Random& random) {
  static const std::string kPieces[] = {"-1",  "9223372036854775808", "1e999", "nan", "null", "{}", "[", "\"", ",", ":", "\n", "\\u0000", "\xff", std::string(1, '\0'), "[[[[[[[[", "-0", "x2", "TB/s",
                                        "true", "1/0", "%",  "\\",  "\r\n", "GiB", ".",    "e"};
  for (std::size_t i = 0, edits = 1 + random.below(4); i < edits && !text.empty(); ++i) {
    const std::size_t at = random.below(text.size()), length = std::min(text.size() - at, 1 + random.below(12));
    switch (random.below(6)) {
      case 0: text[at] = static_cast<char>(random.below(256)); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, kPieces[random.below(std::size(kPieces))]); break;
      case 3: text.replace(at, length, kPieces[random.below(std::size(kPieces))]); break;
      case 4: text.insert(at, text.substr(random.below(text.size()), random.below(60))); break;
      default: text.resize(at);
    }
  }
  return text;
}

struct Outcome {
  int accepted = 0, refused = 0;
};
template <class Parse>
Outcome fuzz(const std::vector<std::string>& corpus, int rounds, std::uint64_t seed, Parse&& parse) {
  Outcome outcome;
  for (int i = 0; i < rounds; ++i) {
    Random random(seed * 1'000'003 + static_cast<std::uint64_t>(i));
    const std::string text = damaged(corpus[random.below(corpus.size())], random);
    try {
      parse(text);
      ++outcome.accepted;
    } catch (const Error& error) {
      INFO(error.what() << "\nround " << i << ", input:\n" << text);
      REQUIRE((error.kind() == ErrorKind::kInput || error.kind() == ErrorKind::kUsage));
      ++outcome.refused;
    } catch (const std::exception& other) {
      FAIL("round " << i << ": " << other.what() << "\n" << text);
    }
  }
  return outcome;
}

std::string file_text(const std::string& path) {
  std::ifstream stream(std::string(FATHOM_SOURCE_DIR) + path, std::ios::binary);
  REQUIRE(stream.good());
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("damaged records", "[fuzz]") {
  std::vector<std::string> corpus;
  for (const char* name : {"count_json.txt", "compare_json.txt"}) {
    const std::string text = file_text(std::string("/tests/golden/data/") + name);  // the output of a command behind its exit code
    corpus.push_back(text.substr(text.find('{'), text.rfind('}') - text.find('{') + 1));
  }
  for (const std::string& text : corpus) CHECK_NOTHROW(read_record(text, "whole.json"));
  const Outcome outcome = fuzz(corpus, 4000, 1, [](const std::string& text) {
    const Record record = read_record(text, "fuzz.json");
    read_record(write_record(record), "again.json");  // what was accepted can be written and read
  });
  CHECK(outcome.accepted > 0);
  CHECK(outcome.refused > 1000);
}

TEST_CASE("damaged machine files", "[fuzz]") {
  std::vector<std::string> corpus;
  for (const BuiltinFile& file : builtin_machine_files()) corpus.emplace_back(file.text);
  const Outcome outcome = fuzz(corpus, 4000, 2, [](const std::string& text) {
    const Machine machine = parse_machine_ini(text, "fuzz.ini");
    const std::string written = write_machine_ini(machine);
    REQUIRE(write_machine_ini(parse_machine_ini(written, "again.ini")) == written);
  });
  CHECK(outcome.accepted > 0);
  CHECK(outcome.refused > 1000);
}

TEST_CASE("damaged kernel tables", "[fuzz]") {
  const std::vector<std::string> corpus = {
      "chip,op,dtype,m,n,k,time_us\nh100,gemm,bf16,4096,4096,4096,210.5\nh100,gemm,bf16,1,4096,14336,45\n",
      "chip,op,dtype,batch,seq,heads,kv_heads,head_dim,time_us\nh200,attention_prefill,bf16,8,2048,32,8,128,900\n",
      "# a comment\nop,chip,m,n,k,kernel\n\"gemm\",a100,16,16,16,\"x, y\"\n\n",
  };
  const Outcome outcome = fuzz(corpus, 20000, 3, [](const std::string& text) { gpu::parse_table(text, "fuzz.csv"); });
  CHECK(outcome.accepted > 0);
  CHECK(outcome.refused > 1000);
}

TEST_CASE("random ranges, fractions and quantities", "[fuzz]") {
  const std::vector<std::string> ranges = {"1,2,4", "64:512:64", "1:128:x2", "8", "1:3,9,2:4:1", "1:9223372036854775807:x9", "9223372036854775806:9223372036854775807:1"};
  const Outcome range = fuzz(ranges, 20000, 4, [](const std::string& text) {
    for (std::int64_t value : parse_range(text, "--seq")) (void)value;
  });
  CHECK(range.accepted > 500);
  CHECK(range.refused > 5000);
  const std::vector<std::string> fractions = {"0.125", "1/8", "12.5%", "1", "0", "3/7", "0.333333333333333333", "9223372036854775807/9223372036854775807"};
  const Outcome fraction = fuzz(fractions, 20000, 5, [](const std::string& text) {
    const Fraction f = parse_fraction_flag(text, "--capacity");
    REQUIRE(f.den > 0);
    REQUIRE(parse_fraction(f.str()) == f);
  });
  CHECK(fraction.accepted > 500);
  CHECK(fraction.refused > 5000);
  const std::vector<std::string> quantities = {"3.35 TB/s", "50 MiB", "1.2 us", "989 TFLOP/s", "1e-3 s", "4 GB", "700 GiB/s", "2.5e12 B/s"};
  Outcome both;
  for (const Dimension dimension : {Dimension::kTime, Dimension::kByteRate, Dimension::kFlopRate}) {
    const Outcome one = fuzz(quantities, 8000, 6 + static_cast<std::uint64_t>(dimension), [&](const std::string& text) {
      const double value = parse_quantity(text, dimension);
      REQUIRE(value == value);
      REQUIRE(value < 1e308);
    });
    both.accepted += one.accepted, both.refused += one.refused;
  }
  const Outcome bytes = fuzz(quantities, 8000, 9, [](const std::string& text) { parse_bytes(text); });
  CHECK(both.accepted > 50);
  CHECK(both.refused > 5000);
  CHECK(bytes.accepted > 50);
}
