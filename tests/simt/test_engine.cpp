// The emulator finds what it is there to find: each planted defect is shown, next to the same kernel without it.
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using simt::DeviceBuffer;
using simt::failure_of;

struct PlantArgs {
  const float* in = nullptr;
  float* out = nullptr;
  int defect = 0;
};

// Reverses 64 values through shared memory. Defects: 1 no barrier before reading, 2 half of the threads skip the barrier by leaving,
// 3 two different barriers, 4 a shared index past the end, 5 a global write past the end, 6 a misaligned 16-byte load,
// 7 a copy that nobody waits for, 8 a warp collective in divergent flow, 9 no barrier before the memory is used again,
// 10 a copy that may land while others still read what it overwrites, though it is waited for only afterwards.
FATHOM_KERNEL(64) reverse_kernel(PlantArgs a) {
  float* shared = dev::smem<float>();
  const int t = dev::tid();
  if (a.defect == 2 && t >= 32) return;
  shared[t + (a.defect == 4 ? 1 : 0)] = a.in[t];
  if (a.defect == 3 && t >= 32) {
    dev::block_sync();
  } else if (a.defect != 1) {
    dev::block_sync();
  }
  if (a.defect == 6) (void)dev::load16(a.in + 1);
  if (a.defect == 7) dev::cp_async16(shared + 64 + 4 * t, a.in, true), dev::cp_commit();
  if (a.defect == 10 && t < 16) dev::cp_async16(shared + 4 * t, a.in, true), dev::cp_commit();
  float v = a.defect == 4 ? 0.0f : shared[63 - t];
  if (a.defect == 8 && t % 2 == 0) v += dev::shfl_xor(v, 2);
  if (a.defect != 9) dev::block_sync();
  if (a.defect == 10) {
    dev::cp_wait<0>();
    dev::block_sync();
  }
  shared[t] = v;
  dev::block_sync();
  a.out[t + (a.defect == 5 ? 1 : 0)] = shared[t];
}

std::string run_plant(int defect, simt::Order order = simt::Order::kForward) {
  DeviceBuffer<float> in(std::vector<float>(64, 1.0f)), out(64);
  const cuda::LaunchShape shape{1, 1, 1, 64, defect == 7 ? 256 + 1024 : 256};
  return failure_of([&] { simt::launch(reverse_kernel, shape, PlantArgs{in.data(), out.data(), defect}, nullptr); }, order);
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Without instrumentation (under the address sanitizer) only collectives and wrappers are seen.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kInstrumented = false;
#else
constexpr bool kInstrumented = true;
#endif

TEST_CASE("a correct kernel passes in every order") {
  for (const auto& order : simt::kOrders) CHECK(run_plant(0, order.order) == "");
}

TEST_CASE("all defects that need no instrumentation are found in every order") {
  for (const auto& order : simt::kOrders)
    for (const int defect : {2, 3, 6, 7, 8}) CHECK(run_plant(defect, order.order) != "");
}

TEST_CASE("a missing barrier is a race, in the naive order too") {
  if (!kInstrumented) return;
  for (const auto& order : simt::kOrders) {
    CHECK(has(run_plant(1, order.order), "nobody wrote"));  // the first reader comes before the writer
    CHECK(has(run_plant(9, order.order), "race: "));
    CHECK(has(run_plant(10, order.order), "race: "));
  }
}

TEST_CASE("threads that leave before a barrier, divergent barriers and divergent collectives are found") {
  CHECK(has(run_plant(2), "32 of 64 threads"));
  CHECK(has(run_plant(3), "divergent barrier"));
  CHECK(has(run_plant(8), "collective"));
}

TEST_CASE("accesses out of bounds are found, and in whose memory") {
  if (!kInstrumented) return;
  CHECK(has(run_plant(4), "write out of bounds: byte 256 of shared memory (256 bytes)"));
  CHECK(has(run_plant(5), "write out of bounds: byte 256 of a buffer of 256 bytes"));
}

TEST_CASE("misaligned 16-byte accesses and copies without a wait are found") {
  CHECK(has(run_plant(6), "multiple of 16"));
  CHECK(has(run_plant(7), "nobody waited"));
}

// Each block adds its number to one place: not ordered by anything.
FATHOM_KERNEL(32) blocks_kernel(PlantArgs a) {
  if (dev::tid() == 0) a.out[0] = a.out[0] + static_cast<float>(dev::bid());
}
// Shared memory that nobody wrote, and a warp exchange with (defect 0) and without (1 the first, 2 the second) its warp_sync.
FATHOM_KERNEL(32) uninitialised_kernel(PlantArgs a) {
  if (dev::tid() == 0) a.out[0] = dev::smem<float>()[3];
}
FATHOM_KERNEL(32) warp_kernel(PlantArgs a) {
  float* shared = dev::smem<float>();
  shared[dev::tid()] = a.in[dev::tid()];
  if (a.defect != 1) dev::warp_sync();
  const float v = shared[31 - dev::tid()];
  if (a.defect != 2) dev::warp_sync();
  shared[dev::tid()] = v;
}

TEST_CASE("races between blocks, uninitialised shared memory and races inside a warp are found") {
  if (!kInstrumented) return;
  DeviceBuffer<float> in(std::vector<float>(32, 1.0f)), out(std::vector<float>(1, 0.0f));
  const auto run = [&](auto* kernel, std::int64_t blocks, int defect) {
    return failure_of([&] { simt::launch(kernel, cuda::LaunchShape{blocks, 1, 1, 32, 128}, PlantArgs{in.data(), out.data(), defect}, nullptr); });
  };
  CHECK(run(blocks_kernel, 1, 0) == "");
  CHECK(has(run(blocks_kernel, 2, 0), "race between blocks"));
  CHECK(has(run(uninitialised_kernel, 1, 0), "nobody wrote"));
  CHECK(run(warp_kernel, 1, 0) == "");
  CHECK(has(run(warp_kernel, 1, 1), "nobody wrote"));
  CHECK(has(run(warp_kernel, 1, 2), "race"));
}

struct TensorArgs {
  const bf16* a = nullptr;
  const bf16* b = nullptr;
  float* d = nullptr;
};

// D[16, 8] = A[16, 16] B[16, 8] with fragments loaded by ldmatrix, against plain sums: the layouts are those of the PTX ISA, so
// that a wrong but consistent permutation of k in both wrappers would show in the direct fragments below.
FATHOM_KERNEL(32) tensor_kernel(TensorArgs p) {
  bf16* a = dev::smem<bf16>();
  bf16* b = a + 256;
  for (int i = dev::tid(); i < 256; i += 32) a[i] = p.a[i];
  for (int i = dev::tid(); i < 128; i += 32) b[i] = p.b[i];
  dev::block_sync();
  const int l = dev::lane();
  dev::u32 fa[4], fb[4];
  dev::ldmatrix_x4(fa, a + (l % 16) * 16 + l / 16 * 8);
  dev::ldmatrix_x4_trans(fb, b + (l % 16) * 8);
  float d[4] = {};
  dev::mma_16816(d, fa, {fb[0], fb[1]});
  const int g = l / 4, t = l % 4;
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c) p.d[(g + 8 * r) * 8 + 2 * t + c] = d[2 * r + c];
  for (int r = 0; r < 2; ++r)
    for (int h = 0; h < 2; ++h) p.d[128 + (2 * h + r) * 32 + l] = dev::bf16_low(fa[2 * h + r]) - static_cast<float>(p.a[(g + 8 * r) * 16 + 8 * h + 2 * t]);
}

TEST_CASE("tensor products and matrix loads have the layouts of the PTX ISA") {
  const auto a = simt::values<bf16>(1, 256), b = simt::values<bf16>(2, 128);
  DeviceBuffer<bf16> da(a), db(b);
  DeviceBuffer<float> d(256);
  simt::launch(tensor_kernel, cuda::LaunchShape{1, 1, 1, 32, 768}, TensorArgs{da.data(), db.data(), d.data()}, nullptr);
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 8; ++c) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += static_cast<float>(a[static_cast<size_t>(r * 16 + k)]) * static_cast<float>(b[static_cast<size_t>(k * 8 + c)]);
      CHECK(d[static_cast<size_t>(r * 8 + c)] == Approx(sum).margin(1e-6));
    }
  }
  for (size_t i = 128; i < 256; ++i) CHECK(d[i] == 0.0f);
}

struct OrderArgs {
  int* order = nullptr;
};
FATHOM_KERNEL(64) order_kernel(OrderArgs a) { a.order[dev::atomic_add(a.order + 64, 1)] = dev::tid(); }

TEST_CASE("orders differ, and a seed is the same order again") {
  const auto order = [](simt::Order o, std::uint64_t seed) {
    DeviceBuffer<int> list(std::vector<int>(65, 0));
    REQUIRE(failure_of([&] { simt::launch(order_kernel, cuda::LaunchShape{1, 1, 1, 64, 0}, OrderArgs{list.data()}, nullptr); }, o, seed) == "");
    return list.host();
  };
  const auto forward = order(simt::Order::kForward, 1);
  CHECK(forward[0] == 0);
  CHECK(order(simt::Order::kReverse, 1)[0] == 63);
  CHECK(order(simt::Order::kShuffled, 1) == order(simt::Order::kShuffled, 1));
  CHECK(order(simt::Order::kShuffled, 1) != order(simt::Order::kShuffled, 2));
  CHECK(order(simt::Order::kShuffled, 1) != forward);
}

}  // namespace
}  // namespace fathom
