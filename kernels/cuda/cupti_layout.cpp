// The offsets of cupti_records.hpp against the CUPTI headers, where there are any: this file compiles to nothing else.
#include "kernels/cuda/cupti_config.hpp"
#include "kernels/cuda/cupti_records.hpp"

#if FATHOM_CUPTI_HEADERS
#include <cupti.h>

#include <cstddef>

namespace fathom::cuda {

#define FATHOM_AT(type, member, place) static_assert(offsetof(type, member) == (place), #type "::" #member)

static_assert(kind::kMemcpy == CUPTI_ACTIVITY_KIND_MEMCPY && kind::kMemset == CUPTI_ACTIVITY_KIND_MEMSET && kind::kDriver == CUPTI_ACTIVITY_KIND_DRIVER &&
              kind::kRuntime == CUPTI_ACTIVITY_KIND_RUNTIME && kind::kKernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL &&
              kind::kOverhead == CUPTI_ACTIVITY_KIND_OVERHEAD && kind::kExternalCorrelation == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
static_assert(kExternalOp == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 && kExternalPass == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1);
static_assert(overhead::kBufferFlush == CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH && overhead::kInstrumentation == CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION &&
              overhead::kResource == CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE && overhead::kModuleLoading == CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING &&
              overhead::kLazyFunctionLoading == CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING && overhead::kCommandBufferFull == CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL &&
              overhead::kBufferRequest == CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST && overhead::kUvmInit == CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT);

static_assert(sizeof(CUpti_ActivityKernel10) == kernel_record::kSize);
FATHOM_AT(CUpti_ActivityKernel10, registersPerThread, kernel_record::kRegisters);
FATHOM_AT(CUpti_ActivityKernel10, start, kernel_record::kStart);
FATHOM_AT(CUpti_ActivityKernel10, end, kernel_record::kEnd);
FATHOM_AT(CUpti_ActivityKernel10, deviceId, kernel_record::kDevice);
FATHOM_AT(CUpti_ActivityKernel10, streamId, kernel_record::kStream);
FATHOM_AT(CUpti_ActivityKernel10, gridX, kernel_record::kGrid);
FATHOM_AT(CUpti_ActivityKernel10, blockX, kernel_record::kBlock);
FATHOM_AT(CUpti_ActivityKernel10, staticSharedMemory, kernel_record::kStaticShared);
FATHOM_AT(CUpti_ActivityKernel10, dynamicSharedMemory, kernel_record::kDynamicShared);
FATHOM_AT(CUpti_ActivityKernel10, localMemoryPerThread, kernel_record::kLocalPerThread);
FATHOM_AT(CUpti_ActivityKernel10, correlationId, kernel_record::kCorrelation);
FATHOM_AT(CUpti_ActivityKernel10, name, kernel_record::kName);
FATHOM_AT(CUpti_ActivityKernel10, graphNodeId, kernel_record::kGraphNode);
FATHOM_AT(CUpti_ActivityKernel10, graphId, kernel_record::kGraph);

static_assert(sizeof(CUpti_ActivityMemcpy6) == copy_record::kSize);
FATHOM_AT(CUpti_ActivityMemcpy6, bytes, copy_record::kBytes);
FATHOM_AT(CUpti_ActivityMemcpy6, start, copy_record::kStart);
FATHOM_AT(CUpti_ActivityMemcpy6, end, copy_record::kEnd);
FATHOM_AT(CUpti_ActivityMemcpy6, correlationId, copy_record::kCorrelation);
FATHOM_AT(CUpti_ActivityMemcpy6, graphNodeId, copy_record::kGraphNode);
FATHOM_AT(CUpti_ActivityMemcpy6, graphId, copy_record::kGraph);

static_assert(sizeof(CUpti_ActivityMemset4) == set_record::kSize);
FATHOM_AT(CUpti_ActivityMemset4, bytes, set_record::kBytes);
FATHOM_AT(CUpti_ActivityMemset4, start, set_record::kStart);
FATHOM_AT(CUpti_ActivityMemset4, end, set_record::kEnd);
FATHOM_AT(CUpti_ActivityMemset4, correlationId, set_record::kCorrelation);
FATHOM_AT(CUpti_ActivityMemset4, graphNodeId, set_record::kGraphNode);
FATHOM_AT(CUpti_ActivityMemset4, graphId, set_record::kGraph);
// The decoder reads both at the places of a copy.
static_assert(set_record::kBytes == copy_record::kBytes && set_record::kStart == copy_record::kStart && set_record::kEnd == copy_record::kEnd &&
              set_record::kCorrelation == copy_record::kCorrelation && set_record::kGraphNode == copy_record::kGraphNode);

static_assert(sizeof(CUpti_ActivityAPI) == api_record::kSize);
FATHOM_AT(CUpti_ActivityAPI, cbid, api_record::kCall);
FATHOM_AT(CUpti_ActivityAPI, start, api_record::kStart);
FATHOM_AT(CUpti_ActivityAPI, end, api_record::kEnd);
FATHOM_AT(CUpti_ActivityAPI, threadId, api_record::kThread);
FATHOM_AT(CUpti_ActivityAPI, correlationId, api_record::kCorrelation);
FATHOM_AT(CUpti_ActivityAPI, returnValue, api_record::kReturn);

static_assert(sizeof(CUpti_ActivityExternalCorrelation) == external_record::kSize);
FATHOM_AT(CUpti_ActivityExternalCorrelation, externalKind, external_record::kExternalKind);
FATHOM_AT(CUpti_ActivityExternalCorrelation, externalId, external_record::kExternalId);
FATHOM_AT(CUpti_ActivityExternalCorrelation, correlationId, external_record::kCorrelation);

static_assert(sizeof(CUpti_ActivityOverhead3) == overhead_record::kSize);
FATHOM_AT(CUpti_ActivityOverhead3, overheadKind, overhead_record::kOverheadKind);
FATHOM_AT(CUpti_ActivityOverhead3, start, overhead_record::kStart);
FATHOM_AT(CUpti_ActivityOverhead3, end, overhead_record::kEnd);
FATHOM_AT(CUpti_ActivityOverhead3, correlationId, overhead_record::kCorrelation);

#undef FATHOM_AT

}  // namespace fathom::cuda
#endif
