// Clocks, power and throttling from NVIDIA's management library, opened by name: its header is often absent and its library always is
// where there is no driver. Without it the state is simply not told. Nothing is ever set.
#include <dlfcn.h>

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

// Prototypes of the few functions used; the values are NVML's.
class Management {
 public:
  explicit Management(const char* uuid) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_) return;
    const auto init = symbol<int (*)()>("nvmlInit_v2");
    const auto by_uuid = symbol<int (*)(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    clock_ = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power_ = symbol<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    temperature_ = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetTemperature");
    reasons_ = symbol<int (*)(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksEventReasons");
    if (!reasons_) reasons_ = symbol<int (*)(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!init || !by_uuid || init() != 0 || by_uuid(uuid, &device_) != 0) device_ = nullptr;
  }
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;

  DeviceState read() const {
    DeviceState now;
    if (!device_) return now;
    unsigned value = 0;
    if (clock_ && clock_(device_, kSmClock, &value) == 0) now.sm_clock_hz = value * 1e6;
    if (clock_ && clock_(device_, kMemoryClock, &value) == 0) now.memory_clock_hz = value * 1e6;
    if (power_ && power_(device_, &value) == 0) now.power_watts = value * 1e-3;
    if (temperature_ && temperature_(device_, 0, &value) == 0) now.temperature_c = value;
    unsigned long long bits = 0;
    if (reasons_ && reasons_(device_, &bits) == 0) now.throttle_reasons = static_cast<std::int64_t>(bits);
    return now;
  }

 private:
  static constexpr int kSmClock = 1, kMemoryClock = 2;

  template <class F>
  F symbol(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
};

std::shared_ptr<Management> open_management(const char* uuid) { return std::make_shared<Management>(uuid); }

DeviceState read_state(const Management* management) { return management ? management->read() : DeviceState{}; }

}  // namespace fathom::cuda
