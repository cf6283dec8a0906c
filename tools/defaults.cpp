#include "tools/defaults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lib/error.hpp"
#include "models/ini.hpp"
#include "tools/help.hpp"

namespace fathom {
namespace {

std::filesystem::path file_name() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && config[0] == '/') return std::filesystem::path(config) / "fathom" / "defaults.ini";
  if (const char* home = std::getenv("HOME"); home && home[0] == '/') return std::filesystem::path(home) / ".config" / "fathom" / "defaults.ini";
  return {};
}

bool given(const std::vector<std::string>& arguments, const OptionText& option) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == option.name || argument.starts_with(option.name + "=") || (!option.short_name.empty() && argument.starts_with(option.short_name));
  });
}

const OptionText* find(const std::vector<OptionText>& options, const std::string& key) {
  for (const OptionText& option : options)
    if (!option.positional && option.name == "--" + key) return &option;
  return nullptr;
}

struct Used {
  std::string option, value;
  Where where;
};
std::vector<Used> g_used;

}  // namespace

std::string default_behind(const std::string& key, const std::string& message) {
  const bool by_value = !key.starts_with("--") && !message.starts_with("--");  // the option is not named, so its value has to tell
  for (const Used& used : g_used) {
    const bool named = key == used.option || key == used.option.substr(2) || message.starts_with(used.option + ":") || message.starts_with(used.option + " ");
    if (named || (by_value && message.find("'" + used.value + "'") != std::string::npos))
      return fmt::format("  from: {}:{}: {} = {} (--no-defaults ignores that file)\n", used.where.file, used.where.line, used.option.substr(2), used.value);
  }
  return {};
}

bool is_default(const std::string& option) {
  return std::any_of(g_used.begin(), g_used.end(), [&](const Used& used) { return used.option == option; });
}

bool about_default(const std::string& note) { return note.starts_with("--") && note.find(" changes nothing here") != std::string::npos && is_default(note.substr(0, note.find(' '))); }

std::vector<std::string> with_defaults(const CLI::App& app, std::vector<std::string> arguments) {
  if (std::erase(arguments, "--no-defaults") > 0) return arguments;
  const std::filesystem::path path = file_name();
  std::error_code code;
  if (path.empty() || !std::filesystem::exists(path, code)) return arguments;
  const auto commands = commands_of(app);
  const auto word = std::find_if(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return std::any_of(commands.begin(), commands.end(), [&](const CLI::App* command) { return command->get_name() == argument; });
  });
  if (word == arguments.end()) return arguments;
  const CLI::App& command = **std::find_if(commands.begin(), commands.end(), [&](const CLI::App* each) { return each->get_name() == *word; });
  const std::vector<OptionText> options = options_of(command);

  const IniFile file = IniFile::read(path.string());
  std::vector<std::string> known = {"common"}, everywhere;
  for (const CLI::App* each : commands) {
    known.push_back(each->get_name());
    for (const OptionText& option : options_of(*each))
      if (!option.positional) everywhere.push_back(option.name.substr(2));
  }
  file.only(known);
  std::vector<std::string> added;
  const auto add = [&](const IniSection& section, bool common) {
    for (const std::string& key : section.keys()) {
      const IniValue value = section.get(key);
      const OptionText* option = find(options, key);
      if (!option && common && std::find(everywhere.begin(), everywhere.end(), key) != everywhere.end()) continue;  // of other commands
      if (!option) {
        std::vector<std::string> names;
        for (const OptionText& each : options)
          if (!each.positional) names.push_back(each.name.substr(2));
        throw_input(fmt::format("fathom {} has no option --{}", common ? "COMMAND" : command.get_name(), key), value.where(), name_hint(key, common ? everywhere : names));
      }
      const IniSection* own = common ? file.find(command.get_name()) : nullptr;
      if (given(arguments, *option) || (own && own->has(key))) continue;
      g_used.push_back({option->name, value.text(), value.where()});
      if (!option->type.empty())
        added.push_back(option->name + "=" + value.text());
      else if (value.boolean())
        added.push_back(option->name);
    }
  };
  if (const IniSection* common = file.find("common")) add(*common, true);
  if (const IniSection* own = file.find(command.get_name())) add(*own, false);
  arguments.insert(word + 1, added.begin(), added.end());
  return arguments;
}

}  // namespace fathom
