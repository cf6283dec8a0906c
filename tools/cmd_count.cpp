// fathom count: parameters, FLOPs, bytes and memory of models, from the op list alone.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "models/builder.hpp"
#include "tools/cli.hpp"
#include "tools/convention.hpp"
#include "tools/count_run.hpp"
#include "tools/generation.hpp"
#include "tools/relative.hpp"
#include "tools/results.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct CountArgs {
  ModelFlags model;
  ScenarioFlags scenario;
  OutputFlags output;
  std::string convention;
  RunFlags run;
};

int run_count(const CountArgs& flags, const CLI::App& app) {
  check_output_flags(flags.output);
  check_run_flags(flags.run);
  Record record = new_record("count");
  const std::vector<Configuration> configurations = expand(flags.model, flags.scenario, false, record.notes);
  if (std::all_of(configurations.begin(), configurations.end(), [](const Configuration& each) { return each.scenario.phase == Phase::kGenerate; }))
    note_unused(app, {"--ops"}, kNoOpsOfGeneration, record.notes);
  std::vector<std::optional<Workload>> workloads;
  std::vector<TwinKey> keys;
  for (const Configuration& c : configurations) {
    keys.push_back({&c.network, &c.scenario});
    workloads.emplace_back();
    if (c.scenario.phase != Phase::kGenerate) workloads.back() = build(c.network, c.scenario);
  }
  std::vector<int> twin_of(configurations.size(), -1);
  for (size_t i = 0; i < configurations.size(); ++i) {
    const Configuration& c = configurations[i];
    if (!workloads[i]) {
      record.results.push_back(count_generation(c));
      apply_convention(flags.convention, c.network, c.scenario, record.results.back());
      if (!flags.run.run_tokens.empty() || !flags.run.step_time.empty())
        record.results.back().notes.push_back({Note::Severity::kNote, "--run-tokens and --step-time are about one step; a generation has many"});
      continue;
    }
    Result result = counted_result(c.label, c.network, c.scenario, *workloads[i]);
    if (c.network.has_routes()) {
      const int twin = twin_of[i] = find_twin(keys, i);
      const Network plain = dense_twin(c.network);
      const double dense = comparable_flops(twin >= 0 ? *workloads[static_cast<size_t>(twin)] : build(plain, for_dense_twin(plain, c.scenario)));
      result.totals.set("flops_ratio", dense > 0 ? Cell::number(comparable_flops(*workloads[i]) / dense) : Cell::status("the dense twin has no FLOPs"));
    }
    apply_convention(flags.convention, c.network, c.scenario, result);
    apply_run(flags.run, c.network, c.scenario, result);
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
  add_run_flags(*command, flags->run);
  add_output_flags(*command, flags->output);
  add_columns_flag(*command, flags->output);
  command->footer("Examples:\n  fathom count gpt2-124m --seq 1024 --logits all\n  fathom count llama-3-8b --mod-every 2 --capacity 1/8 --phase train --ops");
  command->callback([flags, command, &exit_code] { exit_code = run_count(*flags, *command); });
}

}  // namespace fathom
