// Vector kernels against the probed bandwidth of the level they run from: every sample is bracketed by two probes of the same
// access pattern on a working set of the same size, and the printed fraction is the median over rounds. For kernels bound by exp the
// ceiling is max(bytes / bandwidth, elements * probed exp cost). Shapes are those of a block of width 768, 2048 tokens, 256 slots.
//   bench_vector [threads ...] [name filter]     default: 1 and 2 threads, all kernels
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/activation.hpp"
#include "kernels/cpu/cross_entropy.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/embedding.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/moe.hpp"
#include "kernels/cpu/norm.hpp"
#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/probe_memory.hpp"
#include "kernels/cpu/rope.hpp"
#include "kernels/cpu/router.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/cpu/topk.hpp"
#include "kernels/cpu/vector_isa.hpp"

namespace {

using namespace fathom;
using cpu::StreamPattern;

constexpr std::int64_t kTokens = 2048, kWidth = 768, kHidden = 2048, kSlots = 256, kVocabulary = 50304;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Case {
  std::string name;
  DType type;
  std::int64_t bytes;         // arrays touched, each access once
  StreamPattern pattern;      // of the reference
  std::int64_t working_set;   // distinct bytes
  std::int64_t exps;          // exponentials per call
  std::function<void(int threads)> run;
};

// Operands live in one arena on huge pages; every case carves its own from the start.
class Arena {
 public:
  explicit Arena(std::int64_t bytes) : memory_(bytes, 2) {}
  void reset() { used_ = 0; }
  template <class T>
  T* take(std::int64_t count) {
    T* p = memory_.as<T>(used_);
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 4095) / 4096 * 4096;
    if (used_ > memory_.bytes()) throw std::runtime_error("bench arena too small");
    return p;
  }
  // Values of both signs in f32 or bf16.
  void* values(DType type, std::int64_t count) {
    void* p = take<char>(count * dtype_bytes(type));
    std::uint32_t state = 12345;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      const float v = static_cast<float>(static_cast<std::int32_t>(state) >> 8) * 0x1p-21f;  // -4 .. 4
      if (type == DType::kF32) static_cast<float*>(p)[i] = v;
      if (type == DType::kBF16) static_cast<bf16*>(p)[i] = bf16(v);
    }
    return p;
  }

 private:
  cpu::Buffer memory_;
  std::int64_t used_ = 0;
};

std::vector<Case> cases(Arena& a, DType t) {
  std::vector<Case> list;
  const std::int64_t e = dtype_bytes(t), n = kTokens * kWidth, h = kTokens * kHidden;
  const auto add_case = [&](std::string name, std::int64_t bytes, StreamPattern p, std::int64_t ws, std::int64_t exps, std::function<void(int)> f) {
    list.push_back({std::move(name), t, bytes, p, ws, exps, std::move(f)});
  };
  a.reset();
  void* x = a.values(t, h);
  void* y = a.values(t, h);
  void* z = a.values(t, h);
  void* u = a.values(t, h);
  void* v = a.values(t, h);
  void* row = a.values(t, kWidth);
  float* f32 = a.take<float>(kTokens);
  float* g32 = a.take<float>(kTokens);
  for (std::int64_t i = 0; i < kTokens; ++i) f32[i] = 1.0f + 0.001f * static_cast<float>(i), g32[i] = 0.5f;
  float* work = a.take<float>(64 * kWidth * 2);
  float* sums = a.take<float>(kWidth);
  auto* ids = a.take<std::int32_t>(kTokens);
  auto* picked = a.take<std::int32_t>(kSlots);
  for (std::int64_t i = 0; i < kTokens; ++i) ids[i] = static_cast<std::int32_t>(i * 797 % kTokens);
  for (std::int64_t i = 0; i < kSlots; ++i) picked[i] = static_cast<std::int32_t>(i * 8 + i % 5);
  float* table = a.take<float>(cpu::rope_table_floats(kTokens, 64));
  cpu::fill_rope_table(10000, 64, kTokens, table);
  auto* positions = a.take<std::int32_t>(kTokens);
  std::iota(positions, positions + kTokens, 0);
  void* order = a.take<char>(cpu::embedding_workspace_bytes(kTokens));

  const cpu::Norm norm{t, kTokens, kWidth, 1e-5f};
  add_case("rmsnorm", 2 * n * e, StreamPattern::kCopy, 2 * n * e, 0, [=](int th) { cpu::rmsnorm(norm, x, row, y, f32, th); });
  add_case("layernorm", 2 * n * e, StreamPattern::kCopy, 2 * n * e, 0, [=](int th) { cpu::layernorm(norm, x, row, row, y, g32, f32, th); });
  add_case("rmsnorm backward", 3 * n * e, StreamPattern::kTriad, 3 * n * e, 0, [=](int th) {
    cpu::rmsnorm_backward(norm, x, row, f32, y, {z, false, sums, nullptr, DType::kF32, false}, work, th);
  });
  add_case("layernorm backward", 3 * n * e, StreamPattern::kTriad, 3 * n * e, 0, [=](int th) {
    cpu::layernorm_backward(norm, x, row, g32, f32, y, {z, false, sums, sums, DType::kF32, false}, work, th);
  });
  add_case("rope q+k", 2 * 2 * n * e, StreamPattern::kUpdate, 2 * n * e, 0, [=](int th) {
    cpu::rope({t, kTokens, 2 * kWidth, 24, 64, 64, kTokens}, x, positions, table, false, th);
  });
  using Kind = cpu::ActivationKind;
  const auto rows = [](void* p) { return cpu::ConstRows{p, kHidden}; };
  const auto out = [](void* p) { return cpu::MutableRows{p, kHidden}; };
  for (const auto& [name, kind, exps] : {std::tuple{"gelu tanh", Kind::kGeluTanh, 1}, {"gelu erf", Kind::kGeluErf, 1}, {"relu squared", Kind::kReluSquared, 0}}) {
    add_case(name, 2 * h * e, StreamPattern::kCopy, 2 * h * e, exps * h, [=](int th) { cpu::activation({kind, t, kTokens, kHidden}, rows(x), out(y), th); });
  }
  add_case("swiglu", 3 * h * e, StreamPattern::kTriad, 3 * h * e, h, [=](int th) { cpu::gated_activation({Kind::kSilu, t, kTokens, kHidden}, rows(x), rows(y), out(z), th); });
  add_case("gelu tanh backward", 3 * h * e, StreamPattern::kTriad, 3 * h * e, h, [=](int th) {
    cpu::activation_backward({Kind::kGeluTanh, t, kTokens, kHidden}, rows(x), rows(y), out(z), th);
  });
  add_case("swiglu backward", 5 * h * e, StreamPattern::kTriad, 5 * h * e, h, [=](int th) {
    cpu::gated_activation_backward({Kind::kSilu, t, kTokens, kHidden}, rows(x), rows(y), rows(z), out(u), out(v), th);
  });
  add_case("residual add", 3 * n * e, StreamPattern::kTriad, 3 * n * e, 0, [=](int th) { cpu::add(t, x, y, z, n, th); });
  add_case("residual add in place", 3 * n * e, StreamPattern::kUpdate, 2 * n * e, 0, [=](int th) { cpu::add(t, x, y, x, n, th); });
  add_case("bias add", 2 * n * e, StreamPattern::kCopy, 2 * n * e, 0, [=](int th) { cpu::add_bias(t, x, row, y, kTokens, kWidth, th); });
  add_case("scaled copy", 2 * n * e, StreamPattern::kCopy, 2 * n * e, 0, [=](int th) { cpu::scaled_copy(t, x, 0.5f, y, n, th); });
  add_case("sum of squares", h * e, StreamPattern::kRead, h * e, 0, [=](int th) { (void)cpu::sum_of_squares(t, x, h, th); });
  add_case("column sums", n * e, StreamPattern::kRead, n * e, 0, [=](int th) {
    cpu::column_sums(t, x, nullptr, kTokens, kWidth, DType::kF32, sums, false, work, th);
  });
  if (t == DType::kF32) {
    add_case("f32 to bf16", 6 * n, StreamPattern::kCopy, 6 * n, 0, [=](int th) { cpu::f32_to_bf16(static_cast<float*>(x), static_cast<bf16*>(y), n, th); });
    add_case("bf16 to f32", 6 * n, StreamPattern::kCopy, 6 * n, 0, [=](int th) { cpu::bf16_to_f32(static_cast<bf16*>(x), static_cast<float*>(y), n, th); });
  }
  add_case("router scores", n * e, StreamPattern::kRead, n * e, 0, [=](int th) { cpu::router_scores(t, x, row, 0.f, g32, kTokens, kWidth, th); });
  add_case("router dX", 2 * n * e, StreamPattern::kUpdate, n * e, 0, [=](int th) { cpu::router_input_gradient(t, f32, row, nullptr, y, kTokens, kWidth, th); });
  const cpu::Rows moved{t, kSlots, kWidth};
  const std::int64_t m = kSlots * kWidth;
  add_case("gather 256 of 2048", 2 * m * e, StreamPattern::kGatherRows, 2 * m * e, 0, [=](int th) { cpu::gather_rows(moved, x, picked, y, th); });
  add_case("scatter-add 256", 3 * m * e, StreamPattern::kUpdate, 2 * m * e, 0, [=](int th) { cpu::scatter_add_rows(moved, y, f32, picked, x, th); });
  add_case("scatter backward 256", 3 * m * e, StreamPattern::kTriad, 3 * m * e, 0, [=](int th) {
    cpu::scatter_add_rows_backward(moved, x, y, f32, f32, picked, z, g32, th);
  });
  add_case("gather 2048", 2 * n * e, StreamPattern::kGatherRows, 2 * n * e, 0, [=](int th) { cpu::gather_rows({t, kTokens, kWidth}, x, ids, y, th); });
  add_case("embedding backward", 3 * n * e, StreamPattern::kUpdate, 2 * n * e, 0, [=](int th) {
    cpu::embedding_backward({t, kTokens, kWidth, kTokens}, x, ids, y, order, th);
  });
  return list;
}

// AdamW from DRAM and cross-entropy on vocabulary-wide rows, which need the whole arena.
std::vector<Case> big_cases(Arena& a, DType t) {
  std::vector<Case> list;
  a.reset();
  const std::int64_t count = 8 << 20;
  auto* master = static_cast<float*>(a.values(DType::kF32, count));
  auto* first = static_cast<float*>(a.values(DType::kF32, count));
  auto* second = a.take<float>(count);
  for (std::int64_t i = 0; i < count; ++i) second[i] = 1.0f;
  void* grad = a.values(t, count);
  bf16* copy = t == DType::kBF16 ? a.take<bf16>(count) : nullptr;
  list.push_back({"adamw 8M", t, 28 * count, StreamPattern::kUpdate, 14 * count + 2 * count, 0,
                  [=](int th) { cpu::adamw({}, master, first, second, t, grad, copy, count, th); }});
  const std::int64_t rows = 64;
  const std::int64_t logits = rows * kVocabulary, e = dtype_bytes(t);
  void* x = a.values(t, logits);
  auto* labels = a.take<std::int32_t>(rows);
  auto* losses = a.take<float>(rows);
  for (std::int64_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(i * 700);
  const cpu::CrossEntropy shape{t, rows, kVocabulary, kVocabulary};
  list.push_back({"cross-entropy", t, logits * e, StreamPattern::kRead, logits * e, logits, [=](int th) { cpu::cross_entropy(shape, x, labels, losses, th); }});
  list.push_back({"cross-entropy + gradient", t, 2 * logits * e, StreamPattern::kUpdate, logits * e, 2 * logits,
                  [=](int th) { cpu::cross_entropy_and_gradient(shape, x, labels, 1e-2f, losses, th); }});
  return list;
}

void run_case(const Case& c, int threads, void* reference, double exp_cost) {
  constexpr int kRounds = 9;
  std::vector<double> times, fractions, bandwidths;
  int repeats = 1;
  c.run(threads);
  for (;; repeats *= 2) {
    const double begin = now();
    for (int i = 0; i < repeats; ++i) c.run(threads);
    if (now() - begin > 3e-4) break;
  }
  const auto bandwidth = [&] { return cpu::probe_stream(c.pattern, reference, c.working_set / threads, threads, 0, 1, kWidth * dtype_bytes(c.type)).value; };
  double before = bandwidth();
  for (int round = 0; round < kRounds; ++round) {
    c.run(threads);  // operands where they belong again, after the reference's
    const double begin = now();
    for (int i = 0; i < repeats; ++i) c.run(threads);
    const double seconds = (now() - begin) / repeats;
    const double after = bandwidth();
    const double floor = std::max(static_cast<double>(c.bytes) / (0.5 * (before + after)), static_cast<double>(c.exps) * exp_cost / threads);
    times.push_back(seconds);
    bandwidths.push_back(0.5 * (before + after));
    fractions.push_back(floor / seconds);
    before = after;
  }
  std::vector<double> sorted = fractions;
  std::sort(sorted.begin(), sorted.end());
  const double t = median(times);
  std::printf("%-26s %-5s %d %10.1f %9.2f %9.2f %8.3f   %.2f (%.2f..%.2f)%s\n", c.name.c_str(), std::string(dtype_name(c.type)).c_str(), threads, t * 1e6,
              static_cast<double>(c.bytes) / t * 1e-9, median(bandwidths) * 1e-9,
              c.exps ? t * 1e9 * threads / static_cast<double>(c.exps) : 0.0, median(fractions), sorted[1], sorted[sorted.size() - 2],
              c.exps && static_cast<double>(c.exps) * exp_cost / threads > static_cast<double>(c.bytes) / median(bandwidths) ? " exp-bound" : "");
}

void selection() {
  std::vector<float> scores(kTokens * 16);
  std::uint32_t state = 7;
  for (float& s : scores) {
    s = 0;
    for (int i = 0; i < 6; ++i) s += static_cast<float>(static_cast<std::int32_t>(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
  }
  std::vector<std::pair<float, std::int32_t>> pairs(kTokens);
  std::vector<std::int32_t> out(kTokens);
  std::vector<char> work(static_cast<std::size_t>(cpu::topk_workspace_bytes(kTokens, 1)));
  std::vector<std::uint8_t> mask(kTokens);
  std::vector<float> grad(kTokens);
  std::vector<double> nth, threshold, bce;
  const auto isas = cpu::supported_vector_isas();
  std::vector<std::vector<double>> ours(isas.size());
  for (int round = 0; round < 41; ++round) {
    const auto timed = [&](std::vector<double>& samples, const std::function<void(const float*)>& f) {
      const double begin = now();
      for (int i = 0; i < 16; ++i) f(scores.data() + i * kTokens);
      samples.push_back((now() - begin) / 16 * 1e6);
    };
    timed(nth, [&](const float* s) {
      for (std::int64_t i = 0; i < kTokens; ++i) pairs[static_cast<std::size_t>(i)] = {-s[i], static_cast<std::int32_t>(i)};
      std::nth_element(pairs.begin(), pairs.begin() + kSlots, pairs.end());
      for (std::int64_t i = 0; i < kSlots; ++i) out[static_cast<std::size_t>(i)] = pairs[static_cast<std::size_t>(i)].second;
      std::sort(out.begin(), out.begin() + kSlots);
    });
    for (std::size_t i = 0; i < isas.size(); ++i) {
      cpu::force_vector_isa(isas[i]);
      timed(ours[i], [&](const float* s) { cpu::topk(s, kTokens, kSlots, out.data(), work.data()); });
    }
    timed(threshold, [&](const float* s) { cpu::select_above(s, kTokens, 0.f, out.data()); });
    timed(bce, [&](const float* s) { cpu::bce_with_logits(s, mask.data(), kTokens, 1.0, grad.data(), false); });
  }
  std::printf("\ntop-k 2048 -> 256, us per call, 16 inputs in turn: nth_element + sort %.2f", median(nth));
  for (std::size_t i = 0; i < isas.size(); ++i) std::printf(", ours %s %.2f", std::string(cpu::vector_isa_name(isas[i])).c_str(), median(ours[i]));
  std::printf("\nthreshold 2048: %.2f us; BCE with gradient 2048: %.2f us\n", median(threshold), median(bce));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> threads;
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.find_first_not_of("0123456789") == std::string::npos) {
      threads.push_back(std::stoi(arg));
    } else {
      filter = arg;
    }
  }
  if (threads.empty()) threads = {1, 2};
  Arena arena(std::int64_t{400} << 20);
  cpu::Buffer reference(std::int64_t{512} << 20, 2);
  const double exp_cost = cpu::probe_exp().value;
  std::printf("instruction set %s; exp %.3f ns/element, parallel region %.2f us, clock %.0f ns\n", std::string(cpu::vector_isa_name(cpu::active_vector_isa())).c_str(),
              exp_cost * 1e9, cpu::probe_region(threads.back()).value * 1e6, cpu::probe_clock_read().value * 1e9);
  std::printf("%-26s %-5s %s %10s %9s %9s %8s   %s\n", "kernel", "dtype", "T", "us", "GB/s", "probed", "ns/exp", "fraction of ceiling (second lowest..second highest)");
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const bool big : {false, true}) {
      const auto list = big ? big_cases(arena, type) : cases(arena, type);
      for (const int t : threads) {
        for (const auto& c : list) {
          if (c.name.find(filter) != std::string::npos) run_case(c, t, reference.data(), exp_cost);
        }
      }
    }
  }
  if (filter.empty()) selection();
  return 0;
}
