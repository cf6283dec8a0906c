// Reference kernels for bracketed timing, one per class, each 0.05 to 0.5 ms, with operands that fit a core's L2.
#pragma once

#include <optional>

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/probe_compute.hpp"
#include "lib/op.hpp"

namespace fathom::cpu {

enum class ReferenceClass : std::uint8_t { kProduct, kExp, kStream, kSelect };

// Distinct bytes the references touch, per thread, between two timed ops: they evict that much of the private caches.
inline constexpr double kReferenceBytesPerThread = 1.75 * (1 << 20);

class References {
 public:
  References(int threads, bool bf16_products);
  void run(ReferenceClass which);
  // FLOP/s, now, of what products are held against; 0 for the other classes.
  double ceiling(ReferenceClass which) { return which == ReferenceClass::kProduct ? ceiling_.flops_per_second() : 0; }

 private:
  static constexpr std::int64_t kGemmRows = 64;        // per thread
  static constexpr std::int64_t kGemmWidth = 512;
  static constexpr std::int64_t kStreamFloats = 1 << 17;  // per thread and array: 512 KiB
  static constexpr std::int64_t kTopK = 4096;

  int threads_;
  std::optional<GemmPlan> gemm_;
  CeilingProbe ceiling_;
  Buffer memory_;
  std::int64_t packed_ = 0, x_ = 0, y_ = 0, gemm_scratch_ = 0, stream_ = 0, topk_ = 0, topk_out_ = 0;
};

ReferenceClass reference_of(const OpSpec& spec);

}  // namespace fathom::cpu
