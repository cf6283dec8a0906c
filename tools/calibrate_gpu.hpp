// Calibrating the GPU that fathom runs on: ceilings, bandwidths, launch costs and designed points measured through the CUDA backend's module, then
// the same fit as from public tables.
#pragma once

#include "reports/document.hpp"
#include "tools/cli.hpp"

namespace fathom {

namespace cuda {
struct DeviceProbe;
}

// For each --save NAME.ini the machine file, with NAME.gpu beside it where the chip is known; other names get the report. `seconds` are those of the
// probes; the fit takes a few more.
int calibrate_gpu(double seconds, int folds, std::uint64_t seed, const OutputFlags& output);

// The report of a probe, and the fitted model's text (empty: this chip is not one that can be fitted). Exposed for tests.
struct GpuCalibration {
  std::string machine;
  std::string model;
  Document document;
};
GpuCalibration gpu_calibration(const cuda::DeviceProbe& probe, int folds, std::uint64_t seed);

}  // namespace fathom
