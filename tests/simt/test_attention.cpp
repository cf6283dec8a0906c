// Attention on fibers against naive loops in f64: plain and tensor cores, all masks, ragged and gathered rows, caches, splits, sinks.
#include <algorithm>

#include "kernels/cuda/attention.cuh"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;
using Ints = std::vector<std::int32_t>;

struct Case {
  std::vector<Ints> queries;  // positions of each sequence's query rows
  std::vector<Ints> keys;     // of its key rows; empty: the same rows
  int heads, kv_heads, qk_dim, v_dim;
  Mask mask;
  bool sinks = false;
  bool cached = false;        // keys lie in slots of a cache, `room` per sequence
  std::int64_t room = 0;
  int splits = 1;
  int shift = 0;              // elements by which all tensors begin behind an aligned address
  int pad = 0;                // elements behind each row
  bool bf16_sinks = false;
  double spread = 1.5;        // of queries and keys
};

// Everything on the host in f64, and which rows are visible.
struct Expected {
  std::vector<double> o, lse, dq, dk, dv, dsinks;
};

template <class T>
struct Tensors {
  std::int64_t rows = 0, key_rows = 0, q_stride = 0, kv_stride = 0, o_stride = 0;
  Ints offsets{0}, key_offsets{0}, positions, key_positions, counts;
  std::vector<T> q, kv, d_o;
  std::vector<float> sinks;

  explicit Tensors(const Case& c) {
    const bool own = c.keys.empty();
    for (size_t s = 0; s < c.queries.size(); ++s) {
      const Ints& keys = own ? c.queries[s] : c.keys[s];
      positions.insert(positions.end(), c.queries[s].begin(), c.queries[s].end());
      offsets.push_back(static_cast<std::int32_t>(positions.size()));
      key_positions.insert(key_positions.end(), keys.begin(), keys.end());
      counts.push_back(static_cast<std::int32_t>(keys.size()));
      key_offsets.push_back(c.cached ? static_cast<std::int32_t>((s + 1) * static_cast<size_t>(c.room)) : static_cast<std::int32_t>(key_positions.size()));
    }
    rows = offsets.back(), key_rows = key_offsets.back();
    q_stride = c.heads * c.qk_dim + (own ? c.kv_heads * (c.qk_dim + c.v_dim) : 8) + c.pad;
    kv_stride = own ? q_stride : c.kv_heads * (c.qk_dim + c.v_dim) + c.pad;
    o_stride = c.heads * c.v_dim + c.pad;
    q = values<T>(1, static_cast<size_t>(rows * q_stride), c.spread);
    kv = own ? q : values<T>(2, static_cast<size_t>(key_rows * kv_stride), c.spread);
    d_o = values<T>(3, static_cast<size_t>(rows * o_stride));
    sinks = values<float>(4, static_cast<size_t>(c.heads), 2.0);
    for (float& sink : sinks) sink = c.bf16_sinks ? static_cast<float>(bf16(sink)) : sink;
  }
  std::int64_t k_at(const Case& c) const { return c.keys.empty() ? c.heads * c.qk_dim : 0; }
  std::int64_t v_at(const Case& c) const { return k_at(c) + c.kv_heads * c.qk_dim; }
};

template <class T>
Expected expect(const Case& c, const Tensors<T>& t) {
  Expected e;
  const std::vector<double> q = wide(t.q), kv = wide(t.kv), g = wide(t.d_o);
  e.o.resize(static_cast<size_t>(t.rows * t.o_stride)), e.lse.resize(static_cast<size_t>(t.rows * c.heads));
  e.dq.resize(q.size()), e.dk.resize(kv.size()), e.dv.resize(kv.size()), e.dsinks.resize(static_cast<size_t>(c.heads));
  const double scale = 1 / std::sqrt(static_cast<double>(c.qk_dim));
  for (size_t s = 0; s < c.queries.size(); ++s) {
    const std::int64_t first_key = t.key_offsets[s], key_count = t.counts[s];
    const std::int64_t new_rows = t.offsets[s + 1] - t.offsets[s];
    for (std::int64_t r = t.offsets[s]; r < t.offsets[s + 1]; ++r) {
      const auto visible = [&](std::int64_t k) {
        if (c.mask.kind == MaskKind::kFull) return true;
        const std::int64_t position = t.positions[static_cast<size_t>(r)];
        const bool limited = c.mask.window > 0 || c.mask.chunk > 0;
        if (c.cached && k >= key_count - new_rows + (r - t.offsets[s]) + 1) return false;
        if (c.cached && !limited) return true;
        const std::int64_t key = c.cached ? k : t.key_positions[static_cast<size_t>(first_key + k)];
        if (key > position) return false;
        if (c.mask.window > 0 && position - key >= c.mask.window) return false;
        return c.mask.chunk <= 0 || position / c.mask.chunk == key / c.mask.chunk;
      };
      for (int h = 0; h < c.heads; ++h) {
        const int kvh = h / (c.heads / c.kv_heads);
        const double* qr = q.data() + r * t.q_stride + h * c.qk_dim;
        const auto k_of = [&](std::int64_t k) { return (first_key + k) * t.kv_stride + t.k_at(c) + kvh * c.qk_dim; };
        const auto v_of = [&](std::int64_t k) { return (first_key + k) * t.kv_stride + t.v_at(c) + kvh * c.v_dim; };
        std::vector<double> p(static_cast<size_t>(key_count));
        double top = c.sinks ? static_cast<double>(t.sinks[static_cast<size_t>(h)]) : -INFINITY;
        for (std::int64_t k = 0; k < key_count; ++k) {
          double dot = 0;
          for (int i = 0; i < c.qk_dim; ++i) dot += qr[i] * kv[static_cast<size_t>(k_of(k) + i)];
          p[static_cast<size_t>(k)] = visible(k) ? dot * scale : -INFINITY;
          top = std::max(top, p[static_cast<size_t>(k)]);
        }
        double sum = c.sinks ? std::exp(static_cast<double>(t.sinks[static_cast<size_t>(h)]) - top) : 0.0;
        if (top > -INFINITY)
          for (double& x : p) x = std::exp(x - top), sum += x;
        else
          std::fill(p.begin(), p.end(), 0.0);
        const auto item = static_cast<size_t>(r * c.heads + h);
        e.lse[item] = sum > 0 ? top + std::log(sum) : -INFINITY;
        const auto o_at = static_cast<size_t>(r * t.o_stride + h * c.v_dim);
        for (double& x : p) x = sum > 0 ? x / sum : 0.0;
        double delta = 0;
        for (int i = 0; i < c.v_dim; ++i) {
          for (std::int64_t k = 0; k < key_count; ++k) e.o[o_at + static_cast<size_t>(i)] += p[static_cast<size_t>(k)] * kv[static_cast<size_t>(v_of(k) + i)];
          // Kernels form delta from the stored output.
          delta += g[o_at + static_cast<size_t>(i)] * static_cast<double>(static_cast<float>(T(static_cast<float>(e.o[o_at + static_cast<size_t>(i)]))));
        }
        if (c.sinks && sum > 0) e.dsinks[static_cast<size_t>(h)] -= std::exp(static_cast<double>(t.sinks[static_cast<size_t>(h)]) - e.lse[item]) * delta;
        for (std::int64_t k = 0; k < key_count; ++k) {
          const double pk = p[static_cast<size_t>(k)];
          if (pk == 0) continue;
          double dp = 0;
          for (int i = 0; i < c.v_dim; ++i) {
            dp += g[o_at + static_cast<size_t>(i)] * kv[static_cast<size_t>(v_of(k) + i)];
            e.dv[static_cast<size_t>(v_of(k) + i)] += pk * g[o_at + static_cast<size_t>(i)];
          }
          const double ds = pk * (dp - delta) * scale;
          for (int i = 0; i < c.qk_dim; ++i) {
            e.dq[static_cast<size_t>(r * t.q_stride + h * c.qk_dim + i)] += ds * kv[static_cast<size_t>(k_of(k) + i)];
            e.dk[static_cast<size_t>(k_of(k) + i)] += ds * qr[i];
          }
        }
      }
    }
  }
  return e;
}

template <class T>
void check_attention(const Case& c, cuda::AttentionKernel kernel, bool backward) {
  const Tensors<T> t(c);
  const Expected e = expect(c, t);
  const auto shifted = [&](std::vector<T> v) {
    v.insert(v.begin(), static_cast<size_t>(c.shift), T(0.0f));
    return v;
  };
  const auto behind = [&](const DeviceBuffer<T>& b) {
    std::vector<float> v = narrow(b);
    return std::vector<float>(v.begin() + c.shift, v.end());
  };
  const auto got = in_all_orders([&] {
    const std::vector<T> nothing;
    DeviceBuffer<T> q(shifted(t.q)), own_kv(shifted(c.keys.empty() ? nothing : t.kv)), o(e.o.size() + static_cast<size_t>(c.shift), T(0.0f)), d_o(shifted(t.d_o));
    DeviceBuffer<T> dq(q.size(), T(0.0f)), dkv(own_kv.size(), T(0.0f));
    const DeviceBuffer<T>& kv = c.keys.empty() ? q : own_kv;
    const DeviceBuffer<T>& dkv_at = c.keys.empty() ? dq : dkv;
    DeviceBuffer<float> lse(e.lse.size()), sinks(t.sinks), dsinks(t.sinks.size(), 0.5f), delta(e.lse.size());
    DeviceBuffer<bf16> narrow_sinks(std::vector<bf16>(t.sinks.begin(), t.sinks.end())), narrow_dsinks(t.sinks.size(), bf16(0.5f));
    DeviceBuffer<std::int32_t> positions(t.positions), key_positions(t.key_positions), offsets(t.offsets), key_offsets(t.key_offsets), counts(t.counts);
    DeviceBuffer<std::int32_t> begin(static_cast<size_t>(t.rows)), end(static_cast<size_t>(t.rows));
    const auto sequences = static_cast<std::int64_t>(c.queries.size());
    cuda::AttentionRangeArgs r;
    r.mask = c.mask, r.queries = {sequences, 0, offsets.data()}, r.row_limit = t.rows, r.positions = positions.data();
    r.keys = {sequences, 0, key_offsets.data()}, r.key_positions = key_positions.data(), r.counts = c.cached ? counts.data() : nullptr;
    r.begin = begin.data(), r.end = end.data();
    cuda::attention_ranges(r, nullptr);
    cuda::AttentionArgs a;
    a.type = dtype_of<T>(), a.queries = r.queries, a.row_limit = t.rows, a.keys = r.keys;
    for (size_t s = 0; s < c.queries.size(); ++s) {
      a.rows_per_sequence = std::max(a.rows_per_sequence, static_cast<std::int64_t>(c.queries[s].size()));
      a.keys_per_sequence = std::max<std::int64_t>(a.keys_per_sequence, t.counts[s]);
    }
    a.heads = c.heads, a.kv_heads = c.kv_heads, a.qk_dim = c.qk_dim, a.v_dim = c.v_dim, a.scale = 1 / std::sqrt(static_cast<float>(c.qk_dim));
    a.q = q.data() + c.shift, a.k = kv.data() + c.shift + t.k_at(c), a.v = kv.data() + c.shift + t.v_at(c), a.q_stride = t.q_stride, a.kv_stride = t.kv_stride, a.v_head_stride = c.v_dim;
    a.begin = begin.data(), a.end = end.data(), a.o = o.data() + c.shift, a.o_stride = t.o_stride, a.lse = lse.data();
    a.splits = c.splits;
    if (c.sinks) a.sinks = c.bf16_sinks ? static_cast<const void*>(narrow_sinks.data()) : sinks.data(), a.sink_type = c.bf16_sinks ? DType::kBF16 : DType::kF32;
    DeviceBuffer<float> partial_o(static_cast<size_t>(c.splits) * e.lse.size() * static_cast<size_t>(c.v_dim)), partial_lse(static_cast<size_t>(c.splits) * e.lse.size());
    a.partial_o = partial_o.data(), a.partial_lse = partial_lse.data();
    REQUIRE(cuda::attention_kernel_for(a) == kernel);
    cuda::attention(a, nullptr);
    std::array<std::vector<float>, 5> out{behind(o), lse.host(), {}, {}, {}};
    if (!backward) return out;
    cuda::AttentionBackwardArgs b;
    b.forward = a, b.d_o = d_o.data() + c.shift, b.delta = delta.data(), b.dq = dq.data() + c.shift, b.dk = dkv_at.data() + c.shift + t.k_at(c), b.dv = dkv_at.data() + c.shift + t.v_at(c);
    if (c.sinks) b.dsinks = c.bf16_sinks ? static_cast<void*>(narrow_dsinks.data()) : dsinks.data(), b.accumulate_sinks = true;
    cuda::attention_backward(b, nullptr);
    out[2] = behind(dq), out[3] = c.keys.empty() ? std::vector<float>{} : behind(dkv), out[4] = c.bf16_sinks ? narrow(narrow_dsinks) : dsinks.host();
    return out;
  });
  // P and dS are rounded to bf16 before the products on tensor cores, on sums of a few rows.
  // Values grow with the spread, f32 scores (and with them the error of their exponentials) with its square.
  const double wider = std::max(1.0, c.spread / 1.5), slack = sizeof(T) == 2 ? 3 * tolerance<T>() * wider : 2e-5 * wider * wider;
  require_close(got[0], e.o, slack, "o");
  require_close(got[1], e.lse, sizeof(T) == 2 ? 1e-4 : 2e-5, "lse");
  if (!backward) return;
  std::vector<double> dq = e.dq, dkv = e.dk;
  for (size_t i = 0; i < dkv.size(); ++i) dkv[i] += e.dv[i];
  if (c.keys.empty()) {
    for (size_t i = 0; i < dq.size(); ++i) dq[i] += dkv[i];
    dkv.clear();
  }
  require_close(got[2], dq, 4 * slack, "dq");
  require_close(got[3], dkv, 4 * slack, "dkv");
  for (int h = 0; c.sinks && h < c.heads; ++h) CHECK(got[4][static_cast<size_t>(h)] == Approx(0.5 + e.dsinks[static_cast<size_t>(h)]).margin(c.bf16_sinks ? tolerance<bf16>() : 8 * slack));
}

Ints counted(int n, int step = 1, int first = 0) {
  Ints v;
  for (int i = 0; i < n; ++i) v.push_back(first + i * step + (step > 1 ? i % step : 0));
  return v;
}

constexpr Mask kMasks[] = {{MaskKind::kCausal, 0, 0}, {MaskKind::kFull, 0, 0}, {MaskKind::kCausal, 5, 0}, {MaskKind::kCausal, 0, 16}, {MaskKind::kCausal, 9, 12}};

TEST_CASE("attention on plain cores equals the naive loops, forward and backward") {
  using K = cuda::AttentionKernel;
  for (const Mask& mask : kMasks) {
    check_attention<float>({{counted(7), {}, counted(39, 2, 3)}, {}, 2, 1, 6, 10, mask}, K::kSimt, true);
    check_attention<bf16>({{counted(5)}, {}, 2, 2, 36, 36, mask, true}, K::kSimt, true);
    check_attention<float>({{{3, 9, 17}, {1}}, {counted(19), counted(4)}, 4, 2, 8, 8, mask, true}, K::kSimt, true);  // keys of other rows
  }
  check_attention<float>({{counted(3)}, {}, 1, 1, 200, 136, kMasks[0]}, K::kSimt, true);
  check_attention<float>({{counted(2)}, {}, 2, 1, 300, 260, kMasks[0]}, K::kSimt, false);
  // The widest head of every width that a lane's columns are compiled for; 576 is a latent row.
  check_attention<float>({{counted(2)}, {}, 1, 1, 128, 128, kMasks[0]}, K::kSimt, true);
  check_attention<float>({{counted(2)}, {}, 1, 1, 256, 256, kMasks[0]}, K::kSimt, true);
  check_attention<float>({{counted(2)}, {}, 1, 1, 8, 576, kMasks[0]}, K::kSimt, true);
  // Heads of whole packs in rows, or behind addresses, that are not.
  Case odd{{counted(6)}, {}, 2, 1, 8, 8, kMasks[0], true};
  odd.bf16_sinks = true;
  odd.shift = 1;
  check_attention<float>(odd, K::kSimt, true);
  check_attention<bf16>(odd, K::kSimt, true);
  odd.shift = 0, odd.pad = 1;
  check_attention<float>(odd, K::kSimt, true);
  check_attention<bf16>(odd, K::kSimt, true);
}

TEST_CASE("attention on tensor cores equals the naive loops, forward and backward") {
  using K = cuda::AttentionKernel;
  for (const Mask& mask : kMasks) {
    INFO("window " << mask.window << " chunk " << mask.chunk);
    check_attention<bf16>({{counted(70, 2), {4}}, {}, 2, 1, 64, 64, mask}, K::kTensor, true);
    check_attention<bf16>({{counted(19, 3, 1)}, {counted(90)}, 2, 1, 24, 16, mask, true}, K::kTensor, true);
  }
  check_attention<bf16>({{counted(37)}, {}, 1, 1, 128, 128, kMasks[0]}, K::kTensor, true);
  check_attention<bf16>({{counted(9)}, {}, 4, 2, 16, 16, kMasks[0]}, K::kTensor, true);  // two heads per key head, two of those
  check_attention<bf16>({{counted(9)}, {}, 4, 2, 24, 16, kMasks[0]}, K::kTensor, true);  // the same with values narrower than keys
  check_attention<bf16>({{counted(9)}, {}, 4, 2, 16, 40, kMasks[0]}, K::kTensor, true);
  // Whole blocks of 128 rows, where a tile of keys that all rows' ends cover still lies partly before the window of the last.
  check_attention<bf16>({{counted(256)}, {}, 1, 1, 8, 8, {MaskKind::kCausal, 150, 0}}, K::kTensor, true);
  check_attention<bf16>({{counted(256)}, {}, 1, 1, 8, 8, {MaskKind::kCausal, 191, 0}}, K::kTensor, true);  // by one key: the last row's window begins at 65
  check_attention<bf16>({{counted(131), {}, counted(2)}, {}, 1, 1, 8, 8, kMasks[0]}, K::kTensor, true);
}

TEST_CASE("attention over caches: one query per sequence and prompts in pieces, any number of splits") {
  using K = cuda::AttentionKernel;
  for (const int splits : {1, 2, 5}) {
    for (const Mask& mask : {kMasks[0], kMasks[2]}) {
      const Case decode{{{49}, {0}, {}, {16}}, {counted(50), counted(1), counted(3), counted(17)}, 6, 2, 64, 64, mask, splits == 2, true, 53, splits};
      check_attention<bf16>(decode, K::kDecode, false);
      check_attention<float>(decode, K::kSimt, false);
    }
  }
  const Case wide_heads{{{80}}, {counted(81)}, 4, 4, 128, 96, kMasks[0], true, true, 90, 3};
  check_attention<bf16>(wide_heads, K::kDecode, false);
  const Case pieces{{{40, 41, 42}, {7, 8}}, {counted(43), counted(9)}, 2, 1, 32, 32, kMasks[0], false, true, 50, 1};
  check_attention<bf16>(pieces, K::kTensor, false);
  // A whole block of 128 queries behind 62 keys: the first sees all of the first tile but its last key.
  const Case behind{{counted(128, 1, 62)}, {counted(190)}, 1, 1, 8, 8, kMasks[0], false, true, 190, 1};
  check_attention<bf16>(behind, K::kTensor, false);
  // Long enough that every warp fetches into a stage that it has read before; the last list fills its room to the end of the buffer.
  for (const int splits : {1, 2}) {
    const Case full{{{299}, {306}}, {counted(300), counted(307)}, 2, 1, 16, 16, kMasks[0], false, true, 307, splits};
    check_attention<bf16>(full, K::kDecode, false);
    check_attention<float>(full, K::kSimt, false);
  }
}

TEST_CASE("scores hundreds apart: whichever warp, tile or split holds the largest, nothing overflows") {
  using K = cuda::AttentionKernel;
  Case far{{{99}}, {counted(100)}, 16, 4, 64, 64, kMasks[0], true, true, 100, 3};
  far.spread = 30.0;  // products of order 8 x 30^2 / 3, an eighth of that as scores: differences far beyond the 88 at which exp overflows
  check_attention<bf16>(far, K::kDecode, false);
  check_attention<float>(far, K::kSimt, false);
  // A tile of 16 keys for each of the four warps of decode: each holds the largest score of some head by so much that a maximum without it overflows.
  Case each{{{63}}, {counted(64)}, 16, 2, 64, 64, kMasks[0], true, true, 64, 1};
  each.spread = 30.0;
  const Tensors<bf16> t(each);
  std::array<double, 4> lead{};
  for (int head = 0; head < 16; ++head) {
    std::array<double, 4> top{-1e9, -1e9, -1e9, -1e9};
    for (int key = 0; key < 64; ++key) {
      double dot = 0;
      for (int i = 0; i < 64; ++i) dot += static_cast<float>(t.q[static_cast<size_t>(head * 64 + i)]) * static_cast<float>(t.kv[static_cast<size_t>(key * t.kv_stride + head / 8 * 64 + i)]);
      top[static_cast<size_t>(key / 16)] = std::max(top[static_cast<size_t>(key / 16)], dot / 8);
    }
    auto sorted = top;
    std::sort(sorted.begin(), sorted.end());
    for (size_t w = 0; w < 4; ++w)
      if (top[w] == sorted[3]) lead[w] = std::max(lead[w], sorted[3] - sorted[2]);
  }
  for (const double own : lead) REQUIRE(own > 100.0);
  check_attention<bf16>(each, K::kDecode, false);
  Case rows{{counted(70)}, {}, 1, 1, 64, 64, kMasks[0], true};
  rows.spread = 30.0;
  check_attention<bf16>(rows, K::kTensor, false);
  check_attention<float>(rows, K::kSimt, false);
}

TEST_CASE("key ranges of cached lists: positions with gaps, and lists of all tokens") {
  // Two sequences with room for 8 keys; the new rows are the last two of the first list and the last one of the second.
  const auto ranges = [](const Mask& mask, const Ints& counts, const Ints& positions, const Ints& kept, bool all_keys) {
    DeviceBuffer<std::int32_t> n(counts), p(positions), k(kept.empty() ? Ints{0} : kept), offsets(Ints{0, 2, 3}), begin(3), end(3);
    cuda::AttentionRangeArgs a;
    a.mask = mask, a.queries = {2, 0, offsets.data()}, a.row_limit = 3, a.positions = p.data(), a.keys = {2, 8, nullptr}, a.counts = n.data();
    a.kept = kept.empty() ? nullptr : k.data(), a.all_keys = all_keys, a.begin = begin.data(), a.end = end.data();
    cuda::attention_ranges(a, nullptr);
    return std::pair{begin.host(), end.host()};
  };
  using Pair = std::pair<Ints, Ints>;
  const Ints kept = {0, 2, 3, 7, 9, -1, -1, -1, 1, 4, 6, -1, -1, -1, -1, -1}, at = {7, 9, 6};
  // A window of 4: 7 sees 4..7, 9 sees 6..9, 6 sees 3..6. Chunks of 4: 7 sees 4..7, 9 sees 8.., 6 sees 4..6.
  CHECK(ranges({MaskKind::kCausal, 4, 0}, {5, 3}, at, kept, false) == Pair{{3, 3, 1}, {4, 5, 3}});
  CHECK(ranges({MaskKind::kCausal, 0, 4}, {5, 3}, at, kept, false) == Pair{{3, 4, 1}, {4, 5, 3}});
  CHECK(ranges({MaskKind::kCausal, 0, 0}, {5, 3}, at, kept, false) == Pair{{0, 0, 0}, {4, 5, 3}});
  CHECK(ranges({MaskKind::kFull, 0, 0}, {5, 3}, at, {}, false) == Pair{{0, 0, 0}, {5, 5, 3}});
  CHECK(ranges({MaskKind::kCausal, 2, 0}, {5, 3}, {17, 19, 16}, {}, false) == Pair{{4, 5, 3}, {4, 5, 3}});  // positions behind all slots see nothing
  // Every token kept its keys; tokens 1 and 4 of six, and 2 of three, ask.
  CHECK(ranges({MaskKind::kCausal, 0, 0}, {6, 3}, {1, 4, 2}, {}, true) == Pair{{0, 0, 0}, {2, 5, 3}});
  CHECK(ranges({MaskKind::kCausal, 2, 0}, {6, 3}, {1, 4, 2}, {}, true) == Pair{{0, 3, 1}, {2, 5, 3}});
}

TEST_CASE("matrix loads of attention meet no bank conflicts") {
  statistics() = {};
  check_attention<bf16>({{counted(65)}, {}, 1, 1, 64, 64, kMasks[0]}, cuda::AttentionKernel::kTensor, true);
  check_attention<bf16>({{counted(33)}, {}, 1, 1, 128, 128, kMasks[0]}, cuda::AttentionKernel::kTensor, true);
  CHECK(statistics().matrix_loads > 0);
  CHECK(statistics().matrix_conflicts == 0);
}

TEST_CASE("shared memory stays below what the smallest chip of the supported kinds gives a block") {
  constexpr std::int64_t kSmallest = 99 << 10;  // sm_86 and sm_89; sm_80 gives 163 KiB, sm_90 and sm_100 227
  for (const int dim : {8, 64, 72, 128}) {
    cuda::AttentionArgs a;
    a.heads = a.kv_heads = 1, a.qk_dim = a.v_dim = dim, a.row_limit = a.rows_per_sequence = a.keys_per_sequence = 200;
    for (const cuda::LaunchShape& shape : {cuda::attention_tensor_launch(a), cuda::attention_dq_tensor_launch(a), cuda::attention_dkv_tensor_launch(a), cuda::attention_decode_launch(a)}) {
      CHECK(shape.shared > 32 << 10);
      CHECK(shape.shared <= kSmallest);
    }
  }
}

TEST_CASE("splits fill the multiprocessors and stop there") {
  CHECK(cuda::attention_splits(300, 4096, 128, 132) == 1);
  CHECK(cuda::attention_splits(8, 100, 128, 132) == 1);
  const int splits = cuda::attention_splits(8, 32768, 128, 132);
  CHECK(8 * splits >= 200);
  CHECK(8 * splits <= 2 * 132);
  CHECK(cuda::attention_splits(0, 100, 64, 132) == 1);
}

}  // namespace
}  // namespace fathom
