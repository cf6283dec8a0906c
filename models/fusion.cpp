#include "models/fusion.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace fathom {
namespace {

using Place = std::pair<int, std::int8_t>;  // tensor and layer offset
Place place(const Operand& operand) { return {operand.tensor, operand.layer_offset}; }

bool repeated_or_forward(const Op& op) { return op.pass == Pass::kForward || op.pass == Pass::kRecompute; }

const Gemm* product_of(const Op& op) {
  const auto* gemm = std::get_if<Gemm>(&op.spec);
  return gemm && gemm->role == GemmRole::kForward && repeated_or_forward(op) ? gemm : nullptr;
}

// Finds the pairs of ops between which a tensor stays inside, and notes each read and write that falls away once.
class Fuser {
 public:
  Fuser(const Fusions& fusions, WorkloadBuilder& list) : fusions_(fusions), list_(list) {
    const auto& ops = list.list().ops();
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const Operand& in : ops[i].inputs) readers_[in.tensor].insert(static_cast<int>(i));
      for (const Operand& out : ops[i].outputs) writers_[out.tensor].insert(static_cast<int>(i));
    }
  }

  void run() {
    for (const Block& block : list_.list().blocks())
      for (int i = block.first_op; i < block.first_op + block.op_count; ++i) {
        if (!fusions_.qkv) split(i);
        if (!repeated_or_forward(op(i))) continue;
        if (fusions_.gate_up) gate_up(block, i);
        if (fusions_.norm) norm(block, i);
        if (fusions_.residual) residual(block, i);
      }
    // A tensor is written unless each of its readers takes it inside.
    for (const auto& [tensor, maker] : inner_) {
      const bool kept = std::any_of(readers_[tensor].begin(), readers_[tensor].end(), [&, t = tensor](int reader) { return !unread_.count({reader, t}); });
      if (!kept) list_.at(list_.list().id(maker)).fused.written += bytes(tensor);
    }
  }

 private:
  const Op& op(int i) const { return list_.list().ops()[static_cast<size_t>(i)]; }
  Bytes bytes(int tensor) const { return list_.list().tensors()[static_cast<size_t>(tensor)].bytes(); }
  void unread(int reader, int tensor) {
    if (unread_.insert({reader, tensor}).second) list_.at(list_.list().id(reader)).fused.read += bytes(tensor);
  }
  // The op of this block that alone makes an operand; -1 where there is none.
  int maker(const Block& block, const Operand& at) const {
    const auto found = writers_.find(at.tensor);
    if (found == writers_.end() || found->second.size() != 1 || at.layer_offset != 0) return -1;
    const int i = *found->second.begin();
    return i >= block.first_op && i < block.first_op + block.op_count ? i : -1;
  }
  void inside(int maker_op, int reader, int tensor) {
    unread(reader, tensor);
    inner_[tensor] = maker_op;
  }

  void gate_up(const Block& block, int i) {
    const auto* activation = std::get_if<Activation>(&op(i).spec);
    if (!activation || !activation->gated) return;
    const Operand gate = op(i).inputs[0], up = op(i).inputs[1];
    const int g = maker(block, gate), u = maker(block, up);
    if (g < 0 || u < 0 || !product_of(op(g)) || !product_of(op(u)) || place(op(g).inputs[0]) != place(op(u).inputs[0])) return;
    unread(u, op(u).inputs[0].tensor);
    inside(g, i, gate.tensor);
    inside(u, i, up.tensor);
  }
  void norm(const Block& block, int i) {
    const Gemm* gemm = product_of(op(i));
    if (!gemm) return;
    const int n = maker(block, op(i).inputs[0]);
    if (n < 0) return;
    const auto* rms = std::get_if<RmsNorm>(&op(n).spec);
    if ((rms && rms->stride == 0) || std::holds_alternative<LayerNorm>(op(n).spec)) {
      inside(n, i, op(i).inputs[0].tensor);
      list_.at(list_.list().id(i)).split.read = Bytes();  // q, k and v as products of their own norm the stream themselves, as gate and up do
    }
  }
  void residual(const Block& block, int i) {
    if (!std::holds_alternative<AddResidual>(op(i).spec)) return;
    for (const Operand& in : op(i).inputs) {
      const int m = maker(block, in);
      if (m < 0 || !product_of(op(m)) || !with_tail_.insert(m).second) continue;  // one product has one tail
      inside(m, i, in.tensor);
      return;
    }
  }
  // q, k and v (or k and v) as products of their own: each reads the input, and in the backward pass each adds to its gradient.
  void split(int i) {
    const auto* gemm = std::get_if<Gemm>(&op(i).spec);
    const std::string& leaf = op(i).leaf;
    const std::int64_t more = leaf.starts_with("attn/qkv") ? 2 : leaf == "attn/kv" || leaf == "attn/kv/dx" || leaf == "attn/kv/dw" ? 1 : 0;
    if (!gemm || more == 0) return;
    const Bytes again(product(more, gemm->rows.count, gemm->in, dtype_bytes(gemm->act)));
    Op& changed = list_.at(list_.list().id(i));
    changed.split.read += again;
    if (gemm->role == GemmRole::kInputGradient) changed.split.written += again;
  }

  const Fusions& fusions_;
  WorkloadBuilder& list_;
  std::map<int, std::set<int>> readers_, writers_;
  std::set<std::pair<int, int>> unread_;
  std::map<int, int> inner_;
  std::set<int> with_tail_;
};

}  // namespace

bool needs_list(const Fusions& fusions) { return !fusions.qkv || fusions.gate_up || fusions.norm || fusions.residual; }

void apply_fusions(const Fusions& fusions, WorkloadBuilder& list) {
  if (needs_list(fusions)) Fuser(fusions, list).run();
}

}  // namespace fathom
