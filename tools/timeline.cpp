#include "tools/timeline.hpp"

#include "lib/measure.hpp"
#include "reports/json_writer.hpp"
#include "tools/interrupt.hpp"

namespace fathom {

std::vector<Span> run_and_time(Execution& execution) {
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

std::string chrome_trace(const std::vector<TracedPass>& passes, const std::string& model) {
  JsonWriter json(0);
  json.begin_object().member("displayTimeUnit", "ms").key("otherData").begin_object().member("model", model).end_object();
  json.key("traceEvents").begin_array();
  const auto name_track = [&](int pid, const std::string& name) {
    json.begin_object().member("ph", "M").member("name", "process_name").member("pid", pid).member("tid", 1).key("args").begin_object().member("name", name).end_object().end_object();
  };
  name_track(1, "predicted");
  name_track(2, "measured");
  double predicted_begin = 0, measured_begin = 0;
  for (const TracedPass& pass : passes) {
    const Workload& w = *pass.workload;
    const std::string prefix = pass.name.empty() ? "" : pass.name + "/";
    const std::vector<Instance> instances = w.instances();
    double at = predicted_begin;
    for (size_t i = 0; i < instances.size(); ++i) {
      const Op& op = w.ops()[static_cast<size_t>(instances[i].op)];
      const Cost cost = declared_cost(op.spec);
      const double predicted = pass.prediction.ops[instances[i].op].each.seconds;
      const auto event = [&](int pid, double start, double seconds) {
        json.begin_object().member("ph", "X").member("pid", pid).member("tid", 1).member("name", prefix + w.path(instances[i])).member("cat", part_name(op.part));
        json.member("ts", start * 1e6).member("dur", seconds * 1e6).key("args").begin_object();
        json.member("kind", kind_name(op.spec)).member("flops_matmul", cost.flops).member("bytes_read", cost.read).member("bytes_written", cost.written).end_object().end_object();
      };
      event(1, at, predicted);
      at += predicted;
      event(2, measured_begin + pass.spans[i].start, pass.spans[i].seconds);
    }
    predicted_begin = at;
    measured_begin += pass.measured_s();
  }
  json.end_array().end_object();
  return json.finish();
}

}  // namespace fathom
