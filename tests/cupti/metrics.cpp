// The tables of counters by themselves; metrics_toolkit.cpp asks the library whether they are true.
#include <catch2/catch.hpp>

#include "kernels/cuda/cupti_metrics.hpp"

using namespace fathom::cuda;

TEST_CASE("math ops per multiply-add are one or two, or nothing") {
  CHECK(flops_per_math_op(1e9, 1e9) == 2);          // one op per multiply-add
  CHECK(flops_per_math_op(2e9, 1e9) == 1);
  CHECK(flops_per_math_op(1.3e9, 1e9) == 2);        // padded tiles
  CHECK(flops_per_math_op(2.6e9, 1e9) == 1);
  CHECK(flops_per_math_op(0, 1e9) == 0);            // did not take the tensor path
  CHECK(flops_per_math_op(1.5e9, 1e9) == 0);        // neither
  CHECK(flops_per_math_op(0.5e9, 1e9) == 0);
  CHECK(flops_per_math_op(3e9, 1e9) == 0);
  CHECK(flops_per_math_op(1e9, 0) == 0);
}

TEST_CASE("tables are whole and say what a chip lacks") {
  CHECK(known_chips().size() == 29);
  for (const char* chip : {"GA100", "GH100", "GB100", "AD102"}) {
    CHECK(metrics_of(chip, MetricSet::kStandard).size() == 6);
    CHECK(missing_on(chip, MetricSet::kStandard).empty());
    CHECK(expected_passes(chip, MetricSet::kStandard) == 1);
    CHECK(expected_passes(chip, MetricSet::kPipe) == 2);
  }
  CHECK(metrics_of("GB202", MetricSet::kStandard)[1].name == "dram__bytes_op_read.sum");
  CHECK(missing_on("GB10B", MetricSet::kStandard) == std::vector<Counter>{Counter::kDramRead, Counter::kDramWritten});
  CHECK(metrics_of("GX999", MetricSet::kStandard).empty());
  CHECK(missing_on("GX999", MetricSet::kStandard).size() == 6);
  CHECK(expected_passes("GX999", MetricSet::kStandard) == 0);
  CHECK_FALSE(chip_known("gh100"));   // CUPTI's names are upper case
}
