#include "tests/kernels/allocation_count.hpp"

#include <cstdlib>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <atomic>
#include <cerrno>

namespace {
std::atomic<std::int64_t> counted{0};
}

extern "C" {
// glibc's own entry points; the functions below take the place of the usual ones in this program.
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  counted.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  counted.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  counted.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  counted.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** to, size_t alignment, size_t size) {
  *to = memalign(alignment, size);
  return *to ? 0 : ENOMEM;
}
}

std::int64_t fathom::testing::allocations() { return counted.load(std::memory_order_relaxed); }

#else

std::int64_t fathom::testing::allocations() { return -1; }

#endif
