// Multiply-adds that the reference really executes equal the analytic count, for every op kind on random small shapes.
// Kinds that are not matrix-type must execute none.
#include <catch2/catch.hpp>

#include <random>
#include <set>

#include "kernels/reference/backend.hpp"

using namespace fathom;

namespace {

struct Shape {
  std::int64_t rows = 0, cols = 0;
  DType dtype = DType::kF32;
  std::vector<float> values{};  // else what bind() makes
};

struct Case {
  OpSpec spec;
  std::vector<Shape> in, out;
  std::vector<int> in_place{};  // output i is input in_place[i] (-1: its own tensor)
  size_t gradients = 0;         // the first outputs are gradients of weights
};

// Runs one op as a workload of its own and compares.
void check(const Case& c) {
  CAPTURE(kind_name(c.spec));
  WorkloadBuilder builder;
  const int block = builder.begin_block("op", false);
  std::vector<Operand> in, out;
  int number = 0;
  const auto tensor = [&](const Shape& shape, Role role) {
    return Operand{builder.tensor("t" + std::to_string(number++), role, Scope::kGlobal, shape.rows, shape.cols, shape.dtype), 0};
  };
  for (const Shape& shape : c.in) in.push_back(tensor(shape, shape.dtype == DType::kI32 ? Role::kKvCache : Role::kWeight));
  for (size_t i = 0; i < c.out.size(); ++i) {
    const Role role = i < c.gradients ? Role::kGradient : Role::kWeight;
    out.push_back(i < c.in_place.size() && c.in_place[i] >= 0 ? in[static_cast<size_t>(c.in_place[i])] : tensor(c.out[i], role));
  }
  builder.op("op", Part::kProjection, Pass::kForward, c.spec, in, out);
  builder.step(block, 0, 0);
  const Workload w = builder.finish();
  const auto exec = reference::ReferenceBackend().bind_reference(w, {});
  for (size_t i = 0; i < c.in.size(); ++i)
    if (!c.in[i].values.empty()) exec->write(exec->bound(0).in[i].at, c.in[i].values);
  exec->run_instance(0);
  const Cost declared = declared_cost(c.spec);
  const Cost executed = cost_at(c.spec, exec->executed(0));
  CHECK(exec->executed_flops(0).str() == (declared.flops + declared.flops_recompute).str());
  CHECK(exec->executed_flops(0).str() == (executed.flops + executed.flops_recompute).str());
  CHECK(to_string(exec->executed(0).pairs) == to_string(fathom::declared(c.spec).pairs));
  CHECK(exec->executed(0).keys == fathom::declared(c.spec).keys);
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(engine_); }
  std::vector<float> ids(std::int64_t count, std::int64_t below) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((*this)(0, below - 1)));
    return values;
  }
  // `count` different ascending values below `below`.
  std::vector<float> subset(std::int64_t count, std::int64_t below) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < below; ++i) all.push_back(static_cast<float>(i));
    std::shuffle(all.begin(), all.end(), engine_);
    all.resize(static_cast<size_t>(count));
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::mt19937 engine_;
};

Rows fixed(std::int64_t count) { return Rows{count, {1, 1}}; }
Shape index_shape(std::vector<float> values) { return {static_cast<std::int64_t>(values.size()), 1, DType::kI32, values}; }

std::vector<Case> cases(unsigned seed) {
  Random r(seed);
  std::vector<Case> all;
  const std::int64_t n = r(1, 7), w = r(1, 9), out = r(1, 9), vocab = r(2, 11);
  const Shape x{n, w}, row{1, w}, stats{n, 1};

  all.push_back({Embedding{fixed(n), w, true}, {index_shape(r.ids(n, vocab)), {vocab, w}, index_shape(r.ids(n, 5)), {5, w}}, {x}});
  all.push_back({EmbeddingBackward{Embedding{fixed(n), w, true}}, {index_shape(r.ids(n, vocab)), x, index_shape(r.ids(n, 5))}, {{vocab, w}, {5, w}}});
  all.push_back({RmsNorm{fixed(n), w, 1, true}, {x, row}, {x, stats}});
  all.push_back({RmsNormBackward{RmsNorm{fixed(n), w, 1, true}}, {x, row, stats, x}, {x, row}});
  all.push_back({LayerNorm{fixed(n), w, true, true}, {x, row, row}, {x, {n, 2}}});
  all.push_back({LayerNormBackward{LayerNorm{fixed(n), w, true, true}}, {x, row, {n, 2}, x}, {x, row, row}});

  for (const bool transposed : {false, true}) {
    const Shape weight = transposed ? Shape{out, w} : Shape{w, out};
    Gemm gemm{fixed(n), w, out};
    gemm.transposed = transposed;
    gemm.bias = !transposed;
    std::vector<Shape> in = {x, weight};
    if (gemm.bias) in.push_back({1, out});
    all.push_back({gemm, in, {{n, out}}});
    gemm.bias = false;
    gemm.role = GemmRole::kInputGradient;
    all.push_back({gemm, {{n, out}, weight}, {x}});
    gemm.role = GemmRole::kWeightGradient;
    all.push_back({gemm, {x, {n, out}}, {weight}});
  }
  {  // grouped over experts: any split of the rows
    const std::int64_t experts = r(2, 5);
    std::vector<float> offsets = r.ids(experts + 1, n + 1);
    offsets.front() = 0, offsets.back() = static_cast<float>(n);
    std::sort(offsets.begin(), offsets.end());
    Gemm gemm{fixed(n), w, out};
    gemm.experts = experts;
    all.push_back({gemm, {x, {experts * w, out}, index_shape(offsets)}, {{n, out}}});
    gemm.role = GemmRole::kInputGradient;
    all.push_back({gemm, {{n, out}, {experts * w, out}, index_shape(offsets)}, {x}});
    gemm.role = GemmRole::kWeightGradient;
    all.push_back({gemm, {x, {n, out}, index_shape(offsets)}, {{experts * w, out}}});
  }

  const Shape wide{n, 6 * w};
  all.push_back({Rope{fixed(n), 2, 4, 6, 6 * w}, {{n, 6 * w + 12}, index_shape(r.ids(n, 50))}, {{n, 6 * w + 12}}, {0}});
  all.push_back({Activation{fixed(n), w, ActivationKind::kSilu, true}, {x, x}, {x}});
  all.push_back({ActivationBackward{Activation{fixed(n), w, ActivationKind::kGeluErf, true}}, {x, x, x}, {x, x}});
  all.push_back({AddResidual{fixed(n), w}, {x, x}, {x}});

  {  // attention: unequal head sizes, GQA, every mask
    Attention a;
    a.sequences = r(1, 3);
    const std::int64_t length = r(1, 6);
    a.rows = fixed(a.sequences * length);
    a.kv_heads = r(1, 2), a.heads = a.kv_heads * r(1, 3), a.qk_dim = r(1, 5), a.v_dim = r(1, 5);
    a.lse = true;
    const std::int64_t mask = r(0, 3), limit = r(1, 7);
    if (mask == 1) a.mask.kind = MaskKind::kFull;
    if (mask == 2) a.mask.window = limit;
    if (mask == 3) a.mask.chunk = limit;
    std::vector<float> positions;
    for (std::int64_t i = 0; i < a.rows.count; ++i) positions.push_back(static_cast<float>(i % length));
    a.pairs = 0;
    for (std::int64_t q = 0; q < length; ++q)
      for (std::int64_t k = 0; k < length; ++k)
        a.pairs += mask == 1 || (k <= q && (mask != 2 || q - k < limit) && (mask != 3 || q / limit == k / limit));
    a.pairs *= static_cast<u128>(a.sequences);
    a.keys = a.rows.count;
    const Shape qkv{a.rows.count, a.heads * a.qk_dim + a.kv_heads * (a.qk_dim + a.v_dim)}, o{a.rows.count, a.heads * a.v_dim}, lse{a.rows.count, a.heads};
    all.push_back({a, {qkv, index_shape(positions)}, {o, lse}});
    all.push_back({AttentionBackward{a}, {qkv, index_shape(positions), o, lse, o}, {qkv}});
    a.shared_kv = true;
    a.v_dim = std::min(a.v_dim, a.qk_dim);
    all.push_back({a, {{a.rows.count, (a.heads + a.kv_heads) * a.qk_dim}, index_shape(positions)}, {{a.rows.count, a.heads * a.v_dim}, lse}});

    // Decode: ragged counts, the new row included.
    Attention d = a;
    d.shared_kv = false, d.cached = true, d.lse = false, d.mask = {};
    d.rows = fixed(a.sequences);
    const std::int64_t room = 6;
    std::vector<float> counts, at;
    d.pairs = 0, d.keys = 0;
    for (std::int64_t b = 0; b < a.sequences; ++b) {
      counts.push_back(static_cast<float>(r(1, room)));
      at.push_back(counts.back() - 1);
      d.pairs += static_cast<u128>(counts.back());
      d.keys += static_cast<std::int64_t>(counts.back());
    }
    all.push_back({d, {{a.sequences, d.heads * d.qk_dim + d.kv_heads * (d.qk_dim + d.v_dim)}, index_shape(at), {a.sequences * room, d.kv_heads * (d.qk_dim + d.v_dim)}, index_shape(counts)},
                   {{a.sequences, d.heads * d.v_dim}}});
    all.push_back({KvAppend{fixed(a.sequences), 4}, {{a.sequences, 10}}, {{a.sequences * room, 4}, {a.sequences, 1, DType::kI32}}});
  }

  {  // routing of one sequence
    const std::int64_t stream = n + r(0, 5);
    const Shape s{stream, w}, scores{stream, 1};
    const Rows rows = fixed(n);
    const Shape chosen = index_shape(r.subset(n, stream));
    all.push_back({RouterScore{fixed(stream), w, true}, {s, row, {1, 1}}, {scores}});
    all.push_back({GatherRows{rows, w}, {s, chosen}, {x}});
    all.push_back({GatherBackward{GatherRows{rows, w}}, {x, chosen}, {s}});
    all.push_back({ScatterAddRows{rows, w, Gate{}}, {s, x, chosen, scores}, {s}});
    all.push_back({ScatterAddBackward{ScatterAddRows{rows, w, Gate{}}}, {s, x, chosen, scores}, {x, scores}});
    all.push_back({RouterLoss{fixed(stream), 0.01}, {scores, chosen, index_shape({static_cast<float>(n)})}, {{1, 1}, scores}});
    const RouterScore score{fixed(stream), w, true};
    for (const auto& [weight_rows, input_rows] : {std::pair{fixed(stream), fixed(stream)}, std::pair{fixed(stream), rows}, std::pair{rows, rows}}) {
      RouterScoreBackward backward{score, weight_rows, input_rows};
      std::vector<Shape> in = {s, x, row, scores, chosen};
      if (weight_rows != input_rows) backward.detached_lambda = 0.01, in.push_back(scores);
      all.push_back({backward, in, {row, {1, 1}, s}, {}, 2});
    }
    RouterScoreBackward plain{score, fixed(stream), fixed(stream)};
    plain.plain = true;
    all.push_back({plain, {s, row, scores}, {row, {1, 1}, s}, {}, 2});
    plain.input_rows = {};
    all.push_back({plain, {s, row, scores}, {row, {1, 1}}, {}, 2});
    plain.weight_rows = {}, plain.input_rows = fixed(stream);
    all.push_back({plain, {s, row, scores}, {s}, {}, 0});
    std::vector<float> positions;
    for (std::int64_t i = 0; i < stream; ++i) positions.push_back(static_cast<float>(i));
    all.push_back({Select{1, stream, rows, RoutingRule::kTopK}, {scores, index_shape(positions)}, {{n, 1, DType::kI32}, {n, 1, DType::kI32}, {1, 1, DType::kI32}}});
  }

  {  // latent attention: copies only
    LatentHeads l{fixed(n), r(1, 3), r(1, 4), 2 * r(1, 2), r(1, 4), r(1, 5)};
    const Shape q{n, l.heads * l.qk_dim()}, latent{n, l.rank + l.rope_dim}, kv{n, l.heads * (l.nope_dim + l.v_dim)}, heads{n, l.row_width()};
    all.push_back({l, {q, latent, kv}, {heads}});
    all.push_back({LatentHeadsBackward{l}, {heads}, {q, latent, kv}});
    l.queries = false;
    const Shape keys{n, l.row_width()};
    all.push_back({l, {latent, kv}, {keys}});
    all.push_back({LatentHeadsBackward{l}, {keys}, {latent, kv}});
    l.queries = true, l.absorbed = true;
    all.push_back({l, {q, {n, l.heads * l.rank}}, {{n, l.row_width()}}});
  }

  {  // products on parts of rows: a batch of them, strides, an output column behind others
    const std::int64_t batch = r(1, 3), in_stride = w + r(0, 2), out_stride = batch * out + r(0, 3), offset = out_stride - batch * out;
    Gemm gemm{fixed(n), w, out};
    gemm.batch = batch, gemm.batch_stride = in_stride, gemm.in_stride = batch * in_stride + 1, gemm.out_stride = out_stride, gemm.out_offset = offset;
    gemm.accumulate = true;
    const Shape from{n, gemm.in_stride}, to{n, out_stride}, weight{batch * w, out};
    all.push_back({gemm, {from, weight}, {to}});
    if (batch == 1) {
      gemm.role = GemmRole::kInputGradient;
      all.push_back({gemm, {to, weight}, {from}});
      gemm.role = GemmRole::kWeightGradient;
      all.push_back({gemm, {from, to}, {weight}});
    }
  }

  {  // experts
    const std::int64_t experts = r(2, 5), picks = r(1, 2), tokens = r(1, 5), rows = tokens * picks;
    const ExpertSelect select{fixed(tokens), experts, 0, picks, r(0, 1) == 1};
    const Shape logits{tokens, experts}, assignment = index_shape(r.ids(rows, tokens)), list{rows, 1}, moved{rows, w}, stream{tokens, w};
    all.push_back({select, {logits}, {{rows, 1, DType::kI32}, list, {experts + 1, 1, DType::kI32}}});
    std::vector<float> offsets(static_cast<size_t>(experts + 1), static_cast<float>(rows));
    offsets[0] = 0;
    all.push_back({ExpertSelectBackward{select}, {logits, assignment, index_shape(offsets), list}, {logits}});
    all.push_back({ExpertDispatch{fixed(rows), w}, {stream, assignment}, {moved}});
    all.push_back({ExpertDispatchBackward{ExpertDispatch{fixed(rows), w}, tokens}, {moved, assignment}, {stream}});
    all.push_back({ExpertCombine{fixed(rows), tokens, w, true}, {moved, assignment, list, stream}, {stream}});
    all.push_back({ExpertCombineBackward{ExpertCombine{fixed(rows), tokens, w}}, {stream, moved, assignment, list}, {moved, list}});
  }

  all.push_back({CrossEntropy{fixed(n), vocab, true}, {{n, vocab}, index_shape(r.ids(n, vocab))}, {{1, 1}, {n, vocab}}, {-1, 0}});
  all.push_back({GradientNorm{n * w, true}, {x}, {{1, 1}}});
  all.push_back({AdamW{n * w}, {{1, 1, DType::kF32, {1.0f}}, x}, {x, x, x}});
  return all;
}

}  // namespace

TEST_CASE("executed multiply-adds of every op kind equal the analytic count", "[counted]") {
  std::set<size_t> kinds;
  int with_flops = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    for (const Case& each : cases(seed)) {
      check(each);
      kinds.insert(each.spec.index());
      with_flops += declared_cost(each.spec).flops.value() > 0;
    }
  }
  CHECK(kinds.size() == std::variant_size_v<OpSpec>);
  CHECK(with_flops > 600);
}
