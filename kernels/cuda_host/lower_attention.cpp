// Attention and what stands around it: rotary positions, the KV cache's append, latent heads.
#include <algorithm>
#include <cmath>

#include "kernels/cuda_host/lower.hpp"

namespace fathom::cuda {

void Lowering::operator()(const Rope& op) {
  RopeArgs a;
  a.type = op.act;
  a.rows = rows(op.rows.count);
  a.row_stride = op.row_stride;
  a.heads = static_cast<int>(op.heads);
  a.head_dim = static_cast<int>(op.head_dim);
  a.width = static_cast<int>(op.width);
  a.offset = static_cast<int>(op.offset);
  a.inverse = op.inverse;
  a.x = out(0).data;
  a.positions = in(1).as<std::int32_t>();
  a.table = context_.rope_tables.at({op.base, op.width});
  launch(&Kernels::rope, a, "rope");
}

void Lowering::operator()(const KvAppend& op) {
  const std::int64_t sequences = out(1).rows;
  KvAppendArgs a;
  a.type = op.act;
  a.kv_type = op.kv;
  a.rows = ragged(sequences, op.rows.count);
  a.row_limit = op.rows.count;
  a.width = op.width;
  a.stride = in(0).cols;
  a.offset = in(0).cols - op.width;  // keys and values stand behind the queries
  a.room = sequences > 0 ? out(0).rows / sequences : 0;
  a.source = in(0).data;
  a.cache = out(0).data;
  a.counts = out(1).as<std::int32_t>();
  if (op.positions) {
    a.positions = bound_.in.back().as<std::int32_t>();
    a.kept = out(2).as<std::int32_t>();
  }
  a.full = flag();
  launch(&Kernels::kv_append, a, "kv_append");
}

// Which of the inputs hold what (lib/op_forward.hpp): queries and positions first, then keys of other rows, the cache, sinks.
AttentionArgs Lowering::attention_args(const Attention& op, std::size_t next, bool cached, AttentionRangeArgs& ranges) {
  const std::int64_t sequences = std::max<std::int64_t>(1, op.sequences);
  const SelectionBuffers* chosen = selection();
  AttentionArgs a;
  a.type = op.act;
  a.queries = ragged(sequences, op.rows.count);
  a.row_limit = op.rows.count;
  a.rows_per_sequence = chosen && !chosen->fixed ? std::min(op.rows.count, chosen->select->length) : op.rows.count / sequences;
  a.heads = static_cast<int>(op.heads);
  a.kv_heads = static_cast<int>(op.kv_heads);
  a.qk_dim = static_cast<int>(op.qk_dim);
  a.v_dim = static_cast<int>(op.v_dim);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(op.scale_dim > 0 ? op.scale_dim : op.qk_dim)));
  a.q = in(0).data;
  a.q_stride = in(0).cols;
  ranges.mask = op.mask;
  ranges.queries = a.queries;
  ranges.row_limit = a.row_limit;
  ranges.positions = in(1).as<std::int32_t>();
  const std::byte* keys = nullptr;
  if (cached) {
    const std::size_t cache = next + (op.apart ? 2 : 0);
    a.kv_stride = in(cache).cols;
    a.keys_per_sequence = in(cache).rows / sequences;
    a.keys = {sequences, a.keys_per_sequence, nullptr};
    ranges.counts = in(cache + 1).as<std::int32_t>();
    ranges.all_keys = op.apart && in(3).at != in(1).at;
    if (op.kept_positions) ranges.kept = in(bound_.in.size() - (op.sinks ? 2 : 1)).as<std::int32_t>();
    keys = in(cache).data;
  } else if (op.apart) {
    a.kv_stride = in(next).cols;
    a.keys_per_sequence = in(next).rows / sequences;
    a.keys = {sequences, a.keys_per_sequence, nullptr};
    ranges.key_positions = in(next + 1).as<std::int32_t>();
    keys = in(next).data;
  } else {
    a.kv_stride = in(0).cols;
    a.keys_per_sequence = a.rows_per_sequence;
    a.keys = a.queries;
    ranges.key_positions = ranges.positions;
    keys = in(0).data + op.heads * op.qk_dim * dtype_bytes(op.act);
  }
  ranges.keys = a.keys;
  a.k = keys;
  // One latent store is key and value; else the values of all heads stand behind the keys of all heads.
  a.v = op.shared_kv ? keys : keys + op.kv_heads * op.qk_dim * dtype_bytes(op.act);
  a.v_head_stride = op.shared_kv ? op.qk_dim : op.v_dim;
  if (op.sinks) {
    a.sinks = bound_.in.back().data;
    a.sink_type = bound_.in.back().dtype;
  }
  a.o_stride = op.heads * op.v_dim;
  ranges.begin = scratch<std::int32_t>(a.row_limit);
  ranges.end = scratch<std::int32_t>(a.row_limit);
  a.begin = ranges.begin;
  a.end = ranges.end;
  return a;
}

void Lowering::operator()(const Attention& op) {
  AttentionRangeArgs ranges;
  AttentionArgs a = attention_args(op, 2, op.cached, ranges);
  a.o = out(0).data;
  a.lse = op.lse ? out(1).as<float>() : nullptr;
  if (op.cached && attention_kernel_for(a) != AttentionKernel::kTensor)
    a.splits = attention_splits(a.row_limit * a.kv_heads, a.keys_per_sequence, attention_tile_dim(a), context_.multiprocessors);
  if (a.splits > 1) {
    a.partial_o = scratch<float>(a.splits * a.row_limit * a.heads * a.v_dim);
    a.partial_lse = scratch<float>(a.splits * a.row_limit * a.heads);
  }
  launch(&Kernels::attention_ranges, ranges, "attention ranges");
  launch(&Kernels::attention, a, "attention");
}

void Lowering::operator()(const AttentionBackward& op) {
  const Attention& f = op.forward;
  AttentionRangeArgs ranges;
  AttentionBackwardArgs b;
  b.forward = attention_args(f, 5, false, ranges);
  b.forward.o = in(2).data;
  b.forward.lse = in(3).as<float>();
  b.d_o = in(4).data;
  b.delta = scratch<float>(f.rows.count * f.heads);
  b.dq = out(0).data;
  std::byte* keys = f.apart ? out(1).data : out(0).data + f.heads * f.qk_dim * dtype_bytes(f.act);
  b.dk = keys;
  b.dv = keys + f.kv_heads * f.qk_dim * dtype_bytes(f.act);
  const std::size_t sinks = f.apart ? 2 : 1;
  b.dsinks = f.sinks && has_out(sinks) ? out(sinks).data : nullptr;
  b.accumulate_sinks = op.accumulate_weights;
  launch(&Kernels::attention_ranges, ranges, "attention ranges");
  launch(&Kernels::attention_backward, b, "attention_backward");
}

namespace {

LatentArgs latent_args(const LatentHeads& op) {
  LatentArgs a;
  a.type = op.act;
  a.heads = static_cast<int>(op.heads);
  a.nope = static_cast<int>(op.nope_dim);
  a.rope = static_cast<int>(op.rope_dim);
  a.v = static_cast<int>(op.v_dim);
  a.rank = static_cast<int>(op.rank);
  a.absorbed = op.absorbed;
  a.queries = op.queries;
  return a;
}

}  // namespace

void Lowering::operator()(const LatentHeads& op) {
  LatentArgs a = latent_args(op);
  a.rows = rows(op.rows.count);
  std::size_t next = 0;
  if (op.absorbed || op.queries) a.q = in(next++).data;
  if (!op.absorbed) a.latent = in(next++).data;
  a.parts = in(next).data;
  a.y = out(0).data;
  launch(&Kernels::latent_heads, a, "latent_heads");
}

void Lowering::operator()(const LatentHeadsBackward& op) {
  LatentArgs a = latent_args(op.forward);
  a.rows = rows(op.forward.rows.count);
  a.y = in(0).data;
  std::size_t next = 0;
  if (op.forward.queries) a.dq = out(next++).data;
  a.dlatent = out(next++).data;
  a.dparts = out(next).data;
  launch(&Kernels::latent_heads_backward, a, "latent_heads_backward");
}

}  // namespace fathom::cuda
