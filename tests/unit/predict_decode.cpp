// Decode with random rows: its bound, its table, and the U-shape of the gain against the batch.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "lib/predict/binomial.hpp"

using namespace fathom;

namespace {

// One step of L layers, every second routed at p, KV policy 1 (selected rows only), ideal compaction; router, writes and launches left out.
struct Shape {
  double width, heads, kv_heads, head_dim, mlp, vocab;
  int matrices, layers;  // of the MLP: 2 plain, 3 gated
};
constexpr double kBandwidth = 4.0e12, kPeak = 6.0e14, kShare = 1.0 / 8;

struct Step {
  double dense = 0, expected = 0, at_mean = 0, p50 = 0, p95 = 0, p99 = 0;
};

Step step_of(const Shape& s, double context, std::int64_t batch) {
  const double hidden = s.heads * s.head_dim, kappa = 2 * s.kv_heads * s.head_dim;
  const double weights = s.width * (hidden + kappa) + hidden * s.width + s.matrices * s.width * s.mlp;
  const double n_max = static_cast<double>(batch);
  const auto block = [&](double rows, double keys) {
    return rows == 0 ? 0.0 : std::max(2 * (weights + rows * keys * kappa) / kBandwidth, (2 * rows * weights + 4 * rows * keys * hidden) / kPeak);
  };
  const double head = std::max(2 * s.vocab * s.width / kBandwidth, 2 * n_max * s.vocab * s.width / kPeak);
  const int routed = s.layers / 2, plain = s.layers - routed;
  Step step;
  step.dense = s.layers * block(n_max, context) + head;
  RandomTerm term;
  term.probability = binomial(batch, kShare);
  term.repeats = routed;
  for (std::int64_t n = 0; n <= batch; ++n) term.time.push_back(block(static_cast<double>(n), kShare * context));
  const double base = plain * block(n_max, context) + head;
  double mean = 0;
  for (size_t n = 0; n < term.time.size(); ++n) mean += term.probability[n] * term.time[n];
  step.expected = base + routed * mean;
  step.at_mean = base + routed * block(std::max(1.0, std::round(n_max * kShare)), kShare * context);
  const TimeDistribution d = sum_of_terms(base, {term});
  CHECK(d.mean() == Approx(step.expected).epsilon(1e-9));
  step.p50 = d.quantile(0.5), step.p95 = d.quantile(0.95), step.p99 = d.quantile(0.99);
  return step;
}

constexpr Shape kLlama3{4096, 32, 8, 128, 14336, 128256, 3, 32};
constexpr Shape kLlama2{4096, 32, 32, 128, 11008, 32000, 3, 32};
constexpr Shape k217{896, 14, 14, 64, 3584, 32000, 2, 18};

}  // namespace

TEST_CASE("what the mean costs: a table") {
  struct Row {
    std::int64_t batch;
    double dense, expected, at_mean, p50, p95, p99;  // microseconds
  };
  const Row rows[] = {{1, 3819, 2259.7, 3790.1, 2260, 2478, 2588},  {2, 3887, 2484.6, 3823.6, 2512, 2840, 2949},  {4, 4021, 2865.9, 3890.7, 2907, 3235, 3345},
                      {8, 4289, 3425.4, 4025.0, 3479, 3806, 3917},  {16, 4826, 4091.6, 4297.6, 4080, 4299, 4301}, {32, 5900, 4818.5, 4842.8, 4842, 4846, 4847}};
  for (const Row& r : rows) {
    INFO("batch " << r.batch);
    const Step s = step_of(kLlama3, 2048, r.batch);
    CHECK(s.dense * 1e6 == Approx(r.dense).margin(0.51));
    CHECK(s.expected * 1e6 == Approx(r.expected).margin(0.06));
    CHECK(s.at_mean * 1e6 == Approx(r.at_mean).margin(0.06));
    // Quantiles stand on a grid of 1 % of a block, 1.1 us; splitting masses between its points widens the tails by a few of them.
    CHECK(s.p50 * 1e6 == Approx(r.p50).margin(3.5));
    CHECK(s.p95 * 1e6 == Approx(r.p95).margin(3.5));
    CHECK(s.p99 * 1e6 == Approx(r.p99).margin(3.5));
  }
}

TEST_CASE("the gain against the batch is U-shaped") {
  struct Line {
    Shape shape;
    double context;
    double gain[8];  // batch 1, 4, 8, 16, 32, 64, 128, 256
  };
  const std::int64_t batches[] = {1, 4, 8, 16, 32, 64, 128, 256};
  const Line lines[] = {{k217, 0, {1.60, 1.34, 1.17, 1.05, 1.01, 1.00, 1.00, 1.22}},       {k217, 2048, {1.68, 1.63, 1.66, 1.73, 1.82, 1.89, 1.93, 1.94}},
                        {kLlama3, 0, {1.69, 1.37, 1.19, 1.06, 1.01, 1.00, 1.00, 1.24}},    {kLlama3, 2048, {1.69, 1.40, 1.25, 1.18, 1.22, 1.36, 1.52, 1.67}},
                        {kLlama3, 8192, {1.70, 1.47, 1.39, 1.41, 1.53, 1.68, 1.80, 1.87}}, {kLlama2, 2048, {1.77, 1.51, 1.42, 1.44, 1.56, 1.70, 1.81, 1.88}}};
  for (const Line& line : lines)
    for (int i = 0; i < 8; ++i) {
      INFO("width " << line.shape.width << ", context " << line.context << ", batch " << batches[i]);
      const Step s = step_of(line.shape, line.context, batches[i]);
      CHECK(s.dense / s.expected == Approx(line.gain[i]).margin(0.0051));
    }
}
