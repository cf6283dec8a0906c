#include "models/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "lib/error.hpp"
#include "models/network_ini.hpp"

namespace fathom {
namespace {

const BuiltinFile* find_builtin(std::string_view name) {
  const auto files = builtin_network_files();
  const auto found =
      std::find_if(files.begin(), files.end(), [name](const BuiltinFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> names;
  for (const BuiltinFile& file : builtin_network_files()) names.emplace_back(file.name);
  return names;
}

Network parse_builtin(const BuiltinFile& file) {
  return parse_network_ini(file.text, std::string(file.name));
}

// JSON begins with '{' after blanks; everything else is read as INI, whose errors name the line.
bool looks_like_json(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  char c = 0;
  for (int i = 0; i < 4096 && stream.get(c); ++i)
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return c == '{';
  return false;
}

}  // namespace

std::vector<NetworkEntry> list_networks() {
  std::vector<NetworkEntry> entries;
  for (const BuiltinFile& file : builtin_network_files())
    entries.push_back({std::string(file.name), parse_builtin(file).summary});
  return entries;
}

Network builtin_network(std::string_view name) {
  const BuiltinFile* file = find_builtin(name);
  if (file == nullptr)
    throw_input(fmt::format("there is no built-in network '{}'", name.substr(0, 80)), {},
                name_hint(name, builtin_names()));
  return parse_builtin(*file);
}

Network load_network(const std::string& model, const HfOptions& options) {
  if (find_builtin(model) != nullptr) return builtin_network(model);
  std::error_code code;
  std::filesystem::path path(model);
  if (!model.empty() && std::filesystem::is_directory(path, code)) {
    path /= "config.json";
    if (!std::filesystem::exists(path, code))
      throw_input("the folder holds no config.json", {model, 0, ""},
                  "name a model file, or a folder with a Hugging Face config.json");
  }
  const std::string extension = path.extension().string();
  if (extension == ".json") return read_hf_config(path.string(), options);
  if (extension == ".ini") return read_network_ini(path.string());
  if (!model.empty() && std::filesystem::exists(path, code))
    return looks_like_json(path.string()) ? read_hf_config(path.string(), options) : read_network_ini(path.string());
  throw_input(fmt::format("'{}' is neither a built-in network nor a file", model.substr(0, 80)), {},
              name_hint(model, builtin_names()));
}

}  // namespace fathom
