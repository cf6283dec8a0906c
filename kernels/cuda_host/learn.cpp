// What only the device knew while a pass ran: the pairs and keys that attention saw, and the rows of experts.
#include <algorithm>

#include "kernels/cuda_host/execution.hpp"

namespace fathom::cuda {
namespace {

// Pairs that a mask leaves of one sequence's rows at these ascending positions.
u128 visible_pairs(const Mask& mask, const std::int32_t* positions, std::int64_t rows) {
  u128 pairs = 0;
  std::int64_t first = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    while (mask.window > 0 && positions[row] - positions[first] >= mask.window) ++first;
    while (mask.chunk > 0 && positions[row] / mask.chunk != positions[first] / mask.chunk) ++first;
    pairs += static_cast<u128>(row - first + 1);
  }
  return pairs;
}

}  // namespace

// Windows and chunks act on the original positions of the rows, which later ops may overwrite: they are read while they are there.
void CudaExecution::count_pairs(int instance, const Attention& op) {
  const BoundOp& b = bound(instance);
  const Selection* chosen = selection_of(b);
  if (op.cached && op.apart && b.in[3].at != b.in[1].at && op.rows.count > op.sequences && op.mask.kind == MaskKind::kCausal) {
    // Every token kept a key, some query: a query sees the slots up to its position.
    const std::vector<std::int32_t> positions = load_ints(b.in[1]);
    u128 pairs = 0;
    std::int64_t keys = 0, first = 0;
    for (std::int64_t s = 0; s < op.sequences; ++s) {
      const std::int64_t rows = chosen ? chosen->per_sequence[static_cast<size_t>(s)] : op.rows.count / op.sequences;
      std::int64_t behind = 0;
      for (std::int64_t r = first; r < first + rows; ++r) {
        const std::int64_t position = positions[static_cast<size_t>(r)];
        std::int64_t oldest = 0;
        if (op.mask.window > 0) oldest = std::max<std::int64_t>(0, position - op.mask.window + 1);
        if (op.mask.chunk > 0) oldest = std::max(oldest, position / op.mask.chunk * op.mask.chunk);
        pairs += static_cast<u128>(position + 1 - oldest);
        keys += position + 1 - std::max(oldest, behind);
        behind = position + 1;
      }
      first += rows;
    }
    pairs_[instance] = pairs;
    keys_[instance] = keys;
    return;
  }
  if (op.cached || op.mask.kind == MaskKind::kFull || (op.mask.window <= 0 && op.mask.chunk <= 0) || op.apart) return;
  if (!chosen && pairs_.count(instance)) return;  // the same rows as in the first pass, or nearly so: not worth stopping a timed pass
  const std::vector<std::int32_t> positions = load_ints(b.in[1]);
  u128 pairs = 0;
  std::int64_t first = 0;
  for (std::int64_t s = 0; s < op.sequences; ++s) {
    const std::int64_t rows = chosen ? chosen->per_sequence[static_cast<size_t>(s)] : op.rows.count / op.sequences;
    pairs += visible_pairs(op.mask, positions.data() + first, rows);
    first += rows;
  }
  pairs_[instance] = pairs;
}

void CudaExecution::learn(int instance, Executed& executed) const {
  const BoundOp& b = bound(instance);
  if (const auto found = pairs_.find(instance); found != pairs_.end()) executed.pairs = found->second;
  if (const auto found = keys_.find(instance); found != keys_.end()) executed.keys = found->second;
  const auto* attention = std::get_if<Attention>(b.spec);
  if (!attention || !attention->cached || pairs_.count(instance)) return;
  const auto list = list_of_.find(b.in[attention->apart ? 4 : 2].at);
  if (list == list_of_.end()) return;
  const Selection* chosen = selection_of(b);
  // Positions of a list with gaps, which stay with the cache; the new rows' are the last.
  const KvList& cache = kv_lists()[static_cast<size_t>(list->second)];
  const std::vector<std::int32_t> kept = attention->kept_positions ? load_ints(cache.positions) : std::vector<std::int32_t>();
  const std::vector<std::int32_t>& lengths = list_counts_[static_cast<size_t>(list->second)];
  executed.pairs = 0;
  executed.keys = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const std::int64_t rows = chosen ? chosen->per_sequence[s] : attention->rows.count / static_cast<std::int64_t>(lengths.size());
    if (rows == 0) continue;
    const Mask& mask = attention->mask;
    std::int64_t longest = 0;
    if (!kept.empty()) {
      const std::int32_t* own = kept.data() + static_cast<std::int64_t>(s) * cache.capacity();
      std::int64_t first = 0, behind = 0;  // the first key that a row sees, and behind the last one counted
      for (std::int64_t at = lengths[s] - rows; at < lengths[s]; ++at) {
        while (first < at && ((mask.window > 0 && own[at] - own[first] >= mask.window) || (mask.chunk > 0 && own[at] / mask.chunk != own[first] / mask.chunk))) ++first;
        executed.pairs += static_cast<u128>(at + 1 - first);
        executed.keys += at + 1 - std::max(first, behind);
        behind = at + 1;
      }
      continue;
    }
    for (std::int64_t r = 0; r < rows; ++r) {  // the new rows are the last of the list
      std::int64_t keys = mask.kind == MaskKind::kFull ? lengths[s] : lengths[s] - (rows - 1 - r);
      const std::int64_t position = keys - 1;
      if (mask.window > 0) keys = std::min(keys, mask.window);
      if (mask.chunk > 0) keys = std::min(keys, position % mask.chunk + 1);
      executed.pairs += static_cast<u128>(keys);
      longest = std::max(longest, keys + (rows - 1 - r));
    }
    executed.keys += std::min<std::int64_t>(longest, lengths[s]);
  }
}

void CudaExecution::read_experts() {
  expert_offsets_.resize(static_cast<size_t>(context_.expert_offset_count));
  if (expert_offsets_.empty()) return;
  Text text;
  must(run_.module->download(run_.device, expert_offsets_.data(), context_.expert_offsets, context_.expert_offset_count * 4, &text), "reading the rows of experts", text);
}

// The expert selection that decides an op's rows, or, where all of them are assigned, how they are split over the weights of a product.
const AssignedBuffers* CudaExecution::assigned_to(const BoundOp& b) const {
  if (b.assigned >= 0) return &context_.assigned.at(context_.assigned_by_index.at(b.assigned));
  const auto* gemm = std::get_if<Gemm>(b.spec);
  if (!gemm || gemm->experts <= 1) return nullptr;
  for (const auto& [permutation, buffers] : context_.assigned)
    if (buffers.offsets.at == b.in.back().at) return &buffers;
  return nullptr;
}

// The rows that the experts of an op had, which only the device knew while it ran.
void CudaExecution::learn_experts(int instance, Executed& executed) {
  const BoundOp& b = bound(instance);
  const AssignedBuffers* buffers = assigned_to(b);
  if (!buffers) return;
  const std::int32_t* offsets = expert_offsets_.data() + (buffers->kept_offsets - context_.expert_offsets);
  if (const auto* select = std::get_if<ExpertSelect>(b.spec)) {
    assign(b, offsets[select->experts]);
    return;
  }
  if (b.assigned >= 0) executed = size_now(b);
  const auto* gemm = std::get_if<Gemm>(b.spec);
  if (!gemm || gemm->experts <= 1) return;
  executed.experts = 0;
  for (std::int64_t e = 0; e < gemm->experts; ++e) executed.experts += offsets[e + 1] > offsets[e];
  padded_[static_cast<size_t>(instance)] = grouped_flops(grouped_product_of(*gemm, b), offsets);
}

}  // namespace fathom::cuda
