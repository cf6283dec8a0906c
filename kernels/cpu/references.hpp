// Reference kernels for bracketed timing, one per class, each 0.05 to 0.5 ms, with operands that fit a core's L2, whatever its size; only the weights
// and keys classes read from memory that no cache holds. An operand that does not fit comes from a cache that the workload fills too: the reference of a stream then took twice
// as long beside wide layers as beside narrow ones (1.5 MiB per thread where L2 is 512 KiB), and made the ops of the wide ones look twice as fast.
#pragma once

#include <optional>

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/probe_compute.hpp"
#include "lib/op.hpp"

namespace fathom::cpu {

// kWeights: a product of one row whose weights come from beyond the caches, a different piece each time. What decode is bound by moves
// with the memory's state, which a product in L2 does not see: between two minutes of one virtual machine by a third.
// kKeys: attention of one token over cached keys and values from there. It reaches less of the memory's rate than a product and gains less when the memory is fast.
enum class ReferenceClass : std::uint8_t { kProduct, kExp, kStream, kSelect, kWeights, kKeys };

// Distinct bytes the references touch, per thread, between two timed ops: they evict that much of the private caches.
inline constexpr double kReferenceBytesPerThread = 1.75 * (1 << 20);

class References {
 public:
  References(int threads, bool bf16_products);
  void run(ReferenceClass which);
  // Bytes of the weights and keys classes, which only lists with ops of these classes make; the others are a few megabytes.
  static std::int64_t streamed_bytes(int threads);
  // FLOP/s, now, of what products are held against; 0 for the other classes.
  double ceiling(ReferenceClass which) { return which == ReferenceClass::kProduct ? ceiling_.flops_per_second() : 0; }

 private:
  static constexpr std::int64_t kGemmRows = 64;        // per thread
  static constexpr std::int64_t kGemmWidth = 512;      // or as many calls of a narrower one as compute the same
  static constexpr std::int64_t kStreamFloats = 1 << 17;  // per thread and call, of each array: as often over a shorter one as makes this many
  static constexpr std::int64_t kTopK = 4096;
  static constexpr std::int64_t kWeightsDepth = 1024;     // elements of the row
  static constexpr std::int64_t kWeightsOutputs = 448;    // per thread: 1.75 MiB of weights
  static constexpr std::int64_t kKeysHeads = 8, kKeysDepth = 64, kKeysCount = 448;   // per thread: a sequence whose keys and values fill a piece
  static_assert(2 * kKeysHeads * kKeysDepth * kKeysCount == kWeightsDepth * kWeightsOutputs);
  // Floats of an array: three of them fill three quarters of a core's L2.
  static std::int64_t stream_floats();
  // Whose weights a core's L2 holds: from a last cache, a product of two cores that have one each took 1.2 times as long beside cores that share one, the ops it
  // stands for 1.05 times (2-core EPYC, family 25, 512 KiB of L2).
  static std::int64_t gemm_width();
  static std::int64_t piece_bytes(int threads) { return kWeightsOutputs * threads * kWeightsDepth * 4; }
  static std::int64_t piece_count(int threads);
  std::byte* next_piece();  // of weights_
  void run_weights();
  void run_keys();

  int threads_;
  std::optional<GemmPlan> gemm_;
  CeilingProbe ceiling_;
  Buffer memory_;
  Buffer weights_;          // of the weights and keys classes, made when first asked for: several times the last cache
  Buffer keys_scratch_;
  const std::int64_t floats_ = stream_floats(), width_ = gemm_width();
  std::int64_t pieces_ = 0, piece_ = 0;
  std::int64_t packed_ = 0, x_ = 0, y_ = 0, gemm_scratch_ = 0, stream_ = 0, topk_ = 0, topk_out_ = 0;
};

// Of an op whose operands the caches can hold.
ReferenceClass reference_of(const OpSpec& spec);

}  // namespace fathom::cpu
