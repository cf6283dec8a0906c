#include "reports/record_rules.hpp"

#include <algorithm>

namespace fathom {
namespace {

constexpr double kLeastDouble = std::numeric_limits<double>::lowest();
constexpr double kMostOfPeak = 1.1;  // above, a fraction of the ceiling is a status (the probe was disturbed) and no number

// Figures with a sign, and shares of a whole.
constexpr std::string_view kSigned[] = {"realised", "router_weight"};
constexpr std::string_view kShares[] = {"participation", "coverage", "interval_coverage", "capacity", "share"};
// Counts that are written as integers.
constexpr std::string_view kWhole[] = {"batch",       "seq",          "prompt",         "tokens",      "past",          "context",       "threads",     "times",         "flops_matmul", "elements_vector", "bytes_read",
                                       "bytes_written", "params_total", "params_active",  "kv_bytes",    "kv_bytes_per_token", "weight_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "peak_bytes",
                                       "arena_bytes", "samples",      "rows_declared",  "run_tokens",  "run_steps",     "run_flops",     "devices",     "kernels",       "profile_passes", "counter_passes"};

template <class List>
bool holds(const List& list, std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

}  // namespace

FigureRange range_of(const Column& column) {
  FigureRange range;
  if (holds(kSigned, column.key)) range.least = kLeastDouble;
  if (column.unit == Unit::kSignedPercent) range.least = -1;  // a change: nothing loses more than all of itself
  if (holds(kShares, column.key)) range.most = 1;
  if (column.key == "peak_fraction") range.most = kMostOfPeak;
  range.whole = holds(kWhole, column.key);
  return range;
}

std::vector<std::string_view> words_of_column(std::string_view key) {
  if (key == "phase") return {"train", "prefill", "decode", "generate"};
  if (key == "verdict") return {"within", "fast", "slow", "faster-than-light", "noisy", "too-short", "out-of-range", "skipped"};
  if (key == "pass") return {"forward", "recompute", "backward", "optimizer"};
  if (key == "rung") return {"counters+activity", "counters", "activity", "events", "host"};
  return {};
}

const std::vector<QuotientRule>& quotient_rules() {
  static const std::vector<QuotientRule> kRules = {
      {"time_ratio", "measured_s", nullptr, "predicted_s"},
      {"error", "predicted_s", nullptr, "measured_s", true},
      {"kernel_error", "predicted_s", nullptr, "kernel_s", true},
      {"profile_overhead", "traced_s", nullptr, "measured_s", true},
      {"counter_flops_ratio", "counter_flops", nullptr, "needed_flops"},
      {"dram_ratio", "dram_bytes_read", "dram_bytes_written", "needed_bytes"},
      {"dram_bytes_per_s", "dram_bytes_read", "dram_bytes_written", "kernel_s"},
      {"sm_clock_hz", "sm_cycles", nullptr, "counter_s"},
      {"achieved_flops_per_s", "flops_expected", nullptr, "measured_s", false, "flops_matmul"},
      {"achieved_bytes_per_s", "bytes_read", "bytes_written", "measured_s"},
  };
  return kRules;
}

const std::vector<OrderRule>& order_rules() {
  static const std::vector<OrderRule> kRules = {
      {"predicted_lo_s", "predicted_hi_s"}, {"predicted_p50_s", "predicted_p95_s"}, {"predicted_p95_s", "predicted_p99_s"}, {"predicted_ttft_s", "predicted_s"}, {"p50_s", "p95_s"},
      {"p95_s", "p99_s"},                   {"min_s", "p50_s"},                     {"min_s", "p95_s"},                     {"ttft_s", "measured_s"},             {"params_active", "params_total"},
      {"weight_bytes", "peak_bytes"},       {"device_busy_s", "device_span_s"},
  };
  return kRules;
}

const std::vector<SumRule>& sum_rules() {
  static const std::vector<SumRule> kRules = {
      {"flops_matmul", "flops_matmul", nullptr},
      {"elements_vector", "elements_vector", nullptr},
      {"bytes_read", "bytes_read", nullptr},
      {"bytes_written", "bytes_written", nullptr},
      {"flops_expected", "flops_expected", "flops_matmul"},
      {"bytes_read_expected", "bytes_read_expected", "bytes_read"},
      {"flops_executed", "flops_executed", nullptr},
      {"normalised_s", "measured_s", nullptr},
      {"kernels", "kernels", nullptr},
      {"kernel_s", "kernel_s", nullptr},
      {"counter_s", "counter_s", nullptr},
      {"sm_cycles", "sm_cycles", nullptr},
      {"l2_bytes", "l2_bytes", nullptr},
      {"dram_bytes_read", "dram_bytes_read", nullptr},
      {"dram_bytes_written", "dram_bytes_written", nullptr},
      {"counter_flops", "counter_flops", nullptr},
      {"needed_flops", "needed_flops", nullptr},
      {"needed_bytes", "needed_bytes", nullptr},
  };
  return kRules;
}

const std::vector<SampleRule>& sample_rules() {
  static const std::vector<SampleRule> kRules = {{"measured_s", 0.5}, {"p50_s", 0.5}, {"p95_s", 0.95}, {"p99_s", 0.99}, {"min_s", 0.0}};
  return kRules;
}

}  // namespace fathom
