// Elementwise kernels, losses and the optimizer on fibers against the reference in f64.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/reference/activation.hpp"
#include "kernels/reference/training.hpp"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;

template <class T>
void check_activation(ActivationKind kind, std::int64_t rows, std::int64_t width, bool gated) {
  const auto n = static_cast<size_t>(rows * width);
  const auto x = values<T>(1, n, 4.0), up = values<T>(2, n), dy = values<T>(3, n);
  std::vector<double> wx = wide(x), wu = wide(up), wdy = wide(dy), y(n), dx(n), dup(n), sum(n);
  const auto u = gated ? matrix(wu, rows, width) : reference::Matrix<double>{};
  reference::activation(kind, rows, matrix(wx, rows, width), u, matrix(y, rows, width));
  reference::activation_backward(kind, rows, matrix(wx, rows, width), u, matrix(wdy, rows, width), matrix(dx, rows, width), matrix(dup, rows, width));
  for (size_t i = 0; i < n; ++i) sum[i] = wx[i] + wu[i];
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> bx(x), bu(up), bdy(dy), by(n), bdx(n), bdup(n), bsum(n);
    const cuda::RowCount r{rows};
    cuda::activation({dtype_of<T>(), kind, r, width, bx.data(), gated ? bu.data() : nullptr, by.data()}, nullptr);
    cuda::activation_backward({dtype_of<T>(), kind, r, width, bx.data(), gated ? bu.data() : nullptr, bdy.data(), bdx.data(), gated ? bdup.data() : nullptr}, nullptr);
    cuda::add({dtype_of<T>(), r, width, bx.data(), bu.data(), bsum.data()}, nullptr);
    return std::array<std::vector<float>, 4>{narrow(by), narrow(bdx), gated ? narrow(bdup) : std::vector<float>{}, narrow(bsum)};
  });
  require_close(got[0], y, tolerance<T>(), "y");
  require_close(got[1], dx, tolerance<T>(), "dx");
  if (gated) require_close(got[2], dup, tolerance<T>(), "dup");
  require_close(got[3], sum, tolerance<T>(), "sum");
}

TEST_CASE("activations, plain and gated, and residual adds equal the reference") {
  for (int kind = 0; kind < 5; ++kind) {
    for (const bool gated : {false, true}) {
      check_activation<float>(static_cast<ActivationKind>(kind), 3, 33, gated);
      check_activation<bf16>(static_cast<ActivationKind>(kind), 5, 64, gated);
      check_activation<bf16>(static_cast<ActivationKind>(kind), 0, 8, gated);
    }
  }
  check_activation<float>(ActivationKind::kSilu, 9, 1024, true);
}

TEST_CASE("elementwise kernels stop at the rows that the device counts") {
  // Seven rows declared, four there; f32 rows of 12 in packs and of 5 in single elements.
  for (const std::int64_t width : {12, 5}) {
    const auto n = static_cast<size_t>(7 * width), live = static_cast<size_t>(4 * width);
    const auto x = values<float>(1, n), up = values<float>(2, n), dy = values<float>(3, n);
    const auto got = in_all_orders([&] {
      DeviceBuffer<float> bx(x), bu(up), bdy(dy), sum(n, 9.0f), y(n, 9.0f), dx(n, 9.0f), dup(n, 9.0f);
      DeviceBuffer<std::int32_t> count(1, 4);
      const cuda::RowCount rows{7, count.data()};
      cuda::add({DType::kF32, rows, width, bx.data(), bu.data(), sum.data()}, nullptr);
      cuda::activation({DType::kF32, ActivationKind::kRelu, rows, width, bx.data(), bu.data(), y.data()}, nullptr);
      cuda::activation_backward({DType::kF32, ActivationKind::kRelu, rows, width, bx.data(), bu.data(), bdy.data(), dx.data(), dup.data()}, nullptr);
      return std::array<std::vector<float>, 4>{sum.host(), y.host(), dx.host(), dup.host()};
    });
    for (size_t i = 0; i < n; ++i) {
      const float act = std::max(x[i], 0.0f), slope = x[i] > 0 ? 1.0f : 0.0f;
      REQUIRE(got[0][i] == (i < live ? x[i] + up[i] : 9.0f));
      REQUIRE(got[1][i] == (i < live ? act * up[i] : 9.0f));
      REQUIRE(got[2][i] == (i < live ? dy[i] * up[i] * slope : 9.0f));
      REQUIRE(got[3][i] == (i < live ? dy[i] * act : 9.0f));
    }
  }
}

template <class T>
void check_loss(std::int64_t rows, std::int64_t vocab, std::int64_t stride, bool gradient, bool labels, double weight = 1) {
  const auto n = static_cast<size_t>(rows * stride);
  const auto x = values<T>(5, n, 8.0);
  std::vector<std::int32_t> label;
  for (std::int64_t r = 0; r < rows; ++r) label.push_back(!labels || r % 4 == 3 ? -1 : static_cast<std::int32_t>((r * 37 + 5) % vocab));
  if (labels && rows > 1) label[1] = 0;  // token 0 is a label, too
  std::vector<double> logits = wide(x);
  const double loss = reference::cross_entropy(rows, vocab, matrix(logits, rows, stride), label.data(), gradient, weight);
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> b(x);
    DeviceBuffer<std::int32_t> l(label), counted(1);
    DeviceBuffer<float> losses(static_cast<size_t>(rows)), out(1);
    cuda::CrossEntropyArgs a;
    a.type = dtype_of<T>(), a.rows = rows, a.vocab = vocab, a.stride = stride, a.gradient = gradient, a.weight = static_cast<float>(weight);
    a.logits = b.data(), a.labels = l.data(), a.counted = counted.data(), a.row_losses = losses.data(), a.loss = out.data();
    cuda::cross_entropy(a, nullptr);
    return std::array<std::vector<float>, 2>{narrow(b), out.host()};
  });
  require_close(got[0], logits, gradient ? tolerance<T>() / 8 : 0, "gradient");
  require_close(got[1], {loss}, 1e-5, "loss");
}

TEST_CASE("cross-entropy and its gradient equal the reference, padding and rows without a label included") {
  for (const bool gradient : {false, true}) {
    check_loss<float>(6, 17, 17, gradient, true);
    check_loss<float>(1, 1, 1, gradient, true);
    check_loss<bf16>(5, 1000, 1008, gradient, true);
    check_loss<bf16>(2, 5000, 5000, gradient, true);
    check_loss<float>(3, 50, 64, gradient, false);
    check_loss<float>(0, 50, 64, gradient, true);
    check_loss<float>(6, 17, 17, gradient, true, 0.25);  // one of four micro-steps
  }
  check_loss<float>(520, 3, 3, true, true);  // more rows than the threads that add them up
}

// Two tensors of one block, one longer than a chunk and one odd.
template <class G, class W>
void check_optimizer(double clip) {
  const size_t counts[] = {static_cast<size_t>(cuda::kOptimizerChunk) + 77, 5};
  const bool master = sizeof(W) == 2;
  std::vector<std::vector<double>> want;
  double sum = 0.5;  // what an earlier block left
  for (size_t t = 0; t < 2; ++t)
    for (const double g : wide(values<G>(10 + t, counts[t]))) sum += g * g;
  reference::AdamWSettings settings{1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 3};
  if (std::sqrt(sum) > clip) settings.gradient_scale = clip / std::sqrt(sum);
  for (size_t t = 0; t < 2; ++t) {
    const auto n = static_cast<std::int64_t>(counts[t]);
    std::vector<double> g = wide(values<G>(10 + t, counts[t])), w = wide(values<W>(20 + t, counts[t])), m = wide(values<float>(30 + t, counts[t], 0.1)), v = wide(values<float>(40 + t, counts[t], 0.1));
    for (double& x : v) x = x * x;
    reference::adamw(settings, matrix(g, 1, n), matrix(w, 1, n), matrix(m, 1, n), matrix(v, 1, n));
    want.push_back(w), want.push_back(m), want.push_back(v);
  }
  const auto got = in_all_orders([&] {
    std::vector<DeviceBuffer<G>> grads;
    std::vector<DeviceBuffer<W>> weights;
    std::vector<DeviceBuffer<float>> m, v, masters;
    std::vector<cuda::ParameterTensor> table;
    std::int64_t chunks = 0;
    for (size_t t = 0; t < 2; ++t) {
      const auto weight = values<W>(20 + t, counts[t]);
      std::vector<float> master_values, squares = values<float>(40 + t, counts[t], 0.1);
      for (const W& x : weight) master_values.push_back(static_cast<float>(x));
      for (float& x : squares) x = x * x;
      grads.emplace_back(values<G>(10 + t, counts[t])), weights.emplace_back(weight), masters.emplace_back(master_values);
      m.emplace_back(values<float>(30 + t, counts[t], 0.1)), v.emplace_back(squares);
      table.push_back({grads[t].data(), weights[t].data(), m[t].data(), v[t].data(), master ? masters[t].data() : nullptr, static_cast<std::int64_t>(counts[t]), chunks});
      chunks += cuda::parameter_chunks(table.back().count);
    }
    DeviceBuffer<cuda::ParameterTensor> tensors(table);
    DeviceBuffer<float> partials(static_cast<size_t>(chunks)), total(1, 0.5f);
    cuda::gradient_norm({dtype_of<G>(), tensors.data(), 2, chunks, false, partials.data(), total.data()}, nullptr);
    cuda::AdamWArgs a;
    a.grad_type = dtype_of<G>(), a.weight_type = dtype_of<W>(), a.tensors = tensors.data(), a.tensor_count = 2, a.chunks = chunks, a.sum = total.data(), a.clip = static_cast<float>(clip);
    cuda::set_adamw(a, 1e-2, 0.9, 0.95, 1e-8, 0.1, 3);
    cuda::adamw(a, nullptr);
    std::vector<std::vector<float>> out;
    for (size_t t = 0; t < 2; ++t) {
      out.push_back(master ? masters[t].host() : narrow(weights[t])), out.push_back(m[t].host()), out.push_back(v[t].host());
      if (master)
        for (size_t i = 0; i < counts[t]; ++i) REQUIRE(static_cast<float>(weights[t][i]) == static_cast<float>(bf16(masters[t][i])));
    }
    out.push_back(total.host());
    return out;
  });
  for (size_t i = 0; i < want.size(); ++i) require_close(got[i], want[i], 1e-5, "AdamW");
  require_close(got.back(), {sum}, 1e-5 * sum, "sum of squares");
}

TEST_CASE("gradient norm, clipping and AdamW equal the reference over a table of tensors") {
  check_optimizer<float, float>(1.0);
  check_optimizer<float, float>(1e6);
  check_optimizer<bf16, bf16>(1.0);
  check_optimizer<float, bf16>(1.0);
}

// One launch over 300 tensors of one to eleven parameters, and five more of whole packs of which one operand each begins an element behind.
template <class G, class W>
void check_many_tensors() {
  const bool master = sizeof(W) == 2;
  std::vector<std::int64_t> counts;
  for (std::int64_t t = 0; t < 300; ++t) counts.push_back(1 + t % 11);
  for (int odd = 0; odd < 5; ++odd) counts.push_back(32);
  const auto shift = [&](std::size_t tensor, int operand) { return tensor < 300 || static_cast<int>(tensor) - 300 == operand ? 1 : 0; };
  std::vector<std::int64_t> first;
  std::int64_t total = 0;
  for (const std::int64_t n : counts) first.push_back(total), total += n + 16 + (8 - n % 8) % 8;  // room for a shift; every piece begins at a whole pack
  const auto all = static_cast<size_t>(total);
  const auto g = values<G>(1, all), w = values<W>(2, all), m = values<float>(3, all, 0.1);
  auto v = values<float>(4, all, 0.1), masters = values<float>(5, all);
  for (float& x : v) x *= x;
  double sum = 0;
  for (size_t t = 0; t < counts.size(); ++t)
    for (std::int64_t i = 0; i < counts[t]; ++i) sum += std::pow(static_cast<double>(static_cast<float>(g[static_cast<size_t>(first[t] + shift(t, 0) + i)])), 2);
  reference::AdamWSettings settings{1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 7};
  settings.gradient_scale = 0.5 / std::sqrt(sum);
  const auto got = in_all_orders([&] {
    DeviceBuffer<G> bg(g);
    DeviceBuffer<W> bw(w);
    DeviceBuffer<float> bm(m), bv(v), bmaster(masters);
    std::vector<cuda::ParameterTensor> table;
    std::int64_t chunks = 0;
    for (size_t t = 0; t < counts.size(); ++t) {
      const std::int64_t at = first[t];
      table.push_back({bg.data() + at + shift(t, 0), bw.data() + at + shift(t, 1), bm.data() + at + shift(t, 2), bv.data() + at + shift(t, 3), master ? bmaster.data() + at + shift(t, 4) : nullptr, counts[t], chunks});
      chunks += cuda::parameter_chunks(counts[t]);
    }
    DeviceBuffer<cuda::ParameterTensor> tensors(table);
    DeviceBuffer<float> partials(static_cast<size_t>(chunks)), norm(1, 77.0f);
    const auto n = static_cast<std::int64_t>(counts.size());
    cuda::gradient_norm({dtype_of<G>(), tensors.data(), n, chunks, true, partials.data(), norm.data()}, nullptr);  // the first block overwrites what was there
    cuda::AdamWArgs a;
    a.grad_type = dtype_of<G>(), a.weight_type = dtype_of<W>(), a.tensors = tensors.data(), a.tensor_count = n, a.chunks = chunks, a.sum = norm.data(), a.clip = 0.5f;
    cuda::set_adamw(a, 1e-2, 0.9, 0.95, 1e-8, 0.1, 7);
    cuda::adamw(a, nullptr);
    return std::array<std::vector<float>, 5>{narrow(bw), bm.host(), bv.host(), bmaster.host(), norm.host()};
  });
  require_close(got[4], {sum}, 1e-5 * sum, "sum of squares");
  std::vector<double> want_w = wide(w), want_m = wide(m), want_v = wide(v), want_master = wide(masters);
  for (size_t t = 0; t < counts.size(); ++t) {
    const auto piece = [&](const std::vector<double>& from, int operand) { return std::vector<double>(from.begin() + first[t] + shift(t, operand), from.begin() + first[t] + shift(t, operand) + counts[t]); };
    std::vector<double> pg = piece(wide(g), 0), pw = master ? piece(want_master, 4) : piece(want_w, 1), pm = piece(want_m, 2), pv = piece(want_v, 3);
    reference::adamw(settings, matrix(pg, 1, counts[t]), matrix(pw, 1, counts[t]), matrix(pm, 1, counts[t]), matrix(pv, 1, counts[t]));
    const auto put = [&](std::vector<double>& to, int operand, const std::vector<double>& from) { std::copy(from.begin(), from.end(), to.begin() + first[t] + shift(t, operand)); };
    put(want_m, 2, pm), put(want_v, 3, pv), put(want_w, 1, pw);
    if (master) put(want_master, 4, pw);
  }
  require_close(got[0], want_w, sizeof(W) == 2 ? tolerance<W>() : 1e-5, "weights");
  require_close(got[1], want_m, 1e-5, "m");
  require_close(got[2], want_v, 1e-5, "v");
  require_close(got[3], want_master, 1e-5, "masters");
}

TEST_CASE("one launch of AdamW covers hundreds of tensors, of which some operands are not aligned") {
  check_many_tensors<float, float>();
  check_many_tensors<bf16, bf16>();
  check_many_tensors<float, bf16>();
}

}  // namespace
}  // namespace fathom
