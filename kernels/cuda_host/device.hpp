// The one device of the process: opened when the first workload is bound, kept to the end, shared by all executions (their algorithms are kept
// with it). Tests put an emulated module in its place.
#pragma once

#include <memory>

#include "kernels/cuda_host/loader.hpp"

namespace fathom::cuda {

class OpenDevice {
 public:
  // Throws Error(kEnvironment) with the designed sentence where there is none.
  explicit OpenDevice(const Module& module);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  const Module& module() const { return module_; }
  Device* device() const { return device_; }
  const DeviceInfo& info() const { return info_; }

 private:
  const Module& module_;
  Device* device_ = nullptr;
  DeviceInfo info_;
};

std::shared_ptr<OpenDevice> the_device();

// One allocation on the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<OpenDevice> device, std::int64_t bytes, const char* what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<OpenDevice> device_;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace fathom::cuda
