// Residency of many op lists that differ in sizes alone: the walk of lib/predict/residency.cpp, done once, as sums.
//
// Which memory is touched between two touches of a piece depends on the list's structure (program, operands, scopes), not on sizes. So every reuse distance is a sum
// of sizes with fixed multiplicities, and of the uses of one operand in one layer after the other most are an arithmetic progression. A program holds those sums;
// evaluating it costs a few multiplications per operand instead of a walk over every layer. Distances are whole numbers of bytes below 2^53, hence the same
// as the walk's; shares are added in another order (equal within 1e-12). Where cores have last caches of their own, distances are summed a second time with what threads
// copy counted for each, and what cores take from each other is followed by history (lib/predict/handover_program.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lib/predict/handover_program.hpp"
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

  // `apart`: has_apart_caches() of the machines that it will be asked for. Then what threads copy counts for each of them, and what they take from each other is followed.
  ReuseProgram(const Workload& workload, const std::vector<double>& touched, bool bytes_between, bool apart, std::vector<std::int32_t> structure);
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
    std::int32_t first_point = 0, last_point = 0;  // of points_
    double uses = 0;
  };
  // Apart: one distance, base + k step, of `uses` touches of a site.
  struct Point {
    std::int32_t site = 0;
    std::int32_t base = 0, step = -1;
    double k = 0, uses = 0;
  };
  // Caches: levels with a capacity, before the last one, which serves the rest.
  struct Caches {
    std::array<double, kMaxLevels> inverse{};  // of the capacity, of all cores that have one to themselves
    std::array<std::size_t, kMaxLevels> level{};
    std::array<bool, kMaxLevels> shared{};
    std::size_t count = 0;
  };
  static double bytes_of(const Tensor& tensor) {
    constexpr std::int64_t kSmall = std::int64_t{1} << 30;  // whose product with the size of an element fits 64 bits
    return tensor.rows < kSmall && tensor.cols < kSmall ? static_cast<double>(tensor.rows * tensor.cols * static_cast<std::int64_t>(dtype_bytes(tensor.dtype))) : tensor.bytes().to_double();
  }
  static constexpr std::int32_t kBetween = -1;  // the site that stands for bytes touched between ops
  void sum_up(const std::vector<double>& mass, std::vector<double>& value) const;
  void divide(const Workload& workload, const std::vector<OpWork>& works, const std::vector<double>& touched);
  void serve_points(const std::vector<double>& touched, const Caches& caches, int threads);

  bool apart_;
  std::vector<std::int32_t> structure_;
  std::vector<Site> sites_;
  std::vector<Run> runs_;
  std::vector<Level> levels_;
  std::vector<Sum> sums_;
  std::vector<Term> terms_;
  std::vector<std::vector<std::int32_t>> masses_;  // of a kind of memory: the operands that touch it; its size is the largest touch
  std::vector<double> mass_, value_;               // by mass, by sum: of the list at hand
  std::vector<double> served_;                     // by cache (memory last) and level, or point
  // Apart.
  std::vector<Point> points_;
  HandoverProgram handover_;
  std::vector<HandoverProgram::Site> divided_;     // by site
  std::vector<double> copies_;                     // by site
  std::vector<double> copied_mass_, copied_value_, distance_, copied_distance_, in_cache_;
  std::vector<HandoverProgram::Sums> handed_;      // by op
};

}  // namespace fathom
