// Where the rows of a sweep go, and how far a file of them is.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lib/error.hpp"
#include "reports/save.hpp"
#include "tools/sweep_run.hpp"

namespace fathom {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path, int code) {
  std::string hint;
  if (code == ENOSPC || code == EDQUOT) hint = "the disk is full: free space, then continue with --resume";
  if (code == EROFS || code == EACCES || code == EPERM) hint = "choose a folder you may write to with --save";
  if (code == EISDIR) hint = "that is a folder: name a file in it";
  throw Error(ErrorKind::kEnvironment, fmt::format("{}: {}", what, std::generic_category().message(code)), {path, 0, {}}, hint);
}

class StdoutSink : public SweepSink {
 public:
  bool write(std::string_view lines) override { return write_stream(STDOUT_FILENO, lines) == StreamStatus::kDone; }
};

class NoSink : public SweepSink {
 public:
  bool write(std::string_view) override { return true; }
};

class FileSink : public SweepSink {
 public:
  FileSink(std::string path, bool append, std::uint64_t size) : path_(std::move(path)), append_(append), size_(size) {
    if (append_) open();
  }
  ~FileSink() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  bool write(std::string_view lines) override {
    if (descriptor_ < 0) open();
    while (!lines.empty()) {
      const ssize_t written = ::write(descriptor_, lines.data(), lines.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        fail("cannot write", path_, errno);
      }
      lines.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }
  void finish() override {
    if (descriptor_ < 0) open();
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS) {  // pipes and devices cannot be synchronised
      const int code = errno;
      ::close(descriptor);
      fail("cannot write", path_, code);
    }
    if (::close(descriptor) != 0) fail("cannot write", path_, errno);
  }

 private:
  void open() {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    std::error_code code;
    if (!folder.empty()) std::filesystem::create_directories(folder, code);
    if (code) fail("cannot create the folder of the file", path_, code.value());
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append_ ? O_APPEND : O_TRUNC), 0666);
    if (descriptor_ < 0) fail("cannot open for writing", path_, errno);
    if (append_ && ::ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) fail("cannot drop the unfinished last line", path_, errno);
  }

  std::string path_;
  bool append_;
  std::uint64_t size_;
  int descriptor_ = -1;
};

double number(const Cell& cell) { return cell.is_number() ? cell.value() : std::nan(""); }

}  // namespace

std::unique_ptr<SweepSink> stdout_sink() { return std::make_unique<StdoutSink>(); }
std::unique_ptr<SweepSink> no_sink() { return std::make_unique<NoSink>(); }
std::unique_ptr<SweepSink> file_sink(const std::string& path, bool append, std::uint64_t size) { return std::make_unique<FileSink>(path, append, size); }

void SweepKeepers::offer(const RowWriter& writer, std::uint64_t row, std::string_view line) {
  if (!front && !top) return;
  const std::vector<Cell> cells = writer.read(line);
  const auto value = [&](const std::string& key) {
    for (std::size_t i = 0; i < writer.figures().size(); ++i)
      if (writer.figures()[i] == key) return number(cells[writer.keys().size() + i]);
    return std::nan("");
  };
  if (front) {
    std::vector<double> values;
    bool whole = true;
    for (const Objective& objective : front->objectives()) {
      values.push_back(value(objective.key));
      whole = whole && !std::isnan(values.back());
    }
    if (whole) front->offer(row, values, line);
  }
  if (top)
    if (const double v = value(top->objective().key); !std::isnan(v)) top->offer(row, v, line);
}

SweepProgress read_progress(const std::string& path, const SweepSpace& space, const RowWriter& writer, SweepKeepers& keepers) {
  SweepProgress progress;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (std::filesystem::exists(path)) throw_input("cannot read", {path, 0, ""});
    return progress;  // nothing to resume: start
  }
  const auto other = [&](int line, const std::string& what) { throw_input(what, {path, line, ""}, "this file is of another sweep: choose another --save, or leave --resume out to replace it"); };
  std::string line;
  SweepPoint point;
  std::string keys;
  int number = 0;
  bool header = writer.header().empty();
  while (std::getline(file, line)) {
    if (file.eof()) {  // no line end: died while writing it
      progress.dropped = true;
      break;
    }
    ++number;
    if (!header) {
      if (line + "\n" != writer.header()) other(number, "the columns are not those of this sweep");
      header = true;
      progress.bytes += line.size() + 1;
      continue;
    }
    if (progress.rows == space.rows()) other(number, fmt::format("the file has more rows than this sweep ({})", space.rows()));
    space.at(progress.rows, point);
    keys.clear();
    writer.write_keys(point, keys);
    if (line.compare(0, keys.size(), keys) != 0 || line.size() == keys.size() || line[keys.size()] != ',') other(number, "the row is not the one that this sweep has here");
    try {
      const std::vector<Cell> cells = writer.read(line);
      if (!cells.back().empty()) ++progress.failed;
    } catch (const Error& error) {
      other(number, error.message());
    }
    keepers.offer(writer, progress.rows, line);
    ++progress.rows;
    progress.bytes += line.size() + 1;
  }
  return progress;
}

}  // namespace fathom
