// Expert routing on fibers against plain loops in f64 with the semantics of kernels/reference/experts.hpp.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/experts.cuh"
#include "kernels/reference/activation.hpp"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;
using Ints = std::vector<std::int32_t>;

struct Case {
  std::int64_t tokens;
  int experts, noops, picks;
  bool sigmoid, correction;
  std::int64_t capacity;
  bool ties;
};

struct Routing {
  std::vector<Ints> picks;                    // best first
  std::vector<std::vector<double>> weights;
  Ints permutation, offsets;
  std::vector<double> row_weights;
  std::vector<Ints> slots;
};

Routing route(const Case& s, const std::vector<double>& logits, const std::vector<double>& correction) {
  Routing r;
  const int outputs = s.experts + s.noops;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const double* l = logits.data() + t * outputs;
    std::vector<double> key(l, l + outputs);
    for (int e = 0; s.correction && e < outputs; ++e)
      key[static_cast<size_t>(e)] = (s.sigmoid ? reference::logistic(l[e]) : l[e]) + (e < s.experts ? correction[static_cast<size_t>(e)] : 0.0);
    Ints order(static_cast<size_t>(outputs));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return key[static_cast<size_t>(a)] > key[static_cast<size_t>(b)]; });
    order.resize(static_cast<size_t>(s.picks));
    std::vector<double> w;
    for (const auto e : order) w.push_back(s.sigmoid ? reference::logistic(l[e]) : std::exp(l[e] - l[order[0]]));
    const double sum = std::accumulate(w.begin(), w.end(), 0.0);
    for (double& x : w) x /= sum;
    r.picks.push_back(order), r.weights.push_back(w), r.slots.emplace_back(order.size(), -1);
  }
  for (int e = 0; e < s.experts; ++e) {
    r.offsets.push_back(static_cast<std::int32_t>(r.permutation.size()));
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (size_t j = 0; j < r.picks[static_cast<size_t>(t)].size(); ++j) {
        if (r.picks[static_cast<size_t>(t)][j] != e) continue;
        if (s.capacity > 0 && static_cast<std::int64_t>(r.permutation.size()) - r.offsets.back() >= s.capacity) continue;
        r.slots[static_cast<size_t>(t)][j] = static_cast<std::int32_t>(r.permutation.size());
        r.permutation.push_back(static_cast<std::int32_t>(t));
        r.row_weights.push_back(r.weights[static_cast<size_t>(t)][j]);
      }
    }
  }
  r.offsets.push_back(static_cast<std::int32_t>(r.permutation.size()));
  return r;
}

template <class T>
void check_experts(const Case& s, std::int64_t width, bool shared, bool gated) {
  const int outputs = s.experts + s.noops;
  const auto tokens = static_cast<size_t>(s.tokens), w = static_cast<size_t>(width), picks = static_cast<size_t>(s.picks), n_out = static_cast<size_t>(outputs);
  auto logits = values<float>(1, tokens * n_out, 2.0);
  if (s.ties)
    for (float& l : logits) l = std::round(l);
  const auto correction = values<float>(2, n_out, 0.5);
  const auto x = values<T>(3, tokens * w), shared_rows = values<T>(4, tokens * w), gate = values<T>(5, tokens), dy = values<T>(6, tokens * w);
  const Routing r = route(s, wide(logits), wide(correction));
  const size_t rows = r.permutation.size(), room = tokens * picks;
  const auto expert_rows = values<T>(7, rows * w);
  const std::vector<double> wx = wide(x), we = wide(expert_rows), ws = wide(shared_rows), wg = wide(gate), wd = wide(dy), dweights = wide(values<float>(8, room));

  std::vector<double> dispatched, combined(tokens * w), dx(tokens * w), drows, dw, dshared, dgate, dlogits(tokens * n_out);
  for (size_t t = 0; t < tokens; ++t) {
    double dot = 0;
    for (size_t c = 0; c < w; ++c) {
      const double sigma = gated ? reference::logistic(wg[t]) : 1.0;
      combined[t * w + c] = shared ? sigma * ws[t * w + c] : 0.0;
      dot += wd[t * w + c] * ws[t * w + c];
      dshared.push_back(sigma * wd[t * w + c]);
    }
    dgate.push_back(reference::logistic(wg[t]) * (1 - reference::logistic(wg[t])) * dot);
  }
  for (size_t j = 0; j < rows; ++j) {
    const auto t = static_cast<size_t>(r.permutation[j]);
    double dot = 0;
    for (size_t c = 0; c < w; ++c) {
      dispatched.push_back(wx[t * w + c]);
      combined[t * w + c] += r.row_weights[j] * we[j * w + c];
      dx[t * w + c] += we[j * w + c];
      dot += wd[t * w + c] * we[j * w + c];
      drows.push_back(r.row_weights[j] * wd[t * w + c]);
    }
    dw.push_back(dot);
  }
  for (size_t t = 0; t < tokens; ++t) {
    double dot = 0, sum = 0;
    const auto d = [&](size_t j) { return r.slots[t][j] < 0 ? 0.0 : dweights[static_cast<size_t>(r.slots[t][j])]; };
    const auto sigma = [&](size_t j) { return reference::logistic(static_cast<double>(logits[t * n_out + static_cast<size_t>(r.picks[t][j])])); };
    for (size_t j = 0; j < picks; ++j) dot += r.weights[t][j] * d(j), sum += sigma(j);
    for (size_t j = 0; j < picks; ++j)
      dlogits[t * n_out + static_cast<size_t>(r.picks[t][j])] = (s.sigmoid ? sigma(j) * (1 - sigma(j)) / sum : r.weights[t][j]) * (d(j) - dot);
  }

  using Floats = std::vector<float>;
  struct Result {
    Ints permutation, offsets, slots;
    std::vector<Floats> values;
    bool operator==(const Result&) const = default;
  };
  const auto got = in_all_orders([&] {
    DeviceBuffer<float> bl(logits), bc(correction), cw(room), weights(room, 7.0f), bdw(values<float>(8, room)), ddw(room);
    DeviceBuffer<T> dl(tokens * n_out);  // of the compute type, while logits are f32
    DeviceBuffer<std::int32_t> chosen(room), permutation(room, 7), offsets(static_cast<size_t>(s.experts + 1)), slots(room + 3 * picks, 7), token_count(1, static_cast<std::int32_t>(s.tokens)), kept(static_cast<size_t>(s.experts + 1));
    DeviceBuffer<T> bx(x), be(expert_rows), bs(shared_rows), bg(gate), bdy(dy), out(rows * w), y(tokens * w), bdx(tokens * w), added(dy), bdr(rows * w), bds(tokens * w), bdg(tokens);
    cuda::ExpertSelectArgs a;
    // Room for more tokens than there are: the device knows how many.
    a.tokens = s.tokens + 3, a.token_count = token_count.data(), a.kept_offsets = kept.data(), a.experts = s.experts, a.noops = s.noops, a.picks = s.picks, a.sigmoid = s.sigmoid, a.capacity = s.capacity, a.room = static_cast<std::int64_t>(room);
    a.logits = bl.data(), a.correction = s.correction ? bc.data() : nullptr, a.chosen = chosen.data(), a.chosen_weights = cw.data(), a.permutation = permutation.data();
    a.weights = weights.data(), a.offsets = offsets.data(), a.slots = slots.data(), a.dweights = bdw.data(), a.dlogits = dl.data(), a.dlogit_type = dtype_of<T>();
    cuda::expert_select(a, nullptr);
    cuda::expert_select_backward(a, nullptr);
    CHECK(kept.host() == offsets.host());
    cuda::ExpertRowsArgs e;
    e.type = dtype_of<T>(), e.tokens = s.tokens, e.width = width, e.picks = s.picks, e.rows = {static_cast<std::int64_t>(room), offsets.data() + s.experts};
    e.permutation = permutation.data(), e.slots = slots.data();
    e.x = bx.data(), e.y = out.data();
    cuda::expert_dispatch(e, nullptr);
    e.x = be.data(), e.y = bdx.data();
    cuda::expert_combine(e, nullptr);  // the gradient of dispatch
    e.y = added.data(), e.accumulate = true;
    cuda::expert_combine(e, nullptr);  // and on top of another gradient
    e.accumulate = false;
    e.y = y.data(), e.weights = weights.data(), e.shared = shared ? bs.data() : nullptr, e.shared_gate = gated ? bg.data() : nullptr;
    cuda::expert_combine(e, nullptr);
    cuda::ExpertCombineBackwardArgs b;
    b.type = dtype_of<T>(), b.rows = e.rows, b.tokens = s.tokens, b.width = width, b.dy = bdy.data(), b.x = be.data(), b.permutation = permutation.data(), b.weights = weights.data();
    b.dx = bdr.data(), b.dweights = ddw.data();
    if (gated) b.shared = bs.data(), b.shared_gate = bg.data(), b.dshared = bds.data(), b.dgate = bdg.data();
    cuda::expert_combine_backward(b, nullptr);
    Floats some_dw(ddw.data(), ddw.data() + rows);
    return Result{permutation.host(), offsets.host(), slots.host(), {weights.host(), narrow(dl), narrow(out), narrow(bdx), narrow(y), narrow(bdr), some_dw, gated ? narrow(bds) : Floats{}, gated ? narrow(bdg) : Floats{}, narrow(added)}};
  });
  Ints permutation = r.permutation, slots;
  permutation.resize(room, -1);
  for (const Ints& own : r.slots) slots.insert(slots.end(), own.begin(), own.end());
  CHECK(got.permutation == permutation);
  CHECK(got.offsets == r.offsets);
  slots.resize(room + 3 * picks, -1);
  CHECK(got.slots == slots);
  std::vector<double> row_weights = r.row_weights, added = wd;
  row_weights.resize(room, 0.0);  // rows that nobody has
  for (size_t i = 0; i < added.size(); ++i) added[i] += dx[i];
  require_close(got.values[0], row_weights, 1e-5, "weights");
  require_close(got.values[1], dlogits, tolerance<T>(), "dlogits");
  require_close(got.values[2], dispatched, 0, "dispatch");
  require_close(got.values[3], dx, tolerance<T>(), "gradient of dispatch");
  require_close(got.values[4], combined, tolerance<T>(), "combine");
  require_close(got.values[9], added, tolerance<T>(), "gradient of dispatch on top of another");
  require_close(got.values[5], drows, tolerance<T>(), "rows' gradient");
  require_close(got.values[6], dw, 1e-4, "weights' gradient");
  if (gated) require_close(got.values[7], dshared, tolerance<T>(), "shared expert's gradient");
  if (gated) require_close(got.values[8], dgate, 4 * tolerance<T>(), "shared gate's gradient");
}

TEST_CASE("experts: choice, permutation, dispatch, combine and gradients") {
  check_experts<float>({7, 4, 0, 2, false, false, 0, false}, 5, false, false);
  check_experts<float>({7, 4, 0, 2, false, false, 0, true}, 8, true, false);
  check_experts<bf16>({33, 5, 2, 3, true, true, 0, false}, 16, true, true);
  check_experts<bf16>({20, 40, 0, 8, true, true, 0, true}, 264, false, false);
  check_experts<float>({50, 3, 1, 2, false, true, 6, false}, 12, true, true);
  check_experts<float>({300, 2, 0, 1, false, false, 0, false}, 4, false, false);
  check_experts<float>({1, 1, 0, 1, false, false, 0, false}, 3, false, false);
  check_experts<float>({9, 300, 0, 2, false, false, 0, false}, 4, false, false);  // more experts than threads of a block
  check_experts<float>({3, 40, 0, 32, true, false, 0, true}, 4, false, false);    // a pick for every lane
}

}  // namespace
}  // namespace fathom
