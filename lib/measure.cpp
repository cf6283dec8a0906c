// The measuring protocol: warm-up, raw end-to-end passes, bracketed passes, all interleaved over the workloads.
#include "lib/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lib/error.hpp"
#include "lib/measure_figures.hpp"

namespace fathom {
namespace {

class MonotonicClock : public Clock {
 public:
  double now() override { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
};

constexpr int kMaxBatch = 64;
constexpr double kBracketedPass = 3;  // end-to-end passes, as a guess of what is still to come
constexpr double kCeilingShare = 0.04;  // of the bracketed time that ceiling probes may take
constexpr int kRoundsForSpread = 8;  // halves of fewer rounds say nothing

// May this instance be called again at once with the same result? In-place and accumulating ops may not.
bool idempotent(const Op& op) {
  for (const Operand& out : op.outputs)
    for (const Operand& in : op.inputs)
      if (in.tensor == out.tensor && in.layer_offset == out.layer_offset) return false;
  bool pure = true;
  std::visit(
      [&pure](const auto& spec) {
        if constexpr (requires { spec.accumulate; }) pure = pure && !spec.accumulate;
        if constexpr (requires { spec.accumulate_weights; }) pure = pure && !spec.accumulate_weights;
      },
      op.spec);
  return pure && !std::holds_alternative<KvAppend>(op.spec) && !std::holds_alternative<AdamW>(op.spec) && !std::holds_alternative<GradientNorm>(op.spec) &&
         !std::holds_alternative<ScatterAddRows>(op.spec) && !std::holds_alternative<GatherBackward>(op.spec) && !std::holds_alternative<Rope>(op.spec) &&
         !std::holds_alternative<AddResidual>(op.spec) && !std::holds_alternative<RouterScoreBackward>(op.spec);
}

class Runner {
 public:
  Runner(std::span<Execution* const> executions, const MeasureOptions& options, Clock& clock, MachineObserver* observer)
      : options_(options), clock_(clock), observer_(observer) {
    if (executions.empty()) throw_internal("measure: nothing to measure");
    for (Execution* execution : executions) {
      Subject s;
      s.execution = execution;
      const Workload& w = execution->workload();
      s.instances = w.instances();
      s.class_names = execution->reference_classes();
      for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) s.classes.push_back(execution->reference_class(i));
      std::vector<std::int64_t> uses(w.ops().size(), 0);
      for (const Instance& instance : s.instances) s.use.push_back(uses[static_cast<size_t>(instance.op)]++);
      s.batch.assign(w.ops().size(), 1);
      s.rows.assign(w.ops().size(), 0);
      s.flops.assign(w.ops().size(), 0);
      subjects_.push_back(std::move(s));
    }
  }

  std::vector<Measurement> run() {
    begin_ = clock_.now();
    std::map<std::string, double> before;
    if (observer_) before = observer_->observe();
    until_stopped([&] {
      warm_up();
      add_device_state(before);
      raw_passes();
      if (options_.bracketed && !stop_) bracketed_passes();
    });
    std::map<std::string, double> after;
    if (observer_) after = observer_->observe();
    add_device_state(after);
    const std::map<std::string, ReferenceMeasurement> references = reference_figures(references_, options_);
    std::vector<Measurement> results;
    for (Subject& s : subjects_) {
      keep_one_placement(s);
      std::map<std::string, ReferenceMeasurement> here = references;
      if (s.result.placement == Placement::kApart)
        for (auto& [name, r] : here)
          if (const auto apart = options_.nominal.find(name + "_apart"); apart != options_.nominal.end() && apart->second > 0) r.nominal = apart->second;
      finish_measurement(s, here, ceilings_, options_);
      s.result.seconds_spent = elapsed();
      s.result.interrupted = stop_;
      s.result.stopped_by = stopped_by_;
      s.result.state_before = before;
      s.result.state_after = after;
      results.push_back(std::move(s.result));
    }
    return results;
  }

 private:
  void add_device_state(std::map<std::string, double>& state) {
    for (const auto& [name, value] : subjects_.front().execution->device_state()) state[name] = value;
  }

  double elapsed() const { return clock_.now() - begin_; }

  void report(const char* stage, int round, double share) {
    if (options_.progress) options_.progress({elapsed(), std::clamp(share, 0.0, 1.0), round, stage, so_far()});
    if (options_.interrupted && options_.interrupted()) interrupt();
  }

  std::vector<double> so_far() const {
    std::vector<double> medians;
    for (const Subject& s : subjects_)
      if (!s.raw.empty()) medians.push_back(Samples{s.raw}.median());
    return medians;
  }

  void interrupt() {
    stop_ = true;
    stopped_by_ = "interrupt";
  }

  // An execution that is told to stop within a pass throws. The round it was in is dropped for all subjects; those before it stand.
  template <class Stages>
  void until_stopped(const Stages& stages) {
    try {
      stages();
    } catch (const Stopped&) {
      interrupt();
      size_t raw = subjects_[0].raw.size();
      for (const Subject& s : subjects_) raw = std::min(raw, s.raw.size());
      for (Subject& s : subjects_) {
        s.raw.resize(raw);
        std::erase_if(s.samples, [this](const Sample& x) { return x.round < 0 || x.round >= complete_rounds_; });
        s.rounds = complete_rounds_;
        s.placements.resize(std::min(s.placements.size(), static_cast<size_t>(std::max(0, complete_rounds_))));
        if (complete_rounds_ == 0) continue;
        s.rows = std::move(s.rows_before);
        s.flops = std::move(s.flops_before);
      }
    }
  }

  void warm_up() {
    for (int i = 0; i < options_.warmup && !stop_; ++i) {
      report("warm-up", i, 0);
      for (Subject& s : subjects_) s.execution->run();
    }
  }

  // Unbracketed passes from start to end: what a user sees.
  void raw_passes() {
    if (options_.bracketed && options_.raw_share <= 0) return;
    const double budget = options_.bracketed ? options_.seconds * options_.raw_share : options_.seconds, begin = elapsed();
    for (int round = 0; round < options_.max_rounds && !stop_; ++round) {
      const bool over = is_over(budget, begin, round);
      if (round >= options_.min_rounds && (over || (!options_.bracketed && raw_settled()))) {
        if (!options_.bracketed) stopped_by_ = over ? "time" : "spread";
        break;
      }
      // A bracketed pass also runs the references: about kBracketedPass passes.
      report("end to end", round, share_done(begin, round, options_.bracketed ? kBracketedPass * planned_rounds() : 0));
      for (Subject& s : subjects_) {
        s.raw_placements.push_back(s.execution->placement());
        if (s.execution->keeps_time()) {
          s.raw.push_back(s.execution->timed_run());
          continue;
        }
        const double t = clock_.now();
        s.execution->run();
        s.raw.push_back(clock_.now() - t);
      }
    }
  }

  // Whether one more round would end further behind the budget than this moment lies before it. `rounds`: since `begin`.
  bool is_over(double budget, double begin, int rounds) const {
    const double now = elapsed();
    return now >= budget || (rounds > 0 && now + (now - begin) / rounds / 2 > budget);
  }

  // Rounds that are run whatever the time: exactly as many where they were asked for.
  bool exact() const { return options_.min_rounds == options_.max_rounds; }
  int planned_rounds() const { return options_.min_rounds; }

  // Of the whole measurement: by the rounds that still must run, `more` of them in stages to come, and by the time that is left unless the number of rounds is given.
  // `rounds`: since `begin`, of this stage.
  double share_done(double begin, int rounds, double more) {
    const double now = elapsed();
    const double must = rounds > 0 ? (now - begin) / rounds * (std::max(0, planned_rounds() - rounds) + more) : 0;
    const double left = exact() ? must : std::max(must, options_.seconds - now);
    if (now + left > 0 && (rounds > 0 || !exact())) share_ = std::max(share_, now / (now + left));
    return share_;
  }

  bool raw_settled() const {
    for (const Subject& s : subjects_)
      if (static_cast<int>(s.raw.size()) < kRoundsForSpread || halves_spread(s.raw) > options_.target_spread) return false;
    return true;
  }

  void bracketed_passes() {
    // One discarded bracketed pass: references are created and warmed, short ops found.
    for (Subject& s : subjects_) pass(s, -1);
    for (Subject& s : subjects_) choose_batches(s);
    references_.clear();
    for (auto& [name, ceiling] : ceilings_) ceiling.rates.clear();
    stopped_by_ = "rounds";
    const double begin = elapsed();
    for (int round = 0; round < options_.max_rounds && !stop_; ++round) {
      if (round >= options_.min_rounds) {
        if (is_over(options_.seconds, begin, round)) {
          stopped_by_ = "time";
          break;
        }
        if (settled(round)) {
          stopped_by_ = "spread";
          break;
        }
      }
      report("op by op", round, share_done(begin, round, 0));
      if (stop_) break;
      for (Subject& s : subjects_) {
        s.rows_before = s.rows;
        s.flops_before = s.flops;
      }
      for (Subject& s : subjects_) {
        s.placements.push_back(s.execution->placement());
        pass(s, round);
      }
      complete_rounds_ = round + 1;
    }
  }

  double reference(Subject& s, int which) {
    const std::string& name = s.class_names[static_cast<size_t>(which)];
    Ceiling& ceiling = ceilings_[name];
    const double begin = clock_.now();
    const double rate = ceiling.absent || begin < ceiling.due ? 0 : s.execution->probe_ceiling(which);
    s.execution->settle_reference(which);
    const double t = clock_.now();
    s.execution->run_reference(which);
    const double r = clock_.now() - t;
    references_[name].push_back(r);
    if (rate > 0) {
      ceiling.due = t + (t - begin) / kCeilingShare;
      ceiling.work = r * rate;
      ceiling.rates.push_back(rate);
    } else if (begin >= ceiling.due) {
      ceiling.absent = true;
    }
    return r;
  }

  // Is this instance one of those that this round brackets (MeasureOptions::bracketed_uses)?
  bool is_bracketed(const Subject& s, size_t instance, int round) const {
    const std::int64_t each = options_.bracketed_uses, uses = s.execution->workload().uses(s.instances[instance].op);
    if (each <= 0 || uses <= each) return true;
    const std::int64_t first = std::max(round, 0) * each % uses;
    return (s.use[instance] - first + uses) % uses < each;
  }

  // The list once, in order, each op between two runs of its reference; consecutive ops of a class share the one between them.
  void pass(Subject& s, int round) {
    if (s.execution->keeps_time()) return device_pass(s, round);
    s.execution->begin_pass();
    int last_class = -1;
    double last = 0;
    for (int i = 0; i < static_cast<int>(s.instances.size()); ++i) {
      const int op = s.instances[static_cast<size_t>(i)].op;
      if (!is_bracketed(s, static_cast<size_t>(i), round)) {
        s.execution->run_instance(i);
        last_class = -1;
        continue;
      }
      const int which = s.classes[static_cast<size_t>(op)];
      const double before = which == last_class ? last : reference(s, which);
      const Ceiling& ceiling = ceilings_[s.class_names[static_cast<size_t>(which)]];
      const double ceiling_before = ceiling.work;
      const int batch = s.batch[static_cast<size_t>(op)];
      const double t = clock_.now();
      for (int b = 0; b < batch; ++b) s.execution->run_instance(i);
      const double seconds = (clock_.now() - t) / batch;
      const double after = reference(s, which);
      s.samples.push_back({i, round, seconds, before, after, ceiling_before, ceiling.work});
      if (round >= 0) {
        s.rows[static_cast<size_t>(op)] += static_cast<double>(s.execution->executed(i).rows);
        s.flops[static_cast<size_t>(op)] += s.execution->executed_flops(i).to_double();
      }
      last_class = which;
      last = after;
    }
    if (round >= 0) s.rounds = round + 1;
  }

  // The device's own time of every op. There is no reference to divide by: a nominal of 0 stands for "as measured".
  void device_pass(Subject& s, int round) {
    std::vector<double> seconds(s.instances.size(), 0.0);
    s.execution->timed_pass(seconds);
    for (int i = 0; i < static_cast<int>(s.instances.size()); ++i) {
      const int op = s.instances[static_cast<size_t>(i)].op;
      references_[s.class_names[static_cast<size_t>(s.classes[static_cast<size_t>(op)])]] = {0.0};
      s.samples.push_back({i, round, seconds[static_cast<size_t>(i)], 0, 0});
      if (round < 0) continue;
      s.rows[static_cast<size_t>(op)] += static_cast<double>(s.execution->executed(i).rows);
      s.flops[static_cast<size_t>(op)] += s.execution->executed_flops(i).to_double();
    }
    if (round >= 0) s.rounds = round + 1;
  }

  void choose_batches(Subject& s) {
    const Workload& w = s.execution->workload();
    std::vector<Samples> times(w.ops().size());
    for (const Sample& sample : s.samples) times[static_cast<size_t>(s.instances[static_cast<size_t>(sample.instance)].op)].values.push_back(sample.seconds);
    s.samples.clear();
    if (s.execution->keeps_time()) return;  // a pass is timed as it runs
    for (size_t i = 0; i < w.ops().size(); ++i) {
      const double median = times[i].median();
      if (median >= options_.too_short || !(median > 0)) continue;
      const Cost cost = declared_cost(w.ops()[i].spec);
      if (!idempotent(w.ops()[i]) || (cost.read + cost.written).to_double() > static_cast<double>(options_.batch_bytes)) continue;
      s.batch[i] = static_cast<int>(std::clamp(std::ceil(options_.batch_target / median), 1.0, static_cast<double>(kMaxBatch)));
    }
  }

  // Per-round sums of t / r x current nominal: cheap enough to look at between rounds.
  bool settled(int rounds) const {
    if (rounds < kRoundsForSpread) return false;
    std::map<std::string, double> nominal;
    for (const auto& [name, values] : references_) nominal[name] = Samples{values}.quantile(0.25);
    for (const Subject& s : subjects_) {
      std::vector<double> sums(static_cast<size_t>(rounds), 0.0);
      for (const Sample& x : s.samples) {
        const auto which = static_cast<size_t>(s.classes[static_cast<size_t>(s.instances[static_cast<size_t>(x.instance)].op)]);
        sums[static_cast<size_t>(x.round)] += normalised(x, nominal.at(s.class_names[which]));
      }
      if (halves_spread(sums) > options_.target_spread) return false;
    }
    return true;
  }

  const MeasureOptions& options_;
  Clock& clock_;
  MachineObserver* observer_;
  std::vector<Subject> subjects_;
  std::map<std::string, std::vector<double>> references_;
  std::map<std::string, Ceiling> ceilings_;
  double begin_ = 0;
  double share_ = 0;         // as last reported
  bool stop_ = false;
  int complete_rounds_ = 0;  // op by op, of all subjects
  std::string stopped_by_ = "rounds";
};

}  // namespace

Clock& system_clock() {
  static MonotonicClock clock;
  return clock;
}

std::vector<Measurement> measure(std::span<Execution* const> executions, const MeasureOptions& options, Clock& clock, MachineObserver* observer) {
  return Runner(executions, options, clock, observer).run();
}

}  // namespace fathom
