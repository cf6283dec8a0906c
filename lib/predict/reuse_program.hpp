// Residency of many op lists that differ in sizes alone: the walk of lib/predict/residency.cpp, done once, as sums.
//
// Which memory is touched between two touches of a piece depends on the list's structure (program, operands, scopes), not on sizes. So every reuse distance is a sum
// of sizes with fixed multiplicities, and of the uses of one operand in one layer after the other most are an arithmetic progression. A program holds those sums;
// evaluating it costs a few multiplications per operand instead of a walk over every layer. Distances are whole numbers of bytes below 2^53, hence the same
// as the walk's; shares are added in another order (equal within 1e-12).
#pragma once

#include <cstdint>
#include <vector>

#include "lib/predict/residency.hpp"
#include "lib/predict/work.hpp"

namespace fathom {

class ReuseProgram {
 public:
  // What the sums depend on: steps, operands, and which operands have bytes at all. `works` is work_of(spec, declared(spec)) per op; `touched` receives the bytes
  // that each op touches of each operand, inputs before outputs.
  static void structure_of(const Workload& workload, const std::vector<OpWork>& works, bool bytes_between, std::vector<std::int32_t>& into, std::vector<double>& touched);
  // Touches of two rounds times pieces of memory: what compiling costs at most. Too much for very long programs, which are walked instead.
  static bool worth_while(const Workload& workload);

  ReuseProgram(const Workload& workload, const std::vector<double>& touched, bool bytes_between, std::vector<std::int32_t> structure);
  const std::vector<std::int32_t>& structure() const { return structure_; }

  // residency(workload, machine, threads, nullptr, bytes_between_ops) for a list of this structure.
  void evaluate(const Workload& workload, const std::vector<OpWork>& works, const std::vector<double>& touched, const Machine& machine, int threads, double bytes_between_ops,
                PerOp<Residency>& result);

 private:
  struct Term {
    double times;
    std::int32_t mass;
  };
  // An earlier sum (below 0: none) and terms_[first, last): neighbours in the program differ by little.
  struct Sum {
    std::int32_t from = -1;
    std::int32_t first = 0, last = 0;
  };
  // `uses` touches of one operand whose distances are base, base + step, base + 2 step, ... (indices of sums_).
  struct Run {
    std::int32_t uses = 0;
    std::int32_t base = 0, step = -1;
  };
  // The same at one distance.
  struct Level {
    std::int32_t operand = 0;
    std::int32_t base = 0;
    double uses = 0;
  };
  struct Site {  // an operand of an op that has bytes
    std::int32_t op = 0;
    std::int32_t operand = 0;  // of all operands of the list
    enum class Kind : std::uint8_t { kWeight, kRead, kWrite } kind = Kind::kRead;
    std::int32_t first_run = 0, last_run = 0;      // of runs_
    std::int32_t first_level = 0, last_level = 0;  // of levels_
    double uses = 0;
  };
  std::vector<std::int32_t> structure_;
  std::vector<Site> sites_;
  std::vector<Run> runs_;
  std::vector<Level> levels_;
  std::vector<Sum> sums_;
  std::vector<Term> terms_;
  std::vector<std::vector<std::int32_t>> masses_;  // of a kind of memory: the operands that touch it; its size is the largest touch
  std::vector<double> mass_, value_;               // by mass, by sum: of the list at hand
  std::vector<double> served_;                     // by cache (memory last) and level
};

}  // namespace fathom
