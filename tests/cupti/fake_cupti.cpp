#include "tests/cupti/fake_cupti.hpp"

#if FATHOM_CUPTI_HEADERS

#include <algorithm>

namespace fathom::cuda {
namespace {

FakeCupti& fake() { return *FakeCupti::now(); }
CUptiResult result(const char* name) { return static_cast<CUptiResult>(fake().called(name)); }

}  // namespace

#define RECORD(name) \
  if (const CUptiResult failed = result(#name)) return failed

FakeCupti::FakeCupti() {
  now() = this;
  device.driver_version = [](int* found) { *found = fake().driver; return fake().called("cudaDriverGetVersion"); };
  device.device_count = [](int* count) { *count = fake().devices; return fake().called("cudaGetDeviceCount"); };
  device.synchronize = [] { return fake().called("cudaDeviceSynchronize"); };
  device.launch_known_kernel = [] { return fake().called("launch"); };
  device.current_context = [](void** context, int* cu_device, int* ordinal) {
    static int place;
    *context = &place, *cu_device = 0, *ordinal = 0;
    return fake().called("context");
  };

  api.cuptiGetVersion = [](uint32_t* found) { RECORD(cuptiGetVersion); *found = fake().version; return CUPTI_SUCCESS; };
  api.cuptiSubscribe_v2 = [](CUpti_SubscriberHandle* handle, CUpti_CallbackFunc function, void* user, CUpti_SubscriberParams* params) {
    std::strncpy(params->oldSubscriberName, fake().holder.c_str(), params->oldSubscriberSize - 1);
    RECORD(cuptiSubscribe_v2);
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(&fake());
    fake().callback = function, fake().callback_user = user;
    return CUPTI_SUCCESS;
  };
  api.cuptiUnsubscribe = [](CUpti_SubscriberHandle) { return result("cuptiUnsubscribe"); };
  api.cuptiEnableDomain = [](uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) { return result("cuptiEnableDomain"); };
  api.cuptiEnableCallback = [](uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId) { return result("cuptiEnableCallback"); };
  api.cuptiGetGraphNodeId = [](CUgraphNode node, uint64_t* id) { RECORD(cuptiGetGraphNodeId); *id = reinterpret_cast<std::uintptr_t>(node); return CUPTI_SUCCESS; };
  api.cuptiActivitySetAttribute = [](CUpti_ActivityAttribute, size_t*, void*) { return result("cuptiActivitySetAttribute"); };
  api.cuptiActivityRegisterCallbacks = [](CUpti_BuffersCallbackRequestFunc on_request, CUpti_BuffersCallbackCompleteFunc on_complete) {
    RECORD(cuptiActivityRegisterCallbacks);
    fake().request = on_request, fake().complete = on_complete;
    return CUPTI_SUCCESS;
  };
  api.cuptiActivityEnable = [](CUpti_ActivityKind) { return result("cuptiActivityEnable"); };
  api.cuptiActivityDisable = [](CUpti_ActivityKind) { return result("cuptiActivityDisable"); };
  api.cuptiActivityPushExternalCorrelationId = [](CUpti_ExternalCorrelationKind kind, uint64_t id) {
    RECORD(cuptiActivityPushExternalCorrelationId);
    fake().external.emplace_back(kind, id);
    return CUPTI_SUCCESS;
  };
  api.cuptiActivityPopExternalCorrelationId = [](CUpti_ExternalCorrelationKind, uint64_t* last) { RECORD(cuptiActivityPopExternalCorrelationId); *last = 0; return CUPTI_SUCCESS; };
  api.cuptiActivityFlushAll = [](uint32_t flag) {
    RECORD(cuptiActivityFlushAll);
    if (flag == 0 && fake().on_flush) fake().on_flush(fake());
    return CUPTI_SUCCESS;
  };
  api.cuptiActivityGetNextRecord = [](uint8_t* buffer, size_t valid, CUpti_Activity** record) {
    return static_cast<CUptiResult>(walk_records(buffer, valid, reinterpret_cast<uint8_t**>(record)));
  };
  api.cuptiActivityGetNumDroppedRecords = [](CUcontext, uint32_t, size_t* lost) { RECORD(cuptiActivityGetNumDroppedRecords); *lost = fake().dropped; return CUPTI_SUCCESS; };

  api.cuptiProfilerInitialize = [](CUpti_Profiler_Initialize_Params*) { return result("cuptiProfilerInitialize"); };
  api.cuptiProfilerDeInitialize = [](CUpti_Profiler_DeInitialize_Params*) { return result("cuptiProfilerDeInitialize"); };
  api.cuptiProfilerDeviceSupported = [](CUpti_Profiler_DeviceSupported_Params* p) {
    RECORD(cuptiProfilerDeviceSupported);
    const auto yes = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    p->architecture = p->sli = p->confidentialCompute = p->cmp = p->wsl = yes;
    p->vGpu = fake().supported ? yes : CUPTI_PROFILER_CONFIGURATION_DISABLED;
    p->isSupported = fake().supported ? yes : CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
    return p->api == CUPTI_PROFILER_RANGE_PROFILING ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
  };
  api.cuptiDeviceGetChipName = [](CUpti_Device_GetChipName_Params* p) { RECORD(cuptiDeviceGetChipName); p->pChipName = fake().chip.c_str(); return CUPTI_SUCCESS; };
  api.cuptiProfilerGetCounterAvailability = [](CUpti_Profiler_GetCounterAvailability_Params* p) {
    RECORD(cuptiProfilerGetCounterAvailability);
    p->counterAvailabilityImageSize = 16;
    return CUPTI_SUCCESS;
  };
  api.cuptiProfilerHostInitialize = [](CUpti_Profiler_Host_Initialize_Params* p) {
    RECORD(cuptiProfilerHostInitialize);
    p->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(&fake());
    return CUPTI_SUCCESS;
  };
  api.cuptiProfilerHostDeinitialize = [](CUpti_Profiler_Host_Deinitialize_Params*) { return result("cuptiProfilerHostDeinitialize"); };
  api.cuptiProfilerHostGetMetricProperties = [](CUpti_Profiler_Host_GetMetricProperties_Params* p) {
    RECORD(cuptiProfilerHostGetMetricProperties);
    const auto failed = fake().fails.find(p->pMetricName);
    return failed == fake().fails.end() ? CUPTI_SUCCESS : static_cast<CUptiResult>(failed->second);
  };
  api.cuptiProfilerHostConfigAddMetrics = [](CUpti_Profiler_Host_ConfigAddMetrics_Params* p) {
    RECORD(cuptiProfilerHostConfigAddMetrics);
    fake().metrics.assign(p->ppMetricNames, p->ppMetricNames + p->numMetrics);
    return CUPTI_SUCCESS;
  };
  api.cuptiProfilerHostGetConfigImageSize = [](CUpti_Profiler_Host_GetConfigImageSize_Params* p) { RECORD(cuptiProfilerHostGetConfigImageSize); p->configImageSize = 8; return CUPTI_SUCCESS; };
  api.cuptiProfilerHostGetConfigImage = [](CUpti_Profiler_Host_GetConfigImage_Params*) { return result("cuptiProfilerHostGetConfigImage"); };
  api.cuptiProfilerHostGetNumOfPasses = [](CUpti_Profiler_Host_GetNumOfPasses_Params* p) { RECORD(cuptiProfilerHostGetNumOfPasses); p->numOfPasses = fake().passes; return CUPTI_SUCCESS; };
  api.cuptiProfilerHostEvaluateToGpuValues = [](CUpti_Profiler_Host_EvaluateToGpuValues_Params* p) {
    RECORD(cuptiProfilerHostEvaluateToGpuValues);
    for (size_t m = 0; m < p->numMetrics; ++m) p->pMetricValues[m] = fake().value(p->rangeIndex, m);
    return CUPTI_SUCCESS;
  };
  api.cuptiRangeProfilerEnable = [](CUpti_RangeProfiler_Enable_Params* p) {
    RECORD(cuptiRangeProfilerEnable);
    p->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(&fake());
    return CUPTI_SUCCESS;
  };
  api.cuptiRangeProfilerDisable = [](CUpti_RangeProfiler_Disable_Params*) { return result("cuptiRangeProfilerDisable"); };
  api.cuptiRangeProfilerGetCounterDataSize = [](CUpti_RangeProfiler_GetCounterDataSize_Params* p) {
    RECORD(cuptiRangeProfilerGetCounterDataSize);
    p->counterDataSize = 64;
    return p->maxNumRangeTreeNodes >= p->maxNumOfRanges ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
  };
  api.cuptiRangeProfilerCounterDataImageInitialize = [](CUpti_RangeProfiler_CounterDataImage_Initialize_Params*) { return result("cuptiRangeProfilerCounterDataImageInitialize"); };
  api.cuptiRangeProfilerSetConfig = [](CUpti_RangeProfiler_SetConfig_Params* p) {
    RECORD(cuptiRangeProfilerSetConfig);
    const bool right = p->range == CUPTI_UserRange && p->replayMode == CUPTI_UserReplay && p->numNestingLevels == 1 && p->minNestingLevel == 1 && p->targetNestingLevel == 1 && p->passIndex == 0;
    return right ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
  };
  api.cuptiRangeProfilerStart = [](CUpti_RangeProfiler_Start_Params*) { fake().ranges.clear(); return result("cuptiRangeProfilerStart"); };
  api.cuptiRangeProfilerStop = [](CUpti_RangeProfiler_Stop_Params* p) {
    RECORD(cuptiRangeProfilerStop);
    const int enough = fake().passes_submitted_after < 0 ? static_cast<int>(fake().passes) : fake().passes_submitted_after;
    p->isAllPassSubmitted = ++fake().stops >= enough;
    return CUPTI_SUCCESS;
  };
  api.cuptiRangeProfilerPushRange = [](CUpti_RangeProfiler_PushRange_Params* p) { RECORD(cuptiRangeProfilerPushRange); fake().ranges.emplace_back(p->pRangeName); return CUPTI_SUCCESS; };
  api.cuptiRangeProfilerPopRange = [](CUpti_RangeProfiler_PopRange_Params*) { return result("cuptiRangeProfilerPopRange"); };
  api.cuptiRangeProfilerDecodeData = [](CUpti_RangeProfiler_DecodeData_Params* p) { RECORD(cuptiRangeProfilerDecodeData); p->numOfRangeDropped = fake().ranges_dropped; return CUPTI_SUCCESS; };
  api.cuptiRangeProfilerGetCounterDataInfo = [](CUpti_RangeProfiler_GetCounterDataInfo_Params* p) { RECORD(cuptiRangeProfilerGetCounterDataInfo); p->numTotalRanges = fake().ranges.size(); return CUPTI_SUCCESS; };
  api.cuptiRangeProfilerCounterDataGetRangeInfo = [](CUpti_RangeProfiler_CounterData_GetRangeInfo_Params* p) {
    RECORD(cuptiRangeProfilerCounterDataGetRangeInfo);
    p->rangeName = fake().ranges.at(p->rangeIndex).c_str();
    return CUPTI_SUCCESS;
  };
}

}  // namespace fathom::cuda
#endif
