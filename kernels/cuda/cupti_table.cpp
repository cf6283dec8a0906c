#include "kernels/cuda/cupti_table.hpp"

#if FATHOM_CUPTI_HEADERS
#include <cstring>
#include <memory>

#include "kernels/cuda/cupti_counters.hpp"
#include "kernels/cuda/nvtx.hpp"

namespace fathom::cuda {
namespace {

struct State {
  const DeviceCalls* device = nullptr;
  CuptiApi* given = nullptr;
  CuptiApi loaded;
  bool is_loaded = false;
  std::unique_ptr<ActivitySession> activity;
  std::unique_ptr<CounterSession> counters;
};
State& state() {
  static State it;
  return it;
}

template <std::size_t N>
void store(char (&to)[N], const std::string& text) {
  const std::size_t n = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

bool told(bool done, const Finding& finding, ProfilerMessage* message) {
  if (!done && message) {
    store(message->message, finding.message);
    store(message->cure, finding.cure);
    message->internal = finding.internal;
  }
  return done;
}

// Nothing that is thrown inside may leave the module.
template <class Body>
bool guarded(ProfilerMessage* message, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return told(false, {0, Rung::kEvents, std::string("the profiler failed: ") + error.what(), "", false}, message);
  } catch (...) {
    return told(false, {0, Rung::kEvents, "the profiler failed", "", true}, message);
  }
}

bool missing(ProfilerMessage* message) { return told(false, {0, Rung::kEvents, "the profiler was used before it was opened", "", true}, message); }

CuptiApi* api(Finding& finding) {
  State& s = state();
  if (s.given) return s.given;
  if (s.is_loaded) return &s.loaded;
  std::string reason;
  if (!load_cupti(cupti_library_names(), s.loaded, reason)) {
    finding = explain_missing_library(reason);
    return nullptr;
  }
  s.is_loaded = true;
  return &s.loaded;
}

ProfilerFacts facts_of(const ProfilerRequest* request) {
  ProfilerFacts facts;
  read_permissions(facts);
  if (request && request->visible_devices) facts.visible_devices = request->visible_devices;
  return facts;
}

bool open_activity(const ProfilerRequest* request, ProfilerMessage* message) {
  return guarded(message, [&] {
    Finding finding;
    CuptiApi* found = api(finding);
    if (!found) return told(false, finding, message);
    state().activity = std::make_unique<ActivitySession>(*found, *state().device, facts_of(request));
    return told(state().activity->open(), state().activity->finding(), message);
  });
}

bool push(std::uint64_t op, std::uint64_t pass, ProfilerMessage* message) {
  ActivitySession* session = state().activity.get();
  return guarded(message, [&] { return session ? told(session->push(op, pass), session->finding(), message) : missing(message); });
}

bool pop(ProfilerMessage* message) {
  ActivitySession* session = state().activity.get();
  return guarded(message, [&] { return session ? told(session->pop(), session->finding(), message) : missing(message); });
}

bool finish_activity(const ProfilerSink* sink, ProfilerMessage* message) {
  ActivitySession* session = state().activity.get();
  return guarded(message, [&] {
    if (!session) return missing(message);
    Activity activity;
    if (!session->finish(activity)) return told(false, session->finding(), message);
    for (const auto& [id, pass] : activity.passes) {
      const TracedPass row = {id, pass.busy_seconds, pass.span_seconds, pass.sum_seconds};
      sink->pass(sink->user, &row);
      for (const auto& [op, each] : pass.ops) {
        const TracedOp traced = {op, id, each.kernels, each.copies, each.without_time, each.kernel_seconds, each.copy_seconds, each.copy_bytes};
        sink->op(sink->user, &traced);
      }
    }
    for (const auto& [kind, each] : activity.overheads) {
      const TracedOverhead overhead = {kind, each.count, each.seconds};
      sink->overhead(sink->user, &overhead);
    }
    const TracedTotals totals = {activity.kernels, activity.copies, activity.attributed, activity.unattributed.kernels, activity.outside, activity.by_graph_node, activity.no_stamp, activity.reversed,
                                 activity.before_launch, activity.failed_calls, activity.broken_buffers, activity.cut_tails, activity.dropped};
    sink->totals(sink->user, &totals);
    for (const std::string& note : session->notes()) sink->note(sink->user, note.c_str());
    return true;
  });
}

bool open_counters(const ProfilerRequest* request, std::uint8_t set, std::size_t most_ranges, ProfilerMessage* message) {
  return guarded(message, [&] {
    Finding finding;
    CuptiApi* found = api(finding);
    if (!found) return told(false, finding, message);
    state().counters.reset();  // closes the one before
    state().counters = std::make_unique<CounterSession>(*found, *state().device, facts_of(request), static_cast<MetricSet>(set), most_ranges);
    return told(state().counters->open(), state().counters->finding(), message);
  });
}

bool start_pass(ProfilerMessage* message) {
  CounterSession* session = state().counters.get();
  return guarded(message, [&] { return session ? told(session->start_pass(), session->finding(), message) : missing(message); });
}

bool push_range(const char* name, ProfilerMessage* message) {
  CounterSession* session = state().counters.get();
  return guarded(message, [&] { return session ? told(session->push(name), session->finding(), message) : missing(message); });
}

bool pop_range(ProfilerMessage* message) {
  CounterSession* session = state().counters.get();
  return guarded(message, [&] { return session ? told(session->pop(), session->finding(), message) : missing(message); });
}

bool stop_pass(bool* more, ProfilerMessage* message) {
  CounterSession* session = state().counters.get();
  return guarded(message, [&] { return session ? told(session->stop_pass(*more), session->finding(), message) : missing(message); });
}

bool finish_counters(const ProfilerSink* sink, ProfilerMessage* message) {
  CounterSession* session = state().counters.get();
  return guarded(message, [&] {
    if (!session) return missing(message);
    std::map<std::string, CounterValues> ranges;
    if (!session->finish(ranges)) return told(false, session->finding(), message);
    for (const auto& [name, values] : ranges) {
      std::vector<std::uint8_t> counters;
      std::vector<double> numbers;
      for (const auto& [counter, value] : values) {
        counters.push_back(static_cast<std::uint8_t>(counter));
        numbers.push_back(value);
      }
      sink->range(sink->user, name.c_str(), counters.data(), numbers.data(), numbers.size());
    }
    for (const std::string& note : session->notes()) sink->note(sink->user, note.c_str());
    return true;
  });
}

const char* chip() { return state().counters ? state().counters->chip().c_str() : ""; }

bool wait(ProfilerMessage* message) {
  return guarded(message, [&] {
    const int code = state().device->synchronize();
    return code == 0 || told(false, explain_cuda(code, {}), message);
  });
}

}  // namespace

const ProfilerTable& profiler_table(const DeviceCalls& device, CuptiApi* given) {
  static const ProfilerTable table = {open_activity, push, pop, finish_activity, open_counters, start_pass, push_range, pop_range, stop_pass, finish_counters, chip, wait, nvtx_begin, nvtx_end};
  State& s = state();
  s.activity.reset();
  s.counters.reset();
  s.device = &device;
  s.given = given;
  return table;
}

}  // namespace fathom::cuda
#endif
