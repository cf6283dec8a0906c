// Networks along one size, and decode steps along contexts: what follows from others is what counting gives.
#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <random>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/overrides.hpp"
#include "models/registry.hpp"
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

void same(const ListTotals& a, const ListTotals& b, bool expectations) {
  CHECK(a.total == b.total);
  CHECK(a.flops_by_part == b.flops_by_part);
  CHECK(a.flops_by_pass == b.flops_by_pass);
  if (expectations) CHECK(a.expected == b.expected);
}

}  // namespace

TEST_CASE("networks along one size are those that counting gives", "[totals_lines]") {
  int followed = 0, random = 0;
  std::uint64_t id = 0;
  NetworkLine line;
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    const Network base = random_network(seed);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      const Scenario scenario = random_scenario(seed, phase);
      const bool expectations = seed % 2 == 0;
      for (const char* key : {"width", "mlp", "vocab"}) {
        ++id;
        const std::int64_t from = std::string(key) == "width" ? base.width : 16, step = std::string(key) == "width" ? 24 : static_cast<std::int64_t>(1 + seed % 7);
        for (std::int64_t at = 0; at < 12; ++at) {
          const std::optional<Network> network = varied(base, key, from + at * step);
          if (!network) continue;
          std::optional<ListTotals> counted;
          std::vector<BlockExpectation> blocks;
          try {
            blocks.clear();
            counted = expectations ? count_totals(*network, scenario, blocks) : count_totals(*network, scenario);
          } catch (const Error& error) {
            REQUIRE(error.kind() == ErrorKind::kInput);
            continue;
          }
          CAPTURE(seed, phase_name(phase), key, at, expectations);
          if (const ListTotals* known = line.totals(id, at, scenario, expectations)) {
            same(*known, *counted, expectations);
            ++followed;
            random += expectations && !counted->affine_in_batch;
          } else {
            line.counted(id, at, scenario, expectations, *counted, blocks);
          }
        }
      }
    }
  }
  CHECK(followed > static_cast<int>(seeds(1500)));
  CHECK(random > static_cast<int>(seeds(100)));
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
    CHECK(line.totals(1, at, s, false) == nullptr);
    line.counted(1, at, s, false, count_totals(*network, s), {});
  }
  // Another line, another step, another scenario: nothing is carried over.
  for (std::int64_t at = 0; at < 5; ++at) line.counted(2, at, s, false, count_totals(*varied(base, "vocab", 100 + at), s), {});
  CHECK(line.totals(2, 5, s, false) != nullptr);
  CHECK(line.totals(3, 5, s, false) == nullptr);
  CHECK(line.totals(2, 5, s, true) == nullptr);
  Scenario other = s;
  ++other.length;
  CHECK(line.totals(2, 5, other, false) == nullptr);
  same(*line.totals(2, 900, s, false), count_totals(*varied(base, "vocab", 1000), s), false);
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
        std::optional<ListTotals> counted;
        try {
          counted = count_totals(network, scenario, expectations);
        } catch (const Error& error) {
          REQUIRE(error.kind() == ErrorKind::kInput);
          continue;
        }
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
    try {
      count_totals(network, s, expectations);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      continue;
    }
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
        if (batch == 2) followed += line.at(network, s, expectations) != nullptr;
      }
    }
  }
  CHECK(steps > static_cast<int>(seeds(20'000)));
  CHECK(random > static_cast<int>(seeds(5000)));
  CHECK(followed > static_cast<int>(seeds(1300)));
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
