// Norm kernels on fibers against the reference in f64.
#include "kernels/cuda/norm.cuh"
#include "kernels/reference/norm.hpp"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;

struct Shape {
  std::int64_t rows, width, groups;
  bool centred;
};
// Warp and block kernels, packs and single elements, rows longer than what registers keep, no rows.
constexpr Shape kShapes[] = {{0, 64, 1, false}, {1, 8, 1, true},    {3, 33, 1, false}, {5, 129, 1, true},   {4, 16, 3, false},
                             {9, 96, 1, true},  {2, 2056, 1, false}, {3, 1160, 1, true}, {2, 515, 1, false}, {1, 9000, 1, true}};

template <class T>
void check_forward(const Shape& s, bool gather) {
  const auto cols = static_cast<size_t>(s.width * s.groups), rows = static_cast<size_t>(s.rows);
  const auto x = values<T>(1, (rows + 2) * cols), gain = values<T>(2, static_cast<size_t>(s.width)), bias = values<T>(3, static_cast<size_t>(s.width));
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < s.rows; ++r) indices.push_back(static_cast<std::int32_t>(gather ? (r * 2 + 1) % (s.rows + 2) : r));
  const auto run = [&] {
    DeviceBuffer<T> dx(x), dgain(gain), dbias(bias), y(rows * cols);
    DeviceBuffer<float> stats(2 * rows * static_cast<size_t>(s.groups));
    DeviceBuffer<std::int32_t> di(indices);
    cuda::NormArgs a;
    a.type = dtype_of<T>();
    a.rows.limit = a.declared_rows = s.rows;
    a.width = s.width, a.groups = s.groups, a.stride = s.width * s.groups;
    a.centred = s.centred;
    a.x = dx.data(), a.gain = dgain.data(), a.y = y.data(), a.stats = stats.data();
    if (s.centred) a.bias = dbias.data();
    if (gather) a.indices = di.data();
    cuda::norm(a, nullptr);
    std::vector<float> out = narrow(y);
    for (size_t i = 0; i < (s.centred ? 2 : 1) * rows * static_cast<size_t>(s.groups); ++i) out.push_back(stats[i]);
    return out;
  };
  const auto got = in_all_orders(run);
  std::vector<double> gathered, wg = wide(gain), wb = wide(bias), y(rows * cols), stats(2 * rows * static_cast<size_t>(s.groups));
  for (const std::int32_t i : indices)
    for (size_t c = 0; c < cols; ++c) gathered.push_back(static_cast<double>(static_cast<float>(x[static_cast<size_t>(i) * cols + c])));
  const std::int64_t row_width = s.width * s.groups;
  reference::NormOperands<double> o;
  o.x = matrix(gathered, s.rows, row_width), o.gain = matrix(wg, 1, s.width), o.y = matrix(y, s.rows, row_width), o.stats = matrix(stats, 1, 2 * s.rows);
  if (s.centred) o.bias = matrix(wb, 1, s.width);
  o.rows = o.declared_rows = s.rows, o.width = s.width, o.groups = s.groups;
  if (s.centred)
    reference::layer_norm(o);
  else
    reference::rms_norm(o);
  stats.resize((s.centred ? 2 : 1) * rows * static_cast<size_t>(s.groups));
  y.insert(y.end(), stats.begin(), stats.end());
  require_close(got, y, 2 * tolerance<T>(), "norm");
}

TEST_CASE("norms equal the reference, plain and gathered") {
  for (const Shape& s : kShapes) {
    for (const bool gather : {false, true}) {
      INFO("rows " << s.rows << " width " << s.width << " groups " << s.groups << " gather " << gather);
      check_forward<float>(s, gather);
      check_forward<bf16>(s, gather);
    }
  }
}

template <class T>
void check_backward(const Shape& s, bool accumulate) {
  const auto cols = static_cast<size_t>(s.width * s.groups), rows = static_cast<size_t>(s.rows), width = static_cast<size_t>(s.width);
  const auto x = values<T>(1, rows * cols), gain = values<T>(2, width), dy = values<T>(3, rows * cols), before = values<T>(4, rows * cols);
  const auto old_gain = values<float>(5, width), old_bias = values<float>(6, width);
  std::vector<double> wx = wide(x), wg = wide(gain), wdy = wide(dy), dx = wide(before), dg = wide(old_gain), db = wide(old_bias);
  std::vector<double> scratch(rows * cols), stats(2 * rows * static_cast<size_t>(s.groups));
  const std::int64_t row_width = s.width * s.groups;
  reference::NormOperands<double> o;
  o.x = matrix(wx, s.rows, row_width), o.gain = matrix(wg, 1, s.width), o.y = matrix(scratch, s.rows, row_width), o.stats = matrix(stats, 1, 2 * s.rows);
  o.rows = o.declared_rows = s.rows, o.width = s.width, o.groups = s.groups;
  s.centred ? reference::layer_norm(o) : reference::rms_norm(o);
  reference::NormGradients<double> g{matrix(wdy, s.rows, row_width), matrix(dx, s.rows, row_width), matrix(dg, 1, s.width),
                                     s.centred ? matrix(db, 1, s.width) : reference::Matrix<double>{}, accumulate, accumulate};
  s.centred ? reference::layer_norm_backward(o, g) : reference::rms_norm_backward(o, g);

  const auto run = [&] {
    DeviceBuffer<T> bx(x), bgain(gain), bdy(dy), bdx(before);
    DeviceBuffer<float> bstats(std::vector<float>(stats.begin(), stats.end())), bdg(old_gain), bdb(old_bias);
    cuda::NormBackwardArgs a;
    a.type = dtype_of<T>();
    a.rows.limit = a.declared_rows = s.rows;
    a.width = s.width, a.groups = s.groups, a.stride = a.x_stride = row_width;
    a.centred = s.centred, a.accumulate = a.accumulate_weights = accumulate;
    a.x = bx.data(), a.gain = bgain.data(), a.stats = bstats.data(), a.dy = bdy.data(), a.dx = bdx.data(), a.dgain = bdg.data();
    if (s.centred) a.dbias = bdb.data();
    DeviceBuffer<float> partials(static_cast<size_t>(cuda::norm_partial_floats(a)));
    a.partials = partials.data();
    cuda::norm_backward(a, nullptr);
    std::vector<float> out = narrow(bdx);
    for (size_t i = 0; i < width; ++i) out.push_back(bdg[i]);
    for (size_t i = 0; i < width; ++i) out.push_back(bdb[i]);
    return out;
  };
  const auto got = in_all_orders(run);
  dx.insert(dx.end(), dg.begin(), dg.end());
  dx.insert(dx.end(), db.begin(), db.end());
  require_close(got, dx, 4 * tolerance<T>(), "norm backward");
}

TEST_CASE("norm gradients equal the reference") {
  for (const Shape& s : kShapes) {
    if (s.width > 8192) continue;
    for (const bool accumulate : {false, true}) {
      INFO("rows " << s.rows << " width " << s.width << " groups " << s.groups << " accumulate " << accumulate);
      if (s.width <= 4096) check_backward<float>(s, accumulate);
      check_backward<bf16>(s, accumulate);
    }
  }
}

// Norms inside wider rows, each group with a gain of its own or all with one, fewer rows than declared: query and key norms, and rows that a threshold
// left. Plain loops in f64; whatever is not the norms' own columns and rows keeps its bits.
struct Strided {
  std::int64_t declared, rows, width, groups, gains, stride, offset, x_stride, x_offset;
  bool centred = false, copy = false, bias = false;
};

template <class T>
void check_strided(const Strided& s) {
  INFO("declared " << s.declared << " rows " << s.rows << " width " << s.width << " groups " << s.groups << " gains " << s.gains << " offset " << s.offset << ", " << s.x_offset);
  const auto at = [](std::int64_t i) { return static_cast<size_t>(i); };
  constexpr double kEpsilon = 0.25;  // large enough to matter
  const auto in = values<T>(1, at((s.declared + 1) * s.stride)), x = values<T>(7, at(s.declared * s.x_stride)), dy = values<T>(3, at(s.declared * s.stride)), old = values<T>(4, at(s.declared * s.stride));
  const auto gain = values<T>(2, at(std::max<std::int64_t>(1, s.gains) * s.width)), bias = values<T>(8, at(s.width));
  const auto old_gain = values<float>(5, gain.size());
  const std::vector<double> win = wide(in), wx = wide(x), wdy = wide(dy), wg = wide(gain), wb = wide(bias);
  std::vector<double> y = wide(old), copied(at(s.declared * s.groups * s.width), 9.0), dx = wide(old), dgain = wide(old_gain), stats(at(2 * s.declared * s.groups), 7.0);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const std::int64_t from = (r + 1) * s.stride + s.offset + g * s.width, to = r * s.stride + s.offset + g * s.width, xs = r * s.x_stride + s.x_offset + g * s.width;
      const auto own_gain = [&](std::int64_t c) { return s.gains == 0 ? 1.0 : wg[at((s.gains > 1 ? g * s.width : 0) + c)]; };
      const auto moments = [&](const std::vector<double>& v, std::int64_t first, double& mean, double& inverse) {
        double sum = 0, squares = 0;
        for (std::int64_t c = 0; c < s.width; ++c) sum += v[at(first + c)];
        mean = s.centred ? sum / static_cast<double>(s.width) : 0.0;
        for (std::int64_t c = 0; c < s.width; ++c) squares += (v[at(first + c)] - mean) * (v[at(first + c)] - mean);
        inverse = 1 / std::sqrt(squares / static_cast<double>(s.width) + kEpsilon);
      };
      double mean = 0, inverse = 0;
      moments(win, from, mean, inverse);
      for (std::int64_t c = 0; c < s.width; ++c) {
        y[at(to + c)] = (win[at(from + c)] - mean) * inverse * own_gain(c) + (s.bias ? wb[at(c)] : 0.0);
        copied[at((r * s.groups + g) * s.width + c)] = win[at(from + c)];
      }
      moments(wx, xs, mean, inverse);
      if (s.centred) stats[at(r)] = mean;
      stats[at(s.centred ? s.declared + r : r * s.groups + g)] = inverse;
      double mean_u = 0, mean_uh = 0;
      for (std::int64_t c = 0; c < s.width; ++c) {
        const double h = (wx[at(xs + c)] - mean) * inverse, u = wdy[at(to + c)] * own_gain(c);
        mean_u += s.centred ? u / static_cast<double>(s.width) : 0.0, mean_uh += u * h / static_cast<double>(s.width);
        dgain[at((s.gains > 1 ? g * s.width : 0) + c)] += wdy[at(to + c)] * h;
      }
      for (std::int64_t c = 0; c < s.width; ++c) {
        const double h = (wx[at(xs + c)] - mean) * inverse, u = wdy[at(to + c)] * own_gain(c);
        dx[at(to + c)] = inverse * (u - mean_u - h * mean_uh);
      }
    }
  }
  const auto got = in_all_orders([&] {
    DeviceBuffer<T> bin(in), bx(x), bdy(dy), by(old), bdx(old), bg(gain), bb(bias), bcopy(copied.size(), T(9.0f));
    DeviceBuffer<float> forward_stats(stats.size(), 7.0f), bstats(std::vector<float>(stats.begin(), stats.end())), bdg(old_gain);
    DeviceBuffer<std::int32_t> count(1, static_cast<std::int32_t>(s.rows));
    std::vector<std::int32_t> next;
    for (std::int64_t r = 0; r < s.declared; ++r) next.push_back(static_cast<std::int32_t>(r + 1));
    DeviceBuffer<std::int32_t> indices(next);
    cuda::NormArgs a;
    a.type = dtype_of<T>(), a.rows = {s.declared, count.data()}, a.declared_rows = s.declared, a.width = s.width, a.groups = s.groups, a.gains = s.gains;
    a.stride = s.stride, a.offset = s.offset, a.epsilon = static_cast<float>(kEpsilon), a.centred = s.centred;
    a.x = bin.data(), a.indices = indices.data(), a.gain = s.gains > 0 ? bg.data() : nullptr, a.bias = s.bias ? bb.data() : nullptr, a.y = by.data(), a.stats = forward_stats.data();
    a.copy = s.copy ? bcopy.data() : nullptr;
    cuda::norm(a, nullptr);
    cuda::NormBackwardArgs b;
    b.type = a.type, b.rows = a.rows, b.declared_rows = s.declared, b.width = s.width, b.groups = s.groups, b.gains = s.gains, b.stride = s.stride, b.offset = s.offset;
    b.x_stride = s.x_stride, b.x_offset = s.x_offset, b.centred = s.centred, b.accumulate_weights = true;
    b.x = bx.data(), b.gain = a.gain, b.stats = bstats.data(), b.dy = bdy.data(), b.dx = bdx.data(), b.dgain = s.gains > 0 ? bdg.data() : nullptr;
    DeviceBuffer<float> partials(at(cuda::norm_partial_floats(b)));
    b.partials = partials.data();
    cuda::norm_backward(b, nullptr);
    return std::array<std::vector<float>, 5>{narrow(by), narrow(bcopy), narrow(bdx), bdg.host(), forward_stats.host()};
  });
  require_close(got[0], y, 2 * tolerance<T>(), "y");
  if (s.copy) require_close(got[1], copied, 0, "copy");
  require_close(got[2], dx, 4 * tolerance<T>(), "dx");
  if (s.gains > 0) require_close(got[3], dgain, 1e-4 * std::sqrt(1.0 + static_cast<double>(s.rows)), "dgain");
  for (std::int64_t r = s.rows; r < s.declared; ++r) {  // of rows that are not there nothing is told
    CHECK(got[4][at(s.centred ? r : r * s.groups)] == 7.0f);
    if (s.centred) CHECK(got[4][at(s.declared + r)] == 7.0f);
  }
}

TEST_CASE("norms of parts of rows, with own gains and fewer rows than declared, equal plain loops") {
  check_strided<float>({5, 3, 8, 3, 3, 40, 4, 28, 4, false, true});
  check_strided<bf16>({5, 3, 16, 2, 2, 64, 8, 48, 16, false, true});
  check_strided<bf16>({4, 4, 16, 3, 1, 80, 32, 48, 0, false, true});
  check_strided<float>({3, 2, 10, 2, 0, 31, 7, 23, 3, false, true});       // no gain, nothing aligned
  check_strided<float>({3, 2, 8, 2, 2, 33, 8, 17, 1});                     // heads of whole packs in rows that are none
  check_strided<bf16>({3, 2, 8, 2, 2, 32, 4, 32, 4});                      // ... and at offsets that are none
  check_strided<bf16>({4, 3, 1160, 2, 2, 2336, 8, 2320, 0, false, true});  // a block per norm
  check_strided<float>({6, 4, 24, 1, 1, 24, 0, 24, 0, true, false, true}); // LayerNorm, fewer rows than declared
  check_strided<float>({4, 3, 1160, 1, 1, 1160, 0, 1160, 0, true, false, true});
}

TEST_CASE("weight gradients of norms sum more rows than the blocks take at once") {
  check_strided<float>({2301, 2290, 4, 1, 1, 4, 0, 4, 0, true});      // warps: 264 blocks of 8
  check_strided<float>({301, 300, 516, 1, 1, 516, 0, 516, 0});        // blocks: 264 of one
  check_strided<float>({290, 280, 4, 2, 2, 8, 0, 8, 0});              // own gains: 132 blocks for each group
}

TEST_CASE("norms of whole packs at addresses that are none") {
  const auto x = values<float>(1, 17), gain = values<float>(2, 17), bias = values<float>(3, 17);
  std::vector<double> want;
  double sum = 0, squares = 0;
  for (size_t c = 0; c < 16; ++c) sum += static_cast<double>(x[c + 1]);
  for (size_t c = 0; c < 16; ++c) squares += std::pow(static_cast<double>(x[c + 1]) - sum / 16, 2);
  for (size_t c = 0; c < 16; ++c) want.push_back((static_cast<double>(x[c + 1]) - sum / 16) / std::sqrt(squares / 16 + 1e-5));
  for (int odd = 0; odd < 5; ++odd) {  // one of x, gain, bias, y and the copy begins an element behind
    INFO("operand " << odd);
    const auto got = in_all_orders([&] {
      const auto piece = [](const std::vector<float>& v, bool shifted) { return std::vector<float>(v.begin() + (shifted ? 0 : 1), v.end()); };
      DeviceBuffer<float> bx(piece(x, odd == 0)), bg(piece(gain, odd == 1)), bb(piece(bias, odd == 2)), y(odd == 3 ? 17 : 16, 0.0f), copy(odd == 4 ? 17 : 16, 0.0f);
      cuda::NormArgs a;
      a.rows.limit = a.declared_rows = 1, a.width = a.stride = 16, a.centred = true;
      a.x = bx.data() + (odd == 0), a.gain = bg.data() + (odd == 1), a.bias = bb.data() + (odd == 2), a.y = y.data() + (odd == 3), a.copy = copy.data() + (odd == 4);
      cuda::norm(a, nullptr);
      std::vector<float> out(y.data() + (odd == 3), y.data() + y.size());
      out.insert(out.end(), copy.data() + (odd == 4), copy.data() + copy.size());
      return out;
    });
    std::vector<double> both;
    for (size_t c = 0; c < 16; ++c) both.push_back(want[c] * static_cast<double>(gain[c + 1]) + static_cast<double>(bias[c + 1]));
    for (size_t c = 0; c < 16; ++c) both.push_back(static_cast<double>(x[c + 1]));
    require_close(got, both, 1e-5, "norm");
  }
}

}  // namespace
}  // namespace fathom
