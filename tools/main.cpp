// The fathom program: parses the command line, runs one command, maps errors to exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <sstream>

#include "kernels/cuda_host/loader.hpp"
#include "lib/backend.hpp"
#include "lib/error.hpp"
#include "models/ini.hpp"
#include "reports/save.hpp"
#include "reports/utf8.hpp"
#include "tools/arguments.hpp"
#include "tools/cli.hpp"
#include "tools/defaults.hpp"
#include "tools/help.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"
#include "tools/version.hpp"

namespace fathom {
namespace {

// CLI11's "The following arguments were not expected: --capcity" with the nearest known flag.
std::string hint_for(const CLI::App& app, const std::string& message) {
  const size_t at = message.find("--");
  if (at == std::string::npos) {
    if (message == "A subcommand is required") return "fathom --help lists them; a first try: fathom count gpt2-124m";
    for (const CLI::App* sub : app.get_subcommands())
      if (message.ends_with(" is required")) return fmt::format("fathom {} --help{}", sub->get_name(), message.starts_with("MODEL") ? "; fathom list models names those that are built in" : "");
    return {};
  }
  const std::string word = message.substr(at, message.find_first_of(" =:", at) - at);
  const CLI::App* command = &app;
  for (const CLI::App* sub : app.get_subcommands()) command = sub;
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  if (std::find(names.begin(), names.end(), word) != names.end()) return fmt::format("see {} in fathom {} --help-all", word, command->get_name());  // its value is what is wrong
  const std::string nearest = nearest_name(word, names);
  return nearest.empty() ? "see fathom " + (command == &app ? std::string() : command->get_name() + " ") + "--help" : fmt::format("did you mean '{}'?", nearest);
}

// What the parser of the command line found wrong, in the words of the other errors: where, what, and (hint_for) what to do.
std::string in_our_words(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = error.what();
  std::string command = "fathom";
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  const auto after = [&](std::string_view mark) { return message.substr(std::min(message.size(), message.find(mark) + mark.size())); };
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    // "The following arguments were not expected: --capcity 3"; all of it is quoted, the first word is what is wrong.
    const std::string rest = after("not expected: ");
    const std::string word = rest.substr(0, rest.find(' '));
    return word.starts_with("-") ? fmt::format("{} has no option '{}'", command, word) : fmt::format("{} takes no further argument: '{}'", command, word.substr(0, 80));
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error)) {
    const std::string rest = after("Could not convert: ");
    const std::size_t equals = rest.find(" = ");
    if (rest != message && equals != std::string::npos) {
      const std::string value = rest.substr(equals + 3);
      const CLI::App* at = &app;
      for (const CLI::App* sub : app.get_subcommands()) at = sub;
      const CLI::Option* option = at->get_option_no_throw(rest.substr(0, equals));
      const bool whole = option && option->get_type_name() != "S";
      char* end = nullptr;
      std::strtod(value.c_str(), &end);
      const bool number = end != value.c_str() && *end == 0;
      return fmt::format("{}: '{}' is {}", rest.substr(0, equals), value.substr(0, 80),
                         option && option->get_expected_min() == 0 ? "no value of a flag: leave it out" : number && whole ? "not a whole number that fits" : "not a number");
    }
  }
  const std::string name = message.substr(0, message.find(':'));
  if (message.starts_with("--") && message.find(" required ") != std::string::npos && message.ends_with(" missing")) return name + " needs a value";
  if (message.starts_with("--") && message.find("At Most 1 required") != std::string::npos) return name + " is given more than once";
  // "--threads: Value x not in range 1 to 4096" of what is no number at all.
  if (const std::size_t value = message.find(": Value "), range = message.find(" not in range "); value != std::string::npos && range != std::string::npos && value + 8 <= range) {
    const std::string text = message.substr(value + 8, range - value - 8);
    char* end = nullptr;
    std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0) return fmt::format("{}: '{}' is not a number{}", name, text.substr(0, 80), message.substr(range).replace(0, 13, ":"));
  }
  if (message == "A subcommand is required") return "a COMMAND is required";
  return message;
}

// The line of the key in a network file, where what refused it knew no lines: what is counted is no text any more.
Where with_line(Where where) {
  std::error_code code;
  if (where.line != 0 || where.key.empty() || !where.file.ends_with(".ini") || !std::filesystem::is_regular_file(where.file, code)) return where;
  try {
    const IniFile file = IniFile::read(where.file);
    for (const IniSection& section : file.sections())
      if (const std::optional<IniValue> value = section.find(where.key)) return value->where();
  } catch (const Error&) {  // it was readable a moment ago; the place is then the file
  }
  return where;
}

int report(const Error& found) {
  const Error error(found.kind(), found.message(), with_line(found.where()), found.hint());
  // Messages quote what was read, and name files: no control character of theirs reaches the terminal.
  const Error shown(error.kind(), printable(error.message()), {printable(error.where().file), error.where().line, printable(error.where().key)}, printable(error.hint()));
  tell(fmt::format("fathom: {}\n", shown.what()));
  if (error.where().file.empty()) tell(valid_utf8(default_behind(error.where().key, error.message())));
  return exit_code(error.kind());
}

// Where the CUDA module is and what it may see; it is opened only by what asks for the CUDA backend.
void tell_cuda_environment() {
  cuda::Environment environment;
  if (const char* path = std::getenv("FATHOM_CUDA_MODULE")) environment.module_path = path;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) environment.visible_devices = visible, environment.visible_devices_set = true;
  cuda::set_environment(environment);
}

int run(int argc, char** argv) {
  tell_cuda_environment();
  CLI::App app{"fathom counts what a Mixture-of-Depths transformer must compute, predicts how long that takes,\n"
               "executes the same work with real kernels, and reports predicted against measured.",
               "fathom"};
  app.require_subcommand(1);
  app.set_version_flag("--version", version_page(), "version, commit and what is built in");
  app.set_help_flag("-h,--help", "what most people need")->group("Help");
  app.set_help_all_flag("--help-all", "every option")->group("Help");
  app.formatter(std::make_shared<HelpFormatter>(help_width({argv + 1, argv + argc})));  // commands inherit it
  bool no_defaults = false;
  app.add_flag("--no-defaults", no_defaults, "ignore the file of options for every run (fathom explain defaults)");
  app.footer("Examples:\n  fathom count gpt2-124m --mod-every 2 --capacity 1/8\n  fathom compare mod-60m dense-60m --backend cpu");
  int code = 0;
  add_count(app, code);
  add_predict(app, code);
  add_run(app, code);
  add_compare(app, code);
  add_calibrate(app, code);
  add_sweep(app, code);
  add_validate(app, code);
  add_check(app, code);
  add_list(app, code);
  add_explain(app, code);
  add_trace(app, code);
  add_report(app, code);
  add_audit(app, code);
  add_plan(app, code);
  add_completion(app, code);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) throw Error(ErrorKind::kUsage, "a COMMAND is required", {}, "fathom --help lists them; a first try: fathom count gpt2-124m");
  if (arguments[0] == "help") {  // "help count" is what many type first
    arguments.erase(arguments.begin());
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(sub->get_name());
    if (!arguments.empty() && arguments[0][0] != '-' && std::find(names.begin(), names.end(), arguments[0]) == names.end())
      throw Error(ErrorKind::kUsage, fmt::format("unknown command '{}'", arguments[0]), {}, name_hint(arguments[0], names));
    arguments.emplace_back("--help");
  }
  arguments = with_defaults(app, arguments);
  remember_arguments(arguments);
  check_values(app, arguments);
  const std::vector<std::string> typed = arguments;
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(arguments);
  } catch (const CLI::Success& success) {
    std::ostringstream page, errors;
    const int done = app.exit(success, page, errors);
    write_stream(1, page.str());
    return done;
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    std::string hint = hint_for(app, message);
    message = in_our_words(app, error);
    // An unknown first word is most likely a mistyped command.
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
      std::vector<std::string> names;
      for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(sub->get_name());
      message = fmt::format("unknown command '{}'", argv[1]);
      const std::vector<std::string> lists = {"models", "machines", "backends", "ops", "columns"};
      hint = std::find(lists.begin(), lists.end(), argv[1]) == lists.end() ? name_hint(argv[1], names) : fmt::format("fathom list {} names them", argv[1]);
    }
    // What is missing matters less than what is there and unknown.
    if (const UnknownOption unknown = unknown_option(app, typed); !unknown.name.empty() && (dynamic_cast<const CLI::RequiredError*>(&error) || unknown.command == "fathom")) {
      message = fmt::format("{} has no option '{}'", unknown.command, unknown.name);
      hint = unknown.hint;
    }
    tell(fmt::format("fathom: {}\n", printable(message)));
    if (!hint.empty()) tell(fmt::format("  hint: {}\n", printable(hint)));
    tell(default_behind("", message));
    return 2;
  }
  return code;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that closes a pipe is met where it is written to
  fathom::end_at_interrupts();
  try {
    return fathom::run(argc, argv);
  } catch (const fathom::Error& error) {
    return fathom::report(error);
  } catch (const fathom::Stopped&) {  // an interrupt before anything was measured
    fathom::tell("fathom: interrupted\n");
    return 130;
  } catch (const std::bad_alloc&) {
    fathom::tell("fathom: out of memory\n  hint: use a smaller model, batch or length (fathom count shows the planned peak), or raise the limit on memory\n");
    return 4;
  } catch (const std::exception& error) {
    fathom::tell(fmt::format("fathom: internal error: {}\n  hint: please report this with the command line\n", error.what()));
    return 70;
  }
}
