// Who takes lines from whom where cores have last caches of their own: states by hand, and what residency makes of them.
#include "lib/predict/handover.hpp"

#include <catch2/catch.hpp>

#include "lib/predict/calibrate.hpp"
#include "models/builder.hpp"
#include "models/calibration.hpp"

using namespace fathom;
using Catch::Detail::Approx;

namespace {

constexpr double kCell = 64;

// Both sides together.
Handed both_sides(const HandedSides& sides) { return {sides[0].fetched + sides[1].fetched, sides[0].reclaimed + sides[1].reclaimed}; }

// Two cells, one of each side by rows.
struct Lines {
  HandoverTracker tracker;
  Handed write(Division d) { return both_sides(tracker.touch(0, 2 * kCell, 1, true, d)); }
  Handed read(Division d) { return both_sides(tracker.touch(0, 2 * kCell, 1, false, d)); }
};

// Two cores of 1 MiB, a last cache of 32 MiB.
Machine two_cores(bool shared) {
  Machine m;
  m.name = "two-cores";
  m.kind = MachineKind::kCpu;
  m.cores = 2;
  for (const auto& [name, bytes, common] : {std::tuple{"L1", 48e3, false}, {"L2", 1e6, false}, {"L3", 32e6, shared}, {"DRAM", 0.0, true}}) {
    MemoryLevel level;
    level.name = name;
    level.shared = common;
    if (bytes > 0) level.capacity = Figure{bytes, Provenance::kProbed, ""};
    for (auto& rate : level.rate) rate[1] = rate[2] = Figure{1e11, Provenance::kProbed, ""};
    m.levels.push_back(level);
  }
  m.peaks.push_back({DType::kF32, "fma", {{1, {1e11, Provenance::kProbed, ""}}, {2, {2e11, Provenance::kProbed, ""}}}, {}});
  return m;
}

}  // namespace

TEST_CASE("lines that stay on their side cost nothing") {
  Lines lines;
  for (int i = 0; i < 3; ++i) {
    for (const Handed& handed : {lines.write(Division::kRows), lines.read(Division::kRows)}) {
      CHECK(handed.fetched == 0);
      CHECK(handed.reclaimed == 0);
    }
  }
}

TEST_CASE("by rows and then by columns: half the lines come from the other side") {
  // Side 0 wrote cell 0, side 1 cell 1. By columns each side reads half of both: one cell of two is the other's.
  Lines lines;
  lines.write(Division::kRows);
  const Handed read = lines.read(Division::kColumns);
  CHECK(read.fetched == Approx(kCell));
  CHECK(read.reclaimed == 0);
  // Written by rows again: that half was read by the other side since, and has to be taken from it.
  const Handed written = lines.write(Division::kRows);
  CHECK(written.fetched == 0);
  CHECK(written.reclaimed == Approx(kCell));
  // And then all is its own again.
  CHECK(lines.write(Division::kRows).reclaimed == 0);
}

TEST_CASE("what both sides read is taken from the other before it is written") {
  Lines lines;
  lines.write(Division::kRows);
  const Handed both = lines.read(Division::kAll);
  CHECK(both.fetched == Approx(2 * kCell));  // every side lacks the cell of the other
  CHECK(lines.read(Division::kAll).fetched == 0);
  CHECK(lines.write(Division::kRows).reclaimed == Approx(2 * kCell));
}

TEST_CASE("written by the other side and not read since: fetched, not reclaimed") {
  Lines lines;
  lines.write(Division::kOne);  // side 0 has both cells
  const Handed written = lines.write(Division::kRows);
  CHECK(written.fetched == Approx(kCell));
  CHECK(written.reclaimed == 0);
}

TEST_CASE("whoever comes first: half of the lines on average") {
  Lines lines;
  lines.write(Division::kRows);
  CHECK(lines.read(Division::kMixed).fetched == Approx(kCell));
  Lines others;
  others.write(Division::kMixed);
  CHECK(others.read(Division::kRows).fetched == Approx(kCell));
}

TEST_CASE("part of a cell: the rest keeps its state") {
  HandoverTracker tracker;
  tracker.touch(0, kCell, 1, true, Division::kOne);
  tracker.touch(0, kCell / 4, 1, false, Division::kAll);
  CHECK(both_sides(tracker.touch(0, kCell, 1, true, Division::kOne)).reclaimed == Approx(kCell / 4));
  CHECK(both_sides(tracker.touch(0, 0, 1, true, Division::kOne)).reclaimed == 0);
  // A third of every row, here and there: a third of the cell.
  tracker.touch(0, kCell, 1.0 / 3, false, Division::kAll);
  CHECK(both_sides(tracker.touch(0, kCell, 1, true, Division::kOne)).reclaimed == Approx(kCell / 3));
}

TEST_CASE("what is followed are histories, not bytes") {
  // 64 GB that two threads divide: two intervals (and the untouched rest). A tensor in the middle of the second half cuts it in three: before, inside, behind.
  HandoverTracker tracker;
  const double bytes = 64e9;
  tracker.touch(0, bytes, 1, true, Division::kRows);
  CHECK(tracker.intervals() == 3);
  tracker.touch(48e9, 1e9, 1, false, Division::kOne);  // read by side 0, written by side 1
  CHECK(tracker.intervals() == 5);
  for (int i = 0; i < 100; ++i) tracker.touch(48e9, 1e9, 1, false, Division::kOne);
  CHECK(tracker.intervals() == 5);
  // Written anew by rows, all of it is what it was at first.
  const HandedSides sides = tracker.touch(0, bytes, 1, true, Division::kRows);
  CHECK(sides[1].reclaimed == Approx(1e9));
  CHECK(tracker.intervals() == 3);
}

TEST_CASE("the side that takes more is the one that counts") {
  // A wide activation of four cells: rows of side 0 in the first two, of side 1 in the last two. A narrow one takes the place of the last two: its first half is
  // side 0's and has to be reclaimed from side 1, which has its own half and takes nothing.
  HandoverTracker tracker;
  tracker.touch(0, 4 * kCell, 1, true, Division::kRows);
  tracker.touch(0, 4 * kCell, 1, false, Division::kRows);
  const HandedSides sides = tracker.touch(2 * kCell, 2 * kCell, 1, true, Division::kRows);
  CHECK(sides[0].reclaimed == Approx(kCell));
  CHECK(sides[1].reclaimed == 0);
  CHECK(slower_side({}, sides) == 0);
  // Fetching five bytes is quicker than reclaiming one, fetching seven is not.
  HandedSides reading{};
  reading[1].fetched = 5 * kCell;
  CHECK(slower_side(reading, sides) == 0);
  reading[1].fetched = 7 * kCell;
  CHECK(slower_side(reading, sides) == 1);
}

TEST_CASE("placed changes the last cache alone, and only where there is one") {
  const Machine m = two_cores(true);
  CHECK_FALSE(has_apart_caches(m, 2));
  const Machine apart = placed(m, Placement::kApart);
  CHECK(has_apart_caches(apart, 2));
  CHECK_FALSE(has_apart_caches(apart, 1));
  CHECK(placed(apart, Placement::kTogether) == m);
  CHECK(placed(apart, Placement::kUnknown) == apart);
  Machine gpu = m;
  gpu.kind = MachineKind::kGpu;
  CHECK(placed(gpu, Placement::kApart) == gpu);
  Machine bare = m;
  bare.levels.clear();
  CHECK(placed(bare, Placement::kApart) == bare);
}

TEST_CASE("residency: the same lines change hands whether the cores share a cache or not, and it says which; an activation's place is taken from who read it") {
  const Network network = small_network(small_shapes().front(), 2);
  Scenario s;
  s.length = 512;
  const Workload w = build(network, s);
  const MemoryPlan plan = plan_memory(w);
  const PerOp<Residency> one = residency(w, two_cores(true), 2, &plan, 0), two = residency(w, two_cores(false), 2, &plan, 0);
  double handed = 0;
  for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
    CHECK(one[i].placement == Placement::kTogether);
    CHECK(two[i].placement == Placement::kApart);
    CHECK((one[i].fetched_reads > 0) == (two[i].fetched_reads > 0));
    CHECK(two[i].fetched_writes + two[i].reclaimed <= 2 + 1e-9);  // all of them by one side, which counts twice
    CHECK(two[i].fetched_reads <= 2 + 1e-9);
    handed += two[i].fetched_reads + two[i].reclaimed;
  }
  CHECK(handed > 0);
}

TEST_CASE("a synthetic machine whose caches lie apart is recovered: seconds per reclaimed byte") {
  // t = 1 us + 1e-11 x bytes + 6e-11 x reclaimed bytes: norms of 64 to 4096 rows, of which none, a third or all were taken from the other core.
  Machine m = two_cores(false);
  std::vector<CalibrationPoint> points;
  for (const std::int64_t rows : {64, 128, 256, 512, 1024, 2048, 4096})
    for (const double share : {0.0, 1.0 / 3, 1.0}) {
      RmsNorm norm;
      norm.rows = {rows};
      norm.width = 1024;
      CalibrationPoint p{norm, work_of(norm, declared(OpSpec(norm))), 0, 0, 0, 0.01, {}};
      p.passing = all_from_memory(p.work, 4);
      p.passing.levels[3] = 0;
      p.passing.reclaimed = share * p.work.written;
      p.passing.apart = true;
      p.roofline = (p.work.read + p.work.written) / 1e11;
      p.measured = 1e-6 + 1e-11 * (p.work.read + p.work.written) + 6e-11 * p.passing.reclaimed;
      points.push_back(p);
    }
  fit_points(m, points, 2);
  REQUIRE(m.class_fits.size() == 1);
  CHECK(m.class_fits[0].name == "rms_norm");
  CHECK(m.class_fits[0].coefficients.at("handed") == Approx(6e-11 / kReclaiming).epsilon(0.01));
  CHECK(m.class_fits[0].coefficients.count("handed_near") == 0);  // of which it saw nothing
  CHECK(m.class_fits[0].coefficients.at("fixed") == Approx(1e-6).epsilon(0.05));
}

TEST_CASE("no byte from another core is taken to cost more than memory explains") {
  // Half of the written bytes are reclaimed, and for some other reason such an op takes 2.7e-10 s more per byte of them: 4.5e-11 per byte fetched. Copying goes at 1e11 bytes
  // per second, so 1.5e-11 is the most that is put down to them.
  Machine m = two_cores(false);
  std::vector<CalibrationPoint> points;
  for (const std::int64_t rows : {64, 128, 256, 512, 1024, 2048, 4096})
    for (const double share : {0.0, 0.5}) {
      RmsNorm norm;
      norm.rows = {rows};
      norm.width = 1024;
      CalibrationPoint p{norm, work_of(norm, declared(OpSpec(norm))), 0, 0, 0, 0.01, {}};
      p.passing = all_from_memory(p.work, 4);
      p.passing.reclaimed = share * p.work.written;
      p.passing.apart = true;
      p.roofline = (p.work.read + p.work.written) / 1e11;
      p.measured = 1e-6 + p.roofline + 2.7e-10 * p.passing.reclaimed;
      points.push_back(p);
    }
  fit_points(m, points, 2);
  REQUIRE(m.class_fits.size() == 1);
  CHECK(m.class_fits[0].coefficients.at("handed") == Approx(1.5e-11));
}

TEST_CASE("who divides how: products by the cheaper side, attention by sequences, else by heads") {
  Op op;
  Gemm gemm;
  gemm.rows = {512};
  gemm.in = 1024, gemm.out = 1024;
  // Two threads, 512 x 1024 laid out: by rows 256 x 1024 + 20 x 256, by columns 512 x 512 + 20 x 512; packed weights cost nothing: rows.
  op.spec = gemm;
  CHECK(division_of(op, false, 0, false) == Division::kRows);
  CHECK(division_of(op, true, 0, false) == Division::kRows);
  CHECK(division_of(op, true, 1, false) == Division::kAll);
  // Plain weights add 20 x 1024 by rows and 20 x 512 by columns: columns.
  CHECK(division_of(op, false, 0, true) == Division::kColumns);
  CHECK(division_of(op, true, 0, true) == Division::kAll);
  // 40 rows: 20 of them do not hide the reading of the weights (28 would): columns, packed or not.
  gemm.rows = {40};
  op.spec = gemm;
  CHECK(division_of(op, false, 0, false) == Division::kColumns);
  Attention attention;
  attention.rows = {1024};
  attention.heads = attention.kv_heads = 8;
  attention.qk_dim = attention.v_dim = 64;
  attention.keys = 1024;
  op.spec = attention;
  CHECK(division_of(op, true, 0, false) == Division::kColumns);
  attention.sequences = 2;
  op.spec = attention;
  CHECK(division_of(op, true, 0, false) == Division::kRows);
}
