#include "models/ini.hpp"

#include <fmt/format.h>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unordered_map>

#include "models/ini_text.hpp"

namespace fathom {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

void check_name(std::string_view name, std::string_view what, const Where& where) {
  if (name.empty()) throw_input(fmt::format("a {} without a name", what), where);
  if (name.size() > kMaxIniName)
    throw_input(fmt::format("a {} name of {} characters; at most {} are allowed", what, name.size(), kMaxIniName),
                where);
  if (!std::all_of(name.begin(), name.end(), is_name_char))
    throw_input(fmt::format("'{}' is not a {} name", ini_excerpt(name), what), where,
                "names consist of letters, digits, '_', '-' and '.'");
}

// What one line of the file is, and where in the text.
struct ScannedKey {
  std::string section;
  std::string key;
  int line;
};

// What Boost made of the same text; it keeps the order of the lines.
std::vector<std::pair<std::string, std::string>> boost_values(std::string_view text, const std::string& name) {
  namespace po = boost::program_options;
  std::istringstream stream{std::string(text)};
  std::vector<std::pair<std::string, std::string>> values;
  try {
    const po::options_description none;
    for (const po::option& option : po::parse_config_file(stream, none, true).options)
      values.emplace_back(option.string_key, option.value.empty() ? "" : option.value.front());
  } catch (const po::error& error) {
    throw_input(fmt::format("not an INI file: {}", error.what()), {name, 0, ""});
  }
  return values;
}

}  // namespace

IniFile IniFile::parse(std::string_view text, const std::string& name) {
  IniFile file;
  file.name_ = name;
  text = check_ini_text(text, name);

  std::vector<ScannedKey> scanned;
  std::unordered_map<std::string, int> section_lines;
  std::unordered_map<std::string, int> key_lines;
  std::string section;
  bool in_section = false;
  int line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    const Where where{name, line_number, ""};
    line = trim_ini(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (line.front() == '[') {
      if (line.back() != ']') throw_input(fmt::format("'{}' lacks its ']'", ini_excerpt(line)), where);
      section = line.substr(1, line.size() - 2);
      check_name(section, "section", where);
      if (section.back() == '.') throw_input(fmt::format("section name '{}' ends in '.'", section), where);
      const auto [first, fresh] = section_lines.emplace(section, line_number);
      if (!fresh)
        throw_input(fmt::format("section [{}] is there twice", section), where,
                    fmt::format("its first occurrence is on line {}", first->second));
      in_section = true;
      file.sections_.emplace_back();
    } else {
      const std::size_t equals = line.find('=');
      if (equals == std::string_view::npos)
        throw_input(fmt::format("'{}' is neither a [section] nor key = value", ini_excerpt(line)), where,
                    line.front() == ';' || line.starts_with("//") ? "comments begin with '#'" : "");
      const std::string key(trim_ini(line.substr(0, equals)));
      check_name(key, "key", where);
      if (trim_ini(line.substr(equals + 1)).empty()) throw_input("has no value", {name, line_number, key});
      const auto [first, fresh] = key_lines.emplace(in_section ? section + "]" + key : key, line_number);
      if (!fresh)
        throw_input("is there twice", {name, line_number, key},
                    fmt::format("its first value is on line {}", first->second));
      if (!in_section && file.sections_.empty()) file.sections_.emplace_back();
      scanned.push_back({section, key, line_number});
    }
    IniSection& current = file.sections_.back();
    if (current.line_ == 0) {
      current.name_ = section;
      current.file_ = name;
      current.line_ = line_number;
    }
  }

  // The scan knows lines, Boost the values; they read the same grammar, so anything but a perfect match is a bug here.
  const auto values = boost_values(text, name);
  if (values.size() != scanned.size())
    throw_internal(fmt::format("{}: scan and parser disagree on the number of keys", name));
  auto current = file.sections_.begin();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ScannedKey& key = scanned[i];
    if (values[i].first != (key.section.empty() ? key.key : key.section + "." + key.key))
      throw_internal(fmt::format("{}:{}: scan and parser disagree on key '{}'", name, key.line, key.key));
    while (current->name_ != key.section) ++current;
    current->entries_.push_back({key.key, values[i].second, key.line, false});
  }
  return file;
}

IniFile IniFile::read(const std::string& path) {
  const Where where{path, 0, ""};
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (status.type() == std::filesystem::file_type::not_found) throw_input("there is no such file", where);
  if (code) throw_input(fmt::format("cannot be read: {}", code.message()), where);
  if (std::filesystem::is_directory(status)) throw_input("is a folder, not a file", where);
  if (!std::filesystem::is_regular_file(status)) throw_input("is not a regular file", where);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw_input(fmt::format("cannot be read: {}", std::strerror(errno)), where);
  // One byte more than allowed is enough to know; check_ini_text says so.
  std::string text(kMaxIniBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) throw_input("cannot be read", where);
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse(text, path);
}

const IniSection* IniFile::find(std::string_view section) const {
  for (const IniSection& candidate : sections_)
    if (candidate.name_ == section) return &candidate;
  return nullptr;
}

const IniSection& IniFile::get(std::string_view section) const {
  const IniSection* found = find(section);
  if (found == nullptr) throw_input(section.empty() ? std::string("has no keys before its first section") : fmt::format("section [{}] is missing", section), {name_, 0, ""});
  return *found;
}

void IniFile::only(const std::vector<std::string>& known) const {
  for (const IniSection& section : sections_) {
    const bool allowed = std::any_of(known.begin(), known.end(), [&](const std::string& name) {
      if (name.ends_with(".*")) return section.name_.starts_with(name.substr(0, name.size() - 1));
      return section.name_ == name;
    });
    if (allowed) continue;
    if (section.name_.empty())
      throw_input("key before the first [section]", {name_, section.line_, section.entries_.front().key});
    std::vector<std::string> named = known;
    std::erase(named, std::string());  // keys before the first section
    throw_input(fmt::format("unknown section [{}]", section.name_), {name_, section.line_, ""}, name_hint(section.name_, named));
  }
}

void IniFile::finish() const {
  for (const IniSection& section : sections_) section.finish();
}

std::vector<std::string> IniSection::keys() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.key);
  return names;
}

const IniSection::Entry* IniSection::entry(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key == key) return &entry;
  return nullptr;
}

std::optional<IniValue> IniSection::find(std::string_view key) const {
  const Entry* found = entry(key);
  if (found == nullptr) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
    return std::nullopt;
  }
  found->asked = true;
  return IniValue(found->text, {file_, found->line, found->key});
}

IniValue IniSection::get(std::string_view key) const {
  std::optional<IniValue> value = find(key);
  if (value) return *std::move(value);
  // A misspelt key shows up as a missing one: point at the line of the likely culprit.
  std::vector<std::string> unread;
  for (const Entry& entry : entries_)
    if (!entry.asked) unread.push_back(entry.key);
  const std::string culprit = nearest_name(key, unread);
  throw_input(fmt::format("key '{}' is missing", key), where(),
              culprit.empty() ? "" : fmt::format("line {} has '{}'", entry(culprit)->line, culprit));
}

void IniSection::unknown_key(const Entry& entry, const std::vector<std::string>& known) const {
  throw_input(name_.empty() ? "unknown key" : fmt::format("unknown key in [{}]", name_), {file_, entry.line, entry.key},
              known.empty() ? "" : name_hint(entry.key, known));
}

void IniSection::only(const std::vector<std::string>& known) const {
  for (const Entry& entry : entries_)
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) unknown_key(entry, known);
}

void IniSection::finish() const {
  for (const Entry& entry : entries_)
    if (!entry.asked) unknown_key(entry, asked_);
}

}  // namespace fathom
