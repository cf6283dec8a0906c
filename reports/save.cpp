#include "reports/save.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "lib/error.hpp"

namespace fathom {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, const std::string& path, int code) {
  std::string hint;
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      hint = "the disk is full or a quota is reached: free space, or choose another place with --save";
      break;
    case EROFS:
      hint = "the file system is read-only: choose another place with --save";
      break;
    case EACCES:
    case EPERM:
      hint = "no permission: choose a folder you may write to with --save";
      break;
    case EISDIR:
      hint = "that is a folder: name a file in it";
      break;
    case ENOTDIR:
      hint = "a part of the path is a file, not a folder";
      break;
    case ENAMETOOLONG:
      hint = "the name is too long for this file system";
      break;
    default:
      break;
  }
  throw Error(ErrorKind::kEnvironment, fmt::format("{}: {}", what, std::generic_category().message(code)),
              {path, 0, {}}, hint);
}

// Holds SIGPIPE back for this thread while it lives and swallows the one that our write may have raised.
class HoldSigpipe {
 public:
  HoldSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
  }
  ~HoldSigpipe() {
    if (!was_pending_) {
      const timespec now{0, 0};
      while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  HoldSigpipe(const HoldSigpipe&) = delete;
  HoldSigpipe& operator=(const HoldSigpipe&) = delete;

 private:
  sigset_t pipe_{}, old_{};
  bool was_pending_ = false;
};

// 0, or the errno of the first failure.
int write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Closes and removes the temporary file unless it was renamed.
struct Temporary {
  std::string path;
  int descriptor = -1;
  bool keep = false;
  Temporary(std::string p, int d) : path(std::move(p)), descriptor(d) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (descriptor >= 0) ::close(descriptor);
    if (!keep) ::unlink(path.c_str());
  }
};

void write_direct(const std::string& path, std::string_view content) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open for writing", path, errno);
  int code = 0;
  {
    HoldSigpipe hold;
    code = write_all(descriptor, content);
  }
  if (::close(descriptor) != 0 && code == 0) code = errno;
  if (code != 0) fail("cannot write", path, code);
}

}  // namespace

void save_file(const std::string& path, std::string_view content) {
  if (path.empty()) throw_input("empty file name", {}, "give --save a file name");
  std::error_code ignored;
  fs::path target(path);
  if (fs::is_symlink(target, ignored)) {
    if (const fs::path real = fs::weakly_canonical(target, ignored); !real.empty()) target = real;
  }
  const fs::file_status state = fs::status(target, ignored);
  if (fs::is_directory(state)) fail("cannot write", path, EISDIR);
  if (fs::exists(state) && !fs::is_regular_file(state)) return write_direct(path, content);

  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) fail("cannot create the folder of the file", path, code.value());

  // A name of its own per process and moment; O_EXCL decides when two writers meet.
  int descriptor = -1;
  std::string name;
  for (int attempt = 0; attempt < 100 && descriptor < 0; ++attempt) {
    const auto tick = std::chrono::steady_clock::now().time_since_epoch().count();
    name = (folder / fmt::format(".fathom-{}-{}-{}.tmp", ::getpid(), tick, attempt)).string();
    descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) fail("cannot create a file in the folder", path, errno);
  }
  if (descriptor < 0) fail("cannot create a file in the folder", path, EEXIST);
  Temporary temporary(name, descriptor);
  if (fs::exists(state)) {
    struct stat old {};
    if (::stat(target.c_str(), &old) == 0 && ::fchmod(descriptor, old.st_mode & 07777) != 0) {
      fail("cannot keep the permissions of the file", path, errno);
    }
  }
  if (const int failed = write_all(descriptor, content); failed != 0) fail("cannot write", path, failed);
  if (::fsync(descriptor) != 0) fail("cannot write", path, errno);
  temporary.descriptor = -1;
  if (::close(descriptor) != 0) fail("cannot write", path, errno);
  if (::rename(name.c_str(), target.c_str()) != 0) fail("cannot replace the file", path, errno);
  temporary.keep = true;
}

constexpr std::size_t kLargestFile = std::size_t{256} << 20;

std::string load_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw_input(fmt::format("cannot read: {}", std::generic_category().message(errno)), {path, 0, {}});
  }
  std::string content;
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(descriptor, buffer, sizeof buffer)) != 0) {
    if (got < 0) {
      if (errno == EINTR) continue;
      const int code = errno;
      ::close(descriptor);
      throw_input(fmt::format("cannot read: {}", std::generic_category().message(code)), {path, 0, {}});
    }
    content.append(buffer, static_cast<std::size_t>(got));
    if (content.size() > kLargestFile) {  // a device that never ends, or no file of ours
      ::close(descriptor);
      throw_input("is larger than 256 MiB", {path, 0, {}}, "is it the file that was meant?");
    }
  }
  ::close(descriptor);
  return content;
}

StreamStatus write_stream(int descriptor, std::string_view content) {
  HoldSigpipe hold;
  const int code = write_all(descriptor, content);
  if (code == 0) return StreamStatus::kDone;
  if (code == EPIPE) return StreamStatus::kClosed;
  const std::string name = descriptor == 1   ? "standard output"
                           : descriptor == 2 ? "standard error"
                                             : fmt::format("descriptor {}", descriptor);
  fail("cannot write", name, code);
}

}  // namespace fathom
