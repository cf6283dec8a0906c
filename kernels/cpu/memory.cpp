#include "kernels/cpu/memory.hpp"

#if FATHOM_CPU

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "lib/backend.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

// One number from a one-line file; -1 when absent or "max".
std::int64_t read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

[[noreturn]] void throw_no_memory(std::int64_t bytes, const std::string& why) {
  throw Error(ErrorKind::kEnvironment, fmt::format("cannot allocate {} bytes: {}", bytes, why), {},
              "use a smaller batch, sequence length or model, or free memory");
}

}  // namespace

std::int64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT64_MAX) return -1;
  const std::int64_t pages = read_number("/proc/self/statm");
  return pages < 0 ? -1 : std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - pages * sysconf(_SC_PAGESIZE));
}

std::int64_t available_memory() {
  std::int64_t available = -1;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  while (meminfo >> key) {
    std::int64_t kib = 0;
    if (key == "MemAvailable:" && meminfo >> kib) {
      available = kib * 1024;
      break;
    }
    meminfo.ignore(1 << 10, '\n');
  }
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    const std::int64_t left = std::max<std::int64_t>(0, limit - used);
    available = available < 0 ? left : std::min(available, left);
  }
  if (const std::int64_t left = address_space_left(); left >= 0) available = available < 0 ? left : std::min(available, left);
  return available;
}

Buffer::Buffer(std::int64_t bytes, int threads, const std::function<bool()>& stop) {
  if (bytes < 0) throw_internal(fmt::format("Buffer of {} bytes", bytes));
  if (bytes == 0) return;
  if (bytes > INT64_MAX - 2 * kHugePageBytes) throw_no_memory(bytes, "more than an address space");
  const std::int64_t size = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const std::int64_t available = available_memory();
  if (available >= 0 && bytes > available) throw_no_memory(bytes, fmt::format("{} bytes are available", available));

  // Map one huge page more than needed and give the unaligned ends back.
  void* raw = mmap(nullptr, static_cast<std::size_t>(size + kHugePageBytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) throw_no_memory(bytes, std::strerror(errno));
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const auto page = static_cast<std::uintptr_t>(kHugePageBytes);
  const std::uintptr_t aligned = (begin + page - 1) / page * page;
  if (aligned > begin) munmap(raw, aligned - begin);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(size) + page;
  const std::uintptr_t aligned_end = aligned + static_cast<std::uintptr_t>(size);
  if (end > aligned_end) munmap(reinterpret_cast<void*>(aligned_end), end - aligned_end);
  data_ = reinterpret_cast<void*>(aligned);
  bytes_ = bytes;
  mapped_ = size;
  madvise(data_, static_cast<std::size_t>(mapped_), MADV_HUGEPAGE);  // a wish: small pages work too

  // Whole huge pages per thread, since a huge page is placed by whoever touches it first. The step stays at 4 KiB
  // because the wish may have been refused.
  char* const base = static_cast<char*>(data_);
  const std::int64_t pages = mapped_ / kHugePageBytes;
  const int team = static_cast<int>(std::clamp<std::int64_t>(threads, 1, pages));
  std::atomic<bool> over = false;
#pragma omp parallel num_threads(team)
  {
    const std::int64_t share = omp_get_thread_num(), shares = omp_get_num_threads();
    const std::int64_t first = pages * share / shares * kHugePageBytes;
    const std::int64_t last = pages * (share + 1) / shares * kHugePageBytes;
    for (std::int64_t offset = first; offset < std::min(last, bytes_); offset += 4096) {
      if (stop && offset % kHugePageBytes == 0 && (over || stop())) {
        over = true;
        break;
      }
      static_cast<volatile char*>(base)[offset] = 0;
    }
  }
  if (!over) return;
  release();
  throw Stopped();
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    mapped_ = std::exchange(other.mapped_, 0);
  }
  return *this;
}

void Buffer::release() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(mapped_));
  data_ = nullptr;
  bytes_ = mapped_ = 0;
}

}  // namespace fathom::cpu

#endif
