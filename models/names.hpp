// Names and operand lists of ops while they are emitted: made of literals, without touching the heap.
//
// An op list that is only counted never needs its names; they become strings when a tensor or an op is really stored.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "lib/workload.hpp"

namespace fathom {

// "mlp/gate" + "/weight": pieces that outlive the emission (string literals).
class Name {
 public:
  Name(const char* piece) : pieces_{std::string_view(piece)}, count_(1) {}
  friend Name operator+(Name name, const char* piece) {
    name.pieces_[static_cast<size_t>(name.count_++)] = piece;
    return name;
  }
  std::string str() const {
    std::string text;
    for (int i = 0; i < count_; ++i) text += pieces_[static_cast<size_t>(i)];
    return text;
  }

 private:
  std::array<std::string_view, 4> pieces_{};
  int count_ = 0;
};

// Operands of one op.
class Operands {
 public:
  Operands() = default;
  Operands(std::initializer_list<Operand> list) {
    for (const Operand& operand : list) push_back(operand);
  }
  void push_back(const Operand& operand) { items_[static_cast<size_t>(size_++)] = operand; }
  std::vector<Operand> list() const { return {items_.begin(), items_.begin() + size_}; }

 private:
  std::array<Operand, 10> items_{};
  int size_ = 0;
};

}  // namespace fathom
