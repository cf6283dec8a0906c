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
  for (int objectives = 1; objectives <= 3; ++objectives)
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      testing::HashRandom random(seed * 3 + static_cast<std::uint64_t>(objectives));
      // Few values, so that rows are equal in one objective, and in all.
      std::vector<std::vector<double>> rows(40);
      for (std::vector<double>& row : rows)
        for (int i = 0; i < objectives; ++i) row.push_back(std::floor(random.uniform() * 9));
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
    }
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
