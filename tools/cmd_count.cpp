// fathom count: parameters, FLOPs, bytes and memory of models, from the op list alone.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "tools/cli.hpp"
#include "tools/convention.hpp"
#include "tools/generation.hpp"
#include "tools/relative.hpp"
#include "tools/results.hpp"

namespace fathom {
namespace {

struct CountArgs {
  ModelFlags model;
  ScenarioFlags scenario;
  OutputFlags output;
  std::string convention;
  std::string run_tokens;
};

// "10000000000000", "1e13", "14.8e12", "14.8T": the integer itself, whatever its size.
u128 parse_tokens(const std::string& text) {
  const auto refuse = [&](const char* why) { throw_input(fmt::format("'{}' {}", text.substr(0, 60), why), {"", 0, "--run-tokens"}, "write 300B, 14.8T, 1e13 or the digits"); };
  u128 digits = 0;
  int scale = 0;  // decimal places that the digits are short of
  std::size_t at = 0;
  bool point = false, any = false;
  for (; at < text.size() && ((text[at] >= '0' && text[at] <= '9') || (text[at] == '.' && !point)); ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    any = true;
    digits = digits * 10 + static_cast<u128>(text[at] - '0');
    scale -= point ? 1 : 0;
    if (digits > (u128{1} << 90)) refuse("is too large");
  }
  if (!any) refuse("is not a number of tokens");
  const std::string rest = text.substr(at);
  constexpr std::pair<const char*, int> kSuffixes[] = {{"", 0}, {"k", 3}, {"K", 3}, {"M", 6}, {"B", 9}, {"G", 9}, {"T", 12}};
  const auto* suffix = std::find_if(std::begin(kSuffixes), std::end(kSuffixes), [&](const auto& each) { return rest == each.first; });
  if (suffix != std::end(kSuffixes)) {
    scale += suffix->second;
  } else if ((rest[0] == 'e' || rest[0] == 'E') && rest.size() > 1 && rest.size() <= 3 && rest.find_first_not_of("0123456789", 1) == std::string::npos) {
    scale += std::stoi(rest.substr(1));
  } else {
    refuse("is not a number of tokens");
  }
  if (scale > 30) refuse("is too large");
  for (; scale > 0; --scale) digits = checked_mul(digits, 10);
  for (; scale < 0; ++scale) {
    if (digits % 10 != 0) refuse("is no whole number of tokens");
    digits /= 10;
  }
  if (digits == 0) refuse("is no tokens at all");
  return digits;
}

// The whole run: as many steps as its tokens need, each as counted.
void add_run(const CountArgs& flags, const Scenario& s, Result& result) {
  if (flags.run_tokens.empty() || s.phase != Phase::kTrain) return;
  const u128 tokens = parse_tokens(flags.run_tokens);
  const u128 step = checked_mul(checked_mul(static_cast<u128>(s.batch), static_cast<u128>(s.length)), static_cast<u128>(s.grad_accumulation));
  const u128 steps = tokens / step + (tokens % step != 0 ? 1 : 0);
  result.scenario.set("run_tokens", Cell::count(tokens));
  result.totals.set("run_steps", Cell::count(steps));
  result.totals.set("run_flops", Cell::count(checked_mul(steps, *result.totals.find("flops_matmul")->exact())));
  if (tokens % step != 0)
    result.notes.push_back({Note::Severity::kNote, fmt::format("the last of the run's steps is counted whole, though only {} of its {} tokens are left", to_string(tokens % step), to_string(step))});
}

int run_count(const CountArgs& flags) {
  check_output_flags(flags.output);
  if (!flags.run_tokens.empty()) parse_tokens(flags.run_tokens);
  Record record = new_record("count");
  const std::vector<Configuration> configurations = expand(flags.model, flags.scenario, false, record.notes);
  std::vector<std::optional<Workload>> workloads;
  std::vector<TwinKey> keys;
  for (const Configuration& c : configurations) {
    keys.push_back({&c.network, &c.scenario});
    workloads.emplace_back();
    if (c.scenario.phase != Phase::kGenerate) workloads.back() = build(c.network, c.scenario);
  }
  if (!flags.run_tokens.empty() && std::none_of(configurations.begin(), configurations.end(), [](const Configuration& c) { return c.scenario.phase == Phase::kTrain; }))
    record.note("--run-tokens changes nothing here: only train reads it");
  std::vector<int> twin_of(configurations.size(), -1);
  for (size_t i = 0; i < configurations.size(); ++i) {
    const Configuration& c = configurations[i];
    if (!workloads[i]) {
      record.results.push_back(count_generation(c));
      continue;
    }
    Result result = counted_result(c.label, c.network, c.scenario, *workloads[i]);
    if (c.network.has_routes()) {
      const int twin = twin_of[i] = find_twin(keys, i);
      const Network plain = dense_twin(c.network);
      const double dense = comparable_flops(twin >= 0 ? *workloads[static_cast<size_t>(twin)] : build(plain, for_dense_twin(plain, c.scenario)));
      result.totals.set("flops_ratio", dense > 0 ? Cell::number(comparable_flops(*workloads[i]) / dense) : Cell::status("the dense twin has no FLOPs"));
    }
    add_run(flags, c.scenario, result);
    apply_convention(flags.convention, c.network, c.scenario, result);
    record.results.push_back(std::move(result));
  }
  add_relatives(record.results, [&](size_t a, size_t b) { return twin_of[a] == static_cast<int>(b) || twin_of[b] == static_cast<int>(a); });
  return emit(record, flags.output);
}

}  // namespace

void add_count(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CountArgs>();
  CLI::App* command = app.add_subcommand("count", "parameters, FLOPs, bytes, memory; per part and per op, and against the dense twin");
  add_model_flags(*command, flags->model);
  add_scenario_flags(*command, flags->scenario);
  add_counted_flags(*command, flags->scenario);
  add_convention_flag(*command, flags->convention);
  command->add_option("--run-tokens", flags->run_tokens, "train: tokens of a whole run, such as 300B or 14.8T; gives its steps and FLOPs")->type_name("D")->group("More");
  add_output_flags(*command, flags->output);
  add_columns_flag(*command, flags->output);
  command->footer("Examples:\n  fathom count gpt2-124m --seq 1024 --logits all\n  fathom count llama-3-8b --mod-every 2 --capacity 1/8 --phase train --ops");
  command->callback([flags, &exit_code] { exit_code = run_count(*flags); });
}

}  // namespace fathom
