// fathom completion: scripts that complete commands, options, models, machines, ops and columns in bash, zsh and fish; and the man page.
//
// Everything is taken from the program's own declarations and lists when the script is made, so completing starts no process.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/op.hpp"
#include "models/count/convention.hpp"
#include "models/network_ini.hpp"
#include "models/registry.hpp"
#include "reports/columns.hpp"
#include "reports/save.hpp"
#include "reports/terms.hpp"
#include "tools/cli.hpp"
#include "tools/fail_on.hpp"
#include "tools/help.hpp"
#include "tools/machines.hpp"
#include "tools/output_offer.hpp"

namespace fathom {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Words that an option's value may be; none: a file or a number.
using Choices = std::map<std::string, std::vector<std::string>>;

Choices values_of_options() {
  Choices values = {
      {"--phase", {"train", "prefill", "decode", "generate"}},
      {"--dtype", {"f32", "bf16", "f16", "f64", "f8", "i8"}},
      {"--kv-dtype", {"f32", "bf16", "f16", "f8", "i8"}},
      {"--grad-dtype", {"f32", "bf16", "f16"}},
      {"--logits", {"all", "last", "none"}},
      {"--routing", {"topk", "threshold", "predictor", "random"}},
      {"--recompute", {"none", "selective", "full", "attn/core", "mlp/act"}},
      {"--weight-dtype", {"f32", "bf16", "f16", "f8", "i8"}},
      {"--fusion", {"none", "all", "qkv", "attention", "gate-up", "norm", "residual"}},
      {"--rounding", {"floor", "half-up", "ceil"}},
      {"--gate", {"raw", "sigmoid", "none"}},
      {"--predictor", {"light", "roofline", "calibrated"}},
      {"--color", {"auto", "always", "never"}},
      {"--do", {"count", "predict", "compare"}},
      {"--fail-on", condition_words()},
      {"--profile", {"off", "events", "activity", "counters", "require"}},
  };
  for (const Convention& convention : conventions()) values["--convention"].emplace_back(convention.name);
  std::vector<std::string>& set = values["--set"];  // of `sweep`: KEY=VALUES
  for (const IniKeyDoc& key : ini_glossary())
    if (std::find(set.begin(), set.end(), key.key + "=") == set.end()) set.push_back(key.key + "=");
  for (const auto& [name, summary] : list_machine_names()) values["--on"].push_back(name);
  for (const Backend* each : all_backends()) values["--backend"].emplace_back(each->name());  // asking whether they are available would open the CUDA module
  for (const char* option : {"--columns", "--pareto", "--sort"}) {
    const bool any = std::string_view(option) == "--columns";
    values[option] = {"flops", "time", "params", "memory", "kv"};
    if (any) values[option].emplace_back("all");
    for (const Column& column : all_columns())
      if (any || is_numeric(column.unit)) values[option].emplace_back(column.key);
  }
  return values;
}

// Of one command's option: the formats of -o are its own.
std::vector<std::string> values_of(const CLI::App& command, const OptionText& option, const Choices& values) {
  if (option.name == "--output") return output_offer(command.get_name()).formats;
  const auto found = values.find(option.name);
  return found == values.end() ? std::vector<std::string>{} : found->second;
}

// Options whose value is a list with commas: what follows the last comma is completed.
bool is_list(const std::string& option) { return option == "--columns" || option == "--pareto" || option == "--convention"; }

bool takes_files(const CLI::App& command) { return command.get_name() != "completion" && command.get_name() != "list"; }

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

// Words of a command's arguments; none: files.
std::vector<std::string> arguments_of(const CLI::App& command, const CLI::App& root) {
  const std::string& name = command.get_name();
  std::vector<std::string> words;
  if (name == "explain") {
    for (std::string_view kind : kind_names()) words.emplace_back(kind);
    for (const Column& column : all_columns()) words.emplace_back(column.key);
    for (const ReportTerm& term : all_terms())
      if (const std::string_view title = title_of(term); title.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string_view::npos) words.emplace_back(title);
    for (const char* topic : {"total", "convention", "ini", "exit-codes", "defaults"}) words.emplace_back(topic);
    for (const Convention& convention : conventions()) words.emplace_back(convention.name);  // behind the topic `convention`
  } else if (name == "check") {
    for (std::string_view kind : kind_names()) words.emplace_back(kind);
  } else if (name == "list") {
    words = {"models", "machines", "backends", "ops", "columns"};
  } else if (name == "completion") {
    words = {"bash", "zsh", "fish", "man"};
    for (const std::string& each : command_names(root)) words.push_back(each);  // after man
  } else {
    for (const OptionText& option : options_of(command))
      if (option.positional && option.name == "MODEL")
        for (const NetworkEntry& entry : list_networks()) words.push_back(entry.name);
  }
  return words;
}

// "fathom help COMMAND" is understood beside the declared commands.
constexpr const char* kHelp = "what most people need of a command";

// The program's own options, which stand where a command would.
std::vector<OptionText> own_options(const CLI::App& app) {
  std::vector<OptionText> options;
  for (const OptionText& option : options_of(app))
    if (!option.positional) options.push_back(option);
  return options;
}

std::string bash_script(const CLI::App& app) {
  std::string out = "# bash completion of fathom: source this file, or put it into ~/.local/share/bash-completion/completions/fathom\n_fathom() {\n";
  out += "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n  COMPREPLY=()\n  [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n  [[ $cur == = ]] && cur=\n";
  out += "  case $prev in\n";
  for (const auto& [option, words] : values_of_options())
    if (is_list(option))
      out += fmt::format("    {}) local head=; [[ $cur == *,* ]] && head=${{cur%,*}},; COMPREPLY=($(compgen -P \"$head\" -W '{}' -- \"${{cur##*,}}\")); compopt -o nospace 2>/dev/null; return ;;\n", option, join(words));
    else
      out += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", option, join(words));
  out += "    --output|-o)\n      case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* command : commands_of(app))
    if (output_offer(command->get_name()).formats != output_offer("").formats) out += fmt::format("        {}) words='{}' ;;\n", command->get_name(), join(output_offer(command->get_name()).formats));
  out += fmt::format("        *) words='{}' ;;\n      esac\n      COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n", join(output_offer("").formats));
  out += "    --save) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n  esac\n";
  std::vector<std::string> names = command_names(app);
  names.emplace_back("help");
  for (const OptionText& option : own_options(app)) names.push_back(option.name);
  out += fmt::format("  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '{}' -- \"$cur\"))\n    return\n  fi\n  case ${{COMP_WORDS[1]}} in\n", join(names));
  for (const CLI::App* command : commands_of(app)) {
    std::vector<std::string> options;
    for (const OptionText& option : options_of(*command))
      if (!option.positional) options.push_back(option.name);
    out += fmt::format("    {})\n      if [[ $cur == -* ]]; then words='{}'; else words='{}'; fi ;;\n", command->get_name(), join(options), join(arguments_of(*command, app)));
  }
  out += fmt::format("    help) words='{}' ;;\n", join(command_names(app)));
  std::string no_files = "help";
  for (const CLI::App* command : commands_of(app))
    if (!takes_files(*command)) no_files += "|" + command->get_name();
  out += "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n  [[ $cur == -* || ${COMP_WORDS[1]} == @(" + no_files + ") ]] || COMPREPLY+=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F _fathom fathom\n";
  return out;
}

// Brackets, colons and quotes mean something to _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    if (c == '\'') out += "'\\'";
    out += c;
  }
  return out;
}

std::string zsh_script(const CLI::App& app) {
  std::string out = "#compdef fathom\n# zsh completion of fathom: put this file as _fathom into a folder of $fpath\n_fathom() {\n  local -a commands\n  commands=(\n";
  for (const CLI::App* command : commands_of(app)) out += fmt::format("    '{}:{}'\n", command->get_name(), zsh_text(command->get_description()));
  out += fmt::format("    'help:{}'\n", kHelp);
  out += "  )\n  if (( CURRENT == 2 )); then\n    local -a options\n    options=(\n";
  for (const OptionText& option : own_options(app)) out += fmt::format("      '{}:{}'\n", option.name, zsh_text(option.description));
  out += "    )\n    _describe command commands -- options\n    return\n  fi\n  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  const Choices values = values_of_options();
  for (const CLI::App* command : commands_of(app)) {
    out += fmt::format("    {})\n      _arguments", command->get_name());
    for (const OptionText& option : options_of(*command)) {
      if (option.positional) continue;
      const std::vector<std::string> words = values_of(*command, option, values);
      std::string action;  // an action that begins with a space is called as it stands, without options of compadd
      if (!option.type.empty()) {
        action = words.empty() ? ":{}:_files" : is_list(option.name) ? ":{}: _sequence compadd - {}" : ":{}:({})";
        action = fmt::format(fmt::runtime(action), zsh_text(option.type), join(words));
      }
      for (const std::string& name : {option.name, option.short_name})
        if (!name.empty()) out += fmt::format(" \\\n        '*{}{}[{}]{}'", name, !action.empty() && name[1] == '-' ? "=" : "", zsh_text(option.description), action);
    }
    const std::vector<std::string> words = arguments_of(*command, app);
    if (!words.empty() && takes_files(*command)) out += fmt::format(" \\\n        '*:argument: _alternative \"words:name:({})\" \"files:file:_files\"'", join(words));
    else if (!words.empty()) out += fmt::format(" \\\n        '*:argument:({})'", join(words));
    else out += " \\\n        '*:file:_files'";
    out += " ;;\n";
  }
  out += fmt::format("    help) _arguments '1:command:({})' ;;\n", join(command_names(app)));
  return out + "  esac\n}\n_fathom \"$@\"\n";
}

std::string fish_text(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish_script(const CLI::App& app) {
  std::string out = "# fish completion of fathom: put this file into ~/.config/fish/completions/fathom.fish\n";
  for (const CLI::App* command : commands_of(app))
    out += fmt::format("complete -c fathom -n __fish_use_subcommand -x -a '{}' -d '{}'\n", command->get_name(), fish_text(command->get_description()));
  out += fmt::format("complete -c fathom -n __fish_use_subcommand -x -a help -d '{}'\ncomplete -c fathom -n '__fish_seen_subcommand_from help' -f -a '{}'\n", kHelp, join(command_names(app)));
  for (const OptionText& option : own_options(app))
    out += fmt::format("complete -c fathom -n __fish_use_subcommand -l {} -d '{}'\n", option.name.substr(2), fish_text(option.description));
  const Choices values = values_of_options();
  for (const CLI::App* command : commands_of(app)) {
    const std::string when = fmt::format("complete -c fathom -n '__fish_seen_subcommand_from {}'", command->get_name());
    for (const OptionText& option : options_of(*command)) {
      if (option.positional) continue;
      std::string line = when + " -l " + option.name.substr(2);
      if (!option.short_name.empty()) line += " -s " + option.short_name.substr(1);
      line += " -d '" + fish_text(option.description) + "'";
      const std::vector<std::string> words = values_of(*command, option, values);
      if (!words.empty() && is_list(option.name))
        line += " -x -a '(__fish_complete_list , \"string split \\\" \\\" \\\"" + join(words) + "\\\"\")'";
      else if (!words.empty())
        line += " -x -a '" + join(words) + "'";
      else if (!option.type.empty())
        line += " -r";
      out += line + "\n";
    }
    const std::vector<std::string> words = arguments_of(*command, app);
    if (!words.empty()) out += when + (takes_files(*command) ? "" : " -f") + " -a '" + join(words) + "'\n";
  }
  return out;
}

int run(const CLI::App& app, const std::string& shell, const std::string& command) {
  if (!command.empty() && shell != "man") throw Error(ErrorKind::kUsage, "COMMAND goes with man only");
  const std::vector<std::string> shells = {"bash", "zsh", "fish", "man"};
  std::string text;
  if (shell == "bash") text = bash_script(app);
  else if (shell == "zsh") text = zsh_script(app);
  else if (shell == "fish") text = fish_script(app);
  else if (shell == "man") text = command.empty() ? man_page(app) : man_page(app, command);
  else throw_input(fmt::format("unknown shell '{}'", shell), {}, name_hint(shell, shells));
  write_stream(STDOUT_FILENO, text);
  return 0;
}

}  // namespace

void add_completion(CLI::App& app, int& exit_code) {
  auto shell = std::make_shared<std::string>();
  auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "shell completion (bash, zsh, fish) and the man pages");
  command->add_option("SHELL", *shell, "bash, zsh, fish, or man for the manual")->required();
  command->add_option("COMMAND", *topic, "man: the page of one command [all]");
  command->footer("Examples:\n  source <(fathom completion bash)\n  fathom completion fish > ~/.config/fish/completions/fathom.fish\n  fathom completion man | man -l -");
  command->callback([&app, shell, topic, &exit_code] { exit_code = run(app, *shell, *topic); });
}

}  // namespace fathom
