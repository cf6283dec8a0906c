// Which operands an op takes from another core, where cores do not share their last cache.
//
// Cores of one machine may have last caches of their own (chiplets of several cores each; the virtual cores of a guest may lie on different ones). Then it
// matters who touched a line last. Reading one that the other cache wrote and nobody here read since fetches it from there. Writing one that the other cache has
// read since it was last written takes it away from there first, which is slower than main memory. On a 2-core EPYC guest (family 26) whose cores are so placed,
// per MiB and two threads: read or written where it was touched last 6 us, read from the other cache 15, written after the other has read it 64, main memory 16.
//
// Lines are followed in intervals of addresses that share their history, each as shares of who wrote it last and who has read it since: as many as tensors begin, end or are
// cut in two somewhere, whatever their sizes. Who touches which part of an operand is known from how its kernel divides the work. More than two caches are followed as two halves of the threads. Where the cores share their last cache the same lines
// change hands between their inner caches: reclaiming then takes twice as long as a write of one's own (10 against 5 us per 512 KiB and thread), fetching hardly more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "lib/backend.hpp"
#include "lib/machine.hpp"
#include "lib/workload.hpp"

namespace fathom {

// How the threads share one operand: each a contiguous part of it; each a part of every row; whoever comes first; all of them all of it; the first thread alone.
enum class Division : std::uint8_t { kRows, kColumns, kMixed, kAll, kOne };

// Of input or output number `operand` of an op on a CPU. `trains`: the list has a backward pass, so that weights are not laid out beforehand.
Division division_of(const Op& op, bool input, std::size_t operand, bool trains);
// The same where it is known how many bytes the op reads and writes at its declared size.
Division division_of(const Op& op, bool input, std::size_t operand, bool trains, double bytes);

// Do this machine's threads use last caches that they do not share?
bool has_apart_caches(const Machine& machine, int threads);
// How the machine has its cores: kUnknown where one placement is all there is (a GPU, one thread, no cache beyond those of a core).
Placement placement_of(const Machine& machine, int threads);
// The machine with its cores so placed; unknown: as it is.
Machine placed(Machine machine, Placement placement);

// Bytes that one side takes from the other in one touch, or in all touches of an op.
struct Handed {
  double fetched = 0;    // read or written, last written by the other side
  double reclaimed = 0;  // written, and the other side had read them since they were last written
};
// Reclaiming a line takes as long as fetching this many: per 512 KiB and thread beyond what own lines take, 58 and 10 us where the caches lie apart, 5 and 1 us where they
// are one. Two coefficients cannot be told apart by the few points of a calibration; one of their sum in bytes fetched can.
inline constexpr double kReclaiming = 6;
using HandedSides = std::array<Handed, 2>;
inline constexpr double kHandedSides = 2;  // what the slower side takes counts for both
// Which side takes longer; the first where they take as long to within rounding. An op ends with its slower thread: one that reclaims half of the lines alone is as slow as two that reclaim all of them.
inline std::size_t slower_side(const HandedSides& reading, const HandedSides& writing) {
  const auto weight = [&](std::size_t side) { return reading[side].fetched + writing[side].fetched + kReclaiming * writing[side].reclaimed; };
  constexpr double kRounding = 1e-9;
  return weight(1) > weight(0) * (1 + kRounding) ? 1 : 0;
}

class HandoverTracker {
 public:
  // Touches [begin, begin + extent) in one op, `density` of every part of it: rows may be touched in part (q and k of a wider row), and rows here and there (of a table).
  HandedSides touch(double begin, double extent, double density, bool write, Division division);
  // Intervals that differ in their history, now.
  std::size_t intervals() const { return pieces_.size(); }
  class Memory;

 private:
  static constexpr int kStates = 8;  // last writer (0, 1) x readers since (bits)
  using Shares = std::array<double, kStates>;
  struct Piece {
    std::array<Shares, 2> half{};    // of the columns
    bool known = false;              // has anybody touched it?
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  using Pieces = std::map<double, Piece>;  // by where they begin; each ends where the next one does
  static Handed step(Shares& shares, bool write, int side, double part);
  static HandedSides touch_piece(Piece& piece, int half, double density, bool write, Division division);
  Pieces::iterator cut(double at);
  void join(Pieces::iterator first, Pieces::iterator last);
  Pieces pieces_;
};

// One memory that every op touches from end to end.
class HandoverTracker::Memory {
 public:
  // As HandoverTracker::touch(), per byte.
  HandedSides touch(double density, bool write, Division division);

 private:
  std::array<Piece, 2> halves_{};
};

}  // namespace fathom
