// Buffers (alignment, content, refusal) and what is known about the CPU.
#include <cstdint>
#include <string>
#include <utility>

#include <catch2/catch.hpp>
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/memory.hpp"
#include "lib/backend.hpp"
#include "lib/error.hpp"

#if FATHOM_CPU

using namespace fathom;
using namespace fathom::cpu;

TEST_CASE("a buffer is aligned to huge pages, zero, and writable to its last byte") {
  for (const std::int64_t bytes : {std::int64_t{1}, kHugePageBytes, 3 * kHugePageBytes + 5}) {
    for (const int threads : {1, 2, 7}) {
      Buffer buffer(bytes, threads);
      REQUIRE(buffer.data() != nullptr);
      CHECK(buffer.bytes() == bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % kHugePageBytes == 0);
      CHECK(buffer.as<char>()[0] == 0);
      CHECK(buffer.as<char>()[bytes - 1] == 0);
      buffer.as<char>(bytes - 1)[0] = 1;
      CHECK(buffer.as<char>()[bytes - 1] == 1);
    }
  }
}

TEST_CASE("reserving ends when it is told to, and asks once per huge page") {
  int asked = 0;
  CHECK_THROWS_AS(Buffer(8 * kHugePageBytes, 1, [&] { return ++asked == 3; }), Stopped);
  CHECK(asked == 3);
  asked = 0;
  Buffer whole(8 * kHugePageBytes, 1, [&] { return ++asked > 100; });
  CHECK(asked == 8);
  CHECK(whole.bytes() == 8 * kHugePageBytes);
}

TEST_CASE("zero bytes and moved-from buffers own nothing") {
  CHECK(Buffer(0).data() == nullptr);
  Buffer a(100);
  void* const at = a.data();
  Buffer b = std::move(a);
  CHECK(a.data() == nullptr);
  CHECK(a.bytes() == 0);
  CHECK(b.data() == at);
  Buffer c(5);
  c = std::move(b);
  CHECK(c.data() == at);
  CHECK(c.bytes() == 100);
}

TEST_CASE("what the system cannot give is an environment error with the number of bytes") {
  const std::int64_t too_much = std::int64_t{1} << 50;
  try {
    Buffer buffer(too_much);
    FAIL("a petabyte was granted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::kEnvironment);
    CHECK(e.message().find(std::to_string(too_much)) != std::string::npos);
  }
  CHECK_THROWS_AS(Buffer(INT64_MAX), Error);
}

TEST_CASE("the CPU description is consistent") {
  const CpuInfo& info = cpu_info();
  CHECK(info.cores >= 1);
  CHECK(info.cores <= static_cast<int>(info.cpus.size()));
  CHECK(isa() <= info.isa);
  const auto has = [&](const std::string& flag) {
    return (" " + info.flags + " ").find(" " + flag + " ") != std::string::npos;
  };
  if (info.isa >= Isa::kAvx2) CHECK((has("avx2") && has("fma")));
  if (info.isa >= Isa::kAvx512) CHECK((has("avx512f") && has("avx512bw")));
  if (info.isa == Isa::kAmx) CHECK((has("amx_bf16") && info.avx512_bf16));
}

#endif
