// The lowest layer of the INI reader: is this text at all, and how are pieces of it shown in messages.
#pragma once

#include <string>
#include <string_view>

namespace fathom {

// Checks size, line length, encoding (UTF-8 without control characters) of a whole file and returns it without a byte
// order mark. CRLF line ends are allowed. Throws Error(kInput) with the line of the first fault.
std::string_view check_ini_text(std::string_view text, const std::string& name);

// Without spaces, tabs and carriage returns at both ends.
std::string_view trim_ini(std::string_view text);

// At most about 60 bytes of text for a message, cut between UTF-8 characters.
std::string ini_excerpt(std::string_view text);

}  // namespace fathom
