// Expert routing, grouped products and their gradients on the CPU against the reference, as a hand-made op list: few rows per expert (streamed),
// many (padded plans), experts without rows, no-op experts, biases, both score functions.
#if FATHOM_CPU
#include <catch2/catch.hpp>

#include <cmath>

#include "kernels/cpu/backend.hpp"
#include "kernels/program.hpp"
#include "kernels/reference/backend.hpp"

namespace fathom::testing {
namespace {

struct Setting {
  std::int64_t tokens, width, inner, experts, noops, picks;
  bool sigmoid, bias, shared;
  DType dtype;
};

// select, dispatch, one grouped product, combine, and everything backward. All tensors persist, so that each can be compared.
Workload expert_list(const Setting& s) {
  WorkloadBuilder out;
  const std::int64_t rows = s.tokens * s.picks;
  const auto tensor = [&](const char* name, std::int64_t r, std::int64_t c, DType type, Role role = Role::kOutput) {
    return Operand{out.tensor(name, role, Scope::kGlobal, r, c, type), 0};
  };
  out.stream({1, s.tokens, 0, 16});
  const Operand x = tensor("x", s.tokens, s.width, s.dtype), logits = tensor("logits", s.tokens, s.experts + s.noops, DType::kF32);
  const Operand permutation = tensor("permutation", rows, 1, DType::kI32), offsets = tensor("offsets", s.experts + 1, 1, DType::kI32);
  const Operand weights = tensor("weights", rows, 1, DType::kF32), sorted = tensor("sorted", rows + 32, s.width, s.dtype);
  const Operand w = tensor("w/weight", s.experts * s.width, s.inner, s.dtype, Role::kWeight), b = tensor("w/bias", s.experts, s.inner, s.dtype, Role::kWeight);
  const Operand inner = tensor("inner", rows + 32, s.inner, s.dtype), y = tensor("y", s.tokens, s.inner, s.dtype), shared = tensor("shared", s.tokens, s.inner, s.dtype);
  out.begin_block("experts", false);
  const ExpertSelect select{Rows{s.tokens}, s.experts, s.noops, s.picks, s.sigmoid};
  out.op("select", Part::kRouting, Pass::kForward, select, {logits}, {permutation, weights, offsets});
  const ExpertDispatch dispatch{Rows{rows}, s.width, s.dtype};
  out.op("dispatch", Part::kRouting, Pass::kForward, dispatch, {x, permutation}, {sorted});
  Gemm gemm{Rows{rows}, s.width, s.inner};
  gemm.bias = s.bias, gemm.experts = s.experts, gemm.tokens = s.tokens, gemm.picks = s.picks;
  gemm.act = gemm.weight = gemm.result = s.dtype;
  std::vector<Operand> sources = {sorted, w};
  if (s.bias) sources.push_back(b);
  sources.push_back(offsets);
  out.op("up", Part::kExperts, Pass::kForward, gemm, sources, {inner});
  const ExpertCombine combine{Rows{rows}, s.tokens, s.inner, s.shared, s.dtype};
  sources = {inner, permutation, weights};
  if (s.shared) sources.push_back(shared);
  out.op("combine", Part::kRouting, Pass::kForward, combine, sources, {y});

  const Operand dy = tensor("dy", s.tokens, s.inner, s.dtype), dinner = tensor("dinner", rows + 32, s.inner, s.dtype), dweights = tensor("dweights", rows, 1, DType::kF32);
  const Operand dsorted = tensor("dsorted", rows + 32, s.width, s.dtype), dx = tensor("dx", s.tokens, s.width, s.dtype);
  const Operand dlogits = tensor("dlogits", s.tokens, s.experts + s.noops, s.dtype);
  const Operand dw = tensor("dw", s.experts * s.width, s.inner, s.dtype), db = tensor("db", s.experts, s.inner, s.dtype);
  out.op("combine", Part::kRouting, Pass::kBackward, ExpertCombineBackward{combine}, {dy, inner, permutation, weights}, {dinner, dweights});
  gemm.role = GemmRole::kWeightGradient;
  out.op("up/dw", Part::kExperts, Pass::kBackward, gemm, {sorted, dinner, offsets}, s.bias ? std::vector<Operand>{dw, db} : std::vector<Operand>{dw});
  gemm.accumulate = true;
  out.op("up/dw again", Part::kExperts, Pass::kBackward, gemm, {sorted, dinner, offsets}, s.bias ? std::vector<Operand>{dw, db} : std::vector<Operand>{dw});
  gemm.role = GemmRole::kInputGradient;
  gemm.bias = false;
  gemm.accumulate = false;
  out.op("up/dx", Part::kExperts, Pass::kBackward, gemm, {dinner, w, offsets}, {dsorted});
  gemm.accumulate = true;
  out.op("up/dx again", Part::kExperts, Pass::kBackward, gemm, {dinner, w, offsets}, {dsorted});
  out.op("dispatch", Part::kRouting, Pass::kBackward, ExpertDispatchBackward{dispatch, s.tokens, false}, {dsorted, permutation}, {dx});
  out.op("dispatch again", Part::kRouting, Pass::kBackward, ExpertDispatchBackward{dispatch, s.tokens, true}, {dsorted, permutation}, {dx});
  out.op("select", Part::kRouting, Pass::kBackward, ExpertSelectBackward{select}, {logits, permutation, offsets, dweights}, {dlogits});
  out.step(0, 0, 0);
  return out.finish();
}

void compare(const Setting& s) {
  CAPTURE(s.tokens, s.width, s.inner, s.experts, s.noops, s.picks, s.sigmoid, s.bias, s.shared, dtype_name(s.dtype));
  const Workload w = expert_list(s);
  BindOptions options;
  options.threads = 2;
  const auto want = reference::ReferenceBackend().bind_reference(w, options);
  const auto owner = cpu::CpuBackend().bind(w, options);
  auto& got = dynamic_cast<ProgramExecution&>(*owner);
  const auto tensor_name = [&](const OperandView& v) { return w.tensors()[static_cast<size_t>(v.at.tensor)].name; };
  // Inputs of both signs; an expert that no token wants.
  for (int i = 0; i < want->instance_count(); ++i) {
    for (const OperandView& v : want->bound(i).in) {
      const std::string name = tensor_name(v);
      if (name != "x" && name != "logits" && name != "dy" && name != "shared") continue;
      std::vector<float> values(static_cast<size_t>(v.rows * v.cols));
      for (size_t j = 0; j < values.size(); ++j) values[j] = static_cast<float>(2 * fill_uniform(3, name, j) - 1);
      if (name == "logits" && s.experts > 2)
        for (std::int64_t t = 0; t < v.rows; ++t) values[static_cast<size_t>(t * v.cols + 1)] = -9;
      want->write(v.at, values);
      got.write(v.at, want->read(v.at));
    }
  }
  for (int i = 0; i < want->instance_count(); ++i) {
    const BoundOp& bound = want->bound(i);
    CAPTURE(w.path(bound.op));
    for (const auto* views : {&bound.in, &bound.out})
      for (const OperandView& v : *views)
        if (w.tensors()[static_cast<size_t>(v.at.tensor)].role != Role::kWeight) got.write(v.at, want->read(v.at));
    want->run_instance(i);
    got.run_instance(i);
    CHECK(got.executed(i).rows == want->executed(i).rows);
    CHECK(got.executed(i).experts == want->executed(i).experts);
    CHECK(got.executed_flops(i) >= want->executed_flops(i));
    for (const OperandView& v : bound.out) {
      CAPTURE(tensor_name(v));
      std::vector<float> a = got.read(v.at), b = want->read(v.at);
      // Rows of sorted tensors behind the executed ones hold nothing.
      if (v.rows == s.tokens * s.picks + 32) a.resize(static_cast<size_t>(want->executed(i).rows * v.cols)), b.resize(a.size());
      double size = 1e-6, worst = 0;
      for (size_t j = 0; j < a.size(); ++j) {
        size = std::max(size, std::abs(static_cast<double>(b[j])));
        const double d = std::abs(static_cast<double>(a[j]) - static_cast<double>(b[j]));
        worst = std::isnan(d) ? INFINITY : std::max(worst, d);
      }
      CHECK(worst <= (s.dtype == DType::kF32 ? 2e-5 : 2e-2) * size);
    }
  }
}

}  // namespace

TEST_CASE("expert routing and grouped products equal the reference") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    compare({1, 32, 48, 4, 0, 2, false, false, false, dtype});     // decode: one row per expert
    compare({9, 32, 48, 4, 0, 2, false, true, true, dtype});
    compare({70, 64, 96, 4, 0, 2, false, true, false, dtype});     // several padded sizes
    compare({70, 64, 96, 3, 2, 3, false, false, true, dtype});     // no-op experts
    compare({33, 64, 32, 5, 0, 1, true, false, false, dtype});
    compare({40, 128, 128, 2, 3, 4, true, true, true, dtype});     // packed weights in their place
  }
}

}  // namespace fathom::testing
#endif
