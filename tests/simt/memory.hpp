// Device memory of the emulator: buffers with a shadow that remembers who read and wrote each pair of bytes, and when.
//
// Two accesses to the same bytes are a race when different threads make them, one is a write (and not both are atomic), and nothing
// orders them: in one block a barrier between them, in one warp also a warp_sync; between blocks of a launch nothing does.
// Under the address sanitizer buffers are plain allocations and it watches the bounds instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fathom::simt {

void* device_allocate(std::size_t bytes);  // 256-byte aligned, filled with 0xFF
void device_free(void* p);
bool is_device_memory(const void* p);

template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t count) : count_(count), data_(static_cast<T*>(device_allocate(count * sizeof(T)))) {}
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    for (std::size_t i = 0; i < count_; ++i) data_[i] = values[i];
  }
  DeviceBuffer(std::size_t count, T value) : DeviceBuffer(std::vector<T>(count, value)) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept : count_(other.count_), data_(other.data_) { other.data_ = nullptr; }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) device_free(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::vector<T> host() const { return std::vector<T>(data_, data_ + count_); }

 private:
  std::size_t count_;
  T* data_;
};

// The accessing thread, for the shadow.
struct Accessor {
  std::uint32_t block = 0;         // serial number over all launches
  std::uint32_t launch_first = 0;  // that of the launch's first block
  std::uint32_t generation = 0;    // barriers of this block, serial over all blocks
  std::uint16_t thread = 0;
  std::uint16_t warp_syncs = 0;
};
enum class Access { kRead, kWrite, kAtomic };
// Empty, or what is wrong with it.
std::string shadow_access(const Accessor& who, const void* p, std::size_t bytes, Access access);

// The block's shared memory: `bytes` usable, 0xFF. Reading what no thread of this block wrote is an error.
unsigned char* shared_begin(std::size_t bytes);

}  // namespace fathom::simt
