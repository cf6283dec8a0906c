// Same-class reference work for bracketed timing: each class has a fixed small kernel of its own kind whose speed moves with the
// machine's state as the class's ops do (NOTES: an AMX product by an AMX product, exp by exp, a stream by a stream).
#include <algorithm>
#include <vector>

#include "kernels/cpu/activation.hpp"
#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/decode_attention.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/execution.hpp"
#include "kernels/cpu/gemv.hpp"
#include "kernels/cpu/probe_memory.hpp"
#include "kernels/cpu/references.hpp"
#include "kernels/cpu/topk.hpp"

namespace fathom::cpu {

References::References(int threads, bool bf16_products) : threads_(threads), ceiling_(threads, bf16_products) {
  GemmOptions options;
  options.dtype = bf16_products ? DType::kBF16 : DType::kF32;
  options.threads = threads;
  options.packed = true;
  gemm_.emplace(GemmShape{kGemmRows * threads, width_, width_}, options);
  const std::int64_t rows = gemm_->padded_rows();
  memory_ = Buffer(width_ * width_ * 4 + gemm_->packed_bytes() + rows * width_ * 8 + gemm_->scratch_bytes() + 3 * floats_ * threads * 4 +
                       topk_workspace_bytes(kTopK, threads) + kTopK * 8 + 4096,
                   threads);
  std::int64_t at = 0;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t here = at;
    at += (bytes + 63) / 64 * 64;
    return here;
  };
  const std::int64_t plain = take(width_ * width_ * 4);
  packed_ = take(gemm_->packed_bytes());
  x_ = take(rows * width_ * 4);
  y_ = take(rows * width_ * 4);
  gemm_scratch_ = take(gemm_->scratch_bytes());
  stream_ = take(3 * floats_ * threads * 4);
  topk_ = take(topk_workspace_bytes(kTopK, threads));
  topk_out_ = take(kTopK * 4);
  // Values of both signs and normal size; zeros would be faster than real data on some machines.
  float* floats = memory_.as<float>(stream_);
  for (std::int64_t i = 0; i < 3 * floats_ * threads; ++i) floats[i] = static_cast<float>((i * 2654435761u) % 1999) / 1000.0f - 1.0f;
  const auto seed = [&](std::int64_t offset, std::int64_t count) {
    if (bf16_products)
      f32_to_bf16(floats, memory_.as<bf16>(offset), std::min(count, 3 * floats_ * threads_), 1);
    else
      std::copy_n(floats, std::min(count, 3 * floats_ * threads_), memory_.as<float>(offset));
  };
  seed(plain, width_ * width_);
  seed(x_, rows * width_);
  gemm_->pack(memory_.as<std::byte>(plain), memory_.as<std::byte>(packed_));
}

void References::run(ReferenceClass which) {
  switch (which) {
    case ReferenceClass::kProduct:
      for (std::int64_t done = 0; done < kGemmWidth * kGemmWidth; done += width_ * width_)
        gemm_->run(memory_.as<std::byte>(x_), memory_.as<std::byte>(packed_), memory_.as<std::byte>(y_), memory_.as<std::byte>(gemm_scratch_));
      break;
    case ReferenceClass::kExp: {
      const std::int64_t stride = floats_ / 64;
      const Activation shape{ActivationKind::kGeluTanh, DType::kF32, 64 * threads_, stride};
      for (std::int64_t done = 0; done < kStreamFloats; done += floats_)
        activation(shape, {memory_.as<float>(stream_), stride}, {memory_.as<float>(stream_) + floats_ * threads_, stride}, threads_);
      break;
    }
    case ReferenceClass::kStream: {
      float* a = memory_.as<float>(stream_);
      for (std::int64_t done = 0; done < 2 * kStreamFloats; done += floats_)
        add(DType::kF32, a, a + floats_ * threads_, a + 2 * floats_ * threads_, floats_ * threads_, threads_);
      break;
    }
    case ReferenceClass::kSelect:
      topk(memory_.as<float>(stream_), kTopK, kTopK / 8, memory_.as<std::int32_t>(topk_out_), memory_.as<std::byte>(topk_));
      break;
    case ReferenceClass::kWeights:
      run_weights();
      break;
    case ReferenceClass::kKeys:
      run_keys();
      break;
  }
}

std::int64_t References::stream_floats() {
  const std::int64_t l2 = cpu_info().l2_bytes > 0 ? cpu_info().l2_bytes : 1 << 20;
  std::int64_t floats = kStreamFloats;  // halved until it fits, so that whole calls make up the same work
  while (floats * 4 > l2 / 4 && floats > kTopK) floats /= 2;
  return floats;
}

std::int64_t References::gemm_width() {
  std::int64_t width = kGemmWidth;
  while (cpu_info().l2_bytes > 0 && width * width * 4 > cpu_info().l2_bytes && width > 64) width /= 2;
  return width;
}

// The next visit of a piece must find it gone, also from a cache that keeps more than what was used last, and where every core has one of its own.
std::int64_t References::piece_count(int threads) {
  return std::clamp<std::int64_t>(3 * cpu_info().l3_bytes * threads / piece_bytes(threads) + 1, 16, (std::int64_t{512} << 20) / piece_bytes(threads) + 1);
}

std::int64_t References::streamed_bytes(int threads) { return piece_count(threads) * piece_bytes(threads); }

std::byte* References::next_piece() {
  const std::int64_t outputs = kWeightsOutputs * threads_, bytes = piece_bytes(threads_);
  if (pieces_ == 0) {
    pieces_ = piece_count(threads_);
    weights_ = Buffer(pieces_ * bytes, threads_);
    float* w = weights_.as<float>(0);
    const float* values = memory_.as<float>(stream_);
    for (std::int64_t i = 0; i < pieces_ * outputs * kWeightsDepth; i += floats_)
      std::copy_n(values, std::min(floats_, pieces_ * outputs * kWeightsDepth - i), w + i);
  }
  std::byte* piece = weights_.as<std::byte>(piece_ * bytes);
  piece_ = (piece_ + 1) % pieces_;
  return piece;
}

void References::run_weights() {
  const std::int64_t outputs = kWeightsOutputs * threads_;
  Gemv call;
  call.dtype = call.out = DType::kF32;
  call.n = outputs;
  call.k = call.x_stride = call.w_stride = kWeightsDepth;
  call.y_stride = outputs;
  call.x = memory_.as<float>(stream_);
  call.w = next_piece();
  call.y = memory_.as<float>(stream_) + 2 * floats_ * threads_;
  gemv(call, threads_);
}

void References::run_keys() {
  std::byte* piece = next_piece();
  DecodeAttention call;
  call.cache.dtype = DType::kF32;
  call.cache.kv_heads = kKeysHeads;
  call.cache.head_dim = kKeysDepth;
  call.cache.capacity = kKeysCount;
  call.cache.k = piece;
  call.cache.v = piece + call.cache.bytes(threads_);
  call.heads = kKeysHeads;
  call.scale = 0.125f;
  call.rows = threads_;
  const std::vector<std::int32_t> counts(static_cast<size_t>(threads_), kKeysCount);
  call.counts = counts.data();
  call.q = memory_.as<float>(stream_);
  call.out = memory_.as<float>(stream_) + 2 * floats_ * threads_;
  call.q_stride = call.out_stride = kKeysHeads * kKeysDepth;
  if (keys_scratch_.bytes() == 0) keys_scratch_ = Buffer(decode_attention_scratch_bytes(call, threads_) + 64, threads_);
  decode_attention(call, keys_scratch_.as<std::byte>(0), threads_);
}

ReferenceClass reference_of(const OpSpec& spec) {
  return std::visit(overloaded{
                        [](const fathom::Gemm&) { return ReferenceClass::kProduct; },
                        [](const fathom::Attention&) { return ReferenceClass::kProduct; },
                        [](const fathom::AttentionBackward&) { return ReferenceClass::kProduct; },
                        [](const fathom::Activation&) { return ReferenceClass::kExp; },
                        [](const fathom::ActivationBackward&) { return ReferenceClass::kExp; },
                        [](const fathom::CrossEntropy&) { return ReferenceClass::kExp; },
                        [](const fathom::Select&) { return ReferenceClass::kSelect; },
                        [](const fathom::ExpertSelect&) { return ReferenceClass::kSelect; },
                        [](const auto&) { return ReferenceClass::kStream; },
                    },
                    spec);
}

References& CpuExecution::references() {
  if (!references_) {
    bool bf16_products = false;
    for (const Op& op : workload().ops())
      if (const auto* gemm = std::get_if<fathom::Gemm>(&op.spec)) bf16_products = bf16_products || gemm->act == DType::kBF16;
    references_ = std::make_unique<References>(prepared_.threads, bf16_products);
  }
  return *references_;
}

void CpuExecution::run_reference(int reference_class) { references().run(static_cast<ReferenceClass>(reference_class)); }

void CpuExecution::settle_reference(int reference_class) {
  const auto which = static_cast<ReferenceClass>(reference_class);
  if (which != ReferenceClass::kWeights && which != ReferenceClass::kKeys) references().run(which);
}

Placement CpuExecution::placement() {
  if (!PinnedThreads::active()) return Placement::kUnknown;  // threads that wander are nowhere
  return cores_apart(prepared_.threads) ? Placement::kApart : Placement::kTogether;
}

double CpuExecution::probe_ceiling(int reference_class) { return references().ceiling(static_cast<ReferenceClass>(reference_class)); }

// Products of few rows and cached attention read once what they read: from memory, where a pass moves far more than the last cache holds (nearer
// to it the pieces that the weights class reads would push out what a pass finds there), else from that cache. An optimizer's pass over more than any cache holds
// is bound by memory too, and says nothing about L2.
ReferenceClass reference_class_of(const Prepared& prepared, int op) {
  const OpSpec& spec = prepared.workload->ops()[static_cast<size_t>(op)].spec;
  const auto* attention = std::get_if<fathom::Attention>(&spec);
  const GemmBinding& gemm = prepared.gemms[static_cast<size_t>(op)];
  const bool streams = rows_of(spec).count <= gemm.streamed_rows || (attention && attention->cached && rows_of(spec).count <= 8 * std::max<std::int64_t>(1, attention->sequences));
  const std::int64_t twice = 2 * std::max<std::int64_t>(cpu_info().l3_bytes, 16 << 20);
  const bool beyond = prepared.bytes() > twice;
  if (std::holds_alternative<AdamW>(spec) || std::holds_alternative<GradientNorm>(spec)) {
    const Cost cost = declared_cost(spec);
    return (cost.read + cost.written).to_double() > static_cast<double>(twice) ? ReferenceClass::kWeights : reference_of(spec);
  }
  if (!streams) return reference_of(spec);
  return !beyond ? ReferenceClass::kStream : attention ? ReferenceClass::kKeys : ReferenceClass::kWeights;
}

int CpuExecution::reference_class(int op) const { return static_cast<int>(reference_class_of(prepared_, op)); }

std::vector<std::string> CpuExecution::reference_classes() const { return {"product", "exp", "stream", "select", "weights", "keys"}; }

}  // namespace fathom::cpu
