// Measured GPU tables on the command line: predict each row, grade predictions, explain one kernel, fit a machine file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/cli.hpp"

namespace fathom {

struct TableFlags {
  std::vector<std::string> files;  // CSV: columns as in lib/gpu/table.hpp
  std::string on;                  // machine; empty: the chip of the rows
  bool grade = false;              // errors per op instead of the rows
  bool sustained = false;
};
void add_table_flags(CLI::App& app, TableFlags& flags);

// `fathom predict --table`. Returns the exit code.
int predict_tables(const TableFlags& flags, const OutputFlags& output);

// "gemm 4096x4096x4096", "attention_prefill 8x2048x32x8x128" (batch, tokens, heads, KV heads, head size), "attention_decode ...": every term of the
// winning candidate, so that the time can be redone by hand. False when `shape` is no such shape.
bool explain_kernel_into(Document& document, const std::string& op, const std::string& shape, const std::string& machine, bool sustained);

}  // namespace fathom
