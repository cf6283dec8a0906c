// What configurations are called, which notes stand once for many, and which model ran faster by how much.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "reports/markdown.hpp"
#include "reports/record_faster.hpp"
#include "reports/record_names.hpp"
#include "reports/record_notes.hpp"
#include "reports/run_facts.hpp"
#include "reports/text.hpp"

using namespace fathom;

namespace {

Result result_of(const char* model, unsigned batch) {
  Result result;
  result.model = model;
  result.scenario.set("phase", Cell::text("decode"));
  result.scenario.set("batch", Cell::count(u128{batch}));
  return result;
}

Result timed(const char* model, unsigned batch, double seconds, double noise = 0) {
  Result result = result_of(model, batch);
  result.totals.set("measured_s", Cell::number(seconds));
  result.totals.set("noise", Cell::number(noise));
  return result;
}

Record many(unsigned batches) {
  Record record;
  record.command = "compare";
  for (const char* model : {"a", "b"})
    for (unsigned batch = 1; batch <= batches; ++batch) record.results.push_back(result_of(model, batch));
  return record;
}

void note(Result& result, const std::string& text) { result.notes.push_back({Note::Severity::kNote, text}); }

std::vector<std::string> texts(const Record& record) {
  std::vector<std::string> all;
  for (const RecordNote& each : notes_of_results(record)) all.push_back(each.text);
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("some of all configurations are named by what tells them apart", "[reports]") {
  const Record record = many(3);
  const Results all = all_results(record);
  CHECK(names_of({all[1]}, all) == "`a`, batch 2");
  CHECK(names_of({all[0], all[2]}, all) == "`a`, batch 1 / 3");
  CHECK(names_of({all[0], all[1], all[2]}, all) == "`a`");  // all that there are of it
  CHECK(names_of({all[0], all[1], all[2], all[4]}, all) == "`a` and `b`, batch 2");
  CHECK(names_of(all, all) == "all 6 configurations");
  const Record one = many(1);
  CHECK(names_of(all_results(one), all_results(one)) == "`a` and `b`");  // the model says it
  // Ten of one model, of twelve: a list of more than eight is no name.
  const Record twelve = many(12);
  const Results every = all_results(twelve);
  CHECK(names_of(Results(every.begin(), every.begin() + 10), every) == "10 of 24 configurations");
  // Five values are not written as if they had no gaps.
  CHECK(names_of({every[0], every[2], every[4], every[6], every[8]}, every) == "`a`, batch 1 / 3 / 5 / 7 and `a`, batch 9");
}

TEST_CASE("a note stands once, with the configurations that it holds for", "[reports]") {
  Record record = many(2);
  for (Result& result : record.results) note(result, "the same of all");
  note(record.results[0], "of two");
  note(record.results[3], "of two");
  note(record.results[1], "a: of one");  // as earlier versions named the model in the note
  CHECK(texts(record) == Texts{"`a` and `b`: the same of all", "`a`, batch 1 and `b`, batch 2: of two", "`a`, batch 2: of one"});
  Record alone;
  alone.results.push_back(result_of("a", 1));
  note(alone.results[0], "told");
  note(alone.results[0], "told");
  CHECK(texts(alone) == Texts{"told"});
}

TEST_CASE("more than four notes that differ in numbers alone become one with ranges", "[reports]") {
  Record record = many(3);
  for (std::size_t i = 0; i < 6; ++i) note(record.results[i], "mod-60m: 1" + std::to_string(i) + " of 20 ops, error " + std::to_string(9 - i) + ".5 %, 1,00" + std::to_string(i) + " rows");
  // 10 to 15 rising, 9.5 to 4.5 falling, 1,000 to 1,005; 20 is one number, and 60 belongs to a name.
  CHECK(texts(record) == Texts{"all 6 configurations: mod-60m: 10 to 15 of 20 ops, error 4.5 to 9.5 %, 1,000 to 1,005 rows"});
  record.results.resize(4);
  CHECK(texts(record).size() == 4);  // four can be read one by one
}

TEST_CASE("how much faster: a ratio of medians, relative errors in quadrature", "[reports]") {
  Record record;
  record.command = "run";
  record.results = {timed("slow", 1, 2.0, 0.008), timed("fast", 1, 1.25, 0.006)};
  // 2 / 1.25 = 1.6; sqrt(.008^2 + .006^2) = .01; 1.6 * .01 = .016.
  CHECK(faster_sentences(record) == Texts{"`fast` ran 1.600 ± 0.016 times faster than `slow`"});
  // 1.86 spread / sqrt(n) counts where it is larger: .1 * 1.86 / 10 = .0186; sqrt(.0186^2 + .006^2) = .01954; 1.6 times that = .0313.
  record.results[0].totals.set("spread", Cell::number(0.1));
  record.results[0].totals.set("samples", Cell::count(u128{100}));
  CHECK(median_uncertainty(record.results[0].totals) == Approx(0.0186));
  CHECK(faster_sentences(record) == Texts{"`fast` ran 1.60 ± 0.03 times faster than `slow`"});
  record.results[0].totals.set("spread", Cell::number(4.0));  // .744: 1.6 - 1.19 < 1
  CHECK(faster_sentences(record) == Texts{"`fast` and `slow` cannot be told apart: 1.6 ± 1.2 times"});
  record.results = {timed("slow", 1, 2.0, 0.03), timed("fast", 1, 1.25, 0.01)};  // above 2.5 % a step is not graded; 1.6 sqrt(.03^2 + .01^2) = .0506
  CHECK(faster_sentences(record) == Texts{"noisy: `fast` ran 1.60 ± 0.05 times faster than `slow`"});
  record.results = {timed("slow", 1, 2.0), timed("fast", 1, 1.25)};  // the fake backend repeats a prediction
  CHECK(faster_sentences(record) == Texts{"`fast` ran 1.60 times faster than `slow`"});
  record.results.pop_back();
  CHECK(faster_sentences(record).empty());
  record.results.push_back(timed("slow", 2, 1.0));  // the same model, and another job
  CHECK(faster_sentences(record).empty());
}

TEST_CASE("a generation ran once, and says so", "[reports]") {
  Record record;
  record.results = {timed("a", 1, 1.0), timed("b", 1, 3.0)};
  for (Result& result : record.results) result.totals.set("noise", Cell::status("not measured"));
  CHECK(faster_sentences(record) == Texts{"`a` ran 3.00 times faster than `b`; how far that is off is not known, each ran once"});
}

TEST_CASE("over many jobs the extremes are told", "[reports]") {
  Record record;
  for (unsigned batch = 1; batch <= 6; ++batch) {
    record.results.push_back(timed("a", batch, 1.0));
    record.results.push_back(timed("b", batch, 1.0 + 0.25 * batch));  // 1.25 at batch 1 to 2.5 at batch 6
  }
  CHECK(faster_sentences(record) == Texts{"`a` ran 1.25 (batch 1) to 2.50 (batch 6) times faster than `b`, over 6 configurations"});
  record.results[1].totals.set("measured_s", Cell::number(0.5));  // b wins one of six
  CHECK(faster_sentences(record) == Texts{"`a` ran 0.500 (batch 1) to 2.50 (batch 6) times as fast as `b`, over 6 configurations"});
  record.results.resize(8);  // four jobs are told one by one
  CHECK(faster_sentences(record).size() == 4);
  CHECK(faster_sentences(record)[0] == "`b` ran 2.00 times faster than `a` (batch 1)");
}

TEST_CASE("the terminal ends in who was faster, pages say it with the result", "[reports]") {
  Record record;
  record.command = "run";
  record.arguments = "run a b";
  record.results = {timed("a", 1, 1.0), timed("b", 1, 3.0)};
  const std::string text = render_text(view_record(record, {}), {100, false, true});
  CHECK(text.ends_with("\na ran 3.00 times faster than b.\n"));
  ViewOptions page;
  page.page = true;
  const std::string markdown = render_markdown(view_record(record, page));
  CHECK(markdown.find("`a` ran 3.00 times faster than `b`.") < markdown.find("**Configurations**"));
}

TEST_CASE("facts of a machine are words with units", "[reports]") {
  const auto shown = [](const char* key, Cell cell) {
    KeyValues list;
    list.items.push_back(run_fact(key, cell));
    return render_text(list, {100, false, true});
  };
  CHECK(shown("memory_bytes", Cell::count(u128{33500000000})) == "memory  33.50 GB (33,500,000,000 B)\n");
  CHECK(shown("reference_exp_s", Cell::number(0.0012)) == "reference kernel exp  1.200 ms\n");
  CHECK(shown("ceiling_product_flops_per_s", Cell::number(3e11)) == "ceiling by probe product  300.0 GFLOP/s\n");
  CHECK(shown("noise_small_gemm", Cell::number(0.031)) == "A/A noise of reference kernel small gemm  3.1 %\n");
  CHECK(shown("foreign_cpu", Cell::number(0.25)) == "used by other processes  0.2500 cores\n");
  CHECK(shown("seconds_spent", Cell::number(8.5)) == "time spent measuring  8.500 s\n");
  CHECK(shown("never_heard_of", Cell::number(2.0)) == "never heard of  2.000\n");
}
