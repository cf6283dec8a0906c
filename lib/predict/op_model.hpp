// The seam between step assembly and the time of one op: light, roofline, the calibrated CPU model and the calibrated GPU model.
#pragma once

#include <memory>

#include "lib/predict/roofline.hpp"

namespace fathom {

class OpModel {
 public:
  virtual ~OpModel() = default;
  // One call of the op at this executed size. `work` is work_of(spec, executed). No rows: no time.
  virtual Prediction predict(const OpSpec& spec, const Executed& executed, const OpWork& work, const Residency& residency) const = 0;
  // Does it look at residency at all (light does not)?
  virtual bool needs_residency() const { return true; }
};

// Throws Error(kInput) when the machine was not calibrated.
std::unique_ptr<OpModel> make_cpu_model(const Ceilings& ceilings);
std::unique_ptr<OpModel> make_gpu_model(const Ceilings& ceilings);
// By predictor and kind of machine. `ceilings` must outlive the model.
std::unique_ptr<OpModel> make_op_model(PredictorKind predictor, const Ceilings& ceilings);

}  // namespace fathom
