// Helpers of the vector kernels' tests: seeded values of both signs, buffers with sentinels on both sides, both storage types,
// every instruction set this machine has.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/vector_isa.hpp"
#include "lib/dtype.hpp"

namespace fathom::testing {

// SplitMix64: the same values everywhere.
class Values {
 public:
  explicit Values(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform(double low = -1, double high = 1) { return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// A buffer of f32 or bf16 elements between two guards; check() fails when a guard byte has changed.
class Buffer {
 public:
  Buffer(DType type, std::int64_t count) : type_(type), count_(count), bytes_(static_cast<std::size_t>(kGuard * 2 + count * dtype_bytes(type)), kMark) {}
  Buffer(DType type, std::int64_t count, Values& values, double low = -1, double high = 1) : Buffer(type, count) {
    for (std::int64_t i = 0; i < count; ++i) set(i, values.uniform(low, high));
  }
  void* data() { return bytes_.data() + kGuard; }
  const void* data() const { return bytes_.data() + kGuard; }
  float* f32() { return static_cast<float*>(data()); }
  std::int32_t* i32() { return static_cast<std::int32_t*>(data()); }
  std::int64_t count() const { return count_; }
  double operator[](std::int64_t i) const {
    if (type_ == DType::kBF16) return static_cast<float>(static_cast<const bf16*>(data())[i]);
    return static_cast<const float*>(data())[i];
  }
  void set(std::int64_t i, double value) {
    if (type_ == DType::kBF16) {
      static_cast<bf16*>(data())[i] = bf16(static_cast<float>(value));
    } else {
      static_cast<float*>(data())[i] = static_cast<float>(value);
    }
  }
  bool guards_intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != kMark || bytes_[bytes_.size() - 1 - i] != kMark) return false;
    }
    return true;
  }
  bool same_bits(const Buffer& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr std::int64_t kGuard = 256;
  static constexpr unsigned char kMark = 0xa5;
  DType type_;
  std::int64_t count_;
  std::vector<unsigned char> bytes_;
};

// Runs body once per supported instruction set and puts the fastest one back.
template <class Body>
void for_each_isa(const Body& body) {
  const auto all = cpu::supported_vector_isas();
  for (const auto isa : all) {
    cpu::force_vector_isa(isa);
    INFO("instruction set " << cpu::vector_isa_name(isa));
    body();
  }
  cpu::force_vector_isa(all.back());
}

template <class Body>
void for_each_type(const Body& body) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    INFO("dtype " << dtype_name(type));
    body(type);
  }
}

// Relative tolerance of one stored result: f32 sums of a few thousand terms, or the rounding to bf16.
inline double tolerance(DType type) { return type == DType::kF32 ? 2e-6 : 4.5e-3; }

// |a - b| <= tol * max(|b|, scale)
inline bool close(double a, double b, double tol, double scale) { return std::fabs(a - b) <= tol * std::max(std::fabs(b), scale); }

// Central difference of f at x[i] (doubles), for gradients of naive references.
template <class F>
double central_difference(std::vector<double>& x, std::size_t i, const F& f, double step = 1e-5) {
  const double kept = x[i];
  x[i] = kept + step;
  const double up = f();
  x[i] = kept - step;
  const double down = f();
  x[i] = kept;
  return (up - down) / (2 * step);
}

}  // namespace fathom::testing
