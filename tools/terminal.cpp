#include "tools/terminal.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace fathom {
namespace {

constexpr int kDefaultWidth = 100, kLeastWidth = 20;

}  // namespace

int terminal_width(int descriptor) {
  int width = kDefaultWidth;
  if (const char* columns = std::getenv("COLUMNS"); columns && std::atoi(columns) >= kLeastWidth) width = std::atoi(columns);
  winsize size{};
  if (isatty(descriptor) != 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= kLeastWidth) width = size.ws_col;
  return width;
}

bool terminal_is_plain() {
  const char* kind = std::getenv("TERM");
  return kind && std::string_view(kind) == "dumb";
}

int help_width(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string value = word.rfind("--width=", 0) == 0 ? word.substr(8) : word == "--width" && i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (std::atoi(value.c_str()) >= kLeastWidth) return std::atoi(value.c_str());
  }
  return terminal_width();
}

void tell(const std::string& text) { std::fputs(text.c_str(), stderr); }

bool reader_is_gone(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode))) return false;
  pollfd end{descriptor, 0, 0};
  return poll(&end, 1, 0) > 0 && (end.revents & POLLERR) != 0;
}

}  // namespace fathom
