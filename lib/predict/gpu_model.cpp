// Calibrated time of ops on a GPU: fitted forms of lib/gpu/ inside a step, published class rates where no fit exists.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "lib/gpu/gpu_model.hpp"
#include "lib/predict/gpu_classes.hpp"
#include "lib/predict/gpu_shapes.hpp"
#include "lib/predict/op_model.hpp"

namespace fathom {
namespace {

constexpr std::string_view kUnmeasured = "class rate of published kernels, not measured on this machine";
constexpr double kFarAway = 1e15;  // bytes: nothing of that reuse distance stays in a cache

double norm_q(double a, double b, double q) {
  const double large = std::max(a, b), small = std::min(a, b);
  return large > 0 ? large * std::pow(1 + std::pow(small / large, q), 1 / q) : 0;
}

// Fits hold bf16; f16 runs through the same units at the same size.
bool fitted_type(DType type) { return type == DType::kBF16 || type == DType::kF16; }

class GpuOpModel : public OpModel {
 public:
  GpuOpModel(const Ceilings& c, const StepContext& context)
      : c_(c), fit_(c.machine().gpu_fit.model()), context_(context), rates_(gpu_class_rates(c.machine().isa)) {
    gemm_ = context.sustained ? fit_.find("gemm_sustained") : nullptr;
    if (!gemm_) gemm_ = fit_.find("gemm");
    prefill_ = fit_.find("attention_prefill");
    decode_ = fit_.find("attention_decode");
    if (!gemm_) throw_input(fmt::format("the fitted model of '{}' holds no matrix products", c.machine().name), {}, "fit it from a table with gemm rows");
    // The fixed cost of a product was measured back to back inside a graph: one node, its gap included.
    node_ = gemm_->gemm.t0 * 1e-6;
    if (context_.summary)
      for (const gpu::OpModel* model : {gemm_, prefill_, decode_})
        if (model) packed_[static_cast<std::size_t>(model->op)] = gpu::PackedTrees(model->residual);
    last_ = c.levels() - 1;
    dram_ = c.fastest(last_);
    const MemoryLevel* cache = last_ > 0 ? &c.machine().levels[static_cast<size_t>(last_ - 1)] : nullptr;
    cache_bytes_ = cache && cache->capacity ? cache->capacity->value : fit_.device.l2_bytes;
    cache_rate_ = std::max(1.0, gemm_->gemm.l) * fit_.device.dram_bytes_per_s;
    if (last_ > 0 && c.fastest(last_ - 1) > 0) cache_rate_ = std::min(cache_rate_, c.fastest(last_ - 1));
  }

  Prediction predict(const OpSpec& spec, const Executed& executed, const OpWork& work, const Residency& residency) const override {
    if (work.flops + work.read + work.written + work.exponentials + work.candidates <= 0) {
      Prediction none;
      none.provenance = Provenance::kProbed;
      return none;  // no rows, no kernel
    }
    if (const auto* op = std::get_if<Gemm>(&spec)) return gemm(*op, executed, residency);
    if (const auto* op = std::get_if<Attention>(&spec)) return attention(*op, executed);
    if (const auto* op = std::get_if<AttentionBackward>(&spec)) return attention_backward(*op, executed, work);
    return vector(spec, work, residency);
  }

  void expect(const OpSpec& spec) const override {
    if (!context_.summary) return;
    if (const auto* op = std::get_if<Gemm>(&spec)) __builtin_prefetch(&place_of(gemm_shape(*op, declared(spec))));
  }

  StepOverhead overhead(const Workload& w, const PerOp<OpPrediction>& ops) const override {
    if (context_.graph) return {graph_launch(), Provenance::kFitted};
    // Two clocks: the host launches, the device follows. Over one block the device's clock becomes max(device + busy, host + behind): what a block
    // does to the clocks is worked out once, however many layers run it.
    struct Effect {
      double busy = 0, behind = 0, launches = 0;
    };
    std::vector<Effect> effects;
    for (const Block& block : w.blocks()) {
      Effect& effect = effects.emplace_back();
      for (int i = block.first_op; i < block.first_op + block.op_count; ++i) {
        const int kernels = gpu_kernels(w.ops()[static_cast<size_t>(i)].spec);
        const double each = ops[i].each.seconds / kernels;
        for (int k = 0; k < kernels; ++k) {
          effect.launches += kEagerLaunchSeconds;
          effect.behind = std::max(effect.behind, effect.launches + kEagerLatencySeconds) + each;
        }
        effect.busy += ops[i].each.seconds;
      }
    }
    double host = 0, device = 0, sum = 0;
    for (const Step& step : w.program()) {
      const Effect& effect = effects[static_cast<size_t>(step.block)];
      device = std::max(device + effect.busy, host + effect.behind);
      host += effect.launches;
      sum += effect.busy;
    }
    return {std::max(0.0, device - sum) + kSynchroniseSeconds, Provenance::kDatasheet};
  }

 private:
  // What a replay costs beyond its nodes: the measured unit of attention is a replay of two nodes, a cache write and the kernel.
  double graph_launch() const {
    std::vector<double> fixed;
    if (decode_)
      for (const gpu::AttentionClass& c : decode_->classes) fixed.push_back(c.decode.t0 * 1e-6);
    if (fixed.empty()) return 4e-6;
    std::sort(fixed.begin(), fixed.end());
    return std::max(1e-6, fixed[fixed.size() / 2] - 2 * node_);
  }

  // The mean reuse distance that gives this share of hits in the cache before DRAM.
  double distance(double dram_share) const {
    const double hit = std::clamp(1 - dram_share, 0.0, 1.0);
    if (hit <= 1e-6) return kFarAway;
    return cache_bytes_ * std::sqrt(std::sqrt(std::max(0.0, 1 / hit - 1)));
  }
  double dram_share(const LevelShares& shares) const { return shares[static_cast<size_t>(last_)]; }

  Binding memory_binding(double dram_bytes, double all) const { return last_ > 0 && dram_bytes < 0.5 * all ? c_.level_binding(last_ - 1) : c_.level_binding(last_); }

  static gpu::GemmShape gemm_shape(const Gemm& op, const Executed& executed) {
    gpu::GemmShape s;
    s.groups = op.experts > 1 ? static_cast<double>(std::max<std::int64_t>(1, executed.experts)) : 1.0;
    const double rows = static_cast<double>(executed.rows) / s.groups;
    const double in = static_cast<double>(op.in), out = static_cast<double>(op.out);
    s.input_bytes = static_cast<double>(dtype_bytes(op.role == GemmRole::kForward ? op.weight : op.act));
    s.output_bytes = static_cast<double>(dtype_bytes(op.result)) * (op.accumulate ? 2.0 : 1.0);
    switch (op.role) {
      case GemmRole::kForward: s.m = rows, s.n = out, s.k = in; break;
      case GemmRole::kInputGradient: s.m = rows, s.n = in, s.k = out; break;
      case GemmRole::kWeightGradient: s.m = in, s.n = out, s.k = rows; break;
    }
    return s;
  }

  Prediction gemm(const Gemm& op, const Executed& executed, const Residency& residency) const {
    const gpu::GemmShape s = gemm_shape(op, executed);
    // Operands as the form names them: a weight gradient has two streamed operands and no weights.
    const bool weights = op.role != GemmRole::kWeightGradient;
    const double in_bytes = s.m * s.k * s.input_bytes, out_bytes = s.m * s.n * s.output_bytes;
    const double others = (dram_share(residency.reads) * in_bytes + dram_share(residency.writes) * out_bytes) / std::max(1.0, in_bytes + out_bytes);
    gpu::Reuse reuse;
    reuse.weights = distance(dram_share(weights ? residency.weights : residency.reads));
    reuse.activations = distance(others);

    double correction = 1, low = 1, high = 1;
    Prediction p;
    p.provenance = Provenance::kFitted;
    gpu::GemmEstimate e;
    if (fitted_type(op.act)) {
      KnownShape known;
      e = product(s, reuse, known, p);
      correction = known.correction, low = known.low, high = known.high;
    } else {
      gpu::GpuDevice device = fit_.device;
      device.peak_flops = c_.peak(op.act, false).value;
      unfitted(p, low, high, *gemm_, [&] { return fmt::format("no {} products were fitted", dtype_name(op.act)); });
      e = gpu::explain_gemm(s, device, gemm_->gemm, reuse);
    }
    if (op.experts > 1) {
      p.out_of_range = true;
      p.provenance = Provenance::kExtrapolated;
      if (!context_.summary) p.note = "no grouped products were fitted";
    }
    p.seconds = e.seconds * correction;
    p.lo = p.seconds * low;
    p.hi = p.seconds * high;
    p.compute = e.compute_s;
    p.memory = e.memory_s;
    p.launch = std::min(p.seconds, e.fixed_s);
    const std::string_view binding = e.binding;
    p.binding = binding == "compute" ? Binding::kCompute : binding == "fixed" ? Binding::kLaunch : memory_binding(e.dram_bytes, e.weight_bytes + e.activation_bytes + e.output_bytes);
    return p;
  }

  static gpu::TableRow table_row(gpu::OpClass op, const std::array<double, 5>& key) {
    gpu::TableRow row;
    row.op = op;
    for (size_t i = 0; i < key.size(); ++i) row.key[i] = std::max<std::int64_t>(1, std::llround(key[i]));
    return row;
  }
  // A table's row of this shape, and what it says of the prediction's range. `candidates` may be null.
  KnownShape asked(const gpu::OpModel& model, const gpu::TableRow& row, const gpu::GemmCandidates* candidates, Prediction& p) const {
    const auto ask = [&](const gpu::PackedTrees* trees, std::string* note) -> KnownShape {
      const gpu::GpuPrediction table = gpu::predict_op(model, fit_.device, row, trees, candidates);
      if (note && table.status == gpu::RangeStatus::kOutOfRange) *note = table.status_text();
      return {table.predicted_s / table.physics_s, table.low_s / table.predicted_s, table.high_s / table.predicted_s, table.status == gpu::RangeStatus::kOutOfRange, table.octaves > 0};
    };
    if (context_.summary) return ask(&packed_[static_cast<std::size_t>(model.op)], nullptr);
    // A step asks for few shapes, some of them many times.
    const auto [place, fresh] = once_.try_emplace(std::pair(model.op, row.key));
    if (fresh) place->second.first = ask(nullptr, &place->second.second);
    if (!place->second.second.empty()) p.note = place->second.second;
    return place->second.first;
  }
  static void mark(const KnownShape& known, Prediction& p) {
    p.out_of_range = known.out_of_range;
    if (known.extrapolated) p.provenance = Provenance::kExtrapolated;
  }

  KnownShape attention_shape(const gpu::OpModel& model, const gpu::AttentionShape& s, Prediction& p) const {
    const gpu::TableRow row = table_row(model.op, {s.batch, s.seq, s.heads, s.kv_heads, s.head_dim});
    KnownShape known;
    if (context_.summary) {
      const auto part = [&](int i) { return static_cast<std::uint64_t>(row.key[static_cast<std::size_t>(i)]); };
      MetAttention& met = attentions_[model.op == gpu::OpClass::kDecode].at({part(0), part(1), part(2), part(3), part(4)});
      if (met.key != row.key) met = {row.key, asked(model, row, nullptr, p)};
      known = met.shape;
    } else {
      known = asked(model, row, nullptr, p);
    }
    mark(known, p);
    return known;
  }

  static bool fits(const gpu::GemmShape& s) {
    constexpr double kMost = 4294967295.0;
    return s.n <= kMost && s.k <= kMost && s.groups <= kMost && s.k == std::floor(s.k);  // an expert's share of the rows need not be whole
  }
  MetProduct& place_of(const gpu::GemmShape& s) const {
    return products_.at({bits_of(s.m), static_cast<std::uint64_t>(s.n) << 32 | static_cast<std::uint64_t>(s.k), static_cast<std::uint64_t>(s.groups)});
  }

  // A product in bf16 or f16, and how the table corrects it.
  gpu::GemmEstimate product(const gpu::GemmShape& s, gpu::Reuse reuse, KnownShape& known, Prediction& p) const {
    const auto correct = [&](const gpu::GemmCandidates& c) {
      const gpu::TableRow row = table_row(gemm_->op, {s.m, s.n, s.k, 0, 0});
      const bool same = s.groups == 1 && static_cast<double>(row.key[0]) == s.m && static_cast<double>(row.key[2]) == s.k;  // else the row is another product
      return asked(*gemm_, row, same ? &c : nullptr, p);
    };
    gpu::GemmCandidates c;
    if (context_.summary && fits(s)) {
      const auto n = static_cast<std::uint32_t>(s.n), k = static_cast<std::uint32_t>(s.k), groups = static_cast<std::uint32_t>(s.groups);
      MetProduct& met = place_of(s);
      if (met.m != s.m || met.n != n || met.k != k || met.groups != groups) {
        c = gpu::gemm_candidates(s, fit_.device, gemm_->gemm);
        known = correct(c);
        met = {s.m, n, k, groups, static_cast<std::uint8_t>(c.single_at), static_cast<std::uint8_t>(c.split_at), c.close,
               static_cast<std::uint8_t>(known.out_of_range * MetProduct::kOutOfRange + known.extrapolated * MetProduct::kExtrapolated), c.single, c.split, known.correction, known.low, known.high};
      } else {
        c = {met.single, met.split, met.single_at, met.split_at, met.close};
        known = {met.correction, met.low, met.high, (met.flags & MetProduct::kOutOfRange) != 0, (met.flags & MetProduct::kExtrapolated) != 0};
      }
    } else {
      c = gpu::gemm_candidates(s, fit_.device, gemm_->gemm);
      known = correct(c);
    }
    mark(known, p);
    return gpu::explain_gemm(c, s, fit_.device, gemm_->gemm, reuse);
  }
  template <class Why>
  void unfitted(Prediction& p, double& low, double& high, const gpu::OpModel& model, const Why& why) const {
    double below = 0, above = 0;
    gpu::interval_for(model, "all", 1e-4, below, above);
    low = std::exp(2 * below), high = std::exp(2 * above);  // as one octave outside the calibrated range
    p.out_of_range = true;
    p.provenance = Provenance::kExtrapolated;
    if (!context_.summary) p.note = why();
  }

  Prediction attention(const Attention& op, const Executed& executed) const {
    const bool one_query = op.cached && op.rows.count <= op.sequences;
    const gpu::OpModel* model = one_query ? decode_ : prefill_;
    if (!model) throw_input(fmt::format("the fitted model of '{}' holds no attention", c_.machine().name), {}, "fit it from a table with attention rows, or use --predictor roofline");
    const double rows = static_cast<double>(executed.rows), pairs = to_double(executed.pairs);
    const double sequences = std::min(static_cast<double>(op.sequences), rows);
    gpu::AttentionShape s;
    s.batch = std::max(1.0, one_query ? rows : sequences);
    s.seq = std::max(1.0, one_query ? std::round(pairs / rows) : std::round(rows / s.batch));
    s.heads = static_cast<double>(op.heads);
    s.kv_heads = static_cast<double>(op.kv_heads);
    s.head_dim = static_cast<double>(op.qk_dim);
    s.element_bytes = static_cast<double>(dtype_bytes(op.kv));
    gpu::GpuDevice device = fit_.device;
    Prediction p;
    p.provenance = Provenance::kFitted;
    double correction = 1, low = 1, high = 1;
    if (fitted_type(op.act) && fitted_type(op.kv)) {
      const KnownShape known = attention_shape(*model, s, p);
      correction = known.correction, low = known.low, high = known.high;
    } else {
      device.peak_flops = c_.peak(op.act, false).value;
      unfitted(p, low, high, *model, [&] { return fmt::format("no {} attention was fitted", dtype_name(op.act)); });
    }
    const gpu::AttentionClass& kernel = gpu::class_of(model->classes, s);
    gpu::AttentionEstimate e = one_query ? gpu::explain_decode(s, device, kernel.decode) : gpu::explain_prefill(s, device, kernel.prefill);
    double seconds = e.seconds;
    // Windows, whole squares, chunks after cached keys, and values narrower than keys: the same kernel over another number of key blocks.
    const double triangle = s.batch * s.seq * (s.seq + 1) / 2;
    const double work_ratio = (one_query ? 1.0 : pairs / triangle) * static_cast<double>(op.qk_dim + op.v_dim) / (2.0 * static_cast<double>(op.qk_dim));
    if (std::abs(work_ratio - 1) > 0.01) {
      const double past_bytes = one_query ? 0 : std::max(0.0, static_cast<double>(executed.keys) - s.batch * s.seq) * 2 * s.kv_heads * s.head_dim * s.element_bytes;
      const double b_eff = one_query ? kernel.decode.b_eff : kernel.prefill.b_eff, q = one_query ? kernel.decode.q : kernel.prefill.q;
      e.compute_s *= work_ratio;
      e.memory_s += past_bytes / (std::max(0.5, b_eff) * device.dram_bytes_per_s);
      seconds = e.fixed_s + norm_q(e.compute_s, e.memory_s, q) + e.combine_s + e.sequence_s;
      unfitted(p, low, high, *model, [] { return "attention over another set of pairs than whole causal prompts was not fitted"; });
      correction = 1;
    }
    // The fixed cost of a row of the tables is a replay; inside a step this op is one node of it.
    const double fixed = std::min(e.fixed_s, node_);
    p.seconds = (seconds - e.fixed_s + fixed) * correction;
    p.lo = p.seconds * low;
    p.hi = p.seconds * high;
    p.compute = e.compute_s;
    p.memory = e.memory_s;
    p.launch = std::min(p.seconds, fixed);
    if (fixed >= std::max(e.compute_s, e.memory_s))
      p.binding = Binding::kLaunch;
    else
      p.binding = e.compute_s >= e.memory_s ? Binding::kCompute : memory_binding((1 - e.hit) * e.kv_bytes + e.io_bytes, e.kv_bytes + e.io_bytes);
    return p;
  }

  Prediction attention_backward(const AttentionBackward& op, const Executed& executed, const OpWork& work) const {
    const double launches = gpu_kernels(op) * node_;
    const double bytes = (work.read + work.written) / (rates_.stream * dram_);
    Prediction p;
    p.provenance = Provenance::kDatasheet;
    FactorInterval interval = kOwnBackwardInterval;
    if (!context_.summary) p.note = kUnmeasured;
    if (context_.library_kernels) {
      const Prediction forward = attention(op.forward, executed);
      const double share = work.flops / std::max(1.0, 4 * to_double(executed.pairs) * static_cast<double>(op.forward.heads * op.forward.qk_dim));
      p.compute = (forward.seconds - forward.launch) * share / kLibraryBackwardShare;
      p.out_of_range = forward.out_of_range;
      interval = kLibraryBackwardInterval;
      if (!context_.summary) p.note = "2.5 x the fitted forward pass at 0.8 of its utilisation, as FlashAttention publishes";
    } else {
      const double rows = static_cast<double>(executed.rows), sequences = std::max<double>(1, static_cast<double>(op.forward.sequences));
      const double length = std::max(1.0, rows / sequences);
      const double items = sequences * static_cast<double>(op.forward.heads) * std::ceil(length / 64);
      const double padding = (length + 64) / (length + 1);                                              // tiles of 64 on the diagonal
      const double filled = std::min(1.0, items / static_cast<double>(c_.machine().cores));
      p.compute = work.flops * padding / (c_.peak(op.forward.act, false).value * rates_.own_backward * filled);
    }
    p.memory = bytes;
    p.launch = launches;
    p.seconds = launches + std::max(p.compute, p.memory);
    p.lo = p.seconds * interval.low;
    p.hi = p.seconds * interval.high;
    p.binding = p.compute >= p.memory ? Binding::kCompute : c_.level_binding(last_);
    return p;
  }

  // Bytes by the level that serves them, arithmetic and exponentials where they bind, one node per kernel.
  Prediction vector(const OpSpec& spec, const OpWork& work, const Residency& residency) const {
    Prediction p;
    p.provenance = Provenance::kDatasheet;
    if (!context_.summary) p.note = kUnmeasured;
    const double cores = static_cast<double>(c_.machine().cores);
    const Traffic traffic = traffic_of(work, residency);
    const double far = traffic.read[static_cast<size_t>(last_)] + traffic.written[static_cast<size_t>(last_)];
    const double near = std::max(0.0, work.read + work.written - far);
    p.memory = far / (rates_.stream * dram_) + near / cache_rate_;
    if (work.flops > 0) p.compute = work.flops / c_.peak(work.dtype, false).value;
    constexpr double kExponentialsPerClock = 16;  // special-function units of one SM
    if (work.exponentials > 0 && c_.machine().clock) p.compute = std::max(p.compute, work.exponentials / (kExponentialsPerClock * cores * c_.machine().clock->value));
    FactorInterval interval = kStreamInterval;
    bool selects = false;
    if (const auto* select = std::get_if<Select>(&spec); select && work.candidates > 0 && select->selected.count > 0) {  // nobody: nothing to rank
      const double rows = std::max<double>(1, static_cast<double>(select->sequences));
      p.compute = std::max(p.compute, gpu_select_seconds(static_cast<double>(select->length), rows, cores));
      interval = kSelectInterval;
      selects = true;
    }
    p.launch = gpu_kernels(spec) * node_;
    p.seconds = p.launch + std::max(p.compute, p.memory);
    p.lo = p.seconds * interval.low;
    p.hi = p.seconds * interval.high;
    if (p.launch > std::max(p.compute, p.memory))
      p.binding = Binding::kLaunch;
    else if (p.compute >= p.memory)
      p.binding = selects || work.exponentials > 0 ? Binding::kElements : Binding::kCompute;
    else
      p.binding = memory_binding(far, far + near);
    return p;
  }

  const Ceilings& c_;
  const gpu::GpuModel& fit_;
  StepContext context_;
  GpuClassRates rates_;
  const gpu::OpModel* gemm_ = nullptr;
  const gpu::OpModel* prefill_ = nullptr;
  const gpu::OpModel* decode_ = nullptr;
  double node_ = 0, dram_ = 0, cache_bytes_ = 0, cache_rate_ = 0;
  int last_ = 0;
  // Summaries: trees by gpu::OpClass, and the shapes met.
  std::array<gpu::PackedTrees, 3> packed_;
  mutable ShapeCache<MetProduct, std::size_t{1} << 15> products_;
  mutable std::array<ShapeCache<MetAttention, std::size_t{1} << 13>, 2> attentions_;  // prefill, decode
  // One step: corrections and notes of the rows asked for.
  mutable std::map<std::pair<gpu::OpClass, std::array<std::int64_t, 5>>, std::pair<KnownShape, std::string>> once_;
};

}  // namespace

std::unique_ptr<OpModel> make_gpu_model(const Ceilings& ceilings, const StepContext& context) {
  if (!ceilings.machine().gpu_fit)
    throw_input(fmt::format("machine '{}' has no fitted GPU model", ceilings.machine().name), {},
                "put its .gpu file beside the machine file (fathom calibrate --from-table), or use --predictor roofline");
  return std::make_unique<GpuOpModel>(ceilings, context);
}

}  // namespace fathom
