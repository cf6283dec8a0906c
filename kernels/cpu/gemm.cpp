#include "kernels/cpu/gemm.hpp"

#if FATHOM_CPU

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <set>
#include <utility>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm_convert.hpp"
#include "kernels/cpu/gemm_f32.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

using dnnl::memory;

std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

const dnnl::engine& engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

// oneDNN fixes a primitive's thread count when it is created, or (gemm:jit) when it is run, and sgemm's when it is called; all read OpenMP's setting.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(omp_get_max_threads()), changed_(threads != before_) {
    if (changed_) omp_set_num_threads(threads);
  }
  ~ThreadsScope() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
  bool changed_;
};

memory::data_type dnnl_type(DType type) {
  return type == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A matmul primitive of one row count with its operands; addresses are set per run.
struct Piece {
  std::int64_t rows = 0;
  dnnl::primitive primitive;
  memory x, w, y, bias, scratch;
  std::vector<dnnl_exec_arg_t> args;  // handed to the C interface, whose C++ wrapper would build a vector per call
  std::string impl;
  std::int64_t scratch_bytes = 0;

  static void point(memory& m, const void* address) {
    // Setting an address makes the library zero padded blocks; only do it when it changes.
    if (m.get_data_handle() != address) m.set_data_handle(const_cast<void*>(address));
  }
  void run(dnnl_stream_t stream, const void* x_at, const void* w_at, void* y_at, void* scratch_at,
           const float* bias_at) {
    point(x, x_at);
    point(w, w_at);
    point(y, y_at);
    if (scratch_bytes > 0) point(scratch, scratch_at);
    if (bias) point(bias, bias_at);
    const auto status = dnnl_primitive_execute(primitive.get(), stream, static_cast<int>(args.size()), args.data());
    if (status != dnnl_success) throw_internal(fmt::format("oneDNN matmul failed with status {}", int(status)));
  }
};

void check(const GemmShape& s, const GemmOptions& o) {
  if (s.m < 0 || s.n < 0 || s.k < 0) throw_input(fmt::format("GEMM of negative size: m={} n={} k={}", s.m, s.n, s.k));
  if (o.dtype != DType::kF32 && o.dtype != DType::kBF16) {
    throw_input(fmt::format("GEMM in {} is not supported on the CPU", dtype_name(o.dtype)), {}, "use f32 or bf16");
  }
  if (o.out != DType::kF32 && !(o.out == DType::kBF16 && o.dtype == DType::kBF16)) {
    throw_input(fmt::format("GEMM of {} operands cannot write {}", dtype_name(o.dtype), dtype_name(o.out)), {},
                "f32 writes f32; bf16 writes bf16 or f32");
  }
  if (o.threads < 1) throw_input(fmt::format("GEMM with {} threads", o.threads));
}

}  // namespace

struct GemmPlan::Impl {
  GemmShape shape;
  GemmOptions options;
  GemmChoice choice;
  DType type = DType::kF32;      // of the operands as the library sees them
  DType out_type = DType::kF32;  // of the result as the library writes it
  dnnl::stream stream;
  std::vector<Piece> pieces;          // distinct row counts
  std::vector<std::size_t> sequence;  // piece of each panel, in row order
  memory::desc w_plain, w_layout;
  F32Product own;  // where the path is kOwn
  F32Blocks own_blocks;
  std::int64_t library_scratch = 0;
  // Offsets into the scratch of the converted operands, when bf16 is computed in f32.
  std::int64_t x_offset = 0, w_offset = 0, y_offset = 0, total_scratch = 0;
  std::string name;

  bool empty() const { return shape.m == 0 || shape.n == 0; }

  // `w_requested`: the weights' layout to take; an empty descriptor means "plain" or, if packed, "the library's
  // choice".
  Piece make_piece(std::int64_t rows, const memory::desc& w_requested) const {
    const GemmOptions& o = options;
    const auto& [m, n, k] = shape;
    const memory::data_type in = dnnl_type(type), out = dnnl_type(out_type);
    const memory::desc x({rows, k}, in, o.transpose_x ? memory::dims{1, m} : memory::dims{k, 1});
    const memory::desc y({rows, n}, out, memory::dims{n, 1});
    const memory::desc bias({1, n}, memory::data_type::f32, memory::dims{n, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (o.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    const ThreadsScope scope(o.threads);
    dnnl::matmul::primitive_desc pd;
    try {
      const auto desc = o.bias ? dnnl::matmul::desc(x, w_requested, bias, y) : dnnl::matmul::desc(x, w_requested, y);
      pd = dnnl::matmul::primitive_desc(desc, attr, engine());
    } catch (const dnnl::error& e) {
      throw Error(ErrorKind::kEnvironment, fmt::format("oneDNN has no matmul for m={} n={} k={} {} -> {} ({})", rows, n,
                                                       k, dtype_name(type), dtype_name(out_type), e.what()));
    }
    Piece p;
    p.rows = rows;
    p.primitive = dnnl::matmul(pd);
    p.impl = pd.impl_info_str();
    p.x = memory(pd.src_desc(), engine(), nullptr);
    p.w = memory(pd.weights_desc(), engine(), nullptr);
    p.y = memory(pd.dst_desc(), engine(), nullptr);
    p.scratch = memory(pd.scratchpad_desc(), engine(), nullptr);
    p.scratch_bytes = static_cast<std::int64_t>(pd.scratchpad_desc().get_size());
    p.args = {{DNNL_ARG_SRC, p.x.get()}, {DNNL_ARG_WEIGHTS, p.w.get()}, {DNNL_ARG_DST, p.y.get()}};
    if (p.scratch_bytes > 0) p.args.push_back({DNNL_ARG_SCRATCHPAD, p.scratch.get()});
    if (o.bias) {
      p.bias = memory(pd.bias_desc(), engine(), nullptr);
      p.args.push_back({DNNL_ARG_BIAS, p.bias.get()});
    }
    return p;
  }

  void make_pieces(const Impl* layout) {
    const auto& [m, n, k] = shape;
    w_plain = memory::desc({k, n}, dnnl_type(type), options.transpose_w ? memory::dims{1, k} : memory::dims{n, 1});
    w_layout = w_plain;
    if (options.packed) {
      w_layout = layout != nullptr ? layout->w_layout : memory::desc({k, n}, dnnl_type(type), memory::format_tag::any);
    }
    for (const std::int64_t rows : choice.panels) {
      auto found = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.rows == rows; });
      if (found == pieces.end()) {
        pieces.push_back(make_piece(rows, w_layout));
        found = pieces.end() - 1;
        w_layout = found->w.get_desc();  // the first (largest) piece's choice binds the others
      }
      sequence.push_back(static_cast<std::size_t>(found - pieces.begin()));
      library_scratch = std::max(library_scratch, found->scratch_bytes);
    }
  }

  // X and Y as the library takes them start at row `row` of what the caller gave.
  void run_matmul(const char* x, const void* w, char* y, void* scratch, const float* bias) {
    const ThreadsScope scope(options.threads);
    std::int64_t row = 0;
    for (const std::size_t index : sequence) {
      Piece& p = pieces[index];
      const std::int64_t x_step = options.transpose_x ? 1 : shape.k;
      p.run(stream.get(), x + row * x_step * dtype_bytes(type), w, y + row * shape.n * dtype_bytes(out_type), scratch,
            bias);
      row += p.rows;
    }
  }

  void run_gemm(const float* x, const float* w, float* y, const float* bias) const {
    const auto& [m, n, k] = shape;
    const GemmOptions& o = options;
    if (o.bias) preset_bias(y, bias, choice.padded_rows, n, o.accumulate, o.threads);
    const float beta = o.accumulate || o.bias ? 1.0f : 0.0f;
    const ThreadsScope scope(o.threads);
    std::int64_t row = 0;
    for (const std::int64_t rows : choice.panels) {
      const auto status = dnnl_sgemm(o.transpose_x ? 'T' : 'N', o.transpose_w ? 'T' : 'N', rows, n, k, 1.0f,
                                     x + row * (o.transpose_x ? 1 : k), o.transpose_x ? m : k, w, o.transpose_w ? k : n,
                                     beta, y + row * n, n);
      if (status != dnnl_success) throw_internal(fmt::format("oneDNN sgemm failed with status {}", int(status)));
      row += rows;
    }
  }

  void run_library(const void* x, const void* w, void* y, void* scratch, const float* bias) {
    if (choice.path == GemmPath::kOwn) {
      f32_run(own, own_blocks, static_cast<const float*>(x), static_cast<const float*>(w), static_cast<float*>(y), scratch, bias);
    } else if (choice.path == GemmPath::kGemm) {
      run_gemm(static_cast<const float*>(x), static_cast<const float*>(w), static_cast<float*>(y), bias);
    } else {
      run_matmul(static_cast<const char*>(x), w, static_cast<char*>(y), scratch, bias);
    }
  }

  // bf16 operands, f32 arithmetic: convert, multiply, convert back.
  void run_converted(const void* x, const void* w, void* y, char* scratch, const float* bias) {
    const auto& [m, n, k] = shape;
    const std::int64_t rows = choice.padded_rows;
    float* xf = reinterpret_cast<float*>(scratch + x_offset);
    to_f32(static_cast<const bf16*>(x), xf, rows * k, options.threads);
    const void* wf = w;
    if (!options.packed) {
      float* plain = reinterpret_cast<float*>(scratch + w_offset);
      to_f32(static_cast<const bf16*>(w), plain, k * n, options.threads);
      wf = plain;
    }
    if (options.out == DType::kF32) return run_library(xf, wf, y, scratch, bias);
    float* yf = reinterpret_cast<float*>(scratch + y_offset);
    if (options.accumulate) to_f32(static_cast<const bf16*>(y), yf, rows * n, options.threads);
    run_library(xf, wf, yf, scratch, bias);
    to_bf16(yf, static_cast<bf16*>(y), rows * n, options.threads);
  }

  // k = 0: the product is zero, what remains is the bias.
  void run_empty_product(void* y, const float* bias) const {
    const bool wide = options.out == DType::kF32;
    for (std::int64_t i = 0; i < shape.m * shape.n; ++i) {
      float& f = static_cast<float*>(y)[wide ? i : 0];
      bf16& h = static_cast<bf16*>(y)[wide ? 0 : i];
      float value = options.accumulate ? (wide ? f : float(h)) : 0.0f;
      if (options.bias) value += bias[i % shape.n];
      if (wide) {
        f = value;
      } else {
        h = bf16(value);
      }
    }
  }
};

GemmPlan::GemmPlan(const GemmShape& shape, const GemmOptions& options, const GemmPlan* layout)
    : impl_(std::make_unique<Impl>()) {
  check(shape, options);
  Impl& p = *impl_;
  p.shape = shape;
  p.options = options;
  p.choice = choose_gemm(shape, options, isa());
  p.type = p.choice.convert ? DType::kF32 : options.dtype;
  p.out_type = p.choice.convert ? DType::kF32 : options.out;
  if (p.empty() || shape.k == 0) {
    p.name = "none (empty product)";
    return;
  }
  p.stream = dnnl::stream(engine());
  if (p.choice.path == GemmPath::kOwn) {
    p.own = {shape.m, shape.n, shape.k, options.transpose_x, options.transpose_w, options.accumulate, options.packed, options.threads, isa()};
    p.own_blocks = f32_blocks(p.own);
    p.library_scratch = f32_scratch_bytes(p.own, p.own_blocks);
    p.name = fmt::format("fathom {}", isa_name(std::min(p.own.level, Isa::kAvx512)));
  } else if (p.choice.path == GemmPath::kGemm) {
    p.name = "sgemm";
  } else {
    p.make_pieces(layout != nullptr ? layout->impl_.get() : nullptr);
    std::set<std::string> names;
    for (const Piece& piece : p.pieces) {
      if (names.insert(piece.impl).second) p.name += (p.name.empty() ? "" : "+") + piece.impl;
    }
  }
  p.total_scratch = round_up(p.library_scratch, 64);
  if (p.choice.convert) {
    p.name += " (f32 instead of bf16: no AMX)";
    const auto take = [&p](std::int64_t floats) {
      const std::int64_t at = p.total_scratch;
      p.total_scratch += round_up(floats * 4, 64);
      return at;
    };
    p.x_offset = take(p.choice.padded_rows * shape.k);
    if (!options.packed) p.w_offset = take(shape.k * shape.n);
    if (options.out == DType::kBF16) p.y_offset = take(p.choice.padded_rows * shape.n);
  }
}

GemmPlan::~GemmPlan() = default;
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;

const GemmShape& GemmPlan::shape() const {
  return impl_->shape;
}
const GemmOptions& GemmPlan::options() const {
  return impl_->options;
}
std::int64_t GemmPlan::padded_rows() const {
  return impl_->choice.padded_rows;
}
std::int64_t GemmPlan::scratch_bytes() const {
  return impl_->total_scratch;
}
std::string GemmPlan::impl() const {
  return impl_->name;
}
std::int64_t GemmPlan::useful_flops() const {
  return 2 * impl_->shape.m * impl_->shape.n * impl_->shape.k;
}
std::int64_t GemmPlan::executed_flops() const {
  return 2 * impl_->choice.padded_rows * impl_->shape.n * impl_->shape.k;
}

std::int64_t GemmPlan::packed_bytes() const {
  if (!impl_->options.packed || impl_->empty() || impl_->shape.k == 0) return 0;
  if (impl_->choice.path == GemmPath::kOwn) return impl_->shape.k * impl_->shape.n * 4;
  return static_cast<std::int64_t>(impl_->w_layout.get_size());
}

void GemmPlan::pack(const void* w, void* packed) const {
  const Impl& p = *impl_;
  if (packed_bytes() == 0) return;
  if (p.choice.path == GemmPath::kOwn) return f32_pack(p.own, static_cast<const float*>(w), static_cast<float*>(packed));
  const ThreadsScope scope(p.options.threads);
  // The library converts element types on the way, so the f32 fallback packs straight from bf16.
  const memory::desc from({p.shape.k, p.shape.n}, dnnl_type(p.options.dtype),
                          p.options.transpose_w ? memory::dims{1, p.shape.k} : memory::dims{p.shape.n, 1});
  memory source(from, engine(), const_cast<void*>(w));
  memory target(p.w_layout, engine(), packed);
  dnnl::stream stream(engine());
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

void GemmPlan::run(const void* x, const void* w, void* y, void* scratch, const float* bias) const {
  Impl& p = *impl_;
  if (p.empty()) return;
  if (p.shape.k == 0) return p.run_empty_product(y, bias);
  if (p.choice.convert) return p.run_converted(x, w, y, static_cast<char*>(scratch), bias);
  p.run_library(x, w, y, scratch, bias);
}

GemmCache::GemmCache(std::int64_t max_rows, std::int64_t n, std::int64_t k, const GemmOptions& options)
    : max_rows_(max_rows) {
  if (options.transpose_x) throw_internal("GemmCache varies the rows of X; with transpose_x they are its columns");
  if (max_rows < 0) throw_input(fmt::format("GemmCache for {} rows", max_rows));
  // Steps of 16 up to 32 and of 32 beyond: what the padding rule would execute anyway. Our own product pads nothing, and each of few rows counts.
  steps_.push_back(0);
  if (max_rows > 0 && n > 0 && k > 0 && choose_gemm({16, n, k}, options, isa()).path == GemmPath::kOwn)
    for (std::int64_t rows = 1; rows < 16; ++rows) steps_.push_back(rows);
  for (std::int64_t rows = 16; rows - (rows <= 32 ? 16 : 32) < max_rows; rows += rows < 32 ? 16 : 32) {
    steps_.push_back(rows);
  }
  // The plan of the most rows decides the packed layout; it is made first and stands last.
  plans_.reserve(steps_.size());
  GemmPlan largest({steps_.back(), n, k}, options);
  for (std::size_t i = 0; i + 1 < steps_.size(); ++i)
    plans_.emplace_back(GemmShape{steps_[i], n, k}, options, &largest);
  plans_.push_back(std::move(largest));
}

const GemmPlan& GemmCache::plan(std::int64_t rows) const {
  if (rows < 0 || rows > max_rows_) throw_internal(fmt::format("GemmCache for {} rows asked for {}", max_rows_, rows));
  const auto found = std::lower_bound(steps_.begin(), steps_.end(), rows);
  return plans_[static_cast<std::size_t>(found - steps_.begin())];
}

std::int64_t GemmCache::padded_rows() const {
  return plans_.back().padded_rows();
}

std::int64_t GemmCache::scratch_bytes() const {
  std::int64_t most = 0;
  for (const GemmPlan& plan : plans_) most = std::max(most, plan.scratch_bytes());
  return most;
}

}  // namespace fathom::cpu

#endif
