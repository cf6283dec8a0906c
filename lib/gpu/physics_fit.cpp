#include "lib/gpu/physics_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/error.hpp"
#include "lib/gpu/nelder_mead.hpp"

namespace fathom::gpu {
namespace {

// One parameter of a fit: its box, and whether it is searched as a logarithm.
struct Axis {
  double low, high;
  bool logarithmic;
};

double to_search(double value, const Axis& a) { return a.logarithmic ? std::log(std::clamp(value, a.low, a.high)) : std::clamp(value, a.low, a.high); }
double from_search(double x, const Axis& a) { return a.logarithmic ? std::exp(x) : x; }

// Search coordinates -> parameter values, clamped into the box; the distance outside is the penalty.
template <std::size_t N>
double unpack(const std::vector<double>& x, const std::array<Axis, N>& axes, std::array<double, N>& out) {
  double outside = 0;
  for (std::size_t i = 0; i < N; ++i) {
    const double value = from_search(x[i], axes[i]);
    out[i] = std::clamp(value, axes[i].low, axes[i].high);
    const double scale = axes[i].logarithmic ? 1.0 : axes[i].high - axes[i].low;
    const double d = (to_search(out[i], axes[i]) - x[i]) / scale;
    outside += d * d;
  }
  return outside;
}

// Boxes of the search. Parameters that may be 0 are searched linearly.
constexpr std::array<Axis, GemmParams::kCount> kGemmBox = {{{.2, 4, true}, {.01, 3, true}, {0, 20, false}, {.4, 1.02, true}, {0, 1, false},
    {0, 12, false}, {1, 14, true}, {0, 2, false}, {.1, 20000, true}, {1, 20, true}, {.05, 2.5, true}, {.2, 8, true}}};
constexpr std::array<double, GemmParams::kCount> kGemmStep = {.15, .3, 1, -.08, .25, .6, .3, .1, .6, .3, .3, .1};

// eff f b_eff q t0 s0 w_a w_kv v
constexpr std::array<Axis, PrefillParams::kCount> kPrefillBox = {{{.02, 2, true}, {.01, 30, true}, {.02, 4, true}, {1, 8, true}, {.5, 60, true},
    {0, 20, false}, {.2, 5, true}, {.05, 20, true}, {1, 12, true}}};
constexpr std::array<double, PrefillParams::kCount> kPrefillStep = {.2, .4, .4, .15, .15, .3, .1, .4, .4};
// t0 f blk comb b_eff l c q w
constexpr std::array<Axis, DecodeParams::kCount> kDecodeBox = {{{.5, 60, true}, {.05, 60, true}, {.005, 10, true}, {0, 30, false}, {.05, 1.1, true},
    {.2, 20, true}, {.05, 3, true}, {1, 8, true}, {0, 1, false}}};
constexpr std::array<double, DecodeParams::kCount> kDecodeStep = {.15, .4, .4, 1, -.1, .4, .4, .2, .25};

std::vector<const TableRow*> choose(std::vector<const TableRow*> rows, int max_rows) {
  if (static_cast<int>(rows.size()) <= max_rows) return rows;
  auto rank = [](const TableRow* row) {
    std::uint64_t hash = 77;
    for (auto part : row->key) hash = mix_hash(hash ^ static_cast<std::uint64_t>(part));
    return hash;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
  rows.resize(max_rows);
  return rows;
}

std::vector<const TableRow*> timed(const std::vector<TableRow>& rows) {
  std::vector<const TableRow*> chosen;
  for (const TableRow& row : rows)
    if (row.time_us > 0) chosen.push_back(&row);
  return chosen;
}

template <std::size_t N, typename Loss>
std::array<double, N> search(const std::array<double, N>& start, const std::array<Axis, N>& axes, const std::array<double, N>& step,
                             const Loss& loss, int max_evaluations, double& value) {
  std::vector<double> x0(N), edge(step.begin(), step.end());
  for (std::size_t i = 0; i < N; ++i) {
    x0[i] = to_search(start[i], axes[i]);
    auto x = x0;  // an edge that leaves the box is turned around
    x[i] += edge[i];
    if (from_search(x[i], axes[i]) > axes[i].high || from_search(x[i], axes[i]) < axes[i].low) edge[i] = -edge[i];
  }
  auto objective = [&](const std::vector<double>& x) {
    std::array<double, N> values;
    const double outside = unpack(x, axes, values);
    return loss(values) + 10 * outside;
  };
  const SimplexResult result = nelder_mead(objective, x0, edge, max_evaluations);
  std::array<double, N> values;
  unpack(result.x, axes, values);
  for (double& v : values) v = std::strtod(std::to_string(v).c_str(), nullptr);  // six decimals are plenty, and short in files
  value = loss(values);
  return values;
}

template <typename Params>
double attention_loss(const std::vector<const TableRow*>& rows, const GpuDevice& device, const Params& params) {
  double sum = 0;
  for (const TableRow* row : rows) {
    double t;
    if constexpr (std::is_same_v<Params, PrefillParams>) t = predict_prefill(row->attention(), device, params);
    else t = predict_decode(row->attention(), device, params);
    sum += std::abs(std::log(t * 1e6 / row->time_us));
  }
  return sum / static_cast<double>(std::max<std::size_t>(1, rows.size()));
}

// Best of several starts; `prior` pulls weakly, more so with few rows. Returns the loss.
template <typename Params, std::size_t N, typename Make>
double fit_class(const std::vector<const TableRow*>& rows, const GpuDevice& device, const std::array<Axis, N>& box, const std::array<double, N>& step,
                 const std::vector<Params>& starts, const Params* prior, int evaluations, const Make& make, Params& chosen) {
  double best = 1e300;
  const double pull = prior ? 2.0 / static_cast<double>(rows.size() + 1) : 0.0;
  auto loss = [&](const std::array<double, N>& values) {
    double sum = attention_loss(rows, device, make(values));
    if (prior) {
      const auto centre = prior->values();
      double distance = 0;
      for (std::size_t i = 0; i < N; ++i) {
        const double d = (to_search(values[i], box[i]) - to_search(centre[i], box[i])) / (3 * std::abs(step[i]));
        distance += d * d;
      }
      sum += pull * distance / N;
    }
    return sum;
  };
  for (const Params& start : starts) {
    double value = 0;
    const auto values = search<N>(start.values(), box, step, loss, evaluations, value);
    if (value < best) best = value, chosen = make(values);
  }
  return best;
}

struct ClassFitter {
  OpClass op;
  const GpuDevice& device;
  int evaluations;
  int max_rows;

  // Fits the parameters of `c` on rows; returns the loss.
  double fit(const std::vector<const TableRow*>& all, const AttentionClass* prior, AttentionClass& c) const {
    const auto rows = choose(all, max_rows);
    if (op == OpClass::kPrefill) {
      const std::vector<PrefillParams> starts = {prior ? prior->prefill : PrefillParams{}};
      return fit_class<PrefillParams>(rows, device, kPrefillBox, kPrefillStep, starts, prior ? &prior->prefill : nullptr, evaluations,
                                      [](const auto& v) { return PrefillParams::from(v); }, c.prefill);
    }
    double best = 1e300;
    for (double max_split : {128.0, 1.0}) {
      DecodeParams wavy, found;
      wavy.w = 0.9;
      std::vector<DecodeParams> starts = {DecodeParams{}, wavy};
      if (prior) starts = {prior->decode};
      const double loss = fit_class<DecodeParams>(rows, device, kDecodeBox, kDecodeStep, starts, prior ? &prior->decode : nullptr, evaluations,
                                                  [&](const auto& v) { return DecodeParams::from(v, max_split); }, found);
      if (loss < best) best = loss, c.decode = found;
    }
    return best;
  }
};

constexpr int kMinClassRows = 40;

// Ungrouped heads get their own class where both sides have enough rows.
void divide_by_group(std::vector<AttentionClass>& classes, const std::vector<TableRow>& rows) {
  std::vector<AttentionClass> divided;
  for (const AttentionClass& c : classes) {
    int single = 0, grouped = 0;
    for (const TableRow& row : rows)
      if (&class_of(classes, row.attention()) == &c) (row.key[2] == row.key[3] ? single : grouped) += 1;
    if (single < kMinClassRows || grouped < kMinClassRows) {
      divided.push_back(c);
      continue;
    }
    divided.push_back(c);
    divided.back().group_hi = 1;
    divided.push_back(c);
    divided.back().group_lo = 2;
  }
  classes = divided;
}

// One division by batch that lowers the loss by a quarter, if there is any.
bool divide_by_batch(const ClassFitter& fitter, const std::vector<const TableRow*>& rows, const AttentionClass& prior, double whole,
                     AttentionClass& low, AttentionClass& high) {
  std::vector<std::int64_t> batches;
  for (const TableRow* row : rows) batches.push_back(row->key[0]);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  const AttentionClass base = low;
  double best = 0.75 * whole;
  bool found = false;
  for (std::size_t i = 1; i < batches.size(); ++i) {
    std::vector<const TableRow*> side[2];
    for (const TableRow* row : rows) side[row->key[0] >= batches[i]].push_back(row);
    if (side[0].size() < kMinClassRows / 2 || side[1].size() < kMinClassRows / 2) continue;
    AttentionClass trial[2] = {base, base};
    double loss = 0;
    for (int s = 0; s < 2; ++s) {
      ClassFitter quick = fitter;
      quick.evaluations = std::min(fitter.evaluations, 400);
      quick.max_rows = std::min(fitter.max_rows, 200);
      loss += quick.fit(side[s], &prior, trial[s]) * static_cast<double>(side[s].size()) / static_cast<double>(rows.size());
      trial[s].rows = static_cast<int>(side[s].size());
    }
    if (loss >= best) continue;
    best = loss, found = true;
    low = trial[0], high = trial[1];
    low.batch_hi = batches[i] - 1;
    high.batch_lo = batches[i];
  }
  return found;
}

}  // namespace

GemmParams gemm_prior(const GpuDevice& device) {
  // Fitted on 400 rows each: e h p b_eff w r q theta tau l c t0.
  struct Prior {
    const char* name;
    GemmParams params;
  };
  static const std::vector<Prior> priors = {{"h200", {1.24, .34, 4.5, .83, .05, 2.5, 4.4, .28, 46, 3.5, .34, 2.24}},
      {"h100", {1.21, .34, 4.4, .89, .15, 2.6, 3.4, .23, 65, 2.2, .54, 2.25}}, {"a100", {1.09, .31, 3.0, .84, .91, 2.1, 2.4, .01, 45, 1.1, .59, 2.55}},
      {"b200", {1.41, .71, 4.1, .92, .71, 3.1, 2.6, .43, 22, 1.01, .28, 1.78}}, {"l40s", {.74, .15, 1.5, .76, .12, 1.7, 3.4, .05, 88, 3.0, .81, 1.65}}};
  const Prior* best = &priors.front();
  double nearest = 1e300;
  for (const Prior& prior : priors) {
    if (device.name == prior.name) return prior.params;
    const GpuDevice& known = device_named(prior.name);
    const double intensity = std::log((device.peak_flops / device.dram_bytes_per_s) / (known.peak_flops / known.dram_bytes_per_s));
    const double rate = std::log((device.peak_flops / device.sms) / (known.peak_flops / known.sms));
    if (intensity * intensity + rate * rate < nearest) nearest = intensity * intensity + rate * rate, best = &prior;
  }
  return best->params;
}

GemmParams fit_gemm(const std::vector<TableRow>& all, const GpuDevice& device, const FitOptions& options, std::vector<double>* losses) {
  const auto rows = choose(timed(all), options.max_rows);
  if (rows.size() < 24) throw_input("fitting the tile model needs at least 24 gemm rows, found " + std::to_string(rows.size()));
  std::vector<GemmShape> shapes;
  std::vector<GemmTiling> tilings;
  for (const TableRow* row : rows) {
    shapes.push_back(row->gemm());
    tilings.push_back(tile_shape(shapes.back(), device.sms));
  }
  auto loss = [&](const std::array<double, GemmParams::kCount>& values) {
    const auto params = GemmParams::from(values);
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) sum += std::abs(std::log(predict_gemm(tilings[i], shapes[i], device, params) * 1e6 / rows[i]->time_us));
    return sum / static_cast<double>(rows.size());
  };
  GemmParams best;
  double best_loss = 1e300;
  for (double w : {0.05, 0.95}) {
    GemmParams start = gemm_prior(device);
    start.w = w;
    double value = 0;
    const auto values = search<GemmParams::kCount>(start.values(), kGemmBox, kGemmStep, loss, options.max_evaluations, value);
    if (losses) losses->push_back(value);
    if (value < best_loss) best_loss = value, best = GemmParams::from(values);
  }
  return best;
}

std::vector<AttentionClass> fit_attention(const std::vector<TableRow>& all, OpClass op, const GpuDevice& device, const FitOptions& options) {
  // head_dim -> kernel -> range of lengths
  struct Range {
    std::int64_t low = INT64_MAX, high = 0;
    std::string kernel;
  };
  std::map<std::int64_t, std::map<std::string, Range>> seen;
  for (const TableRow& row : all) {
    Range& range = seen[row.key[4]][row.kernel];
    range.low = std::min(range.low, row.key[1]);
    range.high = std::max(range.high, row.key[1]);
    range.kernel = row.kernel;
  }
  std::vector<AttentionClass> classes;
  for (const auto& [head_dim, kernels] : seen) {
    std::vector<Range> ranges;
    for (const auto& [name, range] : kernels) ranges.push_back(range);
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
    bool separable = true;
    for (std::size_t i = 1; i < ranges.size(); ++i) separable = separable && ranges[i - 1].high < ranges[i].low;
    if (!separable) {
      std::string joined;
      for (const Range& range : ranges) joined += (joined.empty() ? "" : "+") + range.kernel;
      ranges = {{1, INT64_MAX, joined}};
    }
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      AttentionClass c;
      c.kernel = ranges[i].kernel;
      c.head_dim = head_dim;
      c.seq_lo = i == 0 ? 1 : ranges[i - 1].high + 1;
      c.seq_hi = i + 1 == ranges.size() ? INT64_MAX : ranges[i].high;
      classes.push_back(c);
    }
  }
  if (op == OpClass::kDecode) divide_by_group(classes, all);
  // Common fit per kernel first: the start and the prior of each class.
  std::map<std::string, std::vector<const TableRow*>> by_kernel;
  std::vector<std::vector<const TableRow*>> by_class(classes.size());
  for (const TableRow& row : all) {
    if (!(row.time_us > 0)) continue;
    const AttentionClass& c = class_of(classes, row.attention());
    by_kernel[c.kernel].push_back(&row);
    by_class[static_cast<std::size_t>(&c - classes.data())].push_back(&row);
  }
  const ClassFitter fitter{op, device, std::max(200, options.max_evaluations / 2), options.max_rows};
  std::map<std::string, AttentionClass> common;
  for (const auto& [kernel, rows] : by_kernel) {
    AttentionClass& c = common[kernel];
    c.rows = static_cast<int>(rows.size());
    fitter.fit(rows, nullptr, c);
  }
  std::vector<AttentionClass> fitted;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    AttentionClass& c = classes[i];
    const auto& rows = by_class[i];
    c.rows = static_cast<int>(rows.size());
    const AttentionClass& prior = common.at(c.kernel);
    const double whole = fitter.fit(rows, &prior, c);
    AttentionClass low = c, high = c;
    if (op == OpClass::kDecode && whole > 0.15 && divide_by_batch(fitter, rows, prior, whole, low, high)) {
      fitted.push_back(low);
      fitted.push_back(high);
    } else {
      fitted.push_back(c);
    }
  }
  return fitted;
}

const AttentionClass& class_of(const std::vector<AttentionClass>& classes, const AttentionShape& shape, bool* exact) {
  if (classes.empty()) throw_internal("attention has no kernel class");
  const AttentionClass* best = nullptr;
  double nearest = 1e300;
  for (const AttentionClass& c : classes) {
    double distance = std::abs(std::log2(shape.head_dim / static_cast<double>(c.head_dim)));
    auto inside = [](double value, std::int64_t low, std::int64_t high) { return value >= static_cast<double>(low) && value <= static_cast<double>(high); };
    if (!inside(shape.seq, c.seq_lo, c.seq_hi)) distance += 100;
    if (!inside(shape.heads / shape.kv_heads, c.group_lo, c.group_hi)) distance += 50;
    if (!inside(shape.batch, c.batch_lo, c.batch_hi)) distance += 25;
    if (distance < nearest) nearest = distance, best = &c;
  }
  if (exact) *exact = nearest == 0;
  return *best;
}

}  // namespace fathom::gpu
