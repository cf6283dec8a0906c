// Lists of numbers as the command line writes them, kept as they are written: "1:1000000:1" is three numbers, however many values it stands for.
//
// Value i of a range is first + i step; a list holds one such piece per item, so that memory is that of the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/fraction.hpp"

namespace fathom {

// "1,2,4", "64:512:64", "1:128:x2": whole numbers in the order written.
class NumberList {
 public:
  explicit NumberList(std::int64_t value) { add(value, 0, 1); }
  // Throws Error(kUsage) when it cannot be parsed, Error(kInput) when it is empty, runs backwards, never ends, or has more than 4e18 values.
  static NumberList parse(const std::string& text, std::string_view flag);

  std::uint64_t size() const { return size_; }
  std::int64_t at(std::uint64_t index) const;
  // Whether the values are one range of even steps: at(i) = at(0) + i (at(1) - at(0)).
  bool one_range() const { return pieces_.size() == 1; }

 private:
  struct Piece {
    std::int64_t first = 0, step = 0;
    std::uint64_t before = 0;  // values of the pieces in front of it
  };
  NumberList() = default;
  void add(std::int64_t first, std::int64_t step, std::uint64_t count);

  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;
};

// "0.125", "1/8,1/4", "0.1:0.5:0.1", "none": exact fractions, and the word for none.
class FractionList {
 public:
  explicit FractionList(const Fraction& value) { add(value, {0, 1}, 1); }
  // Errors as above; a range holds at most a million values.
  static FractionList parse(const std::string& text, std::string_view flag);

  std::uint64_t size() const { return size_; }
  std::optional<Fraction> at(std::uint64_t index) const;  // nullopt: "none"
  bool has_none() const;

 private:
  struct Piece {
    Fraction first, step;
    std::uint64_t before = 0;
    bool none = false;
  };
  FractionList() = default;
  void add(const Fraction& first, const Fraction& step, std::uint64_t count, bool none = false);

  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;
};

// A share as a row of a sweep shows it, which every reader of fractions takes back exactly: a decimal that ends within the digits that a double keeps and is not
// tiny, "0.125", else "1/3".
std::string share_text(const Fraction& share);

}  // namespace fathom
