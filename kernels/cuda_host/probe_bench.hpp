// What the probes of a GPU stand on: its buffers, samples between events behind a held stream, and where points are noted.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda_host/probe.hpp"
#include "lib/error.hpp"

namespace fathom::cuda {

class ProbeBench {
 public:
  using Queue = std::function<Status(Text*)>;
  static constexpr double kHoldSeconds = 0.5;
  static constexpr double kSampleSeconds = 2e-3;  // of one sample, by as many calls as that takes
  static constexpr int kLeastSamples = 3, kMostSamples = 15;
  static constexpr std::int64_t kTables = std::int64_t{4} << 20;  // bytes of each of the small buffers: positions, ranges, indices, scores
  struct Sample {
    double seconds = 0, spread = 0;
    int samples = 0;
  };

  ProbeBench(std::shared_ptr<OpenDevice> device, const ProbePlan& plan, const std::function<void(double, const std::string&)>& progress, const std::function<bool()>& stop)
      : device_(std::move(device)), plan_(plan), progress_(progress), stop_(stop), module_(device_->module()), info_(device_->info()), kernels_(module_.kernels) {
    Text text;
    for (Event*& each : events_) must(module_.make_event(handle(), &each, &text), "making an event", text);
  }
  ~ProbeBench() {
    Text text;
    module_.wait(handle(), &text);  // memory must not go while work is queued
    for (Event* each : events_)
      if (each) module_.free_event(handle(), each);
  }

 protected:
  Device* handle() const { return device_->device(); }
  bool stopped() const { return stop_ && stop_(); }

  void allocate() {
    std::int64_t free = 0;
    Text text;
    must(module_.memory_free(handle(), &free, &text), "asking for free GPU memory", text);
    bytes_ = std::min(plan_.stream_bytes, free / 5) / 256 * 256;
    if (bytes_ < std::int64_t{64} << 10) throw Error(ErrorKind::kEnvironment, fmt::format("{} bytes of GPU memory are free: too few to measure anything", free));
    for (auto* each : {&a_, &b_, &c_}) *each = DeviceMemory(device_, bytes_, "a buffer of the probes");
    for (auto* each : {&ints_, &begin_, &end_, &floats_}) *each = DeviceMemory(device_, kTables, "a buffer of the probes");
    // Values of both signs near one, in bf16 and as f32 alike.
    std::vector<std::uint32_t> block(static_cast<std::size_t>(std::min<std::int64_t>(bytes_, 1 << 20) / 4));
    std::uint32_t state = 2463534242u;
    for (auto& word : block) {
      state = state * 1664525u + 1013904223u;
      word = (0x3f00u + (state >> 16 & 0x80ffu)) << 16 | (0x3f00u + (state >> 8 & 0x80ffu));
    }
    const auto part = static_cast<std::int64_t>(block.size() * 4);
    must(module_.upload(handle(), a_.data(), block.data(), part, &text), "writing to the GPU", text);
    for (std::int64_t done = part; done < bytes_; done *= 2) must(module_.copy(handle(), a_.data() + done, a_.data(), std::min(done, bytes_ - done), &text), "filling a buffer", text);
    for (DeviceMemory* to : {&b_, &c_}) must(module_.copy(handle(), to->data(), a_.data(), bytes_, &text), "filling a buffer", text);
    must(module_.clear(handle(), floats_.data(), kTables, &text), "clearing a buffer", text);
  }

  // One sample: `calls` of them between two events, behind a held stream.
  double once(const Queue& queue, int calls) {
    Text text;
    must(module_.hold_stream(handle(), kHoldSeconds, &text), "holding the stream", text);
    Status status = module_.record(handle(), events_[0], &text);
    for (int i = 0; i < calls && status == Status::kOk; ++i) status = queue(&text);
    if (status == Status::kOk) status = module_.record(handle(), events_[1], &text);
    Text ignored;
    module_.release_stream(handle(), &ignored);  // also after a failure, or the next wait takes as long as the hold
    must(status, "queueing a probe", text);
    must(module_.wait(handle(), &text), "running a probe", text);
    double seconds = 0;
    must(module_.elapsed(handle(), events_[0], events_[1], &seconds, &text), "reading events", text);
    return seconds / calls;
  }

  Sample time(const std::string& what, const Queue& queue) {
    if (progress_) progress_(static_cast<double>(done_) / static_cast<double>(std::max<std::size_t>(1, total_)), what);
    ++done_;
    Text text;
    must(queue(&text), what.c_str(), text);  // loads the kernels
    must(module_.wait(handle(), &text), what.c_str(), text);
    const double first = once(queue, 1);
    const int calls = std::clamp(static_cast<int>(kSampleSeconds / std::max(first, 1e-7)), 1, plan_.most_calls);
    const double share = plan_.seconds / static_cast<double>(std::max<std::size_t>(1, total_));
    const int samples = std::clamp(static_cast<int>(share / std::max(first * calls, 1e-7)), kLeastSamples, kMostSamples);
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(once(queue, calls));
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](std::size_t quarter) { return seconds[quarter * (seconds.size() - 1) / 4]; };
    return {at(2), at(2) > 0 ? (at(3) - at(1)) / at(2) : 0, samples};
  }

  // False: refused, and noted so.
  bool point(const std::string& name, const std::string& where, double amount, const std::string& unit, const Queue& queue) {
    try {
      const Sample s = time(name, queue);
      probe_.points.push_back({name, where, s.seconds, s.spread, s.samples, amount, unit});
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;  // a device that failed answers nothing any more
      probe_.skipped.push_back(fmt::format("{}: {}", name, error.message()));
      return false;
    }
  }

  Figure figure(const ProbePoint& p, const std::string& what) const {
    return {p.amount / p.seconds, Provenance::kProbed, fmt::format("{}, {} samples, spread {:.1f} %", what, p.samples, 100 * p.spread)};
  }

  static Matmul product(std::int64_t m, std::int64_t n, std::int64_t k, DType type) {
    Matmul p;
    p.m = m, p.n = n, p.k = k;
    p.lda = k, p.ldb = n, p.ldc = n;
    p.type = p.result = p.bias_type = type;
    p.alignment = 256;
    return p;
  }
  bool fits(std::initializer_list<std::int64_t> sizes, const std::string& what) {
    for (const std::int64_t bytes : sizes) {
      if (bytes <= bytes_) continue;
      probe_.skipped.push_back(fmt::format("{}: needs {:.2f} GB in one buffer, {:.2f} GB are planned", what, static_cast<double>(bytes) * 1e-9, static_cast<double>(bytes_) * 1e-9));
      ++done_;
      return false;
    }
    return true;
  }

  // Queues products of this shape; the plan is made here, outside of any window.
  Queue matmul(const Matmul& p, int tune) {
    std::int32_t plan = -1;
    MatmulChoice choice;
    Text text;
    must(module_.plan_matmul(handle(), &p, tune, &plan, &choice, &text), "choosing a product's algorithm", text);
    return [this, plan](Text* message) { return module_.matmul(handle(), plan, a_.data(), b_.data(), c_.data(), nullptr, message); };
  }

  template <class T>
  void upload(DeviceMemory& to, const std::vector<T>& values) {
    Text text;
    must(module_.upload(handle(), to.data(), values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)), &text), "writing to the GPU", text);
  }

  std::shared_ptr<OpenDevice> device_;
  const ProbePlan& plan_;
  const std::function<void(double, const std::string&)>& progress_;
  const std::function<bool()>& stop_;
  const Module& module_;
  const DeviceInfo& info_;
  const Kernels& kernels_;
  Event* events_[2] = {};
  std::int64_t bytes_ = 0;
  DeviceMemory a_, b_, c_, ints_, begin_, end_, floats_;
  std::size_t total_ = 0, done_ = 0;
  DeviceProbe probe_;
};

}  // namespace fathom::cuda
