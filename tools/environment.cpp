// Where and in what state of the machine a record was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/cuda_host/throttle.hpp"
#include "kernels/registry.hpp"
#include "tools/host.hpp"
#include "tools/timed.hpp"

namespace fathom {

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
  std::map<std::string, std::vector<std::pair<double, std::string>>> drifted;   // reference -> (share of its time at calibration, configuration)
  for (const Timed* const one : timed) {
    const Timed& each = *one;
    const Measurement& m = each.measurement;
    if (m.workload.empty()) continue;  // an interrupt came before it
    record.environment.set("stopped_by", Cell::text(m.stopped_by));
    record.environment.set("seconds_spent", Cell::number(m.seconds_spent));
    for (const auto& [name, value] : m.state_after) record.environment.set(name, Cell::number(value));
    for (const ReferenceMeasurement& reference : m.references)
      if (reference.nominal > 0) record.environment.set("reference_" + reference.name + "_s", Cell::number(reference.nominal));  // a device that keeps time has none
    if (const auto throttle = m.state_after.find("gpu_throttle_reasons"); throttle != m.state_after.end())
      if (const std::string why = throttle_text(static_cast<std::int64_t>(throttle->second)); !why.empty())
        record.note(fmt::format("the GPU held its clock back while {} was measured: {}", each.configuration.label, why), Note::Severity::kWarning);
    for (const ReferenceMeasurement& reference : m.references)
      if (reference.nominal > 0 && std::abs(reference.p25 / reference.nominal - 1) > 0.1) drifted[reference.name].push_back({reference.p25 / reference.nominal, each.configuration.label});
    for (const auto& [name, rate] : m.ceiling_rate) record.environment.set("ceiling_" + name + "_flops_per_s", Cell::number(rate));
    for (const auto& [name, noise] : m.class_noise) record.environment.set("noise_" + name, Cell::number(noise));
    const auto foreign = m.state_after.find("foreign_cpu");
    if (foreign != m.state_after.end() && foreign->second > 0.1)
      record.note(fmt::format("other processes used {:.2f} cores while {} was measured: times are longer and noisier than on an idle machine", foreign->second, each.configuration.label),
                  Note::Severity::kWarning);
  }
  if (std::any_of(timed.begin(), timed.end(), [](const Timed* one) { return one->measurement.workload.empty(); })) record.environment.set("stopped_by", Cell::text("interrupt"));
  for (const auto& [name, where] : drifted) {
    const auto [least, most] = std::minmax_element(where.begin(), where.end());
    const std::string low = fmt::format("{:.2f}", least->first), high = fmt::format("{:.2f}", most->first);
    record.note(fmt::format("{} reference kernels took {} times as long as at calibration while {} measured: normalised figures are scaled back to it, raw ones are not", name, low == high ? low : low + " to " + high,
                            where.size() == 1 ? where[0].second + " was" : fmt::format("{} configurations were", where.size())));
  }
}

}  // namespace fathom
