// Hand-made activity buffers: records of CUDA 13.0 written field by field at the offsets that the decoder reads, with garbage elsewhere.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/cupti_decode.hpp"
#include "kernels/cuda/cupti_records.hpp"

namespace fathom::cuda {

class BufferMaker {
 public:
  BufferMaker& kernel(std::uint32_t correlation, std::uint64_t start, std::uint64_t end, const char* name = "k", std::uint64_t node = 0) {
    using namespace kernel_record;
    begin(kind::kKernel, kSize);
    put<std::uint16_t>(kRegisters, 128);
    put(kStart, start);
    put(kEnd, end);
    put<std::int32_t>(kStaticShared, 0);
    put<std::int32_t>(kDynamicShared, 46080);
    put<std::uint32_t>(kLocalPerThread, 0);
    put(kCorrelation, correlation);
    put(kName, name);
    put(kGraphNode, node);
    for (std::size_t i = 0; i < 3; ++i) {
      put<std::int32_t>(kGrid + 4 * i, static_cast<std::int32_t>(7 + i));
      put<std::int32_t>(kBlock + 4 * i, 32);
    }
    return *this;
  }
  BufferMaker& copy(std::uint32_t correlation, std::uint64_t start, std::uint64_t end, std::uint64_t bytes, std::uint64_t node = 0) {
    using namespace copy_record;
    begin(kind::kMemcpy, kSize);
    put(kBytes, bytes), put(kStart, start), put(kEnd, end), put(kCorrelation, correlation), put(kGraphNode, node);
    return *this;
  }
  BufferMaker& fill(std::uint32_t correlation, std::uint64_t start, std::uint64_t end, std::uint64_t bytes) {
    using namespace set_record;
    begin(kind::kMemset, kSize);
    put(kBytes, bytes), put(kStart, start), put(kEnd, end), put(kCorrelation, correlation), put<std::uint64_t>(kGraphNode, 0);
    return *this;
  }
  BufferMaker& api(std::uint32_t correlation, std::uint64_t start, std::uint64_t end, bool runtime = true, std::uint32_t returned = 0) {
    using namespace api_record;
    begin(runtime ? kind::kRuntime : kind::kDriver, kSize);
    put<std::uint32_t>(kCall, 211), put(kStart, start), put(kEnd, end), put(kCorrelation, correlation), put(kReturn, returned);
    return *this;
  }
  BufferMaker& external(std::uint32_t correlation, std::uint32_t which, std::uint64_t id) {
    using namespace external_record;
    begin(kind::kExternalCorrelation, kSize);
    put(kExternalKind, which), put(kExternalId, id), put(kCorrelation, correlation);
    return *this;
  }
  // An op's launch as CUPTI records it: both external ids, then the call.
  BufferMaker& launch(std::uint32_t correlation, std::uint64_t op, std::uint64_t pass, std::uint64_t start) {
    return external(correlation, kExternalPass, pass).external(correlation, kExternalOp, op).api(correlation, start, start + 500);
  }
  BufferMaker& overhead(std::uint32_t what, std::uint64_t start, std::uint64_t end) {
    using namespace overhead_record;
    begin(kind::kOverhead, kSize);
    put(kOverheadKind, what), put(kStart, start), put(kEnd, end);
    return *this;
  }
  BufferMaker& unknown(std::uint32_t what) {
    begin(what, 64);
    return *this;
  }
  void cut(std::size_t bytes) { data_.resize(data_.size() - bytes); }

  ActivityBuffer buffer() {
    aligned_.assign(data_.size() / 8 + 1, 0);
    std::memcpy(aligned_.data(), data_.data(), data_.size());
    return {reinterpret_cast<std::uint8_t*>(aligned_.data()), data_.size()};
  }
  const std::vector<std::uint8_t>& bytes() const { return data_; }

 private:
  void begin(std::uint32_t what, std::size_t size) {
    at_ = data_.size();
    data_.resize(at_ + size, 0xA5);  // a field that the decoder reads and the test forgot shows up as nonsense
    put(0, what);
  }
  template <class T>
  void put(std::size_t offset, T value) {
    std::memcpy(data_.data() + at_ + offset, &value, sizeof value);
  }

  std::vector<std::uint8_t> data_;
  std::vector<std::uint64_t> aligned_;
  std::size_t at_ = 0;
};

}  // namespace fathom::cuda
