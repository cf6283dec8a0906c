// Help pages and the manual, from the text that the commands are declared with.
//
// `--help` is a page that fits a screen: the options most people need with their meaning and default, the others by name. `--help-all` and the
// man page explain every option. All three read the CLI11 declarations, so none can say something else than the program does.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace fathom {

class HelpFormatter : public CLI::Formatter {
 public:
  // Pages are at most 100 columns wide, fewer where `width` is less.
  explicit HelpFormatter(int width = 100);
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;

 private:
  std::size_t width_;
};

// One option as declared.
struct OptionText {
  std::string name;         // "--batch", "MODEL"
  std::string short_name;   // "-o" or ""
  std::string type;         // "B"; "" for flags
  std::string description;
  std::string group;
  bool positional = false;
  bool repeats = false;
  bool required = false;
};
std::vector<OptionText> options_of(const CLI::App& app);
std::vector<const CLI::App*> commands_of(const CLI::App& app);

// What a command's exit status says: help, the manual and `fathom explain exit-codes` show the same.
struct ExitCode {
  int code;
  const char* brief;    // "a stated condition failed"
  const char* meaning;  // with examples
};
const std::vector<ExitCode>& exit_codes();

// fathom(1) as roff.
std::string man_page(const CLI::App& app);
// fathom-COMMAND(1). Throws Error(kInput) for a command that is not there.
std::string man_page(const CLI::App& app, const std::string& command);

}  // namespace fathom
