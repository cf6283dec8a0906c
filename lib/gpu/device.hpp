// The few datasheet numbers of a GPU that the prediction forms use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::gpu {

struct GpuDevice {
  std::string name;               // "h200"
  std::string board;              // "H200 SXM 141 GB"
  double peak_flops = 0;          // dense bf16 FLOP/s, datasheet
  double dram_bytes_per_s = 0;    // datasheet
  double sms = 0;                 // streaming multiprocessors
  double l2_bytes = 0;            // last-level cache shared by the SMs
};

// The five GPUs of the public tables.
const std::vector<GpuDevice>& known_devices();
// Throws an input Error with the known names.
const GpuDevice& device_named(std::string_view name);

}  // namespace fathom::gpu
