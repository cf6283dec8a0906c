// Attention's entry points: the kernel for the element type, head sizes and rows at hand (kernels/cuda/attention.hpp says which).
#pragma once

#include "kernels/cuda/attention_backward_mma.cuh"
#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_simt.cuh"

namespace fathom::cuda {

inline void attention_merge(const AttentionArgs& a, simt::Stream stream) {
  with_type(a.type, [&]<class T>() { simt::launch(attention_merge_kernel<T>, attention_merge_launch(a), a, stream); });
}

// `a.splits` > 1 only with kSimt and kDecode.
inline void attention(const AttentionArgs& a, simt::Stream stream) {
  switch (attention_kernel_for(a)) {
    case AttentionKernel::kTensor:
      return simt::launch(attention_tile_dim(a) == 64 ? attention_tensor_kernel<64> : attention_tensor_kernel<128>, attention_tensor_launch(a), a, stream);
    case AttentionKernel::kDecode:
      simt::launch(attention_tile_dim(a) == 64 ? attention_decode_kernel<64> : attention_decode_kernel<128>, attention_decode_launch(a), a, stream);
      break;
    case AttentionKernel::kSimt:
      with_type(a.type, [&]<class T>() {
        with_columns(a.v_dim, [&]<int N>() { simt::launch(attention_simt_kernel<T, N>, attention_simt_launch(a), a, stream); });
      });
      break;
  }
  if (a.splits > 1) attention_merge(a, stream);
}

inline void attention_backward(const AttentionBackwardArgs& b, simt::Stream stream) {
  const AttentionArgs& a = b.forward;
  with_type(a.type, [&]<class T>() { simt::launch(attention_delta_kernel<T>, attention_delta_launch(a), b, stream); });
  if (b.dsinks) simt::launch(attention_sinks_kernel, attention_sinks_launch(a), b, stream);
  if (attention_tensor_ready(a) && vector_width(a.type, 8, b.d_o, b.dq, b.dk, b.dv) > 1) {
    const bool narrow = attention_tile_dim(a) == 64;
    simt::launch(narrow ? attention_dkv_tensor_kernel<64> : attention_dkv_tensor_kernel<128>, attention_dkv_tensor_launch(a), b, stream);
    simt::launch(narrow ? attention_dq_tensor_kernel<64> : attention_dq_tensor_kernel<128>, attention_dq_tensor_launch(a), b, stream);
    return;
  }
  const int width = a.qk_dim > a.v_dim ? a.qk_dim : a.v_dim;
  with_type(a.type, [&]<class T>() {
    with_columns(width, [&]<int N>() {
      simt::launch(attention_dkv_simt_kernel<T, N>, attention_dkv_simt_launch(a), b, stream);
      simt::launch(attention_dq_simt_kernel<T, N>, attention_simt_launch(a), b, stream);
    });
  });
}

}  // namespace fathom::cuda
