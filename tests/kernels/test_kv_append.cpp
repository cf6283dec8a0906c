// Appending keys and values: every value lands in its slot and nothing else changes, for appends that stay in the caches and such that go past them.
#include <vector>

#include <catch2/catch.hpp>
#include "kernels/cpu/kv_cache.hpp"
#include "kernels/cpu/memory.hpp"

#if FATHOM_CPU

using namespace fathom;
using namespace fathom::cpu;

namespace {

// Exact in bf16 too: whole numbers below 256.
float value_of(std::int64_t row, std::int64_t column) { return static_cast<float>((row * 31 + column * 7) % 251); }

void put(DType type, std::byte* to, std::int64_t i, float value) {
  if (type == DType::kF32)
    reinterpret_cast<float*>(to)[i] = value;
  else
    reinterpret_cast<bf16*>(to)[i] = bf16(value);
}

// Two appends of `rows` each, dealt to the sequences in turn by `indices` in the second, to caches that begin with three rows per sequence.
void check(const KvLayout& layout, DType act, std::int64_t rows, int threads) {
  const std::int64_t width = layout.width(), offset = 3, stride = width + 5;
  INFO("heads " << layout.kv_heads << " k " << layout.k_dim << " v " << layout.v_dim << " rows " << rows << " from " << dtype_name(act) << " to " << dtype_name(layout.dtype)
                << " threads " << threads);
  const std::int64_t places = layout.sequences * layout.capacity;
  Buffer cache(places * width * dtype_bytes(layout.dtype), threads), source(rows * stride * dtype_bytes(act), threads);
  std::vector<float> expected(static_cast<std::size_t>(places * width), 255.0f);
  store_kv(layout, expected, cache.as<std::byte>());
  std::vector<std::int32_t> counts(static_cast<std::size_t>(layout.sequences), 3), slots(static_cast<std::size_t>(2 * rows)), indices(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows * stride; ++i) put(act, source.as<std::byte>(), i, value_of(i / stride, i % stride));
  KvAppendCall call;
  call.act = act;
  call.source = source.as<std::byte>();
  call.rows = rows;
  call.stride = stride;
  call.offset = offset;
  call.rows_per_sequence = (rows + layout.sequences - 1) / layout.sequences;
  call.cache = cache.as<std::byte>();
  call.counts = counts.data();
  call.slots = slots.data();
  std::vector<std::int32_t> taken(counts);
  const auto place = [&](std::int64_t sequence, std::int64_t row) {
    const std::int64_t slot = taken[static_cast<std::size_t>(sequence)]++;
    for (std::int64_t c = 0; c < width; ++c) expected[static_cast<std::size_t>((sequence * layout.capacity + slot) * width + c)] = value_of(row, offset + c);
  };
  append_kv(layout, call, threads);
  for (std::int64_t i = 0; i < rows; ++i) place(i / call.rows_per_sequence, i);
  call.indices = indices.data();
  for (std::int64_t i = 0; i < rows; ++i) indices[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % layout.sequences);
  append_kv(layout, call, threads);
  for (std::int64_t i = 0; i < rows; ++i) place(i % layout.sequences, i);
  CHECK(counts == taken);
  CHECK((load_kv(layout, cache.as<std::byte>()) == expected));  // in parentheses: too many to print
}

}  // namespace

TEST_CASE("an append puts every head's row into its list") {
  for (const int threads : {1, 2}) {
    for (const auto& [act, kept] : {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kBF16}, std::pair{DType::kF32, DType::kBF16}}) {
      check({kept, 2, 40, 3, 8, 4}, act, 17, threads);
      check({kept, 3, 40, 1, 5, 0}, act, 33, threads);
      check({kept, 1, 10, 2, 64, 64}, act, 1, threads);
    }
  }
}

// 4 MiB are 2048 rows of 512 floats: past the caches. Heads of 16 bytes and more may take that way, others may not, or begin between its steps.
TEST_CASE("an append larger than the caches keep does the same") {
  check({DType::kF32, 2, 2200, 4, 64, 64}, DType::kF32, 2100, 2);
  check({DType::kF32, 2, 2200, 8, 61, 3}, DType::kF32, 2098, 2);  // the last row of 244 bytes, 2100, begins at a multiple of 16
  check({DType::kBF16, 1, 4300, 8, 64, 64}, DType::kBF16, 2101, 1);
  check({DType::kBF16, 1, 4300, 2, 516, 8}, DType::kBF16, 2101, 1);
}

#endif
