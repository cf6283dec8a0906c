#include "models/ini.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace fathom {
namespace {

constexpr const char* kMachine = R"(# a machine
schema = 1

[machine]
name = Test chip 80 GB   # a comment after a value
peak_bf16 = 989 TFLOP/s
bandwidth = 3.35 TB/s
l2 = 50 MiB
clock = 1.98 GHz
launch = 2.5 us
sms = 132
capacity = 0.125
share = 1/3
slope = -1.5e-3
l2_shared = yes
dtype = bf16
norm = layernorm
sizes = 1, 2 ,4

[memory.l2]
ways = 16
)";

enum class Norm { kRms, kLayer };

// Runs `read` and returns the text of the input Error it throws.
template <class Function>
std::string error_of(Function read) {
  try {
    read();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}
std::string parse_error(const std::string& text) {
  return error_of([&] { IniFile::parse(text, "x.ini"); });
}
// One key with this value, read by a getter.
template <class Getter>
std::string value_error(const std::string& text, Getter getter) {
  return error_of([&] { getter(IniFile::parse("[s]\n\nkey = " + text + "\n", "x.ini").get("s").get("key")); });
}

TEST_CASE("typed values") {
  const IniFile file = IniFile::parse(kMachine, "chip.ini");
  CHECK(file.name() == "chip.ini");
  REQUIRE(file.sections().size() == 3);
  CHECK(file.sections()[0].name().empty());
  CHECK(file.get("").get("schema").integer() == 1);
  const IniSection& machine = file.get("machine");
  CHECK(machine.where().line == 4);
  CHECK(machine.get("name").text() == "Test chip 80 GB");
  CHECK(machine.get("peak_bf16").flop_rate() == FlopRate(989e12));
  CHECK(machine.get("bandwidth").byte_rate() == ByteRate(3.35e12));
  CHECK(machine.get("l2").bytes() == Bytes(52428800));
  CHECK(machine.get("clock").quantity(Dimension::kFrequency) == 1.98e9);
  CHECK(machine.get("launch").seconds() == Seconds(2.5e-6));
  CHECK(machine.get("sms").integer(1, 1000) == 132);
  CHECK(machine.get("capacity").fraction() == Fraction{1, 8});
  CHECK(machine.get("share").fraction() == Fraction{1, 3});
  CHECK(machine.get("slope").real() == -1.5e-3);
  CHECK(machine.get("l2_shared").boolean());
  CHECK(machine.get("dtype").dtype() == DType::kBF16);
  CHECK(machine.get("norm").choice<Norm>({{"rmsnorm", Norm::kRms}, {"layernorm", Norm::kLayer}}) == Norm::kLayer);
  const std::vector<IniValue> sizes = machine.get("sizes").list();
  REQUIRE(sizes.size() == 3);
  CHECK(sizes[1].integer() == 2);
  CHECK(sizes[2].where().line == 18);
  CHECK(machine.keys().size() == 14);
  CHECK(machine.keys().front() == "name");
  CHECK_FALSE(machine.find("absent").has_value());
  CHECK_FALSE(machine.has("absent"));
  CHECK(file.get("memory.l2").get("ways").where().line == 21);
  CHECK(file.get("memory.l2").get("ways").integer() == 16);
  file.only({"", "machine", "memory.*"});
  file.finish();
}

TEST_CASE("line ends, byte order mark and layout do not matter") {
  const IniFile plain = IniFile::parse("[a]\nx=1\n\n[b]\ny = \xc3\xa4 b\n", "x.ini");
  for (const char* text :
       {"[a]\r\nx = 1\r\n\r\n[b]\r\ny = \xc3\xa4 b\r\n", "\xef\xbb\xbf[a]\nx\t=\t1\n\n [b] \n\ty=\xc3\xa4 b",
        "[a] # first\nx=1 # one\n#\n[b]\ny = \xc3\xa4 b   "}) {
    const IniFile file = IniFile::parse(text, "x.ini");
    REQUIRE(file.sections().size() == 2);
    CHECK(file.get("a").get("x").integer() == 1);
    CHECK(file.get("b").get("y").text() == plain.get("b").get("y").text());
    CHECK(file.get("b").get("y").where().line == 5);
  }
  CHECK(IniFile::parse("", "x.ini").sections().empty());
  CHECK(IniFile::parse("[a]", "x.ini").get("a").keys().empty());
  CHECK(IniFile::parse("[a]\nx = y = z\n", "x.ini").get("a").get("x").text() == "y = z");
  CHECK(IniFile::parse("[a]\nx = 1\n[b]\n[c]\nx = 2\n", "x.ini").get("c").get("x").integer() == 2);
}

TEST_CASE("integers are never guessed") {
  const auto integer = [](const IniValue& value) { return value.integer(); };
  CHECK(IniFile::parse("[s]\nkey = 9223372036854775807\n", "x.ini").get("s").get("key").integer() ==
        9223372036854775807);
  CHECK(IniFile::parse("[s]\nkey = -3\n", "x.ini").get("s").get("key").integer(-5, 5) == -3);
  for (const char* text : {"1.0", "1e6", "2k", "32,000", "32_000", "0x10", "+1", "1 2", "ten", "1.", "--1", "-"})
    CHECK_THAT(value_error(text, integer),
               Catch::Contains("x.ini:3: key: '" + std::string(text) + "' is not an integer"));
  CHECK_THAT(value_error("9223372036854775808", integer), Catch::Contains("does not fit in 64 bits"));
  CHECK_THAT(value_error("-1", integer), Catch::Contains("-1 is too small; the least is 0"));
  CHECK_THAT(value_error("0", [](const IniValue& value) { return value.integer(1, 64); }),
             Catch::Contains("x.ini:3: key: 0 is out of range; allowed are 1 to 64"));
}

TEST_CASE("a wrong value names file, line and key") {
  CHECK_THAT(value_error("0.5.5", [](const IniValue& value) { return value.fraction(); }),
             Catch::StartsWith("x.ini:3: key: '0.5.5' is not a fraction"));
  CHECK_THAT(value_error("1/0", [](const IniValue& value) { return value.fraction(); }),
             Catch::Contains("denominator is 0"));
  CHECK_THAT(value_error("3.35", [](const IniValue& value) { return value.byte_rate(); }),
             Catch::StartsWith("x.ini:3: key: '3.35' has no unit"));
  CHECK_THAT(value_error("50", [](const IniValue& value) { return value.bytes(); }), Catch::Contains("has no unit"));
  CHECK_THAT(value_error("maybe", [](const IniValue& value) { return value.boolean(); }),
             Catch::StartsWith("x.ini:3: key: unknown value 'maybe'"));
  CHECK_THAT(value_error("bf17", [](const IniValue& value) { return value.dtype(); }),
             Catch::Contains("did you mean 'bf16'?"));
  CHECK_THAT(value_error("1, ,2", [](const IniValue& value) { return value.list(); }),
             Catch::StartsWith("x.ini:3: key: element 2 of the list is empty"));
  CHECK_THAT(value_error("1,", [](const IniValue& value) { return value.list(); }), Catch::Contains("element 2"));
  for (const char* text : {"nan", "inf", "1 s", "0,5", "1e999", "abc"})
    CHECK_THAT(value_error(text, [](const IniValue& value) { return value.real(); }),
               Catch::StartsWith("x.ini:3: key: "));
  CHECK_THAT(value_error("2", [](const IniValue& value) { return value.real(0, 1); }),
             Catch::Contains("allowed are 0 to 1"));
  CHECK_THAT(value_error("rmsnrom",
                         [](const IniValue& value) {
                           return value.choice<Norm>({{"rmsnorm", Norm::kRms}, {"layernorm", Norm::kLayer}});
                         }),
             Catch::Contains("did you mean 'rmsnorm'?"));
  CHECK_THAT(value_error("odd", [](const IniValue& value) { value.fail("must be even", "write 2"); }),
             Catch::Equals("x.ini:3: key: must be even\n  hint: write 2"));
}

TEST_CASE("unknown, missing and unread names") {
  const IniFile file = IniFile::parse("[model]\nlayers = 2\n\nwidht = 64\n[blcok.mod]\nx = 1\n", "x.ini");
  const IniSection& model = file.get("model");
  CHECK_THAT(error_of([&] {
               model.only({"layers", "width", "heads"});
             }),
             Catch::Equals("x.ini:4: widht: unknown key in [model]\n  hint: did you mean 'width'?"));
  CHECK_THAT(error_of([&] { model.get("width"); }),
             Catch::Equals("x.ini:1: [model]: key 'width' is missing\n  hint: line 4 has 'widht'"));
  CHECK_THAT(error_of([&] { model.get("vocabulary"); }),
             Catch::Equals("x.ini:1: [model]: key 'vocabulary' is missing"));
  CHECK_THAT(error_of([&] { file.get("blocks"); }), Catch::Equals("x.ini: section [blocks] is missing"));
  CHECK_THAT(error_of([&] {
               file.only({"model", "block.*"});
             }),
             Catch::StartsWith("x.ini:5: unknown section [blcok.mod]"));
  CHECK_THAT(error_of([&] { file.only({"model", "block.mod"}); }), Catch::Contains("did you mean 'block.mod'?"));
  CHECK_THAT(error_of([&] { IniFile::parse("x = 1\n", "x.ini").only({"model"}); }),
             Catch::Equals("x.ini:1: x: key before the first [section]"));
  CHECK(model.get("layers").integer() == 2);
  CHECK_THAT(error_of([&] { model.finish(); }),
             Catch::StartsWith("x.ini:4: widht: unknown key in [model]\n  hint: did you mean 'width'?"));
  CHECK_THAT(error_of([&] { file.finish(); }), Catch::StartsWith("x.ini:4: widht"));
}

// Every malformed file gets one error that names the line.
struct Bad {
  std::string text;
  const char* error;  // beginning of the message
};

TEST_CASE("malformed files") {
  using namespace std::string_literals;
  const Bad cases[] = {
      {"[a]\nx = 1\nx = 2\n", "x.ini:3: x: is there twice\n  hint: its first value is on line 2"},
      {"x = 1\nx = 2\n", "x.ini:2: x: is there twice"},
      {"[a]\n[b]\n[a]\n", "x.ini:3: section [a] is there twice\n  hint: its first occurrence is on line 1"},
      {"[a]\nx =\n", "x.ini:2: x: has no value"},
      {"[a]\nx = # nothing\n", "x.ini:2: x: has no value"},
      {"[a]\n= 1\n", "x.ini:2: a key without a name"},
      {"[]\n", "x.ini:1: a section without a name"},
      {"[ ]\n", "x.ini:1: ' ' is not a section name"},
      {"[a.]\n", "x.ini:1: section name 'a.' ends in '.'"},
      {"[a\nx = 1\n", "x.ini:1: '[a' lacks its ']'"},
      {"[a] b\n", "x.ini:1: '[a] b' lacks its ']'"},
      {"[a] = [b]\n", "x.ini:1: 'a] = [b' is not a section name"},
      {"[a = b]\n", "x.ini:1: 'a = b' is not a section name"},
      {"[a]\njust words\n", "x.ini:2: 'just words' is neither a [section] nor key = value"},
      {"; note\n", "x.ini:1: '; note' is neither a [section] nor key = value\n  hint: comments begin with '#'"},
      {"// note\n", "x.ini:1: '// note' is neither"},
      {"[a]\nmy key = 1\n", "x.ini:2: 'my key' is not a key name"},
      {"[a]\n\xc3\xa4 = 1\n", "x.ini:2: '\xc3\xa4' is not a key name"},
      {"[a]\n\"x\" = 1\n", "x.ini:2: '\"x\"' is not a key name"},
      {"{\"a\": 1}\n", "x.ini:1: '{\"a\": 1}' is neither a [section] nor key = value"},
      {"[" + std::string(200, 'a') + "]\n", "x.ini:1: a section name of 200 characters"},
      {"[a]\n" + std::string(200, 'k') + " = 1\n", "x.ini:2: a key name of 200 characters"},
      {"[a]\nx = " + std::string(70000, '1') + "\n", "x.ini:2: a line of more than 64 KiB"},
      {"[a]\nx = 1\n\0"s, "x.ini:3: contains a NUL byte: this is not a text file"},
      {"[a]\nx = \x01\n", "x.ini:2: contains the control character 0x01"},
      {"[a]\nx = \x7f\n", "x.ini:2: contains the control character 0x7f"},
      {"[a]\rx = 1\r", "x.ini:1: contains a carriage return inside a line"},
      {"[a]\nx = \xff\n", "x.ini:2: byte 0xff is not UTF-8\n  hint: save the file as UTF-8"},
      {"[a]\nx = \xe4 b\n", "x.ini:2: byte 0xe4 is not UTF-8"},            // Latin-1
      {"[a]\nx = \xc0\xaf\n", "x.ini:2: byte 0xc0 is not UTF-8"},          // overlong '/'
      {"[a]\nx = \xe0\x80\xaf\n", "x.ini:2: byte 0xe0 is not UTF-8"},      // overlong '/'
      {"[a]\nx = \xed\xa0\x80\n", "x.ini:2: byte 0xed is not UTF-8"},      // surrogate
      {"[a]\nx = \xf4\x90\x80\x80\n", "x.ini:2: byte 0xf4 is not UTF-8"},  // past U+10FFFF
      {"[a]\nx = \xe2\x82", "x.ini:2: byte 0xe2 is not UTF-8"},            // cut off
      {"\xff\xfe[\0a\0]\0"s, "x.ini:1: is UTF-16 text"},
      {"\xfe\xff\0[\0a\0]"s, "x.ini:1: is UTF-16 text"},
      {"\x7f"s + "ELF\x02\x01\x01", "x.ini:1: contains the control character 0x7f"},
      {std::string(10u << 20, 'x'), "x.ini: larger than 4 MiB"},
  };
  for (const Bad& bad : cases) {
    INFO(bad.text.substr(0, 80));
    CHECK_THAT(parse_error(bad.text), Catch::StartsWith(bad.error));
  }
}

TEST_CASE("long pieces are cut in messages, between characters") {
  std::string word;
  for (int i = 0; i < 100; ++i) word += "\xc3\xa4";
  const std::string text = parse_error("[a]\n" + word + "\n");
  CHECK(text.size() < 140);
  CHECK_NOTHROW(IniFile::parse("# " + text.substr(0, text.find('\n')) + "\n", "still UTF-8"));
}

TEST_CASE("files") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(FATHOM_BINARY_DIR) / "tests" / "ini_files";
  fs::create_directories(folder);
  const std::string good = (folder / "good.ini").string();
  std::ofstream(good) << kMachine;
  const IniFile file = IniFile::read(good);
  CHECK(file.get("machine").get("sms").integer() == 132);
  CHECK(file.get("machine").get("sms").where().file == good);
  const auto read_error = [](const std::string& path) { return error_of([&] { IniFile::read(path); }); };
  CHECK_THAT(read_error((folder / "absent.ini").string()), Catch::EndsWith("absent.ini: there is no such file"));
  CHECK_THAT(read_error(folder.string()), Catch::EndsWith("is a folder, not a file"));
  CHECK_THAT(read_error("/dev/zero"), Catch::EndsWith("is not a regular file"));
  const std::string large = (folder / "large.ini").string();
  std::ofstream(large) << std::string(10u << 20, '\n');
  CHECK_THAT(read_error(large), Catch::Contains("larger than 4 MiB"));
  fs::remove(large);
}

}  // namespace
}  // namespace fathom
