// Records whose figures cannot be true are refused, with file and JSON pointer.
#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

#include "lib/error.hpp"
#include "reports/record.hpp"

using namespace fathom;

namespace {

// A small record of one result, with `from` replaced by `to`. Two ops that are two parts, four passes of 3, 4, 4 and 5 seconds: the median is
// 4, the 95 % quantile 4 + 0.85 * 1 = 4.85, the quartiles 3.75 and 4.25, so the spread is 0.5 / 4. Predicted were 2 s (1 + 0.5 + 0.5): the
// error is 2 / 4 - 1. 8 tokens a step are 2 a second. Bracketed, the ops took 1 and 3 s: shares 1/4 and 3/4. Their errors are 2/1 - 1 = 1 and
// 1.5/3 - 1 = -0.5, so the mean of their magnitudes is 0.75, and so is the median.
std::string record(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({"schema": "fathom-record-1", "command": "compare", "environment": {"cores": 2}, "model": "m", "scenario": {"phase": "prefill", "batch": 1, "seq": 8},
    "convention": {"name": "exact", "flops": 30},
    "totals": {"flops_matmul": 30, "bytes_read": 7, "params_total": 9, "params_active": 9, "predicted_s": 2, "predicted_lo_s": 1, "predicted_hi_s": 5, "measured_s": 4, "min_s": 3,
               "p50_s": 4, "p95_s": 4.85, "time_ratio": 2, "error": -0.5, "verdict": "within", "realised": -0.2, "spread": 0.125, "noise": null, "samples": 4, "samples_s": [3, 4, 5, 4], "tokens_per_s": 2,
               "normalised_s": 4, "compute_s": 1, "memory_s": 0.5, "launch_s": 0.5, "mape": 0.75, "median_error": 0.75, "achieved_flops_per_s": 7.5},
    "parts": [{"part": "core", "flops_matmul": 10, "bytes_read": 3}, {"part": "ffn", "flops_matmul": 20, "bytes_read": 4}],
    "ops": [{"path": "a", "part": "core", "flops_matmul": 10, "bytes_read": 3, "times": 2, "predicted_s": 2, "measured_s": 1, "error": 1, "verdict": "fast", "share": 0.25, "samples": 4, "rounds_s": [1, 1]},
            {"path": "b", "part": "ffn", "flops_matmul": 20, "bytes_read": 4, "times": 1, "predicted_s": 1.5, "measured_s": 3, "error": -0.5, "verdict": "slow", "share": 0.75, "achieved_flops_per_s": 6.666666666666667}]})";
  if (from.empty()) return text;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Where and what, of the refusal.
std::pair<std::string, std::string> refused(const std::string& text) {
  try {
    read_record(text, "r.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.where().file == "r.json");
    return {error.where().key, error.message()};
  }
  return {};
}

}  // namespace

TEST_CASE("figures that cannot be true are refused where they stand", "[record_check]") {
  CHECK(refused(record()) == std::pair<std::string, std::string>{});
  struct Row {
    const char *from, *to, *pointer, *says;
  };
  const std::vector<Row> rows = {
      // What a figure may be.
      {R"("flops_matmul": 30)", R"("flops_matmul": -30)", "/totals/flops_matmul", "is -30: matmul FLOP cannot be negative"},
      {R"("flops_matmul": 30)", R"("flops_matmul": 30.5)", "/totals/flops_matmul", "expected an integer"},
      {R"("flops_matmul": 30)", R"("flops_matmul": "NaN")", "/totals/flops_matmul", "text 'NaN'"},
      {R"("flops_matmul": 30)", R"("flops_matmul": true)", "/totals/flops_matmul", "no number"},
      {R"("flops_matmul": 30)", R"("flops_matmul": [30])", "/totals/flops_matmul", "no single figure"},
      {R"("bytes_read": 7)", R"("bytes_read": 1e999)", "", "number overflow"},
      {R"("batch": 1)", R"("batch": -1)", "/scenario/batch", "cannot be negative"},
      {R"("seq": 8)", R"("seq": "eight")", "/scenario/seq", "text 'eight'"},
      {R"("phase": "prefill")", R"("phase": "sleep")", "/scenario/phase", "expected one of: train, prefill, decode, generate"},
      {R"("verdict": "fast")", R"("verdict": "good")", "/ops/0/verdict", "expected one of: within"},
      {R"("error": 1,)", R"("error": -1.5,)", "/ops/0/error", "expected at least -1"},
      {R"("share": 0.25)", R"("share": 1.5)", "/ops/0/share", "at most 1"},
      {R"("cores": 2)", R"("cores": -2)", "/environment/cores", "cannot be negative"},
      {R"("flops": 30)", R"("flops": "many")", "/convention/flops", "text 'many'"},
      {R"("flops": 30)", R"("flops": -3)", "/convention/flops", "negative"},
      // What it follows from in its row.
      {R"("time_ratio": 2)", R"("time_ratio": 0.5)", "/totals/time_ratio", "is 0.5, expected 2: measured_s / predicted_s"},
      {R"("error": -0.5,)", R"("error": 1,)", "/totals/error", "expected -0.5: predicted_s / measured_s - 1"},
      {R"("error": 1,)", R"("error": 0.9,)", "/ops/0/error", "is 0.9, expected 1"},
      {R"("achieved_flops_per_s": 6.6)", R"("achieved_flops_per_s": 7.6)", "/ops/1/achieved_flops_per_s", "flops_matmul / measured_s"},
      {R"("predicted_lo_s": 1)", R"("predicted_lo_s": 5.5)", "/totals/predicted_lo_s", "above predicted_hi_s"},
      {R"("params_active": 9)", R"("params_active": 10)", "/totals/params_active", "above params_total"},
      {R"("verdict": "fast")", R"("verdict": "within")", "/ops/0/verdict", "is 'within', expected 'fast': measured_s is 1, its interval 1.8 to 2.2"},
      {R"("tokens_per_s": 2)", R"("tokens_per_s": 3)", "/totals/tokens_per_s", "expected 2"},
      {R"("launch_s": 0.5)", R"("launch_s": 0.25)", "/totals/predicted_s", "compute_s + memory_s + launch_s"},
      // Over the passes and over the ops.
      {R"("p95_s": 4.85)", R"("p95_s": 4.5)", "/totals/p95_s", "expected 4.85: the 95 % quantile of samples_s"},
      {R"("samples_s": [3, 4)", R"("samples_s": [3, -4)", "/totals/samples_s/1", "cannot be negative"},
      {R"("samples_s": [3, 4, 5, 4])", R"("samples_s": 1)", "/totals/samples_s", "no list"},
      {R"("samples_s": [3, 4, 5, 4])", R"("samples_s": [])", "/totals/samples_s", "empty list"},
      {R"("samples": 4, "samples_s")", R"("samples": 5, "samples_s")", "/totals/samples", "expected 4"},
      {R"("spread": 0.125)", R"("spread": 0.1)", "/totals/spread", "expected 0.125"},
      {R"("samples": 4, "rounds_s")", R"("samples": 3, "rounds_s")", "/ops/0/samples", "times x the number of rounds_s"},
      {R"("flops": 30)", R"("flops": 31)", "/convention/flops", "expected 30: flops_matmul is the same count"},
      {R"("bytes_read": 7)", R"("bytes_read": 8)", "/totals/bytes_read", "expected 7: the parts add up to that"},
      {R"("part": "core", "flops_matmul": 10)", R"("part": "core", "flops_matmul": 11)", "/totals/flops_matmul", "expected 31"},
      {R"("path": "a", "part": "core", "flops_matmul": 10)", R"("path": "a", "part": "core", "flops_matmul": 11)", "/parts/0/flops_matmul", "expected 11: the ops of the part"},
      {R"("normalised_s": 4)", R"("normalised_s": 5)", "/totals/normalised_s", "expected 4: the sum of measured_s over the ops"},
      {R"("share": 0.75)", R"("share": 0.5)", "/ops/1/share", "expected 0.75"},
      {R"("mape": 0.75)", R"("mape": 0.05)", "/totals/mape", "expected 0.75: the mean |error| of the graded ops"},
      {R"("median_error": 0.75)", R"("median_error": 0.05)", "/totals/median_error", "expected 0.75"},
      // What was taken away.
      {R"("phase": "prefill", )", "", "/scenario/phase", "is missing"},
      {R"("flops_matmul": 30, )", "", "/totals/flops_matmul", "is missing"},
      {R"("model": "m", )", "", "/model", "is missing"},
      {R"("ops": [{)", R"("ops": [], "more": [{)", "/ops", "empty list"},
      {R"("ops": [{)", R"("more": [{)", "/ops", "is missing: `parts` are sums over it"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.to);
    const auto [pointer, message] = refused(record(row.from, row.to));
    CHECK(pointer == row.pointer);
    CHECK(message.find(row.says) != std::string::npos);
  }
}

TEST_CASE("of several results the one is named", "[record_check]") {
  const std::string good = R"({"model": "m", "scenario": {"phase": "decode"}, "totals": {"flops_matmul": 1}})";
  const std::string bad = R"({"model": "m", "scenario": {"phase": "decode"}, "totals": {"flops_matmul": -1}})";
  CHECK(refused(R"({"schema": "fathom-record-1", "results": [)" + good + ", " + bad + "]}").first == "/results/1/totals/flops_matmul");
  CHECK(refused(R"({"schema": "fathom-record-1", "results": [)" + good + "]}").first.empty());
  CHECK(refused(R"({"schema": "fathom-record-1", "results": []})") == std::pair<std::string, std::string>{"/results", "is an empty list: its results were taken away"});
}

TEST_CASE("ratios of two results are those of their figures", "[record_check]") {
  // 60 of 100 FLOPs in 3 of 4 seconds: a quarter of the time was saved of the four tenths that could be. Noise 0.03 and 0.04: 0.05 together.
  const auto text = [](const std::string& from, const std::string& to) {
    std::string all = R"({"schema": "fathom-record-1", "results": [
      {"model": "mod", "scenario": {"phase": "decode", "batch": 1, "routing": "topk"}, "totals": {"flops_matmul": 60, "measured_s": 3, "noise": 0.03, "flops_ratio": 0.6, "measured_ratio": 0.75, "ratio_noise": 0.05, "realised": 0.625}},
      {"model": "dense", "scenario": {"batch": 1, "phase": "decode"}, "totals": {"flops_matmul": 100, "measured_s": 4, "noise": 0.04}},
      {"model": "other", "scenario": {"phase": "decode", "batch": 2}, "totals": {"flops_matmul": 30, "measured_s": 1, "noise": 0.04, "relative_to": "mod", "relative_flops": 0.5, "relative_measured": 0.3333333333333333, "relative_noise": 0.05}}]})";
    if (!from.empty()) all.replace(all.find(from), from.size(), to);
    return all;
  };
  CHECK(refused(text("", "")).first.empty());
  struct Row {
    const char *from, *to, *pointer, *says;
  };
  for (const Row& row : std::vector<Row>{
           {R"("flops_ratio": 0.6)", R"("flops_ratio": 0.5)", "/results/0/totals/flops_ratio", "is 0.5, expected 0.6"},
           {R"("measured_ratio": 0.75)", R"("measured_ratio": 0.7)", "/results/0/totals/measured_ratio", "expected 0.75"},
           {R"("ratio_noise": 0.05)", R"("ratio_noise": 0.01)", "/results/0/totals/ratio_noise", "in quadrature"},
           {R"("realised": 0.625)", R"("realised": 0.99)", "/results/0/totals/realised", "expected 0.625: (1 - measured_ratio) / (1 - flops_ratio)"},
           {R"("relative_flops": 0.5)", R"("relative_flops": 0.4)", "/results/2/totals/relative_flops", "expected 0.5"},
           {R"("relative_measured": 0.33)", R"("relative_measured": 0.34)", "/results/2/totals/relative_measured", "expected 0.3333333333333333"},
           {R"("relative_noise": 0.05)", R"("relative_noise": 0.01)", "/results/2/totals/relative_noise", "expected 0.05"},
       }) {
    CAPTURE(row.to);
    const auto [pointer, message] = refused(text(row.from, row.to));
    CHECK(pointer == row.pointer);
    CHECK(message.find(row.says) != std::string::npos);
  }
}

TEST_CASE("a record of another schema says what is read and what to do", "[record_check]") {
  for (const char* schema : {"99", R"("fathom-record-99")"}) {
    try {
      read_record(record(R"("fathom-record-1")", schema), "r.json");
      FAIL("read");
    } catch (const Error& error) {
      CHECK(error.where().key == "schema");
      CHECK(error.message() == "is " + std::string(schema) + ", and this program reads \"fathom-record-1\" only");
      CHECK(error.hint().find("save it again") != std::string::npos);
    }
  }
}
