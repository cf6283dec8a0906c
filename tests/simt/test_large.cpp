// Offsets beyond 2^31 elements: the last blocks of grids that nobody could run whole, on memory of which only the touched pages exist. The detector
// does not watch that memory; a 32-bit offset shows as a wrong value or a crash.
#include <sys/mman.h>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/grouped.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/router.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sequence.cuh"
#include "tests/simt/testing.hpp"

namespace fathom {
namespace {

using namespace simt;

constexpr std::int64_t kMany = (std::int64_t{1} << 31) + (std::int64_t{1} << 20);  // elements

// Zeros that take no memory until they are touched.
template <class T>
class Sparse {
 public:
  explicit Sparse(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)) {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(p != MAP_FAILED);
    data_ = static_cast<T*>(p);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  ~Sparse() { munmap(data_, bytes_); }
  T* data() const { return data_; }
  T& operator[](std::int64_t i) const { return data_[i]; }

 private:
  std::size_t bytes_;
  T* data_;
};

struct LastBlocks {
  explicit LastBlocks(std::int64_t n) { options().last_blocks = n; }
  ~LastBlocks() { options().last_blocks = 0; }
};

TEST_CASE("elementwise kernels past 2^31 elements") {
  const std::int64_t width = 256, rows = kMany / width, last = rows * width - 1;
  Sparse<bf16> x(kMany), up(kMany), y(kMany), dx(kMany), dup(kMany);
  x[last] = bf16(2.0f), up[last] = bf16(3.0f);
  const LastBlocks only(1);
  cuda::add({DType::kBF16, {rows}, width, x.data(), up.data(), y.data()}, nullptr);
  CHECK(static_cast<float>(y[last]) == 5.0f);
  cuda::activation({DType::kBF16, ActivationKind::kRelu, {rows}, width, x.data(), up.data(), y.data()}, nullptr);
  CHECK(static_cast<float>(y[last]) == 6.0f);
  cuda::activation_backward({DType::kBF16, ActivationKind::kRelu, {rows}, width, x.data(), up.data(), y.data(), dx.data(), dup.data()}, nullptr);
  CHECK(static_cast<float>(dx[last]) == 18.0f);
  CHECK(static_cast<float>(dup[last]) == 12.0f);
}

TEST_CASE("rows past 2^31 elements are gathered, scattered and taken apart") {
  const std::int64_t width = 1 << 15, all = kMany / width + 1, row = all - 1, at = row * width + 7;
  Sparse<bf16> x(all * width);
  DeviceBuffer<bf16> y(static_cast<size_t>(width)), f(static_cast<size_t>(width), bf16(4.0f)), df(static_cast<size_t>(width));
  DeviceBuffer<std::int32_t> indices(1, static_cast<std::int32_t>(row));
  x[at] = bf16(3.0f);
  cuda::gather({DType::kBF16, {1}, width, x.data(), indices.data(), y.data()}, nullptr);
  CHECK(static_cast<float>(y[7]) == 3.0f);
  cuda::ScatterArgs s;
  s.type = DType::kBF16, s.rows = {1}, s.all_rows = all, s.width = width, s.x = s.y = x.data(), s.f = f.data(), s.indices = indices.data();
  cuda::scatter(s, nullptr);
  CHECK(static_cast<float>(x[at]) == 7.0f);
  Sparse<bf16> out(all * width);  // out of place, the last rows of all
  Sparse<std::int32_t> inverse(all);
  s.y = out.data(), s.inverse = inverse.data();
  {
    const LastBlocks only(1);
    cuda::scatter(s, nullptr);
  }
  CHECK(static_cast<float>(out[at]) == 11.0f);
  cuda::ScatterBackwardArgs b;
  b.type = DType::kBF16, b.rows = {1}, b.width = width, b.dy = x.data(), b.f = f.data(), b.indices = indices.data(), b.df = df.data();
  cuda::scatter_backward(b, nullptr);
  CHECK(static_cast<float>(df[7]) == 7.0f);
}

TEST_CASE("norms past 2^31 elements") {
  const std::int64_t width = 64, rows = kMany / width, last = (rows - 1) * width;
  Sparse<bf16> x(kMany), y(kMany), dy(kMany), dx(kMany);
  Sparse<float> stats(rows);
  for (std::int64_t c = 0; c < width; ++c) x[last + c] = bf16(c % 2 == 0 ? 2.0f : -2.0f), dy[last + c] = bf16(c == 0 ? 1.0f : 0.0f);
  cuda::NormArgs a;
  a.type = DType::kBF16, a.rows.limit = a.declared_rows = rows, a.width = a.stride = width, a.gains = 0, a.epsilon = 0, a.x = x.data(), a.y = y.data(), a.stats = stats.data();
  {
    const LastBlocks only(1);
    cuda::norm(a, nullptr);
  }
  CHECK(static_cast<float>(y[last + 1]) == -1.0f);
  CHECK(stats[rows - 1] == 0.5f);
  // Backward strides over its rows: one that stands far behind is reached by the stride of the rows alone.
  const std::int64_t far = std::int64_t{1} << 30;
  Sparse<bf16> wide_x(2 * far + far), wide_dy(2 * far + far), wide_dx(2 * far + far);
  for (std::int64_t c = 0; c < width; ++c) wide_x[2 * far + c] = x[last + c], wide_dy[2 * far + c] = dy[last + c];
  stats[2] = 0.5f;
  cuda::NormBackwardArgs b;
  b.type = DType::kBF16, b.rows.limit = b.declared_rows = 3, b.width = width, b.gains = 0, b.stride = b.x_stride = far;
  b.x = wide_x.data(), b.stats = stats.data(), b.dy = wide_dy.data(), b.dx = wide_dx.data();
  cuda::norm_backward(b, nullptr);
  CHECK(static_cast<float>(wide_dx[2 * far]) == Approx(0.5 * (1 - 1.0 / 64)).epsilon(0.01));
}

TEST_CASE("tables past 2^31 elements: embedding and its gradient") {
  const std::int64_t width = 1 << 15, vocab = kMany / width + 1, token = vocab - 1;
  Sparse<bf16> table(vocab * width);
  Sparse<float> dtable(vocab * width);
  table[token * width + 5] = bf16(1.5f);
  DeviceBuffer<std::int32_t> ids(1, static_cast<std::int32_t>(token));
  DeviceBuffer<bf16> x(static_cast<size_t>(width)), dx(static_cast<size_t>(width), bf16(0.5f));
  cuda::embedding({DType::kBF16, 1, width, ids.data(), table.data(), nullptr, nullptr, x.data()}, nullptr);
  CHECK(static_cast<float>(x[5]) == 1.5f);
  cuda::EmbeddingBackwardArgs b;
  b.type = DType::kBF16, b.rows = 1, b.width = width, b.table_rows = vocab, b.accumulate = true, b.ids = ids.data(), b.dx = dx.data(), b.dtable = dtable.data();
  DeviceBuffer<std::int32_t> scratch(static_cast<size_t>(cuda::embedding_scratch_ints(b)));
  b.scratch = scratch.data();
  cuda::embedding_backward(b, nullptr);
  CHECK(dtable[token * width + width - 1] == 0.5f);
  b.accumulate = false;
  {
    const LastBlocks only(1);  // of the clearing, and of the sums: the last strip of columns
    cuda::embedding_backward(b, nullptr);
  }
  CHECK(dtable[token * width + width - 1] == 0.5f);
}

TEST_CASE("logits, scores and rotary rows past 2^31 elements") {
  const std::int64_t stride = std::int64_t{1} << 30;
  Sparse<bf16> logits(3 * stride);
  logits[2 * stride + 1] = bf16(3.0f);
  DeviceBuffer<std::int32_t> labels(std::vector<std::int32_t>{-1, -1, 1}), counted(1), positions(std::vector<std::int32_t>{0, 0, 1});
  DeviceBuffer<float> losses(3), loss(1);
  cuda::CrossEntropyArgs a;
  a.type = DType::kBF16, a.rows = 3, a.vocab = 2, a.stride = stride, a.logits = logits.data(), a.labels = labels.data(), a.counted = counted.data(), a.row_losses = losses.data(), a.loss = loss.data();
  cuda::cross_entropy(a, nullptr);
  CHECK(loss[0] == Approx(std::log(1 + std::exp(-3.0))));

  std::vector<float> table(4);
  cuda::fill_rope_table(500.0, 2, 2, table.data());
  DeviceBuffer<float> t(table);
  cuda::rope({DType::kBF16, {3}, stride, 1, 2, 2, 0, false, logits.data(), positions.data(), t.data()}, nullptr);
  CHECK(static_cast<float>(logits[2 * stride]) == Approx(-3 * std::sin(1.0)).epsilon(0.01));

  const std::int64_t width = 64, rows = kMany / width;
  Sparse<bf16> x(kMany), dx(kMany);
  Sparse<float> scores(rows), dscores(rows);
  x[(rows - 1) * width] = bf16(2.0f), dscores[rows - 1] = 5.0f;
  DeviceBuffer<bf16> w(static_cast<size_t>(width), bf16(1.0f));
  {
    const LastBlocks only(1);
    cuda::router_score({DType::kBF16, rows, width, x.data(), w.data(), nullptr, DType::kF32, scores.data()}, nullptr);
  }
  CHECK(scores[rows - 1] == 2.0f);
}

TEST_CASE("caches past 2^31 elements: appending, one query over them on both kinds of cores") {
  const std::int64_t room = std::int64_t{1} << 22, width = 16 * 2 * 8;  // keys and values of 8 heads of 16
  Sparse<bf16> cache(3 * room * width);
  DeviceBuffer<bf16> source(static_cast<size_t>(3 * width), bf16(1.0f));
  DeviceBuffer<std::int32_t> counts(std::vector<std::int32_t>{0, 0, static_cast<std::int32_t>(room - 1)});
  cuda::KvAppendArgs append;
  append.type = append.kv_type = DType::kBF16, append.rows = {3, 1, nullptr}, append.row_limit = 3, append.width = append.stride = width, append.room = room;
  append.source = source.data(), append.cache = cache.data(), append.counts = counts.data();
  cuda::kv_append(append, nullptr);
  CHECK(static_cast<float>(cache[3 * room * width - 1]) == 1.0f);
  CHECK(counts[2] == room);

  // Sequence 2 sees its last key alone, whose value is 1; everything else would give 0.
  DeviceBuffer<bf16> q(static_cast<size_t>(3 * 16 * 8), bf16(0.0f)), o(static_cast<size_t>(3 * 16 * 8));
  DeviceBuffer<std::int32_t> begin(std::vector<std::int32_t>{0, 0, static_cast<std::int32_t>(room - 1)}), end(std::vector<std::int32_t>{1, 1, static_cast<std::int32_t>(room)});
  cuda::AttentionArgs a;
  a.type = DType::kBF16, a.queries = {3, 1, nullptr}, a.row_limit = 3, a.rows_per_sequence = 1, a.keys_per_sequence = room, a.keys = {3, room, nullptr};
  a.heads = a.kv_heads = 8, a.qk_dim = a.v_dim = 16, a.q = q.data(), a.k = cache.data(), a.v = cache.data() + 8 * 16, a.q_stride = a.o_stride = 8 * 16, a.kv_stride = width, a.v_head_stride = 16;
  a.begin = begin.data(), a.end = end.data(), a.o = o.data();
  for (const cuda::AttentionKernel kernel : {cuda::AttentionKernel::kDecode, cuda::AttentionKernel::kTensor, cuda::AttentionKernel::kSimt}) {
    if (kernel == cuda::AttentionKernel::kTensor) a.rows_per_sequence = 2;
    if (kernel == cuda::AttentionKernel::kSimt) a.v_dim = 15;
    REQUIRE(cuda::attention_kernel_for(a) == kernel);
    cuda::attention(a, nullptr);
    CHECK(static_cast<float>(o[static_cast<size_t>(2 * 16 * 8)]) == 1.0f);
  }
}

TEST_CASE("queries and gradients of attention past 2^31 elements") {
  // Three rows of one sequence, far apart; the last sees all keys. Values of key j are j + 1, scores are equal.
  const std::int64_t stride = std::int64_t{1} << 30;
  Sparse<bf16> qkv(4 * stride), o(4 * stride), d_o(4 * stride), grad(4 * stride);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 16; ++c) qkv[r * stride + 32 + c] = bf16(static_cast<float>(r + 1)), d_o[r * stride + c] = bf16(r == 2 ? 1.0f : 0.0f);
  qkv[2 * stride + 16] = bf16(1.5f);  // one key, so that the last query has a gradient: queries are zero and scores stay equal
  DeviceBuffer<std::int32_t> begin(std::vector<std::int32_t>{0, 0, 0}), end(std::vector<std::int32_t>{1, 2, 3});
  DeviceBuffer<float> lse(3), delta(3);
  cuda::AttentionBackwardArgs b;
  cuda::AttentionArgs& a = b.forward;
  a.type = DType::kBF16, a.queries = a.keys = {1, 3, nullptr}, a.row_limit = a.rows_per_sequence = a.keys_per_sequence = 3, a.heads = a.kv_heads = 1, a.qk_dim = a.v_dim = 16;
  a.q = qkv.data(), a.k = qkv.data() + 16, a.v = qkv.data() + 32, a.q_stride = a.kv_stride = stride, a.o_stride = stride, a.v_head_stride = 16;
  a.begin = begin.data(), a.end = end.data(), a.o = o.data(), a.lse = lse.data();
  b.d_o = d_o.data(), b.delta = delta.data(), b.dq = grad.data(), b.dk = grad.data() + 16, b.dv = grad.data() + 32;
  for (const bool tensor : {true, false}) {
    if (!tensor) a.v_dim = 15;
    REQUIRE(cuda::attention_kernel_for(a) == (tensor ? cuda::AttentionKernel::kTensor : cuda::AttentionKernel::kSimt));
    cuda::attention(a, nullptr);
    CHECK(static_cast<float>(o[2 * stride]) == 2.0f);  // (1 + 2 + 3) / 3
    cuda::attention_backward(b, nullptr);
    CHECK(static_cast<float>(grad[2 * stride + 32]) == Approx(1.0 / 3).epsilon(0.01));
    CHECK(static_cast<float>(grad[32]) == Approx(1.0 / 3).epsilon(0.01));
    // dq = scale sum P (dP - D) K: dP of the last key is 3 v_dim, D the mean 2 v_dim, P a third, its K 1.5.
    CHECK(static_cast<float>(grad[2 * stride]) == Approx(static_cast<double>(a.scale) * static_cast<double>(a.v_dim) * 0.5).epsilon(0.01));
  }
  // Three sequences of one row: the last begins past 2^31 elements and sees itself, with a score of -4 x 3.
  end[1] = end[2] = 1;
  qkv[2 * stride] = bf16(-4.0f), qkv[2 * stride + 16] = bf16(3.0f), a.scale = 1.0f;
  a.queries = a.keys = {3, 1, nullptr}, a.rows_per_sequence = 2, a.v_dim = 16;
  for (const bool tensor : {true, false}) {
    if (!tensor) a.v_dim = 15;
    REQUIRE(cuda::attention_kernel_for(a) == (tensor ? cuda::AttentionKernel::kTensor : cuda::AttentionKernel::kSimt));
    cuda::attention(a, nullptr);
    CHECK(static_cast<float>(o[2 * stride]) == 3.0f);
    CHECK(lse[2] == Approx(-12.0));
    cuda::attention_backward(b, nullptr);
    CHECK(static_cast<float>(grad[2 * stride + 32]) == 1.0f);
  }
  // Two sequences of two rows: the second begins past 2^31 elements, its last query sees both keys with equal scores. Values 3 and 4, keys 0 and 1.5:
  // dP 3 v_dim and 4 v_dim, D their mean, P a half, dq = (4 - 3) v_dim / 4 x 1.5.
  qkv[2 * stride] = bf16(0.0f), qkv[2 * stride + 16] = bf16(0.0f), qkv[3 * stride + 16] = bf16(1.5f);
  for (std::int64_t c = 0; c < 16; ++c) qkv[3 * stride + 32 + c] = bf16(4.0f), d_o[3 * stride + c] = bf16(1.0f);
  DeviceBuffer<std::int32_t> from(std::vector<std::int32_t>{0, 0, 0, 0}), to(std::vector<std::int32_t>{1, 2, 1, 2});
  DeviceBuffer<float> sums(4), products(4);
  a.queries = a.keys = {2, 2, nullptr}, a.row_limit = 4, a.rows_per_sequence = a.keys_per_sequence = 2, a.begin = from.data(), a.end = to.data(), a.lse = sums.data(), b.delta = products.data();
  for (const bool tensor : {true, false}) {
    a.v_dim = tensor ? 16 : 15;
    REQUIRE(cuda::attention_kernel_for(a) == (tensor ? cuda::AttentionKernel::kTensor : cuda::AttentionKernel::kSimt));
    cuda::attention(a, nullptr);
    cuda::attention_backward(b, nullptr);
    CHECK(static_cast<float>(grad[3 * stride]) == Approx(static_cast<double>(a.v_dim) * 0.375).epsilon(0.01));
  }
}

TEST_CASE("experts past 2^31 elements") {
  const std::int64_t width = 1 << 15, tokens = kMany / width + 1, token = tokens - 1;
  Sparse<bf16> x(tokens * width), y(tokens * width);
  Sparse<std::int32_t> slots(tokens);
  for (std::int64_t t = 0; t < 9; ++t) slots[tokens - 1 - t] = -1;
  slots[token] = 0;
  x[token * width + 3] = bf16(2.0f);
  DeviceBuffer<bf16> row(static_cast<size_t>(width)), drow(static_cast<size_t>(width));
  DeviceBuffer<std::int32_t> permutation(1, static_cast<std::int32_t>(token)), offsets(std::vector<std::int32_t>{0, 1});
  DeviceBuffer<float> weights(1, 0.5f), dweights(1);
  cuda::ExpertRowsArgs a;
  a.type = DType::kBF16, a.tokens = tokens, a.width = width, a.picks = 1, a.rows = {1, offsets.data() + 1}, a.x = x.data(), a.y = row.data(), a.permutation = permutation.data(), a.slots = slots.data();
  cuda::expert_dispatch(a, nullptr);
  CHECK(static_cast<float>(row[3]) == 2.0f);
  a.x = row.data(), a.y = y.data(), a.weights = weights.data();
  {
    const LastBlocks only(1);
    cuda::expert_combine(a, nullptr);
  }
  CHECK(static_cast<float>(y[token * width + 3]) == 1.0f);
  cuda::ExpertCombineBackwardArgs b;
  b.type = DType::kBF16, b.rows = a.rows, b.tokens = tokens, b.width = width, b.dy = x.data(), b.x = row.data(), b.permutation = permutation.data(), b.weights = weights.data(), b.dx = drow.data(), b.dweights = dweights.data();
  cuda::expert_combine_backward(b, nullptr);
  CHECK(dweights[0] == 4.0f);
  CHECK(static_cast<float>(drow[3]) == 1.0f);

  // Weights of the last of 70 000 experts, 256 x 128 each: 2.3e9 elements.
  const std::int64_t experts = 70000, k = 256, n = 128;
  Sparse<bf16> w(experts * k * n);
  Sparse<std::int32_t> begins(experts + 1);
  begins[experts] = 1;
  DeviceBuffer<bf16> left(static_cast<size_t>(k), bf16(1.0f)), c(static_cast<size_t>(n));
  for (std::int64_t i = 0; i < k; ++i) w[((experts - 1) * k + i) * n + 2] = bf16(0.5f);
  cuda::GroupedArgs g;
  g.type = g.result = DType::kBF16, g.experts = static_cast<int>(experts), g.rows = 1, g.n = n, g.k = k, g.offsets = begins.data(), g.a = left.data(), g.b = w.data(), g.c = c.data();
  cuda::grouped_product(g, nullptr);
  CHECK(static_cast<float>(c[2]) == 128.0f);
}

TEST_CASE("a tensor of more than 2^31 parameters") {
  Sparse<float> grad(kMany), weight(kMany), m(kMany), v(kMany);
  grad[kMany - 1] = 2.0f, weight[kMany - 1] = 1.0f;
  DeviceBuffer<cuda::ParameterTensor> table(std::vector<cuda::ParameterTensor>{{grad.data(), weight.data(), m.data(), v.data(), nullptr, kMany, 0}});
  const std::int64_t chunks = cuda::parameter_chunks(kMany);
  Sparse<float> partials(chunks);
  DeviceBuffer<float> sum(1, 4.0f);
  const LastBlocks only(1);
  cuda::gradient_norm({DType::kF32, table.data(), 1, chunks, true, partials.data(), sum.data()}, nullptr);
  CHECK(partials[chunks - 1] == 4.0f);
  cuda::AdamWArgs a;
  a.tensors = table.data(), a.tensor_count = 1, a.chunks = chunks, a.sum = sum.data(), a.clip = 100.0f;
  cuda::set_adamw(a, 0.5, 0.5, 0.5, 0.0, 0.0, 1);
  cuda::adamw(a, nullptr);
  CHECK(m[kMany - 1] == 1.0f);
  CHECK(weight[kMany - 1] == 0.5f);  // m / c1 over sqrt(v / c2): 2 / 2, times the rate of 0.5
}

}  // namespace
}  // namespace fathom
