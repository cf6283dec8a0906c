// Activations, sums, conversions, column sums, AdamW against double references; derivatives by central differences.
#include <limits>

#include "kernels/cpu/activation.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/optimizer.hpp"
#include "lib/error.hpp"
#include "tests/kernels/vector_testing.hpp"

using namespace fathom;
using namespace fathom::testing;
using cpu::ActivationKind;

namespace {

const ActivationKind kKinds[] = {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu, ActivationKind::kRelu,
                                 ActivationKind::kReluSquared};

double act(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kGeluErf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::kSilu: return x / (1 + std::exp(-x));
    case ActivationKind::kRelu: return x > 0 ? x : 0;
    case ActivationKind::kReluSquared: return x > 0 ? x * x : 0;
  }
  return 0;
}

double slope(ActivationKind kind, double x) { return (act(kind, x + 1e-5) - act(kind, x - 1e-5)) / 2e-5; }

}  // namespace

TEST_CASE("activations, plain and gated, dense and strided", "[activation]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const auto kind : kKinds) {
        for (const std::int64_t rows : {0, 1, 3}) {
          for (const std::int64_t columns : {1, 17, 64, 4099}) {
            for (const std::int64_t gap : {0, 3}) {
              INFO("kind " << static_cast<int>(kind) << " rows " << rows << " columns " << columns << " gap " << gap);
              Values values(static_cast<std::uint64_t>(columns));
              const std::int64_t stride = columns + gap;
              Buffer gate(type, rows * stride, values, -6, 6), up(type, rows * stride, values), dy(type, rows * stride, values);
              Buffer plain(type, rows * stride, values), gated(type, rows * stride, values), dx = plain, dgate = plain, dup = plain;
              const Buffer before = plain;
              const cpu::Activation shape{kind, type, rows, columns};
              const auto in = [&](Buffer& b) { return cpu::ConstRows{b.data(), stride}; };
              const auto out = [&](Buffer& b) { return cpu::MutableRows{b.data(), stride}; };
              cpu::activation(shape, in(gate), out(plain), 2);
              cpu::gated_activation(shape, in(gate), in(up), out(gated), 2);
              cpu::activation_backward(shape, in(gate), in(dy), out(dx), 2);
              cpu::gated_activation_backward(shape, in(gate), in(up), in(dy), out(dgate), out(dup), 2);
              const double tol = type == DType::kF32 ? 3e-6 : 5e-3;
              for (std::int64_t r = 0; r < rows; ++r) {
                for (std::int64_t c = 0; c < stride; ++c) {
                  const std::int64_t i = r * stride + c;
                  if (c >= columns) {
                    REQUIRE((plain[i] == before[i] && dx[i] == before[i] && dgate[i] == before[i] && dup[i] == before[i]));
                    continue;
                  }
                  const double a = act(kind, gate[i]), d = slope(kind, gate[i]);
                  REQUIRE(close(plain[i], a, tol, 0.1));
                  REQUIRE(close(gated[i], a * up[i], tol, 0.1));
                  REQUIRE(close(dx[i], dy[i] * d, tol, 1));
                  REQUIRE(close(dgate[i], dy[i] * up[i] * d, tol, 1));
                  REQUIRE(close(dup[i], dy[i] * a, tol, 1));
                }
              }
              REQUIRE((plain.guards_intact() && gated.guards_intact() && dx.guards_intact() && dgate.guards_intact() && dup.guards_intact()));
            }
          }
        }
      }
    });
  });
}

TEST_CASE("activations far from zero stay finite and keep relative accuracy in the tail", "[activation]") {
  for_each_isa([] {
    for (const auto kind : kKinds) {
      std::vector<float> x = {-1e30f, -200.f, -30.f, -5.f, -3.f, -1e-20f, -0.f, 0.f, 1e-20f, 3.f, 30.f, 200.f, 1e4f}, y(x.size()), one(x.size(), 1.f), d(x.size());
      const auto n = static_cast<std::int64_t>(x.size());
      cpu::activation({kind, DType::kF32, 1, n}, {x.data(), n}, {y.data(), n}, 1);
      cpu::activation_backward({kind, DType::kF32, 1, n}, {x.data(), n}, {one.data(), n}, {d.data(), n}, 1);
      for (std::size_t i = 0; i < x.size(); ++i) {
        INFO("kind " << static_cast<int>(kind) << " x " << x[i] << " y " << y[i]);
        REQUIRE(std::isfinite(y[i]));
        if (std::fabs(x[i]) > 1e-10f && std::fabs(x[i]) < 1e3f) REQUIRE(close(y[i], act(kind, x[i]), kind == ActivationKind::kGeluErf ? 2e-6 : 1e-5, 1e-12));
        if (x[i] == -5.f || x[i] == 3.f) REQUIRE(close(d[i], slope(kind, x[i]), 1e-4, 1e-6));
      }
    }
  });
}

TEST_CASE("adds, bias, scale, conversion", "[elementwise]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t n : {0, 1, 15, 16, 17, 1000, 70001}) {
        Values values(static_cast<std::uint64_t>(n));
        Buffer a(type, n, values), b(type, n, values), y(type, n), s(type, n);
        cpu::add(type, a.data(), b.data(), y.data(), n, 2);
        cpu::scaled_copy(type, a.data(), -1.5f, s.data(), n, 2);
        Buffer in_place = a;
        cpu::add(type, in_place.data(), b.data(), in_place.data(), n, 1);
        REQUIRE(in_place.same_bits(y));
        double squares = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          REQUIRE(close(y[i], a[i] + b[i], tolerance(type), 1));
          REQUIRE(close(s[i], -1.5 * a[i], tolerance(type), 1));
          squares += a[i] * a[i];
        }
        const double got = cpu::sum_of_squares(type, a.data(), n, 1);
        REQUIRE(got == Approx(squares).epsilon(1e-6));
        REQUIRE(got == cpu::sum_of_squares(type, a.data(), n, 2));
        REQUIRE((y.guards_intact() && s.guards_intact()));
      }
      for (const std::int64_t rows : {0, 1, 100}) {
        for (const std::int64_t width : {1, 33}) {
          Values values(3);
          Buffer x(type, rows * width, values), bias(type, width, values), y(type, rows * width);
          cpu::add_bias(type, x.data(), bias.data(), y.data(), rows, width, 2);
          for (std::int64_t i = 0; i < rows * width; ++i) REQUIRE(close(y[i], x[i] + bias[i % width], tolerance(type), 1));
          REQUIRE(y.guards_intact());
        }
      }
    });
  });
}

TEST_CASE("conversion to bf16 rounds like bf16, ties, NaN and infinity included", "[elementwise]") {
  for_each_isa([] {
    std::vector<float> x;
    Values values(1);
    for (int i = 0; i < 4000; ++i) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(values.bits())));
    for (std::uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu, 0x7f7fffffu, 0x80000000u, 1u}) {
      x.push_back(std::bit_cast<float>(bits));
    }
    const auto n = static_cast<std::int64_t>(x.size());
    std::vector<bf16> y(x.size());
    std::vector<float> back(x.size());
    cpu::f32_to_bf16(x.data(), y.data(), n, 2);
    cpu::bf16_to_f32(y.data(), back.data(), n, 2);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool denormal = x[i] != 0 && std::fabs(x[i]) < 0x1p-126f;
      if (denormal && cpu::active_vector_isa() == cpu::VectorIsa::kAvx512Bf16) {
        REQUIRE((y[i].bits & 0x7fff) == 0);  // the instruction takes denormals for zero
      } else {
        REQUIRE(y[i].bits == bf16::round(x[i]));
      }
      REQUIRE(std::bit_cast<std::uint32_t>(back[i]) == std::uint32_t{y[i].bits} << 16);
    }
  });
}

TEST_CASE("column sums: value and independence of threads", "[elementwise]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t rows : {0, 1, 31, 33, 1000, 2500}) {
        for (const std::int64_t width : {1, 19, 64}) {
          Values values(static_cast<std::uint64_t>(rows));
          Buffer x(type, rows * width, values), factor(DType::kF32, rows, values);
          for (const bool weighted : {false, true}) {
            Buffer first(type, width);
            for (int threads = 1; threads <= 3; ++threads) {
              Buffer out(type, width), workspace(DType::kF32, cpu::column_sums_workspace_floats(rows, width));
              for (std::int64_t j = 0; j < width; ++j) out.set(j, 0.5);
              cpu::column_sums(type, x.data(), weighted ? factor.f32() : nullptr, rows, width, type, out.data(), true, workspace.f32(), threads);
              for (std::int64_t j = 0; j < width; ++j) {
                double expected = 0.5;
                for (std::int64_t i = 0; i < rows; ++i) expected += x[i * width + j] * (weighted ? factor[i] : 1.0);
                REQUIRE(close(out[j], expected, type == DType::kF32 ? 1e-5 : 4e-3, 3));
              }
              REQUIRE((out.guards_intact() && workspace.guards_intact()));
              if (threads == 1) first = out;
              REQUIRE(out.same_bits(first));
            }
          }
        }
      }
    });
  });
}

TEST_CASE("AdamW: hand-worked first step", "[optimizer]") {
  // g = 2 * 0.5 = 1, m = 0.1, v = 0.05, m/(1-0.9) = 1, v/(1-0.95) = 1: p = 1 * (1 - 0.1 * 0.1) - 0.1 * 1 / (1 + 1e-8) = 0.89.
  float p = 1, m = 0, v = 0, g = 0.5f;
  cpu::AdamW s;
  s.learning_rate = 0.1;
  s.grad_scale = 2;
  cpu::adamw(s, &p, &m, &v, DType::kF32, &g, nullptr, 1, 1);
  REQUIRE(p == Approx(0.89).epsilon(1e-6));
  REQUIRE(m == Approx(0.1).epsilon(1e-6));
  REQUIRE(v == Approx(0.05).epsilon(1e-6));
  s.step = 0;
  REQUIRE_THROWS_AS(cpu::adamw(s, &p, &m, &v, DType::kF32, &g, nullptr, 1, 1), Error);
  REQUIRE(cpu::clip_factor(25.0, 1.0) == Approx(0.2));
  REQUIRE(cpu::clip_factor(0.25, 1.0) == 1.0);
}

TEST_CASE("AdamW over several steps against double", "[optimizer]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t n : {0, 1, 17, 70003}) {
        Values values(static_cast<std::uint64_t>(n));
        Buffer p(DType::kF32, n, values), m(DType::kF32, n), v(DType::kF32, n), copy(DType::kBF16, n);
        std::vector<double> dp, dm(static_cast<std::size_t>(n)), dv(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) dp.push_back(p[i]), m.set(i, 0), v.set(i, 0);
        cpu::AdamW s;
        s.grad_scale = 0.5;
        for (s.step = 1; s.step <= 4; ++s.step) {
          Buffer g(type, n, values);
          cpu::adamw(s, p.f32(), m.f32(), v.f32(), type, g.data(), type == DType::kBF16 ? static_cast<bf16*>(copy.data()) : nullptr, n, 2);
          for (std::int64_t i = 0; i < n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double grad = 0.5 * g[i];
            dm[at] = 0.9 * dm[at] + 0.1 * grad;
            dv[at] = 0.95 * dv[at] + 0.05 * grad * grad;
            const double t = static_cast<double>(s.step);
            dp[at] = dp[at] * (1 - 1e-4) - 1e-3 * (dm[at] / (1 - std::pow(0.9, t))) / (std::sqrt(dv[at] / (1 - std::pow(0.95, t))) + 1e-8);
            REQUIRE(close(p[i], dp[at], 1e-6, 1));
            if (type == DType::kBF16) REQUIRE(copy[i] == static_cast<float>(bf16(static_cast<float>(p[i]))));
          }
        }
        REQUIRE((p.guards_intact() && m.guards_intact() && v.guards_intact() && copy.guards_intact()));
      }
    });
  });
}
