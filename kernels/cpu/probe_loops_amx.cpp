#include "kernels/cpu/probe_loops.hpp"

#if defined(__AMX_BF16__)

#include <immintrin.h>

namespace fathom::cpu {
namespace {

// All eight tiles 16 rows of 64 bytes. Loaded at every entry (a library may have left another configuration) and
// released at every exit (tiles in use make context switches dearer).
class TileConfig {
 public:
  TileConfig() {
    alignas(64) struct {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof(config) == 64);
    // g++'s intrinsic claims to read the first eight bytes only: without this the rest is never stored.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~TileConfig() { _tile_release(); }
};

}  // namespace

void amx_register_loop(std::int64_t steps) {
  const TileConfig config;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
}

void amx_tile_loop(const void* tiles, std::int64_t bytes, std::int64_t passes) {
  const TileConfig config;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const char* const begin = static_cast<const char*>(tiles);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (const char* at = begin; at < begin + bytes; at += 4096) {
      _tile_loadd(4, at, 64);
      _tile_loadd(6, at + 1024, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, at + 2048, 64);
      _tile_dpbf16ps(1, 5, 6);
      _tile_loadd(7, at + 3072, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
}

}  // namespace fathom::cpu

#endif
