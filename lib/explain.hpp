// Why a number is what it is: the formula of every op kind, with symbols and with an op's own numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/cost.hpp"
#include "lib/op.hpp"

namespace fathom {

struct KindExplanation {
  std::string_view kind;
  std::string_view what;      // one sentence
  std::string_view flops;     // formula; "0" where the op has no matrix arithmetic
  std::string_view elements;
  std::string_view bytes;     // read; written
  std::string_view source;    // section of the counting rules, paper
};

// One entry per op kind, in variant order.
const std::vector<KindExplanation>& kind_explanations();
// Throws Error(kInput) with the nearest name.
const KindExplanation& explain_kind(std::string_view kind);

// "2 x 2048 x 768 x 2304 = 7,247,757,312" for a GEMM: the op's FLOPs with its own numbers; "0" where it has none.
std::string flops_with_numbers(const OpSpec& spec);
// Field names and values of the op, in declaration order.
std::vector<std::pair<std::string, std::string>> fields_of(const OpSpec& spec);

}  // namespace fathom
