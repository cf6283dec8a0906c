#include "lib/predict/reuse_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

namespace fathom {
namespace {

constexpr std::int32_t kBetween = -1;  // the site that stands for bytes touched between ops

using Lanes = double __attribute__((vector_size(64)));  // eight distances at a time

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FATHOM_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))  // whichever the machine has
#else
#define FATHOM_WIDE
#endif

// Beyond, a cache serves none of an access, or all of it, to within 1e-13: ratios of distance to capacity whose eighth (sharp) or fourth power says so. Of three caches a long
// list asks one or two.
struct Certain {
  double all, none;
};
constexpr Certain kCertainSharp{0.023, 43}, kCertain{5e-4, 1800};

// Shares of `uses` accesses at distances first, first + step, first + 2 step ... that caches of capacity 1 / inverse[c] serve one behind the other, and that reach memory (the last).
// `sharp`: as hit_share() has it.
FATHOM_WIDE void serve(double first, double step, std::int32_t uses, const double* inverse, size_t caches, bool sharp, double* served) {
  const double last = first + step * static_cast<double>(uses - 1);
  const Certain certain = sharp ? kCertainSharp : kCertain;
  size_t asked[kMaxLevels], asks = 0;
  for (size_t c = 0; c <= caches; ++c) served[c] = 0;
  size_t end = caches;  // behind a cache that serves all of them, nothing is asked
  bool decided = false;
  for (size_t c = 0; c < caches && !decided; ++c) {
    if (std::min(first, last) * inverse[c] > certain.none) continue;
    decided = std::max(first, last) * inverse[c] < certain.all;
    if (decided)
      end = c;
    else
      asked[asks++] = c;
  }
  if (asks == 0) {
    served[end] = static_cast<double>(uses);
    return;
  }
  Lanes sums[kMaxLevels] = {}, left = {};
  const Lanes ramp = {0, 1, 2, 3, 4, 5, 6, 7};
  for (std::int32_t k = 0; k < uses; k += 8) {
    const Lanes at = ramp * step + (first + static_cast<double>(k) * step);
    Lanes rest = ramp < static_cast<double>(uses - k) ? ramp * 0.0 + 1.0 : ramp * 0.0;
    for (size_t a = 0; a < asks; ++a) {
      const Lanes ratio = at * inverse[asked[a]], once = ratio * ratio, square = sharp ? once * once : once, hit = 1.0 / (1.0 + square * square);
      sums[a] += rest * hit;
      rest *= 1.0 - hit;
    }
    left += rest;
  }
  const auto total = [](const Lanes& v) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); };
  for (size_t a = 0; a < asks; ++a) served[asked[a]] = total(sums[a]);
  served[end] = total(left);
}

double touched_bytes(const Tensor& tensor, double limit) {
  constexpr std::int64_t kSmall = std::int64_t{1} << 30;  // whose product with the size of an element fits 64 bits
  const double bytes = tensor.rows < kSmall && tensor.cols < kSmall ? static_cast<double>(tensor.rows * tensor.cols * static_cast<std::int64_t>(dtype_bytes(tensor.dtype)))
                                                                    : tensor.bytes().to_double();
  return std::min(limit, bytes);
}

// The same of `count` accesses, each at a distance of its own, distances[c] for cache c: served[c * count + i], memory (the last) where `rest` is.
FATHOM_WIDE void serve_each(const double* const* distances, const double* inverse, size_t caches, bool sharp, size_t count, double* __restrict served, double* __restrict rest) {
  for (size_t i = 0; i < count; ++i) rest[i] = 1;
  for (size_t c = 0; c < caches; ++c) {
    double* __restrict here = served + c * count;
    const double* __restrict distance = distances[c];
    const double by = inverse[c];
    for (size_t i = 0; i < count; ++i) {
      const double ratio = distance[i] * by, once = ratio * ratio, square = sharp ? once * once : once, hit = 1 / (1 + square * square);
      here[i] = rest[i] * hit;
      rest[i] *= 1 - hit;
    }
  }
}

}  // namespace

void ReuseProgram::structure_of(const Workload& w, const std::vector<OpWork>& works, bool bytes_between, std::vector<std::int32_t>& into, std::vector<double>& touched) {
  into.clear();
  touched.clear();
  into.push_back(bytes_between);
  for (const Block& block : w.blocks()) into.push_back(block.first_op), into.push_back(block.op_count);
  for (const Step& step : w.program()) {
    into.push_back(step.block), into.push_back(step.layer);
    into.push_back(step.weights), into.push_back(step.micro);
  }
  for (size_t i = 0; i < w.ops().size(); ++i) {
    const Op& op = w.ops()[i];
    into.push_back(static_cast<std::int32_t>(op.inputs.size()));
    into.push_back(static_cast<std::int32_t>(op.outputs.size()));
    for (const auto* operands : {&op.inputs, &op.outputs})
      for (const Operand& operand : *operands) {
        const Tensor& tensor = w.tensors()[static_cast<size_t>(operand.tensor)];
        const double bytes = touched_bytes(tensor, operands == &op.inputs ? works[i].read : works[i].written);
        touched.push_back(bytes);
        into.push_back(operand.tensor);
        into.push_back(operand.layer_offset << 16 | static_cast<std::int32_t>(tensor.role) << 8 | static_cast<std::int32_t>(tensor.scope) << 1 | static_cast<std::int32_t>(bytes > 0));
      }
  }
}

bool ReuseProgram::worth_while(const Workload& w) {
  double touches = 0;
  for (const Step& step : w.program()) {
    const Block& block = w.blocks()[static_cast<size_t>(step.block)];
    for (int i = block.first_op; i < block.first_op + block.op_count; ++i) touches += static_cast<double>(w.ops()[static_cast<size_t>(i)].inputs.size() + w.ops()[static_cast<size_t>(i)].outputs.size());
  }
  return touches * touches < 1e9;
}

ReuseProgram::ReuseProgram(const Workload& w, const std::vector<double>& touched, bool bytes_between, bool apart, std::vector<std::int32_t> structure)
    : apart_(apart), structure_(std::move(structure)) {
  // Sites by op: the operands that have bytes, in order of touching.
  std::vector<std::pair<std::int32_t, std::int32_t>> of_op;
  std::vector<const Operand*> operand_of;
  std::int32_t number = -1;
  for (size_t i = 0; i < w.ops().size(); ++i) {
    const Op& op = w.ops()[i];
    const auto first = static_cast<std::int32_t>(sites_.size());
    for (const auto* operands : {&op.inputs, &op.outputs})
      for (const Operand& operand : *operands) {
        const bool input = operands == &op.inputs;
        if (!(touched[static_cast<size_t>(++number)] > 0)) continue;
        const bool weight = input && w.tensors()[static_cast<size_t>(operand.tensor)].role == Role::kWeight;
        sites_.push_back({static_cast<std::int32_t>(i), number, !input ? Site::Kind::kWrite : weight ? Site::Kind::kWeight : Site::Kind::kRead});
        operand_of.push_back(&operand);
        if (!apart_) continue;
        HandoverProgram::Site& divided = divided_.emplace_back();
        divided.op = static_cast<std::int32_t>(i), divided.write = !input;
      }
    of_op.push_back({first, static_cast<std::int32_t>(sites_.size())});
  }

  // Every touch of one round as (site, segment); segment 0 is what lies between ops.
  struct Touch {
    std::int32_t site;
    size_t segment;
  };
  std::vector<Touch> round;
  std::map<TensorInstance, size_t> segments;
  std::vector<std::vector<std::int32_t>> touched_by(1, {kBetween});
  for (const Step& step : w.program()) {
    const Block& block = w.blocks()[static_cast<size_t>(step.block)];
    for (int i = block.first_op; i < block.first_op + block.op_count; ++i) {
      if (bytes_between) round.push_back({kBetween, 0});
      for (std::int32_t site = of_op[static_cast<size_t>(i)].first; site < of_op[static_cast<size_t>(i)].second; ++site) {
        const auto [found, fresh] = segments.try_emplace(instance_of(w, step, *operand_of[static_cast<size_t>(site)]), touched_by.size());
        if (fresh) touched_by.emplace_back();
        std::vector<std::int32_t>& by = touched_by[found->second];
        if (std::find(by.begin(), by.end(), site) == by.end()) by.push_back(site);
        round.push_back({site, found->second});
      }
    }
  }
  // Segments that the same sites touch have the same size, the largest of those touches: in the second round all of them have been made.
  std::map<std::vector<std::int32_t>, std::int32_t> mass_of;
  std::vector<std::int32_t> mass(touched_by.size());
  for (size_t s = 0; s < touched_by.size(); ++s) {
    std::sort(touched_by[s].begin(), touched_by[s].end());
    const auto [found, fresh] = mass_of.try_emplace(touched_by[s], static_cast<std::int32_t>(masses_.size()));
    if (fresh) masses_.push_back(touched_by[s]);
    mass[s] = found->second;
  }

  // The second round: what was touched since, from a list of segments by last touch (linked by number).
  using Vector = std::vector<std::pair<std::int32_t, std::int32_t>>;  // (mass, times), ascending, no zeros
  std::vector<std::vector<Vector>> distances(sites_.size());
  const size_t none = touched_by.size();
  std::vector<size_t> next(none + 1, none), previous(none + 1, none);  // at `none`: the ends
  std::vector<bool> listed(none, false);
  std::vector<std::int32_t> times(masses_.size(), 0);
  for (int r = 0; r < 2; ++r)
    for (const Touch& touch : round) {
      const size_t at = touch.segment;
      if (r == 1 && touch.site >= 0) {
        for (size_t s = next[none]; s != at; s = next[s]) ++times[static_cast<size_t>(mass[s])];
        Vector& sum = distances[static_cast<size_t>(touch.site)].emplace_back();
        for (size_t m = 0; m < times.size(); ++m)
          if (times[m] > 0) sum.push_back({static_cast<std::int32_t>(m), std::exchange(times[m], 0)});
      }
      if (listed[at]) next[previous[at]] = next[at], previous[next[at]] = previous[at];
      listed[at] = true;
      next[at] = next[none], previous[at] = none;
      previous[next[none]] = at, next[none] = at;
    }

  const auto difference = [](const Vector& a, const Vector& b) {
    Vector result;
    size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      const std::int32_t m = i < a.size() && (j == b.size() || a[i].first <= b[j].first) ? a[i].first : b[j].first;
      std::int32_t by = 0;
      if (i < a.size() && a[i].first == m) by += a[i++].second;
      if (j < b.size() && b[j].first == m) by -= b[j++].second;
      if (by != 0) result.push_back({m, by});
    }
    return result;
  };
  const auto difference_size = [](const Vector& a, const Vector& b) {
    size_t size = 0, i = 0, j = 0;
    while (i < a.size() && j < b.size()) {
      if (a[i].first == b[j].first)
        size += a[i++].second != b[j++].second;
      else
        ++size, ++(a[i].first < b[j].first ? i : j);
    }
    return size + (a.size() - i) + (b.size() - j);
  };
  constexpr size_t kNeighbours = 24;  // earlier sums that are tried as a beginning
  std::map<Vector, std::int32_t> known;
  std::vector<const Vector*> stored;
  const auto store = [&](const Vector& sum) {
    const auto [found, fresh] = known.try_emplace(sum, static_cast<std::int32_t>(stored.size()));
    if (!fresh) return found->second;
    Sum best;
    size_t least = sum.size();
    for (size_t n = stored.size(); n-- > 0 && n + kNeighbours >= stored.size();) {
      const size_t size = difference_size(sum, *stored[n]);
      if (size + 1 < least) least = size, best.from = static_cast<std::int32_t>(n);
    }
    const Vector rest = best.from < 0 ? sum : difference(sum, *stored[static_cast<size_t>(best.from)]);
    best.first = static_cast<std::int32_t>(terms_.size());
    for (const auto& [m, by] : rest) terms_.push_back({static_cast<double>(by), m});
    best.last = static_cast<std::int32_t>(terms_.size());
    sums_.push_back(best);
    stored.push_back(&found->first);
    return found->second;
  };
  std::vector<std::vector<bool>> pieces(sites_.size());  // of every site in order: a run?
  for (size_t s = 0; s < sites_.size(); ++s) {
    sites_[s].first_run = static_cast<std::int32_t>(runs_.size());
    sites_[s].first_level = static_cast<std::int32_t>(levels_.size());
    sites_[s].uses = static_cast<double>(distances[s].size());
    const std::vector<Vector>& all = distances[s];
    for (size_t from = 0; from < all.size();) {
      size_t to = from + 1;
      Vector step;
      if (to < all.size()) {
        step = difference(all[to], all[from]);
        while (to + 1 < all.size() && difference(all[to + 1], all[to]) == step) ++to;
        ++to;
      }
      // Two uses are always a progression: leave the second to a longer one that may begin with it.
      if (to - from == 2 && !step.empty() && to < all.size()) to = from + 1, step.clear();
      pieces[s].push_back(!step.empty());
      if (step.empty())
        levels_.push_back({sites_[s].operand, store(all[from]), static_cast<double>(to - from)});
      else
        runs_.push_back({static_cast<std::int32_t>(to - from), store(all[from]), store(step)});
      from = to;
    }
    sites_[s].last_run = static_cast<std::int32_t>(runs_.size());
    sites_[s].last_level = static_cast<std::int32_t>(levels_.size());
  }
  if (!apart_) return;

  // Every use by itself: which side is slower is asked of each.
  std::vector<std::vector<std::int32_t>> point_of(sites_.size());
  for (size_t s = 0; s < sites_.size(); ++s) {
    Site& site = sites_[s];
    site.first_point = static_cast<std::int32_t>(points_.size());
    const auto add = [&](std::int32_t base, std::int32_t step, std::int32_t k, double uses) {
      point_of[s].insert(point_of[s].end(), static_cast<size_t>(uses), static_cast<std::int32_t>(points_.size()));
      points_.push_back({static_cast<std::int32_t>(s), base, step, static_cast<double>(k), uses});
    };
    // Levels and runs in the order of the uses that they stand for.
    std::int32_t level = site.first_level, run = site.first_run;
    for (const bool is_run : pieces[s]) {
      if (is_run) {
        const Run& r = runs_[static_cast<size_t>(run++)];
        for (std::int32_t k = 0; k < r.uses; ++k) add(r.base, r.step, k, 1);
      } else {
        const Level& l = levels_[static_cast<size_t>(level++)];
        add(l.base, -1, 0, l.uses);
      }
    }
    site.last_point = static_cast<std::int32_t>(points_.size());
  }
  std::unordered_set<TensorId> written;
  for (const Op& op : w.ops())
    for (const Operand& out : op.outputs) written.insert(out.tensor);
  std::vector<HandoverProgram::Touch> touches;
  std::vector<HandoverProgram::Use> uses;
  std::vector<size_t> met(sites_.size(), 0);
  auto touch = round.begin();
  for (const Step& step : w.program()) {
    const Block& block = w.blocks()[static_cast<size_t>(step.block)];
    for (std::int32_t i = block.first_op; i < block.first_op + block.op_count; ++i) {
      const size_t before = touches.size();
      if (bytes_between) ++touch;
      for (std::int32_t site = of_op[static_cast<size_t>(i)].first; site < of_op[static_cast<size_t>(i)].second; ++site, ++touch) {
        const size_t s = static_cast<size_t>(site), use = met[s]++;
        if (written.contains(operand_of[s]->tensor)) touches.push_back({site, point_of[s][use], touch->segment});  // what nobody writes, each keeps a copy of
      }
      if (touches.size() > before) uses.push_back({i, static_cast<std::int32_t>(touches.size())});
    }
  }
  handover_ = HandoverProgram(touches, std::move(uses));
}

void ReuseProgram::sum_up(const std::vector<double>& mass, std::vector<double>& value) const {
  value.resize(sums_.size());
  for (size_t n = 0; n < sums_.size(); ++n) {
    const Sum& sum = sums_[n];
    double total = sum.from >= 0 ? value[static_cast<size_t>(sum.from)] : 0, others = 0;
    std::int32_t t = sum.first;
    const auto bytes = [&](std::int32_t term) { return terms_[static_cast<size_t>(term)].times * mass[static_cast<size_t>(terms_[static_cast<size_t>(term)].mass)]; };
    for (; t + 1 < sum.last; t += 2) total += bytes(t), others += bytes(t + 1);
    if (t < sum.last) total += bytes(t);
    value[n] = total + others;
  }
}

// How the threads share each operand of the list at hand.
void ReuseProgram::divide(const Workload& w, const std::vector<OpWork>& works, const std::vector<double>& touched) {
  const bool trains = std::any_of(w.ops().begin(), w.ops().end(), [](const Op& op) { return op.pass == Pass::kBackward; });
  size_t site = 0;
  std::int32_t number = -1;
  for (size_t i = 0; i < w.ops().size(); ++i) {
    const Op& op = w.ops()[i];
    for (const bool input : {true, false}) {
      const std::vector<Operand>& operands = input ? op.inputs : op.outputs;
      for (size_t n = 0; n < operands.size(); ++n) {
        ++number;
        if (site == sites_.size() || sites_[site].operand != number) continue;
        HandoverProgram::Site& divided = divided_[site++];
        divided.division = division_of(op, input, n, trains, works[i].read + works[i].written);
        divided.bytes = touched_bytes(w.tensors()[static_cast<size_t>(operands[n].tensor)], std::numeric_limits<double>::infinity());
        divided.density = std::min(1.0, touched[static_cast<size_t>(number)] / divided.bytes);
      }
    }
  }
}

// Shares that each cache serves, by point: served_[cache * points + point], memory last.
void ReuseProgram::serve_points(const std::vector<double>& touched, const Caches& caches, int threads) {
  copied_mass_.assign(masses_.size(), 0.0);
  copies_.resize(sites_.size());
  for (size_t s = 0; s < sites_.size(); ++s) copies_[s] = divided_[s].division == Division::kAll ? std::max(1, threads) : 1;
  for (size_t m = 0; m < masses_.size(); ++m)
    for (const std::int32_t site : masses_[m])
      copied_mass_[m] = std::max(copied_mass_[m], site == kBetween ? mass_[m] : copies_[static_cast<size_t>(site)] * touched[static_cast<size_t>(sites_[static_cast<size_t>(site)].operand)]);
  sum_up(copied_mass_, copied_value_);

  const size_t points = points_.size();
  distance_.resize(points), copied_distance_.resize(points), in_cache_.resize(points);
  served_.resize((caches.count + 1) * points);
  for (size_t p = 0; p < points; ++p) {
    const Point& point = points_[p];
    const auto s = static_cast<size_t>(point.site);
    const auto base = static_cast<size_t>(point.base), step = static_cast<size_t>(std::max(point.step, 0));  // k is 0 where there is no step
    const double bytes = touched[static_cast<size_t>(sites_[s].operand)];
    distance_[p] = value_[base] + point.k * value_[step] + bytes;
    copied_distance_[p] = copied_value_[base] + point.k * copied_value_[step] + copies_[s] * bytes;
  }
  std::array<const double*, kMaxLevels> distances{};
  for (size_t c = 0; c < caches.count; ++c) distances[c] = caches.shared[c] ? distance_.data() : copied_distance_.data();
  double* rest = served_.data() + caches.count * points;
  serve_each(distances.data(), caches.inverse.data(), caches.count, true, points, served_.data(), rest);
  for (size_t p = 0; p < points; ++p) in_cache_[p] = 1 - rest[p];
}

void ReuseProgram::evaluate(const Workload& w, const std::vector<OpWork>& works, const std::vector<double>& touched, const Machine& machine, int threads, double bytes_between_ops,
                            PerOp<Residency>& result) {
  mass_.assign(masses_.size(), 0.0);
  for (size_t m = 0; m < masses_.size(); ++m)
    for (const std::int32_t site : masses_[m])
      mass_[m] = std::max(mass_[m], site == kBetween ? bytes_between_ops : touched[static_cast<size_t>(sites_[static_cast<size_t>(site)].operand)]);

  const int count = std::min<int>(kMaxLevels, static_cast<int>(machine.levels.size()));
  Caches of;
  for (int l = 0; l + 1 < count; ++l) {
    const MemoryLevel& level = machine.levels[static_cast<size_t>(l)];
    const double cores = static_cast<double>(machine.kind == MachineKind::kGpu ? machine.cores : std::max(1, threads));
    const double capacity = level.capacity ? level.capacity->value * (level.shared ? 1.0 : cores) : 0;
    if (!(capacity > 0)) continue;  // a level without one serves nothing
    of.inverse[of.count] = 1 / capacity;  // hit(x) of hit_share()
    of.level[of.count] = static_cast<size_t>(l);
    of.shared[of.count++] = level.shared;
  }
  const size_t caches = of.count;
  const auto& inverse = of.inverse;
  const bool sharp = machine.kind == MachineKind::kCpu;
  const Placement lie = placement_of(machine, threads);
  const size_t last = count > 0 ? static_cast<size_t>(count - 1) : 0;
  LevelShares outermost{};
  if (count > 0) outermost[last] = 1;

  sum_up(mass_, value_);
  const size_t levels = levels_.size(), points = points_.size();
  if (apart_) {
    divide(w, works, touched);
    serve_points(touched, of, threads);
    handed_.assign(w.ops().size(), {});
    handover_.evaluate(divided_, in_cache_, handed_);
  } else {
    served_.resize((caches + 2) * levels);
    double* distance = served_.data() + (caches + 1) * levels;
    for (size_t n = 0; n < levels; ++n) distance[n] = value_[static_cast<size_t>(levels_[n].base)] + touched[static_cast<size_t>(levels_[n].operand)];
    std::array<const double*, kMaxLevels> distances;
    distances.fill(distance);
    serve_each(distances.data(), inverse.data(), caches, sharp, levels, served_.data(), served_.data() + caches * levels);
  }

  for (size_t i = 0, site = 0; i < w.ops().size(); ++i) {
    Residency& r = result[static_cast<int>(i)];
    r = {};
    double weights = 0, reads = 0, writes = 0;
    for (; site < sites_.size() && sites_[site].op == static_cast<std::int32_t>(i); ++site) {
      const Site& s = sites_[site];
      const double bytes = touched[static_cast<size_t>(s.operand)];
      LevelShares& into = s.kind == Site::Kind::kWrite ? r.writes : s.kind == Site::Kind::kWeight ? r.weights : r.reads;
      (s.kind == Site::Kind::kWrite ? writes : s.kind == Site::Kind::kWeight ? weights : reads) += bytes * s.uses;
      std::array<double, kMaxLevels + 1> sums{};
      for (size_t c = 0; apart_ && c <= caches; ++c)
        for (auto p = static_cast<size_t>(s.first_point); p < static_cast<size_t>(s.last_point); ++p) sums[c] += points_[p].uses * served_[c * points + p];
      for (std::int32_t n = s.first_level; !apart_ && n < s.last_level; ++n)
        for (size_t c = 0; c <= caches; ++c) sums[c] += levels_[static_cast<size_t>(n)].uses * served_[c * levels + static_cast<size_t>(n)];
      for (std::int32_t n = s.first_run; !apart_ && n < s.last_run; ++n) {
        const Run& run = runs_[static_cast<size_t>(n)];
        std::array<double, kMaxLevels + 1> served;
        serve(value_[static_cast<size_t>(run.base)] + bytes, value_[static_cast<size_t>(run.step)], run.uses, inverse.data(), caches, sharp, served.data());
        for (size_t c = 0; c <= caches; ++c) sums[c] += served[c];
      }
      for (size_t c = 0; c < caches; ++c) into[of.level[c]] += bytes * sums[c];
      into[last] += bytes * sums[caches];
    }
    const double uses = static_cast<double>(std::max<std::int64_t>(1, w.uses(static_cast<int>(i))));
    r.weight_bytes = std::min(weights / uses, works[i].read);
    const auto normalise = [&](LevelShares& shares, double total) {
      if (!(total > 0)) {
        shares = outermost;
        return;
      }
      const double by = 1 / total;
      for (int l = 0; l < count; ++l) shares[static_cast<size_t>(l)] *= by;
    };
    normalise(r.weights, weights);
    normalise(r.reads, reads);
    normalise(r.writes, writes);
    r.placement = lie;
    if (!apart_) continue;
    const HandoverProgram::Sums& handed = handed_[i];
    if (const double read = weights + reads; read > 0) r.fetched_reads = handed.fetched_reads / read;
    if (writes > 0) r.fetched_writes = handed.fetched_writes / writes, r.reclaimed = handed.reclaimed / writes;
  }
}

}  // namespace fathom
