// Where and in what state of the machine a record was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/cuda_host/throttle.hpp"
#include "kernels/registry.hpp"
#include "reports/record_names.hpp"
#include "tools/host.hpp"
#include "tools/results.hpp"
#include "tools/timed.hpp"

namespace fathom {
namespace {

constexpr double kMuch = 0.1;  // cores of others: below, they disturb nothing

}  // namespace

void describe_environment(Record& record, std::span<const Timed* const> timed, const TimedFlags& flags) {
  const Backend& runner = backend(flags.backend);
  record.environment.set("backend", Cell::text(runner.description()));
  if (flags.backend != "fake") set_host_facts(record.environment, flags.backend, flags.threads);  // the fake repeats what it is told, wherever it runs
  if (flags.backend == "cuda") {
    const cuda::DeviceInfo& info = cuda::probe_device().info;
    record.environment.set("gpu", Cell::text(info.name));
    record.environment.set("gpu_uuid", Cell::text(info.uuid));
    record.environment.set("gpu_ecc", Cell::text(info.ecc ? "on" : "off"));
    record.environment.set("gpu_l2_bytes", Cell::count(static_cast<u128>(info.l2_bytes)));
    record.environment.set("cuda_driver", Cell::number(info.driver));
    record.environment.set("cuda_runtime", Cell::number(info.runtime));
    record.environment.set("cublaslt", Cell::number(info.cublaslt));
  }
  // What is said of several configurations is said once, with their names.
  std::vector<Result> named;
  for (const Timed* one : timed) named.push_back(named_result(one->configuration.label, one->configuration.network, one->configuration.scenario));
  Results all;
  for (const Result& each : named) all.push_back(&each);
  struct Seen {
    double low = INFINITY, high = -INFINITY;
    Results of;
    void add(double value, const Result* result) { low = std::min(low, value), high = std::max(high, value), of.push_back(result); }
    std::string range() const {
      const std::string least = fmt::format("{:.2f}", low), most = fmt::format("{:.2f}", high);
      return least == most ? least : least + " to " + most;
    }
  };
  std::map<std::string, Seen> drifted, throttled;  // by reference, its share of the time at calibration; by reason
  Seen foreign;                                    // cores
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const Measurement& m = timed[i]->measurement;
    if (m.workload.empty()) continue;  // an interrupt came before it
    record.environment.set("stopped_by", Cell::text(m.stopped_by));
    record.environment.set("seconds_spent", Cell::number(m.seconds_spent));
    for (const auto& [name, value] : m.state_after) record.environment.set(name, Cell::number(value));
    for (const ReferenceMeasurement& reference : m.references)
      if (reference.nominal > 0) record.environment.set("reference_" + reference.name + "_s", Cell::number(reference.nominal));  // a device that keeps time has none
    if (const auto throttle = m.state_after.find("gpu_throttle_reasons"); throttle != m.state_after.end())
      if (const std::string why = throttle_text(static_cast<std::int64_t>(throttle->second)); !why.empty())
        throttled[why].add(1, all[i]);
    for (const ReferenceMeasurement& reference : m.references)
      if (reference.nominal > 0 && std::abs(reference.p25 / reference.nominal - 1) > 0.1) drifted[reference.name].add(reference.p25 / reference.nominal, all[i]);
    for (const auto& [name, rate] : m.ceiling_rate) record.environment.set("ceiling_" + name + "_flops_per_s", Cell::number(rate));
    for (const auto& [name, noise] : m.class_noise) record.environment.set("noise_" + name, Cell::number(noise));
    if (const auto others = m.state_after.find("foreign_cpu"); others != m.state_after.end() && others->second > kMuch) foreign.add(others->second, all[i]);
  }
  if (std::any_of(timed.begin(), timed.end(), [](const Timed* one) { return one->measurement.workload.empty(); })) record.environment.set("stopped_by", Cell::text("interrupt"));
  const auto were = [&](const Seen& seen) { return fmt::format("{} {}", names_of(seen.of, all), seen.of.size() == 1 ? "was" : "were"); };
  for (const auto& [why, seen] : throttled) record.note(fmt::format("the GPU held its clock back while {} measured: {}", were(seen), why), Note::Severity::kWarning);
  if (!foreign.of.empty())
    record.note(fmt::format("other processes used {} cores while {} measured: times are longer and noisier than on an idle machine", foreign.range(), were(foreign)), Note::Severity::kWarning);
  for (const auto& [name, seen] : drifted)
    record.note(fmt::format("{} reference kernels took {} times as long as at calibration while {} measured: normalised figures are scaled back to it, raw ones are not", name, seen.range(), were(seen)));
}

}  // namespace fathom
