// What the tests of a routed block's laws share: both backends of the host, a small routed network, its tensors by name.
#pragma once

#include <algorithm>
#include <map>

#include "kernels/reference/backend.hpp"
#include "tests/kernels/run_testing.hpp"
#include "tests/tiny_models.hpp"

#if FATHOM_CPU
#include "kernels/cpu/backend.hpp"
#endif

namespace fathom::testing {

inline std::vector<const Backend*> backends() {
  static const reference::ReferenceBackend reference(reference::Precision::kF64);
  std::vector<const Backend*> all = {&reference};
#if FATHOM_CPU
  static const cpu::CpuBackend cpu;
  all.push_back(&cpu);
#endif
  return all;
}

inline Network tiny_mod(Fraction capacity, std::int64_t every = 2) {
  Tiny t;
  t.every = every;
  t.capacity = capacity;
  t.max_length = 512;
  return network(t);
}

// "mod/attn/qkv/weight" -> "attn/qkv/weight"; names outside the layers stay whole.
inline std::string leaf_of(const Tensor& tensor) { return tensor.scope == Scope::kGlobal ? tensor.name : tensor.name.substr(tensor.name.find('/') + 1); }

using Named = std::map<std::pair<std::string, int>, TensorInstance>;
inline Named tensors_of(const ProgramExecution& run, Role role) {
  Named found;
  for (int i = 0; i < run.instance_count(); ++i)
    for (const auto* views : {&run.bound(i).in, &run.bound(i).out})
      for (const OperandView& view : *views) {
        const Tensor& tensor = run.workload().tensors()[static_cast<size_t>(view.at.tensor)];
        if (tensor.role == role) found[{leaf_of(tensor), view.at.copy}] = view.at;
      }
  return found;
}

inline void copy_weights(const ProgramExecution& from, ProgramExecution& to) {
  const Named sources = tensors_of(from, Role::kWeight);
  for (const auto& [key, at] : tensors_of(to, Role::kWeight))
    if (const auto found = sources.find(key); found != sources.end()) to.write(at, from.read(found->second));
}

inline std::vector<float> values_of(const OperandView& view, const ProgramExecution& run, std::int64_t rows) {
  std::vector<float> values = run.read(view.at);
  values.resize(static_cast<size_t>(rows * view.cols));
  return values;
}

}  // namespace fathom::testing
