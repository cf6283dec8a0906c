// Names and operand lists of ops while they are emitted: made of literals, without touching the heap.
//
// An op list that is only counted never needs its names; they become strings when a tensor or an op is really stored.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/workload.hpp"

namespace fathom {

// "mlp/gate" + "/weight": pieces that outlive the emission (string literals).
class Name {
 public:
  Name(const char* piece) : count_(1) { pieces_[0] = piece; }
  friend Name operator+(const Name& name, const char* piece) {
    Name longer = name;
    longer.pieces_[longer.count_++] = piece;
    return longer;
  }
  // The same text, whatever the pieces.
  friend bool operator==(const Name& a, const Name& b) {
    int i = 0, j = 0;
    const char* x = a.pieces_[0];
    const char* y = b.pieces_[0];
    while (true) {
      while (*x == 0 && i + 1 < a.count_) x = a.pieces_[++i];
      while (*y == 0 && j + 1 < b.count_) y = b.pieces_[++j];
      if (*x != *y) return false;
      if (*x == 0) return true;
      ++x, ++y;
    }
  }
  std::string str() const {
    std::string text;
    for (int i = 0; i < count_; ++i) text += pieces_[i];
    return text;
  }

 private:
  const char* pieces_[4] = {};
  int count_ = 0;
};

// Operands of one op, at most ten.
class Operands {
 public:
  Operands() {}
  Operands(std::initializer_list<Operand> list) {
    for (const Operand& operand : list) push_back(operand);
  }
  void push_back(const Operand& operand) { raw_[size_++] = {operand.tensor, operand.layer_offset}; }
  int size() const { return size_; }
  Operand operator[](int i) const { return {raw_[i].tensor, raw_[i].layer_offset}; }
  std::vector<Operand> list() const {
    std::vector<Operand> operands;
    for (int i = 0; i < size_; ++i) operands.push_back({raw_[i].tensor, raw_[i].layer_offset});
    return operands;
  }
  // Into an array of kMost; returns how many.
  std::size_t copy(Operand* to) const {
    for (int i = 0; i < size_; ++i) to[i] = {raw_[i].tensor, raw_[i].layer_offset};
    return static_cast<std::size_t>(size_);
  }
  static constexpr int kMost = 10;

 private:
  struct Raw {  // Operand without its initialisers: nothing to clear
    TensorId tensor;
    std::int8_t layer_offset;
  };
  Raw raw_[kMost];
  int size_ = 0;
};

}  // namespace fathom
