// Tables of records: which columns a page shows, samples that survive writing and reading, rows that carry their origin.
#include "reports/record.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "reports/csv.hpp"
#include "reports/format.hpp"
#include "reports/markdown.hpp"
#include "reports/record_tables.hpp"

using namespace fathom;

namespace {

Record measured_record() {
  Record record;
  record.command = "compare";
  record.version = "fathom 1.2.3 (abc)";
  record.started = "2026-01-02T03:04:05Z";
  record.environment.set("cpu", Cell::text("A CPU"));
  record.environment.set("threads", Cell::count(u128{2}));
  Result result;
  result.model = "a";
  result.scenario.set("phase", Cell::text("prefill"));
  for (const char* key : {"predicted_s", "predicted_lo_s", "predicted_hi_s", "measured_s", "spread", "error", "normalised_s", "p95_s", "noise", "tokens_per_s"}) result.totals.set(key, Cell::number(0.25));
  result.totals.set("error", Cell::number(0.0));
  for (const char* key : {"flops_matmul", "bytes_read", "bytes_written", "params_total", "peak_bytes"}) result.totals.set(key, Cell::count(u128{1000}));
  Figures op;
  op.set("path", Cell::text("x/y"));
  op.set("kind", Cell::text("gemm"));
  for (const char* key : {"predicted_s", "measured_s", "error", "min_s"}) op.set(key, Cell::number(0.5));
  op.set("error", Cell::number(0.0));
  for (const char* key : {"flops_matmul", "bytes_read", "bytes_written"}) op.set(key, Cell::count(u128{1000}));
  op.set("verdict", Cell::text("noisy"));
  op.set("status", Cell::text("too much noise"));
  result.ops.push_back(op);
  result.samples_s = {0.25, 0.1 + 0.2, 3e-9};
  result.totals.set("normalised_s", Cell::number(0.5));                      // the op took that
  result.totals.set("p95_s", Cell::number(0.295));                          // 0.25 + 0.9 * 0.05
  result.totals.set("spread", Cell::number((0.275 - 0.1250000015) / 0.25));  // half-way up and down from the median
  result.rounds_s = {{0.5, 1e-300}};
  record.results.push_back(result);
  return record;
}

std::vector<std::string> keys_of(const ReportTable& table) {
  std::vector<std::string> keys;
  for (const ReportColumn& column : table.columns) keys.push_back(column.key);
  return keys;
}

}  // namespace

TEST_CASE("single samples survive writing and reading", "[reports]") {
  const Record record = measured_record();
  const Record again = read_record(write_record(record), "r.json");
  CHECK(again.results[0].samples_s == record.results[0].samples_s);
  CHECK(again.results[0].rounds_s == record.results[0].rounds_s);
  Record none = record;
  none.results[0].samples_s.clear();
  none.results[0].rounds_s.clear();
  const std::string text = write_record(none);
  CHECK(text.find("samples_s") == std::string::npos);
  CHECK(text.find("rounds_s") == std::string::npos);
  CHECK(read_record(text, "r.json").results[0].samples_s.empty());
}

TEST_CASE("why an op has no grade survives writing and reading, also beside missing numbers", "[reports]") {
  Record record = measured_record();
  const auto status = [](const Record& r) { return exact_text(*r.results[0].ops[0].find("status")); };
  CHECK(status(read_record(write_record(record), "r.json")) == "too much noise");
  record.results[0].ops[0].set("measured_s", Cell::status("not run"));
  const std::string text = write_record(record);
  std::size_t keys = 0;
  for (std::size_t at = text.find("\"status\""); at != std::string::npos; at = text.find("\"status\"", at + 1)) ++keys;
  CHECK(keys == 1);
  const Record again = read_record(text, "r.json");
  CHECK(status(again) == "too much noise");
  CHECK(again.results[0].ops[0].find("measured_s")->missing()->reason == "not run");
  CHECK(render_csv(record_table(again, "ops", {"path", "measured_s", "status"}), "\n") == "path,measured_s,status\nx/y,,too much noise; measured_s: not run\n");
  CHECK(*again.results[0].ops[0].find("verdict")->words() == "noisy");
}

TEST_CASE("a page shows the answers first and names what it leaves out", "[reports]") {
  ViewOptions options;
  options.page = true;
  const Document page = view_record(measured_record(), options);
  CHECK(keys_of(table_of(page, "results")) == std::vector<std::string>{"model", "predicted_s", "measured_s", "spread", "error", "predicted_lo_s", "predicted_hi_s", "tokens_per_s"});
  CHECK(keys_of(table_of(page, "times")) == std::vector<std::string>{"model", "normalised_s", "noise", "p95_s"});
  CHECK(keys_of(table_of(page, "counts")) == std::vector<std::string>{"model", "flops_matmul", "bytes_read", "bytes_written"});
  CHECK(keys_of(table_of(page, "memory")) == std::vector<std::string>{"model", "params_total", "peak_bytes"});
  const ReportTable& ops = table_of(page, "ops");
  CHECK(keys_of(ops) == std::vector<std::string>{"path", "predicted_s", "measured_s", "error", "verdict", "flops_matmul", "bytes_moved"});
  CHECK(*ops.rows[0].cells[6].exact() == u128{2000});  // 1000 read and 1000 written
  CHECK(ops.caption.find("Not shown: kind, min, read, written (") != std::string::npos);
  CHECK(keys_of(table_of(page, "reasons")) == std::vector<std::string>{"verdict", "status", "path"});
}

TEST_CASE("ops without a grade are listed by reason", "[reports]") {
  Record record = measured_record();
  std::vector<Figures>& ops = record.results[0].ops;
  ops.resize(4, ops[0]);
  ops[1].set("path", Cell::text("x/z"));
  ops[2].set("path", Cell::text("other"));
  ops[2].set("status", Cell::text("too short"));
  ops[3].set("verdict", Cell::text("within"));
  ops[3].set("status", Cell::text(""));
  const Document document = view_record(record, {});
  const ReportTable& reasons = table_of(document, "reasons");
  REQUIRE(reasons.rows.size() == 2);
  CHECK(*reasons.rows[0].cells[2].words() == "x/y, x/z");
  CHECK(*reasons.rows[1].cells[1].words() == "too short");
}

TEST_CASE("sums of ops stand over a row of all ops, and a footnote says why they are not the time of the step", "[reports]") {
  Record record = measured_record();
  std::vector<Figures>& ops = record.results[0].ops;
  ops.resize(2, ops[0]);
  ops[0].set("part", Cell::text("ffn"));
  ops[1].set("part", Cell::text("core"));
  ops[1].set("measured_s", Cell::number(0.25));
  const auto table = [&] { return table_of(view_record(record, {}), "by-part"); };
  CHECK(keys_of(table()) == std::vector<std::string>{"model", "part", "predicted_s", "normalised_s", "share", "error", "flops_matmul", "bytes_moved"});
  CHECK(table().columns[3].label == "measured, op by op");
  CHECK(table().columns[2].label == "predicted, op by op");  // not the predicted time of the step: its error is another one
  CHECK(table().columns[5].label == "error, op by op");
  REQUIRE(table().rows.size() == 3);
  CHECK(table().rows[2].total);
  CHECK(*table().rows[2].cells[1].words() == "all ops");
  CHECK(table().rows[2].cells[2].value() == 1.0);   // .5 + .5, of a step predicted at .25
  CHECK(table().rows[2].cells[3].value() == 0.75);  // .5 + .25
  CHECK(table().caption.find("These times add up to `normalised`") != std::string::npos);
  CHECK(table().caption.find("`predicted` is here of ops timed in that way") != std::string::npos);
  record.results[0].totals.set("predicted_s", Cell::number(1.0));  // now they do add up
  CHECK(table().caption.find("`predicted`") == std::string::npos);
  CHECK(table_of(view_record(record, {}), "ops").columns[2].label == "measured, op by op");
}

TEST_CASE("what several rows share is shown once for them", "[reports]") {
  Figures row;
  row.set("model", Cell::text("a"));
  row.set("batch", Cell::count(u128{1}));
  row.set("measured_s", Cell::number(0.5));
  std::vector<Figures> rows = {row, row, row};
  rows[1].set("batch", Cell::count(u128{2}));
  rows[2].set("model", Cell::text("b"));
  const auto group = [&] { return make_table("t", "", rows, {"model", "batch"}, {"measured_s"}).group; };
  CHECK(group() == 1);
  const std::string text = render_markdown(make_table("t", "", rows, {"model", "batch"}, {"measured_s"}));
  CHECK(text.find("| a | 1 | 500.0\u00a0ms |\n|  | 2 | 500.0\u00a0ms |\n| b | 1 |") != std::string::npos);
  CHECK(render_csv(make_table("t", "", rows, {"model", "batch"}, {"measured_s"}), "\n").find("a,2,0.5") != std::string::npos);  // files repeat it
  rows[1].set("model", Cell::text("b"));
  rows[2].set("model", Cell::text("a"));
  CHECK(group() == 0);  // a comes back: no group
  rows[2].set("model", Cell::text("c"));
  CHECK(group() == 0);  // every row has its own
}

TEST_CASE("columns that are asked for stand alone, and those that no table has are named", "[reports]") {
  ViewOptions options;
  options.page = true;
  options.columns = {"p95_s", "min_s", "dram_ratio"};
  const Document page = view_record(measured_record(), options);
  CHECK(keys_of(table_of(page, "results")) == std::vector<std::string>{"model", "p95_s"});
  CHECK(keys_of(table_of(page, "ops")) == std::vector<std::string>{"path", "min_s"});
  const auto says = [](const DocumentPart& part) {
    const Note* note = std::get_if<Note>(&part);
    return note && note->severity == Note::Severity::kSkipped && note->text == "nothing here has a figure for `dram_ratio`";
  };
  CHECK(std::any_of(page.parts.begin(), page.parts.end(), says));
}

TEST_CASE("rows of CSV end in where and by what they were made", "[reports]") {
  const ReportTable rows = record_table(measured_record(), "results");
  const std::vector<std::string> keys = keys_of(rows);
  REQUIRE(keys.size() > 3);
  CHECK(std::vector<std::string>(keys.end() - 3, keys.end()) == std::vector<std::string>{"fathom_version", "started", "cpu"});
  CHECK(*rows.rows[0].cells.back().words() == "A CPU");
  CHECK(*rows.rows[0].cells[keys.size() - 3].words() == "1.2.3 (abc)");
  CHECK(std::find(keys.begin(), keys.end(), "threads") != keys.end());  // of the environment, where none were asked for
  CHECK(keys_of(record_table(measured_record(), "ops", {"path", "verdict"})) == std::vector<std::string>{"path", "verdict"});
}

TEST_CASE("joined rows keep the origin of their own run", "[reports]") {
  Record other = measured_record();
  other.environment.set("cpu", Cell::text("B CPU"));
  const ReportTable rows = record_table(join_records({measured_record(), other}, {"a.json", "b.json"}), "results");
  REQUIRE(rows.rows.size() == 2);
  const auto keys = keys_of(rows);
  const auto cpu = static_cast<std::size_t>(std::find(keys.begin(), keys.end(), "cpu") - keys.begin());
  CHECK(*rows.rows[0].cells[cpu].words() == "A CPU");
  CHECK(*rows.rows[1].cells[cpu].words() == "B CPU");
}

TEST_CASE("a number is not parted from its unit in Markdown", "[reports]") {
  ReportTable table("t", "");
  table.add_column("model");
  table.add_column("measured_s");
  table.add_row({Cell::text("two words"), Cell::number(0.25)});
  table.add_row({Cell::text("b"), Cell::status("not run")});
  const std::string text = render_markdown(table);
  CHECK(text.find("| two words | 250.0\u00a0ms |") != std::string::npos);
  CHECK(text.find("| (not\u00a0run) |") != std::string::npos);  // nor is a short reason; a long one stands below the table
}

TEST_CASE("Markdown leaves out what does not fit a page, most dispensable first", "[reports]") {
  ReportTable table("t", "");
  for (int c = 0; c < 13; ++c) table.add_column(ReportColumn{"c" + std::to_string(c), "c" + std::to_string(c), Unit::kText, c == 4 ? 3 : c == 7 ? 5 : c == 9 ? 1 : 0});
  const std::string narrow = render_markdown(table);
  CHECK(narrow.find("| c0 | c1 | c2 | c3 | c5 | c6 | c8 | c9 | c10 | c11 | c12 |\n") == 0);  // 3 and 5 are gone, 1 has room
  CHECK(narrow.find("Not shown: c4, c7 (") != std::string::npos);
  table.wide = true;
  CHECK(render_markdown(table).find("| c3 | c4 | c5 | c6 | c7 | c8 |") != std::string::npos);
  CHECK(render_markdown(table).find("Not shown") == std::string::npos);
}

TEST_CASE("a realised fraction that is lost in noise is not put into words", "[reports]") {
  Record record = measured_record();
  Figures& totals = record.results[0].totals;
  totals.set("flops_ratio", Cell::number(0.6));
  totals.set("measured_ratio", Cell::number(0.64));
  totals.set("noise", Cell::number(0.015));
  totals.set("realised", Cell::number(0.9));  // (1 - .64) / (1 - .6)
  const auto says = [&](double noise, const char* words) {
    totals.set("ratio_noise", Cell::number(noise));
    return render_markdown(view_record(record, {})).find(words) != std::string::npos;
  };
  CHECK(says(0.025, "Of the FLOPs saved, 90.0 % (± 4.0 points) became time saved."));  // .64 x .025 / .4 = .04
  CHECK(says(0.025, ". Of the FLOPs saved, 90.0 %"));         // the twin's noise: sqrt(.025^2 - .015^2) = .02, both below 2.5 %
  CHECK(says(0.030, ". Noisy: of the FLOPs saved, 90.0 %"));  // sqrt(.030^2 - .015^2) = .026
  CHECK(says(0.4, "The noise of that ratio is too large to say how much"));            // .64 x .4 / .4 = .64
  CHECK_FALSE(says(0.4, "90.0 % (±"));
}

TEST_CASE("a realised fraction that is lost in noise stands in no cell", "[reports]") {
  Figures totals;
  totals.set("flops_ratio", Cell::number(0.6));
  totals.set("measured_ratio", Cell::number(0.64));
  totals.set("realised", Cell::number(0.9));
  totals.set("ratio_noise", Cell::number(0.3));  // .64 x .3 / .4 = .48: below half
  CHECK(realised_noise(totals) == Approx(0.48));
  CHECK(realised_cell(totals).value() == 0.9);
  totals.set("ratio_noise", Cell::number(0.4));  // .64
  REQUIRE(realised_cell(totals).missing());
  Record record = measured_record();
  for (const auto& [key, cell] : totals.items()) record.results[0].totals.set(key, cell);
  const std::string page = render_markdown(view_record(record, {}));
  CHECK(page.find("90.0 %") == std::string::npos);
  CHECK(page.find("noise too large") != std::string::npos);
}

TEST_CASE("sentences of several scenarios say which is meant", "[reports]") {
  Record record = measured_record();
  record.results[0].totals.set("flops_ratio", Cell::number(0.5));
  const auto page = [&] { return render_markdown(view_record(record, {})); };
  CHECK(page().find("`a` needs 0.5000 of the FLOPs") != std::string::npos);
  for (const unsigned batch : {1U, 8U, 32U}) {
    record.results.push_back(record.results[0]);
    record.results.back().scenario.set("batch", Cell::count(u128{batch}));
    record.results.back().totals.set("flops_ratio", Cell::number(batch == 32 ? 0.25 : 0.5));
  }
  record.results.erase(record.results.begin());
  const std::string three = page();
  CHECK(three.find("`a`, batch 1 / 8: needs 0.5000 of the FLOPs") != std::string::npos);  // the same is said once
  CHECK(three.find("`a`, batch 32: needs 0.2500 of the FLOPs") != std::string::npos);
  CHECK(three.find("`a`, batch 8: predicted") != std::string::npos);
}

TEST_CASE("sentences of many scenarios give their number and the extremes", "[reports]") {
  Record record = measured_record();
  const Result one = record.results[0];
  record.results.clear();
  for (unsigned batch = 1; batch <= 8; ++batch) {  // ratios .50 at batch 1 to .85 at batch 8
    Result each = one;
    each.scenario.set("batch", Cell::count(u128{batch}));
    each.totals.set("flops_ratio", Cell::number(0.45 + 0.05 * batch));
    each.totals.set("predicted_s", Cell::number(1));
    each.totals.set("measured_s", Cell::number(2.0 / batch));  // error batch / 2 - 1: -50 % to +300 %; |error| .5 0 .5 1 1.5 2 2.5 3, median 1.25
    each.totals.set("relative_to", Cell::text("b"));
    each.totals.set("relative_flops", Cell::number(2));
    record.results.push_back(std::move(each));
  }
  const std::string page = render_markdown(view_record(record, {}));
  CHECK(page.find("`a` in 8 configurations needs 0.5000 (batch 1) to 0.8500 (batch 8) of the FLOPs of its dense twin") != std::string::npos);
  CHECK(page.find("`a` in 8 configurations: error of the prediction -50.0 % (batch 1) to +300.0 % (batch 8), median \\|error\\| 125.0 %") != std::string::npos);
  CHECK(page.find("2.000 times the FLOPs") != std::string::npos);
  CHECK(page.find("needs 0.5000 of") == std::string::npos);
  CHECK(page.find("batch 1 ... 8 (8 values)") != std::string::npos);
  // Many models: all in one.
  for (std::size_t i = 0; i < record.results.size(); ++i) record.results[i].model = "m" + std::to_string(i);
  const std::string many = render_markdown(view_record(record, {}));
  CHECK(many.find("8 configurations of 8 models need 0.5000 (`m0`, batch 1) to 0.8500 (`m7`, batch 8) of the FLOPs of their dense twins") != std::string::npos);
  CHECK(many.find("# fathom compare: 8 models") != std::string::npos);
}
