// Published figures that no other file holds: caches that hold less than the context, parameters by hand, switches,
// one convention per report, adapters against a flat factor, coverage.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "lib/explain.hpp"
#include "models/builder.hpp"
#include "models/count/convention.hpp"
#include "models/overrides.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"
#include "reports/record.hpp"

using namespace fathom;

namespace {

Scenario of(Phase phase, std::int64_t length, bool full = false) {
  Scenario s;
  s.phase = phase;
  s.length = s.context = length;
  s.full_mask = full;
  s.logits = LogitsKind::kAll;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  return s;
}
std::string text(u128 value) { return to_string(value); }
u128 flops(const Network& network, const Scenario& scenario) { return count_totals(network, scenario).total.flops.value(); }

Record counted(const std::string& model, const std::string& convention, bool full_mask = false) {
  Record record;
  record.command = "count";
  Result result;
  result.model = model;
  result.convention = convention;
  if (full_mask) result.scenario.set("mask", Cell::text("full"));
  record.results.push_back(result);
  return record;
}

}  // namespace

TEST_CASE("section 15, case 11: one convention per report, mixing refused", "[rows]") {
  const std::vector<std::string> files = {"a.json", "b.json"};
  CHECK_NOTHROW(join_records({counted("gemma", "exact"), counted("gpt2", "exact")}, files));
  CHECK_NOTHROW(join_records({counted("gemma", "palm"), counted("gpt2", "palm")}, files));
  CHECK_THROWS_WITH(join_records({counted("gemma", "causal-half"), counted("gpt2", "full")}, files), Catch::Contains("causal-half") && Catch::Contains("b.json by 'full'"));
  CHECK_THROWS_WITH(join_records({counted("gemma", "exact"), counted("gpt2", "palm")}, files), Catch::Contains("one report has one convention"));
  CHECK_THROWS_WITH(join_records({counted("gemma", "exact"), counted("gpt2", "exact", true)}, files), Catch::Contains("with a full mask"));
  // In one file too.
  Record both = counted("gemma", "exact");
  both.results.push_back(counted("gpt2", "full").results[0]);
  CHECK_THROWS_AS(join_records({both}, {"a.json"}), Error);
  // The masks differ by a factor of nearly two in attention: 2 S / (S + 1).
  const Network llama = builtin_network("llama-3-8b");
  const ListTotals half = count_totals(llama, of(Phase::kPrefill, 2047)), whole = count_totals(llama, of(Phase::kPrefill, 2047, true));
  CHECK(text(whole.part(Part::kCore).value() * 2048) == text(half.part(Part::kCore).value() * 2 * 2047));
}

TEST_CASE("section 15, case 14: adapters on a frozen base against a flat factor", "[rows]") {
  // Per token: W 15,009,316,864, core 1,073,741,824, A 13,631,488; 2W + 3 core + 3A = 33,280,753,664.
  const u128 w = 15'009'316'864, core = 1'073'741'824, a = 13'631'488;
  CHECK(text(2 * w + 3 * core + 3 * a) == "33280753664");
  Network lora = builtin_network("llama-3-8b");
  lora.lora = Lora{16, {"q", "v"}};
  CHECK(text(flops(lora, of(Phase::kTrain, 2048, true)) / 2048) == "33230159872");
  // The popular 2/3 of 3 x forward of the base: 2 (W + core) = 32,166,117,376, 3.35 % short; at S = 32,768, where the core is 16 times as large, 21 %.
  CHECK(text(2 * (w + core)) == "32166117376");
  CHECK(1 - 32'166'117'376.0 / 33'280'753'664.0 == Approx(0.0335).margin(5e-5));
  CHECK(1 - 32'166'117'376.0 / (33'280'753'664.0 - 3 * 13'631'488.0) == Approx(0.0323).margin(5e-5));
  const u128 factor = 2 * (w + 16 * core), right = 2 * w + 3 * 16 * core + 3 * a;
  CHECK(1 - to_double(factor) / to_double(right) == Approx(0.21).margin(5e-3));
  CHECK(text(flops(lora, of(Phase::kTrain, 32'768, true)) / 32'768) == text(right - 50'331'648 - 262'144));  // the first layer's rule
}

TEST_CASE("section 15, cases 3, 6, 10 and a width that is not ignored", "[rows]") {
  // 6: the true width of the MLP counts: 3 * 2 * 4096 * f per token and layer; 4h = 16,384 would be another number.
  const Network llama = builtin_network("llama-3-8b");
  CHECK(text(count_totals(llama, of(Phase::kPrefill, 64)).part(Part::kFfn).value() / 64 / 32) == text(u128{6} * 4096 * 14'336));
  const NetworkOverrides width({"mlp"});
  Network wide;
  const std::vector<IniValue> values = {IniValue("16384", {"", 0, "mlp"})};
  width.apply(llama, values, wide);
  CHECK(text(count_totals(wide, of(Phase::kPrefill, 64)).part(Part::kFfn).value() / 64 / 32) == text(u128{6} * 4096 * 16'384));
  // 10: experts are 2 g k h f_e, whatever a dense MLP's width would be.
  CHECK(text(count_totals(builtin_network("mixtral-8x7b"), of(Phase::kPrefill, 64)).part(Part::kExperts).value() / 64 / 32) == text(u128{2} * 3 * 2 * 4096 * 14'336));
  // 3: a shared expert three times as wide as the routed ones: active weights grow by its own width.
  Network shared = builtin_network("mixtral-8x7b");
  for (BlockConfig& kind : shared.kinds) kind.mlp->moe->shared = 1, kind.mlp->moe->shared_width = 3 * 14'336;
  CHECK(text(count_parameters(shared).active.value() - 12'879'925'248) == text(u128{32} * 3 * 4096 * 3 * 14'336));
}

TEST_CASE("section 15, case 24: every FLOP comes from an op with a formula", "[rows]") {
  for (const char* name : {"gpt2-124m", "mixtral-8x7b", "deepseek-v3", "mod-60m", "mode-integrated", "mod-adapter"}) {
    CAPTURE(name);
    const Workload w = build(builtin_network(name), of(Phase::kTrain, 64));
    u128 sum = 0, passes = 0;
    for (int p = 0; p < kPartCount; ++p) sum += w.total(static_cast<Part>(p)).flops.value();
    for (int p = 0; p < 4; ++p) passes += w.total(static_cast<Pass>(p)).flops.value();
    CHECK(text(sum) == w.total().flops.str());
    CHECK(text(passes) == w.total().flops.str());
    for (const Op& op : w.ops()) {
      const KindExplanation& kind = explain_kind(kind_name(op.spec));
      if (declared_cost(op).flops.value() > 0) CHECK(kind.flops.find("no matrix") == std::string_view::npos);
    }
  }
}

TEST_CASE("section 15, further: the MoD counter that used the sequence for the key size", "[rows]") {
  // GPT-2 dims, S = 2048: 9,208,583,946,240 dense and 4,810,719,363,072 with depth routing; right are 660,606,025,728 and 432,320,544,768.
  Route route;
  route.capacity = Fraction{1, 8};
  const Network gpt2 = builtin_network("gpt2-124m");
  CHECK(9'208'583'946'240.0 / to_double(flops(gpt2, of(Phase::kPrefill, 2048, true))) == Approx(13.9).margin(0.05));
  CHECK(4'810'719'363'072.0 / to_double(flops(with_routes(gpt2, 2, route), of(Phase::kPrefill, 2048, true))) == Approx(11.1).margin(0.05));
}

TEST_CASE("section 9: caches hold what a layer can still see", "[rows]") {
  // Mistral-like windows of 4096 and chunks of 8192 in a cache of 32,768 tokens: per layer rows 4096 and 8192, each 2 * 8 * 128 * 2 bytes.
  Network llama = builtin_network("llama-3-8b");
  llama.kinds[0].attention->window = 4096;
  CHECK(kv_rows(llama.kinds[0], 32'768) == 4096);
  CHECK(kv_rows(llama.kinds[0], 1000) == 1000);
  CHECK(kv_bytes(llama, 32'768, 1, DType::kBF16).str() == text(u128{32} * 4096 * 4096));
  llama.kinds[0].attention->window = 0, llama.kinds[0].attention->chunk = 8192;
  CHECK(kv_bytes(llama, 32'768, 1, DType::kBF16).str() == text(u128{32} * 8192 * 4096));
  // Pages of 16 rows: 100 tokens take 7 pages per sequence and layer, 112 rows.
  llama.kinds[0].attention->chunk = 0;
  CHECK(kv_bytes(llama, 100, 3, DType::kBF16, 16).str() == text(u128{32} * 3 * 112 * 4096));
  // A routed layer of capacity 1/8 holds 256 of 2048 rows; every second of 32 is one.
  Route route;
  route.capacity = Fraction{1, 8};
  CHECK(kv_bytes(with_routes(builtin_network("llama-3-8b"), 2, route), 2048, 1, DType::kBF16).str() == text(u128{4096} * (16 * 2048 + 16 * 256)));
  CHECK(expected_kv_bytes_per_token(with_routes(builtin_network("llama-3-8b"), 2, route), DType::kBF16, 2048) == Approx(4096 * (16 + 2)));
}

TEST_CASE("section 9: parameters that are easily forgotten", "[rows]") {
  // Active = total - layers (E - k) g h f_e: Mixtral 46,702,792,704 - 32 * 6 * 3 * 4096 * 14,336.
  CHECK(text(u128{46'702'792'704} - u128{32} * 6 * 3 * 4096 * 14'336) == "12879925248");
  CHECK(count_parameters(builtin_network("mixtral-8x7b")).active.str() == "12879925248");
  // Sinks: one per query head and layer. Score corrections: one per expert and layer. Latent norms: q_r + c. A depth router: h, and 1 with a bias.
  Network llama = builtin_network("llama-3-8b");
  llama.kinds[0].attention->sinks = true;
  CHECK(text(count_parameters(llama).total.value() - 8'030'261'248) == text(u128{32} * 32));
  Network mixtral = builtin_network("mixtral-8x7b");
  mixtral.kinds[0].mlp->moe->correction_bias = true;
  CHECK(text(count_parameters(mixtral).total.value() - 46'702'792'704) == text(u128{32} * 8));
  CHECK(text(count_parameters(builtin_network("deepseek-v3")).part(Part::kNorm).value()) == text(u128{61} * (2 * 7168 + 1536 + 512) + 7168));
  Route route;
  route.capacity = Fraction{1, 8};
  route.router_bias = true;
  CHECK(text(count_parameters(with_routes(builtin_network("llama-3-8b"), 2, route)).total.value() - 8'030'261'248) == text(u128{16} * (4096 + 1)));
  // Shared weights count once; the head once where tied.
  Network twice = builtin_network("gpt2-124m");
  twice.weights_of = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
  CHECK(text(u128{124'439'808} - count_parameters(twice).total.value()) == text(u128{6} * (12 * 768 * 768 + 13 * 768)));  // matrices, biases 9 h and norms 4 h
  twice.weights_of.clear(), twice.tied = false;
  CHECK(text(count_parameters(twice).total.value() - 124'439'808) == text(u128{50'257} * 768));
}

TEST_CASE("section 11.3: the size of each switch", "[rows]") {
  const Network llama = builtin_network("llama-3-8b");
  const auto count = [&](const char* name) { return count_convention(find_convention(name), llama, 2048); };
  // 3: an input table as a matrix, 1,050,673,152: 6.5 % of the full count.
  CHECK(1'050'673'152.0 / count("full").per_token.value() == Approx(0.065).margin(5e-4));
  CHECK((count("trl").per_token - count("full").per_token).str() == "1050673152");
  // 4: 6hV = 231,584,256 in training; the cookbook counts the logits once.
  CHECK(text(count_totals(builtin_network("gpt2-124m"), of(Phase::kTrain, 1024)).part(Part::kLogits).value() / 1024) == "231584256");
  // 6: norm gains, 2 FLOP each: 65 norms of 4096.
  CHECK(2 * 65 * 4096 == 532'480);
  // 9: latent attention at decode, per key and layer; 10: experts read per step against the bound min(T k, E).
  CHECK(2 * 128 * (192 + 128) == 81'920);
  CHECK(2 * 128 * (2 * 512 + 64) == 278'528);
  for (const auto& [e, k, t, bound, expected] : {std::tuple{128, 8, 16, 128, 82.42}, std::tuple{256, 8, 32, 256, 163.31}, std::tuple{8, 2, 4, 8, 5.47}}) {
    CHECK(std::min(t * k, e) == bound);
    CHECK(expected_distinct_experts(e, k, t) == Approx(expected).margin(5e-3));
  }
}
