// One list on a backend and on the reference, compared op by op (same inputs for each op) and as a whole.
//
// Tolerance of an output: the largest difference over the largest magnitude of the tensor. f32 op by op 2e-5 (sums of at most a few
// hundred products against f64 sums), whole lists 2e-4; bf16 op by op 2e-2 (one or two roundings of 2^-9), whole lists 0.1.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/reference/backend.hpp"
#include "models/builder.hpp"
#include "tools/check.hpp"

namespace fathom::testing {

inline const Tensor& tensor_of(const Workload& w, const OperandView& view) { return w.tensors()[static_cast<size_t>(view.at.tensor)]; }

inline std::vector<float> live(std::vector<float> values, const OpSpec& spec, size_t o, const OperandView& view, const Executed& executed) {
  values.resize(static_cast<size_t>(live_rows(spec, o, view, executed) * view.cols));
  return values;
}

inline void compare_backend(const Backend& backend, const Network& net, const Scenario& s, double op_tolerance, double list_tolerance) {
  const Workload w = build(net, s);
  BindOptions options;
  options.threads = 2;
  options.learning_rate = 1e-2;
  options.epsilon = 1e-3;  // gradients that are zero but for rounding (key biases) must not become whole Adam steps
  const reference::ReferenceBackend reference_backend;
  for (const Op& op : w.ops()) {
    const Support support = backend.supports(op.spec);
    if (!support.ok || !reference_backend.supports(op.spec).ok) return;  // stated by the backend, with its reason
  }
  const auto want = reference_backend.bind_reference(w, options);
  const auto got = backend.bind(w, options);

  want->begin_pass();
  got->begin_pass();
  for (int i = 0; i < want->instance_count(); ++i) {
    const BoundOp& bound = want->bound(i);
    const Op& op = w.ops()[static_cast<size_t>(bound.op)];
    CAPTURE(w.path(w.instances()[static_cast<size_t>(i)]), kind_name(op.spec), i);
    std::set<TensorInstance> copied;
    for (const auto* views : {&bound.in, &bound.out})
      for (const OperandView& view : *views)
        if (tensor_of(w, view).role != Role::kWeight && copied.insert(view.at).second) got->write(view.at, want->read(view.at));
    const auto held = held_columns(*want, bound);
    want->run_instance(i);
    got->run_instance(i);
    const Executed executed = want->executed(i);
    CHECK(got->executed(i).rows == executed.rows);
    CHECK(to_string(got->executed(i).pairs) == to_string(executed.pairs));
    CHECK(got->executed_flops(i) >= want->executed_flops(i));
    for (size_t o = 0; o < bound.out.size(); ++o) {
      CAPTURE(tensor_of(w, bound.out[o]).name, o);
      const OperandView& view = bound.out[o];
      CHECK(relative_difference(live(got->read(view.at), op.spec, o, view, executed), live(want->read(view.at), op.spec, o, view, executed), view.cols,
                                held[o]) <= op_tolerance);
    }
  }

  // Whole lists, each on its own results; twice, so that a second run shows what the first left behind.
  if (list_tolerance <= 0) return;
  want->reset();
  got->reset();
  for (int run = 0; run < 2; ++run) {
    if (run > 0 && s.phase == Phase::kTrain) {
      // AdamW's first step is as long as the learning rate whatever the gradient: one that is zero but for rounding moves a weight either way, and a routed
      // token with it. So the second step starts from one set of weights and moments, both compared above.
      std::set<TensorInstance> copied;
      for (int i = 0; i < want->instance_count(); ++i)
        for (const auto* views : {&want->bound(i).in, &want->bound(i).out})
          for (const OperandView& view : *views)
            if (const Role role = tensor_of(w, view).role; (role == Role::kWeight || role == Role::kOptimizerState) && copied.insert(view.at).second) got->write(view.at, want->read(view.at));
    }
    want->run();
    got->run();
    for (int i = 0; i < want->instance_count(); ++i) {
      const BoundOp& bound = want->bound(i);
      const Op& op = w.ops()[static_cast<size_t>(bound.op)];
      for (const OperandView& view : bound.out) {
        const Role role = tensor_of(w, view).role;
        if (role == Role::kActivation && tensor_of(w, view).name != "head/logits") continue;  // its memory may have been reused
        if (role == Role::kIndex) continue;
        if (s.phase == Phase::kTrain && role == Role::kActivation) continue;
        CAPTURE(w.path(w.instances()[static_cast<size_t>(i)]), kind_name(op.spec), tensor_of(w, view).name, run);
        CHECK(relative_difference(got->read(view.at), want->read(view.at), 0) <= list_tolerance);
      }
    }
  }
}

}  // namespace fathom::testing
