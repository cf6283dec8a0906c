// More threads fill weights with the same bits.
#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "lib/fill.hpp"
#include "lib/fill_threads.hpp"

using namespace fathom;

TEST_CASE("weights have the same contents whatever the number of threads that fill them") {
  Tensor tensor;
  tensor.name = "layers/mlp/up";
  tensor.rows = 1031, tensor.cols = 1031;  // 1 062 961 elements: four threads, the last part not a multiple of four
  const auto filled = [&](FillKind kind) {
    std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
    fill_weight(tensor, 2, 7, kind, values);
    return values;
  };
  for (const FillKind kind : {FillKind::kTest, FillKind::kTraining}) {
    const std::vector<float> one = filled(kind);
    CHECK(one[1] != one[2]);
    for (const int threads : {0, 2, 3, 16}) {
      const FillThreads more(threads);
      CHECK(filled(kind) == one);
    }
    CHECK(filled(kind) == one);
    std::vector<float> part(1000);
    fill_weight(tensor, 2, 7, kind, part, 524288);
    CHECK(std::equal(part.begin(), part.end(), one.begin() + 524288));
  }
}
