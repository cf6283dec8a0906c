// Kernel code is compiled with the compiler's thread-sanitizer instrumentation (-fsanitize=thread when compiling, not when linking), which calls a function
// before every access to memory. These are those functions: the emulator's own race and bounds detector in place of the sanitizer's.
// This file itself is not instrumented. Under the real sanitizers it is empty.
#include "kernels/cuda/simt.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace fathom::simt {
void hook(const void* p, std::size_t bytes, bool write, const void* code);
}

#define ACCESS(name, bytes, write) \
  void name(void* p) { fathom::simt::hook(p, bytes, write, __builtin_return_address(0)); }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
ACCESS(__tsan_read1, 1, false)
ACCESS(__tsan_read2, 2, false)
ACCESS(__tsan_read4, 4, false)
ACCESS(__tsan_read8, 8, false)
ACCESS(__tsan_read16, 16, false)
ACCESS(__tsan_write1, 1, true)
ACCESS(__tsan_write2, 2, true)
ACCESS(__tsan_write4, 4, true)
ACCESS(__tsan_write8, 8, true)
ACCESS(__tsan_write16, 16, true)
ACCESS(__tsan_unaligned_read2, 2, false)
ACCESS(__tsan_unaligned_read4, 4, false)
ACCESS(__tsan_unaligned_read8, 8, false)
ACCESS(__tsan_unaligned_read16, 16, false)
ACCESS(__tsan_unaligned_write2, 2, true)
ACCESS(__tsan_unaligned_write4, 4, true)
ACCESS(__tsan_unaligned_write8, 8, true)
ACCESS(__tsan_unaligned_write16, 16, true)
ACCESS(__tsan_volatile_read4, 4, false)
ACCESS(__tsan_volatile_write4, 4, true)
void __tsan_read_range(void* p, std::size_t n) { fathom::simt::hook(p, n, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, std::size_t n) { fathom::simt::hook(p, n, true, __builtin_return_address(0)); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// Atomics of the test code (shared pointers, guards of static variables).
char __tsan_atomic8_load(const volatile char* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
void __tsan_atomic8_store(volatile char* p, char v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_load(const volatile int* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
void __tsan_atomic32_store(volatile int* p, int v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_fetch_add(volatile int* p, int v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_fetch_sub(volatile int* p, int v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); }
long __tsan_atomic64_load(const volatile long* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
void __tsan_atomic64_store(volatile long* p, long v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
long __tsan_atomic64_fetch_add(volatile long* p, long v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
}

#endif
