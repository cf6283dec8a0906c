#include "lib/predict/handover.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace fathom {
namespace {

constexpr double kOneThreadBytes = 128 << 10;         // below, vector kernels do not call a second thread
constexpr double kOneThreadProducts = 1 << 17;        // multiply-adds below which a product does not
constexpr std::int64_t kStreamedRows = 8;             // a product of fewer rows streams its weights past them

// Do two threads divide a product by rows or by columns of what it writes? Laying out an element costs about kLayOut multiply-adds, reading one of the weights from
// memory the time in which kRead rows are multiplied with it (kernels/cpu/gemm_f32.cpp has the same rule). `plain`: weights are laid out in every call.
bool divided_by_rows(double rows, double columns, bool plain) {
  constexpr double kLayOut = 20, kRead = 28;
  const auto cost = [&](double r, double c) { return std::max(r, kRead) * c + kLayOut * (r + (plain ? c : 0)); };
  return cost(std::ceil(rows / 2), columns) < cost(rows, columns / 2);
}

Division of_gemm(const Gemm& op, bool input, std::size_t operand, bool trains) {
  const double products = static_cast<double>(op.rows.count) * static_cast<double>(op.in) * static_cast<double>(op.out);
  if (op.experts > 1) return Division::kMixed;  // every expert's rows are divided anew
  if (products < kOneThreadProducts) return Division::kOne;
  const bool first = input && operand == 0;
  switch (op.role) {
    case GemmRole::kForward:
    case GemmRole::kInputGradient: {
      if (op.role == GemmRole::kForward && op.rows.count <= kStreamedRows) return first ? Division::kAll : Division::kRows;
      const std::int64_t columns = op.role == GemmRole::kForward ? op.out : op.in;
      const bool by_rows = divided_by_rows(static_cast<double>(op.rows.count), static_cast<double>(columns), trains);
      if (input) return first == by_rows ? Division::kRows : Division::kAll;
      return by_rows ? Division::kRows : Division::kColumns;
    }
    case GemmRole::kWeightGradient: {  // in x rows by rows x out
      const bool by_rows = divided_by_rows(static_cast<double>(op.in), static_cast<double>(op.out), true);
      if (input) return first == by_rows ? Division::kColumns : Division::kAll;
      return by_rows ? Division::kRows : Division::kColumns;
    }
  }
  return Division::kMixed;
}

// Every thread a stretch of the sequences and their heads (kernels/cpu/own_first.hpp): the rows of some sequences, of one sequence some heads. A step over the cache has
// one row a sequence, whose heads lie one after the other as their keys do.
Division of_attention(const Attention& op) { return op.sequences > 1 || op.cached ? Division::kRows : Division::kColumns; }

// Beyond the caches that every core has to itself; null where there is none.
template <class Levels>
auto last_cache(Levels& levels) {
  return levels.size() >= 4 ? &levels[levels.size() - 2] : nullptr;
}

struct DivisionOf {
  bool input;
  std::size_t operand;
  bool trains;
  Division operator()(const Gemm& op) const { return of_gemm(op, input, operand, trains); }
  Division operator()(const Attention& op) const { return of_attention(op); }
  Division operator()(const AttentionBackward& op) const { return of_attention(op.forward); }
  Division operator()(const Embedding&) const { return input ? Division::kMixed : Division::kRows; }
  Division operator()(const EmbeddingBackward&) const { return input ? Division::kRows : Division::kMixed; }
  Division operator()(const ExpertDispatch&) const { return input ? Division::kMixed : Division::kRows; }
  Division operator()(const ExpertCombine&) const { return input && operand == 0 ? Division::kMixed : Division::kRows; }
  Division operator()(const ExpertDispatchBackward&) const { return input && operand == 0 ? Division::kMixed : Division::kRows; }
  Division operator()(const ExpertCombineBackward&) const { return Division::kMixed; }
  Division operator()(const Select&) const { return Division::kOne; }
  Division operator()(const RouterLoss&) const { return Division::kOne; }
  Division operator()(const auto&) const { return Division::kRows; }
};

}  // namespace

Division division_of(const Op& op, bool input, std::size_t operand, bool trains) {
  if (std::holds_alternative<Gemm>(op.spec)) return division_of(op, input, operand, trains, 0);
  const Cost cost = declared_cost(op);
  return division_of(op, input, operand, trains, (cost.read + cost.written).to_double());
}

Division division_of(const Op& op, bool input, std::size_t operand, bool trains, double bytes) {
  if (!std::holds_alternative<Gemm>(op.spec) && bytes < kOneThreadBytes) return Division::kOne;
  return std::visit(DivisionOf{input, operand, trains}, op.spec);
}

bool has_apart_caches(const Machine& machine, int threads) {
  if (machine.kind != MachineKind::kCpu || threads < 2) return false;
  const MemoryLevel* last = last_cache(machine.levels);
  return last && !last->shared;
}

Placement placement_of(const Machine& machine, int threads) {
  if (machine.kind != MachineKind::kCpu || threads < 2 || !last_cache(machine.levels)) return Placement::kUnknown;
  return has_apart_caches(machine, threads) ? Placement::kApart : Placement::kTogether;
}

Machine placed(Machine machine, Placement placement) {
  if (machine.kind == MachineKind::kCpu && placement != Placement::kUnknown)
    if (MemoryLevel* last = last_cache(machine.levels)) last->shared = placement == Placement::kTogether;
  return machine;
}

// `part`: the share of the lines that this side touches; the others keep their state.
Handed HandoverTracker::step(Shares& shares, bool write, int side, double part) {
  Handed handed;
  Shares after{};
  for (int state = 0; state < kStates; ++state) {
    const double here = shares[static_cast<std::size_t>(state)];
    if (!(here > 0)) continue;
    const int writer = state & 1, readers = state >> 1, own = 1 << side, other = 3 ^ own;
    int next = state;
    if (write) {
      if (readers & other)
        handed.reclaimed += here * part;
      else if (writer != side && readers == 0)
        handed.fetched += here * part;
      next = side;
    } else {
      const bool near = (readers & own) || (writer == side && !(readers & other));
      if (!near) handed.fetched += here * part;
      next = writer | (readers | own) << 1;
    }
    after[static_cast<std::size_t>(next)] += here * part;
    after[static_cast<std::size_t>(state)] += here * (1 - part);
  }
  shares = after;
  return handed;
}

// Bytes taken per byte of the piece. `half`: of the touch, by which of the two threads it would be divided by rows.
HandedSides HandoverTracker::touch_piece(Piece& piece, int half, double density, bool write, Division division) {
  HandedSides sum;
  if (!piece.known) {  // nobody has it
    piece.known = true;
    for (Shares& shares : piece.half) shares[static_cast<std::size_t>(half)] = 1;
  }
  for (int h = 0; h < 2; ++h) {
    Shares& shares = piece.half[static_cast<std::size_t>(h)];
    const auto taken = [&](int side, const Handed& handed, double share) {
      sum[static_cast<std::size_t>(side)].fetched += share * handed.fetched / 2;
      sum[static_cast<std::size_t>(side)].reclaimed += share * handed.reclaimed / 2;
    };
    const auto by = [&](int side) { taken(side, step(shares, write, side, density), 1); };
    switch (division) {
      case Division::kRows: by(half); break;
      case Division::kColumns: by(h); break;
      case Division::kOne: by(0); break;
      case Division::kAll: {  // at the same time: each finds what was there before
        Shares before = shares;
        const Handed second = step(before, write, 1, density);
        by(0);
        step(shares, write, 1, density);
        taken(1, second, 1);
        break;
      }
      case Division::kMixed: {
        Shares one = shares, two = shares;
        taken(0, step(one, write, 0, density), 0.5);
        taken(1, step(two, write, 1, density), 0.5);
        for (std::size_t s = 0; s < kStates; ++s) shares[s] = (one[s] + two[s]) / 2;
        break;
      }
    }
  }
  return sum;
}

// The piece that begins at `at`, cut off the one that holds it.
HandoverTracker::Pieces::iterator HandoverTracker::cut(double at) {
  const auto after = pieces_.lower_bound(at);
  if (after != pieces_.end() && after->first == at) return after;
  return pieces_.emplace_hint(after, at, after == pieces_.begin() ? Piece{} : std::prev(after)->second);
}

// Neighbours of one history, from `first` to `last` itself, become one piece.
void HandoverTracker::join(Pieces::iterator first, Pieces::iterator last) {
  if (first != pieces_.begin()) --first;
  const auto end = std::next(last);
  for (auto next = std::next(first); next != end;) {
    if (next->second == first->second)
      next = pieces_.erase(next);
    else
      first = next++;
  }
}

HandedSides HandoverTracker::touch(double begin, double extent, double density, bool write, Division division) {
  HandedSides sum;
  if (!(extent > 0) || !(density > 0)) return sum;
  const double middle = begin + extent / 2;
  const auto first = cut(begin);
  if (middle > begin) cut(middle);
  const auto last = cut(begin + extent);
  for (auto piece = first; piece != last;) {
    const auto next = std::next(piece);
    const double bytes = next->first - piece->first;
    const HandedSides taken = touch_piece(piece->second, piece->first < middle ? 0 : 1, density, write, division);
    for (std::size_t side = 0; side < sum.size(); ++side) {
      sum[side].fetched += bytes * taken[side].fetched;
      sum[side].reclaimed += bytes * taken[side].reclaimed;
    }
    piece = next;
  }
  join(first, last);
  return sum;
}

HandedSides HandoverTracker::Memory::touch(double density, bool write, Division division) {
  HandedSides sum;
  if (!(density > 0)) return sum;
  for (int half = 0; half < 2; ++half) {
    const HandedSides taken = touch_piece(halves_[static_cast<std::size_t>(half)], half, density, write, division);
    for (std::size_t side = 0; side < sum.size(); ++side) {
      sum[side].fetched += taken[side].fetched / 2;
      sum[side].reclaimed += taken[side].reclaimed / 2;
    }
  }
  return sum;
}

}  // namespace fathom
