// fathom trace: the timeline of one step (Chrome/Perfetto JSON), predicted and measured side by side, and the routing map.
#include <fmt/format.h>

#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "reports/json_writer.hpp"
#include "reports/save.hpp"
#include "tools/routing_view.hpp"
#include "tools/timed.hpp"

namespace fathom {
namespace {

struct TraceArgs {
  ModelFlags model;
  ScenarioFlags scenario;
  TimedFlags timed;
  OutputFlags output;
  std::string timeline;
  std::string text;
  bool has_text = false;
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

int run_trace(TraceArgs flags) {
  check_output_flags(flags.output);
  Record notes;
  if (flags.has_text && flags.text.empty()) throw_input("a text of no bytes has no token to route", {"", 0, "--text"});
  if (flags.has_text && flags.scenario.seq.empty()) flags.scenario.seq = fmt::format("{}", flags.text.size());
  std::vector<Timed> timed = make_timed(expand(flags.model, flags.scenario, false, notes.notes));
  if (timed.size() != 1) throw_input("trace shows one configuration at a time", {"", 0, "MODEL"});
  Timed& one = timed[0];
  const bool wants_times = !flags.timeline.empty();
  const Backend& runner = backend(flags.timed.backend);
  BindOptions options;
  options.threads = flags.timed.threads;
  options.seed = flags.timed.seed;
  options.norm_epsilon = one.configuration.network.norm_epsilon;
  one.execution = runner.bind(*one.workload, options);
  if (!flags.text.empty()) write_text(*one.execution, flags.text);
  if (wants_times) {
    const Machine machine = resolve_machine(flags.timed.on, flags.output.quiet);
    predict_all(timed, machine, flags.timed);
    save_file(flags.timeline, chrome_trace(*one.workload, one.raw, measure_spans(*one.execution), one.configuration.label));
  }
  ReportTable routing = routing_table({}, {});
  Document document;
  document.title = fmt::format("fathom trace: {}", one.configuration.label);
  if (wants_times) document.paragraph(fmt::format("Timeline written to `{}`: open it in Perfetto or chrome://tracing; one track is predicted, one measured.", flags.timeline));
  if (one.configuration.network.has_routes()) {
    const std::int64_t tokens = one.workload->stream().queries;
    std::string text;
    for (std::int64_t i = 0; i < tokens && !flags.text.empty(); ++i) text.push_back(flags.text[static_cast<size_t>(i) % flags.text.size()]);
    const std::vector<LayerRouting> layers = run_and_read_routing(*one.execution, tokens);
    routing = routing_table(layers, text);
    add_routing_view(document, layers, text, flags.classes.empty() ? builtin_classes() : read_classes(flags.classes), one.configuration.label);
  } else {
    document.note("no block of this network is routed: every token takes every block");
  }
  return emit_document(document, flags.output, &routing);
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
  const CLI::Option* text = command->add_option("--text", flags->text, "bytes to route, for models with a byte vocabulary")->type_name("TEXT");
  command->add_option("--classes", flags->classes, "file of token classes (name, blank, bytes) [space, digits, letters, punctuation]")->type_name("FILE");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom trace demo-8x12 --text 'routed depth'\n  fathom trace mod-60m --seq 512 --timeline step.json");
  command->callback([flags, text, &exit_code] {
    flags->has_text = text->count() > 0;
    exit_code = run_trace(*flags);
  });
}

}  // namespace fathom
