// The wrappers on the GPU: intrinsics and inline PTX. Include kernels/cuda/simt.hpp instead. Fragment layouts are those of the PTX ISA:
//   mma m16n8k16: lane = 4 g + t. A: a[0] row g, a[1] row g + 8, columns 2t, 2t + 1; a[2], a[3] the same at columns + 8.
//                 B: b[0] rows 2t, 2t + 1 of column g; b[1] rows + 8. C, D: d[0], d[1] row g, columns 2t, 2t + 1; d[2], d[3] row g + 8.
//   ldmatrix: lanes 8 i .. 8 i + 7 give the 16-byte rows of matrix i; lane l gets row l / 4, columns 2 (l % 4), + 1 (transposed: swapped).
#pragma once

#include <cuda_runtime.h>

#define FATHOM_DEV __device__ __forceinline__
#define FATHOM_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define FATHOM_KERNEL_OCC(threads, blocks) __global__ void __launch_bounds__(threads, blocks)
#define FATHOM_UNROLL _Pragma("unroll")
#define FATHOM_NO_UNROLL _Pragma("unroll 1")
#define FATHOM_PRAGMA(text) _Pragma(#text)
#define FATHOM_UNROLL_BY(count) FATHOM_PRAGMA(unroll count)

extern __shared__ __align__(16) unsigned char fathom_smem[];

namespace fathom::dev {

using u32 = std::uint32_t;

FATHOM_DEV int tid() { return static_cast<int>(threadIdx.x); }
// The same, read anew: what is computed from it is computed again where it is needed, and takes no registers through a loop.
FATHOM_DEV int fresh_tid() {
  int r;
  asm volatile("mov.u32 %0, %tid.x;" : "=r"(r));
  return r;
}
FATHOM_DEV int threads() { return static_cast<int>(blockDim.x); }
FATHOM_DEV std::int64_t bid() { return blockIdx.x; }
FATHOM_DEV std::int64_t bid_y() { return blockIdx.y; }
FATHOM_DEV std::int64_t bid_z() { return blockIdx.z; }
FATHOM_DEV std::int64_t grid_x() { return gridDim.x; }
FATHOM_DEV std::int64_t grid_y() { return gridDim.y; }
FATHOM_DEV std::int64_t grid_z() { return gridDim.z; }

template <class T>
FATHOM_DEV T* smem(std::int64_t byte_offset = 0) {
  return reinterpret_cast<T*>(fathom_smem + byte_offset);
}
FATHOM_DEV void block_sync() { __syncthreads(); }
FATHOM_DEV void warp_sync() { __syncwarp(); }
FATHOM_DEV bool block_any(bool p) { return __syncthreads_or(p) != 0; }  // also a barrier

template <class V>
FATHOM_DEV V shfl_xor(V v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
template <class V>
FATHOM_DEV V shfl(V v, int lane) { return __shfl_sync(~0u, v, lane); }
template <class V>
FATHOM_DEV V shfl_up(V v, int by) { return __shfl_up_sync(~0u, v, static_cast<unsigned>(by)); }
FATHOM_DEV u32 ballot(bool p) { return __ballot_sync(~0u, p); }

FATHOM_DEV int popc(u32 v) { return __popc(v); }
FATHOM_DEV int clz(u32 v) { return __clz(static_cast<int>(v)); }

FATHOM_DEV u32 float_bits(float v) { return __float_as_uint(v); }
FATHOM_DEV float bits_float(u32 v) { return __uint_as_float(v); }
FATHOM_DEV float fexp2(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
FATHOM_DEV float fexp(float v) { return __expf(v); }
FATHOM_DEV float flog(float v) { return logf(v); }
FATHOM_DEV float flog1p(float v) { return log1pf(v); }
FATHOM_DEV float fsqrt(float v) { return sqrtf(v); }
FATHOM_DEV float frsqrt(float v) { return 1.0f / sqrtf(v); }
FATHOM_DEV float ftanh(float v) { return tanhf(v); }
FATHOM_DEV float ferf(float v) { return erff(v); }
FATHOM_DEV float fmaxf_(float a, float b) { return fmaxf(a, b); }
FATHOM_DEV float fminf_(float a, float b) { return fminf(a, b); }
FATHOM_DEV float fabsf_(float a) { return fabsf(a); }

// Two floats to bf16, round to nearest even; `low` in bits 0-15.
FATHOM_DEV u32 pack_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

struct alignas(16) Quad {
  u32 w[4];
};
FATHOM_DEV Quad load16(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
FATHOM_DEV void store16(void* p, const Quad& v) { *static_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]); }

// Integer atomics: their sums do not depend on the order.
FATHOM_DEV std::int32_t atomic_add(std::int32_t* p, std::int32_t v) { return atomicAdd(p, v); }
FATHOM_DEV void atomic_max(std::int32_t* p, std::int32_t v) { atomicMax(p, v); }

FATHOM_DEV u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
FATHOM_DEV void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
FATHOM_DEV void ldmatrix_x4(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
FATHOM_DEV void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// 16 bytes from global to shared memory; zeros where not `in`.
FATHOM_DEV void cp_async16(void* to, const void* from, bool in) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(to)), "l"(from), "r"(in ? 16 : 0) : "memory");
}
FATHOM_DEV void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
FATHOM_DEV void cp_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace fathom::dev

namespace fathom::simt {

using Stream = cudaStream_t;

// Errors stay with the runtime (cudaGetLastError).
template <class Args>
void launch(void (*kernel)(Args), const cuda::LaunchShape& shape, const Args& args, Stream stream) {
  if (shape.grid_x <= 0 || shape.grid_y <= 0 || shape.grid_z <= 0) return;
  if (shape.shared > 48 * 1024)
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared));
  const dim3 grid(static_cast<unsigned>(shape.grid_x), static_cast<unsigned>(shape.grid_y), static_cast<unsigned>(shape.grid_z));
  kernel<<<grid, static_cast<unsigned>(shape.block), static_cast<std::size_t>(shape.shared), stream>>>(args);
}

}  // namespace fathom::simt
