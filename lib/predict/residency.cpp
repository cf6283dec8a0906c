#include "lib/predict/residency.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lib/predict/handover.hpp"

namespace fathom {
namespace {

// Of an arena. In larger ones a small tensor passes for touched when its neighbour was.
constexpr double kPieces = 8192;
constexpr double kSmallestPiece = 32 << 10;

// Turns operands into touched segments.
class Walker {
 public:
  Walker(const Workload& workload, const MemoryPlan* plan) : workload_(workload), plan_(plan) {
    if (plan_) piece_ = std::max(kSmallestPiece, std::ceil(static_cast<double>(plan_->arena) / kPieces));
  }

  // Address and bytes of an operand: in the arena, else one memory after the other in the order of first use.
  std::pair<double, double> address(const Step& step, const Operand& operand) {
    const TensorInstance at = instance_of(workload_, step, operand);
    const double whole = workload_.tensors()[static_cast<size_t>(at.tensor)].bytes().to_double();
    if (plan_) return {static_cast<double>(plan_->offsets.at(at)), whole};
    const auto [found, fresh] = addresses_.try_emplace(id(at), end_);
    if (fresh) end_ += std::ceil(whole / kSmallestPiece) * kSmallestPiece;
    return {found->second, whole};
  }

  // Visits (segment, bytes) of the first `limit` bytes of an operand.
  template <class Visit>
  void visit(const Step& step, const Operand& operand, double limit, const Visit& visit) {
    const TensorInstance at = instance_of(workload_, step, operand);
    const double bytes = std::min(limit, workload_.tensors()[static_cast<size_t>(at.tensor)].bytes().to_double());
    if (!(bytes > 0)) return;
    if (!plan_) {
      visit(id(at), bytes);
      return;
    }
    const double begin = static_cast<double>(plan_->offsets.at(at)), end = begin + bytes;
    for (double p = std::floor(begin / piece_); p * piece_ < end; ++p)
      visit(static_cast<size_t>(p) + 1, std::min(end, (p + 1) * piece_) - std::max(begin, p * piece_));
  }

 private:
  size_t id(const TensorInstance& at) {
    const auto key = static_cast<std::uint64_t>(at.tensor) << 40 | static_cast<std::uint64_t>(at.copy) << 20 | static_cast<std::uint64_t>(at.micro);
    return ids_.try_emplace(key, ids_.size() + 1).first->second;
  }

  const Workload& workload_;
  const MemoryPlan* plan_;
  double piece_ = 0;
  std::unordered_map<std::uint64_t, size_t> ids_;
  std::unordered_map<size_t, double> addresses_;
  double end_ = 0;
};

void scale(LevelShares& shares, double by) {
  for (double& s : shares) s *= by;
}

}  // namespace

double hit_share(double distance, double capacity, bool sharp) {
  if (std::isinf(distance)) return 0;
  const double r = distance / capacity, r2 = sharp ? r * r * r * r : r * r;
  return 1 / (1 + r2 * r2);
}

LevelShares level_shares(const Machine& machine, int threads, const ReuseDistance& distance) {
  LevelShares shares{};
  const int count = std::min<int>(kMaxLevels, static_cast<int>(machine.levels.size()));
  double missed = 1;
  for (int i = 0; i < count; ++i) {
    const MemoryLevel& level = machine.levels[static_cast<size_t>(i)];
    if (i + 1 == count || !level.capacity) {
      shares[static_cast<size_t>(i)] += i + 1 == count ? missed : 0;
      continue;
    }
    const double cores = static_cast<double>(machine.kind == MachineKind::kGpu ? machine.cores : std::max(1, threads));
    const double hit = hit_share(level.shared ? distance.bytes : distance.copied, level.capacity->value * (level.shared ? 1.0 : cores), machine.kind == MachineKind::kCpu);
    shares[static_cast<size_t>(i)] = missed * hit;
    missed *= 1 - hit;
  }
  return shares;
}

ReuseDistance ReuseTracker::touch(std::size_t segment, double bytes, double copies) {
  if (segment >= slot_of_.size()) {
    slot_of_.resize(segment + 1, 0);
    bytes_of_.resize(segment + 1);
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  ReuseDistance distance{kNever, kNever}, now{bytes, bytes * copies};
  if (const std::size_t slot = slot_of_[segment]; slot > 0) {
    const ReuseDistance before = sum_to(slot), last = bytes_of_[segment];  // after this slot
    distance = {std::max(0.0, total_.bytes - before.bytes), std::max(0.0, total_.copied - before.copied)};
    add(slot - 1, last, -1);
    total_.bytes -= last.bytes;
    total_.copied -= last.copied;
    slot_of_[segment] = 0;
    now = {std::max(bytes, last.bytes), std::max(now.copied, last.copied)};  // a partial touch does not evict the rest
  }
  if (next_ == tree_.size()) compact();
  add(next_, now);
  total_.bytes += now.bytes;
  total_.copied += now.copied;
  slot_of_[segment] = ++next_;
  bytes_of_[segment] = now;
  return distance;
}

void ReuseTracker::add(std::size_t slot, const ReuseDistance& bytes, double sign) {
  for (std::size_t i = slot + 1; i <= tree_.size(); i += i & (~i + 1)) {
    tree_[i - 1].bytes += sign * bytes.bytes;
    tree_[i - 1].copied += sign * bytes.copied;
  }
}

ReuseDistance ReuseTracker::sum_to(std::size_t slot) const {
  ReuseDistance sum;
  for (std::size_t i = slot; i > 0; i -= i & (~i + 1)) {
    sum.bytes += tree_[i - 1].bytes;
    sum.copied += tree_[i - 1].copied;
  }
  return sum;
}

// Renumbers the live slots from 0, in order, with room to grow; exact sums again.
void ReuseTracker::compact() {
  std::vector<std::size_t> live;
  for (std::size_t s = 0; s < slot_of_.size(); ++s)
    if (slot_of_[s] > 0) live.push_back(s);
  std::sort(live.begin(), live.end(), [this](std::size_t a, std::size_t b) { return slot_of_[a] < slot_of_[b]; });
  tree_.assign(std::max<std::size_t>(1024, live.size() * 4), ReuseDistance{});
  next_ = 0;
  total_ = {};
  for (const std::size_t s : live) {
    add(next_, bytes_of_[s]);
    total_.bytes += bytes_of_[s].bytes;
    total_.copied += bytes_of_[s].copied;
    slot_of_[s] = ++next_;
  }
}

PerOp<Residency> residency(const Workload& w, const Machine& machine, int threads, const MemoryPlan* plan, double bytes_between_ops) {
  PerOp<Residency> result(w);
  Walker walker(w, plan);
  ReuseTracker tracker;
  std::vector<Cost> costs;
  for (const Op& op : w.ops()) costs.push_back(declared_cost(op.spec));

  struct Sums {
    double weights = 0, reads = 0, writes = 0;
    double fetched_reads = 0, fetched_writes = 0, reclaimed = 0;
  };
  std::vector<Sums> sums(w.ops().size());
  const bool apart = has_apart_caches(machine, threads);
  const Placement lie = placement_of(machine, threads);
  std::unordered_set<TensorId> written;
  for (const Op& op : w.ops())
    for (const Operand& out : op.outputs) written.insert(out.tensor);
  const bool divided = apart || (plan && lie != Placement::kUnknown);  // summaries (no plan) do not ask who touches what, unless they must
  const bool trains = std::any_of(w.ops().begin(), w.ops().end(), [](const Op& op) { return op.pass == Pass::kBackward; });
  HandoverTracker handover;
  // Of every op's inputs, then its outputs.
  std::vector<std::vector<Division>> divisions(w.ops().size());
  if (divided)
    for (size_t i = 0; i < w.ops().size(); ++i) {
      const Op& op = w.ops()[i];
      for (size_t n = 0; n < op.inputs.size(); ++n) divisions[i].push_back(division_of(op, true, n, trains));
      for (size_t n = 0; n < op.outputs.size(); ++n) divisions[i].push_back(division_of(op, false, n, trains));
    }
  const size_t memory = machine.levels.empty() ? 0 : std::min<size_t>(kMaxLevels, machine.levels.size()) - 1;
  for (int round = 0; round < 2; ++round) {
    for (const Step& step : w.program()) {
      const Block& block = w.blocks()[static_cast<size_t>(step.block)];
      for (int i = block.first_op; i < block.first_op + block.op_count; ++i) {
        const Op& op = w.ops()[static_cast<size_t>(i)];
        const Cost& cost = costs[static_cast<size_t>(i)];
        Residency& r = result[i];
        Sums& sum = sums[static_cast<size_t>(i)];
        if (bytes_between_ops > 0) tracker.touch(0, bytes_between_ops);
        HandedSides reading, writing;
        const auto visit_all = [&](const std::vector<Operand>& operands, double limit, bool inputs) {
          for (size_t n = 0; n < operands.size(); ++n) {
            const Operand& operand = operands[n];
            const bool weight = inputs && w.tensors()[static_cast<size_t>(operand.tensor)].role == Role::kWeight;
            const Division division = divided ? divisions[static_cast<size_t>(i)][inputs ? n : op.inputs.size() + n] : Division::kRows;
            const double copies = division == Division::kAll ? std::max(1, threads) : 1;
            double touched = 0, from_memory = 0;
            walker.visit(step, operand, limit, [&](size_t segment, double bytes) {
              const ReuseDistance distance = tracker.touch(segment, bytes, copies);
              if (round == 0) return;
              const LevelShares shares = level_shares(machine, threads, {distance.bytes + bytes, distance.copied + copies * bytes});
              touched += bytes;
              from_memory += bytes * shares[memory];
              LevelShares& into = !inputs ? r.writes : weight ? r.weights : r.reads;
              for (int l = 0; l < kMaxLevels; ++l) into[static_cast<size_t>(l)] += bytes * shares[static_cast<size_t>(l)];
              (!inputs ? sum.writes : weight ? sum.weights : sum.reads) += bytes;
            });
            if (!divided || (inputs && !written.contains(operand.tensor))) continue;  // what nobody writes, each keeps a copy of
            const auto [begin, whole] = walker.address(step, operand);
            const HandedSides handed = handover.touch(begin, whole, whole > 0 ? std::min(1.0, limit / whole) : 0, !inputs, division);
            if (round == 0 || !(touched > 0)) continue;
            const double cached = 1 - from_memory / touched;  // what has left the caches is nobody's
            HandedSides& into = inputs ? reading : writing;
            for (size_t side = 0; side < into.size(); ++side) {
              into[side].fetched += cached * handed[side].fetched;
              into[side].reclaimed += cached * handed[side].reclaimed;
            }
          }
        };
        visit_all(op.inputs, cost.read.to_double(), true);
        visit_all(op.outputs, cost.written.to_double(), false);
        const size_t slower = slower_side(reading, writing);
        sum.fetched_reads += kHandedSides * reading[slower].fetched;
        sum.fetched_writes += kHandedSides * writing[slower].fetched;
        sum.reclaimed += kHandedSides * writing[slower].reclaimed;
      }
    }
  }
  LevelShares outermost{};
  if (!machine.levels.empty()) outermost[std::min<size_t>(kMaxLevels, machine.levels.size()) - 1] = 1;
  for (size_t i = 0; i < w.ops().size(); ++i) {
    Residency& r = result[static_cast<int>(i)];
    const Sums& sum = sums[i];
    const double uses = static_cast<double>(std::max<std::int64_t>(1, w.uses(static_cast<int>(i))));
    r.placement = lie;
    r.weight_bytes = std::min(sum.weights / uses, costs[i].read.to_double());
    const auto normalise = [&](LevelShares& shares, double total) {
      if (total > 0)
        scale(shares, 1 / total);
      else
        shares = outermost;
    };
    normalise(r.weights, sum.weights);
    normalise(r.reads, sum.reads);
    normalise(r.writes, sum.writes);
    if (const double read = sum.weights + sum.reads; read > 0) r.fetched_reads = sum.fetched_reads / read;
    if (sum.writes > 0) r.fetched_writes = sum.fetched_writes / sum.writes, r.reclaimed = sum.reclaimed / sum.writes;
  }
  return result;
}

}  // namespace fathom
