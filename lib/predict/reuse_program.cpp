#include "lib/predict/reuse_program.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

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
        divided.bytes = bytes_of(w.tensors()[static_cast<size_t>(operands[n].tensor)]);
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
      for (auto p = static_cast<size_t>(s.first_point); p < static_cast<size_t>(s.last_point); ++p)
        for (size_t c = 0; c <= caches; ++c) sums[c] += points_[p].uses * served_[c * points + p];
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
