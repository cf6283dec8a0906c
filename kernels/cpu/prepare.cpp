// Decides, per op, which plan and weight layout is used and how much workspace the calls need.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/attention_bf16.hpp"
#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/attention_views.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/embedding.hpp"
#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/gemm_f32.hpp"
#include "kernels/cpu/norm.hpp"
#include "kernels/cpu/rope.hpp"
#include "kernels/cpu/topk.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

constexpr std::int64_t kFloat = 4;

// bf16 pairs are multiplied as they are (gemv.cpp), which leaves room for many rows beside the stream of weights.
bool multiplies_pairs() { return isa() == Isa::kAvx512 && bf16_products(Isa::kAvx512); }

// From this many rows on a matrix product is faster than the streaming one (gemv.hpp; tests/bench/bench_decode.cpp).
std::int64_t gemv_limit(const fathom::Gemm& op) { return op.transposed && op.act == DType::kBF16 && !multiplies_pairs() ? 6 : 8; }

// With one output per row the weights are read faster; where bf16 must be widened first, only a few rows of x leave time for it.
bool worth_turning(const fathom::Gemm& op) { return op.act == DType::kF32 || multiplies_pairs() || op.rows.expected() <= 4; }

// Our own f32 product reads packed weights as one stream for few rows too, and its sums lie across the lanes: 8 rows take it 10 % longer than
// one, where the streaming product of turned weights adds up each output's lanes and takes twice as long (bench_decode).
bool packed_streams(const fathom::Gemm& op) { return op.act == DType::kF32 && f32_has_tiles(isa()); }

// Forward products of fixed weights run on packed ones, or, with few rows, stream plain ones. Plain they also stay where several ops
// use them: a training step changes them every time, a tied head shares the token table with the embedding gather.
GemmBinding bind_gemm(const fathom::Gemm& op, bool packable, std::int64_t weight_room, int threads) {
  GemmBinding binding;
  if (op.experts > 1) {
    binding.grouped.emplace(op, packable ? op.in * op.out * dtype_bytes(op.weight) : -1, threads);
    binding.layout = binding.grouped->packed() ? WeightLayout::kPacked : WeightLayout::kPlain;
    return binding;
  }
  if (has_parts(op)) {
    binding.parts.emplace(op, threads);
    return binding;
  }
  GemmOptions options;
  options.dtype = op.act;
  options.out = op.result;
  options.threads = threads;
  options.accumulate = op.accumulate;
  GemmShape shape{op.rows.count, op.out, op.in};
  switch (op.role) {
    case GemmRole::kForward:
      options.bias = op.bias;
      options.transpose_w = op.transposed;
      options.packed = packable && !op.transposed;
      // In a routed block by the rows expected: its weights have one layout for all row counts.
      if (op.rows.expected() <= static_cast<double>(gemv_limit(op))) {
        binding.streamed_rows = gemv_limit(op);
        if (op.rows.count > 2 && options.packed && packed_streams(op)) break;
        binding.gemv_rows = gemv_limit(op);
        if (packable && !op.transposed && worth_turning(op)) {
          binding.layout = WeightLayout::kTurned;
          binding.turned_bytes = op.in * op.out * dtype_bytes(op.weight);
          options.transpose_w = true;
        }
        if (op.rows.count <= binding.gemv_rows) return binding;
        options.packed = false;
      }
      break;
    case GemmRole::kInputGradient:
      shape = {op.rows.count, op.in, op.out};
      options.transpose_w = !op.transposed;
      break;
    case GemmRole::kWeightGradient:
      // A transposed weight [out, in] has gradient dY^T X: the operands change places.
      shape = op.transposed ? GemmShape{op.out, op.in, op.rows.count} : GemmShape{op.in, op.out, op.rows.count};
      options.transpose_x = true;
      break;
  }
  const auto make_plan = [&] {
    if (op.rows.routed())
      binding.cache.emplace(std::max<std::int64_t>(1, op.rows.count), shape.n, shape.k, options);
    else
      binding.plan.emplace(shape, options);
    if (binding.layout != WeightLayout::kTurned) binding.layout = options.packed ? WeightLayout::kPacked : WeightLayout::kPlain;
  };
  make_plan();
  if (binding.packed_bytes() > weight_room) {  // blocks of a small or odd shape are padded past the tensor's place in the arena
    options.packed = false;
    make_plan();
  }
  return binding;
}

// Workspace bytes of everything but matrix products.
std::int64_t workspace(const Op& op_of_list, const Workload& workload, int threads) {
  const auto rows_of_input = [&](size_t i) { return workload.tensors()[static_cast<size_t>(op_of_list.inputs[i].tensor)].rows; };
  return std::visit(
      overloaded{
          [&](const fathom::RmsNormBackward& op) {
            return std::max(column_norm_scratch(op.forward), kFloat * norm_workspace_floats(op.forward.rows.count * op.forward.groups, op.forward.width, false));
          },
          [&](const fathom::LayerNormBackward& op) { return kFloat * norm_workspace_floats(op.forward.rows.count, op.forward.width, true); },
          [&](const fathom::Attention& op) { return attention_scratch(op, op.cached ? rows_of_input(op.apart ? 4 : 2) : op.apart ? rows_of_input(2) : 0, threads); },
          [&](const fathom::AttentionBackward& op) { return attention_backward_scratch(op.forward, op.forward.apart ? rows_of_input(5) : 0, threads); },
          [&](const fathom::KvAppend& op) { return 8 * op.rows.count; },
          [&](const fathom::Select& op) { return topk_workspace_bytes(op.length, threads) + kFloat * op.sequences * op.length; },
          [&](const fathom::ScatterAddRows& op) { return 2 * kFloat * op.rows.count; },
          [&](const fathom::ScatterAddBackward& op) { return 3 * kFloat * op.forward.rows.count; },
          [&](const fathom::RouterLoss& op) { return op.rows.count; },
          [&](const fathom::CrossEntropy& op) { return kFloat * op.rows.count; },
          [&](const fathom::RouterScoreBackward& op) {
            return kFloat * (2 * op.forward.rows.count + column_sums_workspace_floats(op.forward.rows.count, op.forward.width));
          },
          [&](const fathom::Gemm& op) {
            return op.role == GemmRole::kWeightGradient && op.bias ? kFloat * column_sums_workspace_floats(op.rows.count, op.out) : std::int64_t{0};
          },
          [&](const fathom::ExpertSelect& op) { return expert_select_scratch(op); },
          [&](const fathom::ExpertSelectBackward& op) { return expert_select_scratch(op.forward); },
          [&](const fathom::ExpertCombineBackward& op) { return expert_combine_backward_scratch(op.forward); },
          [&](const fathom::LatentHeadsBackward& op) { return kFloat * op.forward.rope_dim; },
          [&](const fathom::EmbeddingBackward& op) { return embedding_workspace_bytes(op.forward.rows.count); },
          [](const auto&) { return std::int64_t{0}; },
      },
      op_of_list.spec);
}

// The attention whose keys and values this append stores: it reads the cache, or in a prefill the same rows. None where the cache holds
// latent rows that a product expands.
const fathom::Attention* attention_of(const Workload& workload, const Op& append) {
  const TensorId cache = append.outputs[0].tensor, source = append.inputs[0].tensor;
  for (const Op& op : workload.ops()) {
    const auto* attention = std::get_if<fathom::Attention>(&op.spec);
    if (!attention) continue;
    const size_t rows_at = attention->apart ? 2 : 0;
    if (attention->cached ? op.inputs[rows_at + 2].tensor == cache : op.inputs[rows_at].tensor == source) return attention;
  }
  return nullptr;
}

}  // namespace

Support supported(const OpSpec& spec) {
  return std::visit(overloaded{
                        [](const fathom::Attention& op) -> Support {
                          if (!op.fused) return {false, "unfused attention is counted, not run"};
                          return attention_supported(op);
                        },
                        [](const fathom::Gemm& op) -> Support {
                          if (op.role == GemmRole::kForward && op.weight != op.act) return {false, "weights run in the type of the activations"};
                          if (op.role == GemmRole::kWeightGradient && op.rows.routed() && op.experts == 1 && !has_parts(op))
                            return {false, "gradients over rows that a threshold chooses run on the reference backend; train with --routing topk"};
                          return {};
                        },
                        [](const fathom::AttentionBackward& op) -> Support { return attention_supported(op.forward); },
                        [](const auto&) -> Support { return {}; },
                    },
                    spec);
}

Prepared prepare(std::shared_ptr<const Workload> workload, const BindOptions& options) {
  Prepared prepared;
  prepared.workload = std::move(workload);
  const Workload& w = *prepared.workload;
  // Beyond a few per processor threads measure the scheduler, and each takes workspace.
  const int most = std::max(64, 4 * static_cast<int>(cpu_info().cpus.size()));
  if (options.threads < 0 || options.threads > most)
    throw_input(fmt::format("{} threads cannot be run: this machine has {} processors", options.threads, cpu_info().cpus.size()), {"", 0, "threads"}, fmt::format("from 1 to {}", most));
  prepared.threads = options.threads > 0 ? options.threads : cpu_info().cores;
  prepared.plan = plan_memory(w);
  prepared.gemms.resize(w.ops().size());
  prepared.positions = w.stream().past + w.stream().queries;
  // A weight that several products share (recursion) stays plain: their packed layouts may differ.
  std::map<TensorId, int> products_of;
  for (const Op& op : w.ops())
    if (const auto* gemm = std::get_if<fathom::Gemm>(&op.spec); gemm && gemm->role == GemmRole::kForward) ++products_of[op.inputs[1].tensor];
  bool weights_change = false;
  for (const Op& op : w.ops()) weights_change = weights_change || op.pass == Pass::kBackward || op.pass == Pass::kOptimizer;
  for (size_t i = 0; i < w.ops().size(); ++i) {
    const Op& op = w.ops()[i];
    if (const Support support = supported(op.spec); !support.ok)
      throw_input(fmt::format("the CPU backend cannot run '{}' ({}): {}", w.path(static_cast<int>(i)), kind_name(op.spec), support.reason));
    if (const auto* gemm = std::get_if<fathom::Gemm>(&op.spec)) {
      const TensorId weight = gemm->role == GemmRole::kForward ? op.inputs[1].tensor : -1;
      const std::int64_t bytes = weight < 0 ? 0 : static_cast<std::int64_t>(w.tensors()[static_cast<size_t>(weight)].bytes().value());
      const std::int64_t room = (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
      prepared.gemms[i] = bind_gemm(*gemm, !weights_change && weight >= 0 && products_of[weight] == 1, room, prepared.threads);
      prepared.scratch = std::max(prepared.scratch, prepared.gemms[i].scratch_bytes());
      prepared.pack_scratch = std::max(prepared.pack_scratch, prepared.gemms[i].packed_bytes());
    }
    if (const auto* rope = std::get_if<fathom::Rope>(&op.spec)) {
      const auto key = std::make_pair(rope->base, rope->width);
      if (!prepared.rope_tables.count(key)) {
        prepared.rope_tables[key] = prepared.rope_floats;
        prepared.rope_floats += rope_table_floats(prepared.positions, rope->width);
      }
    }
    if (std::holds_alternative<fathom::KvAppend>(op.spec)) {
      const fathom::Attention* reader = attention_of(w, op);
      const Tensor& cache = w.tensors()[static_cast<size_t>(op.outputs[0].tensor)];
      const Tensor& counts = w.tensors()[static_cast<size_t>(op.outputs[1].tensor)];
      prepared.caches[op.outputs[0].tensor] = reader ? kv_layout(*reader, cache, counts.rows) : KvLayout{cache.dtype, counts.rows, cache.rows / std::max<std::int64_t>(1, counts.rows), 1, cache.cols, 0};
    }
    if (const auto* select = std::get_if<fathom::ExpertSelect>(&op.spec)) {
      prepared.picks[op.outputs[0].tensor] = select->picks;
      prepared.scratch = std::max(prepared.scratch, expert_slots_scratch(select->rows.count, select->picks));  // of combine and dispatch's backward
    }
    prepared.scratch = std::max(prepared.scratch, workspace(op, w, prepared.threads));
  }
  prepared.scratch += 4096;
  return prepared;
}

}  // namespace fathom::cpu
