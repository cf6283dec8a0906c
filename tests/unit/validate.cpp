// Statistics of predicted against measured, worked by hand.
#include "lib/validate.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "lib/error.hpp"

using namespace fathom;

TEST_CASE("accuracy of four items by hand") {
  // predicted, lo, hi, measured, noise      error   |log2|
  const std::vector<GradedItem> items = {
      {1.0, 0.9, 1.1, 1.0, 0.01},       //    0      0
      {2.0, 1.8, 2.2, 1.0, 0.02},       //   +1      1
      {1.0, 0.5, 3.0, 2.0, 0.60},       //   -0.5    1, inside its noise
      {5.0, 5.0, 5.0, 4.0, 0.04},       //   +0.25   0.32193, no interval
  };
  const Accuracy a = accuracy(items);
  CHECK(a.count == 4);
  CHECK(a.mape == Approx((0 + 1 + 0.5 + 0.25) / 4));
  CHECK(a.median == Approx(0.375));      // between 0.25 and 0.5
  CHECK(a.p90 == Approx(0.85));          // 0.9 x 3 = 2.7: 0.5 + 0.7 x 0.5
  CHECK(a.worst == Approx(1));
  CHECK(a.bias == Approx(0.75 / 4));
  CHECK(a.geometric == Approx(std::pow(1.25, 0.25)));  // 1 x 2 x 0.5 x 1.25
  CHECK(a.log2 == Approx((2 + std::log2(1.25)) / 4));
  CHECK(a.wape == Approx(3.0 / 8));      // (0 + 1 + 1 + 1) / (1 + 1 + 2 + 4)
  CHECK(a.within_noise == Approx(0.5));  // the exact one and the noisy one
  CHECK(a.intervals == 3);
  CHECK(a.coverage == Approx(2.0 / 3));
  CHECK(a.noise == Approx(0.03));
}

TEST_CASE("no items, and items that cannot be graded") {
  CHECK(accuracy({}).count == 0);
  CHECK(accuracy({}).geometric == 1);
  CHECK_THROWS_AS(accuracy(std::vector<GradedItem>{{1, 0, 0, 0, 0}}), Error);
  CHECK_THROWS_AS(accuracy(std::vector<GradedItem>{{0, 0, 0, 1, 0}}), Error);
  CHECK(ranking({}).pairs == 0);
  CHECK(ranking(std::vector<GradedItem>{{1, 0, 0, 1, 0}}).tau == 0);
}

TEST_CASE("tau-b, ties inside the noise, and regret") {
  // Without noise: orders 1 2 3 4 against 2 1 3 4: five pairs agree, one does not: (5 - 1) / 6.
  std::vector<GradedItem> items = {{2, 0, 0, 1.00, 0}, {1, 0, 0, 1.05, 0}, {3, 0, 0, 3, 0}, {4, 0, 0, 4, 0}};
  Ranking r = ranking(items);
  CHECK(r.pairs == 6);
  CHECK(r.ties == 0);
  CHECK(r.tau == Approx(4.0 / 6));
  CHECK(r.chance == Approx(std::sqrt(2.0 * 13 / (9 * 4 * 3))));
  CHECK(r.regret == Approx(0.05));          // the second was predicted fastest
  CHECK(r.regret_of_three == Approx(0.0));
  // With 5 % noise the two fastest tie: hypot(0.05, 0.0525) = 0.0725 > 0.05. Five of five agree: 5 / sqrt(5 x 6).
  for (GradedItem& item : items) item.noise = 0.05;
  r = ranking(items);
  CHECK(r.ties == 1);
  CHECK(r.tau == Approx(5 / std::sqrt(30.0)));
  // Reversed order.
  const std::vector<GradedItem> reversed = {{3, 0, 0, 1, 0}, {2, 0, 0, 2, 0}, {1, 0, 0, 3, 0}};
  CHECK(ranking(reversed).tau == Approx(-1));
  CHECK(ranking(reversed).regret == Approx(2));
  // Equal predictions order nothing.
  CHECK(ranking(std::vector<GradedItem>{{1, 0, 0, 1, 0}, {1, 0, 0, 2, 0}}).tau == 0);
}

TEST_CASE("the noise gate is half the target") {
  CHECK_FALSE(too_noisy(0.04, 0.08));
  CHECK(too_noisy(0.041, 0.08));
}
