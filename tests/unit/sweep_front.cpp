// The Pareto front of a sweep against its definition.
#include "tools/sweep_front.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/hash_random.hpp"

using namespace fathom;

namespace {

// By the definition: a row is on the front when no row is as good in every objective and better in one.
std::vector<std::uint64_t> front_by_definition(const std::vector<std::vector<double>>& rows) {
  std::vector<std::uint64_t> front;
  for (std::size_t a = 0; a < rows.size(); ++a) {
    const bool dominated = std::any_of(rows.begin(), rows.end(), [&](const std::vector<double>& b) {
      bool better = false, worse = false;
      for (std::size_t i = 0; i < b.size(); ++i) better = better || b[i] < rows[a][i], worse = worse || b[i] > rows[a][i];
      return better && !worse;
    });
    if (!dominated) front.push_back(a);
  }
  return front;
}

}  // namespace

TEST_CASE("the front of a sweep is that of the definition, in the order of the first objective", "[sweep_front]") {
  std::size_t longest = 0, dropped = 0;
  for (int objectives = 1; objectives <= 5; ++objectives)
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      testing::HashRandom random(seed * 5 + static_cast<std::uint64_t>(objectives));
      // Few values, so that rows are equal in one objective, and in all; many, and values that get better from row to row, so that fronts are long and come and go.
      const std::vector<double> scales = {9, 9, 1e6, 1e6, 1e-9};
      const double scale = scales[seed % 5], drift = seed % 3 == 0 ? 3.0 : 0;
      std::vector<std::vector<double>> rows(seed % 5 == 0 ? 40 : 250);
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (int i = 0; i < objectives; ++i) rows[r].push_back(scale * (std::floor(random.uniform() * (seed % 5 < 2 ? 9 : 1e5)) / 9 - drift * static_cast<double>(r * (seed % 2))));
      // A quarter of the seeds: on one plane, so that of three objectives and more nearly all rows are kept.
      if (objectives > 2 && seed % 4 == 1)
        for (std::vector<double>& row : rows) row[0] = scale * 1e5 - row[1] - row[2];
      std::vector<Objective> names;
      for (int i = 0; i < objectives; ++i) names.push_back({std::string(1, static_cast<char>('a' + i)), false});
      SweepFront front(names);
      for (std::size_t i = 0; i < rows.size(); ++i) front.offer(i, rows[i], std::to_string(i));
      const std::vector<SweepFront::Entry> kept = front.sorted();
      std::vector<std::uint64_t> found;
      for (const SweepFront::Entry& entry : kept) {
        found.push_back(entry.row);
        CHECK(entry.line == std::to_string(entry.row));
      }
      CHECK(std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.values < b.values || (a.values == b.values && a.row < b.row); }));
      std::sort(found.begin(), found.end());
      CHECK(found == front_by_definition(rows));
      longest = std::max(longest, found.size());
      dropped += rows.size() - found.size();
    }
  CHECK(longest > 240);
  CHECK(dropped > 20'000);
}

TEST_CASE("a front of every row, and of rows that are all alike", "[sweep_front]") {
  // On a sphere's octant no row is better than another; the last row beats all.
  SweepFront front({{"a", false}, {"b", false}, {"c", false}});
  testing::HashRandom random(7);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const double u = random.uniform(), v = random.uniform();
    front.offer(i, {std::sqrt(u), std::sqrt((1 - u) * v), std::sqrt((1 - u) * (1 - v))}, "on the sphere");
  }
  // sqrt rounds, so that a few neighbours in one value may lose in the others; u differs in all.
  CHECK(front.sorted().size() > 2990);
  front.offer(3000, {-1, -1, -1}, "best");
  REQUIRE(front.sorted().size() == 1);
  CHECK(front.sorted()[0].line == "best");
  for (std::uint64_t i = 3001; i < 4000; ++i) front.offer(i, {-1, -1, -1}, "as good");
  CHECK(front.sorted().size() == 1000);
  front.offer(4000, {-1, -1, -0.5}, "worse");
  CHECK(front.sorted().size() == 1000);
  front.offer(4001, {-1, -1, -2}, "better in one");
  CHECK(front.sorted().size() == 1);
}

TEST_CASE("a yield is better when it is larger", "[sweep_front]") {
  SweepFront front({{"cost", false}, {"yield", true}});
  front.offer(0, {1, 5}, "kept");
  front.offer(1, {2, 5}, "dearer for the same");
  front.offer(2, {2, 9}, "kept");
  front.offer(3, {1, 5}, "equal, kept");
  front.offer(4, {3, 8}, "dearer and less");
  std::vector<std::uint64_t> rows;
  for (const SweepFront::Entry& entry : front.sorted()) rows.push_back(entry.row);
  CHECK(rows == std::vector<std::uint64_t>{0, 3, 2});
}
