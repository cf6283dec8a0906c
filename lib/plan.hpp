// Where every tensor instance lives: liveness over the program, and one arena.
//
// Persistent tensors (weights, gradients, optimizer state, KV cache, inputs, outputs) live for the whole program. Activations and
// indices live from their first write to their last use within their micro-step; instances whose lives do not overlap share memory. Where an
// op may work in place and its input dies there, input and output share one placement. Predicted peak memory is the size of this plan, and backends
// allocate exactly it, so that predicted and measured peak can be compared to the byte.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "lib/workload.hpp"

namespace fathom {

// Which copy of a tensor: the layer, the weight set, or 0, by the tensor's scope; and the micro-step for activations.
struct TensorInstance {
  TensorId tensor = -1;
  int copy = 0;
  int micro = 0;
  friend auto operator<=>(const TensorInstance&, const TensorInstance&) = default;
};

TensorInstance instance_of(const Workload& workload, const Step& step, const Operand& operand);

struct MemoryPlan {
  std::map<TensorInstance, std::int64_t> offsets;  // bytes from the start of the arena
  std::int64_t arena = 0;                          // total bytes
  std::int64_t activations = 0;                    // bytes of the shared part
  std::int64_t weights = 0, gradients = 0, optimizer = 0, kv_cache = 0, other = 0;  // persistent parts (aligned sizes)
};

inline constexpr std::int64_t kPlanAlignment = 64;
inline constexpr std::int64_t kPlanRowTile = 32;  // activations are planned with rows rounded up to this

// Greedy: largest first, lowest offset that overlaps nothing alive at the same time.
MemoryPlan plan_memory(const Workload& workload);

}  // namespace fathom
