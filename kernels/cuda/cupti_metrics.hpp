// Which hardware counters are read on which chip, and in how many passes: checked offline against the host half of the range profiler.
//
// A set has one meaning on every chip and chip-dependent names. One unknown name makes CUPTI refuse a whole set with a bare
// INVALID_PARAMETER, so a counter that a chip lacks is left out here and reported as "not on this chip". Pass counts are those of CUPTI 13.0
// update 1 (tests/cupti/metrics_toolkit.cpp asks the library again).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::cuda {

enum class Counter : std::uint8_t {
  kTime,            // ns
  kDramRead, kDramWritten, kL2,   // bytes
  kTensorBf16, kTensorTf32,       // math_ops: one FMA or one FLOP, calibrated per chip
  kCycles,          // SM cycles elapsed, the most of any SM
  kTensorInstructions,
  kTensorActive,    // % of peak, while elapsed
  kFfma, kFadd, kFmul, kFfma2, kFadd2, kFmul2,  // threads x instructions; the packed ones do two operations each
};
inline constexpr int kCounterCount = 15;

enum class MetricSet : std::uint8_t {
  kStandard,  // time, DRAM, L2, bf16 tensor ops, cycles: one pass
  kPipe,      // + tensor pipe instructions and activity
  kFp32,      // + fp32 instructions (instrumented code: slower) and tf32 tensor ops
};
const char* metric_set_name(MetricSet set);

// Every chip that CUPTI 13.0 update 1 knows, and that counters can be read on.
const std::vector<std::string>& known_chips();
bool chip_known(std::string_view chip);

// Counter values of one range.
using CounterValues = std::map<Counter, double>;

struct Metric {
  Counter counter;
  std::string name;
};
// Those of the set that the chip has, in a fixed order; empty for an unknown chip.
std::vector<Metric> metrics_of(std::string_view chip, MetricSet set);
// Those of the set that it lacks, for the report.
std::vector<Counter> missing_on(std::string_view chip, MetricSet set);
// Replays of the work that the set takes; 0 for an unknown chip.
int expected_passes(std::string_view chip, MetricSet set);
std::string_view counter_meaning(Counter counter);

// FLOP per math_op from one GEMM of known size: 2 where an op is a multiply-add (counted = m n k), 1 where it is a multiply or an add
// (counted = 2 m n k). Padded tiles may raise `counted` by up to a third. 0: neither, so tensor ops mean nothing on this chip.
int flops_per_math_op(double counted, double multiply_adds);

}  // namespace fathom::cuda
