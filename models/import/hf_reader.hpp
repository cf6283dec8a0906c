// Reads one Hugging Face configuration object strictly.
//
// Every key is consumed by a getter, listed by the family as known and irrelevant, or reported as ignored by finish().
// Absent and null are different: a getter with a default uses it (and says so in the notes) only when the key is
// absent; nullable() takes both. Several names of one quantity must agree.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/import/json_tree.hpp"

namespace fathom {

class HfReader {
 public:
  using Names = std::initializer_list<const char*>;

  // `prefix` names the object in messages ("" or "text_config.").
  HfReader(const JsonNode& object, std::string file, std::vector<std::string>& notes, std::string prefix = "");

  bool has(const char* name) const { return object_.find(name) != nullptr; }
  bool is_null(const char* name) const;

  // Required integer in [low, high].
  std::int64_t integer(Names names, std::int64_t low = 1, std::int64_t high = kMaxSize);
  // Integer with the family's documented default when absent; null is an error.
  std::int64_t integer_or(Names names, std::int64_t standard, std::int64_t low = 1, std::int64_t high = kMaxSize);
  // Integer whose null has a meaning of its own. `absent` nullopt: the key is required.
  std::int64_t nullable(Names names, std::optional<std::int64_t> absent, std::int64_t null, std::int64_t low = 1,
                        std::int64_t high = kMaxSize);
  // Absent or null: nullopt, without a note.
  std::optional<std::int64_t> maybe_integer(const char* name, std::int64_t low = 0, std::int64_t high = kMaxSize);
  bool boolean_or(Names names, bool standard);
  double real_or(Names names, double standard);
  std::string text_or(Names names, const std::string& standard);
  // Integers or strings of a list; absent or null: nullopt.
  std::optional<std::vector<std::int64_t>> integers(const char* name, std::int64_t low, std::int64_t high);
  std::optional<std::vector<std::string>> strings(const char* name);
  // A nested object; absent or null: nullptr.
  const JsonNode* object(const char* name);

  // Keys that the family knows and that change no count.
  void irrelevant(Names names);
  // Lists the irrelevant keys and what was left over as ignored; with strict, the first of the latter is an error.
  void finish(bool strict);

  void note(const std::string& text) { notes_.push_back(text); }
  [[noreturn]] void fail(const char* name, const std::string& message, std::string hint = {}) const;
  const std::string& file() const { return file_; }
  std::vector<std::string>& notes() { return notes_; }

  static constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

 private:
  // The first name that is present; all that are present must agree. Marks them consumed.
  const JsonNode* find(Names names, const char** found);
  std::int64_t to_integer(const char* name, const JsonNode& node, std::int64_t low, std::int64_t high) const;
  void check_other_names() const;
  void used_default(Names names, const std::string& value);
  [[noreturn]] void missing(Names names) const;

  const JsonNode& object_;
  std::string file_;
  std::vector<std::string>& notes_;
  std::string prefix_;
  std::set<std::string, std::less<>> consumed_;
  std::vector<std::string> asked_;
  std::vector<std::string> without_effect_;  // irrelevant ones that the file has, for the report
};

}  // namespace fathom
