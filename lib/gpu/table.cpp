#include "lib/gpu/table.hpp"

#include <charconv>
#include <cmath>

#include "lib/error.hpp"
#include "lib/gpu/csv_lines.hpp"

namespace fathom::gpu {
namespace {

template <typename T>
T number(std::string_view text, const std::string& file, int line, const std::string& column) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw_input("'" + std::string(text) + "' is not a number", {file, line, column});
  return value;
}

}  // namespace

std::string_view op_name(OpClass op) {
  switch (op) {
    case OpClass::kGemm: return "gemm";
    case OpClass::kPrefill: return "attention_prefill";
    case OpClass::kDecode: return "attention_decode";
  }
  return "";
}

OpClass parse_op(std::string_view text) {
  for (OpClass op : {OpClass::kGemm, OpClass::kPrefill, OpClass::kDecode})
    if (op_name(op) == text) return op;
  throw_input("unknown op '" + std::string(text) + "'", {}, name_hint(text, {"gemm", "attention_prefill", "attention_decode"}));
}

int key_count(OpClass op) { return op == OpClass::kGemm ? 3 : 5; }

const std::vector<std::string>& key_names(OpClass op) {
  static const std::vector<std::string> gemm = {"m", "n", "k"}, prefill = {"batch", "seq", "heads", "kv_heads", "head_dim"},
                                        decode = {"batch", "kv_len", "heads", "kv_heads", "head_dim"};
  return op == OpClass::kGemm ? gemm : op == OpClass::kPrefill ? prefill : decode;
}

GemmShape TableRow::gemm() const {
  return {static_cast<double>(key[0]), static_cast<double>(key[1]), static_cast<double>(key[2])};
}

AttentionShape TableRow::attention() const {
  return {static_cast<double>(key[0]), static_cast<double>(key[1]), static_cast<double>(key[2]), static_cast<double>(key[3]),
          static_cast<double>(key[4])};
}

std::array<std::int64_t, 3> TableRow::shape() const {
  if (op == OpClass::kGemm) return {key[1], key[2], 0};
  return {key[2], key[3], key[4]};
}

std::vector<TableRow> parse_table(std::string_view text, const std::string& file) {
  std::vector<TableRow> rows;
  std::vector<std::string> header;
  auto column = [&](std::string_view name) -> int {
    for (std::size_t i = 0; i < header.size(); ++i)
      if (header[i] == name) return static_cast<int>(i);
    return -1;
  };
  int line_number = 0;
  std::string_view line;
  while (next_line(text, line, line_number)) {
    const auto fields = comma_fields(line);
    if (header.empty()) {
      for (const auto& name : fields) header.emplace_back(name);
      for (const char* required : {"op", "dtype"})
        if (column(required) < 0) throw_input(std::string("the table has no column '") + required + "'", {file, line_number, required});
      continue;
    }
    if (fields.size() != header.size())
      throw_input("expected " + std::to_string(header.size()) + " columns, found " + std::to_string(fields.size()), {file, line_number, {}});
    TableRow row;
    row.line = line_number;
    if (const int at = column("chip"); at >= 0) row.chip = fields[at];
    try {
      row.op = parse_op(fields[column("op")]);
    } catch (const Error& error) {
      throw_input(error.message(), {file, line_number, "op"}, error.hint());
    }
    row.dtype = fields[column("dtype")];
    const auto& names = key_names(row.op);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const int at = column(names[i]);
      if (at < 0) throw_input("the table has no column '" + names[i] + "'", {file, line_number, names[i]});
      row.key[i] = number<std::int64_t>(fields[at], file, line_number, names[i]);
      if (row.key[i] < 1) throw_input(names[i] + " must be at least 1", {file, line_number, names[i]});
    }
    if (const int at = column("time_us"); at >= 0 && !fields[at].empty()) {
      row.time_us = number<double>(fields[at], file, line_number, "time_us");
      if (!(row.time_us > 0) || !std::isfinite(row.time_us)) throw_input("time_us must be positive", {file, line_number, "time_us"});
    }
    if (const int at = column("kernel"); at >= 0) row.kernel = fields[at];
    rows.push_back(std::move(row));
  }
  if (header.empty()) throw_input("the table is empty", {file, 0, {}});
  return rows;
}

std::vector<TableRow> read_table(const std::string& file) {
  return parse_table(file_text(file, "the table"), file);
}

std::uint64_t mix_hash(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

int fold_of(const TableRow& row, int folds, std::uint64_t seed) {
  std::uint64_t hash = mix_hash(seed);
  for (std::int64_t part : row.shape()) hash = mix_hash(hash ^ static_cast<std::uint64_t>(part));
  return static_cast<int>(hash % static_cast<std::uint64_t>(folds));
}

}  // namespace fathom::gpu
