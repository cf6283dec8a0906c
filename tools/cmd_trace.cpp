// fathom trace: the timeline of one step (Chrome/Perfetto JSON), predicted and measured side by side, and the routing map.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "reports/csv.hpp"
#include "reports/format.hpp"
#include "reports/json_writer.hpp"
#include "reports/record_tables.hpp"
#include "reports/save.hpp"
#include "tools/host.hpp"
#include "tools/interrupt.hpp"
#include "tools/results.hpp"
#include "tools/routing_view.hpp"
#include "tools/timed.hpp"
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

struct Span {
  double start = 0, seconds = 0;
};

// One pass, op by op, after one pass that warms up.
std::vector<Span> measure_spans(Execution& execution) {
  execution.run();
  execution.begin_pass();
  Clock& clock = system_clock();
  std::vector<Span> spans(execution.workload().instances().size());
  const double begin = clock.now();
  for (size_t i = 0; i < spans.size(); ++i) {
    if (interrupted()) throw Stopped();
    const double t = clock.now();
    execution.run_instance(static_cast<int>(i));
    spans[i] = {t - begin, clock.now() - t};
  }
  return spans;
}

std::string chrome_trace(const Workload& w, const StepPrediction& prediction, const std::vector<Span>& measured, const std::string& model) {
  JsonWriter json(0);
  json.begin_object().member("displayTimeUnit", "ms").key("otherData").begin_object().member("model", model).end_object();
  json.key("traceEvents").begin_array();
  const auto name_track = [&](int pid, const std::string& name) {
    json.begin_object().member("ph", "M").member("name", "process_name").member("pid", pid).member("tid", 1).key("args").begin_object().member("name", name).end_object().end_object();
  };
  name_track(1, "predicted");
  name_track(2, "measured");
  double at = 0;
  const std::vector<Instance> instances = w.instances();
  for (size_t i = 0; i < instances.size(); ++i) {
    const Op& op = w.ops()[static_cast<size_t>(instances[i].op)];
    const Cost cost = declared_cost(op.spec);
    const double predicted = prediction.ops[instances[i].op].each.seconds;
    const auto event = [&](int pid, double start, double seconds) {
      json.begin_object().member("ph", "X").member("pid", pid).member("tid", 1).member("name", w.path(instances[i])).member("cat", part_name(op.part));
      json.member("ts", start * 1e6).member("dur", seconds * 1e6).key("args").begin_object();
      json.member("kind", kind_name(op.spec)).member("flops_matmul", cost.flops).member("bytes_read", cost.read).member("bytes_written", cost.written).end_object().end_object();
    };
    event(1, at, predicted);
    at += predicted;
    event(2, measured[i].start, measured[i].seconds);
  }
  json.end_array().end_object();
  return json.finish();
}

// The text's bytes as tokens of the first sequence, cut or repeated to the sequence's length.
void write_text(Execution& execution, const std::string& text) {
  const Workload& w = execution.workload();
  if (w.stream().vocab < 256) throw_input("--text gives bytes as tokens, but the vocabulary is smaller than 256", {"", 0, "--text"});
  for (size_t t = 0; t < w.tensors().size(); ++t) {
    if (w.tensors()[t].name != "tokens" || w.tensors()[t].role != Role::kInput) continue;
    std::vector<float> tokens(static_cast<size_t>(w.tensors()[t].rows));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<float>(static_cast<unsigned char>(text[i % text.size()]));
    execution.write({static_cast<TensorId>(t), 0, 0}, tokens);
  }
}

// Where the pass went: predicted and measured time of the step and of its ops.
void add_timeline(Result& result, const Timed& timed, const Machine& machine, const std::vector<Span>& spans) {
  add_prediction(result, timed, machine);
  std::vector<double> seconds(result.ops.size(), 0.0);
  const std::vector<Instance> instances = timed.workload->instances();
  for (size_t i = 0; i < spans.size(); ++i) seconds[static_cast<size_t>(instances[i].op)] += spans[i].seconds;
  for (size_t i = 0; i < seconds.size(); ++i) result.ops[i].set("measured_s", Cell::number(seconds[i]));
  result.totals.set("measured_s", Cell::number(spans.empty() ? 0.0 : spans.back().start + spans.back().seconds));
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
    document.paragraph(fmt::format("The step was predicted to take {} and took {} in one pass, op by op.", format_value(result.totals.number("predicted_s"), Unit::kSeconds),
                                   format_value(result.totals.number("measured_s"), Unit::kSeconds)));
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
  if (!flags.text.empty() && flags.scenario.seq.empty()) flags.scenario.seq = fmt::format("{}", flags.text.size());
  std::vector<Timed> timed = make_timed(expand(flags.model, flags.scenario, false, record.notes));
  if (timed.size() != 1) throw_input("trace shows one configuration at a time", {"", 0, "MODEL"});
  Timed& one = timed[0];
  const Network& network = one.configuration.network;
  const bool wants_times = !flags.timeline.empty(), routed = network.has_routes();
  const std::vector<TokenClass> classes = flags.classes.empty() ? builtin_classes() : read_classes(flags.classes);
  if (!wants_times) note_unused(command, {"--on", "--predictor", "--launch", "--kernels"}, "only --timeline predicts", record.notes);
  if (flags.text.empty()) note_unused(command, {"--classes"}, "only --text has tokens of a class", record.notes);
  if (!routed) note_unused(command, {"--classes"}, "no block is routed", record.notes);
  if (!routed && !wants_times) note_unused(command, {"--backend", "--seed", "--threads", "--text"}, "no block is routed and there is no --timeline, so nothing runs", record.notes);
  catch_interrupts();
  const Backend& runner = backend(flags.timed.backend);
  Result result = counted_result(one.configuration.label, network, one.configuration.scenario, *one.workload);
  result.scenario.set("backend", Cell::text(flags.timed.backend));
  if (flags.timed.threads > 0) result.scenario.set("threads", Cell::count(static_cast<u128>(flags.timed.threads)));
  if (wants_times || routed) {
    BindOptions options;
    options.threads = flags.timed.threads;
    options.seed = flags.timed.seed;
    options.norm_epsilon = network.norm_epsilon;
    options.stop = interrupted;
    one.execution = runner.bind(*one.workload, options);
    if (!flags.text.empty()) write_text(*one.execution, flags.text);
  }
  if (wants_times) {
    const Machine machine = resolve_machine(flags.timed.on, flags.output.quiet);
    predict_all(timed, machine, flags.timed);
    const std::vector<Span> spans = measure_spans(*one.execution);
    save_file(flags.timeline, chrome_trace(*one.workload, one.raw, spans, one.configuration.label));
    add_timeline(result, one, machine, spans);
  }
  const std::int64_t tokens = one.workload->stream().queries;
  result.routing = routed ? routing_record(run_and_read_routing(*one.execution, tokens)) : unrouted(network, tokens);
  if (interrupted()) throw Stopped();
  result.routing.complete = true;
  if (!flags.text.empty()) {
    std::string text;
    for (std::int64_t i = 0; i < tokens; ++i) text.push_back(flags.text[static_cast<size_t>(i) % flags.text.size()]);
    add_text(result.routing, text, classes);
  }
  record.results.push_back(std::move(result));
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
  CLI::App* command = app.add_subcommand("trace", "timeline of a step (Chrome/Perfetto) and the routing map");
  add_model_flags(*command, flags->model);
  add_scenario_flags(*command, flags->scenario);
  add_predict_flags(*command, flags->timed);
  command->add_option("--backend", flags->timed.backend, "cpu or reference [cpu]")->type_name("B")->group("Machine");
  command->add_option("--seed", flags->timed.seed, "of weights and tokens [1]")->type_name("N")->group("Machine");
  command->add_option("--timeline", flags->timeline, "write the Chrome/Perfetto trace to FILE.json")->type_name("FILE");
  command->add_option("--text", flags->text, "bytes to route, for models with a byte vocabulary")->type_name("TEXT");
  command->add_option("--classes", flags->classes, "file of token classes (name, blank, bytes) [space, digits, letters, punctuation]")->type_name("FILE");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom trace demo-8x12 --text 'routed depth'\n  fathom trace mod-60m --seq 512 --timeline step.json");
  command->callback([flags, command, &exit_code] { exit_code = run_trace(*flags, *command); });
}

}  // namespace fathom
