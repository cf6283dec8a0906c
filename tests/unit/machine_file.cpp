#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <limits>

#include "models/machine_ini.hpp"
#include "tests/unit/predict_sample.hpp"
#include "tools/machines.hpp"

using namespace fathom;
using fathom::testing::figure;

namespace {

Machine rich_machine() {
  Machine m = fathom::testing::toy_machine();
  m.date = "2026-01-31";
  m.software = {{"onednn", "2.6.3"}};
  m.clock = figure(2.5123456789e9);
  m.clock_max = figure(1.0 / 3.0 * 1e10);
  m.noise = {{"stream", 0.1 + 0.2}};
  m.levels[1].claimed = figure(300e6);
  m.gemm_curves = {{DType::kF32, "forward", 2, 768, 2304, {1, 32, 2048}, {1.1e-7, 3.3333333333333335e-5, 0.123456789012345678}, Provenance::kProbed}};
  ClassFit fit;
  fit.name = "attention";
  fit.threads = 2;
  fit.coefficients = {{"per_score", 7.4e-10}, {"per_key", 1e-9 / 3}};
  fit.low = {{"keys", 64}};
  fit.high = {{"keys", 4096}};
  fit.residual_low = 0.93;
  fit.residual_high = 1.07;
  fit.points = 31;
  m.class_fits = {fit};
  return m;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Error error_of(const std::string& text) {
  try {
    parse_machine_ini(text, "m.ini");
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  throw;
}

}  // namespace

TEST_CASE("a machine file round-trips bit for bit") {
  const Machine m = rich_machine();
  const std::string text = write_machine_ini(m);
  const Machine back = parse_machine_ini(text, "m.ini");
  CHECK(back == m);
  CHECK(write_machine_ini(back) == text);
  CHECK(back.hash() == m.hash());
}

TEST_CASE("quantities of any size survive a machine file") {
  // 2^-40 s, the largest clock with an awkward tail, one byte per second, and values just beside powers of ten.
  for (const double value : {1.0, 999.0, 1000.0, 999.9999999999999, 1.0000000000000002, 123456789.12345679, 9.999999999999999e22, 1e-3}) {
    Machine m = fathom::testing::toy_machine();
    m.exp_element = figure(value * 1e-9);
    m.levels.back().rate[0][1].value = value * 1e6;
    CHECK(parse_machine_ini(write_machine_ini(m), "m.ini") == m);
  }
}

TEST_CASE("every figure counts in the hash") {
  const Machine m = rich_machine();
  Machine other = m;
  other.levels[0].rate[1][2].value *= 1 + 1e-15;
  CHECK(other != m);
  CHECK(other.hash() != m.hash());
  other = m;
  other.class_fits[0].coefficients["per_key"] = 0;
  CHECK(other.hash() != m.hash());
}

TEST_CASE("mistakes in a machine file are told with their line") {
  const std::string text = write_machine_ini(rich_machine());
  SECTION("unknown key") {
    const Error e = error_of(replaced(text, "rate.2 = 200 GFLOP/s", "rata.2 = 200 GFLOP/s"));
    CHECK(e.kind() == ErrorKind::kInput);
    CHECK(e.where().file == "m.ini");
    CHECK(e.where().line > 0);
  }
  SECTION("unknown section") { CHECK(error_of(replaced(text, "[software]", "[sofware]")).where().line > 0); }
  SECTION("no unit") { CHECK(error_of(replaced(text, "200 GFLOP/s", "200")).message().find("no unit") != std::string::npos); }
  SECTION("wrong unit") { CHECK(error_of(replaced(text, "200 GFLOP/s", "200 GB/s")).where().line > 0); }
  SECTION("no source") { CHECK(error_of(replaced(text, "200 GFLOP/s, probed: test", "200 GFLOP/s")).message().find("source") != std::string::npos); }
  SECTION("no such provenance") { CHECK(error_of(replaced(text, "200 GFLOP/s, probed", "200 GFLOP/s, guessed")).message().find("guessed") != std::string::npos); }
  SECTION("another schema") { CHECK(error_of(replaced(text, "machine-1", "machine-9")).where().line == 1); }
  SECTION("thread count that is none") { CHECK(error_of(replaced(text, "rate.2", "rate.two")).where().line > 0); }
  SECTION("a rate above the bound") { CHECK(error_of(replaced(text, "best.2 = 220 GFLOP/s", "best.2 = 150 GFLOP/s")).message().find("best") != std::string::npos); }
}

TEST_CASE("built-in machines hold what the forms use") {
  struct Row {
    const char* name;
    double peak, bandwidth;
    std::int64_t sms;
    double l2;
  };
  for (const Row& row : {Row{"h200", 989e12, 4.8e12, 132, 50e6}, Row{"h100", 989e12, 3.35e12, 132, 50e6}, Row{"a100", 312e12, 2.039e12, 108, 40e6},
                         Row{"b200", 2250e12, 8.0e12, 148, 126e6}, Row{"l40s", 362e12, 0.864e12, 142, 96e6}}) {
    const Machine m = load_machine(row.name);
    INFO(row.name);
    REQUIRE(m.peak(DType::kBF16) != nullptr);
    CHECK(m.peak(DType::kBF16)->rate.at(0).value == Approx(row.peak).epsilon(1e-3));
    CHECK(m.peak(DType::kBF16)->best.at(0).value >= m.peak(DType::kBF16)->rate.at(0).value);
    CHECK(m.levels.back().rate[0].at(0).value == row.bandwidth);
    CHECK(m.cores == row.sms);
    CHECK(m.level("L2")->capacity->value == row.l2);
    CHECK(parse_machine_ini(write_machine_ini(m), "again") == m);
  }
  CHECK_THROWS_AS(load_machine("h20"), Error);
  CHECK(list_machines().size() >= 5);
}

TEST_CASE("a figure between probed thread counts is interpolated, beyond them marked") {
  const PerThreads f = {{1, figure(10)}, {4, figure(40)}};
  CHECK(figure_at(f, 4)->value == 40);
  CHECK(figure_at(f, 2)->value == Approx(20));  // 10 + (2-1)/(4-1) x 30
  CHECK(figure_at(f, 2)->provenance == Provenance::kProbed);
  CHECK(figure_at(f, 8)->value == 40);
  CHECK(figure_at(f, 8)->provenance == Provenance::kExtrapolated);
  CHECK_FALSE(figure_at({}, 1).has_value());
}

TEST_CASE("a disturbed probe: the faster figures are kept, and falling rates are lifted") {
  const auto machine = [](double one, double two, double launch) {
    Machine m;
    MemoryLevel dram;
    dram.name = "DRAM";
    dram.rate[0] = {{1, {one, Provenance::kProbed, ""}}, {2, {two, Provenance::kProbed, ""}}};
    m.levels = {dram};
    m.launch = {{1, {launch, Provenance::kProbed, ""}}};
    return m;
  };
  Machine first = machine(20e9, 12e9, 5e-7);
  REQUIRE(falling_rates(first).size() == 1);
  take_faster(first, machine(18e9, 15e9, 4e-7));
  CHECK(first.levels[0].rate[0].at(1).value == 20e9);
  CHECK(first.levels[0].rate[0].at(2).value == 15e9);
  CHECK(first.launch.at(1).value == 4e-7);
  REQUIRE(falling_rates(first).size() == 1);
  raise_falling_rates(first);
  CHECK(falling_rates(first).empty());
  CHECK(first.levels[0].rate[0].at(2).value == 20e9);
  CHECK(first.levels[0].rate[0].at(2).source.find("1.5e+10") != std::string::npos);
  // A file of such a machine says so wherever it is used.
  CHECK(probe_doubts(first).find("1 of 2 rates are not its own, such as DRAM read at 2 threads (as at 1 thread") != std::string::npos);
  // What rises stays as it is.
  Machine rising = machine(20e9, 30e9, 5e-7);
  raise_falling_rates(rising);
  CHECK(rising == machine(20e9, 30e9, 5e-7));
  CHECK(probe_doubts(rising).empty());
  const auto spread = [&](double percent) {
    rising.levels[0].rate[0][1].source = fmt::format("read of 196608 KiB per thread, 7 samples, spread {:.1f} %", percent);
    return probe_doubts(rising);
  };
  CHECK(spread(99).empty());
  CHECK(spread(8870).find("DRAM read at 1 thread (") != std::string::npos);
}
