// The seam between step assembly and the time of one op: light, roofline, the calibrated CPU model and the calibrated GPU model.
#pragma once

#include <memory>

#include "lib/predict/roofline.hpp"

namespace fathom {

// What a step is, for models to which it matters.
struct StepContext {
  bool sustained = false;        // training steps and decode loops run at the clocks of sustained load
  bool graph = true;             // one launch for the whole step; false: eager, the host launches every kernel
  bool library_kernels = false;  // PredictOptions::library_kernels
  bool plain_weights = false;    // weights_change(): no product's weights are laid out ahead
  bool summary = false;          // many steps one after the other: shapes are remembered, Prediction::note stays empty. The model then belongs to one thread.
};
StepContext step_context(const Workload& workload, const PredictOptions& options);

// Does a list change its weights (training)? Its products then take them as they are stored, where a list that does not may lay them out once: another code path.
bool weights_change(const Workload& workload);

// What a step costs beyond its ops.
struct StepOverhead {
  double seconds = 0;
  Provenance provenance = Provenance::kProbed;
};

class OpModel {
 public:
  virtual ~OpModel() = default;
  // One call of the op at this executed size. `work` is work_of(spec, executed). No rows: no time.
  virtual Prediction predict(const OpSpec& spec, const Executed& executed, const OpWork& work, const Residency& residency) const = 0;
  // The op at its declared size will be asked for soon: what is remembered of it can be fetched meanwhile.
  virtual void expect(const OpSpec&) const {}
  // Does it look at residency at all (light does not)?
  virtual bool needs_residency() const { return true; }
  // Launching, as far as it is not in the ops: `ops` holds the expected time of each.
  virtual StepOverhead overhead(const Workload&, const PerOp<OpPrediction>& ops) const {
    static_cast<void>(ops);
    return {};
  }
};

// Throws Error(kInput) when the machine was not calibrated.
std::unique_ptr<OpModel> make_cpu_model(const Ceilings& ceilings, const StepContext& context = {});
std::unique_ptr<OpModel> make_gpu_model(const Ceilings& ceilings, const StepContext& context = {});
// By predictor and kind of machine. `ceilings` must outlive the model.
std::unique_ptr<OpModel> make_op_model(PredictorKind predictor, const Ceilings& ceilings, const StepContext& context = {});

}  // namespace fathom
