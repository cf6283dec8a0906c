// From a block as a file states it to the block with every dependent value, and back.
#include <fmt/format.h>

#include <algorithm>

#include "models/network_keys.hpp"

namespace fathom {

BlockConfig finished(const BlockDraft& draft, const Network& network) {
  BlockConfig block;
  block.norms = draft.norms, block.post_norm_only = draft.post_norm_only;
  block.parallel = draft.parallel, block.parallel_norms = draft.parallel_norms;
  block.route = draft.route;
  if (draft.attention) {
    AttentionConfig a = draft.att;
    if (a.kv_heads == 0) a.kv_heads = a.heads;
    if (draft.mla) {
      a.mla = draft.mla;
      a.mla->rope_dim = std::max<std::int64_t>(0, draft.rope_dim);
      if (a.head_dim == 0) a.head_dim = a.mla->nope_dim + a.mla->rope_dim;
      a.rope_dim = network.positions == PositionKind::kRope ? a.mla->rope_dim : 0;
    } else {
      if (a.head_dim == 0 && a.heads > 0) {
        if (network.width % a.heads != 0)
          throw_input(fmt::format("the width {} is no multiple of {} heads", network.width, a.heads),
                      {network.source, 0, "heads"}, "state head_dim");
        a.head_dim = network.width / a.heads;
      }
      a.rope_dim = draft.rope_dim >= 0 ? draft.rope_dim : network.positions == PositionKind::kRope ? a.head_dim : 0;
    }
    block.attention = a;
  }
  if (draft.mlp.width > 0 || draft.moe) {
    block.mlp = draft.mlp;
    block.mlp->moe = draft.moe;
    if (draft.moe) {
      block.mlp->width = 0;
      if (draft.moe->shared > 0 && draft.moe->shared_width == 0) block.mlp->moe->shared_width = draft.moe->width;
    }
  }
  return block;
}

BlockDraft draft_of(const BlockConfig& block, const Network& network) {
  BlockDraft draft;
  draft.norms = block.norms, draft.post_norm_only = block.post_norm_only;
  draft.parallel = block.parallel, draft.parallel_norms = block.parallel_norms;
  draft.route = block.route;
  draft.attention = block.attention.has_value();
  if (block.attention) {
    AttentionConfig a = *block.attention;
    draft.mla = a.mla;
    a.mla.reset();
    if (a.kv_heads == a.heads) a.kv_heads = 0;
    if (draft.mla) {
      draft.rope_dim = draft.mla->rope_dim;
      if (a.head_dim == draft.mla->nope_dim + draft.mla->rope_dim) a.head_dim = 0;
    } else {
      draft.rope_dim = a.rope_dim == (network.positions == PositionKind::kRope ? a.head_dim : 0) ? -1 : a.rope_dim;
      if (a.heads > 0 && network.width % a.heads == 0 && a.head_dim == network.width / a.heads) a.head_dim = 0;
    }
    draft.att = a;
  }
  if (block.mlp) {
    draft.mlp = *block.mlp;
    draft.moe = block.mlp->moe;
    draft.mlp.moe.reset();
    if (draft.moe) draft.mlp.width = 0;
    if (draft.moe && draft.moe->shared_width == draft.moe->width && draft.moe->shared > 0) draft.moe->shared_width = 0;
  }
  return draft;
}

}  // namespace fathom
