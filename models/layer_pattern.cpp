#include "models/layer_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {
namespace {

constexpr std::size_t kMaxWords = 100000;
constexpr int kMaxNesting = 16;

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  std::vector<std::string> run() {
    std::vector<std::string> words = sequence(0);
    if (at_ < text_.size()) fail("a ')' without its '('");
    if (words.empty()) fail("the pattern is empty");
    return words;
  }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    throw_input(why, {}, "write words and repetitions, such as 'dense 3*(dense mod)'");
  }
  static bool special(char c) { return c == '(' || c == ')' || c == '*' || c == ' ' || c == '\t'; }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  std::vector<std::string> sequence(int depth) {
    if (depth > kMaxNesting) fail(fmt::format("parentheses nest deeper than {}", kMaxNesting));
    std::vector<std::string> words;
    for (skip_spaces(); at_ < text_.size() && text_[at_] != ')'; skip_spaces()) {
      std::vector<std::string> unit = item(depth);
      if (unit.size() > kMaxWords - words.size()) fail(fmt::format("more than {} layers", kMaxWords));
      words.insert(words.end(), unit.begin(), unit.end());
    }
    return words;
  }

  // word | ( sequence ) | count * word | count * ( sequence )
  std::vector<std::string> item(int depth) {
    if (text_[at_] == '(') return group(depth);
    if (text_[at_] == '*') fail("a '*' without its count");
    std::string name = word();
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != '*') return {std::move(name)};
    ++at_;
    std::size_t count = 0;
    for (char c : name) {
      if (c < '0' || c > '9' || count > kMaxWords) fail(fmt::format("'{}' is no repetition count", name.substr(0, 40)));
      count = 10 * count + static_cast<std::size_t>(c - '0');
    }
    if (count == 0 || count > kMaxWords) fail(fmt::format("a repetition count must be 1 to {}", kMaxWords));
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] == ')' || text_[at_] == '*') fail("a repetition of nothing");
    const std::vector<std::string> unit = text_[at_] == '(' ? group(depth) : std::vector<std::string>{word()};
    if (unit.size() * count > kMaxWords) fail(fmt::format("more than {} layers", kMaxWords));
    std::vector<std::string> words;
    words.reserve(unit.size() * count);
    for (std::size_t i = 0; i < count; ++i) words.insert(words.end(), unit.begin(), unit.end());
    return words;
  }

  std::vector<std::string> group(int depth) {
    ++at_;
    std::vector<std::string> words = sequence(depth + 1);
    if (at_ >= text_.size()) fail("a '(' without its ')'");
    ++at_;
    if (words.empty()) fail("an empty pair of parentheses");
    return words;
  }

  std::string word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && !special(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::string> parse_layer_pattern(std::string_view text) {
  return PatternParser(text).run();
}

std::string layer_pattern_text(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size();) {
    // The repetition starting here that covers most words; the shortest unit among equals.
    std::size_t best_period = 1;
    std::size_t best_count = 1;
    for (std::size_t period = 1; period <= std::min<std::size_t>(32, (words.size() - i) / 2); ++period) {
      std::size_t end = i + period;
      while (end < words.size() && words[end] == words[end - period]) ++end;
      const std::size_t count = (end - i) / period;
      if (count > 1 && count * period > best_count * best_period) best_period = period, best_count = count;
    }
    std::string unit;
    for (std::size_t j = 0; j < best_period; ++j) unit += (j ? " " : "") + words[i + j];
    if (!text.empty()) text += ' ';
    if (best_count == 1)
      text += unit;
    else
      text += best_period == 1 ? fmt::format("{}*{}", best_count, unit) : fmt::format("{}*({})", best_count, unit);
    i += best_count * best_period;
  }
  return text;
}

}  // namespace fathom
