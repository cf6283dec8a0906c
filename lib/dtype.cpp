#include "lib/dtype.hpp"

#include <fmt/format.h>

#include <array>

#include "lib/error.hpp"

namespace fathom {
namespace {

struct Name {
  std::string_view text;
  DType type;
};

// The first entry of each type is its canonical name.
constexpr std::array kNames = {
    Name{"f32", DType::kF32},      Name{"bf16", DType::kBF16},   Name{"f16", DType::kF16},
    Name{"f64", DType::kF64},      Name{"i32", DType::kI32},     Name{"i8", DType::kI8},
    Name{"f8", DType::kF8},        Name{"float32", DType::kF32}, Name{"bfloat16", DType::kBF16},
    Name{"float16", DType::kF16},  Name{"half", DType::kF16},    Name{"fp32", DType::kF32},
    Name{"fp16", DType::kF16},     Name{"float64", DType::kF64}, Name{"int8", DType::kI8},
    Name{"fp8", DType::kF8},
};

}  // namespace

std::string_view dtype_name(DType type) {
  for (const Name& name : kNames)
    if (name.type == type) return name.text;
  return "?";
}

DType parse_dtype(std::string_view text) {
  for (const Name& name : kNames)
    if (name.text == text) return name.type;
  throw_input(fmt::format("unknown data type '{}'", text), {}, name_hint(text, {"f32", "bf16", "f16", "f64", "i8", "f8"}));
}

}  // namespace fathom
