// Where the rows of a sweep go, and how far a file of them is.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lib/backend.hpp"
#include "lib/error.hpp"
#include "reports/format.hpp"
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

// The first column in which a row of a file differs from what it has to be: "flops_matmul is 5, not 6". Empty where only who made it differs: another version gives the same.
std::string difference(const RowWriter& writer, const std::vector<Cell>& cells, const std::string& expected) {
  const std::vector<Cell> right = writer.read(expected);
  bool others = false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string is = exact_text(cells[i]), should = exact_text(right[i]);
    const std::size_t keys = writer.keys().size();
    if (i + 1 < cells.size() && i >= keys + writer.figures().size()) {
      others = others || is != should;
      continue;
    }
    const std::string name = i < keys ? writer.keys()[i].key : i < keys + writer.figures().size() ? writer.figures()[i - keys] : "status";
    if (is != should) return fmt::format("{} is {}, not {}", name, is.empty() ? "empty" : "'" + is.substr(0, 60) + "'", should.empty() ? "empty" : "'" + should.substr(0, 60) + "'");
  }
  return others ? "" : "it is written in another way";
}

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

SweepProgress read_progress(const std::string& path, const SweepSpace& space, const RowWriter& writer, SweepKeepers& keepers, RowEvaluator& evaluator, const std::vector<std::string>* counted) {
  SweepProgress progress;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (std::filesystem::exists(path)) throw_input("cannot read", {path, 0, ""});
    return progress;  // nothing to resume: start
  }
  const auto other = [&](int line, const std::string& what) { throw_input(what, {path, line, ""}, "this file is of another sweep: choose another --save, or leave --resume out to replace it"); };
  const auto changed = [&](int line, const std::string& what) {
    throw_input("this row is not what the sweep gives: " + what, {path, line, ""},
                fmt::format("it was changed, or another version, model file or machine wrote it: cut the file before line {} to go on from there, or leave --resume out", line));
  };
  std::string line, row;
  SweepPoint point;
  std::vector<SweepValue> values;
  int number = 0;
  bool header = writer.header().empty();
  // A row without its measured time, as an interrupt once left behind.
  const auto measured = std::find(writer.figures().begin(), writer.figures().end(), "measured_s");
  const std::size_t time = writer.keys().size() + static_cast<std::size_t>(measured - writer.figures().begin());
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
    row.clear();
    writer.write_keys(point, row);
    const std::size_t keys = row.size();
    if (line.compare(0, keys, row) != 0 || line.size() == keys || line[keys] != ',') other(number, "the row is not the one that this sweep has here");
    const std::string& status = evaluator.evaluate(point, values);
    bool half = false;
    if (!counted) {
      writer.write_figures(values, status, row);
      row.pop_back();
    }
    if (counted || line != row) {
      std::vector<Cell> cells;
      try {
        cells = writer.read(line);
      } catch (const Error& error) {
        other(number, error.message());
      }
      const std::string what = counted ? "" : difference(writer, cells, row);
      if (!what.empty()) changed(number, what);
      for (std::size_t i = 0; counted && i < counted->size() && cells.back().empty(); ++i) {
        if (values[i].kind != SweepValue::Kind::kCount) continue;
        const auto column = std::find(writer.figures().begin(), writer.figures().end(), (*counted)[i]) - writer.figures().begin();
        const Cell& cell = cells[writer.keys().size() + static_cast<std::size_t>(column)];
        if (!cell.exact() || *cell.exact() != values[i].count) changed(number, fmt::format("{} is '{}', not '{}'", (*counted)[i], exact_text(cell).substr(0, 60), to_string(values[i].count)));
      }
      if (!cells.back().empty()) ++progress.failed;
      half = counted && measured != writer.figures().end() && cells.back().empty() && cells[time].empty();
    } else if (!status.empty()) {
      ++progress.failed;
    }
    if (half) progress.unmeasured.push_back(progress.rows);
    else keepers.offer(writer, progress.rows, line);
    ++progress.rows;
    progress.bytes += line.size() + 1;
  }
  if (progress.rows == 0) progress.bytes = 0;  // no row: the header too is written again
  return progress;
}

bool measure_again(const std::string& path, const SweepSpace& space, const RowWriter& writer, const std::vector<std::uint64_t>& rows, RowEvaluator& evaluator, const std::function<bool()>& interrupted) {
  SweepPoint point;
  std::vector<SweepValue> values;
  for (const std::uint64_t row : rows) {
    if (interrupted()) return false;
    space.at(row, point);
    std::string line;
    writer.write_keys(point, line);
    try {
      const std::string& status = evaluator.evaluate(point, values);
      writer.write_figures(values, status, line);
    } catch (const Stopped&) {
      return false;
    }
    std::string content = load_file(path);
    std::size_t begin = 0;
    for (std::uint64_t before = row + (writer.header().empty() ? 0 : 1); before > 0; --before) begin = content.find('\n', begin) + 1;
    content.replace(begin, content.find('\n', begin) + 1 - begin, line);
    save_file(path, content);
  }
  return true;
}

}  // namespace fathom
