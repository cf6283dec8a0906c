#include "lib/gpu/model_io.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "lib/error.hpp"
#include "lib/gpu/csv_lines.hpp"
#include "lib/gpu/features.hpp"

namespace fathom::gpu {
namespace {

template <typename T>
std::string text_of(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  (void)error;  // 64 characters hold every shortest double and every integer
  return std::string(buffer, end);
}

std::string bound_text(std::int64_t value) { return value == INT64_MAX ? "any" : text_of(value); }

class Writer {
 public:
  void section(const std::string& name) { out_ += "\n[" + name + "]\n"; }
  void key(const std::string& name, const std::string& value) { out_ += name + " = " + value + "\n"; }
  void comment(const std::string& text) { out_ += "# " + text + "\n"; }
  template <typename Names, typename Values>
  void parameters(const Names& names, const Values& values) {
    for (std::size_t i = 0; i < names.size(); ++i) key(names[i], text_of(values[i]));
  }
  void numbers(const std::string& name, const std::vector<double>& values) {
    std::string line;
    for (double v : values) {
      if (!line.empty()) line += ' ';
      line += text_of(v);
    }
    key(name, line);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void write_trees(Writer& out, OpClass op, const BoostedTrees& trees) {
  out.key("base_ln", text_of(trees.base));
  const auto& names = tree_feature_names(op);
  for (std::size_t f = 0; f < trees.edges.size(); ++f) {
    std::string line = names.at(f);
    for (double edge : trees.edges[f]) {
      line += ' ';
      line += text_of(edge);
    }
    out.key("edges", line);
  }
  for (std::size_t t = 0; t < trees.roots.size(); ++t) {
    const int end = t + 1 < trees.roots.size() ? trees.roots[t + 1] : static_cast<int>(trees.nodes.size());
    std::string line;
    for (int i = trees.roots[t]; i < end; ++i) {
      const TreeNode& node = trees.nodes[i];
      if (!line.empty()) line += ' ';
      if (node.feature < 0) {
        line += text_of(static_cast<std::int64_t>(std::llround(node.value / BoostedTrees::kLeafUnit)));
        continue;
      }
      const auto& edges = trees.edges[node.feature];
      const auto at = std::lower_bound(edges.begin(), edges.end(), node.value) - edges.begin();
      line += text_of(node.feature);
      line += ':';
      line += text_of(static_cast<std::int64_t>(at));
    }
    out.key("tree", line);
  }
}

}  // namespace

std::string model_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end == std::string_view::npos ? text.size() : end + 1);
    text.remove_prefix(line.size());
    if (line.starts_with("hash = ")) continue;
    for (char c : line) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string write_model(const GpuModel& model) {
  Writer out;
  out.comment("fathom GPU machine file: what `calibrated` predicts with on this GPU. Written by a fit; see lib/gpu/model_io.hpp.");
  out.comment("Held-out errors are on whole (n,k) shapes or head configurations that the fit had not seen.");
  out.section("machine");
  out.key("schema", text_of(kModelSchema));
  out.key("name", model.device.name);
  out.key("board", model.device.board);
  out.key("peak_flop_per_s", text_of(model.device.peak_flops));
  out.key("dram_byte_per_s", text_of(model.device.dram_bytes_per_s));
  out.key("sms", text_of(model.device.sms));
  out.key("l2_byte", text_of(model.device.l2_bytes));
  out.key("date", model.date);
  out.key("hash", "@");
  for (const OpModel& op : model.ops) {
    out.section("op " + op.name);
    out.key("op", std::string(op_name(op.op)));
    out.key("dtype", op.dtype);
    out.key("source", op.source);
    out.key("rows", text_of(op.rows));
    for (const HullAxis& axis : op.hull) out.key("hull_" + axis.name, text_of(axis.low) + " " + text_of(axis.high));
    for (const HeldOut& h : op.held_out)
      out.key("held_out_" + h.variant + "_percent", text_of(h.rows) + " " + text_of(h.mean) + " " + text_of(h.median) + " " + text_of(h.p90) + " " +
                                                          text_of(h.bias) + " " + text_of(h.coverage));
    if (op.op == OpClass::kGemm) out.parameters(GemmParams::names(), op.gemm.values());
    for (const ConformalInterval& i : op.intervals) out.key("interval_" + i.regime + "_ln", text_of(i.rows) + " " + text_of(i.low) + " " + text_of(i.high));
    out.key("features", text_of(kFeatureVersion));
    out.key("clamp_ln", text_of(op.clamp));
    write_trees(out, op.op, op.residual);
    for (const AttentionClass& c : op.classes) {
      out.section("class " + op.name);
      out.key("kernel", c.kernel);
      out.key("head_dim", text_of(c.head_dim));
      out.key("seq", text_of(c.seq_lo) + " " + bound_text(c.seq_hi));
      out.key("group", text_of(c.group_lo) + " " + bound_text(c.group_hi));
      out.key("batch", text_of(c.batch_lo) + " " + bound_text(c.batch_hi));
      out.key("rows", text_of(c.rows));
      if (op.op == OpClass::kPrefill) {
        out.parameters(PrefillParams::names(), c.prefill.values());
      } else {
        out.parameters(DecodeParams::names(), c.decode.values());
        out.key("max_split", text_of(c.decode.max_split));
      }
    }
  }
  for (const CollectiveFit& c : model.collectives) {
    out.section("collective");
    out.key("library", c.library);
    out.key("op", c.op);
    out.key("gpus", text_of(c.gpus));
    out.key("alpha_us", text_of(c.alpha_us));
    out.key("sigma_us", text_of(c.sigma_us));
    out.key("beta_byte_per_s", text_of(c.beta));
    out.key("q", text_of(c.q));
    out.key("form_error_percent", text_of(c.form_error));
    out.key("table_error_percent", text_of(c.table_error));
    out.numbers("size_byte", c.bytes);
    out.numbers("time_us", c.time_us);
  }
  std::string text = out.take();
  const std::string mark = "hash = @\n";
  const auto at = text.find(mark);
  return text.replace(at, mark.size(), "hash = " + model_hash(text) + "\n");
}

GpuModel read_model(const std::string& file) {
  return parse_model(file_text(file, "the machine file"), file);
}

void save_model(const GpuModel& model, const std::string& file) {
  std::ofstream out(file, std::ios::binary);
  out << write_model(model);
  out.flush();
  if (!out) throw Error(ErrorKind::kEnvironment, "cannot write the machine file", {file, 0, {}});
}

}  // namespace fathom::gpu
