// The wrappers on the CPU: a CUDA thread is a fiber, a block runs on one OS thread. Include kernels/cuda/simt.hpp instead.
//
// A collective deposits its operand in a per-warp slot set, meets the other lanes, and reads their slots; two sets alternate. Checked:
// call sites at barriers and collectives, deadlocks, alignment of 16-byte accesses, copies that nobody waited for, accesses outside
// buffers and shared memory, shared memory that nobody wrote, and races: two accesses to the same bytes by different threads, one a
// write, without a barrier between them. Every access of instrumented kernel code is seen (tests/simt/README.md says how).
// The implementation is tests/simt/engine.cpp. Special functions are the accurate ones, so results are compared with a tolerance.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

#define FATHOM_DEV inline
#define FATHOM_KERNEL(threads) void
#define FATHOM_KERNEL_OCC(threads, blocks) void
#define FATHOM_UNROLL
#define FATHOM_NO_UNROLL
#define FATHOM_UNROLL_BY(count)
#define FATHOM_HERE const simt::Site& at = simt::Site::current()

namespace fathom::simt {

using Site = std::source_location;
using Stream = void*;

enum class Order { kForward, kReverse, kShuffled };
struct Options {
  Order order = Order::kForward;
  std::uint64_t seed = 1;
  std::int64_t last_blocks = 0;  // > 0: only so many blocks at the end of every grid run, for sizes that nobody could run whole
};
Options& options();

// What went wrong in a kernel: a race, a divergent barrier, an access out of bounds, ... with the block, the thread and the place.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Statistics {
  std::int64_t launches = 0;
  std::int64_t blocks = 0;
  std::int64_t matrix_loads = 0;      // phases (8 rows) of ldmatrix
  std::int64_t matrix_conflicts = 0;  // further phases that bank conflicts cost
  std::int64_t mma = 0;               // warp-wide products
};
Statistics& statistics();

struct alignas(64) Slot {
  unsigned char bytes[64];
};
const Slot* exchange(const void* value, std::size_t bytes, const Site& at);
void block_barrier(const Site& at);
void warp_barrier(const Site& at);
void note(const void* p, std::size_t bytes, bool write, const Site& at);
void note_atomic(const void* p, std::size_t bytes, const Site& at);
void check_aligned(const void* p, const Site& at);
void async_copy(void* to, const void* from, const Site& at);
void async_commit();
void async_wait(int pending);
void note_matrix_rows(const Slot* rows, int count, const Site& at);
[[noreturn]] void fail(const std::string& what, const Site& at);

struct Place {
  int thread = 0, threads = 0;
  std::int64_t block[3] = {}, grid[3] = {};
  unsigned char* shared = nullptr;
};
const Place& here();

void run(const cuda::LaunchShape& shape, const std::function<void()>& kernel, const char* name);

template <class Args>
void launch(void (*kernel)(Args), const cuda::LaunchShape& shape, const Args& args, Stream) {
  run(shape, [&] { kernel(args); }, __PRETTY_FUNCTION__);
}

template <class V>
V peek(const Slot* slots, int lane) {
  V v;
  std::memcpy(&v, slots[lane].bytes, sizeof v);
  return v;
}

}  // namespace fathom::simt

namespace fathom::dev {

using u32 = std::uint32_t;

inline int tid() { return simt::here().thread; }
inline int fresh_tid() { return tid(); }
inline int threads() { return simt::here().threads; }
inline std::int64_t bid() { return simt::here().block[0]; }
inline std::int64_t bid_y() { return simt::here().block[1]; }
inline std::int64_t bid_z() { return simt::here().block[2]; }
inline std::int64_t grid_x() { return simt::here().grid[0]; }
inline std::int64_t grid_y() { return simt::here().grid[1]; }
inline std::int64_t grid_z() { return simt::here().grid[2]; }

template <class T>
T* smem(std::int64_t byte_offset = 0) {
  return reinterpret_cast<T*>(simt::here().shared + byte_offset);
}
inline void block_sync(FATHOM_HERE) { simt::block_barrier(at); }
inline void warp_sync(FATHOM_HERE) { simt::warp_barrier(at); }

template <class V>
V shfl_xor(V v, int mask, FATHOM_HERE) {
  return simt::peek<V>(simt::exchange(&v, sizeof v, at), (tid() & 31) ^ mask);
}
template <class V>
V shfl(V v, int lane, FATHOM_HERE) {
  return simt::peek<V>(simt::exchange(&v, sizeof v, at), lane & 31);
}
template <class V>
V shfl_up(V v, int by, FATHOM_HERE) {
  const simt::Slot* slots = simt::exchange(&v, sizeof v, at);
  return (tid() & 31) < by ? v : simt::peek<V>(slots, (tid() & 31) - by);
}
inline u32 ballot(bool p, FATHOM_HERE) {
  const simt::Slot* slots = simt::exchange(&p, sizeof p, at);
  u32 mask = 0;
  for (int l = 0; l < 32; ++l) mask |= static_cast<u32>(slots[l].bytes[0] == 1) << l;
  return mask;
}
bool block_any(bool p, FATHOM_HERE);

inline int popc(u32 v) { return __builtin_popcount(v); }
inline int clz(u32 v) { return v == 0 ? 32 : __builtin_clz(v); }

inline u32 float_bits(float v) { return std::bit_cast<u32>(v); }
inline float bits_float(u32 v) { return std::bit_cast<float>(v); }
inline float fexp2(float v) { return std::exp2(v); }
inline float fexp(float v) { return std::exp(v); }
inline float flog(float v) { return std::log(v); }
inline float flog1p(float v) { return std::log1p(v); }
inline float fsqrt(float v) { return std::sqrt(v); }
inline float frsqrt(float v) { return 1.0f / std::sqrt(v); }
inline float ftanh(float v) { return std::tanh(v); }
inline float ferf(float v) { return std::erf(v); }
inline float fmaxf_(float a, float b) { return std::fmax(a, b); }
inline float fminf_(float a, float b) { return std::fmin(a, b); }
inline float fabsf_(float a) { return std::fabs(a); }
inline u32 pack_bf16(float low, float high) { return static_cast<u32>(bf16::round(low)) | static_cast<u32>(bf16::round(high)) << 16; }

struct alignas(16) Quad {
  u32 w[4];
};
inline Quad load16(const void* p, FATHOM_HERE) {
  simt::check_aligned(p, at);
  simt::note(p, 16, false, at);
  Quad q;
  std::memcpy(&q, p, 16);
  return q;
}
inline void store16(void* p, const Quad& v, FATHOM_HERE) {
  simt::check_aligned(p, at);
  simt::note(p, 16, true, at);
  std::memcpy(p, &v, 16);
}

std::int32_t atomic_add(std::int32_t* p, std::int32_t v, FATHOM_HERE);
void atomic_max(std::int32_t* p, std::int32_t v, FATHOM_HERE);

void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], FATHOM_HERE);
void ldmatrix_x4(u32 (&r)[4], const void* row, FATHOM_HERE);
void ldmatrix_x4_trans(u32 (&r)[4], const void* row, FATHOM_HERE);
inline void cp_async16(void* to, const void* from, bool in, FATHOM_HERE) { simt::async_copy(to, in ? from : nullptr, at); }
inline void cp_commit() { simt::async_commit(); }
template <int kPending>
void cp_wait() {
  simt::async_wait(kPending);
}

}  // namespace fathom::dev
