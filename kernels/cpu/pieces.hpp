// Cuts a workspace into consecutive 64-byte aligned pieces. With a null base it only counts, so that one constructor states both how much an
// op needs and where its parts lie.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom::cpu {

class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return piece;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::int64_t bytes_ = 0;
};

}  // namespace fathom::cpu
