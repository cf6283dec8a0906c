#include "kernels/cuda/cupti_metrics.hpp"

#include <algorithm>

namespace fathom::cuda {
namespace {

enum class Dram : std::uint8_t { kPlain, kOp, kNone };  // dram__bytes_read, dram__bytes_op_read, no DRAM counters (shared memory with the host)

struct Chip {
  const char* name;
  Dram dram;
  bool tensor;   // sm__ops_path_tensor_*: sm_80 and later
  bool packed;   // ffma2, fadd2, fmul2
  int standard, pipe, fp32;  // passes
};

// GA100: A100. GH100: H100, H200. GB100: B200. AD102: L40S, RTX 4090. GB202: RTX 5090.
constexpr Chip kChips[] = {
    {"GV100", Dram::kPlain, false, false, 1, 2, 2}, {"TU102", Dram::kPlain, false, false, 1, 1, 2}, {"TU104", Dram::kPlain, false, false, 1, 1, 2},
    {"TU106", Dram::kPlain, false, false, 1, 1, 2}, {"TU116", Dram::kPlain, false, false, 1, 1, 2}, {"TU117", Dram::kPlain, false, false, 1, 1, 2},
    {"GA100", Dram::kPlain, true, false, 1, 2, 3},  {"GA102", Dram::kPlain, true, false, 1, 2, 3},  {"GA103", Dram::kPlain, true, false, 1, 2, 3},
    {"GA104", Dram::kPlain, true, false, 1, 2, 3},  {"GA106", Dram::kPlain, true, false, 1, 2, 3},  {"GA107", Dram::kPlain, true, false, 1, 2, 3},
    {"GA10B", Dram::kNone, true, false, 1, 2, 3},   {"GH100", Dram::kPlain, true, false, 1, 2, 3},  {"AD102", Dram::kPlain, true, false, 1, 2, 3},
    {"AD103", Dram::kPlain, true, false, 1, 2, 3},  {"AD104", Dram::kPlain, true, false, 1, 2, 3},  {"AD106", Dram::kPlain, true, false, 1, 2, 3},
    {"AD107", Dram::kPlain, true, false, 1, 2, 3},  {"GB100", Dram::kPlain, true, true, 1, 2, 3},   {"GB102", Dram::kPlain, true, true, 1, 2, 3},
    {"GB110", Dram::kPlain, true, true, 1, 2, 3},   {"GB10B", Dram::kNone, true, false, 1, 2, 3},   {"GB202", Dram::kOp, true, false, 1, 2, 3},
    {"GB203", Dram::kOp, true, false, 1, 2, 3},     {"GB205", Dram::kOp, true, false, 1, 2, 3},     {"GB206", Dram::kOp, true, false, 1, 2, 3},
    {"GB207", Dram::kOp, true, false, 1, 2, 3},     {"GB20B", Dram::kNone, true, false, 1, 2, 3},
};

const Chip* find(std::string_view name) {
  for (const Chip& chip : kChips)
    if (name == chip.name) return &chip;
  return nullptr;
}

std::vector<Counter> counters_of(MetricSet set) {
  using enum Counter;
  switch (set) {
    case MetricSet::kStandard: return {kTime, kDramRead, kDramWritten, kL2, kTensorBf16, kCycles};
    case MetricSet::kPipe: return {kTime, kDramRead, kDramWritten, kL2, kTensorBf16, kCycles, kTensorInstructions, kTensorActive};
    case MetricSet::kFp32: return {kTime, kDramRead, kDramWritten, kL2, kTensorBf16, kCycles, kFfma, kFadd, kFmul, kFfma2, kFadd2, kFmul2, kTensorTf32};
  }
  return {};
}

// "" where the chip has no such counter.
std::string metric_name(const Chip& chip, Counter counter) {
  switch (counter) {
    case Counter::kTime: return "gpu__time_duration.sum";
    case Counter::kDramRead: return chip.dram == Dram::kPlain ? "dram__bytes_read.sum" : chip.dram == Dram::kOp ? "dram__bytes_op_read.sum" : "";
    case Counter::kDramWritten: return chip.dram == Dram::kPlain ? "dram__bytes_write.sum" : chip.dram == Dram::kOp ? "dram__bytes_op_write.sum" : "";
    case Counter::kL2: return "lts__t_bytes.sum";
    case Counter::kTensorBf16: return chip.tensor ? "sm__ops_path_tensor_src_bf16_dst_fp32.sum" : "";
    case Counter::kTensorTf32: return chip.tensor ? "sm__ops_path_tensor_src_tf32_dst_fp32.sum" : "";
    case Counter::kCycles: return "sm__cycles_elapsed.max";
    case Counter::kTensorInstructions: return "sm__inst_executed_pipe_tensor.sum";
    case Counter::kTensorActive: return "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
    case Counter::kFfma: return "sm__sass_thread_inst_executed_op_ffma_pred_on.sum";
    case Counter::kFadd: return "sm__sass_thread_inst_executed_op_fadd_pred_on.sum";
    case Counter::kFmul: return "sm__sass_thread_inst_executed_op_fmul_pred_on.sum";
    case Counter::kFfma2: return chip.packed ? "sm__sass_thread_inst_executed_op_ffma2_pred_on.sum" : "";
    case Counter::kFadd2: return chip.packed ? "sm__sass_thread_inst_executed_op_fadd2_pred_on.sum" : "";
    case Counter::kFmul2: return chip.packed ? "sm__sass_thread_inst_executed_op_fmul2_pred_on.sum" : "";
  }
  return {};
}

}  // namespace

const char* metric_set_name(MetricSet set) { return set == MetricSet::kStandard ? "standard" : set == MetricSet::kPipe ? "pipe" : "fp32"; }

const std::vector<std::string>& known_chips() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Chip& chip : kChips) list.emplace_back(chip.name);
    return list;
  }();
  return names;
}

bool chip_known(std::string_view chip) { return find(chip) != nullptr; }

std::vector<Metric> metrics_of(std::string_view name, MetricSet set) {
  const Chip* chip = find(name);
  std::vector<Metric> metrics;
  if (!chip) return metrics;
  for (const Counter counter : counters_of(set))
    if (std::string metric = metric_name(*chip, counter); !metric.empty()) metrics.push_back({counter, std::move(metric)});
  return metrics;
}

std::vector<Counter> missing_on(std::string_view name, MetricSet set) {
  std::vector<Counter> missing;
  const Chip* chip = find(name);
  for (const Counter counter : counters_of(set))
    if (!chip || metric_name(*chip, counter).empty()) missing.push_back(counter);
  return missing;
}

int expected_passes(std::string_view name, MetricSet set) {
  const Chip* chip = find(name);
  if (!chip) return 0;
  return set == MetricSet::kStandard ? chip->standard : set == MetricSet::kPipe ? chip->pipe : chip->fp32;
}

std::string_view counter_meaning(Counter counter) {
  switch (counter) {
    case Counter::kTime: return "time";
    case Counter::kDramRead: return "DRAM bytes read";
    case Counter::kDramWritten: return "DRAM bytes written";
    case Counter::kL2: return "L2 bytes";
    case Counter::kTensorBf16: return "bf16 tensor ops";
    case Counter::kTensorTf32: return "tf32 tensor ops";
    case Counter::kCycles: return "SM cycles";
    case Counter::kTensorInstructions: return "tensor pipe instructions";
    case Counter::kTensorActive: return "tensor pipe activity";
    case Counter::kFfma: return "fp32 multiply-add instructions";
    case Counter::kFadd: return "fp32 add instructions";
    case Counter::kFmul: return "fp32 multiply instructions";
    case Counter::kFfma2: return "packed fp32 multiply-add instructions";
    case Counter::kFadd2: return "packed fp32 add instructions";
    case Counter::kFmul2: return "packed fp32 multiply instructions";
  }
  return {};
}

int flops_per_math_op(double counted, double multiply_adds) {
  if (!(counted > 0) || !(multiply_adds > 0)) return 0;
  const double ratio = counted / multiply_adds;
  constexpr double kBelow = 0.95, kPadding = 4.0 / 3.0;
  if (ratio >= kBelow && ratio <= kPadding) return 2;
  if (ratio >= 2 * kBelow && ratio <= 2 * kPadding) return 1;
  return 0;
}

}  // namespace fathom::cuda
