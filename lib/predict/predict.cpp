// Step assembly: every op of the list, expected over random rows, added up.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "lib/predict/binomial.hpp"
#include "lib/predict/op_model.hpp"
#include "lib/predict/prediction.hpp"
#include "lib/predict/predictor.hpp"
#include "lib/predict/handover.hpp"
#include "lib/predict/reuse_program.hpp"
#include "lib/program_walk.hpp"

namespace fathom {
namespace {

class LightModel : public OpModel {
 public:
  explicit LightModel(const Ceilings& c) : c_(c) {}
  Prediction predict(const OpSpec&, const Executed&, const OpWork& work, const Residency&) const override { return predict_light(c_, work); }
  bool needs_residency() const override { return false; }

 private:
  const Ceilings& c_;
};

class RooflineModel : public OpModel {
 public:
  explicit RooflineModel(const Ceilings& c) : c_(c) {}
  Prediction predict(const OpSpec&, const Executed&, const OpWork& work, const Residency& residency) const override { return predict_roofline(c_, work, residency); }

 private:
  const Ceilings& c_;
};

// Parts that add up to seconds, by what binds.
struct Parts {
  double compute = 0, memory = 0, launch = 0;
  void add(const Prediction& p, double times) {
    const double work = std::max(0.0, p.seconds - p.launch);
    launch += std::min(p.launch, p.seconds) * times;
    (p.compute >= p.memory ? compute : memory) += work * times;
  }
};

// Ops of one block whose rows are the same draw: count and probability.
struct Draw {
  std::int64_t count;
  Fraction probability;
  friend bool operator<(const Draw& a, const Draw& b) {
    return std::tuple(a.count, a.probability.num, a.probability.den) < std::tuple(b.count, b.probability.num, b.probability.den);
  }
};

// Rows that matter: the mass outside is below 1e-15.
struct Support {
  std::int64_t first = 0;
  std::vector<double> mass;
};
Support support_of(const Draw& draw) {
  std::vector<double> all = binomial(draw.count, draw.probability.value());
  size_t first = 0, last = all.size();
  while (first + 1 < last && all[first] < 1e-15) ++first;
  while (last > first + 1 && all[last - 1] < 1e-15) --last;
  return {static_cast<std::int64_t>(first), {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last)}};
}

// Bytes of weights, state and cache that a step must touch whatever its routing: for the DRAM bound of the whole step.
double certain_bytes(const Workload& w) {
  std::set<TensorInstance> seen;
  double bytes = 0;
  each_op_run(w, [&](const Step& step, const Op& op) {
    if (rows_of(op.spec).routed()) return;
    const auto* gemm = std::get_if<Gemm>(&op.spec);
    if (gemm && gemm->experts > 1) return;
    const double limit = declared_cost(op.spec).read.to_double();
    for (const Operand& operand : op.inputs) {
      const Tensor& tensor = w.tensors()[static_cast<size_t>(operand.tensor)];
      if (tensor.role != Role::kWeight && tensor.role != Role::kOptimizerState) continue;
      if (std::holds_alternative<Embedding>(op.spec) || !seen.insert(instance_of(w, step, operand)).second) continue;
      bytes += std::min(limit, tensor.bytes().to_double());
    }
  });
  return bytes;
}

// Figures of a machine that every list needs.
struct Bench {
  Bench(const Machine& machine, const PredictOptions& o) : ceilings(machine, o.threads), options(o), hash(machine.hash()) {}
  Ceilings ceilings;
  PredictOptions options;
  std::string hash;
};

void works_of(const Workload& w, std::vector<OpWork>& works) {
  works.resize(w.ops().size());
  for (size_t i = 0; i < works.size(); ++i) works[i] = work_of(w.ops()[i].spec, declared(w.ops()[i].spec));
}

class Assembly {
 public:
  // `works`: of every op at its declared size.
  // `result`: what is there is overwritten, its memory used again.
  Assembly(const Workload& w, const Bench& bench, const OpModel& model, const std::vector<OpWork>& works, const PerOp<Residency>& residency, bool quantiles, StepPrediction& result)
      : w_(w), ceilings_(bench.ceilings), model_(model), works_(works), residency_(residency), quantiles_(quantiles), result_(result) {
    result_.predictor = bench.options.predictor;
    result_.workload = w.fingerprint();
    result_.machine = ceilings_.machine().name;
    result_.machine_hash = bench.hash;
    result_.threads = ceilings_.threads();
    result_.placement = placement_of(ceilings_.machine(), ceilings_.threads());
    if (!result_.ops.belongs_to(w) || result_.ops.size() != w.ops().size()) result_.ops = PerOp<OpPrediction>(w);
    result_.overhead = 0;
    result_.out_of_range = 0;
    result_.provenance = Provenance::kProbed;
  }

  void run() {
    for (size_t b = 0; b < w_.blocks().size(); ++b) block(w_.blocks()[b]);
    totals();
  }

 private:
  Prediction at(int op, const Executed& executed) const {
    const OpSpec& spec = w_.ops()[static_cast<size_t>(op)].spec;
    return model_.predict(spec, executed, work_of(spec, executed), residency_[op]);
  }

  void block(const Block& block) {
    std::map<Draw, std::vector<int>> drawn;
    for (int i = block.first_op; i < block.first_op + block.op_count; ++i) model_.expect(w_.ops()[static_cast<size_t>(i)].spec);
    for (int i = block.first_op; i < block.first_op + block.op_count; ++i) {
      const Rows rows = rows_of(w_.ops()[static_cast<size_t>(i)].spec);
      if (rows.routed() && rows.count > 0 && !std::holds_alternative<Select>(w_.ops()[static_cast<size_t>(i)].spec)) {
        drawn[{rows.count, rows.probability}].push_back(i);
        continue;
      }
      const OpSpec& spec = w_.ops()[static_cast<size_t>(i)].spec;
      store(i, model_.predict(spec, declared(spec), works_[static_cast<size_t>(i)], residency_[i]));
    }
    for (const auto& [draw, ops] : drawn) {
      const Support support = support_of(draw);
      RandomTerm term;
      term.time.assign(support.mass.size(), 0.0);
      term.probability = support.mass;
      term.repeats = w_.uses(ops.front());
      for (const int i : ops) store(i, expected(i, support, term.time));
      if (term.repeats > 0) terms_.push_back(std::move(term));
    }
  }

  // Expectation over the rows; adds the op's time at each row count to `block_time`.
  Prediction expected(int op, const Support& support, std::vector<double>& block_time) const {
    Prediction mean;
    double likeliest = -1;
    mean.provenance = Provenance::kProbed;
    for (size_t j = 0; j < support.mass.size(); ++j) {
      const std::int64_t rows = support.first + static_cast<std::int64_t>(j);
      const Prediction p = at(op, sized(w_.ops()[static_cast<size_t>(op)].spec, rows));
      const double q = support.mass[j];
      block_time[j] += p.seconds;
      mean.seconds += q * p.seconds;
      mean.lo += q * p.lo;
      if (q > 0) mean.hi += q * p.hi;
      mean.compute += q * p.compute;
      mean.memory += q * p.memory;
      mean.launch += q * p.launch;
      mean.provenance = weaker(mean.provenance, p.provenance);
      if ((p.out_of_range && !mean.out_of_range) || mean.note.empty()) mean.note = p.note;
      mean.out_of_range = mean.out_of_range || p.out_of_range;
      if (q * p.seconds > likeliest) {  // what binds where most of the time goes
        likeliest = q * p.seconds;
        mean.binding = p.binding;
      }
    }
    return mean;
  }

  void store(int op, Prediction p) {
    const double uses = static_cast<double>(w_.uses(op));
    OpPrediction& stored = result_.ops[op];
    stored.total = p.seconds * uses, stored.total_lo = p.lo * uses;
    stored.total_hi = uses > 0 ? p.hi * uses : 0;  // an upper end may be infinite
    stored.uses = w_.uses(op);
    stored.each = std::move(p);
  }

  void totals() {
    Parts parts;
    // Errors within a class go together, those of different classes do not: half-widths add inside, in quadrature across.
    std::array<double, kOpClasses> below{}, above{};
    double sum = 0;
    for (size_t i = 0; i < w_.ops().size(); ++i) {
      const OpPrediction& p = result_.ops[static_cast<int>(i)];
      sum += p.total;
      parts.add(p.each, static_cast<double>(p.uses));
      const auto c = static_cast<size_t>(op_class(w_.ops()[i].spec));
      below[c] += p.total - p.total_lo;
      above[c] += p.total_hi - p.total;
      if (p.uses > 0 && p.total > 0) result_.provenance = weaker(result_.provenance, p.each.provenance);
      if (p.each.out_of_range) ++result_.out_of_range;
    }
    double low = 0, high = 0;
    for (int c = 0; c < kOpClasses; ++c) {
      low += below[static_cast<size_t>(c)] * below[static_cast<size_t>(c)];
      high += above[static_cast<size_t>(c)] * above[static_cast<size_t>(c)];
    }
    const StepOverhead overhead = model_.overhead(w_, result_.ops);
    result_.overhead = overhead.seconds;
    if (overhead.seconds > 0) result_.provenance = weaker(result_.provenance, overhead.provenance);
    sum += overhead.seconds;
    parts.launch += overhead.seconds;
    result_.seconds = sum;
    result_.lo = std::max(0.0, sum - std::sqrt(low));
    result_.hi = sum + std::sqrt(high);
    result_.compute = parts.compute;
    result_.memory = parts.memory;
    result_.launch = parts.launch;
    result_.p50 = result_.p95 = result_.p99 = sum;
    if (result_.predictor == PredictorKind::kLight) {
      bound_step();
    } else if (quantiles_ && !terms_.empty()) {
      double random = 0;
      for (const RandomTerm& t : terms_)
        for (size_t j = 0; j < t.time.size(); ++j) random += t.probability[j] * t.time[j] * static_cast<double>(t.repeats);
      const TimeDistribution d = sum_of_terms(sum - random, terms_);
      result_.p50 = d.quantile(0.50);
      result_.p95 = d.quantile(0.95);
      result_.p99 = d.quantile(0.99);
    }
  }

  // light(step): the resources' sums, and DRAM for what the step must read. Where ops cannot overlap (a CPU runs one after
  // the other) the sum of the ops' bounds is a bound as well.
  void bound_step() {
    double compute = 0;
    for (size_t i = 0; i < w_.ops().size(); ++i) {
      const OpPrediction& p = result_.ops[static_cast<int>(i)];
      compute += p.each.compute * static_cast<double>(p.uses);
    }
    const int last = ceilings_.levels() - 1;
    const double rate = last >= 0 ? ceilings_.fastest(last) : 0;
    const double memory = rate > 0 ? std::max(0.0, certain_bytes(w_) - ceilings_.cache_capacity()) / (1.25 * rate) : 0;
    double bound = std::max(compute, memory);
    if (ceilings_.machine().kind == MachineKind::kCpu) bound = std::max(bound, result_.sum_of_ops(w_));
    result_.seconds = result_.lo = result_.hi = result_.p50 = result_.p95 = result_.p99 = bound;
  }

  const Workload& w_;
  const Ceilings& ceilings_;
  const OpModel& model_;
  const std::vector<OpWork>& works_;
  const PerOp<Residency>& residency_;
  const bool quantiles_;
  StepPrediction& result_;
  std::vector<RandomTerm> terms_;
};

}  // namespace

StepContext step_context(const Workload& workload, const PredictOptions& options) {
  const bool train = std::any_of(workload.ops().begin(), workload.ops().end(), [](const Op& op) { return op.pass == Pass::kBackward; });
  const bool decode = workload.stream().queries == 1 && workload.stream().past > 0;
  StepContext context;
  context.sustained = train || decode;
  context.graph = options.launch == LaunchMode::kGraph || (options.launch == LaunchMode::kAuto && decode);
  context.library_kernels = options.library_kernels;
  context.plain_weights = weights_change(workload);
  return context;
}

std::unique_ptr<OpModel> make_op_model(PredictorKind predictor, const Ceilings& ceilings, const StepContext& context) {
  switch (predictor) {
    case PredictorKind::kLight: return std::make_unique<LightModel>(ceilings);
    case PredictorKind::kRoofline: return std::make_unique<RooflineModel>(ceilings);
    case PredictorKind::kCalibrated: return ceilings.machine().kind == MachineKind::kGpu ? make_gpu_model(ceilings, context) : make_cpu_model(ceilings, context);
  }
  throw_internal("unknown predictor");
}

StepPrediction predict(const Workload& workload, const Machine& machine, const PredictOptions& options) {
  const Bench bench(machine, options);
  const std::unique_ptr<OpModel> model = make_op_model(options.predictor, bench.ceilings, step_context(workload, options));
  PerOp<Residency> where(workload);
  if (model->needs_residency()) {
    std::optional<MemoryPlan> plan;
    if (options.follow_placement) plan = plan_memory(workload);
    where = residency(workload, machine, bench.ceilings.threads(), plan ? &*plan : nullptr, options.bytes_between_ops);
  }
  std::vector<OpWork> works;
  works_of(workload, works);
  StepPrediction result;
  Assembly(workload, bench, *model, works, where, true, result).run();
  return result;
}

struct StepPredictor::State {
  State(const Machine& m, const PredictOptions& o, bool q) : machine(m), bench(m, o), quantiles(q) {}

  const OpModel& model(const StepContext& context) {
    for (const auto& [known, made] : models)
      if (known.sustained == context.sustained && known.graph == context.graph && known.plain_weights == context.plain_weights) return *made;
    models.emplace_back(context, make_op_model(bench.options.predictor, bench.ceilings, context));
    return *models.back().second;
  }

  void find_operands(const Workload& w) {
    const double between = bench.options.bytes_between_ops;
    ReuseProgram::structure_of(w, works, between > 0, structure, touched);
    for (Structure& known : structures) {
      if (known.of != structure) continue;
      known.last = ++clock;
      // A structure that is met once or twice is walked: sums pay when many lists share them.
      if (!known.program && ++known.met >= kPatience && ReuseProgram::worth_while(w))
        known.program = std::make_unique<ReuseProgram>(w, touched, between > 0, has_apart_caches(machine, bench.ceilings.threads()), structure);
      if (known.program) {
        if (!where.belongs_to(w) || where.size() != w.ops().size()) where = PerOp<Residency>(w);
        known.program->evaluate(w, works, touched, machine, bench.ceilings.threads(), between, where);
        return;
      }
      break;
    }
    if (std::none_of(structures.begin(), structures.end(), [&](const Structure& known) { return known.of == structure; })) {
      if (structures.size() < kStructures) structures.emplace_back();
      Structure& oldest = *std::min_element(structures.begin(), structures.end(), [](const Structure& a, const Structure& b) { return a.last < b.last; });
      oldest = {structure, 1, ++clock, nullptr};
    }
    where = residency(w, machine, bench.ceilings.threads(), nullptr, between);
  }

  static constexpr int kPatience = 4;
  static constexpr size_t kStructures = 16;
  struct Structure {
    std::vector<std::int32_t> of;
    int met = 0;
    std::uint64_t last = 0;
    std::unique_ptr<ReuseProgram> program;
  };

  const Machine& machine;
  Bench bench;
  const bool quantiles;
  std::vector<std::pair<StepContext, std::unique_ptr<OpModel>>> models;
  std::vector<Structure> structures;
  std::uint64_t clock = 0;
  std::vector<std::int32_t> structure;
  std::vector<double> touched;
  std::vector<OpWork> works;
  PerOp<Residency> where;
  StepPrediction result;
};

StepPredictor::StepPredictor(const Machine& machine, const PredictOptions& options, bool quantiles) : state_(std::make_unique<State>(machine, options, quantiles)) {}
StepPredictor::~StepPredictor() = default;

const StepPrediction& StepPredictor::predict(const Workload& workload) {
  State& s = *state_;
  StepContext context = step_context(workload, s.bench.options);
  context.summary = true;
  const OpModel& model = s.model(context);
  works_of(workload, s.works);
  if (model.needs_residency())
    s.find_operands(workload);
  else
    s.where = PerOp<Residency>(workload);
  Assembly(workload, s.bench, model, s.works, s.where, s.quantiles, s.result).run();
  return s.result;
}

}  // namespace fathom
