#include "tools/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/error.hpp"

extern char** environ;

namespace fathom {
namespace {

[[noreturn]] void cannot(const char* what, int code) {
  throw Error(ErrorKind::kEnvironment, fmt::format("cannot start a child process: {}: {}", what, std::strerror(code)));
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) cannot("pipe", errno);
    read = ends[0], write = ends[1];
  }
  ~Pipe() {
    close_write();
    if (read >= 0) close(read);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write() {
    if (write >= 0) close(write);
    write = -1;
  }
};

// Reads what is there; false at the end of the stream.
bool drain(int from, std::string& to) {
  char buffer[65536];
  const ssize_t n = read(from, buffer, sizeof buffer);
  if (n > 0) to.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

ChildResult run_self(const std::vector<std::string>& arguments, bool capture_stderr) {
  Pipe out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  if (capture_stderr) posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  std::vector<char*> words;
  std::string name = "fathom";
  words.push_back(name.data());
  std::vector<std::string> copies = arguments;
  for (std::string& each : copies) words.push_back(each.data());
  words.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) cannot("posix_spawn", failed);
  out.close_write();
  err.close_write();

  ChildResult result;
  pollfd ends[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (poll(ends, 2, -1) < 0) {
      if (errno == EINTR) continue;  // Ctrl-C reaches the child too, which ends in order
      break;
    }
    if (ends[0].revents != 0 && !drain(out.read, result.out)) ends[0].fd = -1;
    if (ends[1].revents != 0 && !drain(err.read, result.err)) ends[1].fd = -1;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) cannot("waitpid", errno);
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.code = result.signal != 0 ? 128 + result.signal : WEXITSTATUS(status);
  return result;
}

}  // namespace fathom
