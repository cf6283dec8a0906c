// Networks along one size, and decode steps along contexts: what follows from others is what counting gives.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/overrides.hpp"
#include "models/registry.hpp"
#include "models/totals_breaks.hpp"
#include "models/totals_kinds.hpp"
#include "models/totals_length.hpp"
#include "models/totals_line.hpp"
#include "models/totals_memo.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

// The network with one key of its INI form changed; none where that contradicts itself.
std::optional<Network> varied(const Network& base, const std::string& key, std::int64_t value) {
  Network out;
  try {
    const NetworkOverrides overrides({key});
    const std::vector<IniValue> values = {IniValue(std::to_string(value), Where{"", 0, key})};
    overrides.apply(base, values, out);
    return out;
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return std::nullopt;
  }
}

// What counting gives, and with `blocks` what its expectation is made of; none where the network or the scenario is refused.
std::optional<ListTotals> counted_unless_refused(const Network& network, const Scenario& scenario, bool expectations, std::vector<BlockExpectation>* blocks = nullptr) {
  try {
    return expectations && blocks ? count_totals(network, scenario, *blocks) : count_totals(network, scenario, expectations);
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return std::nullopt;
  }
}

void same(const ListTotals& a, const ListTotals& b, bool expectations) {
  CHECK(a.total == b.total);
  CHECK(a.flops_by_part == b.flops_by_part);
  CHECK(a.flops_by_pass == b.flops_by_pass);
  if (expectations) CHECK(a.expected == b.expected);
}

}  // namespace

TEST_CASE("networks along one size are those that counting gives", "[totals_lines]") {
  // Of every size a network has; 12 steps of the first three, 40 of those that windows, chunks, rows and roundings break.
  struct Key {
    const char* name;
    std::int64_t from, step, steps;
  };
  int followed = 0, random = 0;
  std::map<std::string, int> by_key;
  std::uint64_t id = 0;
  NetworkLine line;
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    const Network base = random_network(seed);
    const auto stride = static_cast<std::int64_t>(1 + seed % 7);
    const Key keys[] = {{"width", base.width, 24, 12},      {"mlp", 16, stride, 12},          {"vocab", 16, stride, 12},           {"window", 1, 1 + stride / 4, 40}, {"chunk", 1, 1 + stride / 4, 40},
                        {"heads", 12, 12, 12},              {"kv_heads", 1, 1, 12},           {"head_dim", 2, 2, 12},              {"experts", 3, 1, 40},             {"picks", 1, 1, 12},
                        {"expert_width", 1, stride, 12},    {"shared_experts", 0, 1, 12},     {"shared_width", 1, stride, 12},     {"noops", 0, 1, 12},               {"expert_capacity", 1, 1, 12},
                        {"kv_rank", 1, stride, 12},         {"q_rank", 0, stride, 12},        {"nope_dim", 1, stride, 12},         {"v_dim", 1, stride, 12},          {"router_hidden", 1, stride, 12},
                        {"predictor", 1, stride, 12},       {"adapter", 0, stride, 12},       {"rank", 1, 1, 12},                  {"max_length", 40, stride, 12},    {"rope_dim", 0, 2, 12},
                        {"mtp", 0, 1, 12}};
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      if (seed % 3 == 1) scenario.length += 17, scenario.context += 17;
      const bool expectations = seed % 2 == 0;
      for (const Key& key : keys) {
        ++id;
        for (std::int64_t at = 0; at < key.steps; ++at) {
          const std::optional<Network> network = varied(base, key.name, key.from + at * key.step);
          if (!network) continue;
          std::vector<BlockExpectation> blocks;
          const std::optional<ListTotals> counted = counted_unless_refused(*network, scenario, expectations, &blocks);
          if (!counted) continue;
          CAPTURE(seed, phase_name(phase), key.name, at, expectations);
          if (const ListTotals* known = line.totals(id, at, *network, scenario, expectations)) {
            same(*known, *counted, expectations);
            CHECK(known->affine_in_batch == counted->affine_in_batch);
            ++followed;
            ++by_key[key.name];
            random += expectations && !counted->affine_in_batch;
          } else {
            line.counted(*counted, blocks);
          }
        }
      }
    }
  }
  CHECK(followed > static_cast<int>(seeds(10'000)));
  CHECK(random > static_cast<int>(seeds(2000)));
  for (const char* key : {"width", "mlp", "vocab", "window", "chunk", "heads", "head_dim", "experts", "expert_width", "shared_experts", "kv_rank", "q_rank", "nope_dim", "v_dim", "router_hidden", "predictor", "adapter", "rank"}) {
    CAPTURE(key);
    CHECK(by_key[key] > static_cast<int>(seeds(40)));
  }
}

TEST_CASE("a line that bends is counted to its end", "[totals_lines]") {
  // Layers of which every second is routed: no polynomial in their number.
  const Network base = builtin_network("mod-60m");
  Scenario s;
  s.length = 64;
  NetworkLine line;
  for (std::int64_t at = 0; at < 30; ++at) {
    const std::optional<Network> network = varied(base, "layers", 3 + at);
    REQUIRE(network);
    CHECK(line.totals(1, at, *network, s, false) == nullptr);
    line.counted(count_totals(*network, s, false), {});
  }
  // Another line, another step, another scenario: nothing is carried over.
  const auto known = [&](std::uint64_t id, std::int64_t at, const Scenario& scenario, bool expectations) {
    const std::optional<Network> network = varied(base, "vocab", 100 + at);
    REQUIRE(network);
    NetworkLine copy = line;
    const ListTotals* totals = copy.totals(id, at, *network, scenario, expectations);
    if (totals) same(*totals, count_totals(*network, scenario, expectations), expectations);
    return totals != nullptr;
  };
  for (std::int64_t at = 0; at < 5; ++at) {
    CHECK(line.totals(2, at, *varied(base, "vocab", 100 + at), s, false) == nullptr);
    line.counted(count_totals(*varied(base, "vocab", 100 + at), s), {});
  }
  CHECK(known(2, 5, s, false));
  CHECK(known(2, 900, s, false));
  CHECK(!known(3, 5, s, false));
  CHECK(!known(2, 5, s, true));
  Scenario other = s;
  ++other.length;
  CHECK(!known(2, 5, other, false));
}

TEST_CASE("a window is followed from one end of what it sees to the next", "[totals_lines]") {
  // Prefill of 24 tokens behind 10: sides change where the window reaches the past, the new tokens, and both.
  Network base = builtin_network("dense-60m");
  Scenario s;
  s.length = 24;
  s.past = 10;
  NetworkLine line;
  int counted = 0;
  for (std::int64_t at = 0; at < 60; ++at) {
    const Network network = *varied(base, "window", 1 + at);
    const ListTotals totals = count_totals(network, s);
    const ListTotals* known = line.totals(1, at, network, s, false);
    CAPTURE(at);
    if (known) same(*known, totals, false);
    else ++counted, line.counted(totals, {});
  }
  // Ends at 10 (twice), 24 and 34: five counted in each of the five stretches, but the one-window stretch between the first two.
  CHECK(counted <= 5 * 4 + 1);
  CHECK(counted >= 15);
}

TEST_CASE("decode steps along contexts, through windows and chunks", "[totals_lines]") {
  int steps = 0;
  for (const char* name : {"mod-60m", "local-global", "mixtral-8x7b", "deepseek-v3", "mode-integrated", "mode-staged", "mod-adapter", "early-exit", "latent-attention", "llama-3-8b", "mod-mlp-only"}) {
    Network network = builtin_network(name);
    for (const bool chunked : {false, true}) {
      if (chunked)
        for (BlockConfig& kind : network.kinds)
          if (kind.attention && !kind.attention->mla) kind.attention->window = 0, kind.attention->chunk = 17;
      for (const bool expectations : {false, true})
        for (const MlaStrategy mla : {MlaStrategy::kNaive, MlaStrategy::kAbsorbed}) {
          if (mla == MlaStrategy::kAbsorbed && !(network.kinds[0].attention && network.kinds[0].attention->mla)) continue;
          TotalsMemo memo;
          Scenario s;
          s.phase = Phase::kDecode;
          s.mla = mla;
          for (std::int64_t k = 1; k < 90; ++k) {
            s.context = k % 20 == 19 ? 1 : k < 60 ? k : k * k;
            for (const std::int64_t batch : {2, 5, 9}) {
              if (batch > 2 && k % 3 != 0) continue;
              s.batch = batch;
              CAPTURE(name, chunked, expectations, s.context, batch);
              same(memo.totals(network, 1, s, expectations), count_totals(network, s, expectations), expectations);
              ++steps;
            }
          }
        }
    }
  }
  CHECK(steps > 5000);
}

TEST_CASE("prefill and training along lengths, through windows and chunks and with experts", "[totals_lines]") {
  int steps = 0;
  for (const char* name : {"llama-3-8b", "local-global", "mixtral-8x7b", "deepseek-v3", "mode-staged"}) {
    Network network = builtin_network(name);
    if (network.layers.size() > 8) network.layers.resize(8);
    for (const int mask : {0, 1, 2}) {
      for (BlockConfig& kind : network.kinds)
        if (mask > 0 && kind.attention && !kind.attention->mla) kind.attention->window = mask == 1 ? 40 : 0, kind.attention->chunk = mask == 2 ? 30 : 0;
      for (const Phase phase : {Phase::kTrain, Phase::kPrefill})
        for (const bool expectations : {false, true}) {
          TotalsMemo memo;
          Scenario s;
          s.phase = phase;
          s.logits = phase == Phase::kTrain ? LogitsKind::kAll : LogitsKind::kLast;
          s.past = phase == Phase::kPrefill && mask == 1 ? 11 : 0;
          for (std::int64_t k = 1; k < 130; ++k) {
            s.length = k % 30 == 29 ? 3 : k < 100 ? k : 40 * (k - 98);
            s.batch = 1 + k % 2;
            CAPTURE(name, mask, phase_name(phase), expectations, s.length);
            same(memo.totals(network, 1, s, expectations), count_totals(network, s, expectations), expectations);
            ++steps;
          }
        }
    }
  }
  CHECK(steps > 5000);
}

TEST_CASE("networks of the same kinds of layers, in other numbers and with other shares", "[totals_lines]") {
  int followed = 0, random = 0, trained = 0, slots = 0;
  std::uint64_t family = 0;
  KindMemo memo;
  for (std::uint64_t seed = 0; seed < seeds(400); ++seed) {
    const Network base = random_network(seed);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      if (seed % 5 == 2) scenario.length += 20;
      const bool shares = seed % 4 == 1 && scenario.routing == RoutingRule::kThreshold;
      ++family;
      for (std::int64_t at = 0; at < 20; ++at) {
        std::mt19937_64 random_numbers(seed * 100 + static_cast<std::uint64_t>(at));
        const auto draw = [&](std::int64_t most) { return static_cast<std::int64_t>(random_numbers() % static_cast<std::uint64_t>(most + 1)); };
        Network network = base;
        if (!base.weights_of.empty() && at % 2 == 1) continue;
        if (base.weights_of.empty()) {
          network.layers.resize(static_cast<std::size_t>(1 + draw(11)));
          for (int& kind : network.layers) kind = static_cast<int>(draw(static_cast<std::int64_t>(base.kinds.size()) - 1));
          if (network.mtp > 0) network.layers.back() = 0;
        }
        for (BlockConfig& kind : network.kinds) {
          if (!kind.route) continue;
          kind.route->capacity.reset(), kind.route->slots.reset(), kind.route->min_slots = 0;
          if (draw(3) == 0) kind.route->slots = draw(9);
          else kind.route->capacity = make_fraction(draw(13), 13);
        }
        if (shares) scenario.participation = make_fraction(draw(11), 11);
        const bool expectations = seed % 3 != 0;
        const std::optional<ListTotals> counted = counted_unless_refused(network, scenario, expectations);
        if (!counted) continue;
        CAPTURE(seed, phase_name(phase), at, expectations);
        const ListTotals* known = memo.totals(family, network, scenario, expectations);
        if (!known) continue;
        same(*known, *counted, expectations);
        CHECK(known->affine_in_batch == counted->affine_in_batch);
        ++followed;
        random += expectations && !counted->affine_in_batch;
        trained += phase == Phase::kTrain;
        slots += phase == Phase::kPrefill && scenario.rule() == RoutingRule::kTopK && network.has_routes();
      }
    }
  }
  // Under the sanitizers an eighth of the seeds run; the requests before a family is followed weigh more there.
  CHECK(followed > static_cast<int>(seeds(5000)));
  CHECK(random > static_cast<int>(seeds(2000)));
  CHECK(trained > static_cast<int>(seeds(700)));
  CHECK(slots > static_cast<int>(seeds(350)));
}

TEST_CASE("a family is left where its networks differ in more", "[totals_lines]") {
  const Network base = builtin_network("mod-60m");
  Scenario s;
  s.length = 64;
  KindMemo memo;
  const auto ask = [&](const Network& network, std::uint64_t family) {
    const ListTotals* known = memo.totals(family, network, s, false);
    if (known) same(*known, count_totals(network, s), false);
    return known != nullptr;
  };
  Network wide = base;
  wide.width = 1152;
  for (BlockConfig& kind : wide.kinds) kind.attention->heads = kind.attention->kv_heads = 18;
  for (int i = 0; i < 10; ++i) CHECK(ask(base, 1) == (i >= 6));
  for (int i = 0; i < 10; ++i) CHECK(ask(wide, 2) == (i >= 6));
  s.length = 65;
  CHECK(!ask(wide, 2));
  Network tied = base;
  tied.weights_of = std::vector<int>(tied.layers.size(), 0);
  for (std::size_t l = 0; l < tied.layers.size(); ++l) tied.weights_of[l] = tied.layers[l];
  for (int i = 0; i < 10; ++i) CHECK(!ask(tied, 3));
}

TEST_CASE("prefills by threshold along lengths", "[totals_lines]") {
  int steps = 0, random = 0, followed = 0;
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    const Network network = random_network(seed);
    Scenario s = random_scenario(seed, Phase::kPrefill);
    s.routing = RoutingRule::kThreshold;
    const bool expectations = seed % 3 != 0;
    TotalsMemo memo;
    LengthLine line;
    if (!counted_unless_refused(network, s, expectations)) continue;
    for (std::int64_t k = 1; k < 60; ++k) {
      s.length = k % 17 == 16 ? 2 : k < 40 ? k : k * k * 7;
      for (const std::int64_t batch : {2, 5, 9}) {
        if (batch > 2 && k % 3 != 0) continue;
        s.batch = batch;
        CAPTURE(seed, expectations, s.length, batch);
        const ListTotals counted = count_totals(network, s, expectations);
        same(memo.totals(network, 1, s, expectations), counted, expectations);
        ++steps;
        random += expectations && !counted.affine_in_batch;
        if (batch != 2 || !random_along_lengths(network, s, expectations)) continue;
        std::vector<std::int64_t> breaks;
        length_breaks(network, s, breaks);
        followed += line.at(network, s, expectations, length_period(network, s, 64), breaks) != nullptr;
      }
    }
  }
  CHECK(steps > static_cast<int>(seeds(20'000)));
  CHECK(random > static_cast<int>(seeds(5000)));
  CHECK(followed > static_cast<int>(seeds(800)));
}

TEST_CASE("a bypass adapter that no row is left for reads no weights, along lengths too", "[totals_lines]") {
  // Capacity 1, and one that rounds up to every token of short sequences: 0.98 of 12 is 11.76.
  int whole = 0;
  for (const Fraction& capacity : {Fraction{1, 1}, make_fraction(49, 50), make_fraction(3, 4)}) {
    Network network = builtin_network("mod-adapter");
    for (BlockConfig& kind : network.kinds) {
      if (!kind.route) continue;
      kind.route->slots.reset();
      kind.route->capacity = capacity;
      kind.route->rounding = Rounding::kCeil;
      kind.route->kv = KvPolicy::kSelected;
    }
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill}) {
      TotalsMemo memo;
      Scenario s;
      s.phase = phase;
      s.logits = phase == Phase::kTrain ? LogitsKind::kAll : LogitsKind::kLast;
      for (s.length = 1; s.length < 90; ++s.length) {
        CAPTURE(capacity.str(), phase_name(phase), s.length);
        same(memo.totals(network, 1, s, true), count_totals(network, s, true), true);
        whole += slots_of(*network.kinds.back().route, s.length) == s.length;
      }
    }
  }
  CHECK(whole > 200);
}

TEST_CASE("prefills and training of random networks along lengths, whatever routes them", "[totals_lines]") {
  // Capacities with and without least slots, absolute slots, keys of all tokens, windows over selected rows, caches: every length is what counting gives.
  int steps = 0, random = 0;
  for (std::uint64_t seed = 0; seed < seeds(400); ++seed) {
    Network network = random_network(seed);
    if (seed % 4 == 3)
      for (BlockConfig& kind : network.kinds)  // no experts: these are counted
        if (kind.mlp && kind.mlp->moe) kind.mlp->moe.reset(), kind.mlp->width = 7;
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill}) {
      Scenario s = random_scenario(seed, phase);
      const bool expectations = seed % 3 != 0;
      TotalsMemo memo;
      for (std::int64_t k = 1; k < 70; ++k) {
        s.length = k % 23 == 22 ? 2 : k < 60 ? k : k * k;
        for (const std::int64_t batch : {1, 3}) {
          if (batch > 1 && k % 4 != 0) continue;
          s.batch = batch;
          const std::optional<ListTotals> counted = counted_unless_refused(network, s, expectations);
          if (!counted) continue;
          CAPTURE(seed, phase_name(phase), expectations, s.length, batch);
          same(memo.totals(network, 1, s, expectations), *counted, expectations);
          ++steps;
          random += expectations && !counted->affine_in_batch;
        }
      }
    }
  }
  CHECK(steps > static_cast<int>(seeds(40'000)));
  CHECK(random > static_cast<int>(seeds(8000)));
}

TEST_CASE("schedules of capacities and early exits along lengths", "[totals_lines]") {
  for (const char* name : {"mod-schedule", "early-exit", "local-global", "mod-adapter", "mode-staged"}) {
    Network network = builtin_network(name);
    for (const bool fine : {false, true}) {
      // Shares whose common denominator is far above any period: 0.131, 0.262 ...
      int n = 0;
      for (BlockConfig& kind : network.kinds)
        if (fine && kind.route && kind.route->capacity) kind.route->capacity = make_fraction(131 * ++n, 1000);
      for (const Phase phase : {Phase::kTrain, Phase::kPrefill})
        for (const std::int64_t past : {0, 11}) {
          if (past > 0 && phase == Phase::kTrain) continue;
          TotalsMemo memo;
          Scenario s;
          s.phase = phase;
          s.past = past;
          s.logits = phase == Phase::kTrain ? LogitsKind::kAll : LogitsKind::kLast;
          for (std::int64_t k = 1; k < 400; ++k) {
            s.length = k < 300 ? k : k * (k - 290);
            s.batch = 1 + k % 3;
            CAPTURE(name, fine, phase_name(phase), past, s.length);
            same(memo.totals(network, 1, s, true), count_totals(network, s, true), true);
          }
        }
    }
  }
}
