// Declared fusions: which tensors pass through memory, in bytes worked by hand.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "lib/memory_parts.hpp"
#include "models/builder.hpp"
#include "models/count/utilization.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

// One layer: width 8, two heads of 4, a gated MLP of 16, vocabulary 10.
Network small() {
  Network net;
  net.name = "small";
  net.width = 8, net.vocab = 10;
  BlockConfig block;
  block.attention.emplace();
  block.attention->heads = block.attention->kv_heads = 2, block.attention->head_dim = block.attention->rope_dim = 4;
  block.mlp.emplace();
  block.mlp->width = 16, block.mlp->gated = true, block.mlp->activation = ActivationKind::kSilu;
  net.kinds = {block};
  net.layers = {0};
  return net;
}
// Four tokens in f32: a row of the stream is 32 bytes, all four 128; gate and up 256 each.
Scenario scenario(Phase phase, const char* fusions) {
  Scenario s;
  s.phase = phase;
  s.length = 4, s.context = 5;
  s.logits = LogitsKind::kAll;
  s.fusions = parse_fusions(fusions);
  return s;
}
struct Change {
  long read, written;
  bool operator==(const Change&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Change& c) { return out << c.read << " read, " << c.written << " written"; }
// What `fusions` change against `base`; FLOPs and elements never change, and the sums without a list are the same.
Change change(const Network& net, Phase phase, const char* fusions, const char* base = "qkv,attention") {
  const Cost a = build(net, scenario(phase, base)).total(), b = build(net, scenario(phase, fusions)).total();
  CHECK(a.flops == b.flops);
  CHECK(a.elements == b.elements);
  CHECK(count_totals(net, scenario(phase, fusions)).total == b);
  return {static_cast<long>(b.read.value()) - static_cast<long>(a.read.value()), static_cast<long>(b.written.value()) - static_cast<long>(a.written.value())};
}

}  // namespace

TEST_CASE("unfused attention writes and reads scores and probabilities", "[fusion]") {
  // 10 pairs in each of 2 heads: two matrices of 80 bytes, each written and read.
  CHECK(change(small(), Phase::kPrefill, "qkv") == Change{160, 160});
  CHECK(change(small(), Phase::kDecode, "qkv") == Change{80, 80});  // 5 pairs
  // Training: no log-sum-exp (4 rows x 2 heads x 4 bytes: written forward, read backward); the backward core reads no output (128 bytes) but the
  // probabilities, and forms dP and dS: five matrices read, two written.
  CHECK(change(small(), Phase::kTrain, "qkv") == Change{160 - 32 - 128 + 5 * 80, 160 - 32 + 2 * 80});
  // Nothing is done twice in it: executed = model FLOPs.
  const StepFlops fused = step_flops(build(small(), scenario(Phase::kTrain, "qkv,attention"))), unfused = step_flops(build(small(), scenario(Phase::kTrain, "qkv")));
  CHECK(unfused.model == fused.model);
  CHECK(unfused.executed == unfused.model);
  CHECK(fused.executed - fused.model == 2 * 2 * 4 * 10);
}

TEST_CASE("unfused attention keeps the probabilities", "[fusion]") {
  // 34 S B h + 5 n S^2 B bytes with dropout. Without it, 32 S B h + 2 n S^2 B, and two LayerNorms of two f32 statistics per row.
  Network gpt2 = builtin_network("gpt2-124m");
  Scenario s = scenario(Phase::kTrain, "none");
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  s.length = 128, s.batch = 3, s.full_mask = true;
  gpt2.layers.resize(2);
  const u128 two = memory_parts(build(gpt2, s)).saved.value();
  gpt2.layers.push_back(gpt2.layers.back());
  CHECK(to_string(memory_parts(build(gpt2, s)).saved.value() - two) == to_string(u128{32} * 128 * 3 * 768 + u128{2} * 12 * 128 * 128 * 3 + u128{128} * 3 * 16));
}

TEST_CASE("gate, up and their product read the input once and stay inside", "[fusion]") {
  // The second read of the input (128); gate and up (256 each), written and read.
  CHECK(change(small(), Phase::kPrefill, "qkv,attention,gate-up") == Change{-(128 + 512), -512});
  CHECK(change(small(), Phase::kTrain, "qkv,attention,gate-up") == Change{-(128 + 512), 0});  // the backward pass reads them
  Network plain = small();
  plain.kinds[0].mlp->gated = false;
  CHECK(change(plain, Phase::kPrefill, "qkv,attention,gate-up") == Change{0, 0});
}

TEST_CASE("a norm is the head of the products that read it", "[fusion]") {
  // norm1 (one product), norm2 (gate and up) and the final norm (the head): four reads, three writes of 128.
  CHECK(change(small(), Phase::kPrefill, "qkv,attention,norm") == Change{-4 * 128, -3 * 128});
  CHECK(change(small(), Phase::kTrain, "qkv,attention,norm") == Change{-4 * 128, 0});  // weight gradients read them
  // q, k and v as products of their own (two reads more, 256) take it inside as well: nobody has written what they would read.
  CHECK(change(small(), Phase::kPrefill, "attention,norm", "attention") == Change{-4 * 128 - 256, -3 * 128});
  // With gate-up no read is taken off twice.
  CHECK(change(small(), Phase::kPrefill, "qkv,attention,norm,gate-up") == Change{-(4 * 128 + 512), -(3 * 128 + 512)});
}

TEST_CASE("a residual sum is the tail of its product", "[fusion]") {
  CHECK(change(small(), Phase::kPrefill, "qkv,attention,residual") == Change{-256, -256});
  CHECK(change(small(), Phase::kTrain, "qkv,attention,residual") == Change{-256, -256});  // nobody else reads what is added
  Network after = small();
  after.kinds[0].norms = 4;  // a norm stands between product and sum
  CHECK(change(after, Phase::kPrefill, "qkv,attention,residual") == Change{0, 0});
  CHECK(change(small(), Phase::kPrefill, "all") == Change{-(4 * 128 + 512 + 256), -(3 * 128 + 512 + 256)});
}

TEST_CASE("q, k and v as products of their own read the input three times", "[fusion]") {
  CHECK(change(small(), Phase::kPrefill, "attention") == Change{256, 0});
  // Training: the input again in dX and dW; dX is formed three times, the second and third adding to what is there.
  CHECK(change(small(), Phase::kTrain, "attention") == Change{3 * 256, 256});
  CHECK(change(small(), Phase::kPrefill, "none") == Change{256 + 160, 160});
}

TEST_CASE("expected bytes of fused routed rows follow the rows", "[fusion]") {
  Network net = small();
  net.layers = {0, 0};
  Route route;
  route.capacity = Fraction{1, 4};
  net = with_routes(net, 2, route);
  Scenario a = scenario(Phase::kPrefill, "qkv,attention"), b = scenario(Phase::kPrefill, "qkv,attention,residual");
  a.routing = b.routing = RoutingRule::kThreshold;
  // The dense block has two sums of 128 bytes. The routed one has two inside, of a quarter of four rows, 32 bytes each: input + attention, and the
  // update attention + MLP, which reads the attention's output once more: that one is written.
  const ExpectedCost without = build(net, a).expected_total(), with = build(net, b).expected_total();
  CHECK(without.read - with.read == Approx(256 + 64));
  CHECK(without.written - with.written == Approx(256 + 32));
}

TEST_CASE("names of fusions", "[fusion]") {
  CHECK(parse_fusions("qkv+attention") == Fusions{});
  CHECK(fusions_text(parse_fusions("all")) == "qkv+attention+gate-up+norm+residual");
  CHECK(fusions_text(parse_fusions("none")) == "none");
  CHECK_THROWS_WITH(parse_fusions("gate_up"), Catch::Contains("gate-up"));
  CHECK_THROWS_AS(parse_fusions(""), Error);
  CHECK_THROWS_AS(parse_fusions("qkv,qkv"), Error);
}
