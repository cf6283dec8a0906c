// Decode attention and the KV cache against a double reference, on every instruction set.
#if FATHOM_CPU
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/decode_attention.hpp"
#include "kernels/cpu/decode_attention_detail.hpp"
#include "tests/kernels/attention_reference.hpp"

namespace fathom::cpu::testing {
namespace {

struct Setting {
  int heads, kv_heads, head_dim;
  std::vector<std::int32_t> counts;
  std::int64_t capacity;
  std::int64_t window;
  bool gaps;
};

// Row r lives in slot rows - r (slot 0 stays unused); the cache is NaN except where kv_append wrote.
template <class T>
struct Problem {
  Setting s;
  std::int64_t rows, q_width, kv_width;
  std::vector<T> k, v, q, out;
  std::vector<std::int32_t> slots, positions;
  DecodeAttention call;

  Problem(const Setting& setting, DType dtype) : s(setting), rows(static_cast<std::int64_t>(setting.counts.size())) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    q_width = std::int64_t{s.heads} * s.head_dim;
    kv_width = std::int64_t{s.kv_heads} * s.head_dim;
    const auto cache_size = static_cast<std::size_t>((rows + 1) * s.capacity * kv_width);
    k.assign(cache_size, T(std::nanf("")));
    v.assign(cache_size, T(std::nanf("")));
    q.resize(static_cast<std::size_t>(rows * (q_width + 3)));
    out.assign(static_cast<std::size_t>(rows * (q_width + 3)), T(777.0f));
    for (T& x : q) x = T(normal(random));
    positions.resize(static_cast<std::size_t>((rows + 1) * s.capacity));
    for (std::int64_t r = 0; r < rows; ++r) slots.push_back(static_cast<std::int32_t>(rows - r));
    for (std::int64_t slot = 0; slot <= rows; ++slot) {
      std::int32_t position = 2;
      for (std::int64_t a = 0; a < s.capacity; ++a) {
        positions[static_cast<std::size_t>(slot * s.capacity + a)] = position;
        position += s.gaps ? 1 + static_cast<std::int32_t>(random() % 5) : 1;
      }
    }
    call.cache = KvCache{dtype, s.kv_heads, s.head_dim, s.capacity, k.data(), v.data()};
    call.heads = s.heads;
    call.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    call.rows = rows;
    call.slots = slots.data();
    call.counts = s.counts.data();
    call.window = s.window;
    call.positions = s.gaps ? positions.data() : nullptr;
    call.q = q.data();
    call.out = out.data();
    call.q_stride = call.out_stride = q_width + 3;
    std::vector<T> new_k(static_cast<std::size_t>(rows * (kv_width + 1))), new_v(new_k.size());
    std::int32_t longest = 0;
    for (const auto n : s.counts) longest = std::max(longest, n);
    for (std::int32_t a = 0; a < longest; ++a) {  // token by token, only the rows that are that long
      std::vector<std::int32_t> taking, at;
      for (std::int64_t r = 0; r < rows; ++r) {
        if (s.counts[static_cast<std::size_t>(r)] > a) taking.push_back(slots[static_cast<std::size_t>(r)]), at.push_back(a);
      }
      for (T& x : new_k) x = T(normal(random));
      for (T& x : new_v) x = T(normal(random));
      kv_append(call.cache, new_k.data(), kv_width + 1, new_v.data(), kv_width + 1, static_cast<std::int64_t>(taking.size()), taking.data(),
                at.data());
    }
  }

  std::size_t cached(std::int64_t row, int head, std::int64_t key) const {
    return static_cast<std::size_t>(((slots[static_cast<std::size_t>(row)] * s.kv_heads + head / (s.heads / s.kv_heads)) * s.capacity + key) *
                                    s.head_dim);
  }

  double error() const {
    double difference = 0, norm = 1e-30;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (int h = 0; h < s.heads; ++h) {
        const std::int32_t count = s.counts[static_cast<std::size_t>(r)];
        std::vector<double> p, o(static_cast<std::size_t>(s.head_dim));
        const std::int32_t* position = positions.data() + slots[static_cast<std::size_t>(r)] * s.capacity;
        const auto query = static_cast<std::size_t>(r * call.q_stride + h * s.head_dim);
        double max = -1e300, sum = 0;
        for (std::int32_t a = 0; a < count; ++a) {
          double score = 0;
          for (std::size_t d = 0; d < o.size(); ++d) {
            score += static_cast<double>(float{q[query + d]}) * static_cast<double>(float{k[cached(r, h, a) + d]});
          }
          const bool visible = s.window == 0 || position[count - 1] - position[a] < s.window;
          p.push_back(visible ? score * static_cast<double>(call.scale) : -1e300);
          max = std::max(max, p.back());
        }
        for (double& x : p) sum += x = std::exp(x - max);
        for (std::int32_t a = 0; a < count; ++a) {
          for (std::size_t d = 0; d < o.size(); ++d) {
            o[d] += p[static_cast<std::size_t>(a)] / sum * static_cast<double>(float{v[cached(r, h, a) + d]});
          }
        }
        for (std::size_t d = 0; d < o.size(); ++d) {
          const double got = static_cast<double>(float{out[query + d]});
          difference += (got - o[d]) * (got - o[d]);
          norm += o[d] * o[d];
        }
      }
    }
    return std::sqrt(difference / norm);
  }

  void run(int threads, Isa level) {
    const auto bytes = static_cast<std::size_t>(decode_attention_scratch_bytes(call, threads));
    std::vector<unsigned char> scratch(bytes + 64, 0xff);
    decode_attention(call, scratch.data(), threads, level);
    for (std::size_t i = bytes; i < scratch.size(); ++i) REQUIRE(scratch[i] == 0xff);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = q_width; i < call.out_stride; ++i) {
        REQUIRE(float{out[static_cast<std::size_t>(r * call.out_stride + i)]} == float{T(777.0f)});
      }
    }
  }
};

std::vector<Setting> settings() {
  return {
      {2, 2, 64, {1}, 1, 0, false},
      {2, 2, 64, {5, 0, 17, 130}, 130, 0, false},
      {8, 2, 64, {700, 33}, 1500, 0, false},
      {4, 1, 128, {1100}, 1100, 0, false},
      {6, 2, 80, {64, 65, 63}, 70, 0, false},
      {3, 3, 8, {40, 12}, 50, 0, false},
      {2, 1, 96, {513, 512}, 600, 0, false},
      {2, 1, 20, {30}, 30, 0, false},
      {4, 2, 64, {900, 40}, 1000, 100, false},
      {4, 2, 32, {900, 40, 3}, 1000, 600, true},
      {1, 1, 16, {50}, 60, 1, true},
      {11, 1, 64, {530, 70}, 530, 0, false},
      {12, 2, 256, {300, 65, 1}, 600, 0, false},
      {20, 2, 128, {150}, 150, 0, false},
      {9, 1, 96, {90, 81}, 90, 0, false},
      {5, 1, 80, {33}, 40, 20, false},
  };
}

template <class T>
void check_all(DType dtype, double tolerance) {
  for (const Setting& s : settings()) {
    Problem<T> p(s, dtype);
    for (const Isa level : executable_levels()) {
      INFO(dtype_name(dtype) << " heads " << s.heads << "/" << s.kv_heads << " d " << s.head_dim << " count " << s.counts[0] << " window "
                             << s.window << " " << isa_name(level));
      p.out.assign(p.out.size(), T(777.0f));
      p.run(1, level);
      CHECK(p.error() < tolerance);
      const std::vector<T> one = p.out;
      for (const int threads : {2, 3}) {
        p.run(threads, level);
        CHECK(std::memcmp(one.data(), p.out.data(), one.size() * sizeof(T)) == 0);
      }
    }
  }
}

TEST_CASE("decode attention equals the double reference in bf16") { check_all<bf16>(DType::kBF16, 3e-3); }
TEST_CASE("decode attention equals the double reference in f32") { check_all<float>(DType::kF32, 2e-6); }

#if defined(__x86_64__)
// Where vdpbf16ps is fast the dispatch takes it, and the body for other AVX-512 machines is reached only by its name.
TEST_CASE("decode attention that widens bf16 equals the double reference too") {
  if (cpu_info().isa < Isa::kAvx512) return;
  for (const Setting& s : settings()) {
    Problem<bf16> p(s, DType::kBF16);
    INFO("heads " << s.heads << "/" << s.kv_heads << " d " << s.head_dim << " count " << s.counts[0] << " window " << s.window);
    std::vector<unsigned char> scratch(static_cast<std::size_t>(decode_attention_scratch_bytes(p.call, 2)) + 64);
    auto* const aligned = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    detail::decode_avx512(p.call, aligned, 2);
    CHECK(p.error() < 3e-3);
  }
}
#endif

TEST_CASE("kv_append and decode refuse to leave the cache") {
  Problem<float> p({1, 1, 8, {4}, 4, 0, false}, DType::kF32);
  const std::int32_t slot = 0, beyond = 4;
  CHECK_THROWS(kv_append(p.call.cache, p.q.data(), 8, p.q.data(), 8, 1, &slot, &beyond));
  const std::int32_t too_many = 5;
  p.call.counts = &too_many;
  std::vector<char> scratch(static_cast<std::size_t>(decode_attention_scratch_bytes(p.call, 1)));
  CHECK_THROWS(decode_attention(p.call, scratch.data(), 1));
}

}  // namespace
}  // namespace fathom::cpu::testing
#endif
