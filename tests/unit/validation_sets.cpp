// What the validation sets promise: products that neither the calibration nor an older set has.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <tuple>

#include "lib/predict/calibrate.hpp"
#include "models/builder.hpp"
#include "models/calibration.hpp"
#include "models/validation.hpp"

using namespace fathom;

namespace {

using Product = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>;  // kind, rows, n, k

std::set<Product> products_of(const Network& network, const Scenario& scenario) {
  std::set<Product> found;
  const Workload w = build(network, scenario);
  for (const Op& op : w.ops()) {
    const auto* gemm = std::get_if<Gemm>(&op.spec);
    if (!gemm || rows_of(op.spec).routed()) continue;  // rows that are drawn are no calibration points
    const double groups = product_groups(*gemm, declared(op.spec));
    const ProductShape shape = product_shape(*gemm, static_cast<double>(gemm->rows.count) / groups);
    found.insert({gemm_variant(*gemm), std::llround(shape.rows), shape.n, shape.k});
  }
  return found;
}

std::set<Product> products_of(int set) {
  std::set<Product> found;
  for (const ValidationCase& c : validation_set(set, false)) found.merge(products_of(c.network, c.scenario));
  return found;
}

// Those that both have, for people.
std::string common(const std::set<Product>& a, const std::set<Product>& b) {
  std::string text;
  for (const Product& p : a)
    if (b.count(p)) text += std::get<0>(p) + " " + std::to_string(std::get<1>(p)) + " x " + std::to_string(std::get<2>(p)) + " x " + std::to_string(std::get<3>(p)) + "; ";
  return text;
}

}  // namespace

TEST_CASE("the set that claims are made from shares no product with the calibration or an older set") {
  const std::set<Product> last = products_of(kValidationSets);
  CHECK(last.size() > 200);
  std::set<Product> calibrated;
  for (const CalibrationCase& c : default_calibration_set(DType::kF32)) calibrated.merge(products_of(c.network, c.scenario));
  CHECK(common(last, calibrated) == "");
  for (int set = 1; set < kValidationSets; ++set) CHECK(common(last, products_of(set)) == "");
}

TEST_CASE("every set has all phases and families, and its quick part has too") {
  for (int set = 1; set <= kValidationSets; ++set)
    for (const bool quick : {false, true}) {
      INFO("set " << set << (quick ? ", quick" : ""));
      std::set<Phase> phases;
      std::set<std::string> families, labels;
      for (const ValidationCase& c : validation_set(set, quick)) {
        phases.insert(c.scenario.phase);
        families.insert(c.family);
        CHECK(labels.insert(c.label).second);
      }
      CHECK(phases.size() == 3);
      CHECK(families.size() >= (quick ? 3 : 4));
      CHECK(labels.size() >= (quick ? 8 : 24));
    }
}
