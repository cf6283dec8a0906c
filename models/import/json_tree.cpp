#include "models/import/json_tree.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "lib/error.hpp"

namespace fathom {
namespace {

// Where the parser stands. The lexer reads one character past a number, which may be the line's end.
struct Position {
  int line = 1;
  char last = ' ';
  int token_line() const { return last == '\n' ? line - 1 : line; }
};

// Walks the text and counts lines; the parser copies iterators, so the count lives outside.
class LineIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  LineIterator& operator++() {
    position_->last = *at_;
    if (*at_ == '\n') ++position_->line;
    ++at_;
    return *this;
  }
  LineIterator operator++(int) {
    LineIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const LineIterator& a, const LineIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const LineIterator& a, const LineIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  Position* position_;
};

// Receives the parser's events and builds the tree on an explicit stack.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(const std::string& file, const Position& position) : file_(file), position_(position) {}

  bool null() override { return add(node(JsonNode::Kind::kNull)); }
  bool boolean(bool value) override {
    JsonNode made = node(JsonNode::Kind::kBool);
    made.truth = value;
    return add(std::move(made));
  }
  bool number_integer(number_integer_t value) override {
    return number(JsonNode::Kind::kInteger, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(JsonNode::Kind::kInteger, std::to_string(value));
  }
  // Integers past 64 bits arrive here too.
  bool number_float(number_float_t, const string_t& token) override {
    return number(token.find_first_of(".eE") == string_t::npos ? JsonNode::Kind::kInteger : JsonNode::Kind::kReal, token);
  }
  bool string(string_t& value) override {
    JsonNode made = node(JsonNode::Kind::kString);
    made.text = std::move(value);
    return add(std::move(made));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return push(node(JsonNode::Kind::kObject)); }
  bool start_array(std::size_t) override { return push(node(JsonNode::Kind::kArray)); }
  bool end_object() override { return pop(); }
  bool end_array() override { return pop(); }

  bool key(string_t& name) override {
    Frame& frame = stack_.back();
    if (!frame.seen.insert(name).second)
      throw_input("is there twice", {file_, position_.token_line(), json_excerpt(name)}, "keep one of the two");
    frame.node.names.push_back(std::move(name));
    frame.key_line = position_.token_line();
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    std::string message = error.what();  // "[json.exception...] parse error at line 1, column 2: syntax error ..."
    if (const std::size_t colon = message.find(": "); colon != std::string::npos) message = message.substr(colon + 2);
    if (const std::size_t bracket = message.find("] "); message.starts_with("[json.exception") && bracket != std::string::npos) message = message.substr(bracket + 2);  // "[json.exception.out_of_range.406] number overflow ..."
    if (message.size() > 300) message = message.substr(0, 300) + " ...";
    for (char& c : message)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    throw_input("not valid JSON: " + message, {file_, position_.token_line(), ""});
  }

  JsonNode take() { return std::move(root_); }

 private:
  struct Frame {
    JsonNode node;
    std::unordered_set<std::string> seen;
    int key_line = 0;
  };

  JsonNode node(JsonNode::Kind kind) {
    if (++nodes_ > kMaxJsonNodes)
      throw_input(fmt::format("more than {} values; this is no model configuration", kMaxJsonNodes),
                  {file_, position_.token_line(), ""});
    JsonNode made;
    made.kind = kind;
    // A member stands on its key's line: that is what a reader looks for.
    made.line = !stack_.empty() && stack_.back().node.kind == JsonNode::Kind::kObject ? stack_.back().key_line
                                                                                      : position_.token_line();
    return made;
  }
  bool number(JsonNode::Kind kind, std::string token) {
    JsonNode made = node(kind);
    made.text = std::move(token);
    return add(std::move(made));
  }
  bool add(JsonNode value) {
    if (stack_.empty())
      root_ = std::move(value);
    else
      stack_.back().node.items.push_back(std::move(value));
    return true;
  }
  bool push(JsonNode container) {
    if (stack_.size() >= kMaxJsonDepth)
      throw_input(fmt::format("nested deeper than {} levels", kMaxJsonDepth), {file_, position_.token_line(), ""});
    stack_.push_back({std::move(container), {}, 0});
    return true;
  }
  bool pop() {
    JsonNode done = std::move(stack_.back().node);
    stack_.pop_back();
    return add(std::move(done));
  }

  const std::string& file_;
  const Position& position_;
  std::vector<Frame> stack_;
  std::size_t nodes_ = 0;
  JsonNode root_;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view name) const {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return &items[i];
  return nullptr;
}

std::string_view json_kind_name(JsonNode::Kind kind) {
  switch (kind) {
    case JsonNode::Kind::kNull:
      return "null";
    case JsonNode::Kind::kBool:
      return "a boolean";
    case JsonNode::Kind::kInteger:
      return "an integer";
    case JsonNode::Kind::kReal:
      return "a real number";
    case JsonNode::Kind::kString:
      return "a string";
    case JsonNode::Kind::kArray:
      return "a list";
    case JsonNode::Kind::kObject:
      return "an object";
  }
  return "?";
}

JsonNode parse_json_tree(std::string_view text, const std::string& file) {
  if (text.size() > kMaxJsonBytes)
    throw_input(fmt::format("larger than {} MB; this is no model configuration", kMaxJsonBytes >> 20), {file, 0, ""});
  Position position;
  TreeBuilder builder(file, position);
  const LineIterator first(text.data(), &position);
  const LineIterator last(text.data() + text.size(), &position);
  if (!nlohmann::json::sax_parse(first, last, &builder)) throw_input("not valid JSON", {file, position.line, ""});
  return builder.take();
}

JsonNode read_json_tree(const std::string& path) {
  const Where where{path, 0, ""};
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (status.type() == std::filesystem::file_type::not_found) throw_input("there is no such file", where);
  if (code) throw_input(fmt::format("cannot be read: {}", code.message()), where);
  if (!std::filesystem::is_regular_file(status)) throw_input("is not a regular file", where);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw_input(fmt::format("cannot be read: {}", std::strerror(errno)), where);
  std::string text(kMaxJsonBytes + 1, '\0');  // one byte more than allowed is enough to know
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) throw_input("cannot be read", where);
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_json_tree(text, path);
}

std::string json_excerpt(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  if (text.size() > 60) out += "...";
  return out;
}

}  // namespace fathom
