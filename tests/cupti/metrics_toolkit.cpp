// The metric tables against the host half of the range profiler, which needs neither driver nor GPU: every chip that CUPTI knows, every set,
// names and number of passes. Skipped, with a message, where CUPTI 13 is not installed.
#include <catch2/catch.hpp>

#include <iostream>

#include "kernels/cuda/cupti_config.hpp"
#include "kernels/cuda/cupti_metrics.hpp"

using namespace fathom::cuda;

#if FATHOM_CUPTI_HEADERS
#include "kernels/cuda/cupti_api.hpp"

namespace {

const CuptiApi* library() {
  static CuptiApi api;
  static std::string message;
  static const bool loaded = load_cupti(cupti_library_names(), api, message);
  if (!loaded) std::cout << "skipped: " << message << "\n";
  return loaded ? &api : nullptr;
}

// A host object for a chip, closed with it.
struct Host {
  Host(const CuptiApi& table, const std::string& chip) : api(table) {
    CUpti_Profiler_Host_Initialize_Params p = {};
    p.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
    p.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    p.pChipName = chip.c_str();
    code = api.cuptiProfilerHostInitialize(&p);
    object = p.pHostObject;
  }
  ~Host() {
    if (code != 0) return;
    CUpti_Profiler_Host_Deinitialize_Params p = {};
    p.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
    p.pHostObject = object;
    api.cuptiProfilerHostDeinitialize(&p);
  }
  int properties(const char* metric) const {
    CUpti_Profiler_Host_GetMetricProperties_Params p = {};
    p.structSize = CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE;
    p.pHostObject = object;
    p.pMetricName = metric;
    return api.cuptiProfilerHostGetMetricProperties(&p);
  }
  // Passes of a set; negative: a CUPTI code.
  int passes(std::vector<const char*> names) const {
    CUpti_Profiler_Host_ConfigAddMetrics_Params add = {};
    add.structSize = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE;
    add.pHostObject = object;
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    if (const int failed = api.cuptiProfilerHostConfigAddMetrics(&add)) return -failed;
    CUpti_Profiler_Host_GetConfigImageSize_Params size = {};
    size.structSize = CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE;
    size.pHostObject = object;
    if (const int failed = api.cuptiProfilerHostGetConfigImageSize(&size)) return -failed;
    std::vector<std::uint8_t> image(size.configImageSize);
    CUpti_Profiler_Host_GetConfigImage_Params get = {};
    get.structSize = CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE;
    get.pHostObject = object;
    get.configImageSize = image.size();
    get.pConfigImage = image.data();
    if (const int failed = api.cuptiProfilerHostGetConfigImage(&get)) return -failed;
    CUpti_Profiler_Host_GetNumOfPasses_Params count = {};
    count.structSize = CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE;
    count.configImageSize = image.size();
    count.pConfigImage = image.data();
    if (const int failed = api.cuptiProfilerHostGetNumOfPasses(&count)) return -failed;
    return static_cast<int>(count.numOfPasses);
  }
  const CuptiApi& api;
  int code = 0;
  CUpti_Profiler_Host_Object* object = nullptr;
};

}  // namespace

TEST_CASE("every metric of every set exists on its chip and takes the passes of the table") {
  const CuptiApi* api = library();
  if (!api) return;
  for (const std::string& chip : known_chips())
    for (const MetricSet set : {MetricSet::kStandard, MetricSet::kPipe, MetricSet::kFp32}) {
      INFO(chip << ", set " << metric_set_name(set));
      const Host host(*api, chip);
      REQUIRE(host.code == 0);
      const std::vector<Metric> metrics = metrics_of(chip, set);
      std::vector<const char*> names;
      for (const Metric& metric : metrics) {
        INFO(metric.name);
        CHECK(host.properties(metric.name.c_str()) == 0);
        names.push_back(metric.name.c_str());
      }
      CHECK(host.passes(names) == expected_passes(chip, set));
    }
}

TEST_CASE("what the table calls missing is missing") {
  const CuptiApi* api = library();
  if (!api) return;
  for (const std::string& chip : known_chips()) {
    INFO(chip);
    const Host host(*api, chip);
    REQUIRE(host.code == 0);
    for (const Counter counter : missing_on(chip, MetricSet::kFp32)) {
      // The name that chips with the counter use; the two spellings of DRAM bytes both.
      for (const char* with : {"GB100", "GB202"})
        for (const Metric& metric : metrics_of(with, MetricSet::kFp32))
          if (metric.counter == counter) CHECK(host.properties(metric.name.c_str()) == CUPTI_ERROR_INVALID_METRIC_NAME);
    }
  }
}

TEST_CASE("one bad name spoils a whole set, so names are asked for one by one") {
  const CuptiApi* api = library();
  if (!api) return;
  const Host host(*api, "GH100");
  CHECK(host.properties("sm__no_such_counter.sum") == CUPTI_ERROR_INVALID_METRIC_NAME);
  CHECK(host.passes({"gpu__time_duration.sum", "sm__no_such_counter.sum"}) == -CUPTI_ERROR_INVALID_PARAMETER);
}

TEST_CASE("an unknown chip is refused") {
  const CuptiApi* api = library();
  if (!api) return;
  CHECK(Host(*api, "GX999").code == CUPTI_ERROR_INVALID_CHIP_NAME);
}
#else
TEST_CASE("the host half of the range profiler") { std::cout << "skipped: the CUPTI headers of CUDA 13 were not found when this was built\n"; }
#endif
