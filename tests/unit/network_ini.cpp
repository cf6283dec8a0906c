// The INI network format: both forms, patterns, round trips, refusals with lines; and the built-in networks.
#include "models/network_ini.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lib/error.hpp"
#include "models/layer_pattern.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

using Words = std::vector<std::string>;

const std::string kHead = "[network]\nname = t\nwidth = 64\nvocab = 100\nheads = 4\nmlp = 128\n";

std::string routes_of(const Network& n) {
  std::string text;
  for (std::int64_t l = 0; l < n.layer_count(); ++l) text += n.block(l).route ? 'r' : '.';
  return text;
}

void check_equal(const Network& a, const Network& b) {
  CHECK(a.name == b.name);
  CHECK(a.summary == b.summary);
  CHECK(a.width == b.width);
  CHECK(a.vocab == b.vocab);
  CHECK(a.padded_vocab == b.padded_vocab);
  CHECK(a.max_length == b.max_length);
  CHECK(a.positions == b.positions);
  CHECK(a.rope_base == b.rope_base);
  CHECK(a.norm == b.norm);
  CHECK(a.norm_bias == b.norm_bias);
  CHECK(a.norm_gain == b.norm_gain);
  CHECK(a.norm_epsilon == b.norm_epsilon);
  CHECK(a.embedding_norm == b.embedding_norm);
  CHECK(a.final_norm == b.final_norm);
  CHECK(a.tied == b.tied);
  CHECK(a.head_bias == b.head_bias);
  CHECK(a.kinds == b.kinds);
  CHECK(a.layers == b.layers);
  CHECK(a.weights_of == b.weights_of);
  CHECK(a.mtp == b.mtp);
  CHECK(a.lora == b.lora);
  CHECK(a.freeze_embedding == b.freeze_embedding);
}

// Line and key of the refusal.
std::pair<int, std::string> refused(const std::string& text) {
  try {
    parse_network_ini(text, "t.ini");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.where().file == "t.ini");
    return {error.where().line, error.where().key};
  }
  FAIL("accepted:\n" << text);
  return {};
}
using At = std::pair<int, std::string>;

}  // namespace

TEST_CASE("layer patterns expand and shorten", "[ini]") {
  CHECK(parse_layer_pattern("a b a") == Words{"a", "b", "a"});
  CHECK(parse_layer_pattern("2*(a b) c") == Words{"a", "b", "a", "b", "c"});
  CHECK(parse_layer_pattern("2 * ( a 2*b )") == Words{"a", "b", "b", "a", "b", "b"});
  CHECK(parse_layer_pattern("(a) 3*1") == Words{"a", "1", "1", "1"});
  CHECK(parse_layer_pattern("- 1/2 12.5%") == Words{"-", "1/2", "12.5%"});
  CHECK(parse_layer_pattern("17*(dense mod) dense").size() == 35);
  for (const char* bad : {"", "()", "0*a", "2*", "*a", "(a", "a)", "x*a", "2*3*a", "100001*a", "400*(400*a)",
                          "((((((((((((((((((a))))))))))))))))))"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_layer_pattern(bad), Error);
  }
  CHECK(layer_pattern_text({"a", "b", "a", "b", "a"}) == "2*(a b) a");
  CHECK(layer_pattern_text({"a", "a", "a", "b"}) == "3*a b");
  // Any word list survives: a fixed stream of patterns over two letters.
  for (unsigned seed = 0; seed < 4096; ++seed) {
    Words words;
    for (int bit = 0; bit < 12; ++bit) words.push_back((seed >> bit) & 1 ? "a" : "b");
    REQUIRE(parse_layer_pattern(layer_pattern_text(words)) == words);
  }
}

TEST_CASE("the short form", "[ini]") {
  const Network n = parse_network_ini(kHead + "layers = 5\n[route]\nevery = 2\ncapacity = 1/8\n", "t.ini");
  CHECK(n.name == "t");
  CHECK(n.source == "t.ini");
  CHECK(routes_of(n) == ".r.r.");
  CHECK(n.kinds.size() == 2);
  CHECK(n.kinds[0].attention->kv_heads == 4);
  CHECK(n.kinds[0].attention->head_dim == 16);
  CHECK(n.kinds[0].attention->rope_dim == 16);
  CHECK(*n.kinds[1].route->capacity == Fraction{1, 8});
  CHECK(routes_of(parse_network_ini(kHead + "layers = 6\n[route]\nat = 0, 3-4\nslots = 7\n", "t.ini")) == "r..rr.");
  const Network schedule = parse_network_ini(kHead + "layers = 4\n[route]\ncapacities = - 1/2 2*25%\n", "t.ini");
  CHECK(routes_of(schedule) == ".rrr");
  CHECK(*schedule.block(2).route->capacity == Fraction{1, 4});
  const Network moe = parse_network_ini(
      kHead + "layers = 4\n[moe]\nfirst_dense = 1\nexperts = 4\npicks = 2\nexpert_width = 32\nshared_experts = 1\n",
      "t.ini");
  CHECK_FALSE(moe.block(0).mlp->moe);
  CHECK(moe.block(0).mlp->width == 128);
  CHECK(moe.block(1).mlp->width == 0);
  CHECK(moe.block(3).mlp->moe->shared_width == 32);
  CHECK(
      parse_network_ini("[network]\nwidth = 64\nvocab = 9\nheads = 4\nmlp = 8\nlayers = 1\n", "folder/some.ini").name ==
      "some");
}

TEST_CASE("the general form: blocks inherit from [network]", "[ini]") {
  const Network n =
      parse_network_ini(kHead +
                            "window = 16\npattern = 2*(local mod) local\n[block.local]\n[block.mod]\nwindow = "
                            "none\nheads = 8\nhead_dim = 8\nkv_heads = 2\nslots = 5\ngate = tanh\ngate_alpha = 0.2\n"
                            "gate_beta = 1\n[lora]\nrank = 4\ntargets = q, v\n",
                        "t.ini");
  CHECK(routes_of(n) == ".r.r.");
  CHECK(n.block(0).attention->window == 16);
  CHECK(n.block(1).attention->window == 0);
  CHECK(n.block(1).attention->kv_heads == 2);
  CHECK(n.block(1).mlp->width == 128);
  CHECK(n.block(1).route->gate == Gate{GateKind::kTanh, 0.2, 1.0});
  CHECK(*n.lora == Lora{4, {"q", "v"}});
  check_equal(n, parse_network_ini(to_ini(n), "t.ini"));
}

TEST_CASE("refusals name line and key", "[ini]") {
  const std::string base = kHead + "layers = 4\n";
  CHECK(refused("[network]\nvocab = 3\n") == At{1, "[network]"});  // no width
  CHECK(refused(base + "hedas = 4\n") == At{8, "hedas"});
  CHECK(refused(base + "[rout]\nevery = 2\n") == At{8, ""});
  CHECK(refused(base + "[route]\nevery = 2\ncapacity = 9/8\n") == At{10, "capacity"});
  CHECK(refused(base + "[route]\nevery = 2\ncapacity = 1/8\nslots = 4\n").second == "capacity");
  CHECK(refused(base + "[route]\ncapacity = 1/8\n") == At{8, "[route]"});
  CHECK(refused(base + "[route]\nevery = 2\n") == At{8, "[route]"});
  CHECK(refused(base + "[route]\nevery = 5\ncapacity = 1/8\n") == At{9, "every"});
  CHECK(refused(base + "[route]\nat = 4\ncapacity = 1/8\n") == At{9, "at"});
  CHECK(refused(base + "[route]\nat = 3-1\ncapacity = 1/8\n") == At{9, "at"});
  CHECK(refused(base + "[route]\nat = 1, 1-2\ncapacity = 1/8\n") == At{9, "at"});
  CHECK(refused(base + "[route]\ncapacities = - 1/2\n") == At{9, "capacities"});
  CHECK(refused(base + "[route]\nevery = 2\ncapacity = nan\n") == At{10, "capacity"});
  CHECK(refused(base + "window = 0\n") == At{8, "window"});
  CHECK(refused(base + "kv_heads = 3\n") == At{8, "kv_heads"});
  CHECK(refused(base + "activation = gelu\n") == At{8, "activation"});
  CHECK(refused(base + "[block.x]\nmlp = 3\n") == At{8, "[block.x]"});
  CHECK(refused(kHead + "pattern = a b\n[block.a]\n") == At{7, "pattern"});
  CHECK(refused(kHead + "pattern = a\n[block.a]\n[block.b]\nmlp = 4\n") == At{9, "[block.b]"});
  CHECK(refused(kHead + "pattern = a\nlayers = 2\n[block.a]\n") == At{8, "layers"});
  CHECK(refused(kHead + "pattern = a\n[block.a]\n[route]\nevery = 1\n") == At{9, "[route]"});
  CHECK(refused(kHead + "layers = 4\nweights = 0 1\n").second == "weights");
  CHECK(refused("[network]\nwidth = 65\nvocab = 100\nheads = 4\nmlp = 128\nlayers = 1\n").second == "heads");
  CHECK(refused(base + "positions = learned\n").second == "max_length");
  CHECK(refused(base + "[moe]\nexperts = 4\npicks = 5\nexpert_width = 8\n") == At{10, "picks"});
  // Adapters on a matrix that no layer has.
  CHECK(refused(base + "[lora]\nrank = 4\ntargets = gate\n") == At{10, "targets"});
  CHECK(parse_network_ini(base + "gated = yes\n[lora]\nrank = 4\ntargets = gate\n", "t.ini").lora.has_value());
  CHECK(refused("[network]\nwidth = 64\nvocab = 9\nlayers = 1\nattention = no\nmlp = 8\n[lora]\nrank = 4\ntargets = up, q\n") == At{9, "targets"});
  // 0 would silently be the value that follows from others.
  CHECK(refused(base + "head_dim = 0\n") == At{8, "head_dim"});
  CHECK(refused(base + "kv_heads = 0\n") == At{8, "kv_heads"});
  // Lines of keys that are wrong beside others.
  CHECK(refused("[network]\nwidth = 64\nvocab = 100\nlayers = 1\nheads = 5\nmlp = 128\n") == At{5, "heads"});
  CHECK(refused(base + "[route]\ncapacities = - - 1/8 1.1\n") == At{9, "capacities"});
  CHECK(refused(base + "[moe]\nexperts = 4\npicks = 2\nexpert_width = 8\nshared_gate = yes\n") == At{12, "shared_gate"});
  CHECK(refused(base + "[moe]\nexperts = 4\npicks = 2\nexpert_width = 8\nshared_width = 8\n") == At{12, "shared_width"});
  CHECK(refused(base + "[moe]\nat = 1\nevery = 2\nexperts = 4\npicks = 2\nexpert_width = 8\n") == At{9, "at"});
}

TEST_CASE("a key that has no default is missed by name, in its section", "[ini]") {
  struct Missing {
    std::string text, key;
    int line;
  };
  const std::string base = kHead + "layers = 4\n";  // seven lines and [network]'s own heads, mlp
  const std::string general = kHead + "pattern = 4*a\n[block.a]\n";
  const std::string moe[] = {"experts = 4\n", "picks = 2\n", "expert_width = 8\n"}, mla[] = {"kv_rank = 8\n", "nope_dim = 4\n", "v_dim = 6\n"};
  std::vector<Missing> cases = {{base + "[lora]\nrank = 4\n", "'targets'", 8}, {base + "[lora]\ntargets = q\n", "'rank'", 8},
                                {base + "[route]\nevery = 2\n", "'capacity' or 'slots'", 8},
                                {base + "[route]\nevery = 2\ncapacity = 1/8\nrouter = mlp\n", "'router_hidden'", 8},
                                {general + "gate = raw\n", "'capacity' or 'slots'", 8},
                                {"[network]\nwidth = 64\nvocab = 9\nmlp = 8\nlayers = 2\n", "'heads'", 1},
                                {"[network]\nwidth = 64\nvocab = 9\nmlp = 8\npattern = 2*a\n[block.a]\nwindow = 4\n", "'heads'", 6}};
  const char* names[] = {"experts", "picks", "expert_width", "kv_rank", "nope_dim", "v_dim"};
  for (int missing = 0; missing < 3; ++missing) {
    std::string experts, latent;
    for (int i = 0; i < 3; ++i)
      if (i != missing) experts += moe[i], latent += mla[i];
    cases.push_back({base + "[moe]\n" + experts, names[missing], 8});
    cases.push_back({base + "[mla]\n" + latent, names[3 + missing], 8});
    cases.push_back({general + experts, names[missing], 8});
    cases.push_back({general + latent, names[3 + missing], 8});
    // What all blocks have in common is theirs.
    CHECK_NOTHROW(parse_network_ini(kHead + "pattern = 4*a\n[mla]\n" + latent + "[block.a]\n" + mla[missing], "t.ini"));
  }
  for (const Missing& each : cases) {
    CAPTURE(each.text, each.key);
    try {
      parse_network_ini(each.text, "t.ini");
      FAIL("was read");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      CHECK(error.message().find(each.key) != std::string::npos);
      CHECK(error.message().find("not 0") == std::string::npos);
      CHECK(error.where().line == each.line);
      CHECK(error.where().key.front() == '[');
    }
  }
  // No MLP at all is a network too, but not without a word.
  const std::string without = "[network]\nwidth = 64\nvocab = 9\nheads = 4\nlayers = 2\n";
  CHECK(parse_network_ini(without, "t.ini").notes.size() == 1);
  CHECK(parse_network_ini(without + "mlp = 0\n", "t.ini").notes.empty());
}

TEST_CASE("the glossary has every key once per section and nothing empty", "[ini]") {
  std::set<std::pair<std::string, std::string>> seen;
  for (const IniKeyDoc& doc : ini_glossary()) {
    CAPTURE(doc.section, doc.key);
    CHECK(seen.insert({doc.section, doc.key}).second);
    CHECK_FALSE(doc.values.empty());
    CHECK_FALSE(doc.standard.empty());
    CHECK_FALSE(doc.meaning.empty());
  }
  CHECK(seen.size() > 80);
}

TEST_CASE("built-in networks: names, summaries, files, round trips", "[registry]") {
  std::vector<std::string> on_disk;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FATHOM_SOURCE_DIR) + "/models/networks")) {
    if (entry.path().extension() != ".ini") continue;
    on_disk.push_back(entry.path().stem().string());
    const Network from_file = read_network_ini(entry.path().string());
    const Network built_in = builtin_network(entry.path().stem().string());
    CAPTURE(entry.path().string());
    CHECK(built_in.name == entry.path().stem().string());
    check_equal(from_file, built_in);
    check_equal(built_in, parse_network_ini(to_ini(built_in), "t.ini"));
  }
  std::sort(on_disk.begin(), on_disk.end());
  std::vector<std::string> listed;
  for (const NetworkEntry& entry : list_networks()) {
    listed.push_back(entry.name);
    CHECK_FALSE(entry.summary.empty());
  }
  CHECK(listed == on_disk);
}

TEST_CASE("keys that change nothing are noted with their line, defaults and inherited ones are not", "[ini]") {
  const auto notes = [](const std::string& text) { return parse_network_ini(text, "t.ini").notes; };
  const std::string base = "[network]\nwidth = 64\nvocab = 9\nheads = 4\nmlp = 8\nlayers = 2\n", route = "[route]\nevery = 2\ncapacity = 1/4\n";
  CHECK(notes(base + "parallel_norms = 1\n") == std::vector<std::string>{"line 7: parallel_norms changes nothing: the block is not parallel"});
  CHECK(notes(base + "parallel_norms = 2\nsinks = no\nnorm_bias = yes\nrope_base = 500\n").empty());
  CHECK(notes(base + route + "gate = tanh\ngate_beta = 0.5\n").empty());
  CHECK(notes(base + route + "gate_beta = 0.5\n") == std::vector<std::string>{"line 10: gate_beta changes nothing: only the gate tanh reads it"});
  // What is routed is the MLP: keys and values are those of all tokens whatever kv says. Slots are as many as they say.
  CHECK(notes(base + route + "kv = all\n").empty());
  CHECK(notes(base + route + "part = attention\nkv = all\n").empty());
  CHECK(notes(base + route + "part = mlp\nkv = all\n") == std::vector<std::string>{"line 11: kv changes nothing: attention is not routed, so that every token has keys and values whatever it says"});
  const std::string slots = "[route]\nevery = 2\nslots = 8\n";
  CHECK(notes(base + slots + "min_slots = 4\n") == std::vector<std::string>{"line 10: min_slots changes nothing: slots say how many there are"});
  CHECK(notes(base + route + "min_slots = 4\n").empty());
  CHECK(refused(base + slots + "min_slots = 9\n").second == "min_slots");
  // A key of [network] is idle where no block reads it; one of a block, where that block does not.
  const std::string blocks = "pattern = a b\n[block.a]\n[block.b]\nattention = no\n", head = "[network]\nwidth = 64\nvocab = 9\nheads = 4\nmlp = 8\n";
  CHECK(notes(head + "sinks = yes\n" + blocks).empty());
  CHECK(notes(head + blocks + "sinks = yes\n") == std::vector<std::string>{"line 10: sinks changes nothing: the block has no attention"});
}

TEST_CASE("a number out of range is refused with the range that is enforced", "[ini]") {
  const std::string network = "[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\nmlp = 8\n";
  const auto with = [](const std::string& text, const std::string& key, const std::string& value) {  // in place of that key, or as the last
    const std::size_t at = text.find("\n" + key + " = ");
    if (at == std::string::npos) return text + key + " = " + value + "\n";
    return text.substr(0, at + 1) + key + " = " + value + text.substr(text.find('\n', at + 1));
  };
  const auto message = [&](const std::string& text, const std::string& key, const std::string& value) -> std::string {
    try {
      parse_network_ini(with(text, key, value), "t.ini");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      CHECK(error.where().key == key);
      return error.message();
    }
    return "";
  };
  const std::string moe = network + "[moe]\nexperts = 8\npicks = 1\nexpert_width = 16\n", route = network + "[route]\nevery = 2\ncapacity = 1/4\n", slots = network + "[route]\nevery = 2\nslots = 4\n";
  const std::string latent = network + "[mla]\nkv_rank = 16\nnope_dim = 8\nv_dim = 8\n", lora = network + "[lora]\nrank = 4\ntargets = q\n";
  const std::int64_t size = std::int64_t{1} << 31, experts = std::int64_t{1} << 20, tokens = std::int64_t{1} << 40;
  struct Key {
    const std::string& text;
    const char* key;
    std::int64_t low, high;
  };
  const Key keys[] = {{network, "width", 1, size},      {network, "vocab", 1, size},         {network, "max_length", 0, tokens},  {network, "mtp", 0, 64},          {network, "layers", 1, 100000},
                      {network, "heads", 1, size},      {network, "head_dim", 1, size},      {network, "window", 1, tokens},      {network, "chunk", 1, tokens},    {network, "mlp", 0, size},
                      {moe, "experts", 1, experts},     {moe, "expert_width", 1, size},      {moe, "shared_experts", 0, experts}, {moe, "shared_width", 0, size},   {moe, "noops", 0, experts},
                      {latent, "kv_rank", 1, size},     {latent, "q_rank", 0, size},         {latent, "nope_dim", 1, size},       {latent, "v_dim", 1, size},       {slots, "slots", 0, tokens},
                      {route, "min_slots", 0, tokens},  {route, "router_hidden", 0, size},   {route, "predictor", 1, size},       {route, "adapter", 0, size},      {lora, "rank", 1, size}};
  for (const Key& each : keys) {
    const std::string range = std::to_string(each.low) + " to " + std::to_string(each.high);
    CAPTURE(each.key, range);
    for (const std::string& value : {std::to_string(each.low - 1), std::to_string(each.high + 1), std::string("9223372036854775807"), std::string("99999999999999999999999")})
      CHECK(message(each.text, each.key, value) == value + " is out of range; allowed are " + range);
    // Both ends are within it: another rule may refuse them (heads of a width, a matrix of too many elements), the range does not.
    for (const std::int64_t value : {each.low, each.high}) {
      const std::string text = with(each.text, each.key, std::to_string(value));
      try {
        parse_network_ini(text, "t.ini");
      } catch (const Error& error) {
        CHECK(error.message().find("out of range") == std::string::npos);
        CHECK(error.message().find("must be 1 to") == std::string::npos);
        CHECK(error.message().find("must be 0 to") == std::string::npos);
      }
    }
  }
  // Ranges that other keys decide are in words, and in their numbers where the value could be one.
  CHECK(message(network, "padded_vocab", "-1") == "-1 is out of range; allowed are 0, or vocab to 2147483648");
  CHECK(message(network, "padded_vocab", "99") == "must be 0 or at least vocab (100), not 99");
  CHECK(message(network, "kv_heads", "-1") == "-1 is out of range; allowed are 1 to heads, which it divides");
  CHECK(message(network, "rope_dim", "-2") == "-2 is out of range; allowed are 0 to head_dim");
  CHECK(message(network, "rope_dim", "18") == "layer 0: must be 0 to 16, not 18");
  CHECK(message(moe, "picks", "0") == "0 is out of range; allowed are 1 to experts + noops");
  CHECK(message(moe, "picks", "9") == "layer 0: must be 1 to 8, not 9");
  CHECK(message(network, "norms", "3") == "must be 2 or 4, not 3");
  CHECK(message(network, "parallel_norms", "-7") == "must be 1 or 2, not -7");
}
