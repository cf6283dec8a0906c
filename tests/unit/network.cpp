// Slot counts of routed blocks, interleaving, and the refusals of validate().
#include "models/network.hpp"

#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "models/params.hpp"

using namespace fathom;

namespace {

Route routed(Fraction capacity, Rounding rounding = Rounding::kFloor) {
  Route route;
  route.capacity = capacity;
  route.rounding = rounding;
  return route;
}

// Width 8, two heads of 4, a plain MLP of 32, 16 tokens of vocabulary.
Network small(int layers) {
  Network n;
  n.name = "small";
  n.width = 8, n.vocab = 16;
  BlockConfig block;
  block.attention.emplace();
  block.attention->heads = 2, block.attention->kv_heads = 2, block.attention->head_dim = 4,
  block.attention->rope_dim = 4;
  block.mlp.emplace();
  block.mlp->width = 32;
  n.kinds = {block};
  n.layers.assign(static_cast<size_t>(layers), 0);
  return n;
}

}  // namespace

TEST_CASE("slots by rounding and length", "[network]") {
  const std::int64_t lengths[] = {1, 3, 4, 7, 8, 9, 12, 300};
  const std::int64_t eighth[3][8] = {{0, 0, 0, 0, 1, 1, 1, 37}, {0, 0, 1, 1, 1, 1, 2, 38}, {1, 1, 1, 1, 1, 2, 2, 38}};
  const std::int64_t half[3][8] = {{0, 1, 2, 3, 4, 4, 6, 150}, {1, 2, 2, 4, 4, 5, 6, 150}, {1, 2, 2, 4, 4, 5, 6, 150}};
  const Rounding modes[] = {Rounding::kFloor, Rounding::kHalfUp, Rounding::kCeil};
  for (int m = 0; m < 3; ++m) {
    for (int i = 0; i < 8; ++i) {
      CAPTURE(m, lengths[i]);
      CHECK(slots_of(routed({1, 8}, modes[m]), lengths[i]) == eighth[m][i]);
      CHECK(slots_of(routed({1, 2}, modes[m]), lengths[i]) == half[m][i]);
    }
  }
}

TEST_CASE("slots are exact for decimals, clamped, and absolute on request", "[network]") {
  CHECK(slots_of(routed(parse_fraction("0.12")), 2048) == 245);  // 245.76
  CHECK(slots_of(routed(parse_fraction("0.29")), 100) == 29);    // 28.999... in binary floats
  Route route = routed({0, 1});
  CHECK(slots_of(route, 100) == 0);
  route.min_slots = 8;
  CHECK(slots_of(route, 100) == 8);
  CHECK(slots_of(route, 5) == 5);
  Route absolute;
  absolute.slots = 64;
  CHECK(slots_of(absolute, 2048) == 64);
  CHECK(slots_of(absolute, 10) == 10);
  CHECK(slots_of(routed({1, 1}), 77) == 77);
  CHECK_THROWS_AS(slots_of(absolute, -1), Error);
}

TEST_CASE("the MoD twin routes block l iff l mod m = m-1", "[network]") {
  const auto pattern = [](int layers, std::int64_t every) {
    const Network twin = with_routes(small(layers), every, routed({1, 8}));
    std::string text;
    for (std::int64_t l = 0; l < twin.layer_count(); ++l) text += twin.block(l).route ? 'r' : '.';
    return text;
  };
  CHECK(pattern(9, 2) == ".r.r.r.r.");  // an odd depth: 5 full, 4 routed
  CHECK(pattern(33, 2) == ".r.r.r.r.r.r.r.r.r.r.r.r.r.r.r.r.");
  CHECK(pattern(7, 3) == "..r..r.");
  CHECK(pattern(3, 1) == "rrr");
  CHECK_THROWS_AS(with_routes(small(4), 5, routed({1, 8})), Error);
  CHECK_THROWS_AS(with_routes(small(4), 0, routed({1, 8})), Error);

  const Network dense = small(6);
  const Network twin = with_routes(dense, 2, routed({1, 8}));
  CHECK_FALSE(dense.has_routes());
  CHECK(twin.has_routes());
  CHECK(twin.kinds.size() == 2);
  CHECK_THROWS_AS(with_routes(twin, 2, routed({1, 8})), Error);
  const Network back = dense_twin(twin);
  CHECK_FALSE(back.has_routes());
  CHECK(back.kinds == dense.kinds);
  CHECK(back.layers == dense.layers);
}

TEST_CASE("contradictions are refused with the key and the layer", "[network]") {
  const auto refused = [](auto change, const std::string& key) {
    Network n = with_routes(small(4), 2, routed({1, 8}));
    validate(n);
    change(n);
    try {
      validate(n);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      CHECK(error.where().key == key);
      return;
    }
    FAIL("accepted; expected a refusal of " << key);
  };
  refused([](Network& n) { n.width = 0; }, "width");
  refused([](Network& n) { n.vocab = std::int64_t{1} << 40; }, "vocab");
  refused([](Network& n) { n.layers.clear(); }, "layers");
  refused([](Network& n) { n.layers[1] = 7; }, "layers");
  refused([](Network& n) { n.kinds[0].attention->kv_heads = 3; }, "kv_heads");
  refused([](Network& n) { n.kinds[1].attention->rope_dim = 3; }, "rope_dim");
  refused([](Network& n) { n.kinds[1].attention->window = -1; }, "window");
  refused([](Network& n) { n.kinds[1].attention->window = n.kinds[1].attention->chunk = 2; }, "chunk");
  refused([](Network& n) { n.kinds[1].route->capacity = Fraction{9, 8}; }, "capacity");
  refused([](Network& n) { n.kinds[1].route->slots = 3; }, "capacity");
  refused([](Network& n) { n.kinds[1].route->capacity.reset(); }, "capacity");
  refused([](Network& n) { n.kinds[1].route->aux_lambda = -1; }, "aux_lambda");
  refused([](Network& n) { n.kinds[1].route->router = RouterKind::kMlp; }, "router_hidden");
  refused([](Network& n) { n.kinds[1].mlp.reset(), n.kinds[1].attention.reset(); }, "attention");
  refused([](Network& n) { n.kinds[1].parallel = true, n.kinds[1].norms = 4; }, "parallel");
  refused([](Network& n) { n.positions = PositionKind::kLearned; }, "max_length");
  refused([](Network& n) { n.weights_of = {0, 1, 0}; }, "weights");
  refused(
      [](Network& n) {
        n.weights_of = {0, 0, 1, 2};
      },
      "weights");  // a full and a routed block differ by the router
  refused([](Network& n) { n.lora = Lora{8, {"q", "q"}}; }, "targets");
  refused([](Network& n) { n.rope_base = std::numeric_limits<double>::quiet_NaN(); }, "rope_base");
  refused([](Network& n) { n.kinds[0].mlp->moe = MoeConfig{.experts = 4, .picks = 5, .width = 8}; }, "picks");
}

// By hand: table 16*8 = 128, block 4*64 + 2*8*32 + 2*8 = 784, final norm 8; the router of each of two routed blocks
// has 8.
TEST_CASE("routes add their router and predictor, sharing removes copies", "[params]") {
  Network n = small(4);
  CHECK(count_parameters(n).total == Params(128 + 4 * 784 + 8));
  Route route = routed({1, 4});
  CHECK(count_parameters(with_routes(n, 2, route)).total == Params(128 + 4 * 784 + 8 + 2 * 8));
  route.router_bias = true;
  CHECK(count_parameters(with_routes(n, 2, route)).total == Params(128 + 4 * 784 + 8 + 2 * 9));
  route.predictor = Predictor{4};  // 8*4 + 4
  const ParameterCount with_predictor = count_parameters(with_routes(n, 2, route));
  CHECK(with_predictor.total == Params(128 + 4 * 784 + 8 + 2 * (9 + 36)));
  CHECK(with_predictor.part(Part::kPredictor) == Params(72));
  CHECK(with_predictor.part(Part::kRouter) == Params(18));
  CHECK(with_predictor.matmul == Params(128 + 4 * 768 + 2 * (8 + 36)));
  route.predictor.reset();
  route.router = RouterKind::kMlp, route.router_hidden = 5, route.adapter = 3;  // 8*5 + 5 + (5+1) and 2*8*3
  CHECK(count_parameters(with_routes(n, 2, route)).total == Params(128 + 4 * 784 + 8 + 2 * (51 + 48)));
  n.weights_of = {0, 1, 1, 1};
  CHECK(count_parameters(n).total == Params(128 + 2 * 784 + 8));
  n.weights_of.clear();
  n.tied = false;
  CHECK(count_parameters(n).total == Params(2 * 128 + 4 * 784 + 8));
  CHECK(count_parameters(n).without_embeddings == Params(4 * 784 + 8));
  n.padded_vocab = 20;
  CHECK(count_parameters(n).total == Params(2 * 160 + 4 * 784 + 8));
}

TEST_CASE("parameters by part add up to the total", "[params]") {
  Network n = small(3);
  n.kinds[0].mlp->moe = MoeConfig{
      .experts = 4, .picks = 2, .width = 16, .shared = 1, .shared_width = 24, .shared_gate = true, .router_bias = true};
  n.kinds[0].mlp->gated = n.kinds[0].mlp->bias = true;
  n.lora = Lora{2, {"q", "up"}};
  n.tied = false, n.head_bias = true, n.mtp = 1;
  const ParameterCount count = count_parameters(n);
  Params sum;
  for (const Params& part : count.by_part) sum += part;
  CHECK(sum == count.total);
  // Idle per layer: 2 experts of 3*8*16 weights + 2*16 + 8 biases, and their "up" adapters of 2*(8+16); three layers
  // and one module, which is one more layer: adapters included, as the list of ops has them.
  CHECK(count.total - count.active == Params(4 * 2 * (384 + 40 + 48)));
}

TEST_CASE("KV rows and bytes by policy, window, chunk and page", "[params]") {
  const Network n = small(4);  // 2*2*4 = 16 elements per token and layer
  CHECK(kv_bytes_per_token(n, DType::kBF16) == Bytes(4 * 16 * 2));
  CHECK(kv_bytes(n, 100, 3, DType::kF32) == Bytes(4 * 16 * 4 * 100 * 3));
  Network twin = with_routes(n, 2, routed({1, 8}));
  CHECK(kv_bytes(twin, 100, 1, DType::kF32) == Bytes(64 * (2 * 100 + 2 * 12)));
  CHECK(kv_bytes(twin, 100, 1, DType::kF32, 16) == Bytes(64 * (2 * 112 + 2 * 16)));  // 7 pages and 1 page
  CHECK(expected_kv_bytes_per_token(twin, DType::kF32, 100) == Approx(64 * (2 + 0.25)));
  twin.kinds[1].route->kv = KvPolicy::kAll;
  CHECK(kv_bytes(twin, 100, 1, DType::kF32) == kv_bytes(n, 100, 1, DType::kF32));
  twin.kinds[1].route->kv = KvPolicy::kSelected;
  twin.kinds[1].route->part = RoutedPart::kMlp;  // attention sees every token
  CHECK(kv_rows(twin.block(1), 100) == 100);
  twin.kinds[0].attention->window = 30;
  CHECK(kv_rows(twin.block(0), 100) == 30);
  CHECK(kv_rows(twin.block(0), 20) == 20);
  twin.kinds[0].attention->window = 0, twin.kinds[0].attention->chunk = 64;
  CHECK(kv_rows(twin.block(0), 100) == 64);
  const std::int64_t rows[] = {3, 17, 0, 16, 1, 1, 1, 1};  // 4 layers x 2 sequences, pages of 16: 1+2+0+1+1+1+1+1
  CHECK(kv_bytes_of(n, rows, 2, DType::kF32, 16) == Bytes(64 * 16 * 8));
  CHECK_THROWS_AS(kv_bytes_of(n, rows, 3, DType::kF32, 16), Error);
  CHECK_THROWS_AS(kv_bytes(n, 100, 1, DType::kF32, 0), Error);
}

// Saving against dense = q (1 - rho), and concurrency 1 / (1 - q (1 - rho)).
TEST_CASE("KV saving of routed depth", "[params]") {
  const auto share = [](std::int64_t every, Fraction capacity) {
    const Network n = small(8);
    return expected_kv_bytes_per_token(with_routes(n, every, routed(capacity)), DType::kBF16, 2048) /
           kv_bytes_per_token(n, DType::kBF16).to_double();
  };
  CHECK(1 - share(2, {1, 8}) == Approx(0.4375));
  CHECK(1 - share(2, {1, 5}) == Approx(0.40));
  CHECK(1 - share(2, {1, 4}) == Approx(0.375));
  CHECK(1 - share(2, {1, 2}) == Approx(0.25));
  CHECK(1 - share(1, {1, 2}) == Approx(0.50));
  CHECK(1 - share(1, {1, 8}) == Approx(0.875));
  CHECK(1 / share(2, {1, 8}) == Approx(1.778).epsilon(1e-3));
  CHECK(1 / share(1, {1, 8}) == Approx(8.0));
}
