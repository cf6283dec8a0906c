// Networks from Hugging Face config.json files, offline.
//
// `model_type` selects a family; each family states which keys it consumes, its documented defaults, and which keys
// change no count. Everything else is listed in Network::notes ("ignored: ..."), as is every default used ("default:
// ...").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/network.hpp"

namespace fathom {

struct HfOptions {
  bool strict = false;  // an unknown key is an error
  bool mtp = false;     // count the multi-token prediction modules (num_nextn_predict_layers)
};

// Throws Error(kInput) with file, line and key: bad JSON, unknown model_type, missing or contradictory values.
Network import_hf_config(std::string_view text, const std::string& file, const HfOptions& options = {});
Network read_hf_config(const std::string& path, const HfOptions& options = {});

// The model_type values that are understood, sorted.
std::vector<std::string> hf_model_types();

}  // namespace fathom
