#include "lib/gpu/csv_lines.hpp"

#include <fstream>
#include <sstream>

#include "lib/error.hpp"

namespace fathom::gpu {

std::vector<std::string_view> comma_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const auto comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

bool next_line(std::string_view& text, std::string_view& line, int& number) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty() && line.front() != '#') return true;
  }
  return false;
}

std::string file_text(const std::string& file, const char* what) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_input(std::string("cannot read ") + what, {file, 0, {}});
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace fathom::gpu
