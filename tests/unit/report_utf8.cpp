// Terminal width, clipping, wrapping and repair of text.
#include "reports/utf8.hpp"

#include <catch2/catch.hpp>
#include <random>

using namespace fathom;

TEST_CASE("display width", "[reports]") {
  CHECK(display_width("abc") == 3);
  CHECK(display_width("µs") == 2);
  CHECK(display_width("日本") == 4);
  CHECK(display_width("e\xcc\x81") == 1);  // e and a combining acute accent
}

TEST_CASE("control characters become visible", "[reports]") {
  CHECK(printable("a\nb\tc\x1b[31m") == "a\\nb\\tc\\x1b[31m");
  CHECK(printable("\xe2\x80\xae") == "\\u{202e}");  // right-to-left override
  CHECK(printable("\xff") == "\xef\xbf\xbd");
}

TEST_CASE("clipping keeps both ends and never exceeds the width", "[reports]") {
  CHECK(clip_middle("layers.07/mod/mlp/down", 22) == "layers.07/mod/mlp/down");
  CHECK(clip_middle("layers.07/mod/mlp/down", 13) == "layers…p/down");
  for (int width = 0; width < 24; ++width) {
    CHECK(display_width(clip_middle("日本語/mod/attention/日本", width)) <= width);
    CHECK(display_width(clip_middle("layers.07/mod/mlp/down", width, "~")) <= width);
  }
}

TEST_CASE("clipping never leaves a part of a number", "[reports]") {
  CHECK(clip_middle("0.0123 to 0.0456", 10) == "…");
  CHECK(clip_middle("block 12345", 7) == "blo…");
  CHECK(clip_middle("block 12", 6) == "bl… 12");
  for (int width = 1; width < 40; ++width) {
    const std::string text = "layers.12/mod 0.0625 to 1,024.5 of 77", clipped = clip_middle(text, width);
    INFO(clipped);
    CHECK(display_width(clipped) <= width);
    std::string number;
    for (const char c : clipped + " ") {
      if ((c >= '0' && c <= '9') || ((c == '.' || c == ',') && !number.empty())) {
        number += c;
        continue;
      }
      while (!number.empty() && (number.back() == '.' || number.back() == ',')) number.pop_back();
      if (!number.empty()) CHECK((number == "12" || number == "0.0625" || number == "1,024.5" || number == "77"));
      number.clear();
    }
  }
}

TEST_CASE("padding", "[reports]") {
  CHECK(pad_left("7", 3) == "  7");
  CHECK(pad_right("日", 4) == "日  ");
  CHECK(pad_left("long", 2) == "long");
}

TEST_CASE("wrapping keeps every word and the width", "[reports]") {
  CHECK(wrap("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrap("", 10) == std::vector<std::string>{""});
  CHECK(wrap("abcdefgh", 3) == std::vector<std::string>{"abc", "def", "gh"});
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string text, letters;
    for (unsigned n = random() % 60; n > 0; --n)
      text += random() % 5 == 0 ? ' ' : static_cast<char>('a' + random() % 26);
    std::string joined;
    const int width = 1 + static_cast<int>(random() % 20);
    for (const std::string& line : wrap(text, width)) {
      REQUIRE(display_width(line) <= width);
      joined += line;
    }
    std::erase(joined, ' ');
    std::erase(text, ' ');
    REQUIRE(joined == text);
  }
}
