// Gates and activations as device functions. Their derivatives are those of kernels/reference.
#pragma once

#include "kernels/cuda/simt.hpp"
#include "lib/op_forward.hpp"

namespace fathom::cuda {

FATHOM_DEV float logistic(float x) { return 1.0f / (1.0f + dev::fexp(-x)); }

FATHOM_DEV float gate_value(const Gate& gate, float r) {
  const float alpha = static_cast<float>(gate.alpha);
  switch (gate.kind) {
    case GateKind::kRaw: return r;
    case GateKind::kSigmoid: return logistic(r);
    case GateKind::kScaledSigmoid: return alpha * logistic(r);
    case GateKind::kTanh: return alpha * dev::ftanh(r) + static_cast<float>(gate.beta);
    case GateKind::kNone: break;
  }
  return 1.0f;
}
FATHOM_DEV float gate_slope(const Gate& gate, float r) {
  const float alpha = static_cast<float>(gate.alpha), s = logistic(r), t = dev::ftanh(r);
  switch (gate.kind) {
    case GateKind::kRaw: return 1.0f;
    case GateKind::kSigmoid: return s * (1.0f - s);
    case GateKind::kScaledSigmoid: return alpha * s * (1.0f - s);
    case GateKind::kTanh: return alpha * (1.0f - t * t);
    case GateKind::kNone: break;
  }
  return 0.0f;
}

inline constexpr float kGeluTanh = 0.7978845608028654f;  // sqrt(2 / pi)
inline constexpr float kGeluCube = 0.044715f;

template <ActivationKind kKind>
FATHOM_DEV float activate(float x) {
  if constexpr (kKind == ActivationKind::kGeluTanh) {
    // 0.5 x (1 + tanh u) = x sigma(2 u)
    return x * logistic(2.0f * kGeluTanh * (x + kGeluCube * x * x * x));
  } else if constexpr (kKind == ActivationKind::kGeluErf) {
    return 0.5f * x * (1.0f + dev::ferf(x * 0.7071067811865476f));
  } else if constexpr (kKind == ActivationKind::kSilu) {
    return x * logistic(x);
  } else {
    const float positive = x > 0.0f ? x : 0.0f;
    return kKind == ActivationKind::kRelu ? positive : positive * positive;
  }
}

template <ActivationKind kKind>
FATHOM_DEV float activation_slope(float x) {
  if constexpr (kKind == ActivationKind::kGeluTanh) {
    const float s = logistic(2.0f * kGeluTanh * (x + kGeluCube * x * x * x));
    return s + x * s * (1.0f - s) * 2.0f * kGeluTanh * (1.0f + 3.0f * kGeluCube * x * x);
  } else if constexpr (kKind == ActivationKind::kGeluErf) {
    return 0.5f * (1.0f + dev::ferf(x * 0.7071067811865476f)) + x * dev::fexp(-0.5f * x * x) * 0.3989422804014327f;
  } else if constexpr (kKind == ActivationKind::kSilu) {
    const float s = logistic(x);
    return s * (1.0f + x * (1.0f - s));
  } else if constexpr (kKind == ActivationKind::kRelu) {
    return x > 0.0f ? 1.0f : 0.0f;
  } else {
    return x > 0.0f ? 2.0f * x : 0.0f;
  }
}

}  // namespace fathom::cuda
