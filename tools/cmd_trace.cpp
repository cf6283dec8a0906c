// fathom trace: the timeline of one step or generation (Chrome/Perfetto JSON), predicted and measured side by side, and the routing map.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "models/builder.hpp"
#include "reports/csv.hpp"
#include "reports/format.hpp"
#include "reports/record_tables.hpp"
#include "reports/save.hpp"
#include "tools/generation.hpp"
#include "tools/host.hpp"
#include "tools/interrupt.hpp"
#include "tools/results.hpp"
#include "tools/routing_view.hpp"
#include "tools/timed.hpp"
#include "tools/timeline.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct TraceArgs {
  ModelFlags model;
  ScenarioFlags scenario;
  TimedFlags timed;
  OutputFlags output;
  std::string timeline;
  std::string text;
  std::string classes;
};

// The text's bytes as `length` tokens, cut or repeated.
std::vector<std::int32_t> text_tokens(const std::string& text, std::int64_t length) {
  std::vector<std::int32_t> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i % text.size()]);
  return tokens;
}

void write_text(Execution& execution, const std::string& text) {
  const Workload& w = execution.workload();
  if (w.stream().vocab < 256) throw_input("--text gives bytes as tokens, but the vocabulary is smaller than 256", {"", 0, "--text"});
  for (size_t t = 0; t < w.tensors().size(); ++t) {
    if (w.tensors()[t].name != "tokens" || w.tensors()[t].role != Role::kInput) continue;
    const std::vector<std::int32_t> tokens = text_tokens(text, w.tensors()[t].rows);
    execution.write({static_cast<TensorId>(t), 0, 0}, std::vector<float>(tokens.begin(), tokens.end()));
  }
}

// What ran: passes with their times where a timeline is wanted, and the routing of every token of the first sequence that passed the blocks.
struct Traced {
  std::vector<TracedPass> passes;
  std::vector<LayerRouting> layers;
  std::vector<std::int32_t> generated;  // tokens of the first sequence
};

BindOptions trace_options(const Network& network, const TimedFlags& flags) {
  BindOptions options;
  options.threads = flags.threads;
  options.seed = flags.seed;
  options.norm_epsilon = network.norm_epsilon;
  options.stop = interrupted;
  return options;
}

Traced trace_step(Timed& timed, const TraceArgs& flags, bool routed) {
  Traced traced;
  timed.execution = backend(flags.timed.backend).bind(*timed.workload, trace_options(timed.configuration.network, flags.timed));
  if (!flags.text.empty()) write_text(*timed.execution, flags.text);
  if (!flags.timeline.empty()) {
    timed.execution->run();  // warm-up
    traced.passes.push_back({"", timed.workload, timed.raw, run_and_time(*timed.execution)});
  }
  if (routed) traced.layers = run_and_read_routing(*timed.execution, timed.workload->stream().queries);
  return traced;
}

// The prompt's pass and one per further token; the last token passes no block. It is generated twice where times are wanted: reading the routing takes
// time between the ops.
Traced trace_generation(const Configuration& c, const TraceArgs& flags, const Machine* machine, std::vector<RecordNote>& notes) {
  Traced traced;
  const BoundGeneration bound = bind_generation(c, flags.timed);
  if (!flags.text.empty()) write_text(*bound.prefill, flags.text);
  GenerateOptions options = generate_options(c, flags.timed);
  calibrate_generation(*bound.prefill, *bound.decode, options);
  if (const std::string note = thresholds_note(bound, c, flags.timed); !note.empty())
    notes.push_back({Note::Severity::kNote, note + "; they hold for the prompt too, so another --tokens may change which of its tokens take a block"});
  options.progress = [](std::int64_t) { return !interrupted(); };
  options.pass = [&](ProgramExecution& execution) { append(traced.layers, run_and_read_routing(execution, execution.workload().stream().queries)); };
  traced.generated = generate(*bound.prefill, *bound.decode, options).tokens[0];
  if (!machine || interrupted()) return traced;
  std::vector<std::vector<Span>> spans;
  options.pass = [&](ProgramExecution& execution) { spans.push_back(run_and_time(execution)); };
  generate(*bound.prefill, *bound.decode, options);
  const PredictOptions how = predict_options(*machine, flags.timed);
  for (size_t i = 0; i < spans.size(); ++i) {
    const Scenario step = i == 0 ? generation_prefill(c.scenario) : generation_decode(c.scenario, c.scenario.length + static_cast<std::int64_t>(i));
    const auto workload = std::make_shared<const Workload>(build(c.network, step));
    traced.passes.push_back({i == 0 ? "prompt" : fmt::format("token {}", i + 1), workload, predict(*workload, *machine, how), std::move(spans[i])});
  }
  return traced;
}

// Where the time of the passes went, and that of their ops where there is one list of them.
void add_times(Result& result, const std::vector<TracedPass>& passes) {
  double measured = 0;
  std::vector<double> seconds(result.ops.size(), 0.0);
  for (const TracedPass& pass : passes) {
    measured += pass.measured_s();
    if (result.ops.empty()) continue;
    const std::vector<Instance> instances = pass.workload->instances();
    for (size_t i = 0; i < pass.spans.size(); ++i) seconds[static_cast<size_t>(instances[i].op)] += pass.spans[i].seconds;
  }
  for (size_t i = 0; i < seconds.size(); ++i) result.ops[i].set("measured_s", Cell::number(seconds[i]));
  result.totals.set("measured_s", Cell::number(measured));
  result.totals.set("samples", Cell::count(1));
  result.notes.push_back({Note::Severity::kNote, "measured once, op by op: a timeline and no measurement; fathom compare measures"});
}

// Blocks that every token takes, without running anything.
RoutingRecord unrouted(const Network& network, std::int64_t tokens) {
  RoutingRecord routing;
  routing.tokens = tokens;
  for (std::int64_t layer = 0; layer < network.layer_count(); ++layer) routing.layers.push_back({static_cast<int>(layer), false, {}, {}});
  return routing;
}

Document trace_document(const Record& record, const TraceArgs& flags) {
  const Result& result = record.results[0];
  Document document;
  document.title = fmt::format("fathom trace: {}", result.model);
  if (!flags.timeline.empty()) {
    document.paragraph(fmt::format("Timeline written to `{}`: open it in Perfetto or chrome://tracing; one track is predicted, one measured.", flags.timeline));
    double ops = 0;
    for (const Figures& op : result.ops) ops += op.number("measured_s") > 0 ? op.number("measured_s") : 0;
    const double whole = result.totals.number("measured_s");
    const Cell* predictor = record.environment.find("predictor");
    document.paragraph(fmt::format("{} was predicted to take {} ({}) and took {} in one pass, op by op{}.", result.scenario.has("tokens") ? "The generation" : "The step",
                                   format_value(result.totals.number("predicted_s"), Unit::kSeconds), predictor ? exact_text(*predictor) : "",
                                   format_value(whole, Unit::kSeconds),
                                   ops > 0 && whole > ops ? fmt::format(": {} in its ops and {} between them, where the clock is read", format_value(ops, Unit::kSeconds), format_value(whole - ops, Unit::kSeconds)) : ""));
    add_sum_tables(document, record);
  }
  if (flags.output.ops) {
    ViewOptions options;
    options.page = flags.output.format == "md" || flags.output.format == "html";
    document.heading("Ops of " + result.model);
    add_op_tables(document, result, options);
  }
  const bool routed = std::any_of(result.routing.layers.begin(), result.routing.layers.end(), [](const auto& layer) { return layer.routed; });
  if (routed)
    add_routing(document, result.routing, result.model);
  else
    document.note("no block of this network is routed: every token takes every block");
  for (const RecordNote& note : record.notes) document.add(Note{note.severity, note.text});
  return document;
}

int run_trace(TraceArgs flags, const CLI::App& command) {
  check_output_flags(flags.output);
  Record record = new_record("trace");
  if (!flags.text.empty() && flags.scenario.seq.empty() && flags.scenario.prompt.empty()) flags.scenario.seq = fmt::format("{}", flags.text.size());
  const std::vector<Configuration> configurations = expand(flags.model, flags.scenario, false, record.notes);
  if (configurations.size() != 1) throw_input("trace shows one configuration at a time", {"", 0, "MODEL"});
  const Configuration& asked = configurations[0];
  const Network& network = asked.network;
  const Scenario& s = asked.scenario;
  const bool wants_times = !flags.timeline.empty(), routed = network.has_routes(), generates = s.phase == Phase::kGenerate;
  const std::vector<TokenClass> classes = flags.classes.empty() ? builtin_classes() : read_classes(flags.classes);
  if (!wants_times) note_unused(command, {"--on", "--predictor", "--launch", "--kernels"}, "only --timeline predicts", record.notes);
  if (flags.text.empty()) note_unused(command, {"--classes"}, "only --text has tokens of a class", record.notes);
  if (!routed) note_unused(command, {"--classes"}, "no block is routed", record.notes);
  if (!routed && !wants_times) note_unused(command, {"--backend", "--seed", "--threads", "--text"}, "no block is routed and there is no --timeline, so nothing runs", record.notes);
  if (!generates) note_unused(command, {"--temperature"}, "only --phase generate chooses tokens", record.notes);
  if (generates) {
    note_unused(command, {"--ops"}, kNoOpsOfGeneration, record.notes);
    flags.output.ops = false;
  }
  catch_interrupts();
  backend(flags.timed.backend);  // an unknown one is refused before anything is counted
  std::vector<Timed> timed;
  if (!generates) timed = make_timed(configurations);
  Result result = generates ? count_generation(asked) : counted_result(asked.label, network, s, *timed[0].workload);
  result.scenario.set("backend", Cell::text(flags.timed.backend));
  if (generates) result.scenario.set("temperature", Cell::number(flags.timed.temperature));
  if (flags.timed.threads > 0) result.scenario.set("threads", Cell::count(static_cast<u128>(flags.timed.threads)));
  std::optional<Machine> machine;
  if (wants_times) machine = resolve_machine(flags.timed.on, flags.output.quiet);
  if (machine && machine->kind == MachineKind::kGpu)
    throw_input(fmt::format("'{}' is a GPU, but the ops run on the {} backend", machine->name, flags.timed.backend), {"", 0, "--on"}, "a timeline has predicted and measured times of one machine");
  if (wants_times && generates) predict_generation(result, asked, *machine, flags.timed);
  if (wants_times && !generates) {
    predict_all(timed, *machine, flags.timed);
    add_prediction(result, timed[0], *machine);
  }
  Traced traced;
  if (wants_times || routed) traced = generates ? trace_generation(asked, flags, machine ? &*machine : nullptr, record.notes) : trace_step(timed[0], flags, routed);
  if (interrupted()) throw Stopped();
  if (wants_times) {
    save_file(flags.timeline, chrome_trace(traced.passes, asked.label));
    add_times(result, traced.passes);
  }
  const std::int64_t tokens = generates ? s.length + s.tokens - 1 : timed[0].workload->stream().queries;
  result.routing = routed ? routing_record(traced.layers) : unrouted(network, tokens);
  result.routing.complete = true;
  if (generates && s.tokens > 1) result.routing.prompt = s.length;
  if (!flags.text.empty()) {
    std::vector<std::int32_t> all = text_tokens(flags.text, generates ? s.length : tokens);
    all.insert(all.end(), traced.generated.begin(), traced.generated.end());
    all.resize(static_cast<size_t>(tokens));
    add_text(result.routing, all, classes);
  }
  record.results.push_back(std::move(result));
  if (machine) record.environment.set("predictor", Cell::text(std::string(predictor_name(predict_options(*machine, flags.timed).predictor))));
  if (wants_times || routed) set_host_facts(record.environment, flags.timed.backend, flags.timed.threads);
  OtherForms forms;
  forms.asked = asked_text(record);
  forms.environment = record.environment;
  forms.ops = true;
  forms.json = [&] { return write_record(record); };
  forms.csv = [&] { return render_csv(flags.output.ops ? record_table(record, "ops") : routing_table(record.results[0].routing), "\n"); };
  return emit_document(trace_document(record, flags), flags.output, forms);
}

}  // namespace

void add_trace(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TraceArgs>();
  CLI::App* command = app.add_subcommand("trace", "timeline of a step or generation (Chrome/Perfetto) and the routing map");
  add_model_flags(*command, flags->model);
  add_scenario_flags(*command, flags->scenario);
  add_predict_flags(*command, flags->timed);
  command->add_option("--backend", flags->timed.backend, "cpu or reference [cpu]")->type_name("B")->group("Machine");
  command->add_option("--seed", flags->timed.seed, "of weights and tokens [1]")->type_name("N")->group("Machine");
  add_temperature_flag(*command, flags->timed);
  command->add_option("--timeline", flags->timeline, "write the Chrome/Perfetto trace to FILE.json")->type_name("FILE");
  command->add_option("--text", flags->text, "bytes to route, for models with a byte vocabulary")->type_name("TEXT");
  command->add_option("--classes", flags->classes, "file of token classes (name, blank, bytes) [space, digits, letters, punctuation]")->type_name("FILE");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom trace demo-8x12 --text 'routed depth'\n  fathom trace mod-60m --seq 512 --timeline step.json\n  fathom trace mod-tiny --phase generate --text 'routed depth' --tokens 20");
  command->callback([flags, command, &exit_code] { exit_code = run_trace(*flags, *command); });
}

}  // namespace fathom
