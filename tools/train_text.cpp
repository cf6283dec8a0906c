#include "tools/train_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/program.hpp"
#include "lib/error.hpp"
#include "models/builder.hpp"

namespace fathom {
namespace {

double ratio(std::int64_t part, std::int64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0; }

bool ends_with(const std::string& text, std::string_view end) { return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0; }

class Trainer {
 public:
  Trainer(const Backend& backend, const TextTraining& training)
      : t_(training), list_(build(training.network, training.scenario)), window_(training.scenario.length + 1), windows_(training.scenario.batch) {
    BindOptions options;
    options.threads = t_.threads;
    options.seed = t_.seed;
    options.fill = FillKind::kTraining;
    options.learning_rate = t_.learning_rate;
    owner_ = backend.bind(list_, options);
    run_ = dynamic_cast<ProgramExecution*>(owner_.get());
    if (!run_) throw_input(fmt::format("backend '{}' cannot train on a text", backend.name()), {"", 0, "--backend"}, "use --backend cpu or reference");
    for (int i = 0; i < run_->instance_count(); ++i) {
      const BoundOp& bound = run_->bound(i);
      for (const OperandView& view : bound.in) {
        const std::string& name = list_.tensors()[static_cast<size_t>(view.at.tensor)].name;
        if (name == "tokens") tokens_ = view.at;
        if (name == "targets") targets_ = view.at;
      }
      if (std::holds_alternative<CrossEntropy>(*bound.spec) && list_.tensors()[static_cast<size_t>(bound.out[0].at.tensor)].name == "loss") loss_ = bound.out[0].at;
    }
    const auto length = static_cast<std::int64_t>(t_.text.size());
    split_ = length - std::max<std::int64_t>(window_, static_cast<std::int64_t>(t_.held_out * static_cast<double>(length)));
    if (split_ < window_) throw_input(fmt::format("a text of {} bytes is too short for windows of {}", length, window_), {"", 0, "--corpus"}, "use a shorter --seq");
  }

  double step(std::int64_t number) {
    std::vector<std::int64_t> starts;
    for (std::int64_t b = 0; b < windows_; ++b)
      starts.push_back(static_cast<std::int64_t>(fill_uniform(t_.seed, "text windows", static_cast<std::uint64_t>(number * windows_ + b)) * static_cast<double>(split_ - window_ + 1)));
    load(starts);
    run_->run();
    return static_cast<double>(run_->read(loss_)[0]);
  }

  // Forward passes over the held-out windows: loss, and the predictors against the selections they learn from.
  void evaluate(TextReport& report) {
    const std::int64_t held = static_cast<std::int64_t>(t_.text.size()) - split_;
    const std::int64_t count = std::max<std::int64_t>(1, held / window_);
    std::map<int, PredictorScore> scores;
    double sum = 0;
    std::int64_t passes = 0;
    for (std::int64_t first = 0; first < count; first += windows_, ++passes) {
      std::vector<std::int64_t> starts;
      for (std::int64_t b = 0; b < windows_; ++b) starts.push_back(split_ + (first + b) % count * window_);  // the last batch repeats the first windows
      load(starts);
      run_->begin_pass();
      for (int i = 0; i < run_->instance_count(); ++i) {
        const BoundOp& bound = run_->bound(i);
        const Op& op = list_.ops()[static_cast<size_t>(bound.op)];
        if (op.pass != Pass::kForward) continue;
        run_->run_instance(i);
        if (std::holds_alternative<RouterLoss>(op.spec) && ends_with(op.leaf, "predict/loss")) add(scores, bound);
      }
      sum += static_cast<double>(run_->read(loss_)[0]);
    }
    report.held_out_loss = sum / static_cast<double>(passes);
    for (const auto& [layer, score] : scores) report.predictors.push_back(score);
  }

  void keep_participation(TextReport& report) const { report.participation = run_->participation(); }
  void forget_participation() { run_->reset_participation(); }

 private:
  // Row b: the window that starts at starts[b]; the target of a byte is the next one.
  void load(const std::vector<std::int64_t>& starts) {
    std::vector<float> tokens, targets;
    for (const std::int64_t start : starts)
      for (std::int64_t i = 0; i + 1 < window_; ++i) {
        tokens.push_back(static_cast<float>(static_cast<unsigned char>(t_.text[static_cast<size_t>(start + i)])));
        targets.push_back(static_cast<float>(static_cast<unsigned char>(t_.text[static_cast<size_t>(start + i + 1)])));
      }
    run_->write(tokens_, tokens);
    run_->write(targets_, targets);
  }

  // inputs of the predictor's loss: logits, selected rows, how many per sequence.
  void add(std::map<int, PredictorScore>& scores, const BoundOp& bound) const {
    PredictorScore& score = scores[bound.layer];
    score.layer = bound.layer;
    const std::vector<float> logits = run_->read(bound.in[0].at), rows = run_->read(bound.in[1].at), counts = run_->read(bound.in[2].at);
    const auto selected = static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), 0.0f));
    std::vector<bool> chosen(logits.size(), false);
    for (size_t i = 0; i < selected; ++i) chosen[static_cast<size_t>(rows[i])] = true;
    for (size_t i = 0; i < logits.size(); ++i) {
      const bool said = logits[i] > 0;
      ++(chosen[i] ? said ? score.true_positive : score.false_negative : said ? score.false_positive : score.true_negative);
    }
  }

  const TextTraining& t_;
  Workload list_;
  std::int64_t window_;   // bytes of one window, the last target included
  std::int64_t windows_;  // per step
  std::int64_t split_ = 0;
  std::unique_ptr<Execution> owner_;
  ProgramExecution* run_ = nullptr;
  TensorInstance tokens_, targets_, loss_;
};

}  // namespace

double PredictorScore::accuracy() const { return ratio(true_positive + true_negative, true_positive + true_negative + false_positive + false_negative); }
double PredictorScore::balanced_accuracy() const { return (ratio(true_positive, true_positive + false_negative) + ratio(true_negative, true_negative + false_positive)) / 2; }
double PredictorScore::share() const { return ratio(true_positive + false_negative, true_positive + true_negative + false_positive + false_negative); }

double TextReport::late_loss(std::int64_t count) const {
  const auto take = std::min<std::int64_t>(count, static_cast<std::int64_t>(losses.size()));
  if (take == 0) return 0;
  return std::accumulate(losses.end() - take, losses.end(), 0.0) / static_cast<double>(take);
}

double byte_entropy(const std::string& text) {
  std::array<double, 256> counts{};
  for (const char c : text) ++counts[static_cast<unsigned char>(c)];
  double sum = 0;
  for (const double count : counts)
    if (count > 0) sum -= count / static_cast<double>(text.size()) * std::log(count / static_cast<double>(text.size()));
  return sum;
}

TextReport train_on_text(const Backend& backend, const TextTraining& training) {
  if (training.scenario.phase != Phase::kTrain) throw_input("a text is trained on", {"", 0, "--corpus"}, "use --phase train");
  if (training.network.vocab < 256) throw_input(fmt::format("bytes need a vocabulary of 256, '{}' has {}", training.network.name, training.network.vocab), {"", 0, "--corpus"});
  if (training.scenario.grad_accumulation != 1 || !training.scenario.optimizer) throw_input("training on a text takes whole steps: one micro-step, with the optimizer", {"", 0, "--corpus"});
  if (training.steps < 1) throw_input("at least one step", {"", 0, "--steps"});
  TextReport report;
  report.byte_entropy = byte_entropy(training.text);
  Trainer trainer(backend, training);
  for (std::int64_t step = 0; step < training.steps; ++step) {
    if (training.progress && !training.progress(step)) {
      report.stopped = true;
      break;
    }
    report.losses.push_back(trainer.step(step));
  }
  trainer.keep_participation(report);
  trainer.evaluate(report);
  return report;
}

}  // namespace fathom
