#include "kernels/cuda/cupti_config.hpp"

#if FATHOM_CUPTI_HEADERS
#include "kernels/cuda/cupti_counters.hpp"

namespace fathom::cuda {
namespace {

// A parameter struct of CUPTI: all zero, with the size that its own macro gives (sizeof would count padding).
#define FATHOM_PARAMS(type, name) \
  type name = {};                 \
  name.structSize = type##_STRUCT_SIZE

const char* level_text(CUpti_Profiler_Support_Level level) { return level == CUPTI_PROFILER_CONFIGURATION_DISABLED ? " (possible, but switched off)" : ""; }

}  // namespace

CounterSession::CounterSession(CuptiApi& api, const DeviceCalls& device, ProfilerFacts facts, MetricSet set, std::size_t most_ranges)
    : api_(api), device_(device), facts_(std::move(facts)), set_(set), most_ranges_(most_ranges) {}

CounterSession::~CounterSession() { close(); }

bool CounterSession::fail(Finding finding) {
  if (state_ != SessionState::kFailed) finding_ = std::move(finding);
  state_ = SessionState::kFailed;
  close();
  return false;
}

bool CounterSession::refuse() {
  if (state_ == SessionState::kFailed) return false;
  return fail({0, Rung::kActivity, "the counter session was used out of order", "", true});
}

bool CounterSession::check(int code, const char* call) { return code == CUPTI_SUCCESS || fail(explain_cupti(code, Stage::kCounters, call, facts_)); }

bool CounterSession::open() {
  if (state_ != SessionState::kNew) return refuse();
  return open_device() && open_host() && open_target() && (state_ = SessionState::kOpen, true);
}

bool CounterSession::open_device() {
  int count = 0;
  std::uint32_t version = 0;
  facts_.driver_version = 0;
  if (const int code = device_.driver_version(&facts_.driver_version)) return fail(explain_cuda(code, facts_));
  if (Finding finding = explain_driver(facts_.driver_version, facts_); !finding.message.empty()) return fail(std::move(finding));
  if (const int code = device_.device_count(&count)) return fail(explain_cuda(code, facts_));
  if (count == 0) return fail(explain_cuda(100, facts_));
  if (!check(api_.cuptiGetVersion(&version), "cuptiGetVersion")) return false;
  if (version < CUPTI_API_VERSION) return fail(explain_old_library(version, CUPTI_API_VERSION));
  void* context = nullptr;
  if (const int code = device_.current_context(&context, &cu_device_, &ordinal_)) return fail(explain_cuda(code, facts_));
  context_ = static_cast<CUcontext>(context);

  FATHOM_PARAMS(CUpti_Profiler_Initialize_Params, initialize);
  if (!check(api_.cuptiProfilerInitialize(&initialize), "cuptiProfilerInitialize")) return false;
  initialized_ = true;
  FATHOM_PARAMS(CUpti_Device_GetChipName_Params, chip);
  chip.deviceIndex = static_cast<size_t>(ordinal_);
  if (!check(api_.cuptiDeviceGetChipName(&chip), "cuptiDeviceGetChipName")) return false;
  facts_.chip = chip.pChipName ? chip.pChipName : "";

  FATHOM_PARAMS(CUpti_Profiler_DeviceSupported_Params, support);
  support.cuDevice = static_cast<CUdevice>(cu_device_);
  support.api = CUPTI_PROFILER_RANGE_PROFILING;
  if (!check(api_.cuptiProfilerDeviceSupported(&support), "cuptiProfilerDeviceSupported")) return false;
  if (support.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
    std::vector<std::string> modes;
    const auto mode = [&modes](CUpti_Profiler_Support_Level level, const char* name) {
      if (level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) modes.push_back(std::string(name) + level_text(level));
    };
    mode(support.architecture, "architecture older than sm_70");
    mode(support.sli, "SLI");
    mode(support.vGpu, "virtual GPU");
    mode(support.confidentialCompute, "confidential computing");
    mode(support.cmp, "mining card");
    mode(support.wsl, "WSL");
    return fail(explain_unsupported(modes, facts_));
  }

  FATHOM_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, available);
  available.ctx = context_;
  if (!check(api_.cuptiProfilerGetCounterAvailability(&available), "cuptiProfilerGetCounterAvailability")) return false;
  availability_.assign(available.counterAvailabilityImageSize, 0);
  available.pCounterAvailabilityImage = availability_.data();
  return check(api_.cuptiProfilerGetCounterAvailability(&available), "cuptiProfilerGetCounterAvailability");
}

bool CounterSession::open_host() {
  metrics_ = metrics_of(facts_.chip, set_);
  if (metrics_.empty()) return fail(explain_cupti(CUPTI_ERROR_INVALID_CHIP_NAME, Stage::kCounters, "cuptiProfilerHostInitialize", facts_));
  FATHOM_PARAMS(CUpti_Profiler_Host_Initialize_Params, host);
  host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  host.pChipName = facts_.chip.c_str();
  host.pCounterAvailabilityImage = availability_.data();
  if (!check(api_.cuptiProfilerHostInitialize(&host), "cuptiProfilerHostInitialize")) return false;
  host_ = host.pHostObject;

  // One bad name makes the whole set fail with a bare INVALID_PARAMETER, so each is asked for first.
  std::vector<Metric> usable;
  for (Metric& metric : metrics_) {
    FATHOM_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params, properties);
    properties.pHostObject = host_;
    properties.pMetricName = metric.name.c_str();
    const int code = api_.cuptiProfilerHostGetMetricProperties(&properties);
    if (code == CUPTI_ERROR_INVALID_METRIC_NAME) {
      notes_.push_back("counter " + metric.name + " is not known for chip " + facts_.chip);
      continue;
    }
    if (!check(code, "cuptiProfilerHostGetMetricProperties")) return false;
    usable.push_back(std::move(metric));
  }
  metrics_ = std::move(usable);
  if (metrics_.empty()) return fail(explain_cupti(CUPTI_ERROR_INVALID_METRIC_NAME, Stage::kCounters, "cuptiProfilerHostGetMetricProperties", facts_));
  for (const Metric& metric : metrics_) names_.push_back(metric.name.c_str());

  FATHOM_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
  add.pHostObject = host_;
  add.ppMetricNames = names_.data();
  add.numMetrics = names_.size();
  if (!check(api_.cuptiProfilerHostConfigAddMetrics(&add), "cuptiProfilerHostConfigAddMetrics")) return false;
  FATHOM_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
  size.pHostObject = host_;
  if (!check(api_.cuptiProfilerHostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize")) return false;
  config_.assign(size.configImageSize, 0);
  FATHOM_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
  image.pHostObject = host_;
  image.configImageSize = config_.size();
  image.pConfigImage = config_.data();
  if (!check(api_.cuptiProfilerHostGetConfigImage(&image), "cuptiProfilerHostGetConfigImage")) return false;
  FATHOM_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, passes);
  passes.configImageSize = config_.size();
  passes.pConfigImage = config_.data();
  if (!check(api_.cuptiProfilerHostGetNumOfPasses(&passes), "cuptiProfilerHostGetNumOfPasses")) return false;
  passes_ = static_cast<int>(passes.numOfPasses);
  if (const int expected = expected_passes(facts_.chip, set_); passes_ != expected)
    notes_.push_back("the counters take " + std::to_string(passes_) + " passes on this " + facts_.chip + ", " + std::to_string(expected) + " by the table");
  return true;
}

bool CounterSession::open_target() {
  FATHOM_PARAMS(CUpti_RangeProfiler_Enable_Params, enable);
  enable.ctx = context_;
  if (!check(api_.cuptiRangeProfilerEnable(&enable), "cuptiRangeProfilerEnable")) return false;
  target_ = enable.pRangeProfilerObject;
  FATHOM_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
  size.pRangeProfilerObject = target_;
  size.pMetricNames = names_.data();
  size.numMetrics = names_.size();
  size.maxNumOfRanges = most_ranges_;
  size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(most_ranges_);
  if (!check(api_.cuptiRangeProfilerGetCounterDataSize(&size), "cuptiRangeProfilerGetCounterDataSize")) return false;
  data_.assign(size.counterDataSize, 0);
  FATHOM_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, image);
  image.pRangeProfilerObject = target_;
  image.counterDataSize = data_.size();
  image.pCounterData = data_.data();
  if (!check(api_.cuptiRangeProfilerCounterDataImageInitialize(&image), "cuptiRangeProfilerCounterDataImageInitialize")) return false;
  FATHOM_PARAMS(CUpti_RangeProfiler_SetConfig_Params, config);
  config.pRangeProfilerObject = target_;
  config.configSize = config_.size();
  config.pConfig = config_.data();
  config.counterDataImageSize = data_.size();
  config.pCounterDataImage = data_.data();
  config.range = CUPTI_UserRange;
  config.replayMode = CUPTI_UserReplay;
  config.maxRangesPerPass = most_ranges_;
  config.numNestingLevels = 1;
  config.minNestingLevel = 1;
  config.passIndex = 0;
  config.targetNestingLevel = 1;
  return check(api_.cuptiRangeProfilerSetConfig(&config), "cuptiRangeProfilerSetConfig");
}

bool CounterSession::start_pass() {
  if (state_ != SessionState::kOpen || in_pass_ || all_submitted_) return refuse();
  FATHOM_PARAMS(CUpti_RangeProfiler_Start_Params, start);
  start.pRangeProfilerObject = target_;
  return check(api_.cuptiRangeProfilerStart(&start), "cuptiRangeProfilerStart") && (in_pass_ = true);
}

bool CounterSession::push(const char* range) {
  if (state_ != SessionState::kOpen || !in_pass_ || in_range_) return refuse();
  FATHOM_PARAMS(CUpti_RangeProfiler_PushRange_Params, push);
  push.pRangeProfilerObject = target_;
  push.pRangeName = range;
  return check(api_.cuptiRangeProfilerPushRange(&push), "cuptiRangeProfilerPushRange") && (in_range_ = true);
}

bool CounterSession::pop() {
  if (state_ != SessionState::kOpen || !in_range_) return refuse();
  in_range_ = false;
  FATHOM_PARAMS(CUpti_RangeProfiler_PopRange_Params, pop);
  pop.pRangeProfilerObject = target_;
  return check(api_.cuptiRangeProfilerPopRange(&pop), "cuptiRangeProfilerPopRange");
}

bool CounterSession::stop_pass(bool& more) {
  if (state_ != SessionState::kOpen || !in_pass_ || in_range_) return refuse();
  in_pass_ = false;
  FATHOM_PARAMS(CUpti_RangeProfiler_Stop_Params, stop);
  stop.pRangeProfilerObject = target_;
  if (!check(api_.cuptiRangeProfilerStop(&stop), "cuptiRangeProfilerStop")) return false;
  ++passes_run_;
  all_submitted_ = stop.isAllPassSubmitted != 0;
  more = !all_submitted_;
  constexpr int kManyPasses = 64;  // a library that never has enough must not keep us for ever
  if (more && passes_run_ >= kManyPasses) return fail({0, Rung::kActivity, "the range profiler asked for more than " + std::to_string(kManyPasses) + " passes; kernel times still work", "", false});
  return true;
}

bool CounterSession::finish(std::map<std::string, CounterValues>& ranges) {
  if (state_ != SessionState::kOpen || in_pass_ || !all_submitted_) return refuse();
  if (passes_run_ != passes_)
    return fail({0, Rung::kActivity, "the range profiler ended after " + std::to_string(passes_run_) + " passes instead of " + std::to_string(passes_) + "; kernel times still work", "", false});
  FATHOM_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decoded);
  decoded.pRangeProfilerObject = target_;
  if (!check(api_.cuptiRangeProfilerDecodeData(&decoded), "cuptiRangeProfilerDecodeData")) return false;
  if (decoded.numOfRangeDropped > 0)
    return fail({0, Rung::kActivity, std::to_string(decoded.numOfRangeDropped) + " ranges of counters were dropped; kernel times still work", "use a smaller configuration", false});
  FATHOM_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
  info.pCounterDataImage = data_.data();
  info.counterDataImageSize = data_.size();
  if (!check(api_.cuptiRangeProfilerGetCounterDataInfo(&info), "cuptiRangeProfilerGetCounterDataInfo")) return false;
  std::vector<double> values(names_.size());
  for (size_t i = 0; i < info.numTotalRanges; ++i) {
    FATHOM_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, range);
    range.pCounterDataImage = data_.data();
    range.counterDataImageSize = data_.size();
    range.rangeIndex = i;
    range.rangeDelimiter = "/";
    if (!check(api_.cuptiRangeProfilerCounterDataGetRangeInfo(&range), "cuptiRangeProfilerCounterDataGetRangeInfo")) return false;
    FATHOM_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, evaluate);
    evaluate.pHostObject = host_;
    evaluate.pCounterDataImage = data_.data();
    evaluate.counterDataImageSize = data_.size();
    evaluate.rangeIndex = i;
    evaluate.ppMetricNames = names_.data();
    evaluate.numMetrics = names_.size();
    evaluate.pMetricValues = values.data();
    if (!check(api_.cuptiProfilerHostEvaluateToGpuValues(&evaluate), "cuptiProfilerHostEvaluateToGpuValues")) return false;
    CounterValues& row = ranges[range.rangeName ? range.rangeName : ""];
    for (size_t m = 0; m < metrics_.size(); ++m) row[metrics_[m].counter] = values[m];
  }
  if (ranges.empty()) return fail({0, Rung::kActivity, "the range profiler returned no range; kernel times still work", "", false});
  close();
  state_ = SessionState::kFinished;
  return true;
}

void CounterSession::close() {
  if (target_) {
    FATHOM_PARAMS(CUpti_RangeProfiler_Disable_Params, disable);
    disable.pRangeProfilerObject = target_;
    target_ = nullptr;
    api_.cuptiRangeProfilerDisable(&disable);
  }
  if (host_) {
    FATHOM_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, host);
    host.pHostObject = host_;
    host_ = nullptr;
    api_.cuptiProfilerHostDeinitialize(&host);
  }
  if (initialized_) {
    FATHOM_PARAMS(CUpti_Profiler_DeInitialize_Params, finalise);
    initialized_ = false;
    api_.cuptiProfilerDeInitialize(&finalise);
  }
}

#undef FATHOM_PARAMS

}  // namespace fathom::cuda
#endif
