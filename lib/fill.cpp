#include "lib/fill.hpp"

#include <Random123/philox.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "lib/fill_threads.hpp"

namespace fathom {
namespace {

// Counter-based generator: element i of stream `key` never depends on who asks for it or in what order.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view name, int copy) {
    const std::uint64_t hash = XXH3_64bits_withSeed(name.data(), name.size(), seed);
    key_ = {{static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)}};
    copy_ = static_cast<std::uint32_t>(copy);
  }
  r123::Philox4x32::ctr_type block(std::uint64_t index) const {
    return r123::Philox4x32()({{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), copy_, 0}}, key_);
  }

 private:
  r123::Philox4x32::key_type key_{};
  std::uint32_t copy_ = 0;
};

float unit(std::uint32_t bits) { return (static_cast<float>(bits >> 8) + 0.5f) * (1.0f / 16777216.0f); }

std::atomic<int> fill_threads{1};
constexpr size_t kLeastPerThread = size_t{1} << 18;  // below, starting a thread costs more than it brings

bool ends_with(std::string_view text, std::string_view tail) { return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail; }

}  // namespace

FillThreads::FillThreads(int threads) : before_(fill_threads.exchange(std::max(1, threads))) {}
FillThreads::~FillThreads() { fill_threads = before_; }

void fill_weight(const Tensor& tensor, int copy, std::uint64_t seed, FillKind kind, std::span<float> out, std::int64_t first) {
  const bool gain = ends_with(tensor.name, "/gain");
  const bool bias = ends_with(tensor.name, "/bias");
  const bool test = kind == FillKind::kTest;
  if (!test && (gain || bias)) {
    for (float& value : out) value = gain ? 1.0f : 0.0f;
    return;
  }
  // Row vectors (router weights) have their fan-in in cols; matrices [in, out] in rows; token tables [vocab, width] in cols.
  const bool table = ends_with(tensor.name, "table") || ends_with(tensor.name, "positions");
  const double fan_in = static_cast<double>(tensor.rows == 1 || table ? tensor.cols : tensor.rows);
  const float scale = test ? static_cast<float>(gain || bias ? 0.1 : std::sqrt(1.0 / std::max(1.0, fan_in))) : 0.02f;
  const float offset = gain ? 1.0f : 0.0f;
  const Stream stream(seed, tensor.name, copy);
  const auto part = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 4) {
      const auto random = stream.block((static_cast<std::uint64_t>(first) + i) / 4);
      for (size_t j = 0; j < 4 && i + j < end; ++j) {
        // Sum of two uniforms (triangular, variance 1/6), rescaled to unit variance: both signs, bounded, cheap.
        const std::uint32_t bits = random[j];
        const float a = unit(bits << 16 | (bits & 0xffffu));
        const float b = unit(bits & 0xffff0000u);
        out[i + j] = offset + scale * 2.4494897f * (a + b - 1.0f);
      }
    }
  };
  const size_t threads = std::min(static_cast<size_t>(fill_threads.load()), out.size() / kLeastPerThread);
  if (threads <= 1) return part(0, out.size());
  const size_t each = (out.size() / threads + 3) / 4 * 4;  // whole blocks of four
  std::vector<std::jthread> workers;
  for (size_t begin = 0; begin < out.size(); begin += each) workers.emplace_back(part, begin, std::min(out.size(), begin + each));
}

void fill_tokens(std::uint64_t seed, std::string_view name, std::int64_t vocab, std::span<std::int32_t> out) {
  const Stream stream(seed, name, 0);
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto random = stream.block(i / 4);
    for (size_t j = 0; j < 4 && i + j < out.size(); ++j)
      out[i + j] = static_cast<std::int32_t>(static_cast<std::uint64_t>(random[j]) * static_cast<std::uint64_t>(vocab) >> 32);
  }
}

double fill_uniform(std::uint64_t seed, std::string_view name, std::uint64_t index) {
  const auto random = Stream(seed, name, 0).block(index);
  return (static_cast<double>(random[0]) + (static_cast<double>(random[1]) + 0.5) / 4294967296.0) / 4294967296.0;
}

}  // namespace fathom
