#include "kernels/cuda_host/conform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cuda/conform.hpp"
#include "lib/error.hpp"

namespace fathom::cuda {
namespace {

constexpr int kLanes = 32;
constexpr double kSumTolerance = 1e-5, kFunctionTolerance = 4e-6;

// What a lane must get: these bits, or a number within the wrapper's tolerance of `scale`.
struct Wanted {
  std::uint32_t bits = 0;
  double value = 0, scale = -1;  // negative: the bits
};

// The words of one case, lane by lane.
struct Case {
  const std::uint32_t* in;
  int words;
  std::uint32_t word(int lane, int i) const { return in[lane * words + i]; }
  float number(int lane, int i) const { return std::bit_cast<float>(word(lane, i)); }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint32_t word() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  double unit() { return word() * 0x1p-32; }
  float signed_float(double least, double most) { return static_cast<float>((word() & 1 ? -1.0 : 1.0) * least * std::pow(most / least, unit())); }
  std::uint32_t bf16_pair() {  // of magnitude 0.5 to 2, exact
    const auto half = [this] { return std::bit_cast<std::uint32_t>(signed_float(0.5, 2)) >> 16; };
    const std::uint32_t low = half();
    return low | half() << 16;
  }

 private:
  std::uint64_t state_;
};

std::uint32_t drawn(Wrapper wrapper, int word, std::int64_t number, Draw& draw) {
  switch (wrapper) {
    case Wrapper::kMma: return word < 4 ? std::bit_cast<std::uint32_t>(draw.signed_float(0.5, 2)) : draw.bf16_pair();
    case Wrapper::kPack: {
      static constexpr std::uint32_t kSpecial[] = {0, 0x80000000u, 0x7f800000u, 0x7fc00000u, 0x3f808000u, 0x3f818000u, 0x3f808001u, 0x7f7fffffu, 1};  // ties, overflow, the least
      return number < 9 ? kSpecial[number] : draw.word() & 0xff7fffffu;                                                                                  // any finite one
    }
    case Wrapper::kFunction: {
      static constexpr float kSpecial[] = {0.0f, 1.0f, -1.0f, 10.0f, -10.0f};
      return std::bit_cast<std::uint32_t>(number < 5 ? kSpecial[number] : draw.signed_float(1e-3, 10));
    }
    case Wrapper::kAtomic: return draw.word() >> 8;  // the sum of 32 stays below 2^31
    default: return number % 8 == 7 ? 0 : draw.word();
  }
}

double half_of(std::uint32_t pair, int e) { return std::bit_cast<float>(e == 0 ? pair << 16 : pair & 0xffff0000u); }

// D[16,8] = A[16,16] B[16,8] + C[16,8].
std::vector<Wanted> product(const Case& c) {
  std::array<std::array<double, 16>, 16> a{};
  std::array<std::array<double, 8>, 16> b{};
  for (int lane = 0; lane < kLanes; ++lane)
    for (int e = 0; e < 2; ++e) {
      const auto group = static_cast<std::size_t>(lane / 4), pair = static_cast<std::size_t>(2 * (lane % 4) + e);
      for (std::size_t i = 0; i < 4; ++i) a[group + 8 * (i % 2)][pair + 8 * (i / 2)] = half_of(c.word(lane, 4 + static_cast<int>(i)), e);
      for (std::size_t i = 0; i < 2; ++i) b[pair + 8 * i][group] = half_of(c.word(lane, 8 + static_cast<int>(i)), e);
    }
  std::vector<Wanted> wanted;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const auto row = static_cast<std::size_t>(lane / 4 + 8 * (i / 2)), column = static_cast<std::size_t>(2 * (lane % 4) + i % 2);
      Wanted one{0, c.number(lane, i), std::abs(static_cast<double>(c.number(lane, i)))};
      for (std::size_t k = 0; k < 16; ++k) one.value += a[row][k] * b[k][column], one.scale += std::abs(a[row][k] * b[k][column]);
      wanted.push_back(one);
    }
  return wanted;
}

// Four matrices of 8 x 8 halves: matrix m's row r is the 16 bytes that lane 8 m + r names.
std::vector<Wanted> matrices(const Case& c, bool turned) {
  const auto half = [&](int matrix, int row, int column) {
    const int named = static_cast<int>(c.word(8 * matrix + row, 4) & 31);
    return c.word(named, column / 2) >> (16 * (column % 2)) & 0xffffu;
  };
  std::vector<Wanted> wanted;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int m = 0; m < 4; ++m) {
      const int line = lane / 4, pair = 2 * (lane % 4);
      wanted.push_back({turned ? half(m, pair, line) | half(m, pair + 1, line) << 16 : half(m, line, pair) | half(m, line, pair + 1) << 16});
    }
  return wanted;
}

std::vector<Wanted> shuffles(const Case& c) {
  std::vector<Wanted> wanted;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int by = 1; by < kLanes; by *= 2) wanted.push_back({c.word(lane ^ by, 0)});
    wanted.push_back({c.word(static_cast<int>(c.word(lane, 1) & 31), 0)});
    for (int by = 1; by < kLanes; by *= 2) wanted.push_back({c.word(lane < by ? lane : lane - by, 0)});
  }
  return wanted;
}

std::vector<Wanted> votes(const Case& c) {
  std::uint32_t ballot = 0;
  for (int lane = 0; lane < kLanes; ++lane) ballot |= (c.word(lane, 0) & 1) << lane;
  std::vector<Wanted> wanted;
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t v = c.word(lane, 0), at = static_cast<std::uint32_t>(lane);
    for (const std::uint32_t word : {ballot, static_cast<std::uint32_t>(ballot != 0), static_cast<std::uint32_t>(std::popcount(v)), static_cast<std::uint32_t>(std::countl_zero(v)), at, at}) wanted.push_back({word});
  }
  return wanted;
}

std::vector<Wanted> functions(const Case& c) {
  std::vector<Wanted> wanted;
  for (int lane = 0; lane < kLanes; ++lane) {
    const double x = c.number(lane, 0), size = std::abs(x);
    for (const double value : {std::exp2(x), std::exp(x), std::log(size), std::log1p(size), std::sqrt(size), 1 / std::sqrt(size), std::tanh(x), std::erf(x)})
      wanted.push_back({std::bit_cast<std::uint32_t>(static_cast<float>(value)), value, std::abs(value)});
  }
  return wanted;
}

// [32, words out], lane by lane.
std::vector<Wanted> wanted_of(Wrapper wrapper, const Case& c) {
  std::vector<Wanted> wanted;
  switch (wrapper) {
    case Wrapper::kMma: return product(c);
    case Wrapper::kMatrix: return matrices(c, false);
    case Wrapper::kMatrixTurned: return matrices(c, true);
    case Wrapper::kCopy:  // the sources of a case, then its flags (conform.cuh)
      for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < 4; ++i) wanted.push_back({c.in[128 + (lane ^ 1)] != 0 ? c.in[4 * (lane ^ 1) + i] : 0});
      return wanted;
    case Wrapper::kShuffle: return shuffles(c);
    case Wrapper::kVote: return votes(c);
    case Wrapper::kAtomic: {
      std::uint32_t sum = 0, most = 0;
      for (int lane = 0; lane < kLanes; ++lane) sum += c.word(lane, 0), most = std::max(most, c.word(lane, 0));
      for (int lane = 0; lane < kLanes; ++lane) wanted.push_back({sum}), wanted.push_back({most});
      return wanted;
    }
    case Wrapper::kPack:
      for (int lane = 0; lane < kLanes; ++lane) wanted.push_back({bf16::round(c.number(lane, 0)) | static_cast<std::uint32_t>(bf16::round(c.number(lane, 1))) << 16});
      return wanted;
    case Wrapper::kFunction: return functions(c);
  }
  return wanted;
}

bool nan_half(std::uint32_t half) { return (half & 0x7f80u) == 0x7f80u && (half & 0x7fu) != 0; }

// Relative to the scale where there is one; else 0 or infinite. One not-a-number is as good as another.
double error_of(Wrapper wrapper, const Wanted& wanted, std::uint32_t got) {
  const double wrong = std::numeric_limits<double>::infinity();
  if (got == wanted.bits && (wanted.scale < 0 || wrapper == Wrapper::kFunction)) return 0;
  if (wrapper == Wrapper::kPack) {
    for (const int shift : {0, 16}) {
      const std::uint32_t want = wanted.bits >> shift & 0xffffu, have = got >> shift & 0xffffu;
      if (want != have && !(nan_half(want) && nan_half(have))) return wrong;
    }
    return 0;
  }
  if (wanted.scale < 0) return wrong;
  const double off = std::abs(static_cast<double>(std::bit_cast<float>(got)) - wanted.value);
  if (!(off >= 0) || std::isinf(off)) return wrong;  // NaN too
  return wanted.scale > 0 ? off / wanted.scale : off == 0 ? 0 : wrong;
}

}  // namespace

std::vector<SelfTest> conform(const std::shared_ptr<OpenDevice>& device, std::int64_t cases, std::uint64_t seed) {
  const Module& module = device->module();
  std::vector<SelfTest> tests;
  for (int w = 0; w < kWrappers; ++w) {
    const auto wrapper = static_cast<Wrapper>(w);
    const WrapperWords& words = kWrapperWords[w];
    Draw draw(seed + static_cast<std::uint64_t>(w));
    std::vector<std::uint32_t> in(static_cast<std::size_t>(cases * kLanes * words.in)), out(static_cast<std::size_t>(cases * kLanes * words.out));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto per = static_cast<std::size_t>(words.in);
      in[i] = drawn(wrapper, static_cast<int>(i % per), static_cast<std::int64_t>(i / per), draw);
    }
    if (wrapper == Wrapper::kVote)  // one warp in which nobody votes yes
      for (std::size_t lane = 0; lane < kLanes; ++lane) in[lane] &= ~1u;
    const DeviceMemory from(device, static_cast<std::int64_t>(in.size() * 4), "words of a self-test"), to(device, static_cast<std::int64_t>(out.size() * 4), "words of a self-test");
    const ConformArgs args{wrapper, cases, reinterpret_cast<const std::uint32_t*>(from.data()), reinterpret_cast<std::uint32_t*>(to.data())};
    Text text;
    must(module.upload(device->device(), from.data(), in.data(), from.bytes(), &text), "writing to the GPU", text);
    must(module.kernels.conform(device->device(), &args, &text), fmt::format("running the wrapper {}", words.name).c_str(), text);
    must(module.download(device->device(), out.data(), to.data(), to.bytes(), &text), "reading from the GPU", text);
    SelfTest test;
    test.name = words.name;
    test.cases = cases;
    test.tolerance = wrapper == Wrapper::kMma ? kSumTolerance : wrapper == Wrapper::kFunction ? kFunctionTolerance : 0;
    for (std::int64_t c = 0; c < cases; ++c) {
      const std::vector<Wanted> wanted = wanted_of(wrapper, {in.data() + c * kLanes * words.in, words.in});
      bool wrong = false;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const std::uint32_t got = out[static_cast<std::size_t>(c * kLanes * words.out) + i];
        const double error = error_of(wrapper, wanted[i], got);
        test.worst = std::max(test.worst, error);
        if (error <= test.tolerance) continue;
        const auto per = static_cast<std::size_t>(words.out);
        if (test.first.empty())
          test.first = wanted[i].scale < 0 ? fmt::format("case {}, lane {}, word {}: 0x{:08x} instead of 0x{:08x}", c, i / per, i % per, got, wanted[i].bits)
                                           : fmt::format("case {}, lane {}, word {}: {} instead of {}", c, i / per, i % per, std::bit_cast<float>(got), wanted[i].value);
        wrong = true;
      }
      test.wrong += wrong;
    }
    tests.push_back(std::move(test));
  }
  return tests;
}

}  // namespace fathom::cuda
