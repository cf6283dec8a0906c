#include "tools/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lib/error.hpp"
#include "tools/cli.hpp"

namespace fathom {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kNarrow = 64;  // below, a description stands under its option and not beside it

// A short page stays below this many lines, so that it fits a terminal of 24 with nothing scrolled away.
constexpr std::size_t kPageLines = 24;

// What a short page explains, most needed first; the last ones are only named where the page would grow too long. Everything else is only named.
const std::vector<std::string> kCommon = {"MODEL", "RECORD", "WHAT", "KIND", "NAME", "SHELL", "COMMAND", "--do", "--set", "--pareto", "--resume", "--fail-on", "--budget", "--text", "--timeline", "--convention", "--phase", "--batch",
                                          "--mod-every", "--capacity", "--seq", "--on", "--output", "--save", "--backend", "--dtype"};

std::string left_of(const OptionText& option) {
  std::string text = option.short_name.empty() ? option.name : option.short_name + "," + option.name;
  if (!option.type.empty()) text += " " + option.type;
  if (option.positional && option.repeats) text += "...";
  return text;
}

// Words from column `at` on, wrapped behind `indent`.
void wrap_words(std::string& out, const std::string& text, std::size_t at, std::size_t indent, std::size_t width) {
  bool first = true;
  for (const std::string& word : split(text, ' ')) {
    if (!first && at + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!first) {
      out += ' ';
      ++at;
    }
    first = false;
    out += word;
    at += word.size();
  }
  out += '\n';
}

// Lines of a text, each wrapped. A command line that is broken goes on behind a backslash, so that it can be pasted.
std::string wrapped_lines(const std::string& text, std::size_t width) {
  std::string out;
  for (const std::string& line : split(text, '\n')) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (line.size() <= width || indent == 0) {
      wrap_words(out, line, 0, 0, width);
      continue;
    }
    std::string command;
    wrap_words(command, line.substr(indent), indent, indent + 2, width - 2);
    for (const std::string& part : split(command.substr(0, command.size() - 1), '\n')) out += (out.empty() || out.ends_with("\n") ? "" : " \\\n") + (part.starts_with(' ') ? part : std::string(indent, ' ') + part);
    out += '\n';
  }
  return out;
}

void explain(std::string& out, const OptionText& option, std::size_t column, std::size_t width) {
  const std::string left = "  " + left_of(option);
  if (width < kNarrow) column = 4;
  out += left;
  if (left.size() + 2 > column)
    out += "\n" + std::string(column, ' ');
  else
    out.append(column - left.size(), ' ');
  wrap_words(out, option.description, column, column, width);
}

std::vector<std::string> groups_of(const std::vector<OptionText>& options) {
  std::vector<std::string> groups;
  for (const OptionText& option : options)
    if (!option.group.empty() && std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  return groups;
}

std::string short_group(const std::string& group) { return group.substr(0, group.find(" (")); }

// "fathom count MODEL... [options]"
std::string usage(const CLI::App& app, const std::string& name) {
  std::string text = "Usage: " + name;
  for (const OptionText& option : options_of(app))
    if (option.positional) text += (option.required ? " " : " [") + option.name + (option.repeats ? "..." : "") + (option.required ? "" : "]");
  return text + (commands_of(app).empty() ? " [options]\n" : " COMMAND [options]\n");
}

std::string wrapped_usage(const CLI::App& app, const std::string& name, std::size_t width) {
  std::string out;
  const std::string text = usage(app, name);
  wrap_words(out, text.substr(0, text.size() - 1), 0, 7, width);
  return out;
}

std::string full_page(const CLI::App& app, const std::string& name, std::size_t width) {
  std::string out = wrapped_lines(app.get_description(), width) + wrapped_usage(app, name, width);
  const std::vector<OptionText> options = options_of(app);
  for (const std::string& group : groups_of(options)) {
    out += "\n" + wrapped_lines(group + ":", width);
    for (const OptionText& option : options)
      if (option.group == group) explain(out, option, 28, width);
  }
  if (!app.get_footer().empty()) out += "\n" + wrapped_lines(app.get_footer(), width);
  return out;
}

std::string short_page(const CLI::App& app, const std::string& name, const std::vector<std::string>& explained, std::size_t width) {
  const auto is_explained = [&](const OptionText& option) { return std::find(explained.begin(), explained.end(), option.name) != explained.end(); };
  std::string out = wrapped_lines(app.get_description(), width) + wrapped_usage(app, name, width);
  const std::vector<OptionText> options = options_of(app);
  for (const OptionText& option : options)
    if (is_explained(option)) explain(out, option, 24, width);
  std::string line;
  for (const std::string& group : groups_of(options)) {
    std::string names;
    for (const OptionText& option : options) {
      if (option.group == group && !is_explained(option) && option.name != "--help" && option.name != "--help-all") {
        const std::string left = left_of(option);
        names += " " + left.substr(0, left.find(":{"));  // the choices stand in --help-all
      }
    }
    if (names.empty()) continue;
    line = short_group(group) + ":";
    for (const std::string& word : split(names.substr(1), ' ')) {
      const bool flag = word[0] == '-';
      if (flag && line.size() + 1 + word.size() + 2 > width) {  // an option and its value stay on one line
        out += line + "\n";
        line = " ";
      }
      line += " " + word;
    }
    out += line + "\n";
  }
  if (!app.get_footer().empty()) out += "\n" + wrapped_lines(app.get_footer(), width);
  return out + wrapped_lines("All options: " + name + " --help-all", width);
}

// As much explained as fits a page of full width; a narrow one has the same and is longer.
std::string short_page(const CLI::App& app, const std::string& name, std::size_t width) {
  std::vector<std::string> explained = kCommon;
  std::string page = short_page(app, name, explained, kWidth);
  while (!explained.empty() && static_cast<std::size_t>(std::count(page.begin(), page.end(), '\n')) > kPageLines) {
    explained.pop_back();
    page = short_page(app, name, explained, kWidth);
  }
  return width == kWidth ? page : short_page(app, name, explained, width);
}

std::string command_list(const CLI::App& app, std::size_t width) {
  std::string out = "Commands:\n";
  for (const CLI::App* command : commands_of(app)) {
    out += fmt::format("  {:<12} ", command->get_name());
    wrap_words(out, command->get_description(), 15, 15, width);
  }
  return out;
}

// Text in roff: a leading dot or quote and every backslash and hyphen are special.
std::string roff(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\\\";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::vector<OptionText> options_of(const CLI::App& app) {
  std::vector<OptionText> options;
  for (const CLI::Option* option : app.get_options()) {
    OptionText text;
    text.positional = option->get_positional();
    if (text.positional)
      text.name = option->get_name(true);
    else if (!option->get_lnames().empty())
      text.name = "--" + option->get_lnames()[0];
    if (!text.positional && !option->get_snames().empty()) text.short_name = "-" + option->get_snames()[0];
    if (text.name.empty()) std::swap(text.name, text.short_name);
    const bool takes_value = option->get_items_expected_max() > 0;
    if (takes_value && !text.positional) text.type = option->get_type_name();
    if (const std::size_t range = text.type.find(" in ["); range != std::string::npos) text.type.resize(text.type.rfind(':', range));  // CLI11 adds its checks
    text.repeats = option->get_items_expected_max() > 1;
    text.required = option->get_required();
    text.description = option->get_description();
    text.group = text.positional ? "Arguments" : option->get_group();
    if (!text.group.empty()) options.push_back(std::move(text));
  }
  // Arguments first, then the options in the order of their groups.
  std::stable_partition(options.begin(), options.end(), [](const OptionText& option) { return option.positional; });
  return options;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> kCodes = {
      {0, "done", "also when the reader of a pipe closes it"},
      {1, "condition failed", "one that was stated: --fail-on, or a check that found an error"},
      {2, "usage", "the command line cannot be parsed: an unknown option, a number that is none"},
      {3, "input", "parsed, but unknown or invalid: a model, unit, key, range or record"},
      {4, "environment", "no such device, out of memory, full disk, a folder that cannot be written"},
      {70, "a bug", "please report it with the command line"},
      {130, "interrupted", "Ctrl-C; finished rows are kept and shown"},
  };
  return kCodes;
}

namespace {

// One line of the first help page.
std::string exit_code_line() {
  std::string out = "Exit codes:";
  for (const ExitCode& each : exit_codes()) out += fmt::format("{} {} {}", out.back() == ':' ? "" : ",", each.code, each.brief);
  return out;
}

}  // namespace

HelpFormatter::HelpFormatter(int width) : width_(std::min(kWidth, static_cast<std::size_t>(std::max(20, width)))) {}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const {
  const bool root = app->get_parent() == nullptr;
  const std::string name = root ? app->get_name() : app->get_parent()->get_name() + " " + app->get_name();
  if (!root) return mode == CLI::AppFormatMode::Normal ? short_page(*app, name, width_) : full_page(*app, name, width_);
  std::string out = wrapped_lines(app->get_description(), width_) + wrapped_usage(*app, name, width_);
  if (mode != CLI::AppFormatMode::Normal) {
    out = full_page(*app, name, width_) + "\n" + command_list(*app, width_);
    out += "\n" + wrapped_lines(exit_code_line(), width_);
    for (const CLI::App* command : commands_of(*app)) out += "\n----\n\n" + full_page(*command, name + " " + command->get_name(), width_);
    return out;
  }
  return out + command_list(*app, width_) + wrapped_lines(app->get_footer(), width_) + wrapped_lines(exit_code_line(), width_) +
         wrapped_lines("More: fathom COMMAND --help (--help-all: every option); fathom explain defaults (kept options)", width_);
}

namespace {

// Options by group, and the examples.
std::string man_options(const CLI::App& command, const char* heading) {
  std::string out;
  const std::vector<OptionText> options = options_of(command);
  for (const std::string& group : groups_of(options)) {
    out += fmt::format(".{} {}\n", heading, roff(group));
    for (const OptionText& option : options)
      if (option.group == group) out += ".TP\n.B " + roff(left_of(option)) + "\n" + roff(option.description) + "\n";
  }
  if (!command.get_footer().empty()) out += ".PP\n.nf\n" + roff(command.get_footer()) + "\n.fi\n";
  return out;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string man_exit_status() {
  std::string out = ".SH EXIT STATUS\n";
  for (const ExitCode& each : exit_codes()) out += fmt::format(".TP\n.B {}\n{}\n", each.code, roff(fmt::format("{}: {}", each.brief, each.meaning)));
  return out;
}


}  // namespace

std::string man_page(const CLI::App& app) {
  std::string out = ".TH FATHOM 1 \"\" \"fathom\" \"User Commands\"\n.SH NAME\nfathom \\- count, predict, run and compare Mixture\\-of\\-Depths transformers\n";
  out += ".SH SYNOPSIS\n.B fathom\n.I COMMAND\n[options]\n.SH DESCRIPTION\n" + roff(app.get_description()) + "\n";
  for (const CLI::App* command : commands_of(app))
    out += fmt::format(".SH FATHOM {}\n{}\n.PP\n.nf\n{}.fi\n", upper(command->get_name()), roff(command->get_description()), roff(usage(*command, "fathom " + command->get_name()))) +
           man_options(*command, "SS");
  out += man_exit_status();
  out += ".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/fathom/defaults.ini\n" + roff("default options: [COMMAND] or [common], then option = value; --no-defaults ignores it") + "\n";
  out += ".TP\n.I $XDG_CACHE_HOME/fathom/this-machine.ini\nthis machine as probed\n";
  return out;
}

std::string man_page(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(command->get_name());
    if (command->get_name() != name) continue;
    return fmt::format(".TH FATHOM\\-{} 1 \"\" \"fathom\" \"User Commands\"\n.SH NAME\nfathom\\-{} \\- {}\n.SH SYNOPSIS\n.nf\n{}.fi\n", upper(name), name, roff(command->get_description()),
                       roff(usage(*command, "fathom " + name).substr(std::string_view("Usage: ").size()))) +
           man_options(*command, "SH") + man_exit_status() + ".SH SEE ALSO\n.BR fathom (1)\n";
  }
  throw_input(fmt::format("there is no command '{}'", name), {}, name_hint(name, names));
}

}  // namespace fathom
