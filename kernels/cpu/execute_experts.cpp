// Expert routing of the op list on the kernels of moe.hpp. A token's slots are rebuilt from the permutation (the token of every row), which is
// all that later ops are given; rows behind the last assignment hold token -1.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/moe.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/rows.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

// Everything of one routing decision, per token.
struct Routed {
  float* probabilities;
  float* correction;
  std::int32_t* ids;
  float* weights;
  float* dweights;
  std::int32_t* slots;
  std::int32_t* rows;  // token per row
  std::int64_t* offsets;
  std::int64_t bytes;

  Routed(const fathom::ExpertSelect& op, std::byte* base) {
    Pieces pieces(base);
    const std::int64_t tokens = op.rows.count, picked = tokens * op.picks;
    probabilities = pieces.take<float>(tokens * (op.experts + op.noops));
    correction = pieces.take<float>(op.experts + op.noops);
    ids = pieces.take<std::int32_t>(picked);
    weights = pieces.take<float>(picked);
    dweights = pieces.take<float>(picked);
    slots = pieces.take<std::int32_t>(picked);
    rows = pieces.take<std::int32_t>(picked);
    offsets = pieces.take<std::int64_t>(op.experts + 1);
    bytes = pieces.bytes();
  }
};

// `correction`: one per real expert, null without.
MoeRouting routing_of(const fathom::ExpertSelect& op, const OpCall& call, const float* correction) {
  MoeRouting routing;
  routing.correction = correction;
  routing.tokens = call.rows();
  routing.experts = op.experts + op.noops;
  routing.top_k = op.picks;
  routing.sigmoid = op.sigmoid;
  return routing;
}

// The correction of every output, 0 for no-op experts: operand `i`, where there is one.
const float* correction_of(const fathom::ExpertSelect& op, const OpCall& call, size_t i, const Routed& routed) {
  if (!op.correction) return nullptr;
  const OperandView& view = call.in(i);
  std::fill_n(routed.correction, op.experts + op.noops, 0.0f);
  for (std::int64_t e = 0; e < op.experts; ++e) routed.correction[e] = view.dtype == DType::kF32 ? view.as<float>()[e] : static_cast<float>(view.as<bf16>()[e]);
  return routed.correction;
}

// Routes and dispatches; returns the number of rows.
std::int64_t route(const fathom::ExpertSelect& op, const OpCall& call, const float* logits, const float* correction, const Routed& routed) {
  const std::int64_t nan = moe_route(routing_of(op, call, correction), logits, routed.probabilities, routed.ids, routed.weights, call.threads);
  if (nan >= 0)
    throw_input(fmt::format("an expert logit of token {} is not a number", nan), {"", 0, call.execution.workload().path(call.bound.op)}, "the activations overflowed or the weights are not finite");
  return moe_dispatch({call.rows(), op.picks, op.experts, op.capacity > 0 ? op.capacity : -1}, routed.ids, routed.offsets, routed.rows, routed.slots);
}

// Rows that a permutation assigns: those before the first -1.
std::int64_t assigned_rows(const OperandView& permutation) {
  const std::int32_t* tokens = permutation.as<std::int32_t>();
  return std::partition_point(tokens, tokens + permutation.rows, [](std::int32_t token) { return token >= 0; }) - tokens;
}

// Slots and weights per token from rows; `weights` may be null. Rows of a token ascend by expert.
struct Slots {
  std::int32_t* slots;
  float* weights;
  std::int32_t* used;
  std::int64_t bytes;
  Slots(std::int64_t tokens, std::int64_t picks, std::byte* base) {
    Pieces pieces(base);
    slots = pieces.take<std::int32_t>(tokens * picks);
    weights = pieces.take<float>(tokens * picks);
    used = pieces.take<std::int32_t>(tokens);
    bytes = pieces.bytes();
  }
};

struct GateScratch {
  float *value, *slope, *dlogit;
  std::int32_t* rows;
  std::int64_t bytes;
  GateScratch(std::int64_t tokens, std::byte* base) {
    Pieces pieces(base);
    value = pieces.take<float>(tokens);
    slope = pieces.take<float>(tokens);
    dlogit = pieces.take<float>(tokens);
    rows = pieces.take<std::int32_t>(tokens);
    bytes = pieces.bytes();
  }
};

Slots slots_of(const OperandView& permutation, const float* weights, std::int64_t tokens, std::int64_t picks, std::byte* scratch) {
  const Slots result(tokens, picks, scratch);
  std::fill_n(result.slots, tokens * picks, -1);
  std::fill_n(result.used, tokens, 0);
  if (weights) std::fill_n(result.weights, tokens * picks, 0.0f);
  const std::int64_t rows = assigned_rows(permutation);
  for (std::int64_t j = 0; j < rows; ++j) {
    const std::int64_t token = permutation.as<std::int32_t>()[j];
    const std::int64_t place = token * picks + result.used[token]++;
    result.slots[place] = static_cast<std::int32_t>(j);
    if (weights) result.weights[place] = weights[j];
  }
  return result;
}

}  // namespace

std::int64_t expert_select_scratch(const fathom::ExpertSelect& op) {
  return Routed(op, nullptr).bytes + 4 * op.rows.count * (op.experts + op.noops);  // and f32 gradients of narrow logits
}
std::int64_t expert_combine_backward_scratch(const fathom::ExpertCombine& op) {
  return std::max(4 * op.rows.count, op.shared_gate ? GateScratch(op.tokens, nullptr).bytes : 0);
}
std::int64_t expert_slots_scratch(std::int64_t tokens, std::int64_t picks) { return Slots(tokens, picks, nullptr).bytes; }

void run_op(const fathom::ExpertSelect& op, const OpCall& call) {
  const Routed routed(op, call.scratch);
  const std::int64_t rows = route(op, call, call.in(0).as<float>(), correction_of(op, call, 1, routed), routed);
  std::int32_t* permutation = call.out(0).as<std::int32_t>();
  float* weights = call.out(1).as<float>();
  std::copy_n(routed.rows, rows, permutation);
  std::fill(permutation + rows, permutation + call.out(0).rows, -1);
  std::fill(weights + rows, weights + call.out(1).rows, 0.0f);
  for (std::int64_t i = 0; i < call.rows() * op.picks; ++i)
    if (routed.slots[i] >= 0) weights[routed.slots[i]] = routed.weights[i];
  for (std::int64_t e = 0; e <= op.experts; ++e) call.out(2).as<std::int32_t>()[e] = static_cast<std::int32_t>(routed.offsets[e]);
  call.execution.set_assigned(call.bound, rows);
}

void run_op(const fathom::ExpertSelectBackward& op, const OpCall& call) {
  // The routing is repeated from the saved logits: the same decision, bit for bit, and cheaper than keeping probabilities.
  const fathom::ExpertSelect& f = op.forward;
  const Routed routed(f, call.scratch);
  const float* correction = correction_of(f, call, 4, routed);
  route(f, call, call.in(0).as<float>(), correction, routed);
  const float* dweights = call.in(3).as<float>();
  for (std::int64_t i = 0; i < call.rows() * f.picks; ++i) routed.dweights[i] = routed.slots[i] >= 0 ? dweights[routed.slots[i]] : 0.0f;
  const MoeRouting routing = routing_of(f, call, correction);
  const OperandView& out = call.out(0);
  const bool narrow = out.dtype != DType::kF32;
  float* dlogits = narrow ? reinterpret_cast<float*>(call.scratch + routed.bytes) : out.as<float>();
  moe_route_backward(routing, routed.probabilities, routed.ids, routed.weights, routed.dweights, dlogits, call.threads);
  if (narrow) f32_to_bf16(dlogits, out.as<bf16>(), call.rows() * routing.experts, call.threads);
}

void run_op(const fathom::ExpertDispatch& op, const OpCall& call) {
  call.executed.rows = assigned_rows(call.in(1));
  gather_rows({op.act, call.rows(), op.width}, call.in(0).data, call.in(1).as<std::int32_t>(), call.out(0).data, call.threads);
}

void run_op(const fathom::ExpertDispatchBackward& op, const OpCall& call) {
  call.executed.rows = assigned_rows(call.in(1));
  const std::int64_t picks = call.execution.picks_of(call.in(1).at.tensor);
  const Slots slots = slots_of(call.in(1), nullptr, op.tokens, picks, call.scratch);
  moe_combine({op.forward.act, op.tokens, picks, op.forward.width}, call.in(0).data, slots.slots, nullptr, call.out(0).data, op.accumulate, call.threads);
}

void run_op(const fathom::ExpertCombine& op, const OpCall& call) {
  call.executed.rows = assigned_rows(call.in(1));
  const std::int64_t picks = call.execution.picks_of(call.in(1).at.tensor);
  const Slots slots = slots_of(call.in(1), call.in(2).as<float>(), op.tokens, picks, call.scratch);
  if (op.shared_gate) {
    const std::int64_t bytes = op.width * dtype_bytes(op.act);
    const float* gate = call.in(4).as<float>();
    over_ranges(op.tokens, call.threads, 2 * bytes, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t)
        scaled_copy(op.act, call.in(3).data + t * bytes, 1.0f / (1.0f + std::exp(-gate[t])), call.out(0).data + t * bytes, op.width, 1);
    });
  } else if (op.shared && call.in(3).data != call.out(0).data)
    std::memcpy(call.out(0).data, call.in(3).data, static_cast<size_t>(op.tokens * op.width * dtype_bytes(op.act)));
  moe_combine({op.act, op.tokens, picks, op.width}, call.in(0).data, slots.slots, slots.weights, call.out(0).data, op.shared, call.threads);
}

void run_op(const fathom::ExpertCombineBackward& op, const OpCall& call) {
  const fathom::ExpertCombine& f = op.forward;
  const std::int64_t rows = call.executed.rows = assigned_rows(call.in(2));
  float* ones = reinterpret_cast<float*>(call.scratch);
  std::fill_n(ones, rows, 1.0f);
  scatter_add_rows_backward({f.act, rows, f.width}, call.in(0).data, call.in(1).data, call.in(3).as<float>(), ones, call.in(2).as<std::int32_t>(),
                            call.out(0).data, call.out(1).as<float>(), call.threads);
  std::fill(call.out(1).as<float>() + rows, call.out(1).as<float>() + call.out(1).rows, 0.0f);
  if (!f.shared_gate) return;
  // dshared = sigma(gate) dy, dgate = sigma' <dy, shared>: the scatter's backward with every row in its place.
  const GateScratch gate(f.tokens, call.scratch);
  for (std::int64_t t = 0; t < f.tokens; ++t) {
    const float sigma = 1.0f / (1.0f + std::exp(-call.in(5).as<float>()[t]));
    gate.value[t] = sigma;
    gate.slope[t] = sigma * (1.0f - sigma);
    gate.rows[t] = static_cast<std::int32_t>(t);
  }
  scatter_add_rows_backward({f.act, f.tokens, f.width}, call.in(0).data, call.in(4).data, gate.value, gate.slope, gate.rows, call.out(2).data, gate.dlogit,
                            call.threads);
  store_values({gate.dlogit, static_cast<size_t>(f.tokens)}, call.out(3).dtype, call.out(3).data);
}

}  // namespace fathom::cpu
