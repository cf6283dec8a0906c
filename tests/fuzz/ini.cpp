// Mutated INI text must either parse or throw an input Error that names the file: no crash, no other exception, no
// disagreement between scan and parser (an internal Error). Deterministic: a counter-based generator, fixed seeds.
#include "models/ini.hpp"

#include <catch2/catch.hpp>

#include <Random123/philox.h>

#include <array>
#include <string>

namespace fathom {
namespace {

class Random {
 public:
  explicit Random(std::uint32_t seed) : seed_(seed) {}
  // Uniform enough in [0, bound).
  std::uint32_t below(std::size_t bound) {
    const r123::Philox4x32 generator;
    const auto block = generator({{counter_++, 0, 0, 0}}, {{seed_, 0}});
    return block[0] % static_cast<std::uint32_t>(bound);
  }

 private:
  std::uint32_t seed_;
  std::uint32_t counter_ = 0;
};

const std::array<std::string, 4> kSeeds = {
    "# c\nschema = 1\n[machine]\nname = chip\nbandwidth = 3.35 TB/s\nl2 = 50 MiB\n[memory.l2]\nways = 16\n",
    "[model]\r\nwidth = 768\r\ncapacity = 1/8\r\n\r\n[block.mod]\r\nevery = 2\r\n",
    "\xef\xbb\xbf[a]\nx = \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\ny=[z]=#\n[b]\n",
    "a.b = 1\n[a]\nb = 2\n[a.b]\nc = 1, 2,3\n",
};

// Pieces that carry meaning somewhere in the reader.
const std::array<std::string, 24> kPieces = {"[",    "]",        "[]",
                                             "=",    "#",        ";",
                                             "\n",   "\r",       "\t",
                                             " ",    ".",        "..",
                                             "\0",   "\xff\xfe", "\xef\xbb\xbf",
                                             "\xc3", "/",        "e999",
                                             "-",    "KiB/s",    "999999999999999999999",
                                             "%",    ",",        "\x1f"};

std::string mutate(std::string text, Random& random) {
  const std::uint32_t edits = 1 + random.below(6);
  for (std::uint32_t i = 0; i < edits; ++i) {
    const std::size_t at = random.below(text.size() + 1);
    switch (random.below(5)) {
      case 0:
        text.insert(at, kPieces[random.below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, 1 + random.below(5));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random.below(256));
        break;
      case 3:
        text.insert(at, text.substr(random.below(text.size() + 1), random.below(20)));
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1u << random.below(8)));
        break;
    }
  }
  return text;
}

// Runs every getter over every value; each may only throw an input Error at the value's place.
void read_everything(const IniFile& file) {
  for (const IniSection& section : file.sections())
    for (const std::string& key : section.keys()) {
      const IniValue value = section.get(key);
      const auto guarded = [&](auto getter) {
        try {
          getter();
        } catch (const Error& error) {
          REQUIRE(error.kind() == ErrorKind::kInput);
          REQUIRE(error.where().file == "fuzz.ini");
          REQUIRE(error.where().line > 0);
          REQUIRE(error.where().key == key);
        }
      };
      guarded([&] { value.integer(); });
      guarded([&] { value.fraction(); });
      guarded([&] { value.real(); });
      guarded([&] { value.boolean(); });
      guarded([&] { value.bytes(); });
      guarded([&] { value.byte_rate(); });
      guarded([&] { value.seconds(); });
      guarded([&] { value.dtype(); });
      guarded([&] { value.list(); });
    }
}

TEST_CASE("mutated INI text is read or refused, never worse") {
  int parsed = 0;
  int refused = 0;
  for (std::uint32_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    const std::string text = mutate(kSeeds[seed % kSeeds.size()], random);
    INFO("seed " << seed << ": " << text);
    try {
      const IniFile file = IniFile::parse(text, "fuzz.ini");
      ++parsed;
      read_everything(file);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      REQUIRE(error.where().file == "fuzz.ini");
      ++refused;
    }
  }
  // Both outcomes must be well represented, or the mutations test nothing.
  CHECK(parsed > 1000);
  CHECK(refused > 5000);
}

}  // namespace
}  // namespace fathom
