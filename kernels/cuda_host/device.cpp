#include "kernels/cuda_host/device.hpp"

#include <fmt/format.h>

#include <utility>

#include "lib/error.hpp"

namespace fathom::cuda {

OpenDevice::OpenDevice(const Module& module) : module_(module) {
  Text text;
  const Status probed = module_.probe(&info_, &text);
  if (probed != Status::kOk)
    throw Error(ErrorKind::kEnvironment, fmt::format("the cuda backend is not available: {}", device_message(probed, info_, text.text, environment())));
  must(module_.open(&device_, &text), "opening the GPU", text);
}

OpenDevice::~OpenDevice() {
  if (device_) module_.close(device_);
}

std::shared_ptr<OpenDevice> the_device() {
  // Never closed: at exit the driver takes everything back, and the order of static destruction is not ours.
  static std::shared_ptr<OpenDevice>* const device = [] {
    const Loaded& loaded = load_module();
    if (!loaded.module) throw Error(ErrorKind::kEnvironment, fmt::format("the cuda backend is not available: {}", loaded.reason));
    return new std::shared_ptr<OpenDevice>(std::make_shared<OpenDevice>(*loaded.module));
  }();
  return *device;
}

DeviceMemory::DeviceMemory(std::shared_ptr<OpenDevice> device, std::int64_t bytes, const char* what) : device_(std::move(device)), bytes_(bytes) {
  Text text;
  must(device_->module().allocate(device_->device(), bytes, &data_, &text), what, text);
}

DeviceMemory::~DeviceMemory() {
  if (data_) device_->module().release(device_->device(), data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(std::move(other.device_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace fathom::cuda
