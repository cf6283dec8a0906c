// Products of experts in one launch, on fibers, against the reference in f64: all three roles, empty and crowded experts, tails in every direction.
#include "kernels/cuda/grouped.cuh"
#include "kernels/reference/gemm.hpp"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;
using Ints = std::vector<std::int32_t>;

struct Case {
  Ints rows;  // of each expert
  std::int64_t in, out;
  bool bias = false, accumulate = false;
  std::int64_t spare = 0;  // rows of the buffers behind the last expert's
};

enum class Which { kForward, kInput, kWeights };

// One role of a case; `result` is the type of what is written. Sentinels stand in the spare rows.
template <class T, class Result>
void check_role(const Case& s, Which which) {
  const auto experts = static_cast<std::int64_t>(s.rows.size());
  Ints offsets{0};
  for (const std::int32_t n : s.rows) offsets.push_back(offsets.back() + n);
  const auto rows = std::int64_t{offsets.back()} + s.spare;
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const auto x = values<T>(1, size(rows, s.in)), w = values<T>(2, size(experts * s.in, s.out)), dy = values<T>(3, size(rows, s.out)), bias = values<T>(4, size(experts, s.out));
  const bool weights = which == Which::kWeights;
  const std::size_t count = which == Which::kForward ? size(rows, s.out) : which == Which::kInput ? size(rows, s.in) : size(experts * s.in, s.out);
  const auto before = values<Result>(5, count);
  const auto bias_before = values<Result>(6, size(experts, s.out));

  // The reference in f64 on the same rounded operands.
  auto rx = wide(x), rw = wide(w), rdy = wide(dy), rb = wide(bias), want = wide(before), want_bias = wide(bias_before);
  reference::GemmOperands<double> r;
  r.rows = offsets.back(), r.in = s.in, r.out = s.out, r.experts = experts, r.offsets = offsets.data(), r.accumulate = s.accumulate;
  r.x = matrix(which == Which::kInput ? want : rx, rows, s.in);
  r.w = matrix(weights ? want : rw, experts * s.in, s.out);
  r.y = matrix(which == Which::kForward ? want : rdy, rows, s.out);
  if (s.bias) r.bias = matrix(weights ? want_bias : rb, experts, s.out);
  switch (which) {
    case Which::kForward: reference::gemm_forward(r); break;
    case Which::kInput: reference::gemm_input_gradient(r); break;
    case Which::kWeights: reference::gemm_weight_gradient(r); break;
  }

  cuda::GroupedArgs a;
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> bx(x), bw(w), bdy(dy), bb(bias);
    DeviceBuffer<Result> c(before), db(bias_before);
    DeviceBuffer<std::int32_t> boffsets(offsets);
    a = {};
    a.type = dtype_of<T>(), a.result = dtype_of<Result>(), a.accumulate = s.accumulate, a.experts = static_cast<int>(experts), a.rows = rows, a.offsets = boffsets.data(), a.c = c.data();
    switch (which) {
      case Which::kForward: a.n = s.out, a.k = s.in, a.a = bx.data(), a.b = bw.data(), a.bias = s.bias ? bb.data() : nullptr; break;
      case Which::kInput: a.n = s.in, a.k = s.out, a.a = bdy.data(), a.b = bw.data(), a.transpose_b = true; break;
      case Which::kWeights: a.weights = true, a.m = s.in, a.n = s.out, a.a = bx.data(), a.b = bdy.data(); break;
    }
    cuda::grouped_product(a, nullptr);
    if (weights && s.bias) {
      cuda::GroupedBiasArgs b;
      b.type = a.type, b.grad_type = a.result, b.accumulate = s.accumulate, b.experts = a.experts, b.n = s.out, b.offsets = boffsets.data(), b.dy = bdy.data(), b.db = db.data();
      cuda::grouped_bias(b, nullptr);
    }
    auto both = narrow(c);
    for (const float v : narrow(db)) both.push_back(v);
    return both;
  });
  const double allowed = std::max(tolerance<Result>(), sizeof(T) == 2 ? 1e-4 : 2e-5);
  require_close({got.begin(), got.begin() + static_cast<std::ptrdiff_t>(count)}, want, allowed, "product");
  if (weights && s.bias) require_close({got.begin() + static_cast<std::ptrdiff_t>(count), got.end()}, want_bias, allowed, "bias gradient");
  CHECK(cuda::grouped_flops(a, offsets.data()) >= 2.0 * static_cast<double>(offsets.back() * s.in * s.out));
}

template <class T, class Result>
void check(const Case& s) {
  for (const Which which : {Which::kForward, Which::kInput, Which::kWeights}) check_role<T, Result>(s, which);
}

TEST_CASE("products of experts equal the reference: tensor cores") {
  check<bf16, bf16>({{3, 0, 40, 1, 0}, 40, 24, true, false, 3});          // few rows: tiles of 32, empty experts, tails in k and n
  check<bf16, float>({{0, 7, 33}, 72, 136, true, true});                  // f32 results, accumulating, a column tile and 8 more
  check<bf16, bf16>({{130, 1, 0, 128}, 16, 8, false, false, 1});          // tiles of 128: one and two rows more, exactly one
  check<bf16, bf16>({{129, 0}, 104, 144, true, true});                    // several stages of terms
  check<bf16, float>({{0, 0}, 16, 16, true, false, 2});                   // nobody has rows: gradients become zero
  check_role<bf16, bf16>({{40, 3}, 136, 24}, Which::kWeights);            // gradients of more rows than a tile has
}

TEST_CASE("products of experts equal the reference: plain cores") {
  check<float, float>({{3, 0, 66, 1}, 21, 19, true, false, 2});
  check<float, float>({{0, 5}, 65, 70, true, true});
  check<bf16, bf16>({{2, 9, 0}, 13, 17, true, false, 1});                 // rows that are no whole packs
  check<bf16, float>({{65}, 7, 9, false, true});
}

TEST_CASE("more than a warp of experts, and a launch with no room for rows") {
  Case s{Ints(70, 0), 8, 8, false, false, 0};
  for (std::size_t e = 0; e < s.rows.size(); ++e) s.rows[e] = e % 3 == 0 ? static_cast<std::int32_t>(e % 5) : 0;
  s.rows[31] = 2, s.rows[32] = 1, s.rows[69] = 3;
  check_role<bf16, bf16>(s, Which::kForward);
  check_role<float, float>(s, Which::kInput);
  cuda::GroupedArgs none;
  none.experts = 3, none.n = 8, none.k = 8;
  CHECK(cuda::grouped_launch(none).grid_x == 0);
  // Tiles of 32 rows up to 32 rows per expert.
  none.type = DType::kBF16, none.rows = 96;
  CHECK(cuda::grouped_tile_rows(none) == 32);
  none.rows = 97;
  CHECK(cuda::grouped_tile_rows(none) == 128);
}

TEST_CASE("grouped matrix loads meet no bank conflicts") {
  statistics() = {};
  check_role<bf16, bf16>({{40, 5}, 64, 128}, Which::kForward);
  check_role<bf16, bf16>({{40, 5}, 64, 128}, Which::kInput);
  check_role<bf16, bf16>({{40, 5}, 128, 128}, Which::kWeights);
  CHECK(statistics().matrix_loads > 0);
  CHECK(statistics().matrix_conflicts == 0);
}

}  // namespace
}  // namespace fathom
