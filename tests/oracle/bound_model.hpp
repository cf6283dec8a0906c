// A workload bound to the reference in f64 and seen by parameter name, for comparisons with independent implementations.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/reference/backend.hpp"
#include "models/builder.hpp"

namespace fathom::testing {

// A parameter's name within its layer ("attn/qkv/weight") and the layer; embedding and head have layer -1 and their full names.
using ParameterKey = std::pair<std::string, int>;

// "mod/attn/qkv/weight" of layer 1 -> {"attn/qkv/weight", 1}.
inline ParameterKey parameter_key(const Tensor& tensor, int copy) {
  if (tensor.scope != Scope::kWeights) return {tensor.name, -1};
  return {tensor.name.substr(tensor.name.find('/') + 1), copy};
}

// A workload on the reference in f64, seen by parameter name.
class BoundModel {
 public:
  BoundModel(const Network& net, const Scenario& s, BindOptions options, reference::Precision precision = reference::Precision::kWide)
      : workload(build(net, s)) {
    exec = reference::ReferenceBackend(precision).bind_reference(workload, options);
    for (int i = 0; i < exec->instance_count(); ++i)
      for (const auto* views : {&exec->bound(i).in, &exec->bound(i).out})
        for (const OperandView& view : *views) {
          const Tensor& tensor = workload.tensors()[static_cast<size_t>(view.at.tensor)];
          tensors[parameter_key(tensor, view.at.copy)] = view.at;
          if (tensor.role == Role::kWeight) weights[parameter_key(tensor, view.at.copy)] = view.at;
        }
  }

  std::map<ParameterKey, std::vector<double>> parameters() const {
    std::map<ParameterKey, std::vector<double>> p;
    for (const auto& [key, at] : weights) p[key] = exec->read_wide(at);
    return p;
  }
  std::vector<double> gradient(const ParameterKey& key) const { return exec->read_wide(tensors.at({key.first + ".grad", key.second})); }
  std::vector<int> input(const std::string& name) const {
    std::vector<int> values;
    for (const double v : exec->read_wide(tensors.at({name, -1}))) values.push_back(static_cast<int>(v));
    return values;
  }
  // Cross entropy, and the sum of the routers' losses.
  std::pair<double, double> losses() const {
    double auxiliary = 0;
    std::set<TensorInstance> seen;
    for (int i = 0; i < exec->instance_count(); ++i)
      if (std::holds_alternative<RouterLoss>(*exec->bound(i).spec) && seen.insert(exec->bound(i).out[0].at).second)
        auxiliary += exec->read_wide(exec->bound(i).out[0].at)[0];
    return {exec->read_wide(tensors.at({"loss", -1}))[0], auxiliary};
  }

  Workload workload;
  std::unique_ptr<reference::ReferenceExecution> exec;
  std::map<ParameterKey, TensorInstance> weights;
  std::map<ParameterKey, TensorInstance> tensors;
};

// The largest difference over the largest magnitude.
inline double worst_difference(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double worst = 0, top = 1e-12;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::isfinite(got[i]) ? std::max(worst, std::abs(got[i] - want[i])) : INFINITY;
    top = std::max(top, std::abs(want[i]));
  }
  return worst / std::max(top, 1e-6);
}

}  // namespace fathom::testing
