// fathom plan: what a training budget buys, dense and with depth routing.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "lib/error.hpp"
#include "lib/predict/prediction.hpp"
#include "lib/quantity.hpp"
#include "models/builder.hpp"
#include "models/params.hpp"
#include "models/plan/isoflop.hpp"
#include "models/registry.hpp"
#include "reports/format.hpp"
#include "tools/cli.hpp"
#include "tools/machines.hpp"
#include "tools/timed.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct PlanArgs {
  std::vector<std::string> models;
  std::string budgets = "6e18,2e19,1e20";
  std::string params;
  std::string law = "chinchilla-3";
  std::string law_file;
  std::string convention = "exact";
  std::string capacity = "1/8";
  std::string on, predictor, peak;
  double mfu = 0.4;
  std::int64_t every = 2, batch = 128, length = 2048, devices = 1;
  OutputFlags output;
};

double parse_number(std::string_view text, const std::string& flag) {
  double factor = 1;
  if (!text.empty()) {
    const char suffix = text.back();
    factor = suffix == 'k' ? 1e3 : suffix == 'M' ? 1e6 : suffix == 'B' || suffix == 'G' ? 1e9 : suffix == 'T' ? 1e12 : 1;
    if (factor != 1) text.remove_suffix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not a number", flag, text), {}, "write 6e18, 350M or 1.4B");
  if (value <= 0) throw_input(fmt::format("'{}' is not positive", text), {"", 0, flag});
  return value * factor;
}

std::vector<Network> networks_of(const PlanArgs& flags) {
  std::vector<Network> all;
  if (flags.models.empty())
    all = dense_ladder();
  else
    for (const std::string& model : flags.models) all.push_back(load_network(model));
  if (flags.params.empty()) return all;
  const size_t colon = flags.params.find(':');
  if (colon == std::string::npos) throw Error(ErrorKind::kUsage, "--params: write a range such as 60M:1B");
  const double low = parse_number(std::string_view(flags.params).substr(0, colon), "--params");
  const double high = parse_number(std::string_view(flags.params).substr(colon + 1), "--params");
  std::erase_if(all, [&](const Network& network) {
    const double params = count_parameters(network).total.to_double();
    return params < low || params > high;
  });
  if (all.empty()) throw_input(fmt::format("no model has {} parameters", flags.params), {"", 0, "params"});
  return all;
}

Scenario training(const PlanArgs& flags) {
  Scenario s;
  s.phase = Phase::kTrain;
  s.batch = flags.batch;
  s.length = flags.length;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  s.logits = LogitsKind::kAll;
  return s;
}

Document plan_document(const Plan& plan, const PlanOptions& options, const std::string& time_source) {
  Document document;
  document.title = "isoFLOP plan";
  KeyValues facts;
  facts.add_text("batch", fmt::format("{} sequences x {} tokens = {} tokens per step", grouped(static_cast<u128>(options.batch)), grouped(static_cast<u128>(options.length)), grouped(checked_mul(static_cast<u128>(options.batch), static_cast<u128>(options.length)))));
  facts.add_text("counted as", fmt::format("{}; training = 3 x forward; steps to the nearest", options.convention));
  facts.add_text("MoD", fmt::format("block l routed where l mod {} = {}, capacity {}; deeper: the first depth whose forward FLOPs reach the dense model's", options.every, options.every - 1, options.capacity.str()));
  facts.add_text("law", options.law.name, options.law.source);
  facts.add_text("time", time_source);
  document.add(std::move(facts));
  ReportTable rows("plan", "");
  rows.group = 2;
  rows.add_column(ReportColumn{"budget_flops", "budget", Unit::kFlop, 0});
  rows.add_column(ReportColumn{"model", "model", Unit::kText, 0});
  rows.add_column(ReportColumn{"variant", "variant", Unit::kText, 0});
  rows.add_column(ReportColumn{"layers", "layers", Unit::kCount, 1});
  rows.add_column(ReportColumn{"params_total", "params", Unit::kCount, 0});
  rows.add_column(ReportColumn{"forward_flops", "forward / sequence", Unit::kFlop, 2});
  rows.add_column(ReportColumn{"of_dense", "of dense", Unit::kRatio, 1});
  rows.add_column(ReportColumn{"of_optimum", "of optimum", Unit::kRatio, 0});
  rows.add_column(ReportColumn{"steps", "steps", Unit::kCount, 0, 4, true});
  rows.add_column(ReportColumn{"tokens", "tokens", Unit::kCount, 1});
  rows.add_column(ReportColumn{"law_loss", "law's loss", Unit::kNone, 3});
  const bool timed = std::any_of(plan.rows.begin(), plan.rows.end(), [](const PlanRow& r) { return r.step_seconds.has_value(); });
  if (timed) {
    rows.add_column(ReportColumn{"step_s", "step", Unit::kSeconds, 0});
    rows.add_column(ReportColumn{"wall_s", "wall-clock", Unit::kSeconds, 0});
  }
  const auto count = [](u128 value) { return Cell::count(value); };
  for (const PlanRow& r : plan.rows) {
    std::vector<Cell> cells = {Cell::number(r.budget), Cell::text(r.model), Cell::text(r.variant), count(static_cast<u128>(r.layers)), count(r.params),
                               r.forward.integer() ? count(r.forward.count()) : Cell::number(r.forward.value()), Cell::number(r.of_dense), Cell::number(r.of_optimum),
                               count(static_cast<u128>(r.steps)), count(checked_mul(static_cast<u128>(r.steps), static_cast<u128>(options.batch) * static_cast<u128>(options.length))), r.loss ? Cell::number(*r.loss) : Cell()};
    if (timed) {
      cells.push_back(r.step_seconds ? Cell::number(*r.step_seconds) : Cell());
      cells.push_back(r.wall_seconds ? Cell::number(*r.wall_seconds) : Cell());
    }
    rows.add_row(std::move(cells));
  }
  // Wall-clocks of a budget are read against each other: all in the unit of the middle one.
  for (size_t c = rows.columns.size() - (timed ? 2 : 0); c < rows.columns.size(); ++c) {
    std::vector<double> times;
    for (const ReportTable::Row& row : rows.rows)
      if (row.cells[c].is_number()) times.push_back(row.cells[c].value());
    if (times.empty()) continue;
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    rows.columns[c].like = times[times.size() / 2];
  }
  rows.caption = "Forward FLOPs of a sequence: `of dense` over the dense model's, `of optimum` over those of the dense model that the law would train with this budget (below); `tokens` are those of all steps"
                 + std::string(timed ? "; `wall-clock` is steps x step." : ".");
  document.add(std::move(rows));
  ReportTable optima("optima", "The dense optimum by the law");
  optima.add_column(ReportColumn{"budget_flops", "budget", Unit::kFlop, 0});
  optima.add_column(ReportColumn{"params_total", "params", Unit::kCount, 0});
  optima.add_column(ReportColumn{"tokens", "tokens", Unit::kCount, 0});
  optima.add_column(ReportColumn{"forward_flops", "forward / sequence", Unit::kFlop, 0});
  optima.add_column(ReportColumn{"how", "forward from", Unit::kText, 1});
  for (const PlanOptimum& o : plan.optima)
    optima.add_row({Cell::number(o.budget), Cell::number(o.params), Cell::number(o.tokens), Cell::number(o.forward),
                    Cell::text(o.extrapolated ? "the ladder dense-60m ... dense-3b, extrapolated" : "the ladder dense-60m ... dense-3b, log-log between neighbours")});
  document.add(std::move(optima));
  for (const std::string& note : plan.notes) document.skipped(note);
  document.note("The law is fitted to dense models: it gives no loss for MoD rows. Equal FLOPs are not equal tokens, steps or parameters.");
  return document;
}

int run_plan(const CLI::App& command, const PlanArgs& flags) {
  check_output_flags(flags.output);
  std::vector<RecordNote> unread;
  if (flags.peak.empty()) note_unused(command, {"--mfu", "--devices"}, "only --peak RATE supposes a time", unread);
  if (flags.on.empty()) note_unused(command, {"--predictor"}, "only --on MACHINE predicts a time", unread);
  PlanOptions options;
  options.budgets.clear();
  for (size_t at = 0; at <= flags.budgets.size();) {
    const size_t comma = std::min(flags.budgets.find(',', at), flags.budgets.size());
    options.budgets.push_back(parse_number(std::string_view(flags.budgets).substr(at, comma - at), "--budget"));
    at = comma + 1;
  }
  options.batch = flags.batch;
  options.length = flags.length;
  options.convention = flags.convention;
  options.every = flags.every;
  options.capacity = parse_fraction(flags.capacity);
  options.law = flags.law_file.empty() ? find_law(flags.law) : read_law(flags.law_file);
  if (flags.devices < 1) throw_input("there is at least one device", {"", 0, "devices"});
  const double devices = static_cast<double>(flags.devices);
  std::string time_source = "not asked for: --on MACHINE predicts it, --peak RATE with --mfu F supposes it";
  std::shared_ptr<Machine> machine;
  if (!flags.on.empty() && !flags.peak.empty()) throw Error(ErrorKind::kUsage, "--on and --peak exclude each other");
  if (!flags.on.empty()) {
    if (flags.devices != 1) throw_input("--on predicts one device; collectives are not part of a plan", {"", 0, "devices"}, "use --peak and --mfu for several");
    machine = std::make_shared<Machine>(resolve_machine(flags.on, flags.output.quiet));
    TimedFlags timed;
    timed.predictor = flags.predictor;
    PredictOptions predict_options = fathom::predict_options(*machine, timed);
    predict_options.follow_placement = false;
    time_source = fmt::format("{} predictor on {}, one device, bf16, optimizer included; whether the batch fits its memory is not asked", predictor_name(predict_options.predictor), flags.on);
    const Scenario scenario = training(flags);
    options.step_time = [machine, predict_options, scenario](const Network& network) -> std::optional<double> {
      return predict(build(network, scenario), *machine, predict_options).seconds;
    };
  } else if (!flags.peak.empty()) {
    const double rate = parse_flop_rate(flags.peak).value();
    if (!(flags.mfu > 0) || flags.mfu > 1) throw_input("--mfu is a fraction above 0 and at most 1", {"", 0, "mfu"});
    if (!(rate > 0)) throw_input("--peak is positive", {"", 0, "peak"});
    time_source = fmt::format("exact training FLOPs / ({} x {} x {}): an MFU that is supposed, the same for dense and MoD", flags.mfu, flags.peak, flags.devices);
    const Scenario scenario = training(flags);
    const double effective = rate * flags.mfu * devices;
    options.step_time = [scenario, effective](const Network& network) -> std::optional<double> { return build(network, scenario).total().flops.to_double() / effective; };
  }
  tell_notes(unread, flags.output.quiet);
  const std::vector<Network> networks = networks_of(flags);
  std::string names;
  for (const Network& network : networks) names += (names.empty() ? "" : ", ") + network.name;
  OtherForms forms;
  forms.asked = fmt::format("{}, budgets {} FLOP, batch {}, seq {}, dtype bf16, MoD every {} at capacity {}, convention {}{}", names, flags.budgets, flags.batch, grouped(static_cast<u128>(flags.length)), flags.every, options.capacity.str(), flags.convention,
                            flags.on.empty() ? "" : ", machine " + flags.on);
  Document document = plan_document(plan_isoflop(networks, options), options, time_source);
  std::vector<RecordNote> notes;  // of imported files
  for (const Network& network : networks)
    for (const std::string& note : network.notes) notes.push_back({Note::Severity::kNote, network.name + ": " + note});
  for (const RecordNote& note : notes) document.note(note.text);
  tell_notes(notes, flags.output.quiet || flags.output.format != "csv");  // a page has them
  return emit_document(document, flags.output, forms);
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanArgs>();
  CLI::App* command = app.add_subcommand("plan", "what a training budget buys: steps, tokens, FLOPs and time, dense, MoD and deeper MoD");
  command->add_option("MODEL", flags->models, "dense models [the ladder dense-60m ... dense-3b]");
  command->add_option("--budget", flags->budgets, "training FLOPs [6e18,2e19,1e20]")->type_name("C,...");
  command->add_option("--params", flags->params, "only models in this range, such as 60M:1B")->type_name("LO:HI");
  command->add_option("--batch", flags->batch, "sequences per step [128]")->type_name("B");
  command->add_option("--seq", flags->length, "tokens per sequence [2048]")->type_name("S");
  command->add_option("--mod-every", flags->every, "route layer l where l mod M = M-1 [2]")->type_name("M");
  command->add_option("--capacity", flags->capacity, "share of the tokens a routed block takes [1/8]")->type_name("F");
  command->add_option("--convention", flags->convention, "how budgets are counted: exact, full, mod-a, mod-b, mod-c [exact]")->type_name("NAME");
  command->add_option("--law", flags->law, "dense optimum: chinchilla-3, chinchilla-1, epoch-2024 [chinchilla-3]")->type_name("NAME");
  command->add_option("--law-file", flags->law_file, "a law of your own ([law] form, E, A, B, alpha, beta or coefficient, exponent)")->type_name("FILE");
  command->add_option("--on", flags->on, "predict step time on this machine (fathom list machines)")->type_name("MACHINE")->group("Time");
  command->add_option("--predictor", flags->predictor, "light, roofline or calibrated [calibrated where the machine is]")->type_name("P")->check(known_names("--predictor", parse_predictor))->group("Time");
  command->add_option("--peak", flags->peak, "suppose time from a peak rate, such as 989TFLOP/s")->type_name("RATE")->group("Time");
  command->add_option("--mfu", flags->mfu, "share of --peak [0.4]")->type_name("F")->group("Time");
  command->add_option("--devices", flags->devices, "devices that share a step, with --peak [1]")->type_name("N")->group("Time");
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom plan --budget 6e18 --params 60M:1B\n  fathom plan dense-220m --convention mod-b --peak 989TFLOP/s --mfu 0.4 -o md");
  command->callback([flags, command, &exit_code] { exit_code = run_plan(*command, *flags); });
}

}  // namespace fathom
