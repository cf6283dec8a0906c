// Op lists that follow from others are those that are built, number by number.
#include <catch2/catch.hpp>

#include <optional>

#include "lib/error.hpp"
#include "lib/explain.hpp"
#include "models/list_line.hpp"
#include "models/registry.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

bool same(const Workload& a, const Workload& b) {
  if (a.ops().size() != b.ops().size() || a.tensors().size() != b.tensors().size() || a.program().size() != b.program().size() || a.blocks().size() != b.blocks().size()) return false;
  const StreamShape &x = a.stream(), &y = b.stream();
  if (x.sequences != y.sequences || x.queries != y.queries || x.past != y.past || x.vocab != y.vocab) return false;
  for (size_t i = 0; i < a.ops().size(); ++i) {
    const Op &p = a.ops()[i], &q = b.ops()[i];
    if (p.spec.index() != q.spec.index() || p.part != q.part || p.pass != q.pass || a.uses(static_cast<int>(i)) != b.uses(static_cast<int>(i))) return false;
    if (fields_of(p.spec) != fields_of(q.spec) || !(declared_cost(p) == declared_cost(q)) || !(rows_of(p.spec) == rows_of(q.spec))) return false;
    if (p.inputs.size() != q.inputs.size() || p.outputs.size() != q.outputs.size()) return false;
    for (size_t n = 0; n < p.inputs.size(); ++n)
      if (p.inputs[n].tensor != q.inputs[n].tensor || p.inputs[n].layer_offset != q.inputs[n].layer_offset) return false;
    for (size_t n = 0; n < p.outputs.size(); ++n)
      if (p.outputs[n].tensor != q.outputs[n].tensor || p.outputs[n].layer_offset != q.outputs[n].layer_offset) return false;
  }
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const Tensor &p = a.tensors()[i], &q = b.tensors()[i];
    if (p.rows != q.rows || p.cols != q.cols || p.role != q.role || p.scope != q.scope || p.dtype != q.dtype) return false;
  }
  return true;
}

// Lists of this network along lengths and batches; returns how many followed from others.
int follow(const Network& network, Scenario s, std::int64_t first, std::int64_t count) {
  ListLine line;
  WorkloadBuilder memory;
  int followed = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    s.length = k % 29 == 28 ? 2 : k < count - 5 ? first + k : (first + k) * 40;
    s.batch = 1 + k % 3 + (k == count - 1 ? 1000 : 0);
    const Workload* built = nullptr;
    try {
      built = &build_in_place(network, s, memory);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      CHECK_THROWS_AS(line.at(network, 1, s), Error);
      continue;
    }
    CAPTURE(phase_name(s.phase), s.length, s.batch);
    CHECK(same(line.at(network, 1, s), *built));
    followed += line.followed();
  }
  return followed;
}

}  // namespace

TEST_CASE("lists of random networks along lengths and batches", "[list_line]") {
  int followed = 0, routed = 0;
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    const Network network = random_network(seed);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      CAPTURE(seed);
      const int here = follow(network, random_scenario(seed, phase), 1, 90);
      if (phase == Phase::kDecode) CHECK(here == 0);  // one token after the other: nothing to follow
      followed += here;
      routed += network.has_routes() ? here : 0;
    }
  }
  CHECK(followed > static_cast<int>(seeds(4000)));
  CHECK(routed > static_cast<int>(seeds(1000)));
}

TEST_CASE("lists of the presets along lengths and batches", "[list_line]") {
  for (const char* name : {"dense-60m", "mod-60m", "mod-schedule", "early-exit", "local-global", "mod-adapter", "mode-staged", "latent-attention"}) {
    const Network network = builtin_network(name);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill}) {
      Scenario s;
      s.phase = phase;
      s.logits = phase == Phase::kTrain ? LogitsKind::kAll : LogitsKind::kLast;
      CAPTURE(name);
      const int followed = follow(network, s, 16, 160);
      if (std::string(name) == "dense-60m" || std::string(name) == "mod-60m") CHECK(followed > 60);
    }
  }
}

TEST_CASE("another network, or another scenario, is another line", "[list_line]") {
  ListLine line;
  WorkloadBuilder memory;
  const Network one = builtin_network("dense-60m"), two = builtin_network("mod-60m");
  Scenario s;
  for (int k = 0; k < 200; ++k) {
    const bool first = k / 40 % 2 == 0;
    s.length = 64 + k;
    s.dtype = k >= 150 ? DType::kBF16 : DType::kF32;
    CAPTURE(k);
    CHECK(same(line.at(first ? one : two, first ? 1 : 2, s), build_in_place(first ? one : two, s, memory)));
  }
}
