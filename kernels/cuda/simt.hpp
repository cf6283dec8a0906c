// The one header that device code includes. The same kernel source is compiled by nvcc for the GPU (simt_device.hpp) and by g++ onto
// fibers (simt_host.hpp), where tests run it against the reference in several thread orders and look for races.
//
// The rules for kernel code:
//   shared memory only through dev::smem (sizes are passed at launch); no static __shared__, __constant__ or device globals;
//   collectives with the full warp in warp-uniform flow, barriers in block-uniform flow; block sizes are multiples of 32;
//   exchange through shared memory needs block_sync or warp_sync: a shuffle orders nothing; no waiting for other blocks;
//   tensor, asynchronous and 16-byte accesses, atomics and special functions only through the wrappers;
//   arguments are one POD by value; launches go through simt::launch; every kernel is a template (template <int kOnce = 0> where nothing
//   varies), because nvcc knows no inline kernels and the headers may be included in several files.
#pragma once

static_assert(__cplusplus >= 202002L, "device code is C++20; CMake 3.25 drops CMAKE_CUDA_STANDARD 20 silently");

#include <cstdint>

#include "kernels/cuda/launch.hpp"

#ifdef __CUDACC__
#include "kernels/cuda/simt_device.hpp"
#else
#include "kernels/cuda/simt_host.hpp"
#endif

#include "kernels/cuda/simt_common.hpp"
