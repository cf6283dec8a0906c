// Cross-entropy, argmax, sampling, and the probes' sanity.
#include <limits>
#include <map>

#include "kernels/cpu/cross_entropy.hpp"
#include "kernels/cpu/probe_memory.hpp"
#include "kernels/cpu/sampling.hpp"
#include "lib/error.hpp"
#include "tests/kernels/vector_testing.hpp"

using namespace fathom;
using namespace fathom::testing;

TEST_CASE("cross-entropy and its gradient", "[loss]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t vocabulary : {1, 2, 17, 1000, 3001}) {
        const std::int64_t rows = 6, stride = vocabulary + 3;
        INFO("vocabulary " << vocabulary);
        Values values(static_cast<std::uint64_t>(vocabulary));
        Buffer x(type, rows * stride, values, -9, 9), losses(DType::kF32, rows);
        const Buffer before = x;
        std::vector<std::int32_t> labels;
        for (std::int64_t r = 0; r < rows; ++r) labels.push_back(r == 2 ? -1 : static_cast<std::int32_t>(values.bits() % static_cast<std::uint64_t>(vocabulary)));
        const cpu::CrossEntropy shape{type, rows, vocabulary, stride};
        const auto forward = cpu::cross_entropy(shape, x.data(), labels.data(), losses.f32(), 2);
        REQUIRE(x.same_bits(before));
        const auto both = cpu::cross_entropy_and_gradient(shape, x.data(), labels.data(), 0.2f, losses.f32(), 1);
        REQUIRE(forward.tokens == 5);
        REQUIRE(forward.sum == both.sum);  // also: threads do not matter
        double total = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
          double sum = 0;
          for (std::int64_t j = 0; j < vocabulary; ++j) sum += std::exp(before[r * stride + j]);
          const std::int32_t label = labels[static_cast<std::size_t>(r)];
          if (label >= 0) total += std::log(sum) - before[r * stride + label];
          for (std::int64_t j = 0; j < stride; ++j) {
            const double got = x[r * stride + j];
            if (j >= vocabulary) {
              REQUIRE(got == before[r * stride + j]);
            } else if (label < 0) {
              REQUIRE(got == 0);
            } else {
              REQUIRE(close(got, (std::exp(before[r * stride + j]) / sum - (j == label)) * 0.2, type == DType::kF32 ? 3e-6 : 5e-3, type == DType::kF32 ? 1e-3 : 1e-4));
            }
          }
        }
        REQUIRE(both.sum == Approx(total).epsilon(2e-6).margin(1e-6));
        REQUIRE((x.guards_intact() && losses.guards_intact()));
      }
    });
  });
}

TEST_CASE("cross-entropy: large logits, all ignored, bad labels", "[loss]") {
  for_each_isa([] {
    // Logits far from zero and growing along the row: the running maximum is rescaled in every block.
    std::vector<float> x(5000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1000.f + 0.01f * static_cast<float>(i);
    std::int32_t label = 4999;
    float loss = 0;
    const cpu::CrossEntropy shape{DType::kF32, 1, 5000, 5000};
    double sum = 0;
    for (float v : x) sum += std::exp(static_cast<double>(v) - x.back());
    REQUIRE(cpu::cross_entropy(shape, x.data(), &label, &loss, 1).sum == Approx(std::log(sum)).epsilon(1e-5));
    // Masked logits (-infinity) count as zero probability, also when a whole block is masked.
    for (std::size_t i = 0; i < 3000; ++i) x[i] = -std::numeric_limits<float>::infinity();
    sum = 0;
    for (std::size_t i = 3000; i < 5000; ++i) sum += std::exp(static_cast<double>(x[i]) - x.back());
    REQUIRE(cpu::cross_entropy_and_gradient(shape, x.data(), &label, 1, &loss, 1).sum == Approx(std::log(sum)).epsilon(1e-5));
    REQUIRE(x[0] == 0);
    label = -1;
    const auto none = cpu::cross_entropy_and_gradient(shape, x.data(), &label, 1, &loss, 1);
    REQUIRE((none.tokens == 0 && none.sum == 0 && x[4999] == 0));
    label = 5000;
    REQUIRE_THROWS_AS(cpu::cross_entropy(shape, x.data(), &label, &loss, 1), Error);
  });
}

TEST_CASE("argmax: first of equals, NaN, empty", "[sampling]") {
  for_each_isa([] {
    for_each_type([](DType type) {
      for (const std::int64_t n : {1, 15, 16, 17, 1000}) {
        for (std::int64_t where = 0; where < n; where += 1 + n / 7) {
          Values values(static_cast<std::uint64_t>(n + where));
          Buffer x(type, n, values);
          x.set(where, 2);
          if (where + 3 < n) x.set(where + 3, 2);
          REQUIRE(cpu::argmax(type, x.data(), n) == where);
          x.set(n - 1, std::numeric_limits<double>::quiet_NaN());
          REQUIRE(cpu::argmax(type, x.data(), n) == -1);
        }
      }
      Buffer low(type, 20);
      for (int i = 0; i < 20; ++i) low.set(i, -std::numeric_limits<double>::infinity());
      REQUIRE(cpu::argmax(type, low.data(), 20) == 0);
      REQUIRE(cpu::argmax(type, low.data(), 0) == -1);
    });
  });
}

TEST_CASE("sampling follows temperature and nucleus and repeats by seed", "[sampling]") {
  for_each_isa([] {
    // Probabilities 1/2, 1/4, 1/8, 1/16, 1/16 at temperature 1.
    std::vector<float> logits = {std::log(1.f), std::log(8.f), std::log(2.f), std::log(1.f), std::log(4.f)};
    char workspace[64];
    const auto frequency = [&](double temperature, double top_p) {
      std::map<std::int64_t, double> seen;
      for (std::uint64_t i = 0; i < 20000; ++i) {
        seen[cpu::sample_token({temperature, top_p, 42, i}, DType::kF32, logits.data(), 5, workspace)] += 1 / 20000.0;
      }
      return seen;
    };
    auto f = frequency(1, 1);
    const double expected[5] = {1 / 16.0, 1 / 2.0, 1 / 8.0, 1 / 16.0, 1 / 4.0};
    for (int i = 0; i < 5; ++i) REQUIRE(std::fabs(f[i] - expected[i]) < 0.015);  // standard deviation at most 0.0035
    f = frequency(1, 0.7);  // 1/2 + 1/4 reach 0.7: tokens 1 and 4 alone, as 2 : 1
    REQUIRE(f.size() == 2);
    REQUIRE(std::fabs(f[1] - 2 / 3.0) < 0.015);
    f = frequency(0.5, 1);  // squares: 64 of 1 + 64 + 4 + 1 + 16
    REQUIRE(std::fabs(f[1] - 64 / 86.0) < 0.015);
    f = frequency(0, 1);
    REQUIRE((f.size() == 1 && f[1] > 0.99));
    const cpu::Sampling s{1, 0.9, 7, 3};
    REQUIRE(cpu::sample_token(s, DType::kF32, logits.data(), 5, workspace) == cpu::sample_token(s, DType::kF32, logits.data(), 5, workspace));
    logits[2] = std::numeric_limits<float>::quiet_NaN();
    REQUIRE(cpu::sample_token(s, DType::kF32, logits.data(), 5, workspace) == -1);
    REQUIRE_THROWS_AS(cpu::sample_token({1, 0, 0, 0}, DType::kF32, logits.data(), 5, workspace), Error);
  });
}

TEST_CASE("nucleus on a long row stays inside the set", "[sampling]") {
  Values values(8);
  const std::int64_t n = 5000;
  Buffer x(DType::kBF16, n, values, -3, 3);
  std::vector<char> workspace(static_cast<std::size_t>(cpu::sample_workspace_bytes(n)));
  std::vector<double> p;
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) p.push_back(std::exp(x[i])), total += p.back();
  for (std::uint64_t draw = 0; draw < 200; ++draw) {
    const auto token = cpu::sample_token({1, 0.5, 1, draw}, DType::kBF16, x.data(), n, workspace.data());
    REQUIRE((token >= 0 && token < n));
    double above = 0;  // mass strictly more likely than the token: it must not have reached top_p yet
    for (double q : p) above += q > p[static_cast<std::size_t>(token)] ? q : 0;
    REQUIRE(above / total < 0.5 + 1e-4);
  }
  REQUIRE(cpu::uniform_draw(1, 2) != cpu::uniform_draw(1, 3));
  REQUIRE((cpu::uniform_draw(1, 2) >= 0 && cpu::uniform_draw(1, 2) < 1));
}

TEST_CASE("probes return positive rates with their sample counts", "[probe]") {
  cpu::MemoryProbePlan plan;
  plan.bytes_per_thread = {16 << 10, 1 << 20};
  plan.patterns = {cpu::StreamPattern::kRead, cpu::StreamPattern::kCopy, cpu::StreamPattern::kUpdate, cpu::StreamPattern::kTriad,
                   cpu::StreamPattern::kStreamingCopy, cpu::StreamPattern::kGatherRows};
  plan.threads = {1, 2};
  plan.seconds_each = 0.001;
  plan.min_samples = 3;
  const auto results = cpu::probe_memory(plan);
  REQUIRE(results.size() == 24);
  for (const auto& r : results) {
    INFO(r.name << " " << r.bytes_per_thread << " " << r.threads);
    REQUIRE((r.unit == "B/s" && r.value > 0 && r.best >= r.value && r.samples >= 3 && r.spread >= 0));
  }
  for (const auto& r : {cpu::probe_exp(), cpu::probe_region(2), cpu::probe_clock_read(), cpu::probe_topk()}) {
    INFO(r.name);
    REQUIRE((r.unit == "s" && r.value > 0 && r.value < 1 && r.best <= r.value && r.samples >= 15));
  }
  REQUIRE_THROWS_AS(cpu::probe_stream(cpu::StreamPattern::kTriad, nullptr, 1024, 1, 0.001, 1), Error);
}

TEST_CASE("the instruction set can be forced and is refused where missing", "[isa]") {
  const auto all = cpu::supported_vector_isas();
  REQUIRE(!all.empty());
  REQUIRE(all.front() == cpu::VectorIsa::kBaseline);
  for_each_isa([] {});
  REQUIRE(cpu::active_vector_isa() == all.back());
  if (!cpu::vector_isa_supported(cpu::VectorIsa::kAvx512)) REQUIRE_THROWS_AS(cpu::force_vector_isa(cpu::VectorIsa::kAvx512), Error);
}
