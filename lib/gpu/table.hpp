// Reader of measured (or to be predicted) kernel tables: CSV with a header line.
//
// Columns, in any order: chip, op, dtype, then m,n,k (op gemm) or batch,seq|kv_len,heads,kv_heads,head_dim (op
// attention_prefill / attention_decode); optional time_us (microseconds) and kernel (name of the code path); other
// columns are kept out. Lines starting with # are skipped.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/gpu/attention_form.hpp"
#include "lib/gpu/gemm_tile.hpp"

namespace fathom::gpu {

enum class OpClass { kGemm, kPrefill, kDecode };

std::string_view op_name(OpClass op);            // "gemm", "attention_prefill", "attention_decode"
OpClass parse_op(std::string_view text);         // throws an input Error
int key_count(OpClass op);                       // 3 or 5
const std::vector<std::string>& key_names(OpClass op);

struct TableRow {
  std::string chip;
  OpClass op = OpClass::kGemm;
  std::string dtype = "bf16";
  std::array<std::int64_t, 5> key{};  // m,n,k or batch,seq|kv_len,heads,kv_heads,head_dim
  double time_us = -1;                // negative: not given
  std::string kernel;                 // may be empty; used in fits only, by a rule over key columns
  int line = 0;

  GemmShape gemm() const;
  AttentionShape attention() const;
  // What must not be shared between calibration and grading: (n,k), or (heads, kv_heads, head_dim).
  std::array<std::int64_t, 3> shape() const;
};

// Throws an input Error with file and line for a missing column, an unknown op or a value that is not a number.
std::vector<TableRow> parse_table(std::string_view text, const std::string& file);
std::vector<TableRow> read_table(const std::string& file);

// Fold of a row's shape: a hash of shape() and seed, so that whole shapes stay together in every file and run.
int fold_of(const TableRow& row, int folds, std::uint64_t seed);
std::uint64_t mix_hash(std::uint64_t value);  // splitmix64, the only random source of the fits

}  // namespace fathom::gpu
