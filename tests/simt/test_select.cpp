// Selection, gather, scatter, router: kernels on fibers against the reference, with the tie rule in particular.
#include <algorithm>
#include <limits>

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/router.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/reference/route.hpp"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;
using Ints = std::vector<std::int32_t>;

struct Selected {
  Ints indices, positions, counts, offsets, inverse, rest;
  int nan = 0;
  bool operator==(const Selected&) const = default;
};

Selected run_select(bool top, std::int64_t sequences, std::int64_t length, std::int64_t k, float threshold, const std::vector<float>& scores) {
  const auto n = static_cast<size_t>(sequences * length);
  DeviceBuffer<float> s(scores);
  Ints positions(n);
  for (size_t i = 0; i < n; ++i) positions[i] = static_cast<std::int32_t>(3 * i + 7);
  DeviceBuffer<std::int32_t> p(positions), indices(n), selected(n), counts(static_cast<size_t>(sequences)), offsets(static_cast<size_t>(sequences + 1)), inverse(n, 7), rest(n), nan(1, 0), rest_count(1, -7);
  cuda::SelectArgs a;
  a.sequences = sequences, a.length = length, a.k = k, a.threshold = threshold, a.top = top;
  a.scores = s.data(), a.positions = p.data(), a.indices = indices.data(), a.selected_positions = selected.data(), a.counts = counts.data();
  a.offsets = offsets.data(), a.inverse = inverse.data(), a.rest = rest.data(), a.nan_row = nan.data(), a.rest_count = rest_count.data();
  cuda::select(a, nullptr);
  Selected out{indices.host(), selected.host(), counts.host(), offsets.host(), inverse.host(), rest.host(), nan[0]};
  const auto total = static_cast<size_t>(out.offsets.back());
  CHECK(rest_count[0] == (top ? -7 : static_cast<std::int32_t>(n - total)));  // top-k: known without it
  out.indices.resize(total), out.positions.resize(total), out.rest.resize(n - total);
  return out;
}

Selected expected_selection(bool top, std::int64_t sequences, std::int64_t length, std::int64_t k, float threshold, const std::vector<float>& scores) {
  Selected e;
  e.offsets.push_back(0);
  for (std::int64_t b = 0; b < sequences; ++b) {
    Ints chosen;
    const float* own = scores.data() + b * length;
    (void)(top ? reference::select_top(own, length, k, chosen) : reference::select_above(own, length, static_cast<double>(threshold), chosen));
    size_t next = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto row = static_cast<std::int32_t>(b * length + i);
      if (next < chosen.size() && chosen[next] == i) {
        e.inverse.push_back(static_cast<std::int32_t>(e.indices.size()));
        e.indices.push_back(row), e.positions.push_back(3 * row + 7);
        ++next;
      } else {
        e.inverse.push_back(-1), e.rest.push_back(row);
      }
    }
    e.counts.push_back(static_cast<std::int32_t>(chosen.size())), e.offsets.push_back(static_cast<std::int32_t>(e.indices.size()));
  }
  return e;
}

std::vector<float> score_rows(int kind, size_t n) {
  std::vector<float> s(n);
  for (size_t i = 0; i < n; ++i) {
    const double v = value_at(77, i);
    switch (kind) {
      case 0: s[i] = static_cast<float>(v); break;
      case 1: s[i] = static_cast<float>(bf16(static_cast<float>(v * 0.1))); break;                                         // many ties
      case 2: s[i] = 0.5f; break;                                                                                         // all equal
      case 3: s[i] = i % 3 == 0 ? -0.0f : 0.0f; break;                                                                    // signed zeros tie
      case 4: s[i] = i % 5 == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(std::ldexp(v, static_cast<int>(i % 60) - 30)); break;
      default: s[i] = static_cast<float>(static_cast<int>(i % 4) - 2); break;
    }
  }
  return s;
}

TEST_CASE("top-k selects what the reference selects, ties to the lower position, ascending, in every order") {
  for (int kind = 0; kind <= 5; ++kind) {
    for (const auto& [sequences, length, k] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 0}, {1, 1, 1}, {3, 5, 2}, {2, 37, 37}, {2, 37, 0}, {1, 513, 64}, {2, 1100, 137}}) {
      INFO("kind " << kind << " sequences " << sequences << " length " << length << " k " << k);
      const auto scores = score_rows(kind, static_cast<size_t>(sequences * length));
      const auto got = in_all_orders([&] { return run_select(true, sequences, length, k, 0.0f, scores); });
      const auto want = expected_selection(true, sequences, length, k, 0.0f, scores);
      CHECK((got == want));
    }
  }
}

TEST_CASE("threshold selection is strict and packs sequences, one candidate or many") {
  for (int kind = 0; kind <= 5; ++kind) {
    for (const auto& [sequences, length] : std::vector<std::array<std::int64_t, 2>>{{1, 1}, {7, 1}, {600, 1}, {3, 5}, {2, 700}, {1, 0}}) {
      const auto scores = score_rows(kind, static_cast<size_t>(sequences * length));
      for (const float threshold : {0.0f, 0.5f, -3.0f, 9.0f}) {
        INFO("kind " << kind << " sequences " << sequences << " length " << length << " threshold " << threshold);
        if (length == 0) continue;
        const auto got = in_all_orders([&] { return run_select(false, sequences, length, 0, threshold, scores); });
        CHECK((got == expected_selection(false, sequences, length, 0, threshold, scores)));
      }
    }
  }
}

TEST_CASE("threshold selection adds up more sequences than one block has threads") {
  const auto scores = score_rows(1, 520 * 2);
  CHECK((run_select(false, 520, 2, 0, 0.0f, scores) == expected_selection(false, 520, 2, 0, 0.0f, scores)));
}

TEST_CASE("a score that is not a number is reported with its row") {
  auto scores = score_rows(0, 40);
  scores[23] = std::numeric_limits<float>::quiet_NaN();
  CHECK(run_select(true, 2, 20, 5, 0.0f, scores).nan == 24);
  CHECK(run_select(false, 2, 20, 0, 0.0f, scores).nan == 24);
  CHECK(run_select(false, 40, 1, 0, 0.0f, scores).nan == 24);
}

// A selection by counting, with planted defects: 1 ties to the higher position, 2 indices in order of arrival, 3 no barrier before the flags are read,
// 4 one index too many.
struct CountingArgs {
  const float* scores = nullptr;
  std::int32_t* indices = nullptr;
  std::int32_t* cursor = nullptr;
  int length = 0, k = 0, defect = 0;
};
FATHOM_KERNEL(64) counting_kernel(CountingArgs a) {
  std::int32_t* chosen = dev::smem<std::int32_t>();
  const int i = dev::tid();
  int rank = 0;
  for (int j = 0; j < a.length; ++j) {
    const float own = i < a.length ? a.scores[i] : 0.0f;
    if (a.scores[j] > own || (a.scores[j] == own && (a.defect == 1 ? j > i : j < i))) ++rank;
  }
  const bool take = i < a.length && rank < a.k + (a.defect == 4 ? 1 : 0);
  chosen[i] = take;
  if (a.defect != 3) dev::block_sync();
  int at = 0;
  for (int j = 0; j < i; ++j) at += chosen[j];
  if (a.defect == 2 && take) at = dev::atomic_add(a.cursor, 1);
  if (take) a.indices[at] = i;
}

TEST_CASE("a wrong tie order, unsorted indices, a missing barrier and one index too many are found") {
  const auto scores = score_rows(5, 40);
  const auto want = expected_selection(true, 1, 40, 13, 0.0f, scores).indices;
  std::string message;
  const auto run = [&](int defect, Order order) {
    DeviceBuffer<float> s(scores);
    DeviceBuffer<std::int32_t> indices(13), cursor(1, 0);
    message = failure_of([&] { launch(counting_kernel, cuda::LaunchShape{1, 1, 1, 64, 256}, CountingArgs{s.data(), indices.data(), cursor.data(), 40, 13, defect}, nullptr); }, order);
    return indices.host();
  };
  CHECK(run(0, Order::kReverse) == want);
  CHECK(message == "");
  CHECK(run(1, Order::kForward) != want);  // against the reference
  CHECK(run(2, Order::kForward) == want);  // passes in the naive order ...
  CHECK(run(2, Order::kReverse) != want);  // ... and in no other
#ifndef __SANITIZE_ADDRESS__
  run(3, Order::kForward);  // earlier threads wrote what later ones read, so that every value is right: still a race
  CHECK(message.find("race: read without a barrier after a write by thread 0") != std::string::npos);
  run(4, Order::kForward);
  CHECK(message.find("write out of bounds: byte 52 of a buffer of 52 bytes") != std::string::npos);
#endif
}

constexpr Gate kGates[] = {{GateKind::kNone, 1, 0}, {GateKind::kRaw, 1, 0}, {GateKind::kSigmoid, 1, 0}, {GateKind::kScaledSigmoid, 0.3, 0}, {GateKind::kTanh, 0.2, 1.0}};

template <class T>
void check_rows(std::int64_t all, std::int64_t width, const Ints& indices, const Gate& gate, bool replace, bool in_place) {
  const auto w = static_cast<size_t>(width), n = indices.size(), total = static_cast<size_t>(all) * w;
  const auto x = values<T>(1, total), f = values<T>(2, n * w);
  const auto scores = values<float>(3, static_cast<size_t>(all), 2.0), old = values<float>(4, static_cast<size_t>(all));
  Ints inverse(static_cast<size_t>(all), -1);
  for (size_t r = 0; r < n; ++r) inverse[static_cast<size_t>(indices[r])] = static_cast<std::int32_t>(r);
  std::vector<double> y = wide(x), gathered, df, dscores = wide(old), dy = wide(x), fw = wide(f);
  for (size_t r = 0; r < n; ++r) {
    const auto i = static_cast<size_t>(indices[r]);
    const double score = static_cast<double>(scores[i]), g = reference::gate_value(gate, score);
    double dot = 0;
    for (size_t c = 0; c < w; ++c) {
      gathered.push_back(y[i * w + c]);
      dot += dy[i * w + c] * fw[r * w + c];
      df.push_back(g * dy[i * w + c]);
    }
    for (size_t c = 0; c < w; ++c) y[i * w + c] = (replace ? 0.0 : y[i * w + c]) + g * fw[r * w + c];
    dscores[i] += reference::gate_slope(gate, score) * dot;
    if (replace) std::fill_n(dy.begin() + static_cast<std::ptrdiff_t>(i * w), w, 0.0);
  }
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> bx(x), by(total), bf(f), bg(n * w), bdf(n * w), bdy(x);
    DeviceBuffer<float> bs(scores), bd(old);
    DeviceBuffer<std::int32_t> bi(indices), binv(inverse), count(1, static_cast<std::int32_t>(n));
    // The count comes from the device: the grid is made for two rows more.
    const cuda::RowCount rows{static_cast<std::int64_t>(n) + 2, count.data()};
    cuda::gather({dtype_of<T>(), rows, width, bx.data(), bi.data(), bg.data()}, nullptr);
    cuda::ScatterArgs s;
    s.type = dtype_of<T>(), s.rows = rows, s.all_rows = all, s.width = width, s.gate = gate, s.replace = replace;
    s.x = bx.data(), s.f = bf.data(), s.indices = bi.data(), s.inverse = binv.data(), s.scores = bs.data(), s.y = in_place ? bx.data() : by.data();
    cuda::scatter(s, nullptr);
    cuda::ScatterBackwardArgs b;
    b.type = dtype_of<T>(), b.rows = rows, b.width = width, b.gate = gate, b.replace = replace, b.accumulate = true;
    b.dy = bdy.data(), b.f = bf.data(), b.indices = bi.data(), b.scores = bs.data(), b.df = bdf.data(), b.dscores = bd.data();
    cuda::scatter_backward(b, nullptr);
    return std::array<std::vector<float>, 5>{narrow(bg), narrow(in_place ? bx : by), narrow(bdf), narrow(bdy), bd.host()};
  });
  require_close(got[0], gathered, 0, "gather");
  require_close(got[1], y, tolerance<T>(), "scatter");
  require_close(got[2], df, tolerance<T>(), "df");
  require_close(got[3], dy, 0, "dy");
  require_close(got[4], dscores, 1e-4, "dscores");
  for (size_t r = 0; r < static_cast<size_t>(all); ++r)
    for (size_t c = 0; c < w && inverse[r] < 0; ++c) REQUIRE(got[1][r * w + c] == static_cast<float>(x[r * w + c]));  // bit-identical bypass
}

TEST_CASE("rows are gathered and scattered as the reference does; rows not selected keep their bits") {
  for (const Gate& gate : kGates) {
    for (const bool replace : {false, true}) {
      for (const bool in_place : {false, true}) {
        check_rows<float>(9, 40, {1, 2, 5, 8}, gate, replace, in_place);
        check_rows<bf16>(9, 1032, {0, 7}, gate, replace, in_place);
        check_rows<bf16>(3, 33, {0, 1, 2}, gate, replace, in_place);
        check_rows<float>(4, 7, {}, gate, replace, in_place);
      }
    }
  }
}

TEST_CASE("a gate's gradient overwrites what is there, the rows' gradient may overwrite the rows, and no gate needs no scores") {
  // Row 1 of two was taken, gated by its score 2: df = 2 (3, 4), dscore = 3 x 0.5 - 4 x 1.
  DeviceBuffer<float> dy(std::vector<float>{1, 2, 3, 4}), f(std::vector<float>{0.5f, -1.0f}), scores(std::vector<float>{9, 2}), dscores(std::vector<float>{7, 7});
  DeviceBuffer<std::int32_t> indices(1, 1);
  cuda::ScatterBackwardArgs a;
  a.rows = {1}, a.width = 2, a.gate = {GateKind::kRaw, 1, 0}, a.indices = indices.data();
  a.dy = dy.data(), a.f = a.df = f.data(), a.scores = scores.data(), a.dscores = dscores.data();
  cuda::scatter_backward(a, nullptr);
  CHECK(f.host() == std::vector<float>{6, 8});
  CHECK(dscores.host() == std::vector<float>{7, -2.5f});
  CHECK(dy.host() == std::vector<float>{1, 2, 3, 4});
  a.gate = {GateKind::kNone, 1, 0}, a.scores = nullptr, a.dscores = nullptr;
  cuda::scatter_backward(a, nullptr);
  CHECK(f.host() == std::vector<float>{3, 4});
}

template <class T>
void check_router(std::int64_t rows, std::int64_t width, const Ints& indices, bool all_weights, bool all_inputs, double detached, bool accumulate) {
  const auto n = static_cast<size_t>(rows), w = static_cast<size_t>(width);
  const auto x = values<T>(1, n * w), weight = values<T>(2, w), bias = values<float>(3, 1), before = values<T>(5, n * w);
  const auto old_w = values<float>(6, w), dscores = values<float>(7, n);
  std::vector<double> wx = wide(x), ww = wide(weight), wb = wide(bias), scores(n), wd = wide(dscores), dw = wide(old_w), db = {0.25}, dx = wide(before), gathered;
  reference::router_score(rows, matrix(wx, rows, width), matrix(ww, 1, width), matrix(wb, 1, 1), matrix(scores, rows, 1));
  Ints inverse(n, -1);
  for (size_t r = 0; r < indices.size(); ++r) {
    inverse[static_cast<size_t>(indices[r])] = static_cast<std::int32_t>(r);
    for (size_t c = 0; c < w; ++c) gathered.push_back(wx[static_cast<size_t>(indices[r]) * w + c]);
  }
  std::vector<double> aux(n);
  const double loss = reference::router_loss(rows, 0.7, matrix(scores, rows, 1), indices.data(), static_cast<std::int64_t>(indices.size()), matrix(aux, rows, 1));
  reference::RouterGradient<double> g;
  g.y = matrix(wx, rows, width), g.gathered = matrix(gathered, static_cast<std::int64_t>(indices.size()), width), g.w = matrix(ww, 1, width), g.dscores = matrix(wd, rows, 1);
  g.dw = matrix(dw, 1, width), g.db = matrix(db, 1, 1), g.dx = matrix(dx, rows, width), g.indices = indices.data(), g.selected = static_cast<std::int64_t>(indices.size());
  g.all_weight_rows = all_weights, g.all_input_rows = all_inputs, g.accumulate = accumulate, g.scores = matrix(scores, rows, 1), g.detached_lambda = detached;
  reference::router_score_backward(rows, g);
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> bx(x), bw(weight), bg(indices.size() * w), bdx(before);
    DeviceBuffer<float> bb(bias), bs(n), baux(n), bloss(1), bd(dscores), bdw(old_w), bdb(1, 0.25f);
    DeviceBuffer<std::int32_t> binv(inverse), bi(indices);
    cuda::router_score({dtype_of<T>(), rows, width, bx.data(), bw.data(), bb.data(), DType::kF32, bs.data()}, nullptr);
    cuda::RouterLossArgs l;
    l.rows = rows, l.weight = static_cast<float>(0.7 / static_cast<double>(rows)), l.scores = bs.data(), l.inverse = binv.data(), l.dscores = baux.data(), l.loss = bloss.data();
    DeviceBuffer<float> sums(static_cast<size_t>(cuda::router_loss_launch(l).grid_x));
    l.partials = sums.data();
    cuda::router_loss(l, nullptr);
    cuda::gather({dtype_of<T>(), {static_cast<std::int64_t>(indices.size())}, width, bx.data(), bi.data(), bg.data()}, nullptr);
    cuda::RouterBackwardArgs b;
    b.type = dtype_of<T>(), b.rows = rows, b.width = width, b.all_weight_rows = all_weights, b.all_input_rows = all_inputs, b.accumulate = accumulate;
    b.detached_weight = static_cast<float>(detached / static_cast<double>(rows));
    b.y = bx.data(), b.gathered = bg.data(), b.inverse = binv.data(), b.w = bw.data(), b.dscores = bd.data(), b.scores = bs.data();
    b.dw = bdw.data(), b.db = bdb.data(), b.dx = bdx.data();
    DeviceBuffer<float> partials(static_cast<size_t>(cuda::router_partial_floats(b)));
    b.partials = partials.data();
    cuda::router_backward(b, nullptr);
    return std::array<std::vector<float>, 6>{bs.host(), baux.host(), bloss.host(), bdw.host(), bdb.host(), narrow(bdx)};
  });
  require_close(got[0], scores, 1e-5, "scores");
  require_close(got[1], aux, 1e-6, "dscores of the loss");
  require_close(got[2], {loss}, 1e-5, "loss");
  require_close(got[3], dw, 1e-4, "dw");
  require_close(got[4], db, 1e-4, "db");
  require_close(got[5], dx, tolerance<T>(), "dx");
}

TEST_CASE("router scores, auxiliary loss and gradients equal the reference") {
  for (const bool accumulate : {false, true}) {
    check_router<float>(11, 24, {1, 4, 9}, true, true, 0, accumulate);
    check_router<bf16>(37, 1096, {0, 1, 5, 36}, true, true, 0, accumulate);
    check_router<float>(300, 7, {3, 299}, false, false, 0, accumulate);
    check_router<bf16>(40, 64, {2, 30, 31}, true, false, 0.7, accumulate);
    check_router<float>(1, 5, {}, true, true, 0, accumulate);
    check_router<bf16>(20, 2064, {3, 19}, true, true, 0, accumulate);  // two strips of columns
  }
}

TEST_CASE("a plain router: every row counts, its gradient overwrites, its bias may be bf16; and column sums of a gradient") {
  // x [3, 4], w [4]; d = {1, -2, 0.5}.
  const std::vector<bf16> x = {bf16(1.0f), bf16(2.0f), bf16(-1.0f), bf16(0.5f), bf16(0.0f), bf16(1.0f), bf16(1.0f), bf16(2.0f), bf16(-2.0f), bf16(4.0f), bf16(0.0f), bf16(-1.0f)};
  const std::vector<bf16> w = {bf16(1.0f), bf16(-1.0f), bf16(2.0f), bf16(0.5f)};
  DeviceBuffer<bf16> bx(x), bw(w), bias(1, bf16(0.25f)), dx(12, bf16(std::numeric_limits<float>::quiet_NaN()));
  DeviceBuffer<float> scores(3), d(std::vector<float>{1.0f, -2.0f, 0.5f}), dw(4), db(1), partials(1024);
  cuda::router_score({DType::kBF16, 3, 4, bx.data(), bw.data(), bias.data(), DType::kBF16, scores.data()}, nullptr);
  CHECK(scores.host() == std::vector<float>{-2.5f, 2.25f, -6.25f});  // 1 - 2 - 2 + 0.25 + 0.25; 0 - 1 + 2 + 1 + 0.25; -2 - 4 + 0 - 0.5 + 0.25
  cuda::RouterBackwardArgs b;
  b.type = DType::kBF16, b.rows = 3, b.width = 4, b.all_weight_rows = b.all_input_rows = b.overwrite_input = true;
  b.y = bx.data(), b.w = bw.data(), b.dscores = d.data(), b.dw = dw.data(), b.db = db.data(), b.dx = dx.data(), b.partials = partials.data();
  REQUIRE(cuda::router_partial_floats(b) <= 1024);
  cuda::router_backward(b, nullptr);
  CHECK(dw.host() == std::vector<float>{0.0f, 2.0f, -3.0f, -4.0f});  // 1 - 0 - 1; 2 - 2 + 2; -1 - 2 + 0; 0.5 - 4 - 0.5
  CHECK(db[0] == -0.5f);
  CHECK(narrow(dx) == std::vector<float>{1, -1, 2, 0.5, -2, 2, -4, -1, 0.5, -0.5, 1, 0.25});
  // A bias gradient: every row counts once, no input gradient, nothing of weights or scores is read.
  DeviceBuffer<float> ones(3, 1.0f), sums(4);
  cuda::RouterBackwardArgs c;
  c.type = DType::kBF16, c.rows = 3, c.width = 4, c.all_weight_rows = c.no_input = true, c.y = bx.data(), c.dscores = ones.data(), c.dw = sums.data(), c.partials = partials.data();
  cuda::router_backward(c, nullptr);
  CHECK(sums.host() == std::vector<float>{-1.0f, 7.0f, 0.0f, 1.5f});
}

TEST_CASE("a router's loss over more rows than its blocks take at once") {
  const std::int64_t rows = cuda::kRouterBlocks * cuda::kRouterThreads + 300;
  DeviceBuffer<float> scores(static_cast<size_t>(rows), 0.0f), dscores(static_cast<size_t>(rows), 9.0f), loss(1);
  DeviceBuffer<std::int32_t> inverse(static_cast<size_t>(rows), -1);
  inverse[static_cast<size_t>(rows - 1)] = 0;
  cuda::RouterLossArgs a;
  a.rows = rows, a.weight = 0.5f, a.scores = scores.data(), a.inverse = inverse.data(), a.dscores = dscores.data(), a.loss = loss.data();
  DeviceBuffer<float> partials(static_cast<size_t>(cuda::router_loss_launch(a).grid_x));
  a.partials = partials.data();
  cuda::router_loss(a, nullptr);
  CHECK(loss[0] == Approx(0.5 * static_cast<double>(rows) * std::log(2.0)));
  for (std::int64_t i = 0; i < rows; ++i) REQUIRE(dscores[static_cast<size_t>(i)] == (i == rows - 1 ? -0.25f : 0.25f));
}

}  // namespace
}  // namespace fathom
