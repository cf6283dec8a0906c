// The JSON tree: values, lines, limits.
#include "models/import/json_tree.hpp"

#include <catch2/catch.hpp>

#include "lib/error.hpp"

using namespace fathom;

TEST_CASE("members carry the line of their key, list elements their own", "[json]") {
  const JsonNode root =
      parse_json_tree("{\n\"a\": 1,\n\"b\":\n  [10,\n  20\n  , {\"c\": null}],\n\n\"d\": {\n\"e\": true}}\n", "t.json");
  CHECK(root.line == 1);
  CHECK(root.names == std::vector<std::string>{"a", "b", "d"});
  CHECK(root.find("a")->line == 2);
  CHECK(root.find("b")->line == 3);
  CHECK(root.find("b")->items[0].line == 4);
  CHECK(root.find("b")->items[1].line == 5);  // the lexer has read past the line's end by then
  CHECK(root.find("b")->items[2].find("c")->line == 6);
  CHECK(root.find("d")->line == 8);
  CHECK(root.find("d")->find("e")->line == 9);
  CHECK(root.find("x") == nullptr);
}

TEST_CASE("numbers keep what was written", "[json]") {
  const JsonNode root = parse_json_tree("[0, -5, 18446744073709551615, 18446744073709551616, 1.50, 1e3]", "t.json");
  using Kind = JsonNode::Kind;
  const std::pair<Kind, const char*> expected[] = {
      {Kind::kInteger, "0"},
      {Kind::kInteger, "-5"},
      {Kind::kInteger, "18446744073709551615"},
      {Kind::kInteger, "18446744073709551616"},  // past 64 bits still one, though out of every range
      {Kind::kReal, "1.50"},
      {Kind::kReal, "1e3"}};
  REQUIRE(root.items.size() == std::size(expected));
  for (std::size_t i = 0; i < root.items.size(); ++i) {
    CHECK(root.items[i].kind == expected[i].first);
    CHECK(root.items[i].text == expected[i].second);
  }
}

TEST_CASE("what is no JSON is refused with its line", "[json]") {
  const auto line_of = [](const std::string& text) {
    try {
      parse_json_tree(text, "t.json");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      CHECK(error.where().file == "t.json");
      return error.where().line;
    }
    FAIL("accepted: " << text.substr(0, 60));
    return 0;
  };
  CHECK(line_of("") == 1);
  CHECK(line_of("\n\n}") == 3);
  CHECK(line_of("{\"a\": 1}\n\nx") == 3);
  CHECK(line_of("{\"a\": 1e999}") == 1);
  CHECK(line_of("{\"a\": nan}") == 1);
  CHECK(line_of("{\"a\": \"\xff\"}") == 1);
  CHECK(line_of("{\"a\": 1,\n \"a\": 1}") == 2);
  CHECK(line_of("{\"a\": 1 // comment\n}") == 1);
  std::string deep(kMaxJsonDepth, '[');
  CHECK_NOTHROW(parse_json_tree(deep + std::string(kMaxJsonDepth, ']'), "t.json"));
  CHECK(line_of("[" + deep + std::string(kMaxJsonDepth, ']') + "]") == 1);
  std::string many = "[0";
  for (std::size_t i = 0; i < kMaxJsonNodes; ++i) many += ",0";
  CHECK(line_of(many + "]") == 1);
  CHECK(line_of(std::string(kMaxJsonBytes + 1, ' ')) == 0);
}
