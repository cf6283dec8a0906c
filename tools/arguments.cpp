#include "tools/arguments.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cctype>
#include <optional>

#include "lib/error.hpp"

namespace fathom {
namespace {

struct Seen {
  std::string name;                      // "--seq", "-o"; "" of an empty word
  const CLI::App* app = nullptr;         // whose option it would be
  const CLI::Option* option = nullptr;   // null: it has none of that name
  std::optional<std::string> next;       // the word behind it that is taken as its value
  bool empty = false;                    // "--seq=": the parser would take the next word
};

std::string long_name(const std::string& word) { return word.substr(0, word.find('=')); }

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" && word[1] != '.' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;  // -1, -.5 are numbers
}

std::vector<Seen> options_in(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<Seen> seen;
  const CLI::App* at = &app;
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    if (!is_option(word)) {
      if (word.empty()) seen.push_back({word, at, nullptr, std::nullopt, true});
      if (at == &app)
        for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
          if (command->get_name() == word) at = command;
      continue;
    }
    const bool is_long = word[1] == '-';
    Seen one{is_long ? long_name(word) : word.substr(0, 2), at, nullptr, std::nullopt};
    one.option = at->get_option_no_throw(one.name);
    one.empty = one.option && one.option->get_items_expected_max() > 0 && is_long && word.size() == one.name.size() + 1;
    const bool alone = is_long ? one.name == word : word.size() == 2;
    if (one.option && one.option->get_items_expected_max() > 0 && alone && i + 1 < arguments.size()) one.next = arguments[++i];
    seen.push_back(std::move(one));
  }
  return seen;
}

std::string nearest_option(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  if (word.size() > 2) return nearest_name(word, names);
  for (const std::string& name : names)  // -V: the first that begins with its letter
    if (std::tolower(static_cast<unsigned char>(name[2])) == std::tolower(static_cast<unsigned char>(word[1]))) return name;
  return {};
}

}  // namespace

void check_values(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const Seen& seen : options_in(app, arguments)) {
    if (seen.name.empty()) throw Error(ErrorKind::kUsage, "an argument is empty", {}, fmt::format("see fathom {}--help; is a variable of the shell unset?", seen.app == &app ? "" : seen.app->get_name() + " "));
    if (seen.empty)
      throw Error(ErrorKind::kUsage, fmt::format("{} needs a value, and nothing stands behind {}=", seen.name, seen.name), {}, fmt::format("see {} in fathom {} --help-all", seen.name, seen.app->get_name()));
    if (!seen.next) continue;
    const std::string& next = *seen.next;
    if (next.empty())  // an unset variable of a shell: --seq "$S"
      throw Error(ErrorKind::kUsage, fmt::format("{} needs a value, and '' is empty", seen.name), {}, fmt::format("leave {} out, or see it in fathom {} --help-all; is a variable of the shell unset?", seen.name, seen.app->get_name()));
    if (!next.starts_with("--") || next.size() == 2 || !seen.app->get_option_no_throw(long_name(next))) continue;
    throw Error(ErrorKind::kUsage, fmt::format("{} needs a {}, and {} is the next option", seen.name, seen.option->get_type_name() == "FILE" ? "file" : "value", long_name(next)), {},
                fmt::format("see {} in fathom {} --help-all", seen.name, seen.app->get_name()));
  }
}

UnknownOption unknown_option(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const Seen& seen : options_in(app, arguments)) {
    if (seen.option || seen.name.empty()) continue;
    const std::string command = seen.app == &app ? "fathom" : "fathom " + seen.app->get_name();
    if (seen.app == &app)
      for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
        if (each->get_option_no_throw(seen.name)) return {seen.name, command, fmt::format("it is an option of commands and stands behind them: fathom {} ... {}", each->get_name(), seen.name)};
    const std::string nearest = nearest_option(*seen.app, seen.name);
    return {seen.name, command, nearest.empty() ? fmt::format("see {} --help", command) : fmt::format("did you mean '{}'?", nearest)};
  }
  return {};
}

}  // namespace fathom
