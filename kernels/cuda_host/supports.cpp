// What the CUDA kernels do not do, by op, each with its reason. Everything else of the op list has a kernel.
#include "kernels/cuda_host/lower.hpp"

namespace fathom::cuda {
namespace {

Support refuse(const char* reason) { return {false, reason}; }

bool is_float(DType type) { return type == DType::kF32 || type == DType::kBF16; }

Support typed(DType type) {
  if (!is_float(type)) return refuse("activations and weights are f32 or bf16 on the GPU");
  return {};
}

}  // namespace

Support supported(const OpSpec& spec) {
  return std::visit(
      overloaded{
          [](const Gemm& op) -> Support {
            if (op.act != op.weight || !is_float(op.act)) return refuse("products have operands of one type, f32 or bf16");
            if (op.batch > 1 && op.transposed) return refuse("products per head of a transposed weight");
            if (op.experts > 1 && (op.batch > 1 || op.in_stride > 0 || op.out_stride > 0)) return refuse("products of experts on parts of rows");
            return {};
          },
          [](const Attention& op) -> Support {
            if (op.cached && op.kv != op.act) return refuse("attention reads a cache of the compute type");
            return typed(op.act);
          },
          [](const KvAppend& op) -> Support {
            if (!is_float(op.act) || !is_float(op.kv)) return refuse("keys and values are f32 or bf16 on the GPU");
            return {};
          },
          [](const AttentionBackward& op) -> Support {
            if (op.forward.shared_kv) return refuse("absorbed latent attention is not trained");
            return typed(op.forward.act);
          },
          [](const RmsNorm& op) { return typed(op.act); },
          [](const LayerNorm& op) { return typed(op.act); },
          [](const Embedding& op) { return typed(op.act); },
          [](const Activation& op) { return typed(op.act); },
          [](const Rope& op) { return typed(op.act); },
          [](const ExpertSelect& op) -> Support {
            if (op.picks > kMostPicks) return refuse("a token takes at most 32 experts");
            return {};
          },
          [](const auto&) -> Support { return {}; },
      },
      spec);
}

}  // namespace fathom::cuda
