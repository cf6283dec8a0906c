// The activity decoder on hand-made buffers. Every case is read twice: by our own walk, and by libcupti where it is installed.
#include <catch2/catch.hpp>

#include <algorithm>
#include <dlfcn.h>
#include <random>

#include "tests/cupti/buffers.hpp"

using namespace fathom::cuda;

namespace {

// cuptiActivityGetNextRecord works without a driver. Null where there is no CUPTI of CUDA 13 to open.
NextRecord library_walk() {
  static const NextRecord walk = []() -> NextRecord {
    void* library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
#ifdef FATHOM_CUPTI_LIBRARY
    if (!library) library = dlopen(FATHOM_CUPTI_LIBRARY, RTLD_NOW | RTLD_LOCAL);
#endif
    if (!library) return nullptr;
    auto next = reinterpret_cast<int (*)(std::uint8_t*, std::size_t, std::uint8_t**)>(dlsym(library, "cuptiActivityGetNextRecord"));
    return next ? NextRecord(next) : nullptr;
  }();
  return walk;
}

// Decodes with both walks and requires that they agree; the result is our own walk's.
Activity both(std::vector<ActivityBuffer> buffers, DecodeOptions options = {}) {
  options.next = walk_records;
  const Activity own = decode(buffers, options);
  if (const NextRecord next = library_walk()) {
    options.next = next;
    const Activity library = decode(buffers, options);
    CHECK(library.records == own.records);
    CHECK(library.kernels == own.kernels);
    CHECK(library.attributed == own.attributed);
    CHECK(library.without_time() == own.without_time());
    CHECK(library.cut_tails == own.cut_tails);
    CHECK(library.broken_buffers == own.broken_buffers);
    CHECK(library.passes.size() == own.passes.size());
  }
  return own;
}

constexpr std::uint64_t kT = 1'700'000'000'000'000'000;  // CLOCK_REALTIME in ns, as CUPTI stamps on Linux

}  // namespace

TEST_CASE("kernels are attributed by op and pass") {
  BufferMaker m;
  m.launch(1, 10, 1, kT).launch(2, 11, 1, kT + 1000).launch(3, 10, 2, kT + 9000);
  m.kernel(1, kT + 2000, kT + 5000, "_ZN6fathom4gemmEv").kernel(1, kT + 5000, kT + 6000).kernel(2, kT + 7000, kT + 7500).kernel(3, kT + 10000, kT + 10100);
  const Activity a = both({m.buffer()});
  CHECK(a.kernels == 4);
  CHECK(a.attributed == 4);
  CHECK(a.complete());
  CHECK(a.clean());
  CHECK(trouble(a).empty());
  const PassActivity& first = a.passes.at(1);
  CHECK(first.ops.at(10).kernels == 2);
  CHECK(first.ops.at(10).kernel_seconds == Approx(4000e-9));
  CHECK(first.ops.at(11).kernel_seconds == Approx(500e-9));
  CHECK(first.busy_seconds == Approx(4500e-9));   // [2000, 6000] and [7000, 7500]
  CHECK(first.span_seconds == Approx(5500e-9));
  CHECK(a.passes.at(2).ops.at(10).kernel_seconds == Approx(100e-9));
  REQUIRE(!a.shapes.empty());
  CHECK(a.shapes[0].name == "fathom::gemm()");
  CHECK(a.shapes[0].registers == 128);
  CHECK(a.shapes[0].shared_bytes == 46080);
  CHECK(a.shapes[0].grid[1] == 8);
}

TEST_CASE("overlapping kernels are busy once") {
  BufferMaker m;
  m.launch(1, 1, 0, kT).kernel(1, kT + 100, kT + 400).kernel(1, kT + 200, kT + 300).kernel(1, kT + 350, kT + 500);
  const Activity a = both({m.buffer()});
  CHECK(a.passes.at(0).sum_seconds == Approx(550e-9));   // 300 + 100 + 150
  CHECK(a.passes.at(0).busy_seconds == Approx(400e-9));
}

TEST_CASE("buffers and records may come in any order") {
  // 24 ops, each external ids + call + kernel + copy, one record kind per buffer piece, shuffled.
  std::vector<BufferMaker> makers;
  for (std::uint32_t i = 0; i < 24; ++i) {
    BufferMaker kernels, calls, ids;
    kernels.copy(1 + i, kT + 10000 * i + 600, kT + 10000 * i + 700, 64).kernel(1 + i, kT + 10000 * i + 1000, kT + 10000 * i + 1000 + i + 1);
    calls.api(1 + i, kT + 10000 * i, kT + 10000 * i + 400);
    ids.external(1 + i, kExternalOp, i).external(1 + i, kExternalPass, i % 3);
    makers.insert(makers.end(), {kernels, calls, ids});
  }
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::shuffle(makers.begin(), makers.end(), std::mt19937(seed));
    std::vector<ActivityBuffer> buffers;
    for (BufferMaker& each : makers) buffers.push_back(each.buffer());
    const Activity a = both(buffers);
    REQUIRE(a.attributed == 24);
    REQUIRE(a.passes.size() == 3);
    for (std::uint64_t i = 0; i < 24; ++i) {
      const OpActivity& op = a.passes.at(i % 3).ops.at(i);
      REQUIRE(op.kernel_seconds == Approx(1e-9 * static_cast<double>(i + 1)));
      REQUIRE(op.copies == 1);
      REQUIRE(op.copy_bytes == 64);
    }
  }
}

TEST_CASE("no stamp, reversed stamps and starts before the launch are counted and excluded") {
  BufferMaker m;
  m.launch(1, 5, 0, kT).kernel(1, 0, 0).kernel(1, kT + 5000, 0).kernel(1, 0, kT + 5000).kernel(1, 0x8000000000000000u, kT);
  m.kernel(1, kT + 3000, kT + 2000);
  m.kernel(1, kT - 1001, kT + 10);   // more than 1 us before its call
  m.kernel(1, kT - 1000, kT);        // interpolation skew: kept
  m.kernel(1, kT + 100, kT + 100);   // no length, but both stamps: kept
  const Activity a = both({m.buffer()});
  CHECK(a.kernels == 8);
  CHECK(a.no_stamp == 4);
  CHECK(a.reversed == 1);
  CHECK(a.before_launch == 1);
  const OpActivity& op = a.passes.at(0).ops.at(5);
  CHECK(op.kernels == 8);
  CHECK(op.without_time == 6);
  CHECK(op.kernel_seconds == Approx(1000e-9));
  CHECK_FALSE(a.complete());
  CHECK(trouble(a).at(0) == "4 of 8 kernels, copies and fills without time; use fewer steps");
}

TEST_CASE("the earliest call of a correlation id is its launch") {
  // cuBLASLt's runtime call holds a driver call: the runtime's began first.
  BufferMaker m;
  m.external(1, kExternalOp, 1).api(1, kT + 2000, kT + 2500, false).api(1, kT, kT + 3000, true).kernel(1, kT + 500, kT + 600);
  CHECK(both({m.buffer()}).before_launch == 0);
}

TEST_CASE("a graph's kernels share a correlation id and are joined by node") {
  const std::uint64_t graph = std::uint64_t{9} << 32;
  BufferMaker m;
  m.launch(7, 99, 3, kT);   // the op id that names the launch names no op of the graph
  m.kernel(7, kT + 1000, kT + 2000, "a", graph | 1).kernel(7, kT + 2000, kT + 4000, "b", graph | 2).kernel(7, kT + 4000, kT + 4500, "a", graph | 3);
  m.kernel(7, kT + 5000, kT + 5100, "lost", graph | 4);
  m.copy(7, kT + 6000, kT + 6100, 5'000'000'000u, graph | 2);
  DecodeOptions options;
  options.node_ops = {{graph | 1, 20}, {graph | 2, 21}, {graph | 3, 20}};
  const Activity a = both({m.buffer()}, options);
  CHECK(a.by_graph_node == 3);
  CHECK(a.attributed == 3);
  CHECK(a.unattributed.kernels == 1);
  const PassActivity& pass = a.passes.at(3);
  CHECK(pass.ops.size() == 2);
  CHECK(pass.ops.at(20).kernels == 2);
  CHECK(pass.ops.at(20).kernel_seconds == Approx(1500e-9));
  CHECK(pass.ops.at(21).kernel_seconds == Approx(2000e-9));
  CHECK(pass.ops.at(21).copy_bytes == 5'000'000'000u);
  CHECK(trouble(a).at(0) == "1 of 4 kernels belong to no op");
}

TEST_CASE("byte counts above 2^32 survive") {
  BufferMaker m;
  m.launch(1, 1, 0, kT).copy(1, kT + 1000, kT + 2000, (std::uint64_t{1} << 40) + 7).fill(1, kT + 2000, kT + 3000, std::uint64_t{5} << 32);
  const OpActivity op = both({m.buffer()}).passes.at(0).ops.at(1);
  CHECK(op.copies == 2);
  CHECK(op.copy_bytes == (std::uint64_t{1} << 40) + 7 + (std::uint64_t{5} << 32));
}

TEST_CASE("a cut tail is noticed although the walk ends cleanly") {
  for (const std::size_t bytes : {1u, 100u, 215u}) {
    BufferMaker m;
    m.launch(1, 1, 0, kT).kernel(1, kT + 1000, kT + 2000).kernel(1, kT + 3000, kT + 4000);
    m.cut(bytes);
    const Activity a = both({m.buffer()});
    CHECK(a.kernels == 1);
    CHECK(a.broken_buffers == 0);
    CHECK(a.cut_tails == 1);
    CHECK_FALSE(a.complete());
  }
  BufferMaker only;   // nothing but a piece of one record
  only.kernel(1, kT, kT + 1);
  only.cut(100);
  CHECK(both({only.buffer()}).cut_tails == 1);
}

TEST_CASE("with structs of another library the tail is judged by the distance between records") {
  // A walk over kernels of 232 bytes, as a newer library would write them.
  constexpr std::size_t kNewer = 232;
  std::vector<std::uint64_t> data(3 * kNewer / 8, 0);
  auto* bytes = reinterpret_cast<std::uint8_t*>(data.data());
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint32_t what = kind::kKernel;
    const std::uint64_t start = kT + 100 * i, end = start + 10;
    std::memcpy(bytes + i * kNewer, &what, 4);
    std::memcpy(bytes + i * kNewer + kernel_record::kStart, &start, 8);
    std::memcpy(bytes + i * kNewer + kernel_record::kEnd, &end, 8);
  }
  DecodeOptions options;
  options.exact_sizes = false;
  options.next = [](std::uint8_t* buffer, std::size_t valid, std::uint8_t** record) {
    std::uint8_t* next = *record ? *record + kNewer : buffer;
    if (next + kNewer > buffer + valid) return kEndOfBuffer;
    *record = next;
    return kRecordFound;
  };
  std::vector<ActivityBuffer> whole = {{bytes, 3 * kNewer}}, cut = {{bytes, 3 * kNewer - 8}};
  CHECK(decode(whole, options).cut_tails == 0);
  CHECK(decode(whole, options).kernels == 3);
  CHECK(decode(cut, options).cut_tails == 1);
  CHECK(decode(cut, options).kernels == 2);
}

TEST_CASE("a record of an unknown kind breaks its buffer and no other") {
  BufferMaker bad, good;
  bad.launch(1, 1, 0, kT).kernel(1, kT + 1000, kT + 2000).unknown(4000).kernel(1, kT + 3000, kT + 4000);
  good.launch(2, 2, 0, kT).kernel(2, kT + 1000, kT + 3000);
  const Activity a = both({bad.buffer(), good.buffer()});
  CHECK(a.broken_buffers == 1);
  CHECK(a.passes.at(0).ops.at(1).kernels == 1);
  CHECK(a.passes.at(0).ops.at(2).kernels == 1);
  CHECK_FALSE(a.complete());
}

TEST_CASE("two streams, nested and strange ids, and calls that carry none") {
  BufferMaker m;
  // Two kernels of different ops overlap on two streams: each keeps its time, the device is busy once.
  m.launch(1, 10, 1, kT).launch(2, 11, 1, kT + 100).kernel(1, kT + 1000, kT + 5000).kernel(2, kT + 2000, kT + 4000);
  // Ids of other tools' stacks (0 invalid, 1 unknown, 2 OpenACC, 5 CUSTOM2) say nothing, whatever their place.
  m.external(3, 5, 77).external(3, 2, 78).external(3, kExternalOp, 12).external(3, 1, 79).external(3, kExternalPass, 1).external(3, 0, 80).api(3, kT + 6000, kT + 6100);
  m.kernel(3, kT + 7000, kT + 7500);
  m.external(4, 5, 10).api(4, kT + 8000, kT + 8100).kernel(4, kT + 9000, kT + 9500);   // no op of ours
  m.kernel(5, kT + 9600, kT + 9700).kernel(0, kT + 9800, kT + 9900);                  // no call at all; correlation 0
  m.external(6, kExternalOp, ~std::uint64_t{0} - 7).external(6, kExternalPass, std::uint64_t{1} << 63).api(6, kT + 10000, kT + 10100).kernel(6, kT + 11000, kT + 11001);
  const Activity a = both({m.buffer()});
  CHECK(a.kernels == 7);
  CHECK(a.attributed == 4);
  CHECK(a.unattributed.kernels == 3);
  const PassActivity& pass = a.passes.at(1);
  CHECK(pass.ops.size() == 3);
  CHECK(pass.ops.at(10).kernel_seconds == Approx(4e-6));
  CHECK(pass.ops.at(11).kernel_seconds == Approx(2e-6));
  CHECK(pass.ops.at(12).kernel_seconds == Approx(0.5e-6));
  CHECK(pass.sum_seconds == Approx(6.5e-6));
  CHECK(pass.busy_seconds == Approx(4.5e-6));
  CHECK(a.passes.at(std::uint64_t{1} << 63).ops.at(~std::uint64_t{0} - 7).kernels == 1);
}

TEST_CASE("garbage in sizes and stamps never becomes a plausible figure") {
  BufferMaker m;
  m.launch(1, 1, 0, kT).copy(1, kT + 1000, kT + 2000, ~std::uint64_t{0}).copy(1, kT + 2000, kT + 2500, 100).fill(1, ~std::uint64_t{0}, ~std::uint64_t{0}, 8);
  m.kernel(1, kT + 3000, ~std::uint64_t{0}).kernel(1, ~std::uint64_t{0}, kT + 3000);
  const Activity a = both({m.buffer()});
  const OpActivity& op = a.passes.at(0).ops.at(1);
  CHECK(op.copy_bytes == ~std::uint64_t{0});   // not 99 + 8
  CHECK(op.copies == 3);
  CHECK(a.copies == 3);
  CHECK(op.copy_seconds == Approx(1.5e-6));
  CHECK(op.kernel_seconds == 0);
  CHECK(op.without_time == 3);
  CHECK(trouble(a).at(0) == "3 of 5 kernels, copies and fills without time; use fewer steps");
}

TEST_CASE("empty and null buffers hold nothing") {
  CHECK(both({}).records == 0);
  CHECK(both({{nullptr, 0}}).records == 0);
  CHECK(both({{nullptr, 0}}).complete());
  CHECK(both({{nullptr, 64}}).broken_buffers == 1);
}

TEST_CASE("overheads are summed by kind, and two of them spoil a sample") {
  BufferMaker m;
  m.overhead(overhead::kBufferFlush, kT, kT + 1000).overhead(overhead::kBufferFlush, kT + 5000, kT + 6500);
  CHECK(both({m.buffer()}).clean());
  CHECK(both({m.buffer()}).overheads.at(overhead::kBufferFlush).count == 2);
  CHECK(both({m.buffer()}).overheads.at(overhead::kBufferFlush).seconds == Approx(2500e-9));
  for (const std::uint32_t each : {overhead::kLazyFunctionLoading, overhead::kCommandBufferFull}) {
    BufferMaker spoiled;
    spoiled.overhead(each, kT, kT + 1000);
    const Activity a = both({spoiled.buffer()});
    CHECK_FALSE(a.clean());
    CHECK(trouble(a).at(0) == std::string(overhead_name(each)) + " happened 1 times: not a clean sample");
  }
}

TEST_CASE("kernels without an op, failed calls and dropped records are said") {
  BufferMaker m;
  m.kernel(1, kT, kT + 10).api(2, kT, kT + 10, true, 700);
  Activity a = both({m.buffer()});
  CHECK(a.unattributed.kernels == 1);
  CHECK(a.attributed == 0);
  CHECK(a.failed_calls == 1);
  CHECK(a.passes.empty());
  a.dropped = 12;
  CHECK_FALSE(a.complete());
  const std::vector<std::string> lines = trouble(a);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "12 activity records were dropped: the profile is incomplete");
  CHECK(lines[1] == "1 CUDA calls returned an error while tracing");
}

TEST_CASE("random bytes never lead outside the buffer") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint64_t> data(1 + random() % 64);
    for (std::uint64_t& word : data) word = random() % 4 == 0 ? (random() % 50) : random();
    auto* bytes = reinterpret_cast<std::uint8_t*>(data.data());
    std::uint8_t* record = nullptr;
    std::size_t steps = 0;
    while (walk_records(bytes, data.size() * 8, &record) == kRecordFound) {
      REQUIRE(record + record_size(field<std::uint32_t>(record, 0)) <= bytes + data.size() * 8);
      REQUIRE(++steps <= data.size());
    }
  }
}
