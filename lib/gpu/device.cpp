#include "lib/gpu/device.hpp"

#include "lib/error.hpp"

namespace fathom::gpu {

const std::vector<GpuDevice>& known_devices() {
  static const std::vector<GpuDevice> devices = {
      {"h200", "H200 SXM 141 GB", 989e12, 4.8e12, 132, 50e6},
      {"h100", "H100 SXM 80 GB", 989e12, 3.35e12, 132, 50e6},
      {"a100", "A100-SXM4-80GB", 312e12, 2.039e12, 108, 40e6},
      {"b200", "B200", 2250e12, 8.0e12, 148, 126e6},
      {"l40s", "L40S", 362e12, 0.864e12, 142, 96e6},
  };
  return devices;
}

const GpuDevice& device_named(std::string_view name) {
  std::vector<std::string> names;
  for (const GpuDevice& device : known_devices()) {
    if (device.name == name) return device;
    names.push_back(device.name);
  }
  throw_input("unknown GPU '" + std::string(name) + "'", {}, name_hint(name, names));
}

}  // namespace fathom::gpu
