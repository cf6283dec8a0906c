// Weights, activations and caches of different widths , in bytes worked by hand.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "lib/memory_parts.hpp"
#include "models/builder.hpp"
#include "models/import/hf_config.hpp"
#include "models/params.hpp"
#include "models/network_ini.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

Scenario decode(std::int64_t context, DType weights, DType cache = DType::kBF16) {
  Scenario s;
  s.phase = Phase::kDecode;
  s.context = context;
  s.dtype = s.grad_dtype = DType::kBF16;
  s.kv_dtype = cache;
  s.weight_dtype = weights;
  s.logits = LogitsKind::kLast;
  return s;
}
std::string text(u128 value) { return to_string(value); }
std::string weights(const Network& network, const Scenario& s) { return memory_parts(build(network, s)).weights.str(); }
// Bytes of weights that one decode step of one token reads in its products.
u128 read(const Network& network, const Scenario& s) {
  const Workload w = build(network, s);
  u128 sum = 0;
  for (size_t i = 0; i < w.ops().size(); ++i)
    if (const auto* gemm = std::get_if<Gemm>(&w.ops()[i].spec))
      sum += (declared_cost(*gemm).read.value() - static_cast<u128>(gemm->rows.count * gemm->in * gemm->batch * dtype_bytes(gemm->act))) * static_cast<u128>(w.uses(static_cast<int>(i)));
  return sum;
}

}  // namespace

TEST_CASE("fp8 matrices of Llama 3 8B", "[widths]") {
  const Network llama = builtin_network("llama-3-8b");
  // Products in bf16: 15,009,316,864 bytes, of which the head 128,256 * 4096 * 2 = 1,050,673,152 stays as it is; the others halve.
  CHECK(text(read(llama, decode(4096, DType::kBF16))) == "15009316864");
  CHECK(text(read(llama, decode(4096, DType::kF8))) == text((u128{15'009'316'864} - 1'050'673'152) / 2 + 1'050'673'152));
  CHECK(read(llama, decode(4096, DType::kI8)) == read(llama, decode(4096, DType::kF8)));
  // Stored: 6,979,321,856 in the layers' matrices, and 1,050,939,392 others (tables, norms) at 2 bytes.
  CHECK(weights(llama, decode(4096, DType::kF8)) == text(u128{6'979'321'856} + 2 * (u128{8'030'261'248} - 6'979'321'856)));
  // Only weights change: activations, FLOPs and caches do not.
  const Cost wide = build(llama, decode(4096, DType::kBF16)).total(), narrow = build(llama, decode(4096, DType::kF8)).total();
  CHECK(wide.flops == narrow.flops);
  CHECK(wide.written == narrow.written);
  CHECK(text(wide.read.value() - narrow.read.value()) == "6979321856");
}

// A prefill reads the keys and values that it has just made; only behind cached tokens are they read from the cache, in its type.
TEST_CASE("the core of a prefill reads fresh keys in the type of compute", "[widths]") {
  const Network llama = builtin_network("llama-3-8b");
  const auto bytes = [&](std::int64_t past, DType cache) {
    Scenario s;
    s.phase = Phase::kPrefill;
    s.length = 16, s.past = past;
    s.dtype = s.grad_dtype = DType::kBF16;
    s.kv_dtype = cache;
    const Workload w = build(llama, s);
    std::pair<u128, u128> found;  // read by one core, written by one append
    for (const Op& op : w.ops()) {
      if (const auto* core = std::get_if<Attention>(&op.spec)) found.first = declared_cost(*core).read.value();
      if (const auto* append = std::get_if<KvAppend>(&op.spec)) found.second = declared_cost(*append).written.value();
    }
    return found;
  };
  // Queries 16 * 32 * 128 elements of 2 bytes; keys and values 16 * 2 * 8 * 128 elements: of 2 bytes in the core whatever the cache, written in its type.
  for (const DType cache : {DType::kF8, DType::kBF16, DType::kF32}) {
    CHECK(text(bytes(0, cache).first) == text(16 * 32 * 128 * 2 + u128{16} * 2048 * 2));
    CHECK(text(bytes(0, cache).second) == text(u128{16} * 2048 * static_cast<u128>(dtype_bytes(cache))));
    // Behind 48 cached tokens all 64 are read from the cache.
    CHECK(text(bytes(48, cache).first) == text(16 * 32 * 128 * 2 + u128{64} * 2048 * static_cast<u128>(dtype_bytes(cache))));
  }
}

TEST_CASE("a cache of one byte per element", "[widths]") {
  const Network llama = builtin_network("llama-3-8b");
  CHECK(kv_bytes_per_token(llama, DType::kF8).str() == "65536");
  CHECK(kv_bytes(llama, 8192, 1, DType::kF8).str() == "536870912");
  // The core reads 2 * 8 * 128 * 4096 bytes of keys and values per layer, and queries of 2 * 4096 bytes; one new row is written.
  const Workload w = build(llama, decode(4096, DType::kBF16, DType::kF8));
  for (const Op& op : w.ops())
    if (std::holds_alternative<Attention>(op.spec)) CHECK(declared_cost(op).read.str() == text(u128{2} * 8 * 128 * 4096 + 2 * 4096));
  CHECK(w.total(Part::kKvCache).written.str() == "65536");
  // Latent rows: 512 + 64.
  Scenario latent = decode(4096, DType::kBF16, DType::kF8);
  latent.mla = MlaStrategy::kAbsorbed;
  const Workload absorbed = build(builtin_network("deepseek-v3"), latent);
  for (const Op& op : absorbed.ops())
    if (std::holds_alternative<Attention>(op.spec)) CHECK(declared_cost(op).read.str() == text(u128{576} * 4096 + 2 * 128 * 576));
}

TEST_CASE("quantization_config sets the stored width: DeepSeek-V3 as published", "[widths]") {
  const Network v3 = read_hf_config(std::string(FATHOM_SOURCE_DIR) + "/tests/data/hf/deepseek-v3.json");
  CHECK(v3.weight_dtype == DType::kF8);
  // 4 bytes per 128 x 128 = 16,384: 0.0244 %. What is not counted is said.
  CHECK_THAT(v3.notes, Catch::VectorContains(std::string("quantization_config: fp8 matrices inside the layers (weight_dtype = f8); their scales, one of 4 bytes per 128 x 128 block (0.024 % "
                                                         "of these bytes), are ignored")));
  CHECK_THAT(v3.notes, Catch::VectorContains(std::string("quantization_config: activation_scheme, fmt ignored")));
  // Not narrowed: two tables of 129,280 x 7168, 58 routers of 7168 x 256 with 256 corrections, norms 1,006,592.
  const u128 others = u128{2} * 129'280 * 7168 + 58 * (7168 * 256 + 256) + 1'006'592;
  Scenario s = decode(16, DType::kBF16);
  s.weight_dtype.reset();
  CHECK(weights(v3, s) == text(u128{671'026'419'200} - others + 2 * others));
  s.weight_dtype = DType::kBF16;  // what is asked for wins
  CHECK(weights(v3, s) == text(u128{2} * 671'026'419'200));
  // Training keeps weights in the compute type.
  Scenario train = s;
  train.phase = Phase::kTrain, train.length = 8, train.logits = LogitsKind::kAll;
  train.weight_dtype.reset();
  Network small = v3;
  small.layers.resize(4);
  const Workload trained = build(small, train);
  for (const Op& op : trained.ops())
    if (const auto* gemm = std::get_if<Gemm>(&op.spec)) CHECK(gemm->weight == DType::kBF16);
  train.weight_dtype = DType::kF8;
  CHECK_THROWS_WITH(build(small, train), Catch::Contains("compute type"));
}

TEST_CASE("biases, routers, adapters and heads keep their type", "[widths]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  // Matrices in the layers: 12 layers of 12 h^2 = 84,934,656.
  CHECK(weights(gpt2, decode(16, DType::kF8)) == text(u128{2} * 124'439'808 - 84'934'656));
  const Workload w = build(gpt2, decode(16, DType::kF8));
  for (const Op& op : w.ops())
    if (op.leaf == "mlp/up") CHECK(declared_cost(op).read.str() == text(u128{768} * 3072 + 2 * 3072 + 2 * 768));
  const Workload mixtral = build(builtin_network("mixtral-8x7b"), decode(16, DType::kF8));
  for (const Op& op : mixtral.ops())
    if (const auto* gemm = std::get_if<Gemm>(&op.spec)) CHECK(gemm->weight == (op.part == Part::kRouter || op.part == Part::kLogits ? DType::kBF16 : DType::kF8));
}

TEST_CASE("stored widths in files", "[widths]") {
  const std::string base = "[network]\nwidth = 8\nvocab = 9\nlayers = 1\nheads = 2\nmlp = 16\n";
  const Network net = parse_network_ini(base + "weight_dtype = f8\n", "t.ini");
  CHECK(net.weight_dtype == DType::kF8);
  CHECK(parse_network_ini(to_ini(net), "t.ini").weight_dtype == DType::kF8);
  CHECK_FALSE(parse_network_ini(base, "t.ini").weight_dtype);
  for (const char* wrong : {"weight_dtype = i32\n", "weight_dtype = f64\n", "weight_dtype = f7\n"}) CHECK_THROWS_AS(parse_network_ini(base + wrong, "t.ini"), Error);
}
