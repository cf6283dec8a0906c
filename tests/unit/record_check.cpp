// Records whose figures cannot be true are refused, with file and JSON pointer.
#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

#include "lib/error.hpp"
#include "reports/record.hpp"

using namespace fathom;

namespace {

// A small record of one result, with `from` replaced by `to`.
std::string record(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({"schema": "fathom-record-1", "command": "compare", "model": "m", "scenario": {"phase": "prefill", "batch": 1, "seq": 8},
    "convention": {"name": "exact", "flops": 30},
    "totals": {"flops_matmul": 30, "bytes_read": 7, "params_total": 9, "params_active": 9, "predicted_s": 2, "predicted_lo_s": 1, "predicted_hi_s": 3, "measured_s": 4, "min_s": 3,
               "p50_s": 4, "p95_s": 5, "time_ratio": 2, "error": -0.5, "realised": -0.2, "spread": null},
    "parts": [{"part": "core", "flops_matmul": 10, "bytes_read": 3}, {"part": "ffn", "flops_matmul": 20, "bytes_read": 4}],
    "ops": [{"path": "a", "flops_matmul": 10, "share": 1}]})";
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
  CHECK(refused(record(R"("bytes_read": 7)", R"("bytes_read": 7, "samples_s": [1, 2])")) == std::pair<std::string, std::string>{});
  struct Row {
    const char *from, *to, *pointer, *says;
  };
  const std::vector<Row> rows = {
      {R"("flops_matmul": 30)", R"("flops_matmul": -30)", "/totals/flops_matmul", "cannot be negative"},
      {R"("flops_matmul": 30)", R"("flops_matmul": "NaN")", "/totals/flops_matmul", "text 'NaN'"},
      {R"("flops_matmul": 30)", R"("flops_matmul": true)", "/totals/flops_matmul", "no number"},
      {R"("flops_matmul": 30)", R"("flops_matmul": [30])", "/totals/flops_matmul", "no single figure"},
      {R"("flops_matmul": 30)", R"("flops_matmul": 31)", "/convention/flops", "flops_matmul"},
      {R"("bytes_read": 7)", R"("bytes_read": 8)", "/totals/bytes_read", "add up to 7"},
      {R"("bytes_read": 3)", R"("bytes_read": -3)", "/parts/0/bytes_read", "cannot be negative"},
      {R"("bytes_read": 7)", R"("bytes_read": 1e999)", "", "number overflow"},
      {R"("time_ratio": 2)", R"("time_ratio": 0.5)", "/totals/time_ratio", "measured_s and predicted_s give 2"},
      {R"("error": -0.5)", R"("error": 1)", "/totals/error", "give -0.5"},
      {R"("predicted_lo_s": 1)", R"("predicted_lo_s": 3.5)", "/totals/predicted_lo_s", "above predicted_hi_s"},
      {R"("p95_s": 5)", R"("p95_s": 3.5)", "/totals/p50_s", "above p95_s"},
      {R"("params_active": 9)", R"("params_active": 10)", "/totals/params_active", "above params_total"},
      {R"("bytes_read": 7)", R"("bytes_read": 7, "samples_s": [1, -2])", "/totals/samples_s/1", "cannot be negative"},
      {R"("bytes_read": 7)", R"("bytes_read": 7, "samples_s": 1)", "/totals/samples_s", "no list"},
      {R"("batch": 1)", R"("batch": -1)", "/scenario/batch", "cannot be negative"},
      {R"("seq": 8)", R"("seq": "eight")", "/scenario/seq", "text 'eight'"},
      {R"("share": 1)", R"("share": 1.5)", "/ops/0/share", "at most 1"},
      {R"("flops": 30)", R"("flops": "many")", "/convention/flops", "text 'many'"},
      {R"("flops": 30)", R"("flops": -3)", "/convention/flops", "negative"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.to);
    const auto [pointer, message] = refused(record(row.from, row.to));
    CHECK(pointer == row.pointer);
    CHECK(message.find(row.says) != std::string::npos);
  }
}

TEST_CASE("of several results the one is named", "[record_check]") {
  const std::string good = R"({"model": "m", "scenario": {}, "totals": {"flops_matmul": 1}})", bad = R"({"model": "m", "scenario": {}, "totals": {"flops_matmul": -1}})";
  CHECK(refused(R"({"schema": "fathom-record-1", "results": [)" + good + ", " + bad + "]}").first == "/results/1/totals/flops_matmul");
  CHECK(refused(R"({"schema": "fathom-record-1", "results": [)" + good + "]}").first.empty());
}
