#include "tools/calibrate_cpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/predict/calibrate.hpp"
#include "lib/predict/handover.hpp"
#include "models/builder.hpp"
#include "models/calibration.hpp"
#include "models/machine_ini.hpp"
#include "models/registry.hpp"
#include "reports/run_facts.hpp"
#include "reports/save.hpp"
#include "tools/calibrate_plan.hpp"
#include "tools/host.hpp"
#include "tools/interrupt.hpp"
#include "tools/machines.hpp"
#include "tools/observer.hpp"
#include "tools/timed.hpp"

namespace fathom {
namespace {

constexpr int kMaxRounds = 40;
constexpr std::int64_t kBracketedUses = 4;  // of an op that many layers share, in a pass
constexpr double kDisturbed = 0.1;       // A/A spread of a whole pass beyond which it is measured again
constexpr double kShareAgain = 0.15;     // of the time, for all that is
constexpr double kTrustSeconds = 3;      // that a guess counts for beside what was seen
constexpr double kWholeSeconds = 82;     // of a calibration whose time nobody gave: slow probes leave less for the workloads
constexpr double kLeastShare = 0.5;      // of the time, whatever the probes took

struct Designed {
  CalibrationCase source;
  std::unique_ptr<Workload> workload;
  CalibrationCost cost;     // as guessed from the probed rates
  Measurement measurement;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::vector<CalibrationCase> designed(const CpuCalibrationFlags& flags) {
  std::vector<CalibrationCase> cases;
  for (const std::string& name : flags.dtypes) {
    const DType dtype = parse_dtype(name);
    if (flags.models.empty()) {
      for (CalibrationCase& each : default_calibration_set(dtype)) cases.push_back(std::move(each));
      continue;
    }
    CalibrationSetOptions options;
    options.dtype = dtype;
    for (const std::string& model : flags.models)
      for (CalibrationCase& each : calibration_set(load_network(model), options)) cases.push_back(std::move(each));
  }
  return cases;
}

// Up to how many rows a product runs by the code that one row runs by; asked of the backend with a network too small to matter. 0: as far as was asked.
std::int64_t rows_of_first_path(DType dtype, int threads) {
  constexpr std::int64_t kMost = 32;
  std::string first;
  for (std::int64_t rows = 1; rows <= kMost; ++rows) {
    Scenario scenario;
    scenario.phase = Phase::kDecode;
    scenario.batch = rows;
    scenario.context = 8;
    scenario.dtype = scenario.kv_dtype = dtype;
    const Workload workload = build(small_network(small_shapes().front(), 1), scenario);
    BindOptions bind;
    bind.threads = threads;
    const std::unique_ptr<Execution> execution = backend("cpu").bind(workload, bind);
    for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i) {
      const auto* gemm = std::get_if<Gemm>(&workload.ops()[static_cast<size_t>(i)].spec);
      if (!gemm || gemm->transposed) continue;
      if (rows == 1) first = execution->implementation(i);
      if (execution->implementation(i) != first) return rows - 1;
      break;
    }
  }
  return 0;
}

class Calibrator {
 public:
  Calibrator(const CpuCalibrationFlags& flags, const OutputFlags& output) : flags_(flags), output_(output), progress_(output.quiet) {}

  int run() {
    start_ = system_clock().now();
    observer_ = make_observer("cpu");
    machine_ = probe_this_machine(output_.quiet, flags_.threads);
    catch_interrupts();  // not before: a probe does not look, and nothing would be lost by ending at once
    probed_ = elapsed();
    time_ = flags_.time > 0 ? flags_.time : std::max(kLeastShare * kDefaultSeconds, std::min(kDefaultSeconds, kWholeSeconds - probed_));
    threads_ = flags_.threads > 0 ? flags_.threads : machine_.default_threads();
    build_cases();
    measure_cases();
    if (interrupted()) throw Stopped();
    normalise();
    fit();
    return report();
  }

 private:
  double elapsed() const { return system_clock().now() - start_; }

  void build_cases() {
    PredictOptions options;
    options.threads = threads_;
    for (CalibrationCase& source : designed(flags_)) {
      Designed each;
      each.source = std::move(source);
      try {
        each.workload = std::make_unique<Workload>(build(each.source.network, each.source.scenario));
        for (const Op& op : each.workload->ops())
          if (const Support support = backend("cpu").supports(op.spec); !support.ok) throw_input(support.reason);
      } catch (const Error& error) {
        if (!flags_.models.empty()) throw;
        skipped_.push_back(fmt::format("{}: {}", each.source.label, error.message()));
        continue;
      }
      each.cost = calibration_cost(*each.workload, machine_, predict(*each.workload, machine_, options).seconds, threads_, kBracketedUses);
      const Scenario& s = each.source.scenario;
      each.cost.line = fmt::format("{} x {} {}, {}", each.source.network.name, each.source.network.layer_count(), phase_name(s.phase), dtype_name(s.dtype));
      each.cost.rows = static_cast<double>(s.phase == Phase::kDecode ? s.batch : s.batch * s.length);
      cases_.push_back(std::move(each));
    }
    designed_ = cases_.size();
    // The short ones first: they show what the guesses are worth, so that the long ones are begun, or left out, knowing the time.
    std::stable_sort(cases_.begin(), cases_.end(), [](const Designed& a, const Designed& b) { return a.cost.planned() < b.cost.planned(); });
  }

  // One after the other, each alone: what a pass finds in the caches is what it left there, as in a step that repeats. What there is no time for is decided anew before
  // each; while there is any, nothing is passed through more often than it must be.
  void measure_cases() {
    const double begin = elapsed(), end = begin + (1 - kShareAgain) * time_;
    double guessed = kTrustSeconds, taken = kTrustSeconds;
    std::vector<Designed> waiting = std::move(cases_);
    cases_.clear();
    while (!waiting.empty() && !interrupted()) {
      std::vector<CalibrationCost> costs;
      for (const Designed& each : waiting) costs.push_back(each.cost);
      const std::vector<bool> stays = fit_to_time(costs, (end - elapsed()) * guessed / taken, measured_of_line_);
      const auto next = std::find(stays.begin(), stays.end(), true);
      if (next == stays.end()) break;
      const bool all = std::find(stays.begin(), stays.end(), false) == stays.end();
      double left = 0;
      for (const CalibrationCost& cost : costs) left += cost.planned();
      Designed each = std::move(waiting[static_cast<size_t>(next - stays.begin())]);
      waiting.erase(waiting.begin() + (next - stays.begin()));
      const double before = elapsed(), once = measured(each, all ? std::max(0.0, (end - before) * each.cost.planned() / left) : 0, begin);
      // Of what it took, the part that did not depend on the time it was given.
      const double rounds = std::max(1, each.measurement.step.rounds);
      guessed += each.cost.least();
      taken += once + (elapsed() - before - once) * std::min(1.0, each.cost.passes / (rounds + each.cost.discarded()));
      cases_.push_back(std::move(each));
    }
    for (const Designed& each : waiting) left_out_.push_back(each.source.label);
    measure_disturbed_again(begin);
    progress_.clear();
    for (const Designed& each : cases_) {
      for (const ReferenceMeasurement& r : each.measurement.references) seen_[reference_name(r.name, each.measurement.placement)].push_back(r.p25);
      for (const auto& [name, noise] : each.measurement.class_noise) noises_[name].push_back(noise);
    }
  }

  // Seconds that it took to get ready.
  double measured(Designed& each, double seconds, double begin) {
    const double ready = elapsed();
    BindOptions bind;
    bind.threads = threads_;
    bind.norm_epsilon = each.source.network.norm_epsilon;
    bind.stop = interrupted;
    bind.fill = each.source.scenario.phase == Phase::kTrain ? FillKind::kTraining : FillKind::kTest;
    const std::unique_ptr<Execution> execution = backend("cpu").bind(*each.workload, bind);
    // How many rows pass the routers does not matter: rows that are drawn are no points. Centring them takes hundreds of passes.
    if (each.source.scenario.phase == Phase::kDecode) execution->vary_tokens(true);
    const double once = elapsed() - ready;
    MeasureOptions options;
    options.raw_share = 0;
    options.warmup = each.cost.discarded() - 1;
    options.min_rounds = each.cost.passes - each.cost.discarded();
    options.bracketed_uses = kBracketedUses;
    options.max_rounds = kMaxRounds;
    options.target_spread = 0.005;
    options.nominal = nominal_;
    options.interrupted = interrupted;
    options.seconds = std::max(0.0, seconds - once);
    options.progress = [&](const MeasureProgress& p) {
      progress_.show(fmt::format("calibrating: {} (round {})", each.source.label, p.round), std::min(1.0, (elapsed() - begin) / time_), elapsed());
    };
    Execution* one = execution.get();
    Measurement m = std::move(measure({&one, 1}, options, system_clock(), nullptr).front());
    for (const ReferenceMeasurement& r : m.references) nominal_.emplace(r.name, r.p25);
    measured_of_line_[each.cost.line].push_back(each.cost.rows);
    each.measurement = std::move(m);
    return once;
  }

  // What something disturbed is measured once more, the worst first while there is time, and the quieter of the two stands.
  void measure_disturbed_again(double begin) {
    std::vector<size_t> order;
    for (size_t i = 0; i < cases_.size(); ++i)
      if (cases_[i].measurement.step.normalised_noise > kDisturbed) order.push_back(i);
    const auto noise = [this](size_t i) { return cases_[i].measurement.step.normalised_noise; };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return noise(a) > noise(b); });
    for (const size_t i : order) {
      const double left = begin + time_ - elapsed();
      if (interrupted() || left < 0) break;
      if (cases_[i].measurement.seconds_spent > left) continue;  // another one may still fit
      Measurement before = std::move(cases_[i].measurement);
      measured(cases_[i], kShareAgain * time_ / 10, begin);
      ++measured_again_;
      if (!(noise(i) < before.step.normalised_noise)) cases_[i].measurement = std::move(before);
    }
  }

  static std::string reference_name(const std::string& name, Placement placement) { return placement == Placement::kApart ? name + "_apart" : name; }

  // Everything was measured relative to the first run's references; the machine's typical state is the median over all runs in which its cores lay alike.
  void normalise() {
    for (const auto& [name, values] : seen_) machine_.references[name] = median(values);
    for (Designed& each : cases_)
      for (int i = 0; i < static_cast<int>(each.workload->ops().size()); ++i) {
        OpMeasurement& op = each.measurement.ops[i];
        const auto from = nominal_.find(op.reference);
        const auto to = machine_.references.find(reference_name(op.reference, each.measurement.placement));
        if (from != nominal_.end() && from->second > 0 && to != machine_.references.end()) op.seconds *= to->second / from->second;
      }
    for (const auto& [name, values] : noises_) machine_.noise[name] = median(values);
  }

  void fit() {
    std::vector<CalibrationRun> runs;
    for (const Designed& each : cases_) runs.push_back({each.workload.get(), &each.measurement, kReferenceBytes});
    StreamedRows streamed;
    for (const std::string& name : flags_.dtypes) {
      const DType dtype = parse_dtype(name);
      try {
        if (const std::int64_t rows = rows_of_first_path(dtype, threads_); rows > 0) streamed[dtype] = rows;
      } catch (const Error&) {
        continue;  // a type that this machine does not run
      }
    }
    // The file says how the cores lay most of the time; points of both placements are fitted together.
    std::map<Placement, int> lay;
    for (const Designed& each : cases_) ++lay[each.measurement.placement];
    apart_ = lay[Placement::kApart];
    machine_ = placed(machine_, apart_ > lay[Placement::kTogether] ? Placement::kApart : lay[Placement::kTogether] > 0 ? Placement::kTogether : Placement::kUnknown);
    const std::vector<CalibrationPoint> points = calibration_points(machine_, runs, threads_);
    points_ = points.size();
    fit_points(machine_, points, threads_, streamed);
    check_machine(machine_);
  }

  // One line of what was done, for people: in the report and at the head of the file.
  std::string summary() const {
    std::string text = fmt::format("{:.1f} s: probes {:.1f}, {} of {} workloads {:.1f}", elapsed(), probed_, cases_.size(), designed_, elapsed() - probed_);
    for (size_t i = 0; i < left_out_.size(); ++i) text += (i == 0 ? "; no time for " : "; ") + left_out_[i];
    return text;
  }

  int report() {
    const std::string done = summary(), text = "# Calibrated in " + done + "\n" + write_machine_ini(machine_);
    std::vector<std::string> files, reports;
    for (const std::string& path : output_.save) (std::filesystem::path(path).extension() == ".ini" ? files : reports).push_back(path);
    if (files.empty()) files.push_back(this_machine_file());
    for (const std::string& path : files)
      if (!path.empty()) save_file(path, text);
    Document document;
    document.title = fmt::format("{} calibrated", machine_.board);
    KeyValues facts;
    facts.add_text("machine file", files.front().empty() ? "not kept: there is no cache folder; give --save FILE.ini" : files.front());
    facts.add_text("hash", machine_.hash());
    facts.add_text("threads", std::to_string(threads_));
    facts.add_text("time", done);
    facts.add_text("fitted from", fmt::format("{} ops: {} product curves, {} classes", points_, machine_.gemm_curves.size(), machine_.class_fits.size()));
    if (measured_again_ > 0) facts.add_text("measured again", fmt::format("{} workloads that something had disturbed", measured_again_));
    if (threads_ > 1) facts.add_text("cores", fmt::format("with last caches of their own during {} of {} workloads, sharing one during the others", apart_, cases_.size()));
    const auto state = observer_ ? observer_->observe() : std::map<std::string, double>{};
    for (const auto& [name, value] : state) {
      facts.items.push_back(run_fact(name, Cell::number(value)));
      facts.items.back().source = "mean over the calibration";
    }
    document.add(facts);
    if (const auto foreign = state.find("foreign_cpu"); foreign != state.end() && foreign->second > 0.1)
      document.warning(fmt::format("other processes used {:.2f} cores meanwhile: calibrate again on an idle machine before trusting predictions", foreign->second));
    for (const std::string& s : skipped_) document.skipped(s);
    document.add(fits());
    document.add(noise());
    OutputFlags print = output_;
    print.save = reports;
    OtherForms forms;
    forms.asked = fmt::format("dtype {}, {} thread{}, {}", fmt::join(flags_.dtypes, " / "), threads_, threads_ == 1 ? "" : "s", flags_.models.empty() ? "networks of common widths" : fmt::format("{}", fmt::join(flags_.models, ", ")));
    set_host_facts(forms.environment, "cpu", threads_);
    return emit_document(document, print, forms);
  }

  ReportTable fits() const {
    ReportTable table("classes", "Classes");
    table.caption = "Interval: 10 % and 90 % quantiles of measured / predicted where each point is predicted without itself, widened below 30 points.";
    table.add_column(ReportColumn{"class", "class", Unit::kText, 0});
    table.add_column(ReportColumn{"dtype", "type", Unit::kText, 1});
    table.add_column(ReportColumn{"points", "points", Unit::kCount, 0});
    table.add_column(ReportColumn{"low", "low", Unit::kRatio, 0, 3});
    table.add_column(ReportColumn{"high", "high", Unit::kRatio, 0, 3});
    for (const ClassFit& f : machine_.class_fits)
      if (f.threads == threads_)
        table.add_row({Cell::text(f.name), Cell::text(std::string(dtype_name(f.dtype))), Cell::count(static_cast<u128>(f.points)), Cell::number(f.residual_low), Cell::number(f.residual_high)});
    return table;
  }

  ReportTable noise() const {
    ReportTable table("references", "Reference kernels");
    table.caption = "Nominal time, how far it moved between the workloads, and the A/A spread of the ops that are bracketed by it.";
    table.add_column(ReportColumn{"class", "class", Unit::kText, 0});
    table.add_column(ReportColumn{"nominal_s", "nominal", Unit::kSeconds, 0, 3});
    table.add_column(ReportColumn{"range", "slowest / fastest", Unit::kRatio, 0, 3});
    table.add_column(ReportColumn{"noise", "A/A spread", Unit::kPercent, 0});
    for (const auto& [name, values] : seen_) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      const auto spread = noises_.find(name.substr(0, name.find("_apart")));
      table.add_row({Cell::text(name), Cell::number(machine_.references.at(name)), Cell::number(*high / *low), spread == noises_.end() ? Cell() : Cell::number(median(spread->second))});
    }
    return table;
  }

  const CpuCalibrationFlags& flags_;
  const OutputFlags& output_;
  Progress progress_;
  std::unique_ptr<MachineObserver> observer_;
  Machine machine_;
  int threads_ = 1;
  double time_ = 0;  // seconds for the workloads
  std::vector<Designed> cases_;
  size_t designed_ = 0;
  std::map<std::string, std::vector<double>> measured_of_line_;
  std::vector<std::string> skipped_, left_out_;
  std::map<std::string, double> nominal_;
  std::map<std::string, std::vector<double>> seen_, noises_;
  double start_ = 0, probed_ = 0;
  size_t points_ = 0;
  int measured_again_ = 0;
  int apart_ = 0;  // workloads during which the cores had last caches of their own
};

}  // namespace

int calibrate_cpu(const CpuCalibrationFlags& flags, const OutputFlags& output) { return Calibrator(flags, output).run(); }

}  // namespace fathom
