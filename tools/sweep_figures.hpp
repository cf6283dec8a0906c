// The figures of one row of a sweep: which columns there are, and their values for a configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/machine.hpp"
#include "lib/predict/predictor.hpp"
#include "lib/units.hpp"
#include "models/list_line.hpp"
#include "models/totals_kinds.hpp"
#include "models/totals_line.hpp"
#include "models/totals_memo.hpp"
#include "tools/sweep_generation.hpp"
#include "tools/sweep_space.hpp"

namespace fathom {

enum class SweepKind { kCount, kPredict, kCompare };

// A value without the heap: rows are made by the hundred thousand.
struct SweepValue {
  enum class Kind : std::uint8_t { kNone, kCount, kNumber, kText } kind = Kind::kNone;
  u128 count = 0;
  double number = 0;
  std::string text;
};

// "flops" -> "flops_matmul", "time" -> "predicted_s" or "measured_s", "params", "memory", "kv"; else a glossary key. Throws Error(kInput) for a name that is
// unknown, or that this kind of sweep does not yield.
std::string figure_key(const std::string& name, SweepKind kind);

// The default columns, and those of `columns` (empty: the defaults) with `extra` ones appended where missing.
// `columns`: names, or "all".
std::vector<std::string> figure_columns(SweepKind kind, const SweepSpace& space, const std::vector<std::string>& columns, const std::vector<std::string>& extra);

// Those of `keys` that a count gives.
std::vector<std::string> counted_keys(const std::vector<std::string>& keys);

// What compare rows measure with: fills the figures of one configuration by key. Set by the command, so that this file need not know backends.
using MeasureRow = std::function<std::vector<SweepValue>(const SweepPoint&, const std::vector<std::string>& keys)>;

// What rows are timed on, and how. With options.follow_placement a row is what predict() says of it; without, each tensor has memory of its own, which many rows
// share the work of (lib/predict/predictor.hpp).
struct SweepMachine {
  const Machine* machine = nullptr;
  PredictOptions options;
};

class RowEvaluator {
 public:
  // `machines` for kPredict and kCompare, in the order of the space's; `measure` for kCompare. They must outlive this object. `run_tokens`: of a whole run, 0: none.
  RowEvaluator(SweepKind kind, std::vector<std::string> keys, std::vector<SweepMachine> machines, const MeasureRow* measure, u128 run_tokens = 0);

  // Values by column, and "" or the reason why there are none. Never throws for a bad configuration.
  const std::string& evaluate(const SweepPoint& point, std::vector<SweepValue>& values);

 private:
  enum class Figure { kParams, kActive, kFlops, kExpected, kElements, kRead, kWritten, kKv, kKvToken, kPeak, kIntensity, kFlopsRatio, kReadExpected, kWeights, kGradients, kOptimizer, kSaved, kRunSteps, kRunFlops, kConvention, kPredicted, kFirstToken, kPerToken, kLo, kHi, kP50, kP95, kP99, kCompute,
                      kMemory, kLaunch, kPredictedRatio, kTokenRate };
  void count(const SweepPoint& point, std::vector<SweepValue>& values);
  void generation(const SweepPoint& point, std::vector<SweepValue>& values);
  void set_convention(SweepValue& value, const SweepPoint& point, const Cost& total) const;
  void start(const SweepPoint& point);
  void set_cache(const Network& network, const Scenario& scenario, std::int64_t reach);
  bool asks(Figure figure) const;
  const ListTotals& totals(const SweepPoint& point);
  const StepPrediction& predicted(const Workload& list, std::size_t machine);

  SweepKind kind_;
  std::vector<std::string> keys_;
  std::vector<Figure> figures_;
  bool need_list_ = false, need_prediction_ = false, need_expected_ = false, need_twin_ = false;
  std::vector<SweepMachine> machines_;
  const MeasureRow* measure_;
  u128 run_tokens_;
  std::string status_;
  // Kept between rows of one network.
  std::uint64_t network_ = ~std::uint64_t{0};
  u128 params_ = 0, active_ = 0;
  Network twin_;
  ListLine lists_, twin_lists_, ends_;        // ends_: the last decode steps of generations
  std::vector<std::unique_ptr<StepPredictor>> predictors_;  // by machine; made by the first row that needs it: a machine without a fit is that row's error
  StepPrediction placed_;                     // of the row at hand, where it follows the placement
  TotalsMemo memo_, twin_memo_;
  GenerationMemo generations_;
  std::vector<NetworkLine> lines_;  // by variant of a line
  std::vector<KindMemo> kinds_;     // by variant of a family
  struct {
    std::int64_t length = -1, page = 0;
    DType dtype = DType::kF32;
    MlaStrategy mla = MlaStrategy::kNaive;
    u128 each = 0, token = 0;
    std::optional<Fraction> taken;
  } kv_;
};

}  // namespace fathom
