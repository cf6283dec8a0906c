// Element types, and bfloat16 with round-to-nearest-even.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace fathom {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF64, kI32, kI8, kF8 };

// Bytes per element.
constexpr std::int64_t dtype_bytes(DType type) {
  switch (type) {
    case DType::kF64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kI8:
    case DType::kF8: return 1;
  }
  return 0;
}

// "f32", "bf16", ...
std::string_view dtype_name(DType type);
// Accepts the names of dtype_name and the long forms of config files ("float32", "bfloat16", "half"); throws an input Error.
DType parse_dtype(std::string_view text);

// 16-bit brain float. Storage type of the CPU and CUDA kernels and of the reference.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit constexpr bf16(float value) : bits(round(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

  static constexpr std::uint16_t round(float value) {
    const std::uint32_t raw = std::bit_cast<std::uint32_t>(value);
    if ((raw & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((raw >> 16) | 0x40u);  // NaN stays NaN, quiet
    return static_cast<std::uint16_t>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16);
  }
};

}  // namespace fathom
