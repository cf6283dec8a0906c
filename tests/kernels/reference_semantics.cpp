// What a routed block means, on the reference: exact slot counts and ties, bypassed rows, causality, batch mates, gaps in
// positions, and decode token by token against a threshold prefill.
#include <catch2/catch.hpp>

#include <random>

#include "kernels/reference/attention.hpp"
#include "kernels/reference/backend.hpp"
#include "kernels/reference/route.hpp"
#include "kernels/reference/sequence.hpp"
#include "tests/tiny_models.hpp"

using namespace fathom;
using namespace fathom::testing;
using namespace fathom::reference;

namespace {

TensorInstance find(const Workload& w, const std::string& name, int copy = 0) {
  for (size_t i = 0; i < w.tensors().size(); ++i)
    if (w.tensors()[i].name == name) return {static_cast<TensorId>(i), copy, 0};
  throw std::runtime_error("no tensor " + name);
}

std::unique_ptr<ReferenceExecution> bind(const Workload& w) { return ReferenceBackend(Precision::kWide).bind_reference(w, {}); }

std::vector<double> logits_of(ReferenceExecution& exec, const std::vector<double>& tokens) {
  exec.write_wide(find(exec.workload(), "tokens"), tokens);
  exec.run();
  return exec.read_wide(find(exec.workload(), "head/logits", exec.workload().program().back().layer));
}

std::vector<double> random_tokens(std::int64_t count, std::int64_t vocab, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<double> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<double>(engine() % static_cast<unsigned>(vocab)));
  return tokens;
}

Tiny mod() {
  Tiny t;
  t.every = 2;
  t.capacity = Fraction{1, 2};
  return t;
}

}  // namespace

TEST_CASE("T1: exactly C are selected, whatever ties there are", "[reference]") {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  for (const int kind : {0, 1, 2}) {  // random, all equal, rounded to bf16
    std::vector<double> scores(2048);
    for (double& s : scores) s = kind == 1 ? 0.0 : kind == 2 ? static_cast<double>(static_cast<float>(bf16(normal(engine)))) : static_cast<double>(normal(engine));
    std::vector<std::int32_t> chosen;
    REQUIRE(select_top(scores.data(), 2048, 256, chosen) == -1);
    CHECK(chosen.size() == 256);
    CHECK(std::is_sorted(chosen.begin(), chosen.end()));
    CHECK(std::adjacent_find(chosen.begin(), chosen.end()) == chosen.end());
    if (kind == 1) CHECK(chosen.back() == 255);
    // Nothing left out comes before anything taken in the order (-score, position).
    std::vector<bool> in(2048, false);
    for (const std::int32_t i : chosen) in[static_cast<size_t>(i)] = true;
    for (size_t i = 0; i < 2048; ++i)
      for (const std::int32_t j : chosen)
        if (!in[i]) REQUIRE((scores[i] < scores[static_cast<size_t>(j)] || (scores[i] == scores[static_cast<size_t>(j)] && static_cast<std::int32_t>(i) > j)));
  }
}

TEST_CASE("T7: later scores evict an early token from the top two, never from a threshold", "[reference]") {
  std::vector<double> scores = {.9, .1, .2, .3, .1, .2, .3, .1};
  std::vector<std::int32_t> chosen;
  select_top(scores.data(), 8, 2, chosen);
  CHECK(chosen == std::vector<std::int32_t>{0, 3});
  scores[6] = 1.0, scores[7] = 1.1;
  select_top(scores.data(), 8, 2, chosen);
  CHECK(chosen == std::vector<std::int32_t>{6, 7});
  select_above(scores.data(), 8, 0.5, chosen);
  CHECK(chosen == std::vector<std::int32_t>{0, 6, 7});
  const std::vector<double> edge = {0.0, -0.0, 1e-300, -1.0};
  select_above(edge.data(), 4, 0.0, chosen);
  CHECK(chosen == std::vector<std::int32_t>{2});  // strictly above
  // The published example (from one: positions 2 and 5), and minus zero equals plus zero.
  const std::vector<double> example = {.1, .9, .2, .3, .8, .4, .05, .6};
  select_top(example.data(), 8, 2, chosen);
  CHECK(chosen == std::vector<std::int32_t>{1, 4});
  const std::vector<double> zeros = {-0.0, 0.0, -0.0};
  select_top(zeros.data(), 3, 1, chosen);
  CHECK(chosen == std::vector<std::int32_t>{0});
  const std::vector<double> nan = {1.0, std::nan("")};
  CHECK(select_top(nan.data(), 2, 1, chosen) == 1);
}

TEST_CASE("T3, T5, T9: rows that bypass a block are bit-identical; no slots and a zero update are the identity", "[reference]") {
  Tiny t = mod();
  t.every = 1, t.layers = 1;
  SECTION("half of the rows") {
    const Workload w = build(network(t), scenario(Phase::kPrefill, 2, 8));
    const auto exec = bind(w);
    exec->begin_pass();
    std::vector<double> x;
    for (int i = 0; i < exec->instance_count(); ++i) {
      const OpSpec& spec = *exec->bound(i).spec;
      if (std::holds_alternative<ScatterAddRows>(spec)) x = exec->read_wide(exec->bound(i).in[0].at);
      exec->run_instance(i);
      if (!std::holds_alternative<ScatterAddRows>(spec)) continue;
      const std::vector<double> y = exec->read_wide(exec->bound(i).out[0].at);
      const std::vector<double> chosen = exec->read_wide(exec->bound(i).in[2].at);
      for (size_t row = 0; row < 16; ++row) {
        const bool in = std::find(chosen.begin(), chosen.end(), static_cast<double>(row)) != chosen.end();
        bool same = true;
        for (size_t c = 0; c < 24; ++c) same = same && x[row * 24 + c] == y[row * 24 + c];
        CHECK(same == !in);
      }
    }
  }
  SECTION("no slots") {
    t.capacity = Fraction{0, 1};
    const Workload w = build(network(t), scenario(Phase::kPrefill, 2, 8));
    const auto exec = bind(w);
    exec->run();
    u128 router = 0, block = 0;
    for (int i = 0; i < exec->instance_count(); ++i) {
      const Op& op = w.ops()[static_cast<size_t>(exec->bound(i).op)];
      if (op.part == Part::kRouter) router += exec->executed_flops(i).value();
      if (op.part == Part::kProjection || op.part == Part::kCore || op.part == Part::kFfn) block += exec->executed_flops(i).value();
    }
    CHECK(to_string(router) == to_string(product(2, 16, 24)));
    CHECK(to_string(block) == "0");
  }
  SECTION("zero update") {
    const Workload w = build(network(t), scenario(Phase::kPrefill, 2, 8));
    const auto exec = bind(w);
    for (const char* name : {"mod/attn/out/weight", "mod/mlp/down/weight"}) {
      const TensorInstance at = find(w, name);
      exec->write_wide(at, std::vector<double>(exec->read_wide(at).size(), 0.0));
    }
    for (int i = 0; i < exec->instance_count(); ++i) {
      std::vector<double> x;
      const bool scatter = std::holds_alternative<ScatterAddRows>(*exec->bound(i).spec);
      if (scatter) x = exec->read_wide(exec->bound(i).in[0].at);
      exec->run_instance(i);
      if (scatter) CHECK(exec->read_wide(exec->bound(i).out[0].at) == x);
    }
  }
}

TEST_CASE("T7, T15: a suffix changes top-k prefixes but not threshold ones; batch mates change nothing", "[reference]") {
  for (const RoutingRule rule : {RoutingRule::kTopK, RoutingRule::kThreshold}) {
    CAPTURE(routing_name(rule));
    Scenario s = scenario(Phase::kPrefill, 1, 12);
    s.routing = rule;
    const Network net = network(mod());
    const Workload one = build(net, s);
    const auto exec = bind(one);
    const std::vector<double> tokens = random_tokens(12, net.vocab, 1);
    const std::vector<double> before = logits_of(*exec, tokens);
    bool moved = false;
    for (unsigned seed = 2; seed < 8; ++seed) {  // six other suffixes of four tokens
      std::vector<double> changed = tokens;
      const std::vector<double> suffix = random_tokens(4, net.vocab, seed);
      std::copy(suffix.begin(), suffix.end(), changed.begin() + 8);
      const std::vector<double> after = logits_of(*exec, changed);
      moved = moved || !std::equal(before.begin(), before.begin() + 8 * net.vocab, after.begin());
    }
    CHECK(moved == (rule == RoutingRule::kTopK));

    s.batch = 7;
    const Workload seven = build(net, s);
    const auto batch = bind(seven);
    std::vector<double> all = random_tokens(7 * 12, net.vocab, 9);
    std::copy(tokens.begin(), tokens.end(), all.begin() + 3 * 12);
    const std::vector<double> together = logits_of(*batch, all);
    CHECK(std::equal(before.begin(), before.end(), together.begin() + 3 * 12 * net.vocab));
  }
}

TEST_CASE("T8: gathered rows keep their distance: {2, 5} attend as rows three apart", "[reference]") {
  // One head of two elements; the score of rotated keys depends on the distance alone.
  const auto attend_at = [](std::int32_t first, std::int32_t second) {
    std::vector<double> qkv = {1.0, 0.5, 0.3, -0.7, 1.0, 0.0, 0.2, 0.9, -0.4, 0.6, 0.0, 1.0}, o(4);
    const std::int32_t positions[2] = {first, second};
    rope(RopeShape{2, 2, 2, 10000.0, false}, positions, 2, Matrix<double>{qkv.data(), 2, 6});
    AttentionOperands<double> a{{qkv.data(), 2, 6}, {o.data(), 2, 2}, {}, positions, {}, nullptr, {}};
    attention(AttentionShape{1, 1, 2, 2, {}, false}, {2}, a);
    return o;
  };
  CHECK(attend_at(2, 5)[2] == Approx(attend_at(0, 3)[2]).epsilon(1e-12));
  CHECK(std::abs(attend_at(2, 5)[2] - attend_at(0, 1)[2]) > 1e-3);
}

TEST_CASE("T19, T21: a row's gate ignores other rows, and blocks have routers of their own", "[reference]") {
  for (const GateKind kind : {GateKind::kRaw, GateKind::kSigmoid}) {
    std::vector<double> x(6, 0.0), f = {1, 1, 1, 1}, scores = {0.3, 2.0, -1.0}, y(6);
    const std::int32_t rows[2] = {0, 2};
    scatter_add_rows(Gate{kind, 1, 0}, false, 2, Matrix<double>{x.data(), 3, 2}, Matrix<double>{f.data(), 2, 2}, rows, Matrix<double>{scores.data(), 3, 1}, Matrix<double>{y.data(), 3, 2});
    const double first = y[0];
    scores[2] = 5.0;
    scatter_add_rows(Gate{kind, 1, 0}, false, 2, Matrix<double>{x.data(), 3, 2}, Matrix<double>{f.data(), 2, 2}, rows, Matrix<double>{scores.data(), 3, 1}, Matrix<double>{y.data(), 3, 2});
    CHECK(y[0] == first);
    CHECK(first == Approx(kind == GateKind::kRaw ? 0.3 : 1 / (1 + std::exp(-0.3))));
  }
  Tiny t = mod();
  t.every = 1;
  const Workload w = build(network(t), scenario(Phase::kPrefill, 1, 8));
  const auto exec = bind(w);
  CHECK(exec->read_wide(find(w, "mod/route/score/weight", 0)) != exec->read_wide(find(w, "mod/route/score/weight", 1)));
}

TEST_CASE("T13, T16: decode token by token equals a threshold prefill, and every cache holds the tokens that took its block", "[reference]") {
  for (const std::int64_t window : {0, 3}) {
    Tiny t = mod();
    if (window > 0) t.every = 0, t.window = window;  // a window over a ragged cache is refused
    const Network net = network(t);
    constexpr std::int64_t kSequences = 3, kLength = 9;
    Scenario s = scenario(Phase::kPrefill, kSequences, kLength);
    s.routing = RoutingRule::kThreshold;
    const Workload prefill = build(net, s);
    const auto whole = bind(prefill);
    const std::vector<double> tokens = random_tokens(kSequences * kLength, net.vocab, 4);
    const std::vector<double> want = logits_of(*whole, tokens);

    const Workload decode = build(net, scenario(Phase::kDecode, kSequences, kLength));
    const auto step = bind(decode);
    step->set_past(0);
    step->keep_cache(true);
    double worst = 0;
    for (std::int64_t at = 0; at < kLength; ++at) {
      step->set_positions(at);
      std::vector<double> now;
      for (std::int64_t b = 0; b < kSequences; ++b) now.push_back(tokens[static_cast<size_t>(b * kLength + at)]);
      const std::vector<double> got = logits_of(*step, now);
      for (std::int64_t b = 0; b < kSequences; ++b)
        for (std::int64_t v = 0; v < net.vocab; ++v)
          worst = std::max(worst, std::abs(got[static_cast<size_t>(b * net.vocab + v)] - want[static_cast<size_t>((b * kLength + at) * net.vocab + v)]));
    }
    CHECK(worst < 1e-12);
    REQUIRE(step->kv_lists().size() == whole->kv_lists().size());
    std::int64_t held = 0;
    for (size_t list = 0; list < step->kv_lists().size(); ++list)
      for (std::int64_t b = 0; b < kSequences; ++b) {
        CHECK(step->kv_lists()[list].counts.as<std::int32_t>()[b] == whole->kv_lists()[list].counts.as<std::int32_t>()[b]);
        held += step->kv_lists()[list].counts.as<std::int32_t>()[b];
      }
    const std::int64_t most = static_cast<std::int64_t>(step->kv_lists().size()) * kSequences * kLength;
    CHECK((window > 0 ? held == most : held > 2 * kSequences * kLength && held < most));
  }
}
