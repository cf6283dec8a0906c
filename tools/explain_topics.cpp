#include "tools/explain_topics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/registry.hpp"
#include "lib/explain.hpp"
#include "models/count/convention.hpp"
#include "models/builder.hpp"
#include "models/count/activation_formula.hpp"
#include "models/machine_ini.hpp"
#include "models/network_ini.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"
#include "reports/format.hpp"
#include "reports/terms.hpp"
#include "tools/convention.hpp"
#include "tools/generation.hpp"
#include "tools/help.hpp"
#include "tools/machines.hpp"
#include "tools/results.hpp"

namespace fathom {
namespace {

// What the ops of each part are, and where the rule stands.
struct PartText {
  Part part;
  const char* what;
  const char* source;
};
constexpr std::array<PartText, kPartCount> kParts = {{
    {Part::kEmbedding, "token and position tables: gathers, no FLOP", "lib/cost_rules.cpp (Embedding)"},
    {Part::kNorm, "norms over the width, of queries and keys, of latents: no FLOP", "lib/cost_rules.cpp (RmsNorm, LayerNorm)"},
    {Part::kProjection, "q, k, v and output products: 2 x rows x in x out", "lib/cost_rules.cpp (Gemm)"},
    {Part::kCore, "QK^T and PV over visible pairs: 2 x heads x (qk_dim + v_dim) x pairs", "lib/cost_rules.cpp (Attention); pairs: models/pairs.hpp"},
    {Part::kFfn, "MLP: 2 x rows x width x f for each of its two or three matrices", "lib/cost_rules.cpp (Gemm)"},
    {Part::kExperts, "experts: 2 x assignments x width x f_e per matrix; shared ones on all rows", "models/moe.cpp; lib/cost_rules.cpp (Gemm)"},
    {Part::kRouter, "expert and depth routers: 2 x rows x width x outputs", "Raposo et al., arXiv 2404.02258, 3.4; lib/cost_rules.cpp"},
    {Part::kPredictor, "sampling-time predictor", "Raposo et al., arXiv 2404.02258, 3.5; models/route.cpp"},
    {Part::kRouting, "selection, gather, scatter, dispatch, combine: no FLOP", "lib/cost_rules.cpp (Select, GatherRows, ScatterAddRows)"},
    {Part::kResidual, "residual sums: no FLOP", "lib/cost_rules.cpp (AddResidual)"},
    {Part::kKvCache, "cache writes: no FLOP", "lib/cost_rules.cpp (KvAppend)"},
    {Part::kLogits, "head: 2 x rows x width x vocabulary", "lib/cost_rules.cpp (Gemm)"},
    {Part::kLoss, "cross entropy and router losses: no FLOP", "lib/cost_rules.cpp (CrossEntropy, RouterLoss)"},
    {Part::kAdapter, "low-rank adapters: 2 x rows x rank x (in + out); bypass adapters", "Hu et al., arXiv 2106.09685; lib/cost_rules.cpp (Gemm)"},
    {Part::kMtp, "multi-token prediction: one layer, a projection 2h -> h, logits", "DeepSeek-V3, arXiv 2412.19437, 2.2; lib/cost_rules.cpp"},
    {Part::kOptimizer, "AdamW and gradient norm: elements and bytes only", "lib/cost_rules.cpp (AdamW, GradientNorm)"},
}};

const char* const kTotalRule = "sum over ops of times x FLOP of one; 1 multiply-add = 2 FLOP; vector work is counted in elements, never in FLOP";

// Where the rule of a count stands; predictions and measurements have none.
std::string source_of(std::string_view key) {
  struct Row {
    const char* key;
    const char* source;
  };
  static constexpr std::array kSources = {
      Row{"flops_matmul", "lib/cost_rules.cpp; models/pairs.hpp"},
      Row{"flops_expected", "lib/cost_rules.cpp; Raposo et al., arXiv 2404.02258, 3.5"},
      Row{"convention_flops", "models/count/convention_table.cpp"},
      Row{"elements_vector", "lib/cost_rules.cpp"},
      Row{"bytes_read", "lib/cost_rules.cpp"},
      Row{"bytes_written", "lib/cost_rules.cpp"},
      Row{"bytes_read_expected", "lib/cost_rules.cpp"},
      Row{"experts_expected", "lib/cost_rules.cpp; models/expert_loads.hpp"},
      Row{"params_total", "models/params.hpp"},
      Row{"params_active", "models/params.hpp"},
      Row{"kv_bytes", "models/params.hpp"},
      Row{"kv_bytes_per_token", "models/params.hpp"},
      Row{"weight_bytes", "models/params.hpp"},
      Row{"gradient_bytes", "lib/memory_parts.hpp"},
      Row{"optimizer_bytes", "lib/memory_parts.hpp; Loshchilov and Hutter, arXiv 1711.05101"},
      Row{"saved_bytes", "lib/memory_parts.hpp"},
      Row{"peak_bytes", "lib/plan.hpp"},
      Row{"flops_ratio", "Raposo et al., arXiv 2404.02258, 4.1"},
      Row{"run_steps", "tools/count_run.hpp"},
      Row{"run_flops", "tools/count_run.hpp"},
      Row{"mfu", "Chowdhery et al., arXiv 2204.02311, appendix B"},
      Row{"hfu", "Chowdhery et al., arXiv 2204.02311, appendix B"},
      Row{"rows_dropped", "models/expert_loads.hpp"},
      Row{"rows_declared", "Raposo et al., arXiv 2404.02258, 3.1"},
      Row{"rows_expected", "Raposo et al., arXiv 2404.02258, 3.5; lib/cost_rules.cpp"},
  };
  for (const Row& row : kSources)
    if (key == row.key) return row.source;
  return "";
}

std::string shown(const Cell& cell, Unit unit) {
  if (const u128* count = cell.exact()) {
    const std::string symbol(unit_symbol(unit));
    return grouped(*count) + (symbol.empty() ? "" : " " + symbol);
  }
  return format_cell(cell, unit, 6);
}

void scenario_into(KeyValues& list, const Figures& scenario) {
  std::string text;
  for (const auto& [key, cell] : scenario.items()) text += (text.empty() ? "" : ", ") + key + " " + (cell.exact() ? grouped(*cell.exact()) : exact_text(cell));
  list.add_text("inputs", text);
}

// One layer's activations as a paper counts them, and the way from there to the op list.
void activation_formula_into(Document& document, const Configuration& configuration) {
  const ActivationFormula formula = activation_formula(configuration.network, configuration.scenario);
  if (!formula.unavailable.empty()) {
    document.note("The published S B h (34 + 5 n S / h) bytes of a layer (arXiv 2205.05198) say nothing here: " + formula.unavailable + ".");
    return;
  }
  ReportTable table("published", "One layer: from S B h (34 + 5 n S / h) bytes (arXiv 2205.05198) to the op list");
  table.add_column(ReportColumn{"reason", "reason", Unit::kText, 0});
  table.add_column(ReportColumn{"bytes", "bytes", Unit::kText, 0, 4, true});
  const auto number = [](const Rational& value) { return (value.negative() ? "-" : "") + grouped((value.negative() ? -value : value).count()); };
  table.add_row({Cell::text("published, with dropout"), Cell::text(number(formula.published))}, true);
  for (const Reason& reason : formula.reasons) table.add_row({Cell::text(reason.text), Cell::text((reason.flops.negative() ? "" : "+") + number(reason.flops))});
  table.add_row({Cell::text("op list"), Cell::text(number(formula.counted))}, true);
  document.add(std::move(table));
}

}  // namespace

void explain_total_into(Document& document) {
  document.title = "total";
  document.paragraph("Every total is a sum over the op list: how often an op runs times what one run costs. No closed form is used that the list does not give.");
  KeyValues list;
  list.add_text("formula", kTotalRule);
  list.add_text("expected", "where rows are random: the expectation over the rows that run (binomial) and over distinct experts");
  list.add_text("source", "lib/workload.hpp, lib/cost_rules.cpp");
  document.add(std::move(list));
  ReportTable table("parts", "Parts of a total");
  for (const char* name : {"part", "what its ops compute", "source"}) table.add_column(ReportColumn{name, name, Unit::kText, 0});
  for (const PartText& each : kParts) table.add_row({Cell::text(std::string(part_name(each.part))), Cell::text(each.what), Cell::text(each.source)});
  document.add(std::move(table));
  document.note("`fathom explain total MODEL` adds up the ops of a model; `fathom explain OP MODEL` takes one of them apart.");
}

void explain_total_into(Document& document, const Configuration& configuration) {
  document.title = fmt::format("total of {}", configuration.label);
  if (configuration.scenario.phase == Phase::kGenerate) {
    const Result result = count_generation(configuration);
    KeyValues list;
    list.add_text("formula", "the prefill of the prompt and one decode step per further token, each a sum over its op list");
    scenario_into(list, result.scenario);
    if (const Cell* flops = result.totals.find("flops_matmul")) list.add_text("result", shown(*flops, Unit::kFlop));
    list.add_text("source", "models/scenario.hpp, lib/cost_rules.cpp");
    document.add(std::move(list));
    return;
  }
  const Workload workload = build(configuration.network, configuration.scenario);
  const Result result = counted_result(configuration.label, configuration.network, configuration.scenario, workload);
  const Cost total = workload.total();
  KeyValues list;
  list.add_text("formula", kTotalRule);
  scenario_into(list, result.scenario);
  list.add_text("result", grouped(total.flops.value()) + " FLOP (2 per MAC)");
  if (workload.routed()) list.add_text("expected", shown(*result.totals.find("flops_expected"), Unit::kFlop));
  list.add_text("coverage", "100 % of the FLOP come from ops with a formula of their own: there are no other ops");
  list.add_text("source", "lib/workload.hpp, lib/cost_rules.cpp");
  document.add(std::move(list));

  ReportTable ops("ops", "Ops with FLOP");
  ops.add_column(ReportColumn{"path", "op", Unit::kText, 0});
  ops.add_column(ReportColumn{"times", "times", Unit::kCount, 0});
  ops.add_column(ReportColumn{"each", "FLOP of one", Unit::kText, 0});
  ops.add_column(ReportColumn{"flops_matmul", "together", Unit::kCount, 0, 4, true});
  ReportTable parts("parts", "By part");
  parts.add_column(ReportColumn{"part", "part", Unit::kText, 0});
  parts.add_column(ReportColumn{"what", "what its ops compute", Unit::kText, 2});
  parts.add_column(ReportColumn{"flops_matmul", "FLOP", Unit::kCount, 0, 4, true});
  parts.add_column(ReportColumn{"share", "share", Unit::kPercent, 1});
  for (size_t i = 0; i < workload.ops().size(); ++i) {
    const Op& op = workload.ops()[i];
    const Flops one = declared_cost(op).flops;
    if (one.value() == 0) continue;
    const u128 times = static_cast<u128>(workload.uses(static_cast<int>(i)));
    ops.add_row({Cell::text(workload.path(static_cast<int>(i))), Cell::count(times), Cell::text(flops_with_numbers(op.spec)), Cell::count(one * times)});
  }
  ops.add_row({Cell::text("total"), Cell(), Cell(), Cell::count(total.flops)}, true);
  for (const PartText& each : kParts) {
    const Flops flops = workload.total(each.part).flops;
    if (flops.value() == 0) continue;
    parts.add_row({Cell::text(std::string(part_name(each.part))), Cell::text(each.what), Cell::count(flops), Cell::number(flops.to_double() / total.flops.to_double())});
  }
  parts.add_row({Cell::text("total"), Cell(), Cell::count(total.flops), Cell()}, true);
  document.add(std::move(parts));
  document.add(std::move(ops));
}

namespace {

// What is cached per token depends on the attention: with latents it is the latent row, not keys and values of the heads.
std::string formula_of(const Column& column, const Network* network) {
  if (column.key != "kv_bytes_per_token" || !network) return std::string(column.formula);
  std::int64_t latent = 0, heads = 0;
  const Mla* one = nullptr;
  bool alike = true;
  for (std::int64_t l = 0; l < network->layer_count(); ++l) {
    const BlockConfig& block = network->block(l);
    if (!block.attention) continue;
    if (!block.attention->mla) {
      ++heads;
      continue;
    }
    ++latent;
    alike = alike && (!one || *one == *block.attention->mla);
    if (!one) one = &*block.attention->mla;
  }
  if (latent == 0) return std::string(column.formula);
  std::string text = "sum over layers (kv_rank + rope_dim)*dtype bytes: the latent rows (c + d_r) w L";
  if (heads > 0) text += "; layers without latents 2*kv_heads*head_dim*dtype bytes";
  else if (alike) text += fmt::format(" = ({} + {}) w {}", one->kv_rank, one->rope_dim, latent);
  return text;
}

void explain_column_into(Document& document, const Column& column, const Network* network) {
  document.title = std::string(column.key);
  document.paragraph(std::string(column.meaning));
  KeyValues list;
  list.add_text("unit in files", base_unit(column));
  if (const std::string formula = formula_of(column, network); !formula.empty()) list.add_text("formula", formula);
  list.add_text("where", std::string(column.where));
  if (const std::string source = source_of(column.key); !source.empty()) list.add_text("source", source);
  document.add(std::move(list));
}

bool utilization(const Column& column) { return column.key == "mfu" || column.key == "hfu"; }

// FLOPs that may be an expectation: whole numbers as such.
std::string flops_text(double flops) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const bool whole = flops == std::floor(flops) && flops < kExact;
  return (whole ? grouped(static_cast<u128>(flops)) : fmt::format("{:.15g}", flops)) + " FLOP";
}

// What a utilisation divides: for MFU the model's FLOPs as a convention counts them, for HFU those that run; neither need be flops_matmul, which is declared and leaves out what is done again.
void utilization_into(KeyValues& list, const Column& column, const Configuration& c, const RunFlags& run, const std::string& convention) {
  const Utilization u = utilization_of(run, convention, c.network, c.scenario);
  if (column.key == "hfu") list.add_text("executed FLOP", flops_text(u.executed));
  else list.add_text(fmt::format("model FLOP, {}", convention), u.model ? flops_text(*u.model) : "the convention gives none here");
  list.add_text("time and peak", fmt::format("step time {}, {} x {}", run.step_time, run.devices, run.peak));
  list.add_text("divided by", flops_text(u.possible));
}

void run_into(KeyValues& list, const Result& result) {
  if (const Cell* tokens = result.scenario.find("run_tokens")) list.add_text("run tokens", shown(*tokens, Unit::kCount));
  if (const Cell* flops = result.totals.find("flops_matmul")) list.add_text("flops_matmul", shown(*flops, Unit::kFlop));
  if (const Cell* steps = result.totals.find("run_steps")) list.add_text("run_steps", shown(*steps, Unit::kCount));
}

}  // namespace

bool of_a_run(const Column& column) { return utilization(column) || column.key == "run_flops" || column.key == "run_steps"; }
bool of_a_convention(const Column& column) { return column.key == "mfu" || column.key == "convention_flops"; }

void explain_column_into(Document& document, const Column& column) { explain_column_into(document, column, nullptr); }

void explain_column_into(Document& document, const Column& column, const Configuration& configuration, const RunFlags& run, const std::string& convention) {
  explain_column_into(document, column, &configuration.network);
  document.title = fmt::format("{} of {}", column.key, configuration.label);
  const bool generate = configuration.scenario.phase == Phase::kGenerate;
  std::optional<Workload> workload;
  if (!generate) workload = build(configuration.network, configuration.scenario);
  Result result = generate ? count_generation(configuration) : counted_result(configuration.label, configuration.network, configuration.scenario, *workload);
  if (column.key == "flops_ratio" && !generate && configuration.network.has_routes()) {
    const Network dense = dense_twin(configuration.network);
    const double whole = comparable_flops(build(dense, for_dense_twin(dense, configuration.scenario)));
    if (whole > 0) result.totals.set("flops_ratio", Cell::number(comparable_flops(*workload) / whole));
  }
  if (of_a_convention(column)) apply_convention(convention, configuration.network, configuration.scenario, result);
  if (!generate) apply_run(run, configuration.network, configuration.scenario, result);
  if (column.key == "convention_flops") result.totals.set("convention_flops", result.convention_flops);
  KeyValues list;
  scenario_into(list, result.scenario);
  const Cell* value = result.totals.find(std::string(column.key));
  if (!value) value = result.scenario.find(std::string(column.key));
  if (utilization(column) && value) utilization_into(list, column, configuration, run, result.convention);
  else if (of_a_run(column)) run_into(list, result);
  else if (column.key == "convention_flops") list.add_text("convention", fmt::format("{}: {}", result.convention, find_convention(result.convention).summary));
  if (value) list.add_text("result", shown(*value, column.unit));
  document.add(std::move(list));
  if (of_a_convention(column))
    for (const RecordNote& note : result.notes)
      if (note.text.find(result.convention + ":") == 0 || note.text.find("convention " + result.convention) == 0) document.add(Note{note.severity, note.text});
  if (column.key == "convention_flops" && result.convention != "exact" && !generate)
    document.note(fmt::format("`fathom explain convention {} {}` adds up the difference to exact.", result.convention, configuration.label));
  if (of_a_run(column) && generate) {
    document.skipped(fmt::format("{} is about one step; a generation has many", column.key));
    return;
  }
  if (of_a_run(column) && !value) {
    document.skipped(column.key.starts_with("run_") ? "say how many tokens the run has: --phase train --run-tokens 300B" : "say how long the step takes, and on what: --step-time 1.2s --peak 989TFLOP/s --devices 8");
    return;
  }
  if (column.key == "saved_bytes" && !generate) activation_formula_into(document, configuration);
  bool listed = column.key == "saved_bytes";
  for (const auto& [rows, name, title] : {std::tuple{&result.parts, "part", "By part"}, std::tuple{&result.ops, "path", "By op"}}) {
    if (column.key == name) continue;
    ReportTable table(name, title);
    table.add_column(ReportColumn{name, name, Unit::kText, 0});
    table.add_column(ReportColumn{std::string(column.key), std::string(column.label), column.unit == Unit::kFlop || column.unit == Unit::kBytes ? Unit::kCount : column.unit, 0, 6, true});
    for (const Figures& row : *rows) {
      const Cell* cell = row.find(std::string(column.key));
      const Cell* label = row.find(name);
      if (cell && label && !(cell->exact() && *cell->exact() == 0)) table.add_row({*label, *cell});
    }
    if (!table.rows.empty()) listed = true, document.add(std::move(table));
  }
  if (!value && !listed)
    document.skipped(fmt::format("a count has no `{}` here: it belongs to {}, or to another phase or kind of model (fathom predict, run and compare give predicted and measured columns)", column.key, column.where));
}

std::string pairs_with_numbers(const OpSpec& spec) {
  const auto* backward = std::get_if<AttentionBackward>(&spec);
  const Attention* op = backward ? &backward->forward : std::get_if<Attention>(&spec);
  if (!op || op->sequences < 1) return {};
  const std::int64_t queries = op->rows.count / op->sequences, past = op->past;
  const std::string total = to_string(op->pairs);
  if (op->apart) return fmt::format("{} sequences x {} chosen queries x the keys that a query sees on average, of all tokens, rounded up = {}", op->sequences, queries, total);
  std::string each;
  if (op->mask.kind == MaskKind::kFull) each = fmt::format("{} queries x {} keys", queries, past + queries);
  else if (op->mask.window > 0) each = fmt::format("the sum over {} queries at position {} and on of min({}, position)", queries, past + 1, op->mask.window);
  else if (op->mask.chunk > 0) each = fmt::format("the sum over {} queries at position {} and on of 1 + (position - 1) mod {}", queries, past + 1, op->mask.chunk);
  else if (queries == 1) each = fmt::format("{} keys", past + 1);
  else if (past == 0) each = fmt::format("{} x {} / 2", queries, queries + 1);
  else each = fmt::format("({} x {} + {} x {} / 2)", queries, past, queries, queries + 1);
  return fmt::format("{} sequence{} x {} = {}{}", op->sequences, op->sequences == 1 ? "" : "s", each, total,
                     op->expected_pairs >= 0 ? fmt::format(" declared, {:.6g} expected: which rows are chosen decides how many keys they see", op->expected_pairs) : "");
}

void explain_exit_codes_into(Document& document) {
  document.title = "Exit codes";
  ReportTable table("exit-codes", "");
  table.add_column(ReportColumn{"code", "code", Unit::kCount, 0});
  table.add_column(ReportColumn{"name", "says", Unit::kText, 0});
  table.add_column(ReportColumn{"meaning", "when", Unit::kText, 0});
  for (const ExitCode& each : exit_codes()) table.add_row({Cell::count(static_cast<u128>(each.code)), Cell::text(each.brief), Cell::text(each.meaning)});
  document.add(std::move(table));
}

void explain_defaults_into(Document& document) {
  document.title = "The defaults file";
  document.paragraph("Options for every run stand in $XDG_CONFIG_HOME/fathom/defaults.ini, else in ~/.config/fathom/defaults.ini: below [common] for all commands that have such an option, below the name of "
                     "a command for that one; each as `option = value` without the dashes, a flag as yes or no.");
  document.paragraph("What is typed wins over a command's section, and that over [common]. --no-defaults ignores the file. Records and their Reproduce line show the options as if they had been typed.");
  document.code("[common]\ncolor = never\n\n[predict]\non = h200\nphase = decode");
}

namespace {

// A key of network files, which sweeps vary: in the sections that have it.
bool explain_ini_key_into(Document& document, const std::string& name) {
  KeyValues list;
  for (const IniKeyDoc& key : ini_glossary()) {
    if (key.key != name) continue;
    if (list.items.empty()) document.paragraph(std::string(key.meaning) + (key.meaning.ends_with('.') ? "" : "."));
    list.add_text(fmt::format("[{}]", key.section), key.standard.empty() ? key.values : key.values + " [" + key.standard + "]");
  }
  if (list.items.empty()) return false;
  document.title = name;
  list.add_text("kind", "key of network files");
  list.add_text("see", "fathom explain ini");
  document.add(std::move(list));
  return true;
}

}  // namespace

bool explain_term_into(Document& document, const std::string& name) {
  KeyValues list;
  if (const ReportTerm* term = find_term(name)) {
    document.title = std::string(title_of(*term));
    document.paragraph(std::string(term->meaning));
    list.add_text("kind", "word of reports");
    if (!term->see.empty()) list.add_text("see", std::string(term->see));
  } else {
    const auto part = std::find_if(kParts.begin(), kParts.end(), [&](const PartText& each) { return part_name(each.part) == name; });
    if (part == kParts.end()) return explain_ini_key_into(document, name);
    document.title = name;
    document.paragraph(fmt::format("Part of the model: {}.", part->what));
    list.add_text("kind", "part of the model");
    list.add_text("source", part->source);
    list.add_text("see", "fathom explain total");
  }
  document.add(std::move(list));
  return true;
}

bool explain_name_into(Document& document, const std::string& name) {
  for (const NetworkEntry& entry : list_networks()) {
    if (entry.name != name) continue;
    const Network network = builtin_network(name);
    const ParameterCount params = count_parameters(network);
    document.title = name;
    document.paragraph(entry.summary);
    KeyValues list;
    list.add_text("kind", "built-in model");
    list.add_text("inputs", fmt::format("width {}, {} layers, vocabulary {}", grouped(static_cast<u128>(network.width)), network.layer_count(), grouped(static_cast<u128>(network.vocab))));
    list.add_text("formula", "parameters: every matrix, bias, gain and table once; active: k of E experts");
    list.add_text("result", fmt::format("{} parameters, {} active", grouped(params.total.value()), grouped(params.active.value())));
    list.add_text("source", "models/networks; models/params.hpp");
    document.add(std::move(list));
    document.note(fmt::format("`fathom count {}` counts a step of it; `fathom explain total {}` adds it up.", name, name));
    return true;
  }
  for (const auto& [machine_name, summary] : list_machine_names()) {
    if (machine_name != name) continue;
    document.title = name;
    document.paragraph(summary);
    KeyValues list;
    list.add_text("kind", "machine");
    if (name != "this-machine") {
      const Machine machine = load_machine(name);
      for (const Peak& peak : machine.peaks)
        for (const auto& [threads, rate] : peak.rate)
          list.add_text(fmt::format("{} peak{}", dtype_name(peak.dtype), peak.rate.size() > 1 ? fmt::format(", {} threads", threads) : ""), format_value(rate.value, Unit::kFlopRate), rate.source);
    }
    list.add_text("source", name == "this-machine" ? "probed here: fathom calibrate" : "models/machines: data sheets, and fits to measured kernels");
    document.add(std::move(list));
    document.note(fmt::format("`fathom predict MODEL --on {}` predicts for it.", name));
    return true;
  }
  for (const auto& [backend_name, summary] : list_backend_names()) {
    if (backend_name != name) continue;
    document.title = name;
    document.paragraph(summary);
    KeyValues list;
    list.add_text("kind", "backend");
    list.add_text("source", "kernels/");
    document.add(std::move(list));
    document.note(fmt::format("`fathom run MODEL --backend {}` runs on it.", name));
    return true;
  }
  return false;
}

}  // namespace fathom
