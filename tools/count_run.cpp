#include "tools/count_run.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/error.hpp"
#include "lib/quantity.hpp"
#include "models/builder.hpp"
#include "models/count/utilization.hpp"
#include "reports/format.hpp"
#include "tools/convention.hpp"

namespace fathom {
namespace {

double quantity(const std::string& text, Dimension dimension, const char* flag) {
  try {
    const double value = parse_quantity(text, dimension);
    if (!(value > 0)) throw_input("is not positive");
    return value;
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), {"", 0, flag}, error.hint());
  }
}

void add_whole_run(const RunFlags& flags, const Scenario& s, Result& result) {
  if (s.phase != Phase::kTrain) {
    result.notes.push_back({Note::Severity::kNote, "--run-tokens changes nothing here: only train reads it"});
    return;
  }
  const u128 tokens = parse_tokens(flags.run_tokens);
  const u128 step = checked_mul(checked_mul(static_cast<u128>(s.batch), static_cast<u128>(s.length)), static_cast<u128>(s.grad_accumulation));
  const u128 steps = tokens / step + (tokens % step != 0 ? 1 : 0);
  const u128 each = *result.totals.find("flops_matmul")->exact();
  if (each > 0 && steps > ~u128{0} / each)
    throw_input(fmt::format("{} tokens are {} steps of {} FLOP, together more than 128 bits hold", flags.run_tokens, to_string(steps), to_string(each)), {"", 0, "--run-tokens"}, "name a run that could be: 300B or 14.8T");
  result.scenario.set("run_tokens", Cell::count(tokens));
  result.totals.set("run_steps", Cell::count(steps));
  result.totals.set("run_flops", Cell::count(steps * each));
  if (tokens % step != 0)
    result.notes.push_back({Note::Severity::kNote, fmt::format("the last of the run's steps is counted whole, though only {} of its {} tokens are left", to_string(tokens % step), to_string(step))});
}

void add_utilization(const RunFlags& flags, const Network& network, const Scenario& s, Result& result) {
  const Utilization u = utilization_of(flags, result.convention, network, s);
  const bool exact = result.convention == "exact";
  result.totals.set("mfu", u.model ? Cell::number(*u.model / u.possible) : Cell::status("the convention gives no FLOPs here"));
  result.totals.set("hfu", Cell::number(u.executed / u.possible));
  result.notes.push_back({Note::Severity::kNote,
                          fmt::format("MFU by convention {}{}, HFU by the FLOPs that run; step time {} as given, {} {} of {} dense {} each", result.convention,
                                      exact ? fmt::format(" ({} mask)", s.full_mask ? "full" : "causal") : "", format_value(u.seconds, Unit::kSeconds), flags.devices,
                                      flags.devices == 1 ? "device" : "devices", format_value(u.peak, Unit::kFlopRate), dtype_name(s.dtype))});
  if (std::max(u.model.value_or(0), u.executed) > u.possible)
    result.notes.push_back({Note::Severity::kWarning, "more than 100 %: the step time, the peak, the number of devices or the convention is not that of this step"});
}

}  // namespace

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

Utilization utilization_of(const RunFlags& flags, const std::string& convention, const Network& network, const Scenario& scenario) {
  Utilization u;
  u.seconds = quantity(flags.step_time, Dimension::kTime, "--step-time");
  u.peak = quantity(flags.peak, Dimension::kFlopRate, "--peak");
  u.possible = u.seconds * u.peak * static_cast<double>(flags.devices);
  u.model = model_flops(convention, network, scenario);
  u.executed = step_flops(build(network, scenario)).executed;
  return u;
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--run-tokens", flags.run_tokens, "train: tokens of a whole run, such as 300B or 14.8T; gives its steps and FLOPs [none]")->type_name("D")->group("Run");
  app.add_option("--step-time", flags.step_time, "time of this step, such as 1.2s: gives MFU and HFU with --peak [none]")->type_name("T")->group("Run");
  app.add_option("--peak", flags.peak, "dense peak of one device, such as 989TFLOP/s [none]")->type_name("RATE")->group("Run");
  app.add_option("--devices", flags.devices, "devices that share the step [1]")->type_name("N")->group("Run");
}

void check_run_flags(const RunFlags& flags) {
  if (!flags.run_tokens.empty()) parse_tokens(flags.run_tokens);
  if (flags.devices < 1) throw_input(fmt::format("must be at least 1, not {}", flags.devices), {"", 0, "--devices"});
  if (flags.step_time.empty() != flags.peak.empty()) throw Error(ErrorKind::kUsage, "--step-time and --peak belong together", {}, "write --step-time 1.2s --peak 989TFLOP/s");
  if (flags.step_time.empty() && flags.devices != 1) throw Error(ErrorKind::kUsage, "--devices shares a step whose time is known", {}, "add --step-time 1.2s --peak 989TFLOP/s");
  if (flags.step_time.empty()) return;
  quantity(flags.step_time, Dimension::kTime, "--step-time");
  quantity(flags.peak, Dimension::kFlopRate, "--peak");
}

void apply_run(const RunFlags& flags, const Network& network, const Scenario& scenario, Result& result) {
  if (!flags.run_tokens.empty()) add_whole_run(flags, scenario, result);
  if (!flags.step_time.empty()) add_utilization(flags, network, scenario, result);
}

}  // namespace fathom
