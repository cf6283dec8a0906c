// Shared by the tests of CUDA kernels on fibers: thread orders, deterministic values, comparison with f64 references.
#pragma once

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/simt.hpp"
#include "kernels/reference/matrix.hpp"
#include "tests/simt/memory.hpp"

namespace fathom::simt {

struct OrderCase {
  Order order;
  std::uint64_t seed;
  const char* name;
};
inline constexpr OrderCase kOrders[] = {{Order::kForward, 1, "forward"}, {Order::kReverse, 1, "reverse"}, {Order::kShuffled, 1, "seed 1"}, {Order::kShuffled, 2, "seed 2"}};

// Runs `make` (which launches kernels and returns their outputs) in every thread order; the results must agree in every bit.
template <class Make>
auto in_all_orders(const Make& make) {
  using Result = decltype(make());
  Result first{};
  bool have = false;
  for (const OrderCase& order : kOrders) {
    options() = {order.order, order.seed};
    Result result = make();
    options() = {};
    INFO("thread order: " << order.name);
    if (!have)
      first = std::move(result), have = true;
    else
      REQUIRE(result == first);
  }
  return first;
}

// The message of the failure that `launch` must produce; empty where there was none.
template <class Launch>
std::string failure_of(const Launch& launch, Order order = Order::kForward, std::uint64_t seed = 1) {
  options() = {order, seed};
  std::string message;
  try {
    launch();
  } catch (const Failure& e) {
    message = e.what();
  }
  options() = {};
  return message;
}

// Values in about [-1, 1), the same on every run; exact in bf16 where `coarse`.
inline double value_at(std::uint64_t seed, std::uint64_t i, bool coarse = false) {
  std::uint64_t z = (seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return coarse ? static_cast<double>(z >> 58) / 32.0 - 1.0 : static_cast<double>(z >> 40) * 0x1p-23 - 1.0;
}

template <class T>
std::vector<T> values(std::uint64_t seed, std::size_t count, double scale = 1.0) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = T(static_cast<float>(scale * value_at(seed, i)));
  return v;
}
template <class T>
std::vector<double> wide(const std::vector<T>& v) {
  std::vector<double> w;
  for (const T& x : v) w.push_back(static_cast<double>(static_cast<float>(x)));
  return w;
}
template <class T>
std::vector<float> narrow(const DeviceBuffer<T>& b) {
  std::vector<float> v;
  for (std::size_t i = 0; i < b.size(); ++i) v.push_back(static_cast<float>(b[i]));
  return v;
}

inline reference::Matrix<double> matrix(std::vector<double>& v, std::int64_t rows, std::int64_t cols) { return {v.data(), rows, cols}; }

template <class T>
constexpr DType dtype_of() {
  return sizeof(T) == 2 ? DType::kBF16 : DType::kF32;
}
// Relative to values of order 1: bf16 results are rounded once (2^-9), f32 ones are sums of hundreds of products.
template <class T>
constexpr double tolerance() {
  return sizeof(T) == 2 ? 0x1p-8 : 1e-5;
}

// |got - want| <= tolerance * max(1, |want|) everywhere.
inline void require_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance, const char* what) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance * std::max(1.0, std::fabs(want[i]));
    if (std::isnan(got[i]) != std::isnan(want[i]) || std::fabs(static_cast<double>(got[i]) - want[i]) > allowed) {
      INFO(what << " at " << i << ": got " << got[i] << ", want " << want[i]);
      REQUIRE(false);
    }
  }
  CHECK(true);
}

}  // namespace fathom::simt
