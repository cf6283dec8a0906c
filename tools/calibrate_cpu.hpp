// Calibrating the CPU that fathom runs on: probe, execute designed workloads, fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli.hpp"

namespace fathom {

inline constexpr double kDefaultSeconds = 70;

struct CpuCalibrationFlags {
  std::vector<std::string> models;   // whose shapes are calibrated; empty: small networks of common widths
  std::vector<std::string> dtypes = {"f32"};
  int threads = 0;                   // 0: all physical cores
  double time = 0;                   // seconds for the workloads, after about 15 for the probes; 0: kDefaultSeconds, less where the probes took long
};

// Writes the machine file to every --save FILE.ini, or without one to the cache folder, where predict and compare find it. Other --save names get
// the report.
int calibrate_cpu(const CpuCalibrationFlags& flags, const OutputFlags& output);

}  // namespace fathom
