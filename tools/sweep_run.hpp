// Running a sweep: rows in order, by several threads, to a file or stdout, with what a front needs picked up on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/sweep_front.hpp"
#include "tools/sweep_rows.hpp"

namespace fathom {

// Where lines go. A file is appended to line by line (it is the sweep's own journal), stdout is data for a pipe, and neither is also possible:
// when only a front is asked for.
class SweepSink {
 public:
  virtual ~SweepSink() = default;
  // False: nobody reads any more ("| head").
  virtual bool write(std::string_view lines) = 0;
  // Everything is on its way; called once, at the end.
  virtual void finish() {}
};
std::unique_ptr<SweepSink> stdout_sink();
std::unique_ptr<SweepSink> no_sink();
// A new file, or (append) one of `size` bytes that is continued. Throws an environment Error that names the path and the cause.
std::unique_ptr<SweepSink> file_sink(const std::string& path, bool append, std::uint64_t size);

struct SweepOptions {
  int jobs = 1;
  std::uint64_t chunk = 1;                 // rows that a thread takes at a time
  std::uint64_t first = 0;                 // rows before it are in the file already
  bool quiet = false;
  std::function<bool()> interrupted;
};

struct SweepOutcome {
  std::uint64_t done = 0;                  // rows evaluated now
  std::uint64_t failed = 0;                // of them, those with a status
  std::string first_failure;
  bool interrupted = false;
  bool closed = false;
  double seconds = 0;
};

// Rows that a front or a top list looks at, in order. Rows with a status or without a value are not offered.
struct SweepKeepers {
  std::unique_ptr<SweepFront> front;
  std::unique_ptr<SweepTop> top;
  void offer(const RowWriter& writer, std::uint64_t row, std::string_view line);  // reads the line
};

using MakeEvaluator = std::function<std::unique_ptr<RowEvaluator>()>;

SweepOutcome run_sweep(const SweepSpace& space, const RowWriter& writer, const MakeEvaluator& make_evaluator, const SweepOptions& options, SweepSink& sink, SweepKeepers& keepers);

// How far a file of this sweep is: its complete rows and their bytes. A last line without its end (the program died while writing) does not count. Offers the
// rows to the keepers. Every row is worked out again by `evaluator` and has to be the same, to the last digit; of measured rows the figures of
// `counted` (columns that a count gives). Throws Error(kInput) with file and line where the file is of another sweep, or a row is not what this sweep gives.
struct SweepProgress {
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  std::uint64_t failed = 0;
  bool dropped = false;  // a partial last line
  std::vector<std::uint64_t> unmeasured;  // rows without status and measured time, as an interrupt once left them; not offered to the keepers
};
SweepProgress read_progress(const std::string& path, const SweepSpace& space, const RowWriter& writer, SweepKeepers& keepers, RowEvaluator& evaluator, const std::vector<std::string>* counted);

// Measures `rows` of a file again, which is replaced whole after each: what stands behind them is kept. False: interrupted.
bool measure_again(const std::string& path, const SweepSpace& space, const RowWriter& writer, const std::vector<std::uint64_t>& rows, RowEvaluator& evaluator, const std::function<bool()>& interrupted);

}  // namespace fathom
