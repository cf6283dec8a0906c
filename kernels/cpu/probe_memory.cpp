#include "kernels/cpu/probe_memory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/pinned.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/topk.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr std::int64_t kPage = 4096;

// Keeps results of reads alive.
volatile float sink;

// SplitMix64, for row orders and scores.
std::uint64_t mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Medians in the unit of the probe: `amount` per second, or seconds per `amount`.
CostProbe summary(std::string name, bool rate, std::vector<double> seconds, double amount) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double q) { return seconds[static_cast<std::size_t>(q * static_cast<double>(seconds.size() - 1) + 0.5)]; };
  CostProbe r;
  r.name = std::move(name);
  r.unit = rate ? "B/s" : "s";
  r.value = rate ? amount / at(0.5) : at(0.5) / amount;
  r.best = rate ? amount / seconds.front() : seconds.front() / amount;
  r.spread = (at(0.75) - at(0.25)) / at(0.5);
  r.samples = static_cast<int>(seconds.size());
  return r;
}

// Times body() (one sample) until the budget is spent, after one call that is discarded.
template <class Body>
std::vector<double> sample(double budget, int min_samples, const Body& body) {
  std::vector<double> seconds;
  body();
  const double end = now() + budget;
  while (static_cast<int>(seconds.size()) < min_samples || (now() < end && seconds.size() < 1000)) seconds.push_back(body());
  return seconds;
}

// Runs `passes` passes of one thread's share; x, y, z are its arrays of `count` floats.
struct Share {
  float* x;
  std::int64_t count;  // floats per array
  const std::int32_t* order;
  std::int64_t rows, row_floats;
};

int arrays_of(StreamPattern p) {
  switch (p) {
    case StreamPattern::kRead:
    case StreamPattern::kUpdate: return 1;
    case StreamPattern::kTriad: return 3;
    default: return 2;
  }
}

void pass(const VectorKernels& k, StreamPattern pattern, const Share& s) {
  float* y = s.x + s.count;
  switch (pattern) {
    case StreamPattern::kRead: sink = k.probe_read(s.x, s.count); break;
    case StreamPattern::kCopy: k.probe_copy(s.x, y, s.count); break;
    case StreamPattern::kUpdate: k.probe_update(s.x, s.count); break;
    case StreamPattern::kTriad: k.probe_triad(s.x, y, y + s.count, s.count); break;
    case StreamPattern::kStreamingCopy: k.probe_copy_stream(s.x, y, s.count); break;
    case StreamPattern::kGatherRows: k.gather[0](s.x, s.order, y, s.row_floats, 0, s.rows); break;
  }
}

double run(const std::vector<Share>& shares, StreamPattern pattern, std::int64_t passes) {
  const VectorKernels& k = vector_kernels();
  const int threads = static_cast<int>(shares.size());
  if (threads == 1) {
    const double begin = now();
    for (std::int64_t i = 0; i < passes; ++i) pass(k, pattern, shares[0]);
    return now() - begin;
  }
  double begin = 0, end = 0;
#if defined(_OPENMP)
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int t = 0; t < threads; ++t) pass(k, pattern, shares[static_cast<std::size_t>(t)]);  // threads awake, caches warm
  begin = now();
#if defined(_OPENMP)
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int t = 0; t < threads; ++t) {
    for (std::int64_t i = 0; i < passes; ++i) pass(k, pattern, shares[static_cast<std::size_t>(t)]);
  }
  end = now();
  return end - begin;
}

}  // namespace

std::string_view stream_pattern_name(StreamPattern pattern) {
  switch (pattern) {
    case StreamPattern::kRead: return "read";
    case StreamPattern::kCopy: return "copy";
    case StreamPattern::kUpdate: return "update";
    case StreamPattern::kTriad: return "triad";
    case StreamPattern::kStreamingCopy: return "streaming-copy";
    case StreamPattern::kGatherRows: return "gather-rows";
  }
  return "?";
}

CostProbe probe_stream(StreamPattern pattern, void* memory, std::int64_t bytes_per_thread, int threads, double seconds, int min_samples,
                         std::int64_t gather_row_bytes) {
  const int arrays = arrays_of(pattern);
  const std::int64_t row_floats = gather_row_bytes / 4;
  // A page between the threads' shares: a core that fetches ahead past the end of its own would take lines of the next thread, which are being written.
  const std::int64_t used = bytes_per_thread >= 4 * kPage ? bytes_per_thread - kPage : bytes_per_thread;
  std::int64_t count = used / 4 / arrays / 256 * 256;  // whole vectors, whole cache lines
  std::vector<std::int32_t> order;
  std::int64_t rows = 0;
  if (pattern == StreamPattern::kGatherRows) {
    rows = std::max<std::int64_t>(1, count / row_floats);
    order.resize(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), 0);
    std::uint64_t state = 1;
    for (std::int64_t i = rows - 1; i > 0; --i) {
      std::swap(order[static_cast<std::size_t>(i)], order[mix(state) % static_cast<std::uint64_t>(i + 1)]);
    }
  }
  if (count < 256 || (rows > 0 && rows * row_floats > count)) throw_internal("probe_stream: the working set is too small for this pattern");
  std::vector<Share> shares;
  for (int t = 0; t < threads; ++t) {
    shares.push_back({static_cast<float*>(memory) + t * (bytes_per_thread / 4 / 16 * 16), count, order.data(), rows, row_floats});
  }
  const double streams = pattern == StreamPattern::kUpdate ? 2 : arrays;
  const double moved = (rows > 0 ? static_cast<double>(rows * row_floats) : static_cast<double>(count)) * 4 * streams * threads;
  // A sample lasts at least 0.3 ms, so that neither the clock nor the parallel region shows.
  // The shortest of a few runs decides: one that lost its core for a time slice says nothing about the length of a pass.
  std::int64_t passes = 1;
  const auto shortest = [&] {
    double time = run(shares, pattern, passes);
    for (int i = 0; i < 4 && time >= 3e-4; ++i) time = std::min(time, run(shares, pattern, passes));
    return time;
  };
  while (shortest() < 3e-4 && passes < (1 << 20)) passes *= 2;
  auto times = sample(seconds, min_samples, [&] { return run(shares, pattern, passes) / static_cast<double>(passes); });
  CostProbe r = summary(std::string(stream_pattern_name(pattern)), true, std::move(times), moved);
  r.bytes_per_thread = bytes_per_thread;
  r.threads = threads;
  return r;
}

MemoryProbePlan full_memory_plan(int threads) {
  MemoryProbePlan plan;
  plan.bytes_per_thread = {32 << 10, 1 << 20, 16 << 20, (std::int64_t{512} << 20) / std::max(threads, 1)};
  plan.patterns = {StreamPattern::kRead,  StreamPattern::kCopy,          StreamPattern::kUpdate,
                   StreamPattern::kTriad, StreamPattern::kStreamingCopy, StreamPattern::kGatherRows};
  plan.threads = {1};
  if (threads > 1) plan.threads.push_back(threads);
  return plan;
}

MemoryProbePlan quick_memory_plan(int threads) {
  MemoryProbePlan plan = full_memory_plan(threads);
  plan.bytes_per_thread = {1 << 20, (std::int64_t{256} << 20) / std::max(threads, 1)};
  plan.patterns = {StreamPattern::kRead, StreamPattern::kCopy, StreamPattern::kUpdate};
  return plan;
}

std::vector<CostProbe> probe_memory(const MemoryProbePlan& plan) {
  if (plan.bytes_per_thread.empty() || plan.threads.empty()) return {};
  const std::int64_t largest = *std::max_element(plan.bytes_per_thread.begin(), plan.bytes_per_thread.end());
  const int most = *std::max_element(plan.threads.begin(), plan.threads.end());
  Buffer memory(largest * most, most);
  std::vector<CostProbe> results;
  for (const int threads : plan.threads) {
    for (const std::int64_t bytes : plan.bytes_per_thread) {
      // The largest set is meant in all (it stands for DRAM): one thread alone takes the share of every thread.
      const std::int64_t mine = bytes == largest ? largest * most / threads : bytes;
      for (const StreamPattern pattern : plan.patterns) {
        results.push_back(probe_stream(pattern, memory.data(), mine, threads, plan.seconds_each, plan.min_samples, plan.gather_row_bytes));
      }
    }
  }
  return results;
}

HandoverProbe probe_handover(int threads) {
  constexpr int kSamples = 15;
  HandoverProbe probe;
  if (threads < 2) return probe;
  const PinnedThreads pinned(threads);
  const VectorKernels& k = vector_kernels();
  const std::int64_t l2 = std::max<std::int64_t>(cpu_info().l2_bytes, 256 << 10);
  const std::int64_t floats = std::min<std::int64_t>(l2 / 2, 512 << 10) / 4 / 64 * 64, evicting = 3 * l2 / 4;
  Buffer buffer((floats + evicting) * 4 * threads, threads);
  float* data = buffer.as<float>();
  std::vector<std::vector<double>> seconds(2);
  std::vector<double> mine(static_cast<std::size_t>(threads));
  for (int i = 0; i < 2 * kSamples + 2; ++i) {
    const int shift = i % 2 == 0 ? 0 : std::max(1, threads / 2);  // whose part is written
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
    {
      const int self = omp_get_thread_num();
      k.probe_update(data + (self + shift) % threads * floats, floats);
      k.probe_update(data + threads * floats + self * evicting, evicting);
#pragma omp barrier
      const double t = now();
      sink = k.probe_read(data + self * floats, floats);
      mine[static_cast<std::size_t>(self)] = now() - t;
    }
#endif
    std::sort(mine.begin(), mine.end());
    if (i >= 2) seconds[static_cast<std::size_t>(i % 2)].push_back(mine[mine.size() / 2]);
  }
  const auto rate = [&](std::vector<double>& s) {
    std::sort(s.begin(), s.end());
    return s[s.size() / 2] > 0 ? static_cast<double>(floats * 4) / s[s.size() / 2] : 0;
  };
  probe.own = rate(seconds[0]);
  probe.other = rate(seconds[1]);
  probe.samples = kSamples;
  return probe;
}

bool cores_apart(int threads) {
  constexpr double kBetween = 220e-9;
  constexpr int kTurns = 25;
  if (threads < 2) return false;
  struct alignas(128) Turn {
    std::atomic<int> value{0};
  };
  Turn there, back;
  const int partner = std::max(1, threads / 2);
  std::vector<double> seconds;
  seconds.reserve(kTurns);
  bool both = false;
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  {
    const int self = omp_get_thread_num();
    const bool answered = omp_get_num_threads() > partner;
    if (self == 0 && answered) {
      both = true;
      for (int i = 1; i <= kTurns; ++i) {
        const double t = now();
        there.value.store(i, std::memory_order_release);
        while (back.value.load(std::memory_order_acquire) < i) {
        }
        seconds.push_back(now() - t);
      }
    } else if (self == partner) {
      for (int i = 1; i <= kTurns; ++i) {
        while (there.value.load(std::memory_order_acquire) < i) {
        }
        back.value.store(i, std::memory_order_release);
      }
    }
  }
#endif
  if (!both) return false;
  std::nth_element(seconds.begin(), seconds.begin() + kTurns / 2, seconds.end());
  return seconds[kTurns / 2] > kBetween;
}

CostProbe probe_exp() {
  constexpr std::int64_t kCount = 4096;
  std::vector<float> x(kCount);
  std::uint64_t state = 2;
  for (float& v : x) v = static_cast<float>(mix(state) % 1000) * 1e-3f;
  const auto kernel = vector_kernels().probe_exp;
  auto times = sample(0.03, 15, [&] {
    const double begin = now();
    for (int i = 0; i < 64; ++i) kernel(x.data(), kCount);
    return now() - begin;
  });
  CostProbe r = summary("exp", false, std::move(times), 64.0 * kCount);
  r.bytes_per_thread = kCount * 4;
  return r;
}

CostProbe probe_region(int threads) {
  const auto times = sample(0.03, 15, [&] {
    const double begin = now();
    for (int i = 0; i < 50; ++i) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
#endif
      asm volatile("" ::: "memory");
    }
    return now() - begin;
  });
  CostProbe r = summary("parallel-region", false, times, 50);
  r.threads = threads;
  return r;
}

CostProbe probe_clock_read() {
  const auto times = sample(0.01, 15, [&] {
    const double begin = now();
    for (int i = 0; i < 998; ++i) sink = static_cast<float>(now());
    return now() - begin;
  });
  return summary("clock", false, times, 1000);
}

CostProbe probe_topk(std::int64_t count, std::int64_t k) {
  // Scores change from call to call, as in a run: branch predictors must not learn one input.
  constexpr std::int64_t kInputs = 16;
  std::vector<float> scores(static_cast<std::size_t>(count * kInputs));
  std::uint64_t state = 3;
  for (float& s : scores) {
    double total = 0;  // nearly normal
    for (int i = 0; i < 6; ++i) total += static_cast<double>(mix(state) >> 11) * 0x1p-53 - 0.5;
    s = static_cast<float>(total);
  }
  std::vector<std::int32_t> out(static_cast<std::size_t>(k) + 1);
  std::vector<char> workspace(static_cast<std::size_t>(topk_workspace_bytes(count, 1)));
  auto times = sample(0.03, 15, [&] {
    const double begin = now();
    for (std::int64_t i = 0; i < kInputs; ++i) topk(scores.data() + i * count, count, k, out.data(), workspace.data());
    return now() - begin;
  });
  CostProbe r = summary("top-k", false, std::move(times), static_cast<double>(kInputs));
  r.bytes_per_thread = count * 4;
  return r;
}

}  // namespace fathom::cpu
