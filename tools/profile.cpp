#include "tools/profile.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/fake/profiler.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "tools/child_process.hpp"
#include "tools/interrupt.hpp"

namespace fathom {
namespace {

const std::vector<std::string> kModes = {"off", "events", "activity", "counters", "require"};

// Figures that passes bring, by glossary key.
const std::vector<std::string> kOpKeys = {"kernels", "kernel_s", "copy_bytes", "counter_s", "dram_bytes_read", "dram_bytes_written", "l2_bytes", "counter_flops", "sm_cycles", "needed_flops",
                                          "needed_bytes", "profile_status"};
const std::vector<std::string> kTotalKeys = {"traced_s", "device_busy_s", "device_span_s", "profile_passes", "counter_passes"};

void set_figure(Figures& row, std::string_view key, double value) {
  if (value >= 0) row.set(key, Cell::number(value));
}

const Backend& backend_unasked(const std::string& name) {
  for (const Backend* each : all_backends())
    if (each->name() == name) return *each;
  return backend(name);  // throws with the nearest name
}

std::unique_ptr<Profiler> make_profiler(const Backend& runner, const ProfileFlags& flags) {
  if (!flags.faults.empty()) {
    if (runner.name() != "fake") throw_input("only the fake profiler fails on request", {"", 0, "--fake-profiler"});
    return std::make_unique<FakeProfiler>(parse_faults(flags.faults));
  }
  return runner.profiler();
}

void add_profile(Result& result, const Profile& profile, ProfilePass pass) {
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpProfile& op = profile.ops[static_cast<int>(i)];
    Figures& row = result.ops[i];
    set_figure(row, "needed_flops", op.counted_flops);
    set_figure(row, "needed_bytes", op.counted_read + op.counted_written);
    if (pass == ProfilePass::kActivity) {
      if (op.kernels >= 0) row.set("kernels", Cell::count(static_cast<u128>(op.kernels)));
      if (op.copy_bytes > 0) row.set("copy_bytes", Cell::number(op.copy_bytes));
      set_figure(row, "kernel_s", op.kernel_seconds);
      if (!op.reason.empty()) {
        row.set("kernel_s", Cell::status(op.reason));
        row.set("profile_status", Cell::text(op.reason));
      }
    } else {
      set_figure(row, "counter_s", op.counter_seconds);
      set_figure(row, "dram_bytes_read", op.dram_read);
      set_figure(row, "dram_bytes_written", op.dram_written);
      set_figure(row, "l2_bytes", op.l2_bytes);
      set_figure(row, "counter_flops", op.flops);
      set_figure(row, "sm_cycles", op.cycles);
    }
  }
  if (pass == ProfilePass::kActivity) {
    set_figure(result.totals, "traced_s", profile.step_seconds);
    set_figure(result.totals, "device_busy_s", profile.busy_seconds);
    set_figure(result.totals, "device_span_s", profile.span_seconds);
    result.totals.set("profile_passes", Cell::count(static_cast<u128>(profile.passes)));
  } else {
    result.totals.set("counter_passes", Cell::count(static_cast<u128>(profile.counter_passes)));
  }
  for (const std::string& note : profile.notes) result.notes.push_back({Note::Severity::kWarning, fmt::format("profile ({}): {}", pass == ProfilePass::kActivity ? "activity" : "counters", note)});
}

// "fathom: MESSAGE\n  hint: CURE" as one sentence.
std::string reason_of(const ChildResult& child, const std::string& pass) {
  if (child.signal != 0) return fmt::format("the {} pass was ended by signal {} ({})", pass, child.signal, strsignal(child.signal));
  std::string text = child.err;
  if (const size_t at = text.find("fathom: "); at != std::string::npos) text.erase(0, at + 8);
  const size_t hint = text.find("\n  hint: ");
  std::string message = text.substr(0, std::min(hint, text.find('\n')));
  if (message.empty()) message = fmt::format("the {} pass failed with exit code {}", pass, child.code);
  if (hint != std::string::npos) message += ". To get it: " + text.substr(hint + 9, text.find('\n', hint + 9) - hint - 9);
  return message;
}

double sum_of(const Result& result, std::string_view key) {
  double sum = 0;
  bool any = false;
  for (const Figures& op : result.ops)
    if (const double value = op.number(key); !std::isnan(value)) sum += value, any = true;
  return any ? sum : std::nan("");
}

void set_ratio(Figures& row, std::string_view key, double measured, double needed) {
  if (!std::isnan(measured) && needed > 0) row.set(key, Cell::number(measured / needed));
}

// Ratios of what was measured to what the counts say, in one op row or in the totals.
void add_ratios(Figures& row) {
  const double dram = row.number("dram_bytes_read") + row.number("dram_bytes_written");
  set_ratio(row, "dram_ratio", dram, row.number("needed_bytes"));
  set_ratio(row, "counter_flops_ratio", row.number("counter_flops"), row.number("needed_flops"));
  const double kernel = row.number("kernel_s");
  if (!std::isnan(dram) && kernel > 0) row.set("dram_bytes_per_s", Cell::number(dram / kernel));
  const double predicted = row.number("predicted_s");
  if (!std::isnan(predicted) && kernel > 0) row.set("kernel_error", Cell::number(predicted / kernel - 1));
}

std::string rung_of(const Figures& row, std::string_view timer) {
  const bool activity = !std::isnan(row.number("kernel_s"));
  const bool counters = !std::isnan(row.number("counter_s")) || !std::isnan(row.number("sm_cycles"));
  if (counters && activity) return "counters+activity";
  return counters ? "counters" : activity ? "activity" : std::string(timer);
}

}  // namespace

void add_profile_flags(CLI::App& app, ProfileFlags& flags) {
  app.add_option("--profile", flags.mode, "CUDA: off, events, activity, counters or require (counters or exit 4) [off]")->type_name("WHAT")->group("Machine");
  app.add_option("--profile-pass", flags.pass)->group("");
  app.add_option("--profile-passes", flags.passes)->group("");
  app.add_option("--fake-profiler", flags.faults)->group("");
}

bool starts_passes(const ProfileFlags& flags) { return flags.pass.empty() && (flags.mode == "activity" || flags.mode == "counters" || flags.mode == "require"); }

void check_profile_flags(const ProfileFlags& flags, const std::string& name) {
  if (std::find(kModes.begin(), kModes.end(), flags.mode) == kModes.end()) throw_input(fmt::format("unknown profile mode '{}'", flags.mode), {"", 0, "--profile"}, name_hint(flags.mode, kModes));
  if (flags.mode != "off" && name != "cuda" && name != "fake")
    throw_input(fmt::format("kernel times and hardware counters are read on the cuda backend only, and the ops run on '{}'", name), {"", 0, "--profile"},
                "add --backend cuda, or leave --profile out; on a CPU times come from its clock");
}

void profile_pass(const std::vector<Timed>& timed, const ProfileFlags& profile, const TimedFlags& flags, std::vector<Result>& results, Record& record) {
  const ProfilePass pass = profile.pass == "activity" ? ProfilePass::kActivity : ProfilePass::kCounters;
  // The profiler comes before everything that may touch the device: tracing starts before the first context.
  const Backend& runner = backend_unasked(flags.backend);
  const std::unique_ptr<Profiler> profiler = make_profiler(runner, profile);
  if (!profiler) throw_internal("no profiler on this backend");
  profiler->begin(pass);
  backend(flags.backend);  // says what is missing
  for (const Timed& each : timed) {
    // Traced as it is timed, by graphs too; counters see a launched graph as one piece of work, so they are read op by op.
    const std::unique_ptr<Execution> execution = bind_timed(runner, each, flags, false, pass == ProfilePass::kActivity);
    follow_prediction(*execution, each.raw);
    profiler->record(*execution, profile.passes);
  }
  const std::vector<Profile> profiles = profiler->finish();
  for (size_t i = 0; i < profiles.size(); ++i) add_profile(results[i], profiles[i], pass);
  if (pass == ProfilePass::kCounters && !profiles.empty()) {
    record.environment.set("chip", Cell::text(profiles.front().chip));
    for (const Profile& each : profiles)
      if (each.flops_per_math_op > 0) record.environment.set("flops_per_math_op", Cell::count(static_cast<u128>(each.flops_per_math_op)));
  }
}

std::vector<std::string> child_arguments(const std::vector<std::string>& arguments, const std::string& pass) {
  // What the parent does itself: formats and files. A JSON file is left to the time pass too, so that predictions are on disk before it runs.
  static const std::vector<std::string> kValued = {"-o", "--output", "--save", "--profile", "--fail-on", "--width", "--color"};
  std::vector<std::string> child = {"--no-defaults"};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string name = word.substr(0, word.find('='));
    const bool known = std::find(kValued.begin(), kValued.end(), name) != kValued.end();
    const bool glued = word.size() > 2 && word.starts_with("-o") && word[2] != '=';
    if (!known && !glued) {
      child.push_back(word);
      continue;
    }
    std::string value = word.find('=') != std::string::npos ? word.substr(word.find('=') + 1) : "";
    if (known && word == name && i + 1 < arguments.size()) value = arguments[++i];
    if (name == "--save" && pass == "time" && value.ends_with(".json")) child.insert(child.end(), {"--save", value});
  }
  child.insert(child.end(), {"--profile-pass", pass, "-o", "json"});
  if (pass != "time") child.emplace_back("--quiet");
  return child;
}

void join_pass(Record& to, const Record& from) {
  for (size_t i = 0; i < to.results.size(); ++i) {
    Result& result = to.results[i];
    const auto fits = [&](const Result& other) { return !other.fingerprint.empty() && other.fingerprint == result.fingerprint; };
    const Result* found = i < from.results.size() && fits(from.results[i]) ? &from.results[i] : nullptr;
    for (const Result& other : from.results)
      if (!found && fits(other)) found = &other;
    if (!found) continue;  // a generation, or what an interrupt left out
    if (found->ops.size() != result.ops.size()) throw_internal(fmt::format("passes of {} have {} and {} ops", result.model, result.ops.size(), found->ops.size()));
    for (size_t k = 0; k < result.ops.size(); ++k) {
      const Cell* mine = result.ops[k].find("path");
      const Cell* theirs = found->ops[k].find("path");
      if (!mine || !theirs || !mine->words() || !theirs->words() || *mine->words() != *theirs->words()) throw_internal(fmt::format("op {} of {} differs between passes", k, result.model));
      for (const std::string& key : kOpKeys)
        if (const Cell* cell = found->ops[k].find(key)) result.ops[k].set(key, *cell);
    }
    for (const std::string& key : kTotalKeys)
      if (const Cell* cell = found->totals.find(key)) result.totals.set(key, *cell);
    for (const RecordNote& note : found->notes)
      if (note.text.starts_with("profile (")) result.notes.push_back(note);
  }
  for (const char* key : {"chip", "flops_per_math_op"})
    if (const Cell* cell = from.environment.find(key)) to.environment.set(key, *cell);
}

void conclude_profile(Record& record, const std::string& mode, std::string_view timer, const std::vector<std::string>& reasons) {
  for (Result& result : record.results) {
    if (result.ops.empty()) {
      result.notes.push_back({Note::Severity::kNote, fmt::format("{}: a generation has no single op list and is timed only; profile its prefill and decode steps", result.model)});
      continue;
    }
    if (!result.totals.has("measured_s")) continue;
    Figures& totals = result.totals;
    for (Figures& op : result.ops) {
      op.set("rung", Cell::text(rung_of(op, timer)));
      add_ratios(op);
    }
    for (const char* key : {"kernel_s", "counter_s", "dram_bytes_read", "dram_bytes_written", "l2_bytes", "counter_flops", "needed_flops", "needed_bytes", "sm_cycles"})
      if (const double sum = sum_of(result, key); !std::isnan(sum)) totals.set(key, Cell::number(sum));
    if (const double kernels = sum_of(result, "kernels"); !std::isnan(kernels)) totals.set("kernels", Cell::count(static_cast<u128>(kernels)));
    totals.set("rung", Cell::text(rung_of(totals, timer)));
    add_ratios(totals);
    if (const double time = totals.number("counter_s"); time > 0) set_figure(totals, "sm_clock_hz", totals.number("sm_cycles") / time);
    const double traced = totals.number("traced_s"), measured = totals.number("measured_s");
    if (!std::isnan(traced) && measured > 0) {
      totals.set("profile_overhead", Cell::number(traced / measured - 1));
      if (traced > 1.05 * measured)
        result.notes.push_back({Note::Severity::kWarning, fmt::format("tracing made a step of {} {:.1f} % longer; step times are those of the run without it", result.model, (traced / measured - 1) * 100)});
    }
    std::string why;
    for (const std::string& reason : reasons) why += (why.empty() ? "" : "; ") + reason;
    if (!why.empty()) totals.set("rung_reason", Cell::text(why));
  }
  for (const std::string& reason : reasons) record.note(fmt::format("--profile {}: {}", mode, reason), Note::Severity::kWarning);
}

int run_passes(const ProfileFlags& profile, const std::string& name, Record& record) {
  const std::string command = record.command, arguments = record.arguments, started = record.started;
  const ChildResult time = run_self(child_arguments(remembered_arguments(), "time"), false);
  if (time.signal != 0 && interrupted()) return 130;  // before the child could catch it: nothing was measured
  if (time.code == 130 && time.out.empty()) return 130;
  if (time.signal != 0) throw Error(ErrorKind::kEnvironment, reason_of(time, "time"));
  if (time.code != 0 && time.code != 130) return time.code;
  record = read_record(time.out, "the time pass");
  record.command = command, record.arguments = arguments, record.started = started;
  std::vector<std::string> reasons;
  const auto pass = [&](const std::string& which) {
    if (interrupted() || time.code == 130) return;
    const ChildResult child = run_self(child_arguments(remembered_arguments(), which), true);
    if (child.code != 0) {
      reasons.push_back(reason_of(child, which));
      return;
    }
    join_pass(record, read_record(child.out, "the " + which + " pass"));
  };
  pass("activity");
  if (profile.mode != "activity") pass("counters");
  if (profile.mode == "require" && !reasons.empty()) throw Error(ErrorKind::kEnvironment, "--profile require is not met: " + reasons.front());
  conclude_profile(record, profile.mode, backend_unasked(name).timer(), reasons);
  return interrupted() ? 130 : time.code;
}

}  // namespace fathom
