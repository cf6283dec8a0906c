// The measure by which gradients of cancelling terms are compared (held_columns) hides no error: planted mistakes of the usual kinds, a wrong sign,
// a dropped term, rows one position off, fail even at the wide tolerance of bf16. The mistakes are planted in the reference's own results.
#include <catch2/catch.hpp>

#include <functional>

#include "kernels/reference/backend.hpp"
#include "models/builder.hpp"
#include "tests/tiny_models.hpp"
#include "tools/check.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

using Matrices = std::map<TensorInstance, std::vector<float>>;
// Changes operands, by their index among the op's inputs, before the op runs.
using Plant = std::function<void(const BoundOp&, Matrices&)>;

Matrices contents(const ProgramExecution& run, const BoundOp& bound) {
  Matrices all;
  for (const auto* views : {&bound.in, &bound.out})
    for (const OperandView& view : *views) all[view.at] = run.read(view.at);
  return all;
}

void restore(ProgramExecution& run, const Matrices& all) {
  for (const auto& [at, values] : all) run.write(at, values);
}

std::vector<std::vector<float>> outputs(const ProgramExecution& run, const BoundOp& bound) {
  std::vector<std::vector<float>> all;
  for (const OperandView& view : bound.out) all.push_back(run.read(view.at));
  return all;
}

float& at(Matrices& m, const OperandView& view, std::int64_t r, std::int64_t c) { return m.at(view.at).at(static_cast<size_t>(r * view.cols + c)); }

// Columns first .. first + count of each row take those of the next one.
void one_further(Matrices& m, const OperandView& view, std::int64_t first, std::int64_t count) {
  const Matrices before = m;
  for (std::int64_t r = 0; r < view.rows; ++r)
    for (std::int64_t c = first; c < first + count; ++c) at(m, view, r, c) = before.at(view.at).at(static_cast<size_t>((r + 1) % view.rows * view.cols + c));
}

void clear(Matrices& m, const OperandView& view, std::int64_t first, std::int64_t count) {
  for (std::int64_t r = 0; r < view.rows; ++r)
    for (std::int64_t c = first; c < first + count; ++c) at(m, view, r, c) = 0;
}

struct Norm {
  size_t stats;  // index among the inputs; dy follows
  std::int64_t offset, own;
  bool centred;
};

std::vector<std::pair<std::string, Plant>> mistakes(const OpSpec& spec) {
  std::vector<std::pair<std::string, Plant>> all;
  const auto norm = [&](const Norm& n) {
    all.emplace_back("norm: dy one row further", [=](const BoundOp& b, Matrices& m) { one_further(m, b.in[n.stats + 1], n.offset, n.own); });
    // With x at its mean nothing is taken off along it.
    all.emplace_back("norm: the share along x dropped", [=](const BoundOp& b, Matrices& m) {
      for (std::int64_t r = 0; r < b.in[0].rows; ++r)
        for (std::int64_t c = 0; c < b.in[0].cols; ++c) at(m, b.in[0], r, c) = n.centred ? m.at(b.in[n.stats].at)[static_cast<size_t>(r)] : 0;
    });
    all.emplace_back("norm: the last column dropped", [=](const BoundOp& b, Matrices& m) { clear(m, b.in[n.stats + 1], n.offset + n.own - 1, 1); });
  };
  if (const auto* op = std::get_if<RmsNormBackward>(&spec)) norm({op->forward.gains > 0 ? 2u : 1u, op->forward.offset, op->forward.groups * op->forward.width, false});
  if (const auto* op = std::get_if<LayerNormBackward>(&spec)) norm({op->forward.gain ? 2u : 1u, 0, op->forward.width, true});
  if (const auto* op = std::get_if<AttentionBackward>(&spec)) {
    const Attention& a = op->forward;
    const size_t kv = a.apart ? 5 : 0;
    const std::int64_t k_at = a.apart ? 0 : a.heads * a.qk_dim, k = a.kv_heads * a.qk_dim, v = a.kv_heads * a.v_dim;
    all.emplace_back("attention: <do, o> dropped", [](const BoundOp& b, Matrices& m) { clear(m, b.in[2], 0, b.in[2].cols); });
    all.emplace_back("attention: keys one position further", [=](const BoundOp& b, Matrices& m) { one_further(m, b.in[kv], k_at, k); });
    all.emplace_back("attention: values one position further", [=](const BoundOp& b, Matrices& m) { one_further(m, b.in[kv], k_at + k, v); });
    all.emplace_back("attention: queries one position further", [=](const BoundOp& b, Matrices& m) { one_further(m, b.in[0], 0, a.heads * a.qk_dim); });
    all.emplace_back("attention: a head dropped", [=](const BoundOp& b, Matrices& m) { clear(m, b.in[4], (a.heads - 1) * a.v_dim, a.v_dim); });
    all.emplace_back("attention: positions one further", [=](const BoundOp& b, Matrices& m) { one_further(m, b.in[1], 0, 1); });
  }
  const auto products = [&](const std::string& name) {
    all.emplace_back(name + ": rows one further", [](const BoundOp& b, Matrices& m) { one_further(m, b.in[1], 0, b.in[1].cols); });
    all.emplace_back(name + ": an eighth of the columns dropped", [](const BoundOp& b, Matrices& m) { clear(m, b.in[1], 1, b.in[1].cols / 8); });
  };
  if (const auto* op = std::get_if<ScatterAddBackward>(&spec); op && op->forward.gate.kind != GateKind::kNone) {
    products("gate");
    all.emplace_back("gate: g F in place of F", [](const BoundOp& b, Matrices& m) {
      for (std::int64_t j = 0; j < b.in[1].rows; ++j)
        for (std::int64_t c = 0; c < b.in[1].cols; ++c) at(m, b.in[1], j, c) *= m.at(b.in[3].at)[static_cast<size_t>(m.at(b.in[2].at)[static_cast<size_t>(j)])];
    });
  }
  if (std::holds_alternative<ExpertCombineBackward>(spec)) products("experts");
  return all;
}

struct Zoo {
  const char* name;
  Network network;
};

std::vector<Zoo> zoo() {
  const auto tiny = [](auto&& change) {
    Tiny t;
    change(t);
    return t;
  };
  std::vector<Zoo> all;
  all.push_back({"dense", network(tiny([](Tiny&) {}))});
  all.push_back({"layer norm", network(tiny([](Tiny& t) { t.norm = NormKind::kLayer, t.positions = PositionKind::kLearned, t.biases = true; }))});
  all.push_back({"query and key norms", network(tiny([](Tiny&) {}))});
  all.back().network.kinds[0].attention->qk_norm = true;
  all.push_back({"mod", network(tiny([](Tiny& t) { t.every = 2, t.capacity = Fraction{1, 2}; }))});
  all.push_back({"mod, sigmoid gate", network(tiny([](Tiny& t) { t.every = 1, t.capacity = Fraction{1, 2}, t.gate.kind = GateKind::kSigmoid; }))});
  all.push_back({"mod, keys of all tokens", network(tiny([](Tiny& t) { t.every = 2, t.capacity = Fraction{1, 2}; }))});
  for (BlockConfig& kind : all.back().network.kinds)
    if (kind.route) kind.route->kv = KvPolicy::kAll;
  all.push_back({"experts", network(tiny([](Tiny&) {}))});
  MoeConfig& e = all.back().network.kinds[0].mlp->moe.emplace();
  e.experts = 4, e.picks = 2, e.width = 20, e.shared = 1, e.shared_width = 8, e.shared_gate = true;
  all.back().network.kinds[0].mlp->width = 0;
  return all;
}

}  // namespace

TEST_CASE("planted mistakes in cancelling gradients exceed the tolerance of bf16", "[check]") {
  std::map<std::string, int> planted;
  for (const Zoo& each : zoo()) {
    const Workload list = build(each.network, scenario(Phase::kTrain, 2, 9));
    const auto run = reference::ReferenceBackend().bind_reference(list, {});
    run->begin_pass();
    for (int i = 0; i < run->instance_count(); ++i) {
      const BoundOp& bound = run->bound(i);
      const auto list_of = mistakes(*bound.spec);
      if (list_of.empty()) {
        run->run_instance(i);
        continue;
      }
      CAPTURE(each.name, list.path(list.instances()[static_cast<size_t>(i)]));
      const Matrices before = contents(*run, bound);
      const auto held = held_columns(*run, bound);
      run->run_instance(i);
      const auto want = outputs(*run, bound);
      const Matrices after = contents(*run, bound);
      const auto worst = [&](const std::vector<std::vector<float>>& got) {
        double most = 0;
        for (size_t o = 0; o < want.size(); ++o) most = std::max(most, relative_difference(got[o], want[o], bound.out[o].cols, held[o]));
        return most;
      };
      CHECK(worst(want) == 0);
      for (const auto& [name, plant] : list_of) {
        Matrices changed = before;
        plant(bound, changed);
        restore(*run, changed);
        run->run_instance(i);
        CAPTURE(name);
        CHECK(worst(outputs(*run, bound)) > check_tolerance(DType::kBF16));
        ++planted[name];
      }
      // A wrong sign in any part of any output that is held on its own.
      for (size_t o = 0; o < want.size(); ++o) {
        for (const HeldColumns& part : held[o]) {
          if (part.count == 0 || part.scale == 0) continue;
          auto got = want;
          for (size_t k = 0; k < got[o].size(); ++k) {
            const auto c = static_cast<std::int64_t>(k) % bound.out[o].cols;
            const float had = before.at(bound.out[o].at)[k];  // where the op adds, only what it added has the wrong sign
            const bool adds = std::abs(had) > 0 && std::holds_alternative<RmsNormBackward>(*bound.spec) && std::get<RmsNormBackward>(*bound.spec).accumulate;
            if (c >= part.first && c < part.first + part.count) got[o][k] = adds ? 2 * had - got[o][k] : -got[o][k];
          }
          CAPTURE(o, part.first);
          CHECK(worst(got) > check_tolerance(DType::kBF16));
          ++planted["wrong sign"];
        }
      }
      restore(*run, after);
    }
  }
  CHECK(planted.size() == 15);  // 3 of norms, 6 of attention, 3 of gates, 2 of experts, the sign
  for (const auto& [name, count] : planted) {
    CAPTURE(name);
    CHECK(count >= 2);
  }
}
