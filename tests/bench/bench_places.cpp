// scratch: per-instance bracketed times with residency features
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <string>

#include "kernels/registry.hpp"
#include "lib/measure.hpp"
#include "lib/predict/calibrate.hpp"
#include "lib/predict/handover.hpp"
#include "models/builder.hpp"
#include "models/calibration.hpp"
#include "models/machine_ini.hpp"
#include "models/validation.hpp"
#include "tools/timed.hpp"

using namespace fathom;

int main(int argc, char** argv) {
  const Machine machine = load_machine(argv[1]);
  const std::string which = argv[2];
  const double seconds = std::atof(argv[3]);
  const DType dtype = argc > 4 ? parse_dtype(argv[4]) : DType::kF32;
  std::vector<CalibrationCase> cases;
  if (which.find('c') != std::string::npos)
    for (auto& c : default_calibration_set(dtype)) cases.push_back(c);
  if (which.find('v') != std::string::npos)
    for (auto& v : validation_set(false)) {
      v.scenario.dtype = v.scenario.kv_dtype = v.scenario.grad_dtype = dtype;
      cases.push_back({"V " + v.label, v.network, v.scenario});
    }
  fmt::print("case;op;inst;kind;block;layer;rows;read;written;exps;dist;wdist;seconds;rawmed;noise;spread;status;ref;routed;prev;plan_reads;plan_writes;impl;fitname;pass0;pass1;pass2;pass3;fetched;reclaimed;pred\n");
  const Ceilings ceilings(machine, 0);
  for (auto& c : cases) {
    const Workload w = build(c.network, c.scenario);
    BindOptions bind;
    bind.fill = c.scenario.phase == Phase::kTrain ? FillKind::kTraining : FillKind::kTest;
    auto e = backend("cpu").bind(w, bind);
    if (c.scenario.phase == Phase::kDecode) e->vary_tokens(true), e->calibrate_participation();
    MeasureOptions o;
    o.raw_share = 0;
    o.min_rounds = 6;
    o.max_rounds = 30;
    o.target_spread = 0.002;
    o.nominal = machine.references;
    o.seconds = seconds;
    Execution* one = e.get();
    const Measurement m = measure({&one, 1}, o).front();
    const MemoryPlan plan = plan_memory(w);
    PredictOptions po;
    po.bytes_between_ops = kReferenceBytes;
    const StepPrediction pred = predict(w, placed(machine, m.placement), po);
    const Machine here = placed(machine, m.placement);
    const auto where = residency(w, here, 2, &plan, kReferenceBytes);
    // uses in program order
    std::map<int, int> seen;
    int i = 0;
    std::string prev;
    for (const auto& inst : w.instances()) {
      const Op& op = w.ops()[static_cast<size_t>(inst.op)];
      const OpMeasurement& x = m.ops[inst.op];
      const int use = seen[inst.op]++;
      Samples s, raw;
      const auto uses = static_cast<size_t>(x.uses);
      for (size_t r = static_cast<size_t>(use); r < x.ratio.values.size(); r += uses) s.values.push_back(x.ratio.values[r]), raw.values.push_back(x.raw.values[r]);
      const auto ref = machine.references.find(x.reference);
      const double nominal = ref == machine.references.end() ? 0 : ref->second;
      const OpWork work = work_of(op.spec, declared(op.spec));
      const auto p = passing_of(work, where[inst.op]);
      std::string ops;
      for (const auto* operands : {&op.inputs, &op.outputs})
        for (const Operand& a : *operands) {
          Step step = w.program()[static_cast<size_t>(inst.step)];
          const TensorInstance at = instance_of(w, step, a);
          const Tensor& t = w.tensors()[static_cast<size_t>(a.tensor)];
          const auto off = plan.offsets.find(at);
          ops += fmt::format("{}{}:{}@{}+{:.0f} ", operands == &op.inputs ? "<" : ">", t.name, t.role == Role::kWeight ? "W" : "A", off == plan.offsets.end() ? -1 : static_cast<long long>(off->second), t.bytes().to_double());
        }
      fmt::print("{}{};{};{};{};{};{};{};{:.0f};{:.0f};{:.0f};0;0;{:.4g};{:.4g};{:.4f};{:.4f};{};{};{};{};{};{};{};{};{:.0f};{:.0f};{:.0f};{:.0f};{:.0f};{:.0f};{:.4g}\n", m.placement == Placement::kApart ? "A " : "", c.label, op.leaf, i, kind_name(op.spec), w.program()[static_cast<size_t>(inst.step)].block, w.program()[static_cast<size_t>(inst.step)].layer,
                 work.rows, work.read, work.written, work.exponentials, s.median() * nominal, raw.median(), x.noise, s.median() > 0 ? (s.quantile(0.75) - s.quantile(0.25)) / s.median() : 0, status_name(x.status), x.reference, rows_of(op.spec).routed(), prev, ops, plan.arena, x.implementation, fit_name(op.spec),
                 p.levels[0], p.levels[1], p.levels[2], p.levels[3], p.fetched, p.reclaimed, pred.ops[inst.op].each.seconds);
      prev = op.leaf;
      ++i;
    }
    fflush(stdout);
  }
}
