#include "kernels/reference/execute.hpp"

#include <fmt/format.h>

#include <deque>

#include "kernels/reference/activation.hpp"
#include "kernels/reference/attention.hpp"
#include "kernels/reference/experts.hpp"
#include "kernels/reference/gemm.hpp"
#include "kernels/reference/latent.hpp"
#include "kernels/reference/norm.hpp"
#include "kernels/reference/route.hpp"
#include "kernels/reference/sequence.hpp"
#include "kernels/reference/training.hpp"
#include "lib/error.hpp"

namespace fathom::reference {

double load_value(const OperandView& v, std::int64_t i) {
  switch (v.dtype) {
    case DType::kF32: return static_cast<double>(v.as<float>()[i]);
    case DType::kF64: return v.as<double>()[i];
    case DType::kBF16: return static_cast<double>(static_cast<float>(v.as<bf16>()[i]));
    case DType::kI32: return v.as<std::int32_t>()[i];
    default: throw_internal("the reference keeps f64, f32, bf16 and i32 only");
  }
}

void store_value(const OperandView& v, std::int64_t i, double value) {
  switch (v.dtype) {
    case DType::kF32: v.as<float>()[i] = static_cast<float>(value); return;
    case DType::kF64: v.as<double>()[i] = value; return;
    case DType::kBF16: v.as<bf16>()[i] = bf16(static_cast<float>(value)); return;
    case DType::kI32: v.as<std::int32_t>()[i] = static_cast<std::int32_t>(value); return;
    default: throw_internal("the reference keeps f64, f32, bf16 and i32 only");
  }
}

namespace {

// Loads operands into the scalar type, and stores results when it goes out of scope. Every operand has its own copy, so kernels never
// see shared memory; an op that works in place reads and writes its *output*, whose copy starts with what the memory held.
template <class T>
class Runner {
 public:
  explicit Runner(const Call& call) : call_(call) {}

  void run() {
    std::visit([&](const auto& op) { (*this)(op); }, *call_.bound.spec);
    for (const auto& [view, values] : outputs_)
      for (size_t i = 0; i < values.size(); ++i) store_value(view, static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  }

  void operator()(const Embedding& op) {
    const bool learned = op.learned_positions;
    embedding(index_in(0), in(1), learned ? index_in(2) : nullptr, learned ? in(3) : Matrix<T>{}, rows(), out(0));
  }
  void operator()(const RmsNorm& op) {
    NormOperands<T> a = norm(op.width, op.groups, op.rows.count, op.stats, op.gains > 0, false);
    if (op.stride > 0) {  // in place: the output's memory holds x
      a.x = a.y;
      a.offset = op.offset;
      if (op.stats) a.saved = out(2);
    }
    rms_norm(a);
  }
  void operator()(const LayerNorm& op) { layer_norm(norm(op.width, 1, op.rows.count, op.stats, op.gain, op.bias)); }
  void operator()(const RmsNormBackward& op) {
    NormOperands<T> a = norm_backward(op.forward.width, op.forward.groups, op.forward.rows.count, op.forward.gains > 0);
    a.offset = op.forward.stride > 0 ? op.forward.offset : 0;
    rms_norm_backward(a, norm_gradients(op, op.forward.gains > 0, false));
  }
  void operator()(const LayerNormBackward& op) {
    const bool gain = op.forward.gain;
    layer_norm_backward(norm_backward(op.forward.width, 1, op.forward.rows.count, gain), norm_gradients(op, gain, op.forward.bias));
  }

  void operator()(const Gemm& op) {
    GemmOperands<T> a;
    a.rows = rows();
    a.in = op.in;
    a.out = op.out;
    a.experts = op.experts;
    a.transposed = op.transposed;
    a.accumulate = op.accumulate;
    a.batch = op.batch;
    a.batch_stride = op.batch_stride;
    a.out_offset = op.out_offset;
    if (op.experts > 1) {
      a.offsets = index_in(op.role == GemmRole::kForward && op.bias ? 3 : 2);
      call_.executed.rows = a.rows = a.offsets[op.experts];
      call_.executed.experts = 0;
      for (std::int64_t e = 0; e < op.experts; ++e) call_.executed.experts += a.offsets[e + 1] > a.offsets[e];
    }
    switch (op.role) {
      case GemmRole::kForward:
        a.x = in(0), a.w = in(1), a.y = out(0);
        if (op.bias) a.bias = in(2);
        return gemm_forward(a);
      case GemmRole::kInputGradient:
        a.y = in(0), a.w = in(1), a.x = out(0);
        return gemm_input_gradient(a);
      case GemmRole::kWeightGradient:
        a.x = in(0), a.y = in(1), a.w = out(0);
        if (outputs() > 1) a.bias = out(1);
        return gemm_weight_gradient(a);
    }
  }

  void operator()(const Rope& op) { rope(RopeShape{op.heads, op.head_dim, op.width, op.base, op.inverse, op.offset}, index_in(1), rows(), out(0)); }
  void operator()(const Attention& op) {
    AttentionOperands<T> a{in(0), out(0), op.lse ? out(1) : Matrix<T>{}, index_in(1), {}, nullptr, {}};
    const RowsPerSequence sequences = rows_per_sequence(op.rows.count, op.sequences);
    if (op.apart) a.kv = in(2), a.kv_positions = index_in(3);
    if (op.sinks) a.sinks = in(call_.bound.in.size() - 1);
    const size_t cache = op.apart ? 4 : 2;
    note(op.cached ? cached_attention(shape_of(op), sequences, a, in(cache), index_in(cache + 1), op.kept_positions ? index_in(call_.bound.in.size() - (op.sinks ? 2 : 1)) : nullptr) : attention(shape_of(op), sequences, a));
  }
  void operator()(const AttentionBackward& op) {
    AttentionOperands<T> a{in(0), in(2), in(3), index_in(1), {}, nullptr, {}};
    const Attention& f = op.forward;
    if (f.apart) a.kv = in(5), a.kv_positions = index_in(6);
    if (f.sinks) a.sinks = in(call_.bound.in.size() - 1);
    const Matrix<T> dq = out(0), dkv = f.apart ? out(1) : dq;
    const size_t last = f.apart ? 2 : 1;
    const Matrix<T> dsinks = f.sinks && outputs() > last ? out(last) : Matrix<T>{};
    if (dsinks && !op.accumulate_weights) dsinks.clear();
    note(attention_backward(shape_of(f), rows_per_sequence(f.rows.count, f.sequences), a, in(4), dq, dkv, dsinks));
  }
  void operator()(const KvAppend& op) {
    kv_append(rows_per_sequence(op.rows.count, call_.bound.out[1].rows), op.width, in(0), out(0), call_.bound.out[1].as<std::int32_t>(), op.positions ? index_in(call_.bound.in.size() - 1) : nullptr,
              op.positions ? call_.bound.out[2].as<std::int32_t>() : nullptr);
  }

  void operator()(const Activation& op) { activation(op.kind, rows(), in(0), op.gated ? in(1) : Matrix<T>{}, out(0)); }
  void operator()(const ActivationBackward& op) {
    const bool gated = op.forward.gated;
    activation_backward(op.forward.kind, rows(), in(0), gated ? in(1) : Matrix<T>{}, in(gated ? 2 : 1), out(0), gated ? out(1) : Matrix<T>{});
  }
  void operator()(const AddResidual& op) {
    const Matrix<T> a = in(0), b = in(1), y = out(0);
    for (std::int64_t i = 0; i < rows() * op.width; ++i) y.data[i] = a.data[i] + b.data[i];
  }

  void operator()(const RouterScore& op) { router_score(rows(), in(0), in(1), op.bias ? in(2) : Matrix<T>{}, out(0)); }
  void operator()(const Select&) { throw_internal("Select is run by run_select"); }
  void operator()(const GatherRows&) { gather_rows(rows(), in(0), index_in(1), out(0)); }
  void operator()(const GatherBackward&) { gather_backward(rows(), in(0), index_in(1), out(0)); }
  void operator()(const ScatterAddRows& op) { 
    scatter_add_rows(op.gate, op.replace, rows(), in(0), in(1), index_in(2), op.gate.kind == GateKind::kNone ? Matrix<T>{} : in(3), out(0));
  }
  void operator()(const ScatterAddBackward& op) {
    const bool gated = op.forward.gate.kind != GateKind::kNone;
    scatter_add_backward(op.forward.gate, rows(), in(0), in(1), index_in(2), gated ? in(3) : Matrix<T>{}, op.accumulate, out(0), gated ? out(1) : Matrix<T>{});
    if (!op.forward.replace) return;
    const Matrix<T> dy = out(gated ? 2 : 1);  // the identity path of these rows runs through the block
    for (std::int64_t r = 0; r < rows(); ++r)
      for (std::int64_t c = 0; c < dy.cols; ++c) dy(index_in(2)[r], c) = T(0);
  }
  void operator()(const RouterLoss& op) {
    std::int64_t selected = 0;
    for (std::int64_t b = 0; b < call_.bound.in[2].rows; ++b) selected += index_in(2)[b];
    out(0).data[0] = router_loss(op.rows.count, op.lambda, in(0), index_in(1), selected, out(1));
  }
  void operator()(const RouterScoreBackward& op) {
    // Which outputs there are is told by their roles: [dw[, db]][, dx].
    size_t gradients = 0;
    while (gradients < outputs() && call_.is_gradient(call_.bound.out[gradients])) ++gradients;
    const Matrix<T> dw = gradients > 0 ? out(0) : Matrix<T>{}, db = gradients > 1 ? out(1) : Matrix<T>{};
    const Matrix<T> dx = gradients < outputs() && op.input_rows.count > 0 ? out(gradients) : Matrix<T>{};
    if (op.plain) return score_backward(op.weight_rows.routed() ? rows() : op.forward.rows.count, in(0), in(1), in(2), op.accumulate, dw, db, dx);
    RouterGradient<T> a;
    a.y = in(0), a.gathered = in(1), a.w = in(2), a.dscores = in(3), a.dw = dw, a.db = db, a.dx = dx;
    a.indices = index_in(4);
    a.selected = call_.selection ? call_.selection->total : a.gathered.rows;
    a.all_weight_rows = op.weight_rows == op.forward.rows;
    a.all_input_rows = op.input_rows == op.forward.rows;
    a.accumulate = op.accumulate;
    a.detached_lambda = op.detached_lambda;
    if (op.detached_lambda > 0) a.scores = in(5);
    router_score_backward(op.forward.rows.count, a);
  }

  void operator()(const LatentHeads& op) {
    if (op.absorbed) return latent_heads(op, rows(), in(0), Matrix<T>{}, in(1), out(0));
    const size_t at = op.queries ? 1 : 0;
    latent_heads(op, rows(), op.queries ? in(0) : Matrix<T>{}, in(at), in(at + 1), out(0));
  }
  void operator()(const LatentHeadsBackward& op) {
    const size_t at = op.forward.queries ? 1 : 0;
    latent_heads_backward(op.forward, rows(), in(0), at ? out(0) : Matrix<T>{}, out(at), out(at + 1));
  }
  void operator()(const ExpertSelect& op) {
    const Matrix<T> weights = out(1);
    expert_select(experts(op), in(0), correction(op, 1), call_.bound.out[0].rows, call_.bound.out[0].as<std::int32_t>(), weights.data, call_.bound.out[2].as<std::int32_t>());
  }
  void operator()(const ExpertSelectBackward& op) {
    expert_select_backward(experts(op.forward), in(0), correction(op.forward, 4), index_in(1), index_in(2), static_cast<const T*>(in(3).data), out(0));
  }
  void operator()(const ExpertDispatch&) { expert_dispatch(assigned(1), in(0), index_in(1), out(0)); }
  void operator()(const ExpertDispatchBackward& op) { expert_dispatch_backward(assigned(1), in(0), index_in(1), op.accumulate, out(0)); }
  void operator()(const ExpertCombine& op) {
    expert_combine(assigned(1), in(0), index_in(1), static_cast<const T*>(in(2).data), op.shared ? in(3) : Matrix<T>{}, op.shared_gate ? in(4) : Matrix<T>{}, out(0));
  }
  void operator()(const ExpertCombineBackward& op) {
    expert_combine_backward(assigned(2), in(0), in(1), index_in(2), static_cast<const T*>(in(3).data), out(0), out(1).data);
    if (op.forward.shared_gate) shared_gate_backward(in(0), in(4), in(5), out(2), out(3));
  }

  void operator()(const CrossEntropy& op) {
    const Matrix<T> logits = op.gradient ? out(1) : in(0);
    out(0).data[0] = cross_entropy(rows(), op.vocab, logits, index_in(1), op.gradient, op.weight);
  }
  void operator()(const EmbeddingBackward& op) {
    embedding_backward(index_in(0), in(1), rows(), op.accumulate, out(0));
    if (op.forward.learned_positions) embedding_backward(index_in(2), in(1), rows(), op.accumulate_positions, out(1));
  }
  void operator()(const GradientNorm& op) {
    if (op.first) ++call_.optimizer_step;
    const Matrix<T> sum = out(0);
    if (op.first) sum.data[0] = T(0);
    for (size_t i = 0; i < call_.bound.in.size(); ++i) sum.data[0] += square_sum(in(i));
  }
  void operator()(const AdamW& op) {
    const BindOptions& o = call_.options;
    AdamWSettings settings{o.learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, 1.0, call_.optimizer_step};
    const double norm = std::sqrt(load_value(call_.bound.in[0], 0));
    if (norm > o.clip) settings.gradient_scale = o.clip / norm;
    const bool master = op.master();
    const size_t stride = master ? 4 : 3;
    for (size_t t = 0; 1 + t < call_.bound.in.size(); ++t) {
      const Matrix<T> weight = out(t * stride);
      const Matrix<T> values = master ? out(t * stride + 3) : weight;
      adamw(settings, in(1 + t), values, out(t * stride + 1), out(t * stride + 2));
      if (master) std::copy(values.data, values.data + values.rows * values.cols, weight.data);
    }
  }

 private:
  std::int64_t rows() const { return call_.executed.rows; }
  size_t outputs() const { return call_.bound.out.size(); }
  const std::int32_t* index_in(size_t i) const { return call_.bound.in[i].template as<std::int32_t>(); }

  Matrix<T> load(const OperandView& v, std::vector<T>& values) {
    values.reserve(static_cast<size_t>(v.rows * v.cols));
    for (std::int64_t i = 0; i < v.rows * v.cols; ++i) values.push_back(T(load_value(v, i)));
    return {values.data(), v.rows, v.cols};
  }
  Matrix<T> in(size_t i) { return load(call_.bound.in[i], inputs_.emplace_back()); }
  // The first call loads what the memory holds; the copy is stored when the op is done.
  Matrix<T> out(size_t i) {
    const OperandView& v = call_.bound.out[i];
    for (auto& [view, values] : outputs_)
      if (&view == &v) return {values.data(), v.rows, v.cols};
    outputs_.push_back({v, {}});
    auto& [view, values] = outputs_.back();
    return load(v, values);
  }

  NormOperands<T> norm(std::int64_t width, std::int64_t groups, std::int64_t declared, bool stats, bool gain, bool bias) {
    return {in(0), gain ? in(1) : Matrix<T>{}, bias ? in(2) : Matrix<T>{}, out(0), stats ? out(1) : Matrix<T>{}, rows(), declared, width, groups, 0, {}, call_.options.norm_epsilon};
  }
  NormOperands<T> norm_backward(std::int64_t width, std::int64_t groups, std::int64_t declared, bool gain) {
    return {in(0), gain ? in(1) : Matrix<T>{}, {}, {}, in(gain ? 2 : 1), rows(), declared, width, groups, 0, {}, call_.options.norm_epsilon};
  }
  template <class Backward>
  NormGradients<T> norm_gradients(const Backward& op, bool gain, bool bias) {
    return {in(gain ? 3 : 2), out(0), outputs() > 1 ? out(1) : Matrix<T>{}, bias && outputs() > 2 ? out(2) : Matrix<T>{}, op.accumulate, op.accumulate_weights};
  }
  RowsPerSequence rows_per_sequence(std::int64_t declared, std::int64_t sequences) const {
    if (call_.selection) return call_.selection->per_sequence;
    return RowsPerSequence(static_cast<size_t>(sequences), sequences > 0 ? declared / sequences : 0);
  }
  void note(const AttentionExtent& extent) const {
    call_.executed.pairs = extent.pairs;
    call_.executed.keys = extent.keys;
  }
  ExpertRouting experts(const ExpertSelect& op) const { return {rows(), op.experts, op.noops, op.picks, op.sigmoid, op.capacity}; }
  const T* correction(const ExpertSelect& op, size_t i) { return op.correction ? static_cast<const T*>(in(i).data) : nullptr; }
  // Assignments that have a row: the tokens of input `i` up to the first -1.
  std::int64_t assigned(size_t i) const {
    const OperandView& v = call_.bound.in[i];
    std::int64_t count = 0;
    while (count < v.rows && index_in(i)[count] >= 0) ++count;
    return call_.executed.rows = count;
  }

  const Call& call_;
  std::deque<std::vector<T>> inputs_;
  std::deque<std::pair<const OperandView&, std::vector<T>>> outputs_;
};

}  // namespace

void run_f32(const Call& call) { Runner<Counted<float>>(call).run(); }
void run_f64(const Call& call) { Runner<Counted<double>>(call).run(); }

void run_select(const Select& op, const Call& call, Selection& selection, const std::string& path, bool f32) {
  const OperandView& scores_view = call.bound.in[0];
  const std::int32_t* positions = call.bound.in[1].as<std::int32_t>();
  std::int32_t* indices = call.bound.out[0].as<std::int32_t>();
  std::int32_t* original = call.bound.out[1].as<std::int32_t>();
  std::int32_t* counts = call.bound.out[2].as<std::int32_t>();
  std::vector<double> scores(static_cast<size_t>(op.sequences * op.length));
  for (size_t i = 0; i < scores.size(); ++i) {
    // Random routing: scores without content, the same on every backend (the paper's control).
    const auto at = static_cast<std::uint64_t>(call.bound.layer) * scores.size() + i;
    scores[i] = op.rule == RoutingRule::kRandom ? static_cast<double>(static_cast<float>(fill_uniform(call.options.seed, "random routing", at)))
                                                : load_value(scores_view, static_cast<std::int64_t>(i));
    if (f32) scores[i] = static_cast<double>(static_cast<float>(scores[i]));
  }
  const bool top = op.rule == RoutingRule::kTopK || op.rule == RoutingRule::kRandom;
  const std::int64_t slots = op.sequences > 0 ? op.selected.count / op.sequences : 0;
  selection.per_sequence.assign(static_cast<size_t>(op.sequences), 0);
  selection.total = 0;
  std::vector<std::int32_t> chosen;
  for (std::int64_t b = 0; b < op.sequences; ++b) {
    const double* own = scores.data() + b * op.length;
    const std::int64_t nan = top ? select_top(own, op.length, slots, chosen) : select_above(own, op.length, static_cast<double>(selection.threshold), chosen);
    if (nan >= 0)
      throw_input(fmt::format("router score of token {} in sequence {} is not a number", nan, b), {"", 0, path},
                  "the activations overflowed or the weights are not finite");
    for (const std::int32_t i : chosen) {
      indices[selection.total] = static_cast<std::int32_t>(b * op.length + i);
      original[selection.total] = positions[b * op.length + i];
      ++selection.total;
    }
    counts[b] = static_cast<std::int32_t>(chosen.size());
    selection.per_sequence[static_cast<size_t>(b)] = static_cast<std::int64_t>(chosen.size());
  }
  call.executed.rows = selection.total;
  if (!op.rest) return;
  std::int32_t* rest = call.bound.out[3].as<std::int32_t>();
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < op.sequences * op.length; ++i) {
    if (next < selection.total && indices[next] == i)
      ++next;
    else
      *rest++ = static_cast<std::int32_t>(i);
  }
}

}  // namespace fathom::reference
