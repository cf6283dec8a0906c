// Gather, gated scatter-add, embedding, router scores and expert dispatch, with their gradients.
#include <algorithm>
#include <limits>

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/embedding.hpp"
#include "kernels/cpu/moe.hpp"
#include "kernels/cpu/router.hpp"
#include "kernels/cpu/rows.hpp"
#include "lib/error.hpp"
#include "tests/kernels/vector_testing.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

double gate_value(const cpu::Gate& g, double r) {
  const double s = 1 / (1 + std::exp(-r));
  switch (g.kind) {
    case cpu::GateKind::kRaw: return r;
    case cpu::GateKind::kSigmoid: return s;
    case cpu::GateKind::kAlphaSigmoid: return g.a * s;
    case cpu::GateKind::kTanh: return g.a * std::tanh(r) + g.b;
    case cpu::GateKind::kStraightThrough: return 1;
  }
  return 0;
}

const cpu::Gate kGates[] = {{cpu::GateKind::kRaw, 1, 0},
                            {cpu::GateKind::kSigmoid, 1, 0},
                            {cpu::GateKind::kAlphaSigmoid, 0.1f, 0},
                            {cpu::GateKind::kTanh, 0.2f, 1},
                            {cpu::GateKind::kStraightThrough, 1, 0}};

}  // namespace

TEST_CASE("gates and their derivatives", "[rows]") {
  for (const auto& gate : kGates) {
    const float r[7] = {-90, -3, -0.5f, 0, 0.25f, 4, 90};
    float value[7], slope[7];
    cpu::gate_values(gate, r, nullptr, 7, value, slope);
    for (int i = 0; i < 7; ++i) {
      INFO("kind " << static_cast<int>(gate.kind) << " r " << r[i]);
      REQUIRE(close(value[i], gate_value(gate, r[i]), 1e-6, 1e-3));
      const double d = gate.kind == cpu::GateKind::kStraightThrough ? 1 : (gate_value(gate, r[i] + 1e-5) - gate_value(gate, r[i] - 1e-5)) / 2e-5;
      REQUIRE(close(slope[i], d, 1e-5, 1e-3));
    }
    const std::int32_t pick[2] = {5, 1};
    float two[2];
    cpu::gate_values(gate, r, pick, 2, two, nullptr);
    REQUIRE((two[0] == value[5] && two[1] == value[1]));
  }
}

TEST_CASE("gather, gated scatter-add in place and their backward", "[rows]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t width : {1, 7, 16, 50, 768}) {
        for (const std::int64_t count : {0, 1, 6}) {
          const std::int64_t total = 11;
          const std::int32_t indices[6] = {0, 3, 4, 7, 9, 10};
          INFO("width " << width << " count " << count);
          Values values(static_cast<std::uint64_t>(width + count));
          Buffer x(type, total * width, values), f(type, count * width, values), picked(type, count * width), y = x, r(DType::kF32, total, values);
          const cpu::Rows rows{type, count, width};
          cpu::gather_rows(rows, x.data(), indices, picked.data(), 2);
          for (std::int64_t i = 0; i < count * width; ++i) REQUIRE(picked[i] == x[indices[i / width] * width + i % width]);
          Buffer g(DType::kF32, count), slope(DType::kF32, count);
          cpu::gate_values({cpu::GateKind::kSigmoid, 1, 0}, r.f32(), indices, count, g.f32(), slope.f32());
          cpu::scatter_add_rows(rows, f.data(), g.f32(), indices, y.data(), 2);
          std::vector<int> source(static_cast<std::size_t>(total), -1);
          for (std::int64_t i = 0; i < count; ++i) source[static_cast<std::size_t>(indices[i])] = static_cast<int>(i);
          for (std::int64_t i = 0; i < total * width; ++i) {
            const int s = source[static_cast<std::size_t>(i / width)];
            if (s < 0) {
              REQUIRE(y[i] == x[i]);  // rows not selected are bit-identical
            } else {
              REQUIRE(close(y[i], x[i] + g[s] * f[s * width + i % width], tolerance(type), 1));
            }
          }
          // Backward: loss = sum dy * y; df by hand, dr through the sigmoid.
          Buffer dy(type, total * width, values), df(type, count * width), dr(DType::kF32, count);
          cpu::scatter_add_rows_backward(rows, dy.data(), f.data(), g.f32(), slope.f32(), indices, df.data(), dr.f32(), 2);
          for (std::int64_t i = 0; i < count; ++i) {
            double dot = 0;
            for (std::int64_t j = 0; j < width; ++j) {
              const double d = dy[indices[i] * width + j];
              dot += d * f[i * width + j];
              REQUIRE(close(df[i * width + j], g[i] * d, tolerance(type), 1));
            }
            const double s = 1 / (1 + std::exp(-r[indices[i]]));
            REQUIRE(close(dr[i], dot * s * (1 - s), 1e-5, 1));  // with F, not g F
          }
          Buffer back = dy;
          cpu::scatter_add_rows(rows, f.data(), nullptr, indices, back.data(), 1);
          for (std::int64_t i = 0; i < count * width; ++i) {
            const std::int64_t at = indices[i / width] * width + i % width;
            REQUIRE(close(back[at], dy[at] + f[i], tolerance(type), 1));
          }
          REQUIRE((y.guards_intact() && picked.guards_intact() && df.guards_intact() && dr.guards_intact() && back.guards_intact()));
        }
      }
    });
  });
}

TEST_CASE("embedding and its gradient: repeated ids are summed once, deterministically", "[embedding]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t tokens : {0, 1, 5, 3000}) {
        const std::int64_t width = 37, vocabulary = 50;
        Values values(static_cast<std::uint64_t>(tokens));
        Buffer table(type, vocabulary * width, values), places(type, 3000 * width, values), dy(type, tokens * width, values);
        std::vector<std::int32_t> ids, positions;
        for (std::int64_t i = 0; i < tokens; ++i) {
          ids.push_back(i % 3 == 0 ? 7 : static_cast<std::int32_t>(values.bits() % 40));  // ids 40.. never occur
          positions.push_back(static_cast<std::int32_t>(i));
        }
        Buffer y(type, tokens * width), z(type, tokens * width);
        const cpu::Embedding shape{type, tokens, width, vocabulary};
        cpu::embedding(shape, table.data(), ids.data(), nullptr, nullptr, y.data(), 2);
        cpu::embedding(shape, table.data(), ids.data(), places.data(), positions.data(), z.data(), 2);
        std::vector<double> expected(static_cast<std::size_t>(vocabulary * width), 0.25);
        for (std::int64_t i = 0; i < tokens * width; ++i) {
          const std::int64_t at = ids[static_cast<std::size_t>(i / width)] * width + i % width;
          REQUIRE(y[i] == table[at]);
          REQUIRE(close(z[i], table[at] + places[i], tolerance(type), 1));
          expected[static_cast<std::size_t>(at)] += dy[i];
        }
        Buffer first(type, vocabulary * width);
        for (int threads = 1; threads <= 3; ++threads) {
          Buffer grad(type, vocabulary * width), workspace(DType::kF32, cpu::embedding_workspace_bytes(tokens) / 4);
          for (std::int64_t i = 0; i < vocabulary * width; ++i) grad.set(i, 0.25);
          cpu::embedding_backward(shape, dy.data(), ids.data(), grad.data(), workspace.data(), threads);
          for (std::int64_t i = 0; i < vocabulary * width; ++i) REQUIRE(close(grad[i], expected[static_cast<std::size_t>(i)], type == DType::kF32 ? 1e-5 : 4e-3, 1));
          REQUIRE((grad.guards_intact() && workspace.guards_intact()));
          if (threads == 1) first = grad;
          REQUIRE(grad.same_bits(first));
        }
        if (tokens > 0) {
          ids[0] = 50;
          REQUIRE_THROWS_AS(cpu::embedding(shape, table.data(), ids.data(), nullptr, nullptr, y.data(), 1), Error);
        }
      }
    });
  });
}

TEST_CASE("router scores do not depend on the batch or on threads", "[router]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t width : {1, 15, 64, 100, 768}) {
        const std::int64_t rows = 333;
        Values values(static_cast<std::uint64_t>(width));
        Buffer x(type, rows * width, values), w(type, width, values), r(DType::kF32, rows), again(DType::kF32, rows);
        cpu::router_scores(type, x.data(), w.data(), 0.125f, r.f32(), rows, width, 1);
        cpu::router_scores(type, x.data(), w.data(), 0.125f, again.f32(), rows, width, 3);
        REQUIRE(r.same_bits(again));
        for (std::int64_t i = 0; i < rows; ++i) {
          double dot = 0.125;
          for (std::int64_t j = 0; j < width; ++j) dot += x[i * width + j] * w[j];
          REQUIRE(close(r[i], dot, 2e-6, 4));
          float alone = 0;
          cpu::router_scores(type, static_cast<char*>(x.data()) + i * width * dtype_bytes(type), w.data(), 0.125f, &alone, 1, width, 1);
          REQUIRE(alone == r.f32()[i]);
        }
        // dX += dr w on chosen rows only.
        const std::int32_t chosen[2] = {2, 300};
        const float dr[2] = {0.5f, -2.f};
        Buffer dx = x;
        cpu::router_input_gradient(type, dr, w.data(), chosen, dx.data(), 2, width, 2);
        for (std::int64_t i = 0; i < rows * width; ++i) {
          const double factor = i / width == 2 ? 0.5 : i / width == 300 ? -2 : 0;
          if (factor == 0) REQUIRE(dx[i] == x[i]);
          REQUIRE(close(dx[i], x[i] + factor * w[i % width], tolerance(type), 1));
        }
        REQUIRE((dx.guards_intact() && r.guards_intact()));
      }
    });
  });
  const float dr[3] = {1.5f, -0.25f, 2};
  REQUIRE(cpu::sum_in_order(dr, 3) == 3.25);
}

TEST_CASE("BCE with logits: value, gradient, extremes", "[router]") {
  for_each_isa([] {
    for (const std::int64_t n : {0, 1, 15, 33, 2049}) {
      Values values(static_cast<std::uint64_t>(n));
      Buffer r(DType::kF32, n, values, -8, 8), grad(DType::kF32, n);
      std::vector<std::uint8_t> z;
      for (std::int64_t i = 0; i < n; ++i) z.push_back(values.bits() % 4 == 0);
      if (n == 33) r.set(3, 1000), r.set(4, -1000), r.set(5, 0), r.set(6, 1e-30);
      for (const bool accumulate : {false, true}) {
        for (std::int64_t i = 0; i < n; ++i) grad.set(i, 0.5);
        const double weight = 0.7 / static_cast<double>(std::max<std::int64_t>(n, 1));
        const double loss = cpu::bce_with_logits(r.f32(), z.data(), n, weight, grad.f32(), accumulate);
        double expected = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double x = r[i];
          const auto bce = [&](double u) { return std::max(u, 0.0) - u * z[static_cast<std::size_t>(i)] + std::log1p(std::exp(-std::fabs(u))); };
          expected += bce(x);
          REQUIRE(close(grad[i] - (accumulate ? 0.5 : 0), weight * (bce(x + 1e-4) - bce(x - 1e-4)) / 2e-4, 1e-4, accumulate ? 1e-3 : weight * 1e-2));
        }
        REQUIRE(loss == Approx(expected * weight).epsilon(2e-6));
        REQUIRE(cpu::bce_with_logits(r.f32(), z.data(), n, weight, nullptr, false) == loss);
      }
      REQUIRE(grad.guards_intact());
    }
  });
  // log 2 per token at r = 0 whatever the target.
  const float zero[2] = {0, 0};
  const std::uint8_t z[2] = {0, 1};
  REQUIRE(cpu::bce_with_logits(zero, z, 2, 0.5, nullptr, false) == Approx(std::log(2.0)).epsilon(1e-6));
  const float r[4] = {1, -1, 2, 0};
  const std::uint8_t t[4] = {1, 1, 0, 0};
  const auto c = cpu::binary_counts(r, t, 4);
  REQUIRE((c.true_positive == 1 && c.false_negative == 1 && c.false_positive == 1 && c.true_negative == 1));
}

TEST_CASE("expert routing: ties to the lower expert, dispatch is stable, no-ops and capacity get no slot", "[moe]") {
  // Three tokens, four experts of which number 3 is a no-op, two taken each.
  const float logits[12] = {1, 1, 0, 0, 0, 2, 2, 5, 0, 0, 0, 0};
  float p[12], w[6];
  std::int32_t ids[6], slots[6], source[6];
  std::int64_t offsets[4];
  for_each_isa([&] {
    REQUIRE(cpu::moe_route({3, 4, 2, true}, logits, p, ids, w, 1) == -1);
    REQUIRE(std::vector<std::int32_t>(ids, ids + 6) == std::vector<std::int32_t>{0, 1, 3, 1, 0, 1});
    REQUIRE(w[0] == Approx(0.5));
    REQUIRE(w[2] == Approx(1 / (1 + std::exp(-3.0))));
  });
  REQUIRE(cpu::moe_dispatch({3, 2, 3, -1}, ids, offsets, source, slots) == 5);
  REQUIRE(std::vector<std::int64_t>(offsets, offsets + 4) == std::vector<std::int64_t>{0, 2, 5, 5});
  REQUIRE(std::vector<std::int32_t>(slots, slots + 6) == std::vector<std::int32_t>{0, 2, -1, 3, 1, 4});
  REQUIRE(std::vector<std::int32_t>(source, source + 5) == std::vector<std::int32_t>{0, 2, 0, 1, 2});
  REQUIRE(cpu::moe_dispatch({3, 2, 3, 1}, ids, offsets, source, slots) == 2);
  REQUIRE(std::vector<std::int32_t>(slots, slots + 6) == std::vector<std::int32_t>{0, 1, -1, -1, -1, -1});
  const float bad[2] = {0, std::numeric_limits<float>::quiet_NaN()};
  REQUIRE(cpu::moe_route({2, 1, 1, true}, bad, p, ids, w, 1) == 1);
}

TEST_CASE("expert combine and gradients against central differences", "[moe]") {
  for_each_isa([] {
    for (const bool renormalize : {false, true}) {
      const std::int64_t tokens = 9, experts = 5, real = 4, top_k = 2, width = 19;
      Values values(renormalize ? 5 : 6);
      Buffer logits(DType::kF32, tokens * experts, values, -2, 2), p(DType::kF32, tokens * experts), w(DType::kF32, tokens * top_k);
      Buffer dy(DType::kF32, tokens * width, values), dw(DType::kF32, tokens * top_k), dlogits(DType::kF32, tokens * experts);
      std::vector<std::int32_t> ids(18), slots(18), source(18);
      std::vector<std::int64_t> offsets(5);
      const cpu::MoeRouting routing{tokens, experts, top_k, renormalize};
      REQUIRE(cpu::moe_route(routing, logits.f32(), p.f32(), ids.data(), w.f32(), 2) == -1);
      const std::int64_t rows = cpu::moe_dispatch({tokens, top_k, real, -1}, ids.data(), offsets.data(), source.data(), slots.data());
      Buffer out(DType::kF32, rows * width, values), drows(DType::kF32, rows * width), y(DType::kF32, tokens * width);
      const cpu::MoeCombine combine{DType::kF32, tokens, top_k, width};
      cpu::moe_combine(combine, out.data(), slots.data(), w.f32(), y.data(), false, 2);
      cpu::moe_combine_backward(combine, dy.data(), out.data(), slots.data(), w.f32(), drows.data(), dw.f32(), 2);
      cpu::moe_route_backward(routing, p.f32(), ids.data(), w.f32(), dw.f32(), dlogits.f32(), 2);
      std::vector<double> ls, os;
      for (std::int64_t i = 0; i < logits.count(); ++i) ls.push_back(logits[i]);
      for (std::int64_t i = 0; i < out.count(); ++i) os.push_back(out[i]);
      const auto loss = [&](std::vector<double>* result) {
        double total = 0;
        for (std::int64_t t = 0; t < tokens; ++t) {
          double all = 0, taken = 0;
          for (std::int64_t e = 0; e < experts; ++e) all += std::exp(ls[static_cast<std::size_t>(t * experts + e)]);
          for (std::int64_t j = 0; j < top_k; ++j) taken += std::exp(ls[static_cast<std::size_t>(t * experts + ids[static_cast<std::size_t>(t * top_k + j)])]);
          for (std::int64_t c = 0; c < width; ++c) {
            double v = 0;
            for (std::int64_t j = 0; j < top_k; ++j) {
              const auto at = static_cast<std::size_t>(t * top_k + j);
              if (slots[at] < 0) continue;
              v += std::exp(ls[static_cast<std::size_t>(t * experts + ids[at])]) / (renormalize ? taken : all) * os[static_cast<std::size_t>(slots[at] * width + c)];
            }
            if (result) result->push_back(v);
            total += v * dy[t * width + c];
          }
        }
        return total;
      };
      std::vector<double> expected;
      loss(&expected);
      for (std::int64_t i = 0; i < y.count(); ++i) REQUIRE(close(y[i], expected[static_cast<std::size_t>(i)], 2e-6, 1));
      const auto plain = [&] { return loss(nullptr); };
      for (std::size_t i = 0; i < os.size(); ++i) REQUIRE(close(drows[static_cast<std::int64_t>(i)], central_difference(os, i, plain), 1e-5, 1));
      for (std::size_t i = 0; i < ls.size(); ++i) REQUIRE(close(dlogits[static_cast<std::int64_t>(i)], central_difference(ls, i, plain), 1e-5, 1));
      Buffer dx(DType::kF32, tokens * width);  // backward of the gather: sums of a token's rows
      cpu::moe_combine(combine, drows.data(), slots.data(), nullptr, dx.data(), false, 1);
      Buffer twice = dx;
      cpu::moe_combine(combine, drows.data(), slots.data(), nullptr, twice.data(), true, 1);
      for (std::int64_t i = 0; i < dx.count(); ++i) REQUIRE(close(twice[i], 2 * dx[i], 1e-6, 1));
      REQUIRE((y.guards_intact() && drows.guards_intact() && dx.guards_intact() && dlogits.guards_intact() && dw.guards_intact()));
    }
  });
}
