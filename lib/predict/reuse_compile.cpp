// Making a program: what its sums depend on, and the sums themselves, from two rounds of the list.
#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "lib/predict/reuse_program.hpp"

namespace fathom {

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
        const double bytes = std::min(operands == &op.inputs ? works[i].read : works[i].written, bytes_of(tensor));
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

}  // namespace fathom
