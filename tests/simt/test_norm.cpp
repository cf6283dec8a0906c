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

}  // namespace
}  // namespace fathom
