// Integers of published tables that no other test has: pairs, rows per layer, training, and what public tools got wrong.
#include <catch2/catch.hpp>

#include "models/builder.hpp"
#include "models/pairs.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

constexpr std::int64_t kLength = 2048;

std::string text(u128 value) { return to_string(value); }
std::string window_pairs(std::int64_t w, std::int64_t s = kLength) { return text(visible_pairs({MaskKind::kCausal, w, 0}, s, 0)); }

Scenario step(Phase phase, bool full = false) {
  Scenario s;
  s.phase = phase;
  s.length = kLength;
  s.full_mask = full;
  s.logits = LogitsKind::kAll;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  return s;
}
// FLOPs per token of one part, or of everything.
std::string per_token(const Network& n, const Scenario& s, std::optional<Part> part = std::nullopt) {
  const ListTotals totals = count_totals(n, s);
  const u128 flops = part ? totals.part(*part).value() : totals.total.flops.value();
  REQUIRE(flops % kLength == 0);
  return text(flops / kLength);
}

}  // namespace

TEST_CASE("pairs by mask", "[list_tables]") {
  CHECK(text(visible_pairs({MaskKind::kFull, 0, 0}, kLength, 0)) == "4194304");
  CHECK(text(visible_pairs({MaskKind::kCausal, 0, 0}, kLength, 0)) == "2098176");
  CHECK(window_pairs(1) == "2048");
  CHECK(window_pairs(128) == "254016");
  CHECK(window_pairs(512) == "917760");
  CHECK(window_pairs(2047) == "2098175");
  for (std::int64_t w : {2048, 2049, 100'000}) CHECK(window_pairs(w) == "2098176");
  CHECK(text(visible_pairs({MaskKind::kCausal, 0, 256}, kLength, 0)) == "263168");
  CHECK(text(visible_pairs({MaskKind::kCausal, 0, 0}, 512, 1536)) == "917760");
  CHECK(text(visible_pairs({MaskKind::kCausal, 0, 0}, 256, 0)) == "32896");  // routed, selected among selected: C = 256
  CHECK(text(visible_pairs({MaskKind::kFull, 0, 0}, 256, 0)) == "65536");
  // One decode query: N, or min(N, W).
  for (std::int64_t n : {1, 4095, 4096, 4097, 131'072}) {
    CHECK(text(visible_pairs({MaskKind::kCausal, 0, 0}, 1, n - 1)) == std::to_string(n));
    CHECK(text(visible_pairs({MaskKind::kCausal, 4096, 0}, 1, n - 1)) == std::to_string(std::min<std::int64_t>(n, 4096)));
  }
}

TEST_CASE("rows of the reference table by layer, per token", "[list_tables]") {
  const Scenario s = step(Phase::kPrefill);
  const auto times = [](u128 one, u128 layers) { return text(one * layers); };
  CHECK(per_token(builtin_network("gpt2-124m"), s, Part::kFfn) == times(9'437'184, 12));
  CHECK(per_token(builtin_network("llama-2-7b"), s, Part::kFfn) == times(270'532'608, 32));
  CHECK(per_token(builtin_network("llama-3-8b"), s, Part::kFfn) == times(352'321'536, 32));
  const Network mixtral = builtin_network("mixtral-8x7b"), v3 = builtin_network("deepseek-v3");
  const auto experts = [&](const Network& n) {
    const ListTotals t = count_totals(n, s);
    return text((t.part(Part::kExperts).value() + t.part(Part::kRouter).value()) / kLength);
  };
  CHECK(experts(mixtral) == times(704'708'608, 32));
  CHECK(experts(v3) == times(796'393'472, 58));
  CHECK(per_token(builtin_network("llama-2-7b"), s, Part::kLogits) == "262144000");
  CHECK(per_token(mixtral, s, Part::kLogits) == "262144000");
  CHECK(per_token(builtin_network("gpt2-124m"), s, Part::kLogits) == "77194752");
  CHECK(per_token(builtin_network("llama-3-8b"), s, Part::kLogits) == "1050673152");
  CHECK(per_token(v3, s, Part::kLogits) == "1853358080");
  // DeepSeek-V3's projections, each of five matrices: 2 x parameters.
  CHECK(per_token(v3, s, Part::kProjection) == times(2 * (u128{11'010'048} + 37'748'736 + 4'128'768 + 16'777'216 + 117'440'512), 61));
  // Its core, 81,920 per pair over 1024.5 keys; Llama 3's of 16,384.
  CHECK(per_token(v3, s, Part::kCore) == times(83'927'040, 61));
  CHECK(per_token(builtin_network("llama-3-8b"), s, Part::kCore) == times(16'785'408, 32));
}

TEST_CASE("training of the reference models, per token", "[list_tables]") {
  const Scenario s = step(Phase::kTrain);
  CHECK(per_token(builtin_network("gpt2-124m"), s) == "854493696");
  CHECK(per_token(builtin_network("llama-2-7b"), s) == "41253863424");
  CHECK(per_token(builtin_network("llama-3-8b"), s) == "46639349760");
  CHECK(per_token(builtin_network("mixtral-8x7b"), s) == "78102921216");
  CHECK(per_token(builtin_network("deepseek-v3"), s) == "235106230272");
  // Only the token table frozen: layer 0's q, k, v input gradients drop out.
  Network llama = builtin_network("llama-3-8b");
  CHECK(per_token(llama, step(Phase::kTrain, true)) == "48249176064");
  llama.freeze_embedding = true;
  CHECK(per_token(llama, step(Phase::kTrain, true)) == "48198844416");
}

TEST_CASE("what public tools got wrong is not what is counted", "[list_tables]") {
  const Scenario s = step(Phase::kPrefill);
  const Network llama3 = builtin_network("llama-3-8b"), llama2 = builtin_network("llama-2-7b");
  // Case 6: with query and key/value widths swapped a layer has 109,051,904.
  CHECK(per_token(llama3, s, Part::kProjection) == text(u128{83'886'080} * 32));
  CHECK(per_token(llama3, s, Part::kProjection) != text(u128{109'051'904} * 32));
  // Case 26: a plain MLP of 4h, and that times 3/2.
  for (u128 wrong : {u128{268'435'456}, u128{402'653'184}}) CHECK(per_token(llama2, s, Part::kFfn) != text(wrong * 32));
  // Case 7: 4hV of GPT-2 in place of 6hV.
  CHECK(per_token(builtin_network("gpt2-124m"), step(Phase::kTrain), Part::kLogits) == text(u128{154'389'504} + 77'194'752));
  // Tied heads: one table fewer, not two.
  Network tied = llama2;
  tied.tied = true;
  CHECK(per_token(tied, s) == per_token(llama2, s));
}
