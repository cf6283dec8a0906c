// Device code of kernels/cuda/conform.hpp.
#pragma once

#include "kernels/cuda/conform.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

template <Wrapper kWrapper>
FATHOM_KERNEL(32) conform_kernel(ConformArgs a) {
  constexpr int kIn = kWrapperWords[static_cast<int>(kWrapper)].in, kOut = kWrapperWords[static_cast<int>(kWrapper)].out;
  const std::int64_t at = dev::bid() * 32 + dev::lane();
  const dev::u32* in = a.in + at * kIn;
  dev::u32 v[kIn], r[kOut];
  FATHOM_UNROLL
  for (int i = 0; i < kIn; ++i) v[i] = in[i];
  dev::u32* row = dev::smem<dev::u32>(dev::lane() * 16);  // this lane's 16 bytes of shared memory
  if constexpr (kWrapper == Wrapper::kMma) {
    float d[4];
    FATHOM_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = dev::bits_float(v[i]);
    const dev::u32 first[4] = {v[4], v[5], v[6], v[7]}, second[2] = {v[8], v[9]};
    dev::mma_16816(d, first, second);
    FATHOM_UNROLL
    for (int i = 0; i < 4; ++i) r[i] = dev::float_bits(d[i]);
  } else if constexpr (kWrapper == Wrapper::kMatrix || kWrapper == Wrapper::kMatrixTurned) {
    dev::store16(row, dev::Quad{{v[0], v[1], v[2], v[3]}});
    dev::warp_sync();
    const void* given = dev::smem<dev::u32>(static_cast<std::int64_t>(v[4] & 31) * 16);
    if constexpr (kWrapper == Wrapper::kMatrix)
      dev::ldmatrix_x4(r, given);
    else
      dev::ldmatrix_x4_trans(r, given);
  } else if constexpr (kWrapper == Wrapper::kCopy) {
    dev::store16(row, dev::Quad{{~0u, ~0u, ~0u, ~0u}});  // what a copy of zeros has to overwrite
    dev::warp_sync();
    // Five words per lane would leave the sources unaligned: a case's 16-byte sources lie behind one another, the flags follow.
    const dev::u32* words = a.in + dev::bid() * 32 * kIn;
    dev::cp_async16(row, words + dev::lane() * 4, words[128 + dev::lane()] != 0);
    dev::cp_commit();
    dev::cp_wait<0>();
    dev::block_sync();
    const dev::Quad other = dev::load16(dev::smem<dev::u32>((dev::lane() ^ 1) * 16));
    FATHOM_UNROLL
    for (int i = 0; i < 4; ++i) r[i] = other.w[i];
  } else if constexpr (kWrapper == Wrapper::kShuffle) {
    FATHOM_UNROLL
    for (int i = 0; i < 5; ++i) r[i] = dev::shfl_xor(v[0], 1 << i);
    r[5] = dev::shfl(v[0], static_cast<int>(v[1] & 31));
    FATHOM_UNROLL
    for (int i = 0; i < 5; ++i) r[6 + i] = dev::shfl_up(v[0], 1 << i);
  } else if constexpr (kWrapper == Wrapper::kVote) {
    r[0] = dev::ballot((v[0] & 1) != 0);
    r[1] = dev::block_any((v[0] & 1) != 0) ? 1 : 0;
    r[2] = static_cast<dev::u32>(dev::popc(v[0]));
    r[3] = static_cast<dev::u32>(dev::clz(v[0]));
    r[4] = static_cast<dev::u32>(dev::tid());
    r[5] = static_cast<dev::u32>(dev::fresh_tid());
  } else if constexpr (kWrapper == Wrapper::kAtomic) {
    std::int32_t* both = dev::smem<std::int32_t>();
    if (dev::lane() < 2) both[dev::lane()] = 0;
    dev::block_sync();
    dev::atomic_add(both, static_cast<std::int32_t>(v[0]));
    dev::atomic_max(both + 1, static_cast<std::int32_t>(v[0]));
    dev::block_sync();
    r[0] = static_cast<dev::u32>(both[0]);
    r[1] = static_cast<dev::u32>(both[1]);
  } else if constexpr (kWrapper == Wrapper::kPack) {
    r[0] = dev::pack_bf16(dev::bits_float(v[0]), dev::bits_float(v[1]));
  } else {
    const float x = dev::bits_float(v[0]), size = dev::fabsf_(x);
    const float results[8] = {dev::fexp2(x), dev::fexp(x), dev::flog(size), dev::flog1p(size), dev::fsqrt(size), dev::frsqrt(size), dev::ftanh(x), dev::ferf(x)};
    FATHOM_UNROLL
    for (int i = 0; i < 8; ++i) r[i] = dev::float_bits(results[i]);
  }
  FATHOM_UNROLL
  for (int i = 0; i < kOut; ++i) a.out[at * kOut + i] = r[i];
}

inline void conform(const ConformArgs& a, simt::Stream stream) {
  const LaunchShape shape = conform_launch(a);
  switch (a.wrapper) {
    case Wrapper::kMma: return simt::launch(conform_kernel<Wrapper::kMma>, shape, a, stream);
    case Wrapper::kMatrix: return simt::launch(conform_kernel<Wrapper::kMatrix>, shape, a, stream);
    case Wrapper::kMatrixTurned: return simt::launch(conform_kernel<Wrapper::kMatrixTurned>, shape, a, stream);
    case Wrapper::kCopy: return simt::launch(conform_kernel<Wrapper::kCopy>, shape, a, stream);
    case Wrapper::kShuffle: return simt::launch(conform_kernel<Wrapper::kShuffle>, shape, a, stream);
    case Wrapper::kVote: return simt::launch(conform_kernel<Wrapper::kVote>, shape, a, stream);
    case Wrapper::kAtomic: return simt::launch(conform_kernel<Wrapper::kAtomic>, shape, a, stream);
    case Wrapper::kPack: return simt::launch(conform_kernel<Wrapper::kPack>, shape, a, stream);
    case Wrapper::kFunction: return simt::launch(conform_kernel<Wrapper::kFunction>, shape, a, stream);
  }
}

}  // namespace fathom::cuda
