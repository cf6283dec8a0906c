// What one op costs: exact FLOPs, element counts and compulsory bytes, by the rules in lib/cost_rules.cpp.
//
// FLOPs are matrix-type multiply-adds only (1 MAC = 2 FLOP); norms, softmax and the like are element counts in their own
// columns. Bytes are cold compulsory traffic: each distinct input byte read once, each output byte written once.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lib/op.hpp"
#include "lib/units.hpp"

namespace fathom {

// Columns of the forward pass; the *_backward work of vector ops goes to the same column (elements touched once per pass).
enum class ElementKind : std::uint8_t {
  kNorm, kSoftmax, kActivation, kGateProduct, kBias, kResidual, kRope, kRouterProbability, kSelect, kGather, kGate, kScatter,
  kEmbedding, kKvAppend, kCrossEntropy, kOptimizer,
};
inline constexpr int kElementKinds = 16;
std::string_view element_name(ElementKind kind);

struct Cost {
  Flops flops;            // model FLOPs of the op
  Flops flops_recompute;  // executed on top by a fused kernel (attention backward repeats QK^T); never in flops
  std::array<Elements, kElementKinds> elements{};
  Bytes read;
  Bytes written;

  Elements& operator[](ElementKind kind) { return elements[static_cast<int>(kind)]; }
  const Elements& operator[](ElementKind kind) const { return elements[static_cast<int>(kind)]; }
  Elements elements_total() const;
  Cost& operator+=(const Cost& other);
  friend Cost operator*(const Cost& cost, u128 times);
  friend bool operator==(const Cost&, const Cost&) = default;
};

// How much of an op really ran: what a backend reports, or a declared or supposed size.
struct Executed {
  std::int64_t rows = 0;
  u128 pairs = 0;          // attention: visible (query, key) pairs
  std::int64_t keys = 0;   // attention: key rows read
  std::int64_t experts = 0;  // grouped GEMM: distinct weight sets with at least one row
};

// The declared size of an op: all rows, all pairs, and for experts the most that can be distinct.
Executed declared(const OpSpec& spec);

// Exact cost at the declared size, and at any executed size (rows <= declared).
Cost declared_cost(const OpSpec& spec);
Cost cost_at(const OpSpec& spec, const Executed& executed);
// Adds `times` such costs to a sum.
void add_cost(const OpSpec& spec, const Executed& executed, u128 times, Cost& sum);

// Expectation over the rows a routed op executes (binomial) and over distinct experts. Equal to the declared
// cost where nothing is random. Doubles, because expectations are not integers.
struct ExpectedCost {
  double rows = 0;
  double flops = 0;
  double flops_recompute = 0;
  double elements = 0;
  double read = 0;
  double written = 0;
  ExpectedCost& operator+=(const ExpectedCost& other);
  friend ExpectedCost operator*(ExpectedCost cost, double times);
};
ExpectedCost expected_cost(const OpSpec& spec);

// Expected distinct weight sets that a grouped product reads; 0 for any other op.
double expected_experts(const OpSpec& spec);

// Whether the expectation differs from the declared cost: random rows, distinct experts, or pairs that depend on the rows chosen.
bool is_random(const OpSpec& spec);

// E * (1 - (1 - k/E)^T): expected distinct experts when each of T tokens picks k of E uniformly.
double expected_distinct_experts(std::int64_t experts, std::int64_t picks, std::int64_t tokens);

}  // namespace fathom
