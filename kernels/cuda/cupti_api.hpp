// Every CUPTI function that fathom calls, as one table of pointers: filled by dlsym when profiling is asked for, by fakes in tests.
//
// A process that only measures time never loads CUPTI. The table also remembers that a session was opened: correlation ids of graph launches
// are wrong from the second session of a process on (CUDA 13.0), so there is one per process.
#pragma once

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <string>
#include <vector>

#define FATHOM_CUPTI_FUNCTIONS(X)                                                                                                          \
  X(cuptiGetVersion) X(cuptiSubscribe_v2) X(cuptiUnsubscribe) X(cuptiEnableDomain) X(cuptiEnableCallback) X(cuptiGetGraphNodeId)           \
  X(cuptiActivitySetAttribute) X(cuptiActivityRegisterCallbacks) X(cuptiActivityEnable) X(cuptiActivityDisable)                            \
  X(cuptiActivityPushExternalCorrelationId) X(cuptiActivityPopExternalCorrelationId) X(cuptiActivityFlushAll)                              \
  X(cuptiActivityGetNextRecord) X(cuptiActivityGetNumDroppedRecords)                                                                       \
  X(cuptiProfilerInitialize) X(cuptiProfilerDeInitialize) X(cuptiProfilerDeviceSupported) X(cuptiDeviceGetChipName)                        \
  X(cuptiProfilerGetCounterAvailability)                                                                                                   \
  X(cuptiProfilerHostInitialize) X(cuptiProfilerHostDeinitialize) X(cuptiProfilerHostGetMetricProperties)                                  \
  X(cuptiProfilerHostConfigAddMetrics) X(cuptiProfilerHostGetConfigImageSize) X(cuptiProfilerHostGetConfigImage)                           \
  X(cuptiProfilerHostGetNumOfPasses) X(cuptiProfilerHostEvaluateToGpuValues)                                                               \
  X(cuptiRangeProfilerEnable) X(cuptiRangeProfilerDisable) X(cuptiRangeProfilerGetCounterDataSize)                                         \
  X(cuptiRangeProfilerCounterDataImageInitialize) X(cuptiRangeProfilerSetConfig) X(cuptiRangeProfilerStart) X(cuptiRangeProfilerStop)      \
  X(cuptiRangeProfilerPushRange) X(cuptiRangeProfilerPopRange) X(cuptiRangeProfilerDecodeData) X(cuptiRangeProfilerGetCounterDataInfo)     \
  X(cuptiRangeProfilerCounterDataGetRangeInfo)

namespace fathom::cuda {

struct CuptiApi {
#define FATHOM_CUPTI_MEMBER(name) decltype(&::name) name = nullptr;
  FATHOM_CUPTI_FUNCTIONS(FATHOM_CUPTI_MEMBER)
#undef FATHOM_CUPTI_MEMBER
  bool session_opened = false;
};

// Opens the first library of the list that loads and fills the table; false with the loader's message where none does or a function is
// missing. The library is never closed.
bool load_cupti(const std::vector<std::string>& names, CuptiApi& api, std::string& message);
// Where CUPTI is looked for: the loader's path first, then the toolkit's usual places and where it stood when fathom was built.
std::vector<std::string> cupti_library_names();

}  // namespace fathom::cuda
