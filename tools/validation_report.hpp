// What a validation says: accuracy of steps, of ops by class, of rankings, and of what depth routing saves.
#pragma once

#include <string>
#include <vector>

#include "lib/predict/calibrate.hpp"
#include "models/validation.hpp"
#include "tools/timed.hpp"

namespace fathom {

// One configuration of the set, predicted and measured.
struct GradedCase {
  ValidationCase source;
  std::vector<Timed> timed;           // one; empty when the configuration cannot be executed
  StepPrediction held_out;            // without any curve of its products' (n, k); no workload: not predicted
  StepPrediction held_out_otherwise;  // for cores that lie the other way (Timed)
};

// Everything a validation did.
struct ValidationRun {
  Machine machine;
  PredictOptions options;
  int threads = 1;
  DType dtype = DType::kF32;
  int set = 1;
  bool quick = false;
  std::string backend;
  Record record;                      // command, environment, notes
  std::string predicted_at, measured_at;
  std::string predictions;            // the file that holds what was predicted; empty: there is none
  std::vector<GradedCase> cases;
  std::vector<std::string> skipped;
  int measured_again = 0;
};

// Whether a curve of the machine file is that of this product and code path.
bool same_product(const GemmCurve& curve, const Gemm& op, const ProductShape& shape, double few, bool plain);

// With `ops` also the table below.
Document validation_report(const ValidationRun& run, bool ops);

// Every op of every executed configuration: predicted, measured, and why it is not graded.
ReportTable validation_ops(const ValidationRun& run);

}  // namespace fathom
