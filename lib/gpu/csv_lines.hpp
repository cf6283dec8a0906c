// Comma separated tables of measurements: fields without quotes; empty lines and those that begin with # say nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::gpu {

// The fields of one line; they point into it.
std::vector<std::string_view> comma_fields(std::string_view line);

// The line that stands first in `text`, without its end (LF or CR LF), and takes it from there; `number` counts the lines taken. False at the
// end of the text; empty lines and comments are passed over.
bool next_line(std::string_view& text, std::string_view& line, int& number);

// All of a file. Throws an input Error "cannot read WHAT" where it cannot be opened.
std::string file_text(const std::string& file, const char* what);

}  // namespace fathom::gpu
