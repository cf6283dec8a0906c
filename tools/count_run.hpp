// What a count says beyond one step: a whole training run, and the utilisation that a known step time means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/network.hpp"
#include "models/scenario.hpp"
#include "reports/record.hpp"

namespace CLI {
class App;
}

namespace fathom {

struct RunFlags {
  std::string run_tokens;         // "14.8T"
  std::string step_time, peak;    // "1.2 s", "989 TFLOP/s" of one device
  std::int64_t devices = 1;
};
void add_run_flags(CLI::App& app, RunFlags& flags);
// Throws Error(kInput) on values that cannot be, Error(kUsage) on a time without a peak.
void check_run_flags(const RunFlags& flags);

// "10000000000000", "1e13", "14.8e12", "14.8T": the integer itself, whatever its size below 2^128. Throws Error(kInput).
u128 parse_tokens(const std::string& text);

// What MFU and HFU divide, and by what.
struct Utilization {
  std::optional<double> model;  // FLOPs of the step as the convention counts them, nothing done again; absent where it gives none
  double executed = 0;          // FLOPs that run
  double seconds = 0, peak = 0; // of the step; FLOP/s of one device
  double possible = 0;          // FLOPs of all devices in that time
};
// With --step-time and --peak given. Throws as check_run_flags does.
Utilization utilization_of(const RunFlags& flags, const std::string& convention, const Network& network, const Scenario& scenario);

// Adds run_steps and run_flops, mfu and hfu (Chowdhery et al., arXiv 2204.02311, appendix B) to a counted result whose convention is set.
void apply_run(const RunFlags& flags, const Network& network, const Scenario& scenario, Result& result);

}  // namespace fathom
