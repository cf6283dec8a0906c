// The user's defaults file: options that are added to every command line that does not give them.
//
// $XDG_CONFIG_HOME/fathom/defaults.ini (else ~/.config/fathom/defaults.ini), sections [common] and [COMMAND]:
//   [common]
//   color = never
//   [compare]
//   save = report.md
//   ops = yes
// [common] holds for the commands that have the option; a command's own section wins, the command line wins over both.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fathom {

// The arguments with the file's options put behind the command's name; unchanged where there is no file, no command, or `--no-defaults` (which is taken out).
// Throws Error(kInput) with file and line for an option or command that does not exist.
std::vector<std::string> with_defaults(const CLI::App& app, std::vector<std::string> arguments);

// The line of that file behind an error about an option, or about its value, that with_defaults added: "  from: FILE:2: on = h20 (...)\n"; else "".
// `key`: what the error is about, such as "--on"; `message`: what it says.
std::string default_behind(const std::string& key, const std::string& message);

// Whether that file gave the option, and the command line did not: a note that it changes nothing would be of what nobody typed.
bool is_default(const std::string& option);
// The same of a note: "--seq changes nothing here: ...".
bool about_default(const std::string& note);

}  // namespace fathom
