// What every wrapper of simt.hpp does on this device, laid open: one warp executes one wrapper on given words and stores what each lane got. The
// host compares with the meaning that the kernels rely on (kernels/cuda_host/conform.hpp). Arguments and launch shape.
//
// The emulator's wrappers and the GPU's are written from the same tables of the PTX ISA, so a common misreading hides in every other test;
// here the first real device contradicts it, wrapper by wrapper, before any op is run.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

// Words (32 bits) per lane that a case takes and gives, in the order of the names.
enum class Wrapper : std::int32_t {
  kMma,         // in: c[4], a[4], b[2]; out: d[4] of mma_16816
  kMatrix,      // in: the 16 bytes of this lane's shared row, the row whose address it gives; out: r[4] of ldmatrix_x4
  kMatrixTurned,  // the same, transposed
  kCopy,        // in: 16 bytes of global memory, whether they are in range; out: the shared bytes of lane ^ 1 after cp_async16
  kShuffle,     // in: value, lane; out: shfl_xor by 1, 2, 4, 8, 16, shfl, shfl_up by 1, 2, 4, 8, 16
  kVote,        // in: value; out: ballot and block_any of its lowest bit, popc and clz of the value, tid and its fresh reading
  kAtomic,      // in: value; out: sum and maximum over the lanes as integers (both from 0), read by every lane
  kPack,        // in: two floats; out: pack_bf16
  kFunction,    // in: one float x; out: fexp2, fexp, flog |x|, flog1p |x|, fsqrt |x|, frsqrt |x|, ftanh, ferf, each of x unless said
};
inline constexpr int kWrappers = 9;
struct WrapperWords {
  const char* name;
  int in, out;
};
inline constexpr WrapperWords kWrapperWords[kWrappers] = {
    {"mma_16816", 10, 4}, {"ldmatrix_x4", 5, 4}, {"ldmatrix_x4_trans", 5, 4}, {"cp_async16", 5, 4}, {"shuffles", 2, 11},
    {"votes", 1, 6},      {"atomics", 1, 2},     {"pack_bf16", 2, 1},         {"functions", 1, 8}};

struct ConformArgs {
  Wrapper wrapper = Wrapper::kMma;
  std::int64_t cases = 0;
  const std::uint32_t* in = nullptr;  // [cases, 32, words in], 16-byte aligned
  std::uint32_t* out = nullptr;       // [cases, 32, words out]
};

inline LaunchShape conform_launch(const ConformArgs& a) { return {a.cases, 1, 1, 32, 32 * 16}; }

}  // namespace fathom::cuda
