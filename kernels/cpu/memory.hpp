// Memory for operands: aligned to 2 MiB, on huge pages where the system allows, first touched by the threads that will
// use it (so that on a machine with several memory nodes it lies near them).
//
// 4 KiB pages cost 10-15 % of streaming bandwidth, and they make times depend on how fragmented the machine is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fathom::cpu {

inline constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

// Owns zero-filled bytes. Movable, not copyable. Empty (null) after a move and for 0 bytes.
class Buffer {
 public:
  Buffer() = default;
  // Reserves `bytes` and touches every page from `threads` OpenMP threads, thread i the i-th contiguous share.
  // Throws an environment Error that names the number of bytes when the system cannot give them, also when they exceed
  // the memory that is free now (touching more would end in the kernel's out-of-memory killer, not in an error).
  // `stop` is asked before every huge page is touched (gigabytes may take seconds); true: throws Stopped, and nothing stays reserved.
  explicit Buffer(std::int64_t bytes, int threads = 1, const std::function<bool()>& stop = {});
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() { return data_; }
  const void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  // The bytes as elements of T, starting `offset_bytes` in.
  template <typename T>
  T* as(std::int64_t offset_bytes = 0) {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset_bytes);
  }
  template <typename T>
  const T* as(std::int64_t offset_bytes = 0) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(data_) + offset_bytes);
  }

 private:
  void release();

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t mapped_ = 0;  // bytes of the mapping, a multiple of the huge page
};

// What a limit on the address space (ulimit -v) leaves, in bytes; -1 without one.
std::int64_t address_space_left();

// Memory the process could still take, in bytes: the smallest of what the kernel calls available, what its control
// group leaves, and address_space_left(). -1 where neither is known.
std::int64_t available_memory();

}  // namespace fathom::cpu
