#include "tools/sweep_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "lib/backend.hpp"
#include "lib/error.hpp"

namespace fathom {
namespace {

// Rows of one chunk as text, with what the keepers want to know of each.
struct Chunk {
  std::string text;
  std::vector<std::size_t> ends;          // of each line
  std::vector<double> wanted;             // per row: one value per wanted column; NaN: none
  std::uint64_t failed = 0;
  std::string first_failure;
};

// Until a row succeeds, text is held back: a sweep in which nothing works is an error, and leaves stdout and the file alone.
constexpr std::size_t kHeldBack = std::size_t{1} << 20;

class Run {
 public:
  Run(const SweepSpace& space, const RowWriter& writer, const MakeEvaluator& make, const SweepOptions& options, SweepSink& sink, SweepKeepers& keepers)
      : space_(space), writer_(writer), make_(make), options_(options), sink_(sink), keepers_(keepers), progress_(options.quiet), start_(now()) {
    const auto want = [&](const std::string& key) {
      const auto found = std::find(writer.figures().begin(), writer.figures().end(), key);
      wanted_.push_back(static_cast<std::size_t>(found - writer.figures().begin()));
    };
    if (keepers.front)
      for (const Objective& objective : keepers.front->objectives()) want(objective.key);
    if (keepers.top) want(keepers.top->objective().key);
    chunks_ = (space.rows() - options.first + options.chunk - 1) / options.chunk;
    proven_ = options.first > 0;
    if (options.first == 0) held_ = writer.header();
  }

  SweepOutcome run() {
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.jobs; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    progress_.clear();
    if (failure_) std::rethrow_exception(failure_);
    if (proven_ && !held_.empty() && !outcome_.closed) outcome_.closed = !sink_.write(held_);
    if (proven_) sink_.finish();
    outcome_.seconds = now() - start_;
    return outcome_;
  }

 private:
  static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  void work() {
    try {
      const std::unique_ptr<RowEvaluator> evaluator = make_();
      SweepPoint point;
      std::vector<SweepValue> values;
      Chunk chunk;
      for (std::uint64_t number = 0; take(number);) {
        fill(number, *evaluator, point, values, chunk);
        deliver(number, chunk);
      }
    } catch (const Stopped&) {  // an interrupt within a row: rows from this one on are left out
      const std::lock_guard lock(mutex_);
      outcome_.interrupted = stop_ = cut_ = true;
      turn_.notify_all();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
      turn_.notify_all();
    }
  }

  bool take(std::uint64_t& number) {
    const std::lock_guard lock(mutex_);
    if (!stop_ && options_.interrupted && options_.interrupted()) {
      outcome_.interrupted = next_ < chunks_;
      stop_ = true;
    }
    if (stop_ || next_ == chunks_) return false;
    number = next_++;
    return true;
  }

  void fill(std::uint64_t number, RowEvaluator& evaluator, SweepPoint& point, std::vector<SweepValue>& values, Chunk& chunk) {
    chunk.text.clear();
    chunk.ends.clear();
    chunk.wanted.clear();
    chunk.first_failure.clear();
    chunk.failed = 0;
    const std::uint64_t from = options_.first + number * options_.chunk;
    const std::uint64_t to = std::min(space_.rows(), from + options_.chunk);
    for (std::uint64_t row = from; row < to; ++row) {
      space_.at(row, point);
      writer_.write_keys(point, chunk.text);
      const std::string& status = evaluator.evaluate(point, values);
      if (!status.empty() && chunk.failed++ == 0) chunk.first_failure = status;
      writer_.write_figures(values, status, chunk.text);
      if (wanted_.empty()) continue;
      chunk.ends.push_back(chunk.text.size());
      for (std::size_t column : wanted_) {
        const SweepValue& value = values[column];
        chunk.wanted.push_back(value.kind == SweepValue::Kind::kCount    ? to_double(value.count)
                               : value.kind == SweepValue::Kind::kNumber ? value.number
                                                                         : std::numeric_limits<double>::quiet_NaN());
      }
    }
  }

  // Chunks are written in order; one that is early waits for its turn while its thread waits too (all chunks are alike, so not for long).
  void deliver(std::uint64_t number, Chunk& chunk) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return written_ == number || failure_ || cut_; });
    if (failure_ || written_ != number) return;
    const std::uint64_t from = options_.first + number * options_.chunk;
    const std::uint64_t rows = std::min(space_.rows(), from + options_.chunk) - from;
    outcome_.done += rows;
    if (chunk.failed > 0 && outcome_.first_failure.empty()) outcome_.first_failure = chunk.first_failure;
    outcome_.failed += chunk.failed;
    proven_ = proven_ || chunk.failed < rows;
    keep(from, chunk);
    if (!outcome_.closed) write(chunk.text);
    ++written_;
    if (outcome_.closed) stop_ = true;
    const double elapsed = now() - start_;
    progress_.show(fmt::format("{} of {} configurations", options_.first + outcome_.done, space_.rows()), static_cast<double>(outcome_.done) / static_cast<double>(space_.rows() - options_.first), elapsed);
    turn_.notify_all();
  }

  void write(std::string_view text) {
    if (!held_.empty() || !proven_) {
      held_ += text;
      if (!proven_ && held_.size() < kHeldBack) return;
      proven_ = true;
      outcome_.closed = !sink_.write(held_);
      held_.clear();
      held_.shrink_to_fit();
      return;
    }
    outcome_.closed = !sink_.write(text);
  }

  void keep(std::uint64_t from, const Chunk& chunk) {
    if (wanted_.empty()) return;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < chunk.ends.size(); ++i) {
      const std::string_view line(chunk.text.data() + begin, chunk.ends[i] - begin - 1);
      begin = chunk.ends[i];
      const double* values = chunk.wanted.data() + i * wanted_.size();
      if (keepers_.top && values[wanted_.size() - 1] == values[wanted_.size() - 1]) keepers_.top->offer(from + i, values[wanted_.size() - 1], line);
      if (!keepers_.front) continue;
      scratch_.assign(values, values + keepers_.front->objectives().size());
      if (std::all_of(scratch_.begin(), scratch_.end(), [](double v) { return v == v; })) keepers_.front->offer(from + i, scratch_, line);
    }
  }

  const SweepSpace& space_;
  const RowWriter& writer_;
  const MakeEvaluator& make_;
  const SweepOptions& options_;
  SweepSink& sink_;
  SweepKeepers& keepers_;
  Progress progress_;
  double start_;
  std::vector<std::size_t> wanted_;
  std::uint64_t chunks_ = 0;

  std::mutex mutex_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0, written_ = 0;
  bool stop_ = false;
  bool cut_ = false;     // a row was given up: no later one can be written
  bool proven_ = false;  // a row has succeeded
  std::string held_;
  std::exception_ptr failure_;
  SweepOutcome outcome_;
  std::vector<double> scratch_;
};

}  // namespace

SweepOutcome run_sweep(const SweepSpace& space, const RowWriter& writer, const MakeEvaluator& make_evaluator, const SweepOptions& options, SweepSink& sink, SweepKeepers& keepers) {
  return Run(space, writer, make_evaluator, options, sink, keepers).run();
}

}  // namespace fathom
