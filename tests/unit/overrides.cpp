// Networks with keys of their file changed: which layers have experts or a route, what is refused and why.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "models/network_ini.hpp"
#include "models/overrides.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

Network changed(const Network& base, const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<std::string> keys;
  std::vector<IniValue> values;
  for (const auto& [key, value] : settings) keys.push_back(key), values.emplace_back(value, Where{"", 0, key});
  Network network;
  NetworkOverrides(keys).apply(base, values, network);
  return network;
}

// One letter per layer: 'E' experts, 'd' dense; a '*' behind those that are routed.
std::string layers_of(const Network& network) {
  std::string text;
  for (std::int64_t l = 0; l < network.layer_count(); ++l) {
    const BlockConfig& block = network.block(l);
    text += block.mlp && block.mlp->moe ? 'E' : 'd';
    if (block.route) text += '*';
  }
  return text;
}

const char* const kExperts = "[network]\nwidth = 64\nvocab = 100\nlayers = 6\nheads = 4\nmlp = 96\ngated = yes\n[moe]\nexperts = 4\npicks = 2\nexpert_width = 32\n";

std::string refusal(const Network& base, const std::vector<std::pair<std::string, std::string>>& settings) {
  try {
    changed(base, settings);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK_FALSE(error.hint().empty());
    return error.message();
  }
  FAIL("accepted");
  return "";
}

}  // namespace

TEST_CASE("experts move to the layers that a file with these keys gives them", "[overrides]") {
  const Network base = parse_network_ini(std::string(kExperts) + "first_dense = 1\n", "experts");
  CHECK(layers_of(base) == "dEEEEE");
  for (const auto& [every, first, wanted] : {std::tuple{"1", "0", "EEEEEE"}, std::tuple{"2", "0", "dEdEdE"}, std::tuple{"3", "3", "dddddE"}, std::tuple{"1", "4", "ddddEE"}, std::tuple{"1", "6", "dddddd"}}) {
    const Network moved = changed(base, {{"moe.every", every}, {"first_dense", first}});
    CHECK(layers_of(moved) == wanted);
    const Network stated = parse_network_ini(std::string(kExperts) + "every = " + every + "\nfirst_dense = " + first + "\n", "experts");
    CHECK(moved.layer_count() == stated.layer_count());
    for (std::int64_t l = 0; l < moved.layer_count(); ++l) CHECK(moved.block(l) == stated.block(l));
  }
  CHECK(layers_of(changed(base, {{"every", "2"}})) == "dEdEdE");  // no routes: it can mean nothing else
  CHECK(layers_of(changed(base, {{"layers", "4"}, {"every", "2"}})) == "dEdE");
  // Sizes change with it: the dense layers' width, and the experts'.
  const Network sized = changed(base, {{"every", "2"}, {"mlp", "80"}, {"expert_width", "48"}});
  CHECK(sized.block(0).mlp->width == 80);
  CHECK(sized.block(1).mlp->moe->width == 48);
  CHECK(sized.block(0).mlp->gated);
}

TEST_CASE("a dense layer needs an MLP, which --set mlp gives", "[overrides]") {
  const Network mixtral = builtin_network("mixtral-8x7b");
  CHECK(refusal(mixtral, {{"every", "2"}}) == "layer 0 would have a dense MLP, and no block of mixtral-8x7b has one to take: give its width, mlp, as well");
  const Network half = changed(mixtral, {{"every", "2"}, {"mlp", "14336"}});
  CHECK(layers_of(half).substr(0, 4) == "dEdE");
  CHECK(half.block(0).mlp->width == 14336);
  CHECK(half.block(0).mlp->gated);
  CHECK(refusal(builtin_network("dense-60m"), {{"first_dense", "1"}}) == "dense-60m has no experts");
}

TEST_CASE("routes move, and an every that could be two keys is asked about", "[overrides]") {
  const Network mod = builtin_network("mod-tiny");
  CHECK(layers_of(mod) == "dd*dd*");
  CHECK(layers_of(changed(mod, {{"every", "1"}})) == "d*d*d*d*");
  CHECK(layers_of(changed(mod, {{"route.every", "3"}})) == "ddd*d");
  const Network mode = parse_network_ini(std::string(kExperts) + "[route]\nevery = 2\ncapacity = 1/2\n", "mode");
  CHECK(layers_of(mode) == "EE*EE*EE*");
  CHECK(refusal(mode, {{"every", "1"}}) == "experts and routes have each a key of this name");
  CHECK(layers_of(changed(mode, {{"route.every", "3"}})) == "EEE*EEE*");
  // Layers of different capacities: which route a layer takes is not said.
  CHECK(refusal(builtin_network("mod-schedule"), {{"every", "2"}}).find("differ in their route") != std::string::npos);
  CHECK_THROWS_AS(changed(mod, {{"route.every", "0"}}), Error);
  CHECK_THROWS_AS(changed(mod, {{"route.every", "5"}}), Error);  // of 4 layers, as in a file
}

TEST_CASE("keys that describe layers one by one say what to do instead", "[overrides]") {
  const Network mod = builtin_network("mod-tiny");
  for (const char* key : {"pattern", "weights", "at", "moe.at", "route.at", "capacities", "name", "summary"}) {
    CAPTURE(key);
    CHECK(refusal(mod, {{key, "1"}}).find("it is nothing to vary") != std::string::npos);
  }
  CHECK(refusal(mod, {{"capacity", "1/2"}, {"slots", "3"}}) == "'capacity' and 'slots' exclude each other");
  CHECK(refusal(builtin_network("mixtral-8x7b"), {{"expert_skew", "1"}, {"moe.expert_loads", "1"}}) == "'expert_skew' and 'expert_loads' exclude each other");
  CHECK_THROWS_AS(changed(mod, {{"every", "1"}, {"route.every", "2"}}), Error);
}

TEST_CASE("loads replace a skew, and a skew loads", "[overrides]") {
  const Network loaded = changed(builtin_network("mixtral-8x7b"), {{"expert_loads", "8,7,6,5,4,3,2,1"}});
  CHECK(loaded.kinds[0].mlp->moe->loads.size() == 8);
  const Network skewed = changed(loaded, {{"expert_skew", "0.5"}});
  CHECK(skewed.kinds[0].mlp->moe->loads.empty());
  CHECK(skewed.kinds[0].mlp->moe->skew == 0.5);
}
