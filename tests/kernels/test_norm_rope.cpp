// RMSNorm, LayerNorm and RoPE against double references; gradients against central differences of those references.
#include "kernels/cpu/norm.hpp"
#include "kernels/cpu/rope.hpp"
#include "lib/error.hpp"
#include "tests/kernels/vector_testing.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

using Vec = std::vector<double>;

Vec reference_norm(bool layer, const Vec& x, const Vec& gain, const Vec& bias, std::int64_t rows, std::int64_t width, double epsilon) {
  Vec y(x.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    double mean = 0, squares = 0;
    if (layer) {
      for (std::int64_t i = 0; i < width; ++i) mean += x[static_cast<std::size_t>(r * width + i)];
      mean /= static_cast<double>(width);
    }
    for (std::int64_t i = 0; i < width; ++i) squares += std::pow(x[static_cast<std::size_t>(r * width + i)] - mean, 2);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(r * width + i);
      const auto c = static_cast<std::size_t>(i);
      y[at] = (x[at] - mean) * inverse * (gain.empty() ? 1 : gain[c]) + (bias.empty() ? 0 : bias[c]);
    }
  }
  return y;
}

Vec values_of(const Buffer& b) {
  Vec v(static_cast<std::size_t>(b.count()));
  for (std::int64_t i = 0; i < b.count(); ++i) v[static_cast<std::size_t>(i)] = b[i];
  return v;
}

}  // namespace

TEST_CASE("norms forward", "[norm]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const bool layer : {false, true}) {
        for (const std::int64_t rows : {0, 1, 3, 70}) {
          for (const std::int64_t width : {1, 5, 16, 33, 64, 257, 768}) {
            INFO("layer " << layer << " rows " << rows << " width " << width);
            Values values(static_cast<std::uint64_t>(rows * 1000 + width));
            Buffer x(type, rows * width, values, -2, 3), gain(type, width, values), bias(type, width, values), y(type, rows * width);
            Buffer mean(DType::kF32, rows), inverse(DType::kF32, rows);
            const cpu::Norm norm{type, rows, width, 1e-3f};
            if (layer) {
              cpu::layernorm(norm, x.data(), gain.data(), bias.data(), y.data(), mean.f32(), inverse.f32(), 2);
            } else {
              cpu::rmsnorm(norm, x.data(), gain.data(), y.data(), inverse.f32(), 2);
            }
            const Vec expected = reference_norm(layer, values_of(x), values_of(gain), layer ? values_of(bias) : Vec{}, rows, width, 1e-3f);
            for (std::int64_t i = 0; i < rows * width; ++i) {
              REQUIRE(close(y[i], expected[static_cast<std::size_t>(i)], tolerance(type), 1.0));
            }
            REQUIRE((y.guards_intact() && mean.guards_intact() && inverse.guards_intact()));
          }
        }
      }
    });
  });
}

TEST_CASE("norm without gain and bias, fused with a gather", "[norm]") {
  for_each_isa([] {
    Values values(4);
    const std::int64_t width = 37;
    Buffer x(DType::kF32, 10 * width, values), y(DType::kF32, 3 * width), z(DType::kF32, 3 * width), picked(DType::kF32, 3 * width);
    const std::int32_t indices[3] = {1, 4, 9};
    for (int r = 0; r < 3; ++r) {
      for (std::int64_t i = 0; i < width; ++i) picked.set(r * width + i, x[indices[r] * width + i]);
    }
    const cpu::Norm norm{DType::kF32, 3, width, 1e-5f};
    cpu::rmsnorm(norm, x.data(), nullptr, y.data(), nullptr, 1, indices);
    cpu::rmsnorm(norm, picked.data(), nullptr, z.data(), nullptr, 1);
    REQUIRE(y.same_bits(z));
    cpu::layernorm(norm, x.data(), nullptr, nullptr, y.data(), nullptr, nullptr, 1, indices);
    cpu::layernorm(norm, picked.data(), nullptr, nullptr, z.data(), nullptr, nullptr, 1);
    REQUIRE(y.same_bits(z));
    const Vec expected = reference_norm(true, values_of(picked), {}, {}, 3, width, 1e-5f);
    for (std::int64_t i = 0; i < 3 * width; ++i) REQUIRE(close(y[i], expected[static_cast<std::size_t>(i)], 2e-6, 1.0));
  });
}

TEST_CASE("norm gradients against central differences", "[norm]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const bool layer : {false, true}) {
        for (const std::int64_t width : {3, 17, 48}) {
          const std::int64_t rows = 5;
          INFO("layer " << layer << " width " << width);
          Values values(static_cast<std::uint64_t>(width));
          Buffer x(type, rows * width, values), gain(type, width, values), bias(type, width, values), dy(type, rows * width, values);
          Buffer y(type, rows * width), mean(DType::kF32, rows), inverse(DType::kF32, rows);
          const cpu::Norm norm{type, rows, width, 1e-2f};
          Vec xs = values_of(x), gains = values_of(gain), biases = layer ? values_of(bias) : Vec{};
          const Vec dys = values_of(dy);
          const auto loss = [&] {
            const Vec out = reference_norm(layer, xs, gains, biases, rows, width, 1e-2f);
            double total = 0;
            for (std::size_t i = 0; i < out.size(); ++i) total += out[i] * dys[i];
            return total;
          };
          for (const bool accumulate : {false, true}) {
            Buffer dx(type, rows * width), dgain(DType::kF32, width), dbias(DType::kF32, width);
            for (std::int64_t i = 0; i < rows * width; ++i) dx.set(i, 0.5);
            for (std::int64_t i = 0; i < width; ++i) dgain.set(i, 0.25), dbias.set(i, -0.25);
            Buffer workspace(DType::kF32, cpu::norm_workspace_floats(rows, width, layer));
            cpu::NormGradients out{dx.data(), accumulate, dgain.data(), layer ? dbias.data() : nullptr, DType::kF32, accumulate};
            if (layer) {
              cpu::layernorm(norm, x.data(), gain.data(), bias.data(), y.data(), mean.f32(), inverse.f32(), 1);
              cpu::layernorm_backward(norm, x.data(), gain.data(), mean.f32(), inverse.f32(), dy.data(), out, workspace.f32(), 2);
            } else {
              cpu::rmsnorm(norm, x.data(), gain.data(), y.data(), inverse.f32(), 1);
              cpu::rmsnorm_backward(norm, x.data(), gain.data(), inverse.f32(), dy.data(), out, workspace.f32(), 2);
            }
            const double base = accumulate ? 1 : 0;
            for (std::size_t i = 0; i < xs.size(); ++i) {
              REQUIRE(close(dx[static_cast<std::int64_t>(i)], central_difference(xs, i, loss) + 0.5 * base, type == DType::kF32 ? 1e-5 : 5e-3, 1));
            }
            for (std::size_t i = 0; i < gains.size(); ++i) {
              REQUIRE(close(dgain[static_cast<std::int64_t>(i)], central_difference(gains, i, loss) + 0.25 * base, 1e-5, 1));
              if (layer) REQUIRE(close(dbias[static_cast<std::int64_t>(i)], central_difference(biases, i, loss) - 0.25 * base, 1e-5, 1));
            }
            REQUIRE((dx.guards_intact() && dgain.guards_intact() && dbias.guards_intact() && workspace.guards_intact()));
          }
        }
      }
    });
  });
}

TEST_CASE("norm gradients do not depend on the thread count", "[norm]") {
  const std::int64_t rows = 1111, width = 96;
  Values values(9);
  Buffer x(DType::kF32, rows * width, values), gain(DType::kF32, width, values), dy(DType::kF32, rows * width, values);
  Buffer y(DType::kF32, rows * width), mean(DType::kF32, rows), inverse(DType::kF32, rows);
  const cpu::Norm norm{DType::kF32, rows, width, 1e-5f};
  cpu::layernorm(norm, x.data(), gain.data(), nullptr, y.data(), mean.f32(), inverse.f32(), 1);
  Buffer first_dx(DType::kF32, rows * width), first_gain(DType::kBF16, width), first_bias(DType::kBF16, width);
  for (int threads = 1; threads <= 3; ++threads) {
    Buffer dx(DType::kF32, rows * width), dgain(DType::kBF16, width), dbias(DType::kBF16, width);
    Buffer workspace(DType::kF32, cpu::norm_workspace_floats(rows, width, true));
    const cpu::NormGradients out{dx.data(), false, dgain.data(), dbias.data(), DType::kBF16, false};
    cpu::layernorm_backward(norm, x.data(), gain.data(), mean.f32(), inverse.f32(), dy.data(), out, workspace.f32(), threads);
    if (threads == 1) {
      first_dx = dx, first_gain = dgain, first_bias = dbias;
    } else {
      REQUIRE((dx.same_bits(first_dx) && dgain.same_bits(first_gain) && dbias.same_bits(first_bias)));
    }
  }
}

TEST_CASE("rope turns pairs by original positions and leaves the rest", "[rope]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const auto& [head_dim, rotary] : {std::pair<std::int64_t, std::int64_t>{8, 8}, {64, 64}, {80, 32}, {10, 6}, {4, 0}}) {
        const std::int64_t rows = 4, heads = 3, stride = heads * head_dim + 5;
        const std::int32_t positions[4] = {0, 2, 5, 100};
        Values values(static_cast<std::uint64_t>(head_dim));
        Buffer x(type, rows * stride, values);
        const Buffer before = x;
        std::vector<float> table(static_cast<std::size_t>(cpu::rope_table_floats(101, rotary)) + 1);
        cpu::fill_rope_table(10000, rotary, 101, table.data());
        const cpu::Rope shape{type, rows, stride, heads, head_dim, rotary, 101};
        cpu::rope(shape, x.data(), positions, table.data(), false, 2);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < stride; ++c) {
            const std::int64_t in = c % head_dim, half = rotary / 2;
            double expected = before[r * stride + c];
            if (c < heads * head_dim && in < rotary) {
              const std::int64_t i = in % half;
              const double angle = positions[r] * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
              const double low = before[r * stride + c - in + i], high = before[r * stride + c - in + i + half];
              expected = in < half ? low * std::cos(angle) - high * std::sin(angle) : high * std::cos(angle) + low * std::sin(angle);
            }
            REQUIRE(close(x[r * stride + c], expected, tolerance(type), 1));
          }
        }
        cpu::rope(shape, x.data(), positions, table.data(), true, 1);
        for (std::int64_t i = 0; i < rows * stride; ++i) REQUIRE(close(x[i], before[i], 3 * tolerance(type), 1));
        REQUIRE(x.guards_intact());
      }
    });
  });
  float row[4] = {}, table[4] = {};
  const std::int32_t outside = 1;
  REQUIRE_THROWS_AS(cpu::rope({DType::kF32, 1, 4, 1, 4, 4, 1}, row, &outside, table, false, 1), Error);
}

TEST_CASE("rope with gaps: positions 2 and 5 act at distance 3", "[rope]") {
  // A score q_b . k_a depends on the distance of the positions only: (2,5) equals (0,3) and differs from (0,1).
  const std::int64_t dim = 8;
  std::vector<float> table(static_cast<std::size_t>(cpu::rope_table_floats(8, dim)));
  cpu::fill_rope_table(10000, dim, 8, table.data());
  const auto score = [&](std::int32_t a, std::int32_t b) {
    float rows[16];
    for (int i = 0; i < 16; ++i) rows[i] = static_cast<float>(0.1 * (i % 5) - 0.2 * (i % 3) + 0.3);
    const std::int32_t positions[2] = {a, b};
    cpu::rope({DType::kF32, 2, dim, 1, dim, dim, 8}, rows, positions, table.data(), false, 1);
    double dot = 0;
    for (int i = 0; i < 8; ++i) dot += static_cast<double>(rows[i]) * rows[8 + i];
    return dot;
  };
  REQUIRE(score(2, 5) == Approx(score(0, 3)).margin(1e-6));
  REQUIRE(std::fabs(score(2, 5) - score(0, 1)) > 1e-2);
}
