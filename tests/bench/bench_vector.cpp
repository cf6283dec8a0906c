// Vector kernels against the bandwidth of the level they run from. Shapes are those of a block of width 768, 2048 tokens, 256 slots.
//   bench_vector [threads ...] [name filter]     default: 1 and 2 threads, all kernels
//
// The ruler of a kernel is a bare stream over its own operands: the same arrays, read and written as often, by as many threads in the same
// ranges (read; copy; update in place; triad = two read, one written; accumulate = two read, one of them written; gated = three read, two
// written). Its loops are those of the machine probe. Kernel and ruler take turns, each after one untimed run of its own, so that both find
// the operands where their own last run left them. A stream over other memory of the same size is no ruler: the two evict each other from
// a shared L3, and whoever repeats more often looks faster.
//
// "near us" is the time that the kernel alone would take were all operands in L1: a few rows, repeated, on one thread, scaled up (64 rows, and so L2, where rows are summed
// by groups of 64). Where it is above the stream's time the kernel is bound by its arithmetic. The ceiling is the larger of the two: streams and arithmetic overlap at best.
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
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/rope.hpp"
#include "kernels/cpu/router.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/cpu/topk.hpp"
#include "kernels/cpu/vector_isa.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace {

using namespace fathom;
constexpr std::int64_t kTokens = 2048, kWidth = 768, kHidden = 2048, kSlots = 256, kVocabulary = 50304;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

enum class Stream { kRead, kCopy, kUpdate, kTriad, kAccumulate, kGated };

// The operands of a ruler, as many as its stream names.
struct Ruler {
  Stream stream;
  std::int64_t bytes;  // of one operand
  void* a;
  void* b = nullptr;
  void* c = nullptr;
  void* d = nullptr;
  void* e = nullptr;

  // Bytes moved: every read and every write counts, allocation of written lines does not.
  std::int64_t moved() const {
    switch (stream) {
      case Stream::kRead: return bytes;
      case Stream::kCopy:
      case Stream::kUpdate: return 2 * bytes;
      case Stream::kTriad:
      case Stream::kAccumulate: return 3 * bytes;
      case Stream::kGated: return 5 * bytes;
    }
    return 0;
  }

  void run(int threads) const {
    const auto& k = cpu::vector_kernels();
    cpu::over_ranges(bytes / 4, threads, moved() / (bytes / 4), 1024, [&](std::int64_t begin, std::int64_t end) {
      const auto at = [&](void* p) { return static_cast<float*>(p) + begin; };
      const std::int64_t n = end - begin;
      switch (stream) {
        case Stream::kRead: sink = k.probe_read(at(a), n); break;
        case Stream::kCopy: k.probe_copy(at(a), at(b), n); break;
        case Stream::kUpdate: k.probe_update(at(a), n); break;
        case Stream::kTriad: k.probe_triad(at(a), at(b), at(c), n); break;
        case Stream::kAccumulate: k.probe_triad(at(a), at(b), at(a), n); break;
        case Stream::kGated:
          // In pieces, as a kernel goes through its rows.
          for (std::int64_t i = 0; i < n; i += 1024) {
            const std::int64_t m = std::min<std::int64_t>(1024, n - i);
            k.probe_triad(at(a) + i, at(b) + i, at(d) + i, m);
            k.probe_copy(at(c) + i, at(e) + i, m);
          }
          break;
      }
    });
  }

  static inline volatile float sink;  // keeps reads alive
};

struct Case {
  std::string name;
  DType type;
  std::int64_t rows;  // of the whole call
  std::int64_t few;   // rows of the near run; 0: none
  Ruler ruler;
  std::function<void(std::int64_t rows, int threads)> run;
};

// Operands live in one arena on huge pages; every case carves its own from the start.
class Arena {
 public:
  explicit Arena(std::int64_t bytes) : memory_(bytes, 2) {}
  void reset() {
    used_ = 0;
    filled_.clear();
  }
  template <class T>
  T* take(std::int64_t count) {
    T* p = memory_.as<T>(used_);
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 4095) / 4096 * 4096;
    if (used_ > memory_.bytes()) throw std::runtime_error("bench arena too small");
    return p;
  }
  void* values(DType type, std::int64_t count) {
    void* p = take<char>(count * dtype_bytes(type));
    filled_.push_back({p, type, count});
    return p;
  }
  // Values of both signs, -4 .. 4, in everything that values() gave out: the rulers leave other ones.
  void refill() const {
    for (const auto& [p, type, count] : filled_) {
      std::uint32_t state = 12345;
      for (std::int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        const float v = static_cast<float>(static_cast<std::int32_t>(state) >> 8) * 0x1p-21f;
        if (type == DType::kF32) static_cast<float*>(p)[i] = v;
        if (type == DType::kBF16) static_cast<bf16*>(p)[i] = bf16(v);
      }
    }
  }

 private:
  cpu::Buffer memory_;
  std::int64_t used_ = 0;
  struct Filled {
    void* data;
    DType type;
    std::int64_t count;
  };
  std::vector<Filled> filled_;
};

std::vector<Case> cases(Arena& a, DType t) {
  std::vector<Case> list;
  const std::int64_t e = dtype_bytes(t), n = kTokens * kWidth, h = kTokens * kHidden;
  const auto add_case = [&](std::string name, std::int64_t rows, std::int64_t few, const Ruler& ruler, std::function<void(std::int64_t, int)> f) {
    list.push_back({std::move(name), t, rows, few, ruler, std::move(f)});
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

  const Ruler copy{Stream::kCopy, n * e, x, y}, update{Stream::kUpdate, n * e, x}, triad{Stream::kTriad, n * e, x, y, z}, read{Stream::kRead, n * e, x};
  const auto norm = [=](std::int64_t rows) { return cpu::Norm{t, rows, kWidth, 1e-5f}; };
  add_case("rmsnorm", kTokens, 4, copy, [=](std::int64_t r, int th) { cpu::rmsnorm(norm(r), x, row, y, f32, th); });
  add_case("layernorm", kTokens, 4, copy, [=](std::int64_t r, int th) { cpu::layernorm(norm(r), x, row, row, y, g32, f32, th); });
  add_case("rmsnorm backward", kTokens, 64, triad, [=](std::int64_t r, int th) {
    cpu::rmsnorm_backward(norm(r), x, row, f32, y, {z, false, sums, nullptr, DType::kF32, false}, work, th);
  });
  add_case("layernorm backward", kTokens, 64, triad, [=](std::int64_t r, int th) {
    cpu::layernorm_backward(norm(r), x, row, g32, f32, y, {z, false, sums, sums, DType::kF32, false}, work, th);
  });
  add_case("rope q+k", kTokens, 4, {Stream::kUpdate, 2 * n * e, x}, [=](std::int64_t r, int th) {
    cpu::rope({t, r, 2 * kWidth, 24, 64, 64, kTokens}, x, positions, table, false, th);
  });
  using Kind = cpu::ActivationKind;
  const auto rows = [](void* p) { return cpu::ConstRows{p, kHidden}; };
  const auto out = [](void* p) { return cpu::MutableRows{p, kHidden}; };
  for (const auto& [name, kind] : {std::tuple{"gelu tanh", Kind::kGeluTanh}, {"gelu erf", Kind::kGeluErf}, {"relu squared", Kind::kReluSquared}}) {
    add_case(name, kTokens, 2, {Stream::kCopy, h * e, x, y}, [=](std::int64_t r, int th) { cpu::activation({kind, t, r, kHidden}, rows(x), out(y), th); });
  }
  add_case("swiglu", kTokens, 2, {Stream::kTriad, h * e, x, y, z}, [=](std::int64_t r, int th) {
    cpu::gated_activation({Kind::kSilu, t, r, kHidden}, rows(x), rows(y), out(z), th);
  });
  for (const auto& [name, kind] : {std::tuple{"gelu tanh backward", Kind::kGeluTanh}, {"gelu erf backward", Kind::kGeluErf}}) {
    add_case(name, kTokens, 2, {Stream::kTriad, h * e, x, y, z}, [=](std::int64_t r, int th) {
      cpu::activation_backward({kind, t, r, kHidden}, rows(x), rows(y), out(z), th);
    });
  }
  add_case("swiglu backward", kTokens, 2, {Stream::kGated, h * e, x, y, z, u, v}, [=](std::int64_t r, int th) {
    cpu::gated_activation_backward({Kind::kSilu, t, r, kHidden}, rows(x), rows(y), rows(z), out(u), out(v), th);
  });
  add_case("residual add", kTokens, 2, triad, [=](std::int64_t r, int th) { cpu::add(t, x, y, z, r * kWidth, th); });
  add_case("residual add in place", kTokens, 4, {Stream::kAccumulate, n * e, x, y}, [=](std::int64_t r, int th) { cpu::add(t, x, y, x, r * kWidth, th); });
  add_case("bias add", kTokens, 4, copy, [=](std::int64_t r, int th) { cpu::add_bias(t, x, row, y, r, kWidth, th); });
  add_case("scaled copy", kTokens, 4, copy, [=](std::int64_t r, int th) { cpu::scaled_copy(t, x, 0.5f, y, r * kWidth, th); });
  add_case("sum of squares", kTokens, 4, {Stream::kRead, h * e, x}, [=](std::int64_t r, int th) { (void)cpu::sum_of_squares(t, x, r * kHidden, th); });
  add_case("column sums", kTokens, 64, read, [=](std::int64_t r, int th) {
    cpu::column_sums(t, x, nullptr, r, kWidth, DType::kF32, sums, false, work, th);
  });
  if (t == DType::kF32) {
    // Half as many bytes on the one side as on the other: the ruler copies three quarters of the larger.
    const Ruler mixed{Stream::kCopy, 3 * n, x, y};
    add_case("f32 to bf16", kTokens, 4, mixed, [=](std::int64_t r, int th) { cpu::f32_to_bf16(static_cast<float*>(x), static_cast<bf16*>(y), r * kWidth, th); });
    add_case("bf16 to f32", kTokens, 4, mixed, [=](std::int64_t r, int th) { cpu::bf16_to_f32(static_cast<bf16*>(x), static_cast<float*>(y), r * kWidth, th); });
  }
  add_case("router scores", kTokens, 8, read, [=](std::int64_t r, int th) { cpu::router_scores(t, x, row, 0.f, g32, r, kWidth, th); });
  add_case("router dX", kTokens, 8, update, [=](std::int64_t r, int th) { cpu::router_input_gradient(t, f32, row, nullptr, x, r, kWidth, th); });
  // The rulers of moved rows are streams over dense operands of that size, rows in order.
  const auto moved = [=](std::int64_t r) { return cpu::Rows{t, r, kWidth}; };
  const std::int64_t m = kSlots * kWidth;
  add_case("gather 256 of 2048", kSlots, 4, {Stream::kCopy, m * e, x, y}, [=](std::int64_t r, int th) { cpu::gather_rows(moved(r), x, picked, y, th); });
  add_case("scatter-add 256", kSlots, 4, {Stream::kAccumulate, m * e, x, y}, [=](std::int64_t r, int th) {
    cpu::scatter_add_rows(moved(r), y, f32, picked, x, th);
  });
  add_case("scatter backward 256", kSlots, 2, {Stream::kTriad, m * e, x, y, z}, [=](std::int64_t r, int th) {
    cpu::scatter_add_rows_backward(moved(r), x, y, f32, f32, picked, z, g32, th);
  });
  add_case("gather 2048", kTokens, 4, copy, [=](std::int64_t r, int th) { cpu::gather_rows(moved(r), x, ids, y, th); });
  add_case("embedding", kTokens, 4, copy, [=](std::int64_t r, int th) { cpu::embedding({t, r, kWidth, kTokens}, x, ids, nullptr, nullptr, y, th); });
  add_case("embedding + position", kTokens, 2, triad, [=](std::int64_t r, int th) { cpu::embedding({t, r, kWidth, kTokens}, x, ids, y, positions, z, th); });
  add_case("embedding backward", kTokens, 0, {Stream::kAccumulate, n * e, y, x}, [=](std::int64_t r, int th) {
    cpu::embedding_backward({t, r, kWidth, kTokens}, x, ids, y, order, th);
  });
  return list;
}

// AdamW from DRAM and cross-entropy on vocabulary-wide rows, which need the whole arena.
std::vector<Case> big_cases(Arena& a, DType t) {
  std::vector<Case> list;
  a.reset();
  const std::int64_t count = 8 << 20, piece = 1024;
  auto* master = static_cast<float*>(a.values(DType::kF32, 3 * count));
  float* first = master + count;
  float* second = first + count;
  void* grad = a.values(t, count);
  bf16* copy = t == DType::kBF16 ? a.take<bf16>(count) : nullptr;
  // 28 bytes per parameter: three f32 arrays updated in place, and the gradient and the copy, which the ruler has as a seventh of each.
  list.push_back({"adamw 8M", t, count / piece, 2, {Stream::kUpdate, 14 * count, master}, [=](std::int64_t r, int th) {
                    cpu::adamw({}, master, first, second, t, grad, copy, r * piece, th);
                  }});
  const std::int64_t rows = 64;
  const std::int64_t logits = rows * kVocabulary, e = dtype_bytes(t);
  void* x = a.values(t, logits);
  auto* labels = a.take<std::int32_t>(rows);
  auto* losses = a.take<float>(rows);
  for (std::int64_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(i * 15);
  // A "row" of these is one of 48 pieces of a row of logits: few enough of them fit L1.
  constexpr std::int64_t kPieces = 48;
  static_assert(kVocabulary % kPieces == 0);
  const auto shape = [=](std::int64_t r) {
    return r == rows * kPieces ? cpu::CrossEntropy{t, rows, kVocabulary, kVocabulary} : cpu::CrossEntropy{t, 1, r * (kVocabulary / kPieces), kVocabulary};
  };
  list.push_back({"cross-entropy", t, rows * kPieces, 4, {Stream::kRead, logits * e, x}, [=](std::int64_t r, int th) {
                    cpu::cross_entropy(shape(r), x, labels, losses, th);
                  }});
  list.push_back({"cross-entropy + gradient", t, rows * kPieces, 4, {Stream::kUpdate, logits * e, x}, [=](std::int64_t r, int th) {
                    cpu::cross_entropy_and_gradient(shape(r), x, labels, 1e-2f, losses, th);
                  }});
  return list;
}

void run_case(const Case& c, int threads) {
  constexpr int kRounds = 15;
  // Seconds of one call, at least 0.3 ms measured, after one run that is not.
  const auto timed = [](int& repeats, const std::function<void()>& f) {
    f();
    for (;; repeats *= 2) {
      const double begin = now();
      for (int i = 0; i < repeats; ++i) f();
      const double seconds = now() - begin;
      if (seconds > 3e-4 || repeats > 1 << 20) return seconds / repeats;
    }
  };
  double near = 0;
  if (c.few > 0) {
    std::vector<double> samples;
    int repeats = 1;
    for (int round = 0; round < 5; ++round) samples.push_back(timed(repeats, [&] { c.run(c.few, 1); }));
    near = median(samples) * static_cast<double>(c.rows) / static_cast<double>(c.few) / threads;
  }
  std::vector<double> times, streams, fractions;
  int kernel_repeats = 1, stream_repeats = 1;
  for (int round = 0; round < kRounds; ++round) {
    streams.push_back(timed(stream_repeats, [&] { c.ruler.run(threads); }));
    times.push_back(timed(kernel_repeats, [&] { c.run(c.rows, threads); }));
    fractions.push_back(std::max(streams.back(), near) / times.back());
  }
  std::vector<double> sorted = fractions;
  std::sort(sorted.begin(), sorted.end());
  const double t = median(times), s = median(streams);
  std::printf("%-26s %-5s %d %9.1f %9.2f %9.2f %9.1f %9.1f   %.2f (%.2f..%.2f)%s\n", c.name.c_str(), std::string(dtype_name(c.type)).c_str(), threads, t * 1e6,
              static_cast<double>(c.ruler.moved()) / t * 1e-9, static_cast<double>(c.ruler.moved()) / s * 1e-9, s * 1e6, near * 1e6, median(fractions),
              sorted[2], sorted[sorted.size() - 3], near > s ? " arithmetic" : "");
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
  std::printf("instruction set %s; exp %.3f ns/element, parallel region %.2f us, clock %.0f ns\n", std::string(cpu::vector_isa_name(cpu::active_vector_isa())).c_str(),
              cpu::probe_exp().value * 1e9, cpu::probe_region(threads.back()).value * 1e6, cpu::probe_clock_read().value * 1e9);
  std::printf("%-26s %-5s %s %9s %9s %9s %9s %9s   %s\n", "kernel", "dtype", "T", "us", "GB/s", "stream's", "stream us", "near us",
              "fraction of ceiling (third lowest..third highest of 15)");
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const bool big : {false, true}) {
      const auto list = big ? big_cases(arena, type) : cases(arena, type);
      for (const int t : threads) {
        for (const auto& c : list) {
          if (c.name.find(filter) == std::string::npos) continue;
          arena.refill();
          run_case(c, t);
        }
      }
    }
  }
  if (filter.empty()) selection();
  return 0;
}
