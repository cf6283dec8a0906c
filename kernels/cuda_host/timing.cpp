// How the GPU's own clock times a pass and its ops (the note's rules: no launch gaps where the host can be ahead, nothing of a first launch, the
// cache state said, clocks and throttling recorded).
//
// Ops in place: one event between every two ops of a queued pass. The stream is held until the first few hundred ops are queued, so that the GPU
// never waits for the host; where a threshold makes the host ask on the way, it is not held, and gaps are part of what is measured.
#include <algorithm>

#include "kernels/cuda_host/execution.hpp"

namespace fathom::cuda {
namespace {

constexpr double kTimedHoldSeconds = 0.5;  // a host that stops must not hang the GPU
// Calls that may wait behind a held stream, each of a few launches: the driver's queue holds about a thousand, and a full one would stop the
// host until the hold times out.
constexpr std::size_t kHeldCalls = 160;

}  // namespace

Event* CudaExecution::event(std::size_t index) {
  while (events_.size() <= index) {
    Event* made = nullptr;
    Text text;
    must(run_.module->make_event(run_.device, &made, &text), "making an event", text);
    events_.push_back(made);
  }
  return events_[index];
}

double CudaExecution::between(Event* from, Event* to) const {
  double seconds = 0;
  Text text;
  must(run_.module->elapsed(run_.device, from, to, &seconds, &text), "reading events", text);
  return seconds;
}

double CudaExecution::timed_run() {
  if (!ran_) run();
  prepare_graphs();  // captured and instantiated outside the window
  begin_pass();
  Event *first = event(0), *last = event(1);
  std::vector<Executed> sizes;
  Text text;
  must(run_.module->record(run_.device, first, &text), "recording an event", text);
  queue_pass(sizes);
  must(run_.module->record(run_.device, last, &text), "recording an event", text);
  wait();
  const double seconds = between(first, last);
  if (whole()) note_graph(sizes);
  learn_all(sizes);
  return seconds;
}

void CudaExecution::timed_pass(std::span<double> seconds) {
  if (!ran_) run();  // the first launch of a kernel loads it: never timed, never behind a held stream
  begin_pass();
  Text text;
  std::vector<Executed> sizes(static_cast<std::size_t>(instance_count()));
  run_.host_rows = !whole();  // as the pass runs otherwise
  const bool hold = !thresholds_ || whole();
  bool held = hold;
  std::size_t held_calls = 0;
  event(static_cast<std::size_t>(instance_count()));  // all made before the stream is held
  if (hold) must(run_.module->hold_stream(run_.device, kTimedHoldSeconds, &text), "holding the stream", text);
  const auto release = [&] {
    if (held) run_.module->release_stream(run_.device, &text);
    held = false;
  };
  try {
    for (int i = 0; i < instance_count(); ++i) {
      must(run_.module->record(run_.device, event(static_cast<std::size_t>(i)), &text), "recording an event", text);
      sizes[static_cast<std::size_t>(i)] = size_now(bound(i));
      queue(i, sizes[static_cast<std::size_t>(i)]);
      held_calls += calls_[static_cast<std::size_t>(i)].size() + 1;
      if (held_calls >= kHeldCalls) release();
    }
    must(run_.module->record(run_.device, event(static_cast<std::size_t>(instance_count())), &text), "recording an event", text);
  } catch (...) {
    release();
    run_.host_rows = true;
    throw;
  }
  release();
  wait();
  run_.host_rows = true;
  for (int i = 0; i < instance_count(); ++i) seconds[static_cast<std::size_t>(i)] = between(event(static_cast<std::size_t>(i)), event(static_cast<std::size_t>(i) + 1));
  if (whole()) note_graph(sizes);
  learn_all(sizes);
}

double CudaExecution::timed_cold(int instance) {
  Text text;
  Executed size = size_now(bound(instance));
  run_instance(instance);
  must(run_.module->flush_l2(run_.device, &text), "flushing the L2 cache", text);
  wait();  // the flush stays out of the window
  Event *first = event(0), *last = event(1);
  must(run_.module->hold_stream(run_.device, kTimedHoldSeconds, &text), "holding the stream", text);
  must(run_.module->record(run_.device, first, &text), "recording an event", text);
  // A selection that reads its counts would wait behind the held stream for ever.
  const bool reads = std::holds_alternative<Select>(*bound(instance).spec);
  if (reads) run_.module->release_stream(run_.device, &text);
  queue(instance, size);
  must(run_.module->record(run_.device, last, &text), "recording an event", text);
  run_.module->release_stream(run_.device, &text);
  wait();
  return between(first, last);
}

std::map<std::string, double> CudaExecution::device_state() {
  DeviceState now;
  run_.module->state(run_.device, &now);
  std::map<std::string, double> figures;
  if (now.sm_clock_hz >= 0) figures["gpu_clock_hz"] = now.sm_clock_hz;
  if (now.memory_clock_hz >= 0) figures["gpu_memory_clock_hz"] = now.memory_clock_hz;
  if (now.power_watts >= 0) figures["gpu_power_watts"] = now.power_watts;
  if (now.temperature_c >= 0) figures["gpu_temperature_c"] = now.temperature_c;
  if (now.throttle_reasons >= 0) figures["gpu_throttle_reasons"] = static_cast<double>(now.throttle_reasons);
  return figures;
}

}  // namespace fathom::cuda
