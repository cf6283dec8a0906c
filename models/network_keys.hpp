// The keys of a network INI file: one row per key that reads, writes and documents it. Internal to
// models/network_ini.cpp.
#pragma once

#include <string>
#include <vector>

#include "models/ini.hpp"
#include "models/network.hpp"

namespace fathom {

// A block as the file states it: what depends on other keys may still be open.
struct BlockDraft {
  bool attention = true;
  AttentionConfig att;         // kv_heads, head_dim: 0 = not stated
  std::int64_t rope_dim = -1;  // -1 = not stated
  std::optional<Mla> mla;
  MlpConfig mlp;  // width 0 = none
  std::optional<MoeConfig> moe;
  std::optional<Route> route;
  int norms = 2;
  bool post_norm_only = false;
  bool parallel = false;
  int parallel_norms = 2;
};

template <class T>
struct KeyRow {
  const char* key;
  std::string values;
  const char* standard;
  const char* meaning;
  void (*read)(T&, const IniValue&);
  std::string (*write)(const T&);  // "" where the draft has no such group
};

const std::vector<KeyRow<Network>>& network_rows();   // [network]: the whole network
const std::vector<KeyRow<BlockDraft>>& block_rows();  // [network] and [block.*]
const std::vector<KeyRow<BlockDraft>>& mla_rows();    // [mla] and [block.*]
const std::vector<KeyRow<BlockDraft>>& moe_rows();    // [moe] and [block.*]
const std::vector<KeyRow<BlockDraft>>& route_rows();  // [route] and [block.*]
const std::vector<KeyRow<Lora>>& lora_rows();         // [lora]

// The block with every dependent value filled in.
BlockConfig finished(const BlockDraft& draft, const Network& network);
// The draft that finishes to this block; values that equal their derived default stay open.
BlockDraft draft_of(const BlockConfig& block, const Network& network);

}  // namespace fathom
