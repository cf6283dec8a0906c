// A workload bound to a backend (the reference in f64 if not said otherwise) and seen by parameter name, for comparisons with independent
// implementations.
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

// A workload seen by parameter name.
class BoundModel {
 public:
  BoundModel(const Network& net, const Scenario& s, BindOptions options, reference::Precision precision = reference::Precision::kWide)
      : BoundModel(net, s, options, reference::ReferenceBackend(precision)) {}
  BoundModel(const Network& net, const Scenario& s, BindOptions options, const Backend& backend) : workload(build(net, s)) {
    bound_ = backend.bind(workload, options);
    exec = &dynamic_cast<ProgramExecution&>(*bound_);
    wide_ = dynamic_cast<reference::ReferenceExecution*>(exec);
    for (int i = 0; i < exec->instance_count(); ++i)
      for (const auto* views : {&exec->bound(i).in, &exec->bound(i).out})
        for (const OperandView& view : *views) {
          const Tensor& tensor = workload.tensors()[static_cast<size_t>(view.at.tensor)];
          tensors[parameter_key(tensor, view.at.copy)] = view.at;
          if (tensor.role == Role::kWeight) weights[parameter_key(tensor, view.at.copy)] = view.at;
        }
  }

  std::vector<double> read(const TensorInstance& at) const {
    if (wide_) return wide_->read_wide(at);
    const std::vector<float> values = exec->read(at);
    return {values.begin(), values.end()};
  }
  void write(const TensorInstance& at, const std::vector<double>& values) {
    if (wide_) return wide_->write_wide(at, values);
    exec->write(at, std::vector<float>(values.begin(), values.end()));
  }
  std::map<ParameterKey, std::vector<double>> parameters() const {
    std::map<ParameterKey, std::vector<double>> p;
    for (const auto& [key, at] : weights) p[key] = read(at);
    return p;
  }
  std::vector<double> gradient(const ParameterKey& key) const { return read(tensors.at({key.first + ".grad", key.second})); }
  std::vector<int> input(const std::string& name) const {
    std::vector<int> values;
    for (const double v : read(tensors.at({name, -1}))) values.push_back(static_cast<int>(v));
    return values;
  }
  // Cross entropy, and the sum of the routers' losses; of the last micro-step.
  std::pair<double, double> losses() const {
    double auxiliary = 0;
    const auto micro = [&](int i) { return workload.program()[static_cast<size_t>(exec->bound(i).step)].micro; };
    for (int i = 0; i < exec->instance_count(); ++i)
      if (std::holds_alternative<RouterLoss>(*exec->bound(i).spec) && micro(i) == micro(exec->instance_count() - 1)) auxiliary += read(exec->bound(i).out[0].at)[0];
    return {read(tensors.at({"loss", -1}))[0], auxiliary};
  }

  Workload workload;
  ProgramExecution* exec = nullptr;
  std::map<ParameterKey, TensorInstance> weights;
  std::map<ParameterKey, TensorInstance> tensors;

 private:
  std::unique_ptr<Execution> bound_;
  reference::ReferenceExecution* wide_ = nullptr;  // where values are kept in f64
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
