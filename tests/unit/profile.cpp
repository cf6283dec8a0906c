// The parent of profiling passes: what its children are asked, how their records are joined, which rung a row carries.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "tools/profile.hpp"

using namespace fathom;

namespace {

using Words = std::vector<std::string>;

Record two_ops(const std::string& fingerprint) {
  Record record;
  Result result;
  result.model = "m";
  result.fingerprint = fingerprint;
  for (const char* path : {"a", "b"}) {
    Figures op;
    op.set("path", Cell::text(path));
    result.ops.push_back(op);
  }
  record.results.push_back(result);
  return record;
}

}  // namespace

TEST_CASE("children get the same work and none of the parent's output") {
  const Words arguments = {"compare", "mod-60m", "--profile", "counters", "-o", "md", "--save", "x.json", "--save=y.md", "--batch", "1,2", "--width=80", "-ojson", "--ops"};
  CHECK(child_arguments(arguments, "time") == Words{"--no-defaults", "compare", "mod-60m", "--save", "x.json", "--batch", "1,2", "--ops", "--profile-pass", "time", "-o", "json"});
  CHECK(child_arguments(arguments, "activity") == Words{"--no-defaults", "compare", "mod-60m", "--batch", "1,2", "--ops", "--profile-pass", "activity", "-o", "json", "--quiet"});
}

TEST_CASE("passes are joined by fingerprint and op") {
  Record time = two_ops("f1");
  time.results.push_back(two_ops("f2").results[0]);
  Record counted = two_ops("f2");   // the other configuration came first, and only it
  counted.results[0].ops[1].set("l2_bytes", Cell::number(64));
  counted.results[0].ops[1].set("predicted_s", Cell::number(1));   // not a profiled figure: stays behind
  counted.results[0].totals.set("counter_passes", Cell::count(2));
  counted.results[0].notes.push_back({Note::Severity::kWarning, "profile (counters): n"});
  counted.environment.set("chip", Cell::text("GH100"));
  join_pass(time, counted);
  CHECK(time.results[1].ops[1].number("l2_bytes") == 64);
  CHECK_FALSE(time.results[1].ops[1].has("predicted_s"));
  CHECK_FALSE(time.results[0].ops[1].has("l2_bytes"));
  CHECK(time.results[1].totals.number("counter_passes") == 2);
  CHECK(time.results[1].notes.size() == 1);
  CHECK(time.environment.has("chip"));

  Record shorter = two_ops("f1");
  shorter.results[0].ops.pop_back();
  CHECK_THROWS_AS(join_pass(time, shorter), Error);
  Record renamed = two_ops("f1");
  renamed.results[0].ops[0].set("path", Cell::text("c"));
  CHECK_THROWS_AS(join_pass(time, renamed), Error);
}

TEST_CASE("each row carries the rung of its own figures") {
  Record record = two_ops("f");
  Result& result = record.results[0];
  result.totals.set("measured_s", Cell::number(2e-3));
  result.totals.set("traced_s", Cell::number(2.2e-3));
  result.ops[0].set("kernel_s", Cell::number(1e-3));
  result.ops[0].set("kernels", Cell::count(u128{3}));
  result.ops[0].set("predicted_s", Cell::number(1.1e-3));
  result.ops[0].set("counter_s", Cell::number(2e-3));
  result.ops[0].set("sm_cycles", Cell::number(3e6));
  result.ops[0].set("dram_bytes_read", Cell::number(300));
  result.ops[0].set("dram_bytes_written", Cell::number(100));
  result.ops[0].set("needed_bytes", Cell::number(200));
  result.ops[1].set("kernel_s", Cell::status("2 of 5 kernels and copies carry no time"));
  conclude_profile(record, "counters", "events", {"a reason", "another"});
  CHECK(*result.ops[0].find("rung")->words() == "counters+activity");
  CHECK(*result.ops[1].find("rung")->words() == "events");
  CHECK(result.ops[0].number("dram_ratio") == 2);          // 400 / 200
  CHECK(result.ops[0].number("dram_bytes_per_s") == Approx(4e5));
  CHECK(result.ops[0].number("kernel_error") == Approx(0.1));
  CHECK(result.totals.number("kernels") == 3);
  CHECK(result.totals.number("sm_clock_hz") == Approx(1.5e9));
  CHECK(result.totals.number("profile_overhead") == Approx(0.1));
  CHECK(*result.totals.find("rung_reason")->words() == "a reason; another");
  REQUIRE(result.notes.size() == 1);   // more than 5 % of tracing is warned about
  CHECK(result.notes[0].text == "tracing made the step 10.0 % longer; step times are those of the run without it");
  CHECK(record.notes.size() == 2);
  CHECK(record.notes[0].text == "--profile counters: a reason");
}

TEST_CASE("modes and backends") {
  ProfileFlags flags;
  CHECK_NOTHROW(check_profile_flags(flags, "cpu"));
  flags.mode = "counters";
  CHECK_THROWS_WITH(check_profile_flags(flags, "cpu"), Catch::Contains("on the cuda backend only, and the ops run on 'cpu'"));
  CHECK_NOTHROW(check_profile_flags(flags, "cuda"));
  flags.mode = "counter";
  CHECK_THROWS_WITH(check_profile_flags(flags, "cuda"), Catch::Contains("did you mean 'counters'?"));
  for (const char* mode : {"off", "events"}) CHECK_FALSE(starts_passes({mode, "", "", 5}));
  for (const char* mode : {"activity", "counters", "require"}) CHECK(starts_passes({mode, "", "", 5}));
  CHECK_FALSE(starts_passes({"counters", "time", "", 5}));
}
