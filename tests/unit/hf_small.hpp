// Hugging Face configurations for tests: the stored ones by name, small ones of a family from a few keys, what is refused.
#pragma once

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>
#include <string>

#include "lib/error.hpp"
#include "models/import/hf_config.hpp"

namespace fathom::testing {

// The text of a stored configuration; `folder`: FATHOM_SOURCE_DIR/tests/data/hf/, which only sources that name it are told.
inline std::string hf_text(const std::string& folder, const std::string& name) {
  std::ifstream stream(folder + name + ".json");
  REQUIRE(stream);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// A small file of one family: `keys` are the members after model_type.
inline Network import_small(const std::string& type, const std::string& keys, const HfOptions& options = {}) {
  return import_hf_config("{\"model_type\": \"" + type + "\",\n" + keys + "}", "config.json", options);
}
inline const char* const kTinyHf =
    R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)";

// The key of the refusal, "" when it has none.
inline std::string refused(const std::string& type, const std::string& keys) {
  try {
    import_small(type, keys);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.where().file == "config.json");
    CHECK(error.where().line > 0);
    return error.where().key;
  }
  FAIL("accepted: " << type << " {" << keys << "}");
  return "";
}

inline bool has_note(const Network& n, const std::string& start) {
  for (const std::string& note : n.notes)
    if (note.starts_with(start)) return true;
  return false;
}

}  // namespace fathom::testing
