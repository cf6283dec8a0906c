#include "models/validation.hpp"

#include <fmt/format.h>

#include <array>
#include <span>

#include "lib/error.hpp"
#include "models/calibration.hpp"

namespace fathom {
namespace {

// One line of the set. `length` is the context of a decode step. Capacity 0: not routed.
struct Entry {
  std::int64_t width, layers;
  Fraction capacity;
  Phase phase;
  std::int64_t batch, length;
  std::int64_t experts = 0;
  bool quick = false;
};

constexpr Fraction kDense{0, 1}, kEighth{1, 8}, kQuarter{1, 4}, kHalf{1, 2};

// Row counts keep off the calibrated ones (models/calibration.cpp); the run checks that.
constexpr Entry kFirst[] = {
    {256, 4, kDense, Phase::kPrefill, 4, 256, 0, true},
    {256, 4, kQuarter, Phase::kPrefill, 4, 256, 0, true},
    {256, 4, kEighth, Phase::kPrefill, 4, 256},
    {512, 4, kDense, Phase::kPrefill, 3, 192, 0, true},
    {512, 4, kEighth, Phase::kPrefill, 3, 192, 0, true},
    {768, 2, kDense, Phase::kPrefill, 1, 640},
    {768, 2, kEighth, Phase::kPrefill, 1, 640},
    {768, 2, kHalf, Phase::kPrefill, 1, 640},
    {1024, 2, kDense, Phase::kPrefill, 1, 512, 0, true},
    {1024, 2, kQuarter, Phase::kPrefill, 1, 512, 0, true},
    {384, 3, kDense, Phase::kPrefill, 2, 300},
    {384, 4, kQuarter, Phase::kPrefill, 2, 300},
    {640, 2, kDense, Phase::kPrefill, 1, 480},
    {256, 4, kDense, Phase::kTrain, 2, 192, 0, true},
    {256, 4, kEighth, Phase::kTrain, 2, 192, 0, true},
    {512, 2, kDense, Phase::kTrain, 1, 448},
    {512, 2, kQuarter, Phase::kTrain, 1, 448},
    {768, 2, kDense, Phase::kTrain, 1, 256, 0, true},
    {768, 2, kEighth, Phase::kTrain, 1, 256, 0, true},
    {1024, 2, kDense, Phase::kTrain, 1, 160},
    {1024, 2, kEighth, Phase::kTrain, 1, 160},
    {256, 4, kDense, Phase::kDecode, 4, 512, 0, true},
    {256, 4, kQuarter, Phase::kDecode, 4, 512},
    {512, 4, kDense, Phase::kDecode, 8, 300, 0, true},
    {512, 4, kEighth, Phase::kDecode, 8, 300, 0, true},
    {768, 3, kDense, Phase::kDecode, 3, 900},
    {768, 4, kHalf, Phase::kDecode, 3, 900},
    {1024, 2, kDense, Phase::kDecode, 6, 256},
    {1024, 2, kEighth, Phase::kDecode, 6, 256},
    {512, 2, kDense, Phase::kPrefill, 1, 400, 4, true},
    {512, 2, kQuarter, Phase::kPrefill, 1, 400, 4},
    {512, 2, kDense, Phase::kTrain, 1, 320, 4},
};

// Longer and deeper, three and two sequences, two other widths: nobody looked at it before the models were finished for the first time.
constexpr Entry kSecond[] = {
    {256, 6, kDense, Phase::kPrefill, 2, 1000, 0, true},
    {256, 6, kQuarter, Phase::kPrefill, 2, 1000, 0, true},
    {512, 3, kDense, Phase::kPrefill, 2, 720, 0, true},
    {512, 3, kHalf, Phase::kPrefill, 2, 720},
    {512, 3, kEighth, Phase::kPrefill, 2, 720, 0, true},
    {768, 3, kDense, Phase::kPrefill, 1, 900},
    {768, 3, kQuarter, Phase::kPrefill, 1, 900},
    {1024, 2, kDense, Phase::kPrefill, 3, 416, 0, true},
    {1024, 2, kEighth, Phase::kPrefill, 3, 416, 0, true},
    {448, 4, kDense, Phase::kPrefill, 2, 640},
    {448, 4, kEighth, Phase::kPrefill, 2, 640},
    {896, 2, kDense, Phase::kPrefill, 1, 832},
    {896, 2, kHalf, Phase::kPrefill, 1, 832},
    {256, 6, kDense, Phase::kTrain, 4, 208, 0, true},
    {256, 6, kQuarter, Phase::kTrain, 4, 208, 0, true},
    {512, 3, kDense, Phase::kTrain, 2, 304},
    {512, 3, kEighth, Phase::kTrain, 2, 304},
    {768, 2, kDense, Phase::kTrain, 3, 192, 0, true},
    {768, 2, kHalf, Phase::kTrain, 3, 192, 0, true},
    {1024, 2, kDense, Phase::kTrain, 1, 400},
    {1024, 2, kQuarter, Phase::kTrain, 1, 400},
    {448, 3, kDense, Phase::kTrain, 2, 320},
    {256, 6, kDense, Phase::kDecode, 6, 800, 0, true},
    {256, 6, kEighth, Phase::kDecode, 6, 800},
    {512, 6, kDense, Phase::kDecode, 3, 600, 0, true},
    {512, 6, kQuarter, Phase::kDecode, 3, 600, 0, true},
    {768, 4, kDense, Phase::kDecode, 6, 450},
    {768, 4, kEighth, Phase::kDecode, 6, 450},
    {1024, 3, kDense, Phase::kDecode, 4, 640},
    {1024, 3, kHalf, Phase::kDecode, 4, 640},
    {448, 4, kDense, Phase::kDecode, 4, 400},
    {512, 3, kDense, Phase::kPrefill, 2, 480, 4, true},
    {512, 3, kQuarter, Phase::kPrefill, 2, 480, 4},
    {512, 2, kDense, Phase::kTrain, 1, 500, 4},
};

// Other depths, row counts, batches and capacities than the first two, and two widths that neither has: nobody looked at it before the models were as they are.
constexpr Entry kThird[] = {
    {256, 5, kDense, Phase::kPrefill, 3, 432, 0, true},
    {256, 5, kEighth, Phase::kPrefill, 3, 432, 0, true},
    {512, 5, kDense, Phase::kPrefill, 1, 850, 0, true},
    {512, 5, kQuarter, Phase::kPrefill, 1, 850, 0, true},
    {768, 2, kDense, Phase::kPrefill, 2, 352},
    {768, 2, kQuarter, Phase::kPrefill, 2, 352},
    {768, 2, kHalf, Phase::kPrefill, 2, 352},
    {1024, 2, kDense, Phase::kPrefill, 1, 608},
    {1024, 2, kHalf, Phase::kPrefill, 1, 608},
    {1024, 2, kEighth, Phase::kPrefill, 1, 608},
    {320, 4, kDense, Phase::kPrefill, 4, 250, 0, true},
    {320, 4, kQuarter, Phase::kPrefill, 4, 250},
    {576, 3, kDense, Phase::kPrefill, 1, 760},
    {576, 3, kEighth, Phase::kPrefill, 1, 760},
    {256, 5, kDense, Phase::kTrain, 3, 160, 0, true},
    {256, 5, kHalf, Phase::kTrain, 3, 160, 0, true},
    {512, 3, kDense, Phase::kTrain, 3, 140},
    {512, 3, kHalf, Phase::kTrain, 3, 140},
    {768, 2, kDense, Phase::kTrain, 1, 432},
    {768, 2, kEighth, Phase::kTrain, 1, 432},
    {1024, 2, kDense, Phase::kTrain, 2, 140, 0, true},
    {1024, 2, kQuarter, Phase::kTrain, 2, 140, 0, true},
    {320, 4, kDense, Phase::kTrain, 2, 260},
    {576, 2, kDense, Phase::kTrain, 1, 300},
    {256, 5, kDense, Phase::kDecode, 8, 350},
    {256, 5, kQuarter, Phase::kDecode, 8, 350},
    {512, 5, kDense, Phase::kDecode, 4, 450, 0, true},
    {512, 5, kEighth, Phase::kDecode, 4, 450, 0, true},
    {768, 4, kDense, Phase::kDecode, 4, 550, 0, true},
    {768, 4, kQuarter, Phase::kDecode, 4, 550},
    {1024, 2, kDense, Phase::kDecode, 8, 380},
    {1024, 2, kEighth, Phase::kDecode, 8, 380},
    {320, 4, kDense, Phase::kDecode, 3, 750},
    {576, 4, kDense, Phase::kDecode, 4, 500},
    {576, 4, kHalf, Phase::kDecode, 4, 500},
    {512, 2, kDense, Phase::kPrefill, 1, 620, 4, true},
    {512, 2, kQuarter, Phase::kPrefill, 1, 620, 4},
    {512, 2, kDense, Phase::kTrain, 1, 380, 4},
};

// The calibrated shape of this width, or one made alike.
SmallShape shape_of(std::int64_t width, std::int64_t experts, bool& seen) {
  for (const SmallShape& shape : small_shapes())
    if (shape.width == width && shape.experts == experts) {
      seen = true;
      return shape;
    }
  seen = false;
  return {width, width / 64, 64, 4 * width, false, experts, experts > 0 ? 1 : 0};
}

ValidationCase make_case(const Entry& e) {
  ValidationCase c;
  c.network = small_network(shape_of(e.width, e.experts, c.seen_width), e.layers);
  const bool routed = e.capacity.num > 0;
  if (routed) {
    Route route;
    route.capacity = e.capacity;
    c.network = with_routes(c.network, 2, route);
  }
  c.family = e.experts > 0 ? (routed ? "mode" : "moe") : routed ? "mod" : "dense";
  c.network.name = fmt::format("{}-{}", c.family, e.width);
  c.label = fmt::format("{} x{}{}, {} {} x {}", c.network.name, e.layers, routed ? fmt::format(", {}/{}", e.capacity.num, e.capacity.den) : "", phase_name(e.phase), e.batch, e.length);
  c.scenario.phase = e.phase;
  c.scenario.batch = e.batch;
  (e.phase == Phase::kDecode ? c.scenario.context : c.scenario.length) = e.length;
  c.scenario.logits = e.phase == Phase::kDecode ? LogitsKind::kLast : LogitsKind::kAll;
  return c;
}

}  // namespace

std::vector<ValidationCase> validation_set(int set, bool quick) {
  if (set < 1 || set > kValidationSets) throw_internal("validation_set: there is no such set");
  std::vector<ValidationCase> cases;
  constexpr std::array<std::span<const Entry>, kValidationSets> kSets = {kFirst, kSecond, kThird};
  for (const Entry& entry : kSets[static_cast<size_t>(set - 1)])
    if (entry.quick || !quick) cases.push_back(make_case(entry));
  return cases;
}

}  // namespace fathom
