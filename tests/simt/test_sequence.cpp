// Embedding, rotary positions, KV append, latent heads and sampling on fibers against the reference.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/sampling.cuh"
#include "kernels/cuda/sequence.cuh"
#include "kernels/reference/sequence.hpp"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;
using Ints = std::vector<std::int32_t>;

template <class T, class G>
void check_embedding(std::int64_t rows, std::int64_t width, std::int64_t vocab, bool learned, bool accumulate, int kind) {
  const auto n = static_cast<size_t>(rows), w = static_cast<size_t>(width);
  const auto table = values<T>(1, static_cast<size_t>(vocab) * w), positions_table = values<T>(2, n * w), dx = values<T>(3, n * w);
  const auto old = values<G>(4, static_cast<size_t>(vocab) * w);
  Ints ids(n), positions(n);
  for (size_t r = 0; r < n; ++r) {
    ids[r] = kind == 0 ? static_cast<std::int32_t>(vocab - 1) : static_cast<std::int32_t>((r * r * 7 + r) % static_cast<size_t>(kind == 1 ? std::min<std::int64_t>(vocab, 5) : vocab));
    positions[r] = static_cast<std::int32_t>(n - 1 - r);
  }
  std::vector<double> wt = wide(table), wp = wide(positions_table), wdx = wide(dx), x(n * w), dtable = wide(old);
  reference::embedding(ids.data(), matrix(wt, vocab, width), positions.data(), learned ? matrix(wp, rows, width) : reference::Matrix<double>{}, rows, matrix(x, rows, width));
  reference::embedding_backward(ids.data(), matrix(wdx, rows, width), rows, accumulate, matrix(dtable, vocab, width));
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> bt(table), bp(positions_table), bx(n * w), bdx(dx);
    DeviceBuffer<G> bd(old);
    DeviceBuffer<std::int32_t> bi(ids), bpos(positions);
    cuda::embedding({dtype_of<T>(), rows, width, bi.data(), bt.data(), bpos.data(), learned ? bp.data() : nullptr, bx.data()}, nullptr);
    cuda::EmbeddingBackwardArgs a;
    a.type = dtype_of<T>(), a.grad_type = dtype_of<G>(), a.rows = rows, a.width = width, a.table_rows = vocab, a.accumulate = accumulate;
    a.ids = bi.data(), a.dx = bdx.data(), a.dtable = bd.data();
    DeviceBuffer<std::int32_t> scratch(static_cast<size_t>(cuda::embedding_scratch_ints(a)));
    a.scratch = scratch.data();
    cuda::embedding_backward(a, nullptr);
    return std::array<std::vector<float>, 2>{narrow(bx), narrow(bd)};
  });
  require_close(got[0], x, tolerance<T>(), "x");
  require_close(got[1], dtable, std::max(tolerance<G>(), 1e-4), "dtable");
}

TEST_CASE("embedding and its gradient equal the reference: rare, common and equal tokens, several passes of the sort") {
  for (const bool accumulate : {false, true}) {
    for (int kind = 0; kind < 3; ++kind) {
      check_embedding<float, float>(37, 5, 300, true, accumulate, kind);
      check_embedding<bf16, float>(300, 16, 1000, false, accumulate, kind);
      check_embedding<bf16, bf16>(9, 8, 70000, false, accumulate, kind);
      check_embedding<bf16, bf16>(9, 264, 40, false, accumulate, kind);
    }
  }
  check_embedding<float, float>(2100, 1, 200, false, false, 2);  // more than one block of the sort
  check_embedding<float, float>(0, 4, 7, false, false, 2);
}

template <class T>
void check_rope(std::int64_t rows, int heads, int head_dim, int width, int offset, std::int64_t stride, bool inverse) {
  const auto n = static_cast<size_t>(rows * stride);
  const auto x = values<T>(1, n);
  Ints positions(static_cast<size_t>(rows));
  for (size_t r = 0; r < positions.size(); ++r) positions[r] = static_cast<std::int32_t>((r * 29) % 97);
  std::vector<double> want = wide(x);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < width / 2; ++i) {
        const double angle = (inverse ? -1 : 1) * positions[static_cast<size_t>(r)] * std::pow(500.0, -2.0 * i / width);
        const auto at = static_cast<size_t>(r * stride + h * head_dim + offset + i), half = static_cast<size_t>(width / 2);
        const double low = want[at], high = want[at + half];
        want[at] = low * std::cos(angle) - high * std::sin(angle);
        want[at + half] = low * std::sin(angle) + high * std::cos(angle);
      }
    }
  }
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> b(x);
    DeviceBuffer<std::int32_t> p(positions);
    std::vector<float> table(static_cast<size_t>(97 * width));
    cuda::fill_rope_table(500.0, width, 97, table.data());
    DeviceBuffer<float> t(table);
    cuda::rope({dtype_of<T>(), {rows}, stride, heads, head_dim, width, offset, inverse, b.data(), p.data(), t.data()}, nullptr);
    return narrow(b);
  });
  require_close(got, want, tolerance<T>(), "rope");
}

TEST_CASE("rotary positions equal the reference, parts of heads and the inverse included") {
  check_rope<float>(3, 2, 8, 8, 0, 24, false);
  check_rope<bf16>(9, 3, 64, 64, 0, 256, true);
  check_rope<bf16>(5, 2, 24, 16, 8, 72, false);
  check_rope<float>(2, 3, 7, 4, 1, 23, false);
  check_rope<bf16>(3, 2, 24, 24, 0, 72, false);  // heads of whole packs whose halves are none
  check_rope<bf16>(3, 2, 32, 16, 4, 72, true);   // ... and whose rotated part begins inside one
}

TEST_CASE("rotary positions and latent heads stop at the rows that the device counts") {
  std::vector<float> table(static_cast<size_t>(4 * 2));
  cuda::fill_rope_table(500.0, 2, 4, table.data());
  DeviceBuffer<float> x(std::vector<float>{1, 0, 1, 0, 1, 0}), t(table), q(12, 1.0f), latent(9, 2.0f), parts(12, 3.0f), y(24, 9.0f), dq(12, 9.0f), dl(9, 9.0f), dp(12, 9.0f);
  DeviceBuffer<std::int32_t> positions(Ints{1, 2, 3}), count(1, 2);
  cuda::rope({DType::kF32, {3, count.data()}, 2, 1, 2, 2, 0, false, x.data(), positions.data(), t.data()}, nullptr);
  CHECK(x[3] == Approx(std::sin(2.0)));
  CHECK((x[4] == 1.0f && x[5] == 0.0f));
  cuda::LatentArgs a;
  a.rows = {3, count.data()}, a.heads = 1, a.nope = 2, a.rope = 2, a.v = 2, a.rank = 1;
  a.q = q.data(), a.latent = latent.data(), a.parts = parts.data(), a.y = y.data();
  REQUIRE(cuda::latent_row_width(a) == 10);
  DeviceBuffer<float> wide_y(30, 9.0f);
  a.y = wide_y.data();
  cuda::latent_heads(a, nullptr);
  for (size_t i = 0; i < 30; ++i) CHECK((wide_y[i] == 9.0f) == (i >= 20));
  a.dq = dq.data(), a.dlatent = dl.data(), a.dparts = dp.data();
  cuda::latent_heads_backward(a, nullptr);
  for (size_t i = 0; i < 12; ++i) CHECK((dq[i] == 9.0f) == (i >= 8));
  for (size_t i = 0; i < 9; ++i) CHECK((dl[i] == 9.0f) == (i >= 6));
  for (size_t i = 0; i < 12; ++i) CHECK((dp[i] == 9.0f) == (i >= 8));
}

TEST_CASE("rows of whole packs that begin inside one are appended element by element") {
  DeviceBuffer<bf16> source(values<bf16>(1, 2 * 24)), cache(2 * 8, bf16(0.0f));
  DeviceBuffer<std::int32_t> counts(Ints{0, 0});
  cuda::KvAppendArgs a;
  a.type = a.kv_type = DType::kBF16, a.rows = {2, 1, nullptr}, a.row_limit = 2, a.width = 8, a.stride = 24, a.offset = 12, a.room = 1;
  a.source = source.data(), a.cache = cache.data(), a.counts = counts.data();
  cuda::kv_append(a, nullptr);
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 8; ++c) CHECK(static_cast<float>(cache[r * 8 + c]) == static_cast<float>(source[r * 24 + 12 + c]));
}

template <class T, class K>
void check_append(const Ints& per_sequence, std::int64_t width, std::int64_t stride, std::int64_t room, bool ragged) {
  const auto sequences = static_cast<std::int64_t>(per_sequence.size());
  Ints offsets = {0}, counts;
  for (size_t s = 0; s < per_sequence.size(); ++s) offsets.push_back(offsets.back() + per_sequence[s]), counts.push_back(static_cast<std::int32_t>(s % 3));
  const std::int64_t rows = offsets.back();
  const auto source = values<T>(1, static_cast<size_t>(rows * stride));
  const auto cache = values<K>(2, static_cast<size_t>(sequences * room * width));
  std::vector<double> wide_source = wide(source), want = wide(cache);
  Ints want_counts = counts;
  reference::RowsPerSequence list(per_sequence.begin(), per_sequence.end());
  reference::kv_append(list, width, matrix(wide_source, rows, stride), matrix(want, sequences * room, width), want_counts.data());
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> b(source);
    DeviceBuffer<K> c(cache);
    DeviceBuffer<std::int32_t> n(counts), o(offsets), full(1, 0);
    cuda::KvAppendArgs a;
    a.type = dtype_of<T>(), a.kv_type = dtype_of<K>();
    a.rows = {sequences, per_sequence.empty() ? 0 : per_sequence[0], ragged ? o.data() : nullptr};
    a.row_limit = rows + 3, a.width = width, a.stride = stride, a.offset = stride - width, a.room = room;
    a.source = b.data(), a.cache = c.data(), a.counts = n.data(), a.full = full.data();
    cuda::kv_append(a, nullptr);
    return std::array<std::vector<float>, 3>{narrow(c), std::vector<float>(n.data(), n.data() + n.size()), std::vector<float>{static_cast<float>(full[0])}};
  });
  require_close(got[0], want, sizeof(K) == 2 ? 0x1p-8 : 0, "cache");
  require_close(got[1], std::vector<double>(want_counts.begin(), want_counts.end()), 0, "counts");
  CHECK(got[2][0] == 0);
}

TEST_CASE("keys and values are appended to ragged lists") {
  check_append<float, float>({2, 0, 3, 1}, 6, 10, 8, true);
  check_append<bf16, bf16>({1, 1, 1, 1, 1}, 16, 48, 4, false);
  check_append<bf16, float>({0, 0, 5}, 8, 24, 9, true);
  check_append<float, bf16>({1, 0, 0, 1}, 3, 5, 4, true);
}

TEST_CASE("a full list is reported and not overrun") {
  DeviceBuffer<float> source(std::vector<float>(8, 1.0f)), cache(std::vector<float>(8, 0.0f));
  DeviceBuffer<std::int32_t> counts(Ints{0, 2}), full(1, 0);
  cuda::KvAppendArgs a;
  a.rows = {2, 1, nullptr}, a.row_limit = 2, a.width = 2, a.stride = 4, a.offset = 2, a.room = 2;
  a.source = source.data(), a.cache = cache.data(), a.counts = counts.data(), a.full = full.data();
  cuda::kv_append(a, nullptr);
  CHECK(full[0] == 2);
  CHECK(counts.host() == Ints{1, 2});
  CHECK(cache.host() == std::vector<float>{1, 1, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("positions are kept beside the appended rows of ragged lists") {
  // Rows 5 and 8 go behind one key of the first list, nothing to the second, row 3 into the empty third; room for three each.
  DeviceBuffer<float> source(std::vector<float>(6, 1.0f)), cache(std::vector<float>(18, 0.0f));
  DeviceBuffer<std::int32_t> counts(Ints{1, 2, 0}), positions(Ints{5, 8, 3}), offsets(Ints{0, 2, 2, 3}), kept(Ints{0, -1, -1, 4, 6, -1, -1, -1, -1}), full(1, 0);
  cuda::KvAppendArgs a;
  a.rows = {3, 0, offsets.data()}, a.row_limit = 3, a.width = 2, a.stride = 2, a.room = 3;
  a.source = source.data(), a.cache = cache.data(), a.counts = counts.data(), a.positions = positions.data(), a.kept = kept.data(), a.full = full.data();
  cuda::kv_append(a, nullptr);
  CHECK(kept.host() == Ints{0, 5, 8, 4, 6, -1, 3, -1, -1});
  CHECK(counts.host() == Ints{3, 2, 1});
  CHECK(full[0] == 0);
}

TEST_CASE("latent heads are copied together and taken apart again") {
  for (const bool absorbed : {false, true}) {
    for (const bool queries : {true, false}) {
      if (absorbed && !queries) continue;
      cuda::LatentArgs a;
      a.rows = {3}, a.heads = 2, a.nope = 5, a.rope = 3, a.v = 4, a.rank = 7, a.absorbed = absorbed, a.queries = queries;
      const size_t qk = 8, part = absorbed ? 7 : 9, width = static_cast<size_t>(cuda::latent_row_width(a));
      const auto q = values<float>(1, 3 * 2 * qk), latent = values<float>(2, 3 * 10), parts = values<float>(3, 3 * 2 * part);
      std::vector<float> want;
      for (size_t r = 0; r < 3; ++r) {
        const auto take = [&](const std::vector<float>& from, size_t first, size_t n) { want.insert(want.end(), from.begin() + static_cast<std::ptrdiff_t>(first), from.begin() + static_cast<std::ptrdiff_t>(first + n)); };
        if (absorbed) {
          for (size_t h = 0; h < 2; ++h) take(parts, r * 14 + h * 7, 7), take(q, r * 16 + h * 8 + 5, 3);
          continue;
        }
        if (queries) take(q, r * 16, 16);
        for (size_t h = 0; h < 2; ++h) take(parts, r * 18 + h * 9, 5), take(latent, r * 10 + 7, 3);
        for (size_t h = 0; h < 2; ++h) take(parts, r * 18 + h * 9 + 5, 4);
      }
      const auto got = in_all_orders([&] {
        DeviceBuffer<float> bq(q), bl(latent), bp(parts), y(3 * width), dq(3 * 2 * qk, 9.0f), dl(30, 9.0f), dp(3 * 2 * part, 9.0f);
        cuda::LatentArgs c = a;
        c.q = bq.data(), c.latent = bl.data(), c.parts = bp.data(), c.y = y.data();
        cuda::latent_heads(c, nullptr);
        c.dq = dq.data(), c.dlatent = dl.data(), c.dparts = dp.data();
        if (!absorbed) cuda::latent_heads_backward(c, nullptr);
        return std::array<std::vector<float>, 4>{y.host(), dq.host(), dl.host(), dp.host()};
      });
      CHECK(got[0] == want);
      if (absorbed) continue;
      if (queries) CHECK(got[1] == q);
      CHECK(got[3] == parts);
      for (size_t r = 0; r < 3; ++r)
        for (size_t c = 0; c < 10; ++c) CHECK(got[2][r * 10 + c] == (c < 7 ? 0.0f : 2 * latent[r * 10 + c]));
    }
  }
}

// What kernels/cpu/sampling.cpp does, in doubles: tokens by falling probability, ties to the lower token.
std::int32_t drawn(const std::vector<float>& logits, double temperature, double top_p, double u) {
  std::vector<double> p;
  double top = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (const float l : logits) p.push_back(std::exp((l - top) / temperature)), sum += p.back();
  for (double& x : p) x = static_cast<double>(static_cast<float>(x / sum));
  std::vector<std::int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  size_t kept = p.size();
  if (top_p < 1) {
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)]; });
    double mass = 0;
    for (kept = 0; kept < p.size() && mass < top_p;) mass += p[static_cast<size_t>(order[kept++])];
  }
  double total = 0, run = 0;
  for (size_t i = 0; i < kept; ++i) total += p[static_cast<size_t>(order[i])];
  for (size_t i = 0; i < kept; ++i) {
    run += p[static_cast<size_t>(order[i])];
    if (run > u * total) return order[i];
  }
  return order[kept - 1];
}

TEST_CASE("argmax takes the first of equals and reports NaN; draws are those of the reference") {
  const std::int64_t vocab = 1300;
  std::vector<float> logits = values<float>(9, 4 * 1300, 3.0);
  logits[700] = logits[900] = 5.0f;
  for (size_t c = 0; c < 1300; ++c) logits[1300 + c] = static_cast<float>(c % 5);  // many equal probabilities
  for (size_t c = 0; c < 1300; ++c) logits[2600 + c] = 1.0f;
  logits[3900 + 17] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> uniforms = {0.37, 0.81, 0.5003, 0.2};
  for (const double temperature : {0.0, 1.0, 0.7}) {
    for (const double top_p : {1.0, 0.9, 0.3}) {
      const auto got = in_all_orders([&] {
        DeviceBuffer<float> l(logits), p(4 * 1300);
        DeviceBuffer<double> u(uniforms);
        DeviceBuffer<std::int32_t> tokens(4, 7);
        cuda::SamplingArgs a;
        a.rows = 4, a.vocab = a.stride = vocab, a.inverse_temperature = temperature > 0 ? static_cast<float>(1 / temperature) : 0.0f, a.top_p = top_p;
        a.logits = l.data(), a.uniforms = u.data(), a.probabilities = p.data(), a.tokens = tokens.data();
        cuda::sample(a, nullptr);
        return tokens.host();
      });
      INFO("temperature " << temperature << " top_p " << top_p);
      CHECK(got[3] == -1);
      for (size_t r = 0; r < 3; ++r) {
        const std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(r * 1300), logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * 1300));
        const auto first = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
        CHECK(got[r] == (temperature > 0 ? drawn(row, temperature, top_p, uniforms[r]) : first));
      }
    }
  }
}

TEST_CASE("a draw exactly between two tokens takes the second") {
  // Probabilities 1/2, 1/4, 1/8, 1/8, of which all lie in the nucleus of 0.95: 0.5 is where token 0 ends, 0.75 where token 1 does.
  // In a vocabulary of 4 every token has a thread of its own, in one of 2048 the four lie with one thread and nothing else has mass.
  const float half = -std::log(2.0f);
  for (const size_t vocab : {4u, 2048u}) {
    std::vector<float> row(vocab, -std::numeric_limits<float>::infinity()), want(vocab, 0.0f);
    row[0] = 0, row[1] = half, row[2] = row[3] = 2 * half;
    want[0] = 0.5f, want[1] = 0.25f, want[2] = want[3] = 0.125f;
    DeviceBuffer<float> logits(row), p(vocab);
    for (const double top_p : {1.0, 0.95}) {
      for (const auto& [u, token] : {std::pair{0.499, 0}, std::pair{0.5, 1}, std::pair{0.75, 2}, std::pair{0.875, 3}}) {
        DeviceBuffer<double> uniforms(1, u);
        DeviceBuffer<std::int32_t> tokens(1, 7);
        cuda::SamplingArgs a;
        a.rows = 1, a.vocab = a.stride = static_cast<std::int64_t>(vocab), a.inverse_temperature = 1.0f, a.top_p = top_p;
        a.logits = logits.data(), a.uniforms = uniforms.data(), a.probabilities = p.data(), a.tokens = tokens.data();
        cuda::sample(a, nullptr);
        INFO("vocabulary " << vocab << " top_p " << top_p << " u " << u);
        REQUIRE((p.host() == want));
        CHECK(tokens[0] == token);
      }
    }
  }
}

}  // namespace
}  // namespace fathom
