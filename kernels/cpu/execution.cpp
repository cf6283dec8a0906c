#include "kernels/cpu/execution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_views.hpp"
#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/gemv_call.hpp"
#include "kernels/cpu/rope.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {

CpuExecution::CpuExecution(Prepared prepared, const BindOptions& options)
    : ProgramExecution(prepared.workload, options, prepared.plan), prepared_(std::move(prepared)), pinned_(prepared_.threads) {
  arena_ = Buffer(std::max<std::int64_t>(1, prepared_.plan.arena), prepared_.threads, options.stop);
  scratch_ = Buffer(std::max<std::int64_t>(1, prepared_.scratch), prepared_.threads);
  if (prepared_.pack_scratch > 0) pack_scratch_ = Buffer(prepared_.pack_scratch, prepared_.threads);
  if (prepared_.rope_floats > 0) {
    rope_ = Buffer(prepared_.rope_floats * 4, 1);
    for (const auto& [key, offset] : prepared_.rope_tables) fill_rope_table(key.first, key.second, prepared_.positions, rope_.as<float>() + offset);
  }
  attach(arena_.as<std::byte>());
  for (int i = 0; i < instance_count(); ++i) {
    const GemmBinding& binding = prepared_.gemms[static_cast<size_t>(bound(i).op)];
    if (binding.layout != WeightLayout::kPlain) gemm_of_weight_[bound(i).in[1].at] = bound(i).op;
  }
  std::int64_t widest_bias = 0;
  for (const Op& op : workload().ops())
    if (const auto* gemm = std::get_if<fathom::Gemm>(&op.spec); gemm && gemm->bias) widest_bias = std::max(widest_bias, gemm->out * gemm->experts * gemm->batch);
  bias_.resize(static_cast<size_t>(widest_bias));
  grouped_flops_.resize(static_cast<size_t>(instance_count()));
  fill();
}

void CpuExecution::reset() {
  optimizer_step_ = 0;
  ProgramExecution::reset();
}

std::int64_t CpuExecution::allocated_bytes() const { return prepared_.bytes(); }

namespace {

// A weight [in][out] as [out][in], in blocks whose lines stay in L1.
template <class T>
void turn_as(const T* from, T* to, std::int64_t in, std::int64_t out) {
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t i0 = 0; i0 < in; i0 += kBlock) {
    for (std::int64_t o0 = 0; o0 < out; o0 += kBlock) {
      for (std::int64_t o = o0; o < std::min(out, o0 + kBlock); ++o) {
        for (std::int64_t i = i0; i < std::min(in, i0 + kBlock); ++i) to[o * in + i] = from[i * out + o];
      }
    }
  }
}

void turn(const OperandView& view, void* to) {
  if (dtype_bytes(view.dtype) == 4)
    turn_as(view.as<float>(), static_cast<float*>(to), view.rows, view.cols);
  else
    turn_as(view.as<bf16>(), static_cast<bf16*>(to), view.rows, view.cols);
}

}  // namespace

void CpuExecution::weight_stored(const OperandView& view) {
  const auto found = gemm_of_weight_.find(view.at);
  if (found == gemm_of_weight_.end()) return;
  const GemmBinding& binding = prepared_.gemms[static_cast<size_t>(found->second)];
  if (binding.grouped) {  // each expert's weights in its own place
    const auto& op = std::get<fathom::Gemm>(workload().ops()[static_cast<size_t>(found->second)].spec);
    const std::int64_t bytes = op.in * op.out * dtype_bytes(view.dtype);
    for (std::int64_t expert = 0; expert < op.experts; ++expert) {
      binding.grouped->pack(view.data + expert * bytes, pack_scratch_.data());
      std::memcpy(view.data + expert * bytes, pack_scratch_.data(), static_cast<size_t>(binding.packed_bytes()));
    }
    return;
  }
  const std::int64_t room = (view.rows * view.cols * dtype_bytes(view.dtype) + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
  if (binding.packed_bytes() > room) throw_internal("a packed weight is larger than the plain one");  // excluded in prepare()
  // Packed in place: the plain copy is not needed while this workload is bound, and keeping both would double the weights.
  if (binding.layout == WeightLayout::kTurned)
    turn(view, pack_scratch_.data());
  else if (binding.plan)
    binding.plan->pack(view.data, pack_scratch_.data());
  else
    binding.cache->pack(view.data, pack_scratch_.data());
  std::memcpy(view.data, pack_scratch_.data(), static_cast<size_t>(binding.packed_bytes()));
}

std::vector<float> CpuExecution::load_weight(const OperandView& view) const {
  if (gemm_of_weight_.count(view.at)) throw_internal("this weight is packed for execution and cannot be read back; read it from a training or reference execution");
  return ProgramExecution::load_weight(view);
}

const float* CpuExecution::bias_of(const OperandView& bias, std::int64_t count) {
  if (bias.dtype == DType::kF32) return bias.as<float>();
  bf16_to_f32(bias.as<bf16>(), bias_.data(), count, 1);
  return bias_.data();
}

void CpuExecution::store_cache(const OperandView& view, std::span<const float> values) { store_kv(kv_layout_of(view.at.tensor), values, view.data); }

std::vector<float> CpuExecution::load_cache(const OperandView& view) const { return load_kv(kv_layout_of(view.at.tensor), view.data); }

void CpuExecution::run_gemv(const BoundOp& bound, const fathom::Gemm& op, std::int64_t rows) {
  const bool turned = op.transposed || prepared_.gemms[static_cast<size_t>(bound.op)].layout == WeightLayout::kTurned;
  Gemv call = gemv_call(op, rows, turned ? GemvLayout::kNK : GemvLayout::kKN);
  call.x = bound.in[0].data;
  call.w = bound.in[1].data;
  call.y = bound.out[0].data;
  call.bias = op.bias ? bias_of(bound.in[2], op.out) : nullptr;
  call.x_stride = op.in;
  call.w_stride = turned ? op.in : op.out;
  call.y_stride = op.out;
  gemv(call, prepared_.threads);
}

void CpuExecution::run_parts(const BoundOp& bound, const fathom::Gemm& op, std::int64_t rows) {
  PartGemm::Call call;
  call.rows = rows;
  call.first = bound.in[0].data;
  call.second = bound.in[1].data;
  call.result = bound.out[0].data;
  call.bias = op.role == GemmRole::kForward && op.bias ? bias_of(bound.in[2], op.out * op.batch) : nullptr;
  if (op.role == GemmRole::kWeightGradient && bound.out.size() > 1) call.db = bound.out[1].data, call.db_type = bound.out[1].dtype;
  call.scratch = scratch();
  prepared_.gemms[static_cast<size_t>(bound.op)].parts->run(call);
}

void CpuExecution::run_grouped(int instance, const BoundOp& bound, const fathom::Gemm& op, Executed& executed) {
  const bool with_bias = op.role == GemmRole::kForward && op.bias;
  GroupedGemm::Call call;
  call.offsets = bound.in[with_bias ? 3 : 2].as<std::int32_t>();
  call.x = bound.in[0].data;
  call.w = bound.in[1].data;
  call.y = bound.out[0].data;
  call.bias = with_bias ? bias_of(bound.in[2], op.out * op.experts) : nullptr;
  call.y_room = (op.rows.count + kPlanRowTile - 1) / kPlanRowTile * kPlanRowTile;
  call.scratch = scratch();
  const GroupedGemm& grouped = *prepared_.gemms[static_cast<size_t>(bound.op)].grouped;
  grouped.run(call);
  executed.rows = call.offsets[op.experts];
  executed.experts = 0;
  for (std::int64_t e = 0; e < op.experts; ++e) executed.experts += call.offsets[e + 1] > call.offsets[e];
  grouped_flops_[static_cast<size_t>(instance)] = grouped.executed_flops(call.offsets);
  if (op.role != GemmRole::kWeightGradient || bound.out.size() < 2) return;
  const OperandView& db = bound.out[1];
  const std::int64_t size = dtype_bytes(op.act);
  for (std::int64_t e = 0; e < op.experts; ++e) {
    std::byte* to = db.data + e * op.out * dtype_bytes(db.dtype);
    column_sums(op.act, bound.in[1].data + call.offsets[e] * op.out * size, nullptr, call.offsets[e + 1] - call.offsets[e], op.out, db.dtype, to,
                op.accumulate, scratch_.as<float>(), prepared_.threads);
  }
}

void CpuExecution::run_gemm(const BoundOp& bound, const fathom::Gemm& op, std::int64_t rows) {
  // Nobody took this block: its weights are not touched.
  if (rows == 0 && op.role != GemmRole::kWeightGradient) return;
  const GemmBinding& binding = prepared_.gemms[static_cast<size_t>(bound.op)];
  if (binding.parts) return run_parts(bound, op, rows);
  if (rows <= binding.gemv_rows) return run_gemv(bound, op, rows);
  const GemmPlan& plan = binding.plan ? *binding.plan : binding.cache->plan(rows);
  switch (op.role) {
    case GemmRole::kForward:
      plan.run(bound.in[0].data, bound.in[1].data, bound.out[0].data, scratch(), op.bias ? bias_of(bound.in[2], op.out) : nullptr);
      break;
    case GemmRole::kInputGradient:
      plan.run(bound.in[0].data, bound.in[1].data, bound.out[0].data, scratch());
      break;
    case GemmRole::kWeightGradient:
      if (op.transposed)
        plan.run(bound.in[1].data, bound.in[0].data, bound.out[0].data, scratch());
      else
        plan.run(bound.in[0].data, bound.in[1].data, bound.out[0].data, scratch());
      if (bound.out.size() > 1)
        column_sums(op.act, bound.in[1].data, nullptr, rows, op.out, bound.out[1].dtype, bound.out[1].data, op.accumulate,
                    scratch_.as<float>(), prepared_.threads);
      break;
  }
}

void CpuExecution::execute(int instance, const BoundOp& bound, Executed& executed) {
  std::visit(
      [&](const auto& op) {
        if constexpr (std::is_same_v<std::decay_t<decltype(op)>, fathom::Gemm>) {
          if (op.experts > 1)
            run_grouped(instance, bound, op, executed);
          else
            run_gemm(bound, op, executed.rows);
        } else {
          run_op(op, OpCall{*this, bound, executed, selection_of(bound), scratch_.as<std::byte>(), prepared_.threads});
        }
      },
      *bound.spec);
}

Flops CpuExecution::padded_flops(int instance) const {
  const BoundOp& b = bound(instance);
  const auto* gemm = std::get_if<fathom::Gemm>(b.spec);
  if (!gemm) return ProgramExecution::padded_flops(instance);
  const GemmBinding& binding = prepared_.gemms[static_cast<size_t>(b.op)];
  if (binding.grouped) return Flops(static_cast<u128>(grouped_flops_[static_cast<size_t>(instance)]));
  const std::int64_t rows = executed(instance).rows;
  if (binding.parts) return Flops(static_cast<u128>(binding.parts->executed_flops(rows)));
  if (rows <= binding.gemv_rows || rows == 0) return ProgramExecution::padded_flops(instance);
  const GemmPlan& plan = binding.plan ? *binding.plan : binding.cache->plan(rows);
  return Flops(static_cast<u128>(plan.executed_flops()));
}

std::string CpuExecution::implementation(int op) const {
  const OpSpec& spec = workload().ops()[static_cast<size_t>(op)].spec;
  const GemmBinding& binding = prepared_.gemms[static_cast<size_t>(op)];
  if (binding.grouped) return binding.grouped->impl();
  if (binding.parts) return binding.parts->impl();
  const std::string gemv_text = fmt::format("gemv {}", isa_name(std::min(isa(), Isa::kAvx512)));
  if (binding.gemv_rows >= 0 && !binding.plan && !binding.cache) return gemv_text;
  if (binding.gemv_rows >= 0) return fmt::format("{} up to {} rows, then {}", gemv_text, binding.gemv_rows, binding.cache->plan(binding.gemv_rows + 1).impl());
  if (binding.plan) return binding.plan->impl() + (binding.layout == WeightLayout::kPacked ? ", packed" : "");
  if (binding.cache) return binding.cache->plan(binding.cache->padded_rows() > 0 ? 1 : 0).impl() + ", by rows";
  if (const auto* attention = std::get_if<fathom::Attention>(&spec)) return attention_implementation(*attention);
  if (const auto* attention = std::get_if<fathom::AttentionBackward>(&spec)) return attention_implementation(attention->forward) + " backward";
  return fmt::format("fathom {}", isa_name(std::min(isa(), Isa::kAvx512)));
}

std::string CpuBackend::description() const {
  const CpuInfo& info = cpu_info();
  return fmt::format("oneDNN and fathom kernels on {} ({}, {} cores)", info.model_name, isa_name(isa()), info.cores);
}

Support CpuBackend::supports(const OpSpec& spec) const { return supported(spec); }

BackendMemory CpuBackend::memory(const Workload& workload, const BindOptions& options) const {
  Prepared prepared = prepare(std::make_shared<Workload>(workload), options);
  return {prepared.plan, prepared.extra()};
}

namespace {

// Beside the list's own memory: caches pass through f32 values on their way in and out, and measuring takes reference work.
std::int64_t passing_bytes(const Prepared& prepared, const BindOptions& options) {
  std::int64_t cache = 0, references = 0;
  for (const auto& [tensor, layout] : prepared.caches) {
    const Tensor& t = prepared.workload->tensors()[static_cast<size_t>(tensor)];
    cache = std::max(cache, t.rows * t.cols * dtype_bytes(DType::kF32));
  }
  for (int op = 0; options.measured && references == 0 && op < static_cast<int>(prepared.workload->ops().size()); ++op)
    if (const ReferenceClass which = reference_class_of(prepared, op); which == ReferenceClass::kWeights || which == ReferenceClass::kKeys)
      references = References::streamed_bytes(prepared.threads);
  return std::max(cache, references);
}

// Megabytes as people say them: "412 MB", "2.118 GB", "796.8 GB".
std::string size_text(std::int64_t mega) {
  if (mega < 1000) return fmt::format("{} MB", mega);
  const double giga = static_cast<double>(mega) * 1e-3;
  return giga < 10 ? fmt::format("{:.3f} GB", giga) : giga < 1000 ? fmt::format("{:.1f} GB", giga) : fmt::format("{:.2f} TB", giga * 1e-3);
}

}  // namespace

std::unique_ptr<Execution> CpuBackend::bind(const Workload& workload, const BindOptions& options) const {
  // Under such a limit some is kept for threads and for oneDNN, which does not survive a failed allocation of its own.
  const bool limited = address_space_left() >= 0;
  constexpr std::int64_t kLibrary = std::int64_t{64} << 20, kKernels = std::int64_t{128} << 20, kMega = 1000000;
  const auto fits = [&](std::int64_t need) {
    need += options.beside;
    if (limited) need += kLibrary;
    const std::int64_t have = available_memory();
    if (have < 0 || need <= have) return;
    throw Error(ErrorKind::kEnvironment, fmt::format("this run needs {} of memory, {} are available", size_text((need + kMega - 1) / kMega), size_text(have / kMega)), {},
                "use a smaller model, batch or length (fathom count shows the planned peak)");
  };
  if (limited && address_space_left() < kKernels) fits(plan_memory(workload).arena);  // before kernels are made: that takes memory too
  Prepared prepared = prepare(std::make_shared<Workload>(workload), options);
  fits(prepared.bytes() + passing_bytes(prepared, options));
  return std::make_unique<CpuExecution>(std::move(prepared), options);
}

}  // namespace fathom::cpu
