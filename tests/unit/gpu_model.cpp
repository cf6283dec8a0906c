// The GPU machine file, table reader, trees, ranges and intervals, on small synthetic tables.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "lib/error.hpp"
#include "lib/gpu/model_io.hpp"
#include "lib/gpu/table_fit.hpp"
#include "tests/hash_random.hpp"

using namespace fathom;
using namespace fathom::gpu;

namespace {

struct Random : fathom::testing::HashRandom {
  using HashRandom::HashRandom;
  std::int64_t integer(double low, double high) { return static_cast<std::int64_t>(low * std::pow(high / low, uniform())); }
};

// Rows of the given op on an H100 whose times are physics at the priors, 10 % slower where n (heads) is at least `from`.
std::vector<TableRow> synthetic(OpClass op, int count, std::int64_t from) {
  Random random{static_cast<std::uint64_t>(op) + 1};
  const GpuDevice& device = device_named("h100");
  const GemmParams truth = gemm_prior(device);
  std::vector<TableRow> rows;
  for (int i = 0; i < count; ++i) {
    TableRow row;
    row.chip = "h100";
    row.op = op;
    double t;
    if (op == OpClass::kGemm) {
      row.key = {random.integer(1, 8192), 64 * random.integer(2, 128), 64 * random.integer(2, 128), 0, 0};
      t = predict_gemm(row.gemm(), device, truth);
    } else {
      const std::int64_t kv = random.integer(1, 9), group = random.integer(1, 9);
      row.key = {random.integer(1, 64), random.integer(1, 8192), kv * group, kv, i % 2 ? 64 : 128};
      row.kernel = "fa";
      t = op == OpClass::kPrefill ? predict_prefill(row.attention(), device, {}) : predict_decode(row.attention(), device, {});
    }
    if (row.key[op == OpClass::kGemm ? 1 : 2] >= from) t *= 1.1;
    row.time_us = t * 1e6 * (1 + 0.01 * (random.uniform() - 0.5));
    rows.push_back(row);
  }
  return rows;
}

GpuModel small_model() {
  TableFitOptions options;
  options.physics.max_evaluations = 400;
  options.physics.max_rows = 150;
  options.folds = 3;
  options.few_rows = false;
  options.source = "synthetic";
  TreeOptions trees;
  trees.trees = 30;
  options.trees = trees;
  auto rows = synthetic(OpClass::kGemm, 300, 1 << 30);
  for (OpClass op : {OpClass::kPrefill, OpClass::kDecode})
    for (auto& row : synthetic(op, 300, 1 << 30)) rows.push_back(row);
  GpuModel model = fit_from_table(rows, options);
  model.date = "2026-01-01";
  return model;
}

const GpuModel& model() {
  static const GpuModel fitted = small_model();
  return fitted;
}

TableRow gemm_row(std::int64_t m, std::int64_t n, std::int64_t k) {
  TableRow row;
  row.chip = "h100";
  row.key = {m, n, k, 0, 0};
  return row;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("table reader: columns by name, in any order") {
  const auto rows = parse_table(
      "chip,op,dtype,batch,kv_len,heads,kv_heads,head_dim,time_us,kernel\nh200,attention_decode,bf16,4,512,32,8,128,12.5,fa3\n", "t.csv");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].op == OpClass::kDecode);
  CHECK(rows[0].key == std::array<std::int64_t, 5>{4, 512, 32, 8, 128});
  CHECK(rows[0].time_us == 12.5);
  CHECK(rows[0].kernel == "fa3");
  CHECK(rows[0].shape() == std::array<std::int64_t, 3>{32, 8, 128});
  const auto swapped = parse_table("op,k,n,m,dtype\ngemm,3,2,1,bf16\n", "t.csv");
  CHECK(swapped[0].key == std::array<std::int64_t, 5>{1, 2, 3, 0, 0});
  CHECK(swapped[0].time_us < 0);
}

TEST_CASE("table reader: errors name file, line and column") {
  auto line_of = [](const std::string& text) {
    try {
      parse_table(text, "t.csv");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      CHECK(error.where().file == "t.csv");
      return error.where().line;
    }
    return -1;
  };
  CHECK(line_of("op,dtype,m,n,k\ngemm,bf16,1,2,3\ngemm,bf16,1,x,3\n") == 3);
  CHECK(line_of("op,dtype,m,n,k\nconv,bf16,1,2,3\n") == 2);
  CHECK(line_of("op,dtype,m,n\ngemm,bf16,1,2\n") == 2);
  CHECK(line_of("op,dtype,m,n,k\ngemm,bf16,0,2,3\n") == 2);
  CHECK(line_of("op,dtype,m,n,k\ngemm,bf16,1,2\n") == 2);
  CHECK(line_of("op,dtype,m,n,k,time_us\ngemm,bf16,1,2,3,-4\n") == 2);
  CHECK(line_of("m,n,k\n") == 1);
}

// y = 0 below 5, 1 from 5 on: one split separates them. Learning rate 0.5, no penalty on leaves, all rows: after t trees
// the gap left is 0.5^t of the clipped residual.
TEST_CASE("boosted trees learn a step, repeat exactly, and ignore a wild row") {
  Matrix x;
  x.columns = 2;
  std::vector<double> y;
  for (int i = 0; i < 200; ++i) {
    x.values.push_back(i % 10);
    x.values.push_back(i % 7);
    y.push_back(i % 10 < 5 ? 0.0 : 1.0);
  }
  TreeOptions options;
  options.trees = 60;
  options.depth = 2;
  options.learning_rate = 0.5;
  options.subsample = options.feature_share = 1;
  options.l2 = 0;
  const BoostedTrees trees = fit_trees(x, y, options);
  const double low[] = {2, 3}, high[] = {8, 3};
  CHECK(trees.predict(low) == Approx(0).margin(1e-3));
  CHECK(trees.predict(high) == Approx(1).margin(1e-3));
  const BoostedTrees again = fit_trees(x, y, options);
  CHECK(again.predict(high) == trees.predict(high));
  y[5] = 1000;  // one of the twenty rows with x = 5; squares would move that leaf by 50
  const BoostedTrees robust = fit_trees(x, y, options);
  const double five[] = {5, 3};
  CHECK(robust.predict(five) < 1.5);
}

TEST_CASE("folds keep whole shapes together and cover all folds") {
  std::array<int, 5> counts{};
  for (std::int64_t n = 1; n <= 200; ++n) {
    const int fold = fold_of(gemm_row(1, n, 64), 5, 11);
    CHECK(fold == fold_of(gemm_row(4096, n, 64), 5, 11));
    ++counts[fold];
  }
  for (int count : counts) CHECK(count > 20);
}

TEST_CASE("machine file round-trips bit for bit") {
  const std::string text = write_model(model());
  const GpuModel read = parse_model(text, "h100.gpu");
  CHECK(write_model(read) == text);
  CHECK(read.hash.size() == 16);
  REQUIRE(read.ops.size() == 3);
  Random random{3};
  for (int i = 0; i < 300; ++i) {
    const TableRow row = gemm_row(random.integer(1, 20000), random.integer(64, 20000), random.integer(64, 20000));
    const GpuPrediction a = predict_op(model().ops[0], model().device, row), b = predict_op(read.ops[0], read.device, row);
    REQUIRE(a.predicted_s == b.predicted_s);
    REQUIRE(a.low_s == b.low_s);
    REQUIRE(a.high_s == b.high_s);
    REQUIRE(a.low_s <= a.predicted_s);
    REQUIRE(a.high_s >= a.predicted_s);
  }
  for (OpClass op : {OpClass::kPrefill, OpClass::kDecode})
    for (const TableRow& row : synthetic(op, 100, 1 << 30)) {
      const auto at = static_cast<std::size_t>(op);
      REQUIRE(predict_op(model().ops[at], model().device, row).predicted_s == predict_op(read.ops[at], read.device, row).predicted_s);
    }
}

TEST_CASE("machine file: unknown, missing and repeated keys, changed values and other versions are errors with a line") {
  const std::string text = write_model(model());
  auto error_of = [](const std::string& changed) {
    try {
      parse_model(changed, "h100.gpu");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      CHECK(error.where().line > 0);
      return error.message();
    }
    return std::string("accepted");
  };
  CHECK(error_of(replaced(text, "b_eff = ", "b_ef = ")).find("unknown key 'b_ef'") == 0);
  CHECK(error_of(replaced(text, "sms = 132\n", "")).find("no key 'sms'") != std::string::npos);
  CHECK(error_of(replaced(text, "sms = 132\n", "sms = 132\nsms = 132\n")).find("twice") != std::string::npos);
  CHECK(error_of(replaced(text, "sms = 132\n", "sms = 133\n")).find("the hash does not match") == 0);
  CHECK(error_of(replaced(text, "sms = 132\n", "sms = many\n")).find("not a number") != std::string::npos);
  CHECK(error_of(replaced(text, "schema = 1", "schema = 2")).find("schema 2") == 0);
  CHECK(error_of(replaced(text, "features = 1", "features = 0")).find("feature version") == 0);
  CHECK(error_of(replaced(text, "[op gemm]", "[ops gemm]")).find("unknown section") == 0);
  CHECK(error_of(replaced(text, "edges = lg_m ", "edges = lg_q ")).find("features of 'edges'") != std::string::npos);
  CHECK(error_of(replaced(text, "tree = ", "tree = 99:0 ")).find("edge that is not there") != std::string::npos);
}

// The table's m ends below 8,192: twice and a bit is outside by more than an octave, and the residual is off there.
TEST_CASE("outside the hull: status, axis, nearest value, physics alone, wider interval") {
  const OpModel& op = model().ops[0];
  const HullAxis m = op.hull[0];
  REQUIRE(m.name == "m");
  const auto top = static_cast<std::int64_t>(m.high);
  const GpuPrediction inside = predict_op(op, model().device, gemm_row(top, 1024, 1024));
  CHECK(inside.status == RangeStatus::kInside);
  CHECK(inside.status_text() == "ok");
  CHECK(std::string(inside.provenance) == "fitted");
  CHECK(inside.predicted_s != inside.physics_s);
  const GpuPrediction near = predict_op(op, model().device, gemm_row(top + top / 2, 1024, 1024));
  CHECK(near.status == RangeStatus::kInside);
  CHECK(std::string(near.provenance) == "extrapolated");
  CHECK(near.predicted_s == near.physics_s);
  const GpuPrediction far = predict_op(op, model().device, gemm_row(4 * top, 1024, 1024));
  CHECK(far.status == RangeStatus::kOutOfRange);
  CHECK(far.axis == "m");
  CHECK(far.nearest == m.high);
  CHECK(far.octaves == Approx(2));
  CHECK(far.predicted_s == far.physics_s);
  CHECK(far.status_text() == "out_of_range(m, nearest " + std::to_string(top) + ")");
  // Interval doubled per octave, in the logarithm: four times what the regime says.
  double low, high;
  interval_for(op, far.binding, far.predicted_s, low, high);
  CHECK(std::log(far.high_s / far.predicted_s) == Approx(4 * high).margin(1e-12));
  CHECK(std::log(far.low_s / far.predicted_s) == Approx(4 * low).margin(1e-12));
}

TEST_CASE("another head dimension or dtype is out of range and says so") {
  TableRow row;
  row.chip = "h100";
  row.op = OpClass::kDecode;
  row.key = {8, 1024, 8, 2, 96};
  const OpModel& op = *model().find("attention_decode");
  const GpuPrediction p = predict_op(op, model().device, row);
  CHECK(p.status == RangeStatus::kOutOfRange);
  CHECK(p.axis == "head_dim");
  CHECK((p.nearest == 64 || p.nearest == 128));
  CHECK(p.predicted_s == p.physics_s);
  row.key[4] = 128;
  CHECK(predict_op(op, model().device, row).status == RangeStatus::kInside);
  row.dtype = "f16";
  CHECK(predict_op(op, model().device, row).axis == "dtype");
}

TEST_CASE("predict_table reads neither time nor kernel, and refuses another chip") {
  auto rows = synthetic(OpClass::kDecode, 20, 1 << 30);
  const auto a = predict_table(rows, model());
  for (auto& row : rows) row.time_us = 1, row.kernel = "other";
  const auto b = predict_table(rows, model());
  REQUIRE(a.size() == rows.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].predicted_s == b[i].predicted_s);
  rows[3].chip = "a100";
  CHECK_THROWS_AS(predict_table(rows, model()), Error);
}

// A 10 % step in n that no physics parameter can express: the residual must take most of it on unseen shapes, and 80 %
// intervals must hold about 80 % of them.
TEST_CASE("residual learns what physics cannot; intervals cover") {
  TableFitOptions options;
  options.physics.max_evaluations = 600;
  options.physics.max_rows = 200;
  options.few_rows = false;
  const OpModel fitted = fit_op_with_errors(synthetic(OpClass::kGemm, 900, 1024), device_named("h100"), options);
  REQUIRE(fitted.held_out.size() == 2);
  CHECK(fitted.held_out[0].variant == "physics");
  CHECK(fitted.held_out[0].mean > 3);
  CHECK(fitted.held_out[1].mean < 0.6 * fitted.held_out[0].mean);
  CHECK(fitted.held_out[1].coverage > 0.72);
  CHECK(fitted.held_out[1].coverage < 0.88);
  CHECK(fitted.held_out[1].rows == 900);
}

// |pred/meas - 1| = 10, 20, 0, 50 %: mean 20, upper median 20, p90 50, signed mean (10 - 20 + 0 + 50)/4 = 10.
TEST_CASE("error summary") {
  const HeldOut h = error_summary("x", {1.1, 0.8, 1.0, 1.5}, {1, 1, 1, 1});
  CHECK(h.mean == Approx(20));
  CHECK(h.median == Approx(20));
  CHECK(h.p90 == Approx(50));
  CHECK(h.bias == Approx(10));
}

// FlashAttention 2 never splits the keys of ungrouped heads: rule over key columns, separate class, max_split 1.
TEST_CASE("attention classes: ungrouped heads apart, kernels by length") {
  const GpuDevice& device = device_named("a100");
  Random random{8};
  std::vector<TableRow> rows;
  DecodeParams grouped, single;
  single.max_split = 1;
  for (int i = 0; i < 400; ++i) {
    TableRow row;
    row.op = OpClass::kDecode;
    const std::int64_t kv = random.integer(1, 9);
    row.key = {random.integer(1, 64), random.integer(1, 60000), i % 2 ? kv : kv * 4, kv, 128};
    row.kernel = row.key[1] <= 1000 ? "short" : "long";
    row.time_us = 1e6 * predict_decode(row.attention(), device, i % 2 ? single : grouped);
    rows.push_back(row);
  }
  const auto classes = fit_attention(rows, OpClass::kDecode, device);
  REQUIRE(classes.size() == 4);
  bool exact = false;
  const AttentionClass& c = class_of(classes, {4, 40000, 8, 8, 128}, &exact);
  CHECK(exact);
  CHECK(c.kernel == "long");
  CHECK(c.group_hi == 1);
  CHECK(c.decode.max_split == 1);
  CHECK(class_of(classes, {4, 40000, 32, 8, 128}).decode.max_split == 128);
  CHECK(class_of(classes, {4, 100, 32, 8, 128}).kernel == "short");
  class_of(classes, {4, 100, 32, 8, 64}, &exact);
  CHECK_FALSE(exact);
}
