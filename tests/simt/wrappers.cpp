// The larger wrappers of kernels/cuda/simt_host.hpp: tensor products, matrix loads, atomics. Layouts: kernels/cuda/simt_device.hpp.
#include <algorithm>

#include "kernels/cuda/simt.hpp"

namespace fathom::simt {
bool vote(bool p, const Site& at);
}

namespace fathom::dev {

bool block_any(bool p, const simt::Site& at) { return simt::vote(p, at); }

std::int32_t atomic_add(std::int32_t* p, std::int32_t v, const simt::Site& at) {
  simt::note_atomic(p, sizeof *p, at);
  const std::int32_t before = *p;
  *p += v;
  return before;
}
void atomic_max(std::int32_t* p, std::int32_t v, const simt::Site& at) {
  simt::note_atomic(p, sizeof *p, at);
  *p = std::max(*p, v);
}

void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const simt::Site& at) {
  struct Operands {
    u32 a[4], b[2];
  } mine;
  std::memcpy(mine.a, a, sizeof mine.a);
  std::memcpy(mine.b, b, sizeof mine.b);
  const simt::Slot* slots = simt::exchange(&mine, sizeof mine, at);
  const int lane = tid() & 31, g = lane >> 2, t = lane & 3;
  if (lane == 0) ++simt::statistics().mma;
  const auto half = [](u32 pair, int e) { return bits_float(pair >> (16 * e) << 16); };
  float rows[2][16], cols[2][16];
  for (int q = 0; q < 4; ++q) {
    const auto from = simt::peek<Operands>(slots, 4 * g + q);
    for (int h = 0; h < 2; ++h)
      for (int e = 0; e < 2; ++e)
        for (int r = 0; r < 2; ++r) rows[r][8 * h + 2 * q + e] = half(from.a[2 * h + r], e);
    for (int c = 0; c < 2; ++c) {
      const auto other = simt::peek<Operands>(slots, 4 * (2 * t + c) + q);
      for (int h = 0; h < 2; ++h)
        for (int e = 0; e < 2; ++e) cols[c][8 * h + 2 * q + e] = half(other.b[h], e);
    }
  }
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c)
      for (int k = 0; k < 16; ++k) d[2 * r + c] += rows[r][k] * cols[c][k];
}

namespace {

void load_matrices(u32 (&r)[4], const void* row, bool transposed, const simt::Site& at) {
  simt::check_aligned(row, at);
  simt::note(row, 16, false, at);
  struct Row {
    const void* at;
    unsigned char bytes[16];
  } mine;
  mine.at = row;
  std::memcpy(mine.bytes, row, 16);
  const simt::Slot* slots = simt::exchange(&mine, sizeof mine, at);
  const int lane = tid() & 31;
  if (lane == 0) simt::note_matrix_rows(slots, 32, at);
  for (int i = 0; i < 4; ++i) {
    std::uint16_t e[2];
    for (int h = 0; h < 2; ++h) {
      const int line = transposed ? 2 * (lane % 4) + h : lane / 4, column = transposed ? lane / 4 : 2 * (lane % 4) + h;
      std::memcpy(&e[h], slots[8 * i + line].bytes + offsetof(Row, bytes) + 2 * column, 2);
    }
    r[i] = static_cast<u32>(e[0]) | static_cast<u32>(e[1]) << 16;
  }
}

}  // namespace

void ldmatrix_x4(u32 (&r)[4], const void* row, const simt::Site& at) { load_matrices(r, row, false, at); }
void ldmatrix_x4_trans(u32 (&r)[4], const void* row, const simt::Site& at) { load_matrices(r, row, true, at); }

}  // namespace fathom::dev
