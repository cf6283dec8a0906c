// Text form of a GpuModel (models/machines/NAME.gpu): INI sections of `key = value`, units in the keys, exact round trip.
//
//   [machine]    name, board, peak_flop_per_s, dram_byte_per_s, sms, l2_byte, date, hash (FNV-1a 64 of all other lines)
//   [op NAME]    op, dtype, source, rows, fitted parameters, hull_AXIS = low high, held_out_VARIANT_percent = rows mean
//                median p90 bias coverage, interval_REGIME_ln = rows low high, then the residual: clamp_ln, base_ln,
//                edges = FEATURE thresholds..., tree = nodes in preorder, FEATURE_INDEX:EDGE_INDEX or a leaf in 1e-5
//   [class NAME] one attention kernel class of the op above: kernel, head_dim, seq, group and batch = low high, parameters
//   [collective] library, op, gpus, fitted form, errors, and the measured points as two lists of equal length
//
// Numbers are the shortest decimals that read back to the same bits. An unknown or missing key, another schema or
// feature version, or a hash that does not match is an input Error with the line.
#pragma once

#include <string>
#include <string_view>

#include "lib/gpu/gpu_model.hpp"

namespace fathom::gpu {

inline constexpr int kModelSchema = 1;

std::string write_model(const GpuModel& model);
// `file` is named in errors. `sealed`: text that nobody can have changed since it was hashed (a built-in file, whose hash a test checks) is not hashed again.
GpuModel parse_model(std::string_view text, const std::string& file, bool sealed = false);

void save_model(const GpuModel& model, const std::string& file);  // throws an environment Error
GpuModel read_model(const std::string& file);

// FNV-1a 64 of the text without its "hash = " line, 16 hex digits.
std::string model_hash(std::string_view text);

}  // namespace fathom::gpu
