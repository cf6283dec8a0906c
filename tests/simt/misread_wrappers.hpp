// Mutants of the wrappers of device code (kernels/cuda/conform.hpp): what a chip would give if it meant something else by each.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/conform.cuh"
#include "tests/simt/memory.hpp"

namespace fathom::testing {

// Wrappers as another reading of the tables would have them.
inline void misread(const cuda::ConformArgs& a) {
  const cuda::WrapperWords& words = cuda::kWrapperWords[static_cast<int>(a.wrapper)];
  std::vector<std::uint32_t> in(a.in, a.in + a.cases * 32 * words.in);
  std::uint32_t* out = a.out;
  const auto lanes = static_cast<std::size_t>(a.cases * 32);
  cuda::ConformArgs other = a;
  switch (a.wrapper) {
    case cuda::Wrapper::kMma:  // the two middle registers of A the other way round
      for (std::size_t i = 0; i < lanes; ++i) std::swap(in[i * 10 + 5], in[i * 10 + 6]);
      break;
    case cuda::Wrapper::kMatrix: other.wrapper = cuda::Wrapper::kMatrixTurned; break;
    case cuda::Wrapper::kMatrixTurned: other.wrapper = cuda::Wrapper::kMatrix; break;
    case cuda::Wrapper::kCopy:  // nothing is written where zeros should be
      for (std::size_t c = 0; c < lanes / 32; ++c)
        for (std::size_t l = 0; l < 32; ++l) in[c * 160 + 128 + l] = 1;
      break;
    case cuda::Wrapper::kShuffle:
    case cuda::Wrapper::kVote:
    case cuda::Wrapper::kAtomic: break;
    case cuda::Wrapper::kPack:  // the halves the other way round
      for (std::size_t i = 0; i < lanes; ++i) std::swap(in[i * 2], in[i * 2 + 1]);
      break;
    case cuda::Wrapper::kFunction: break;
  }
  simt::DeviceBuffer<std::uint32_t> changed(in);
  other.in = changed.data();
  cuda::conform(other, nullptr);
  if (a.wrapper == cuda::Wrapper::kShuffle) out[6] ^= 1;           // lane 0 of shfl_up keeps its own value
  if (a.wrapper == cuda::Wrapper::kVote) out[1] = 1;               // a block in which nobody agreed
  if (a.wrapper == cuda::Wrapper::kAtomic) out[63] += 1;           // the maximum, as the last lane reads it
  if (a.wrapper == cuda::Wrapper::kFunction)                       // an exponential with 16 good bits
    out[8] = std::bit_cast<std::uint32_t>(std::bit_cast<float>(out[8]) * (1 + 0x1p-17f));
}

}  // namespace fathom::testing
