// The activity records that fathom reads, as offsets into raw bytes, so that the decoder needs no CUPTI headers.
//
// CUPTI fills the newest struct of the installed library; fields are only ever appended, so reading the prefix of CUDA 13.0 at these offsets
// is safe, and stepping by a size is not: buffers are walked by cuptiActivityGetNextRecord. Where the headers are present the offsets are
// checked against them when cupti_layout.cpp is compiled. Source: cupti_activity.h of CUDA 13.0 update 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fathom::cuda {

namespace kind {
inline constexpr std::uint32_t kMemcpy = 1, kMemset = 2, kDriver = 4, kRuntime = 5, kKernel = 10, kOverhead = 17, kExternalCorrelation = 39;
}

// Which stack of external ids a record belongs to: CUSTOM0 holds the op, CUSTOM1 the pass.
inline constexpr std::uint32_t kExternalOp = 3, kExternalPass = 4;

// Overhead kinds are n << 16.
namespace overhead {
inline constexpr std::uint32_t kBufferFlush = 1u << 16, kInstrumentation = 2u << 16, kResource = 3u << 16, kModuleLoading = 4u << 16,
                               kLazyFunctionLoading = 5u << 16, kCommandBufferFull = 6u << 16, kBufferRequest = 7u << 16, kUvmInit = 8u << 16;
}
const char* overhead_name(std::uint32_t overhead_kind);

namespace kernel_record {  // CUpti_ActivityKernel10
inline constexpr std::size_t kSize = 216, kRegisters = 6, kStart = 16, kEnd = 24, kDevice = 40, kStream = 48, kGrid = 52, kBlock = 64, kStaticShared = 76,
                             kDynamicShared = 80, kLocalPerThread = 84, kCorrelation = 92, kName = 104, kGraphNode = 144, kGraph = 156;
}
namespace copy_record {  // CUpti_ActivityMemcpy6
inline constexpr std::size_t kSize = 96, kBytes = 8, kStart = 16, kEnd = 24, kCorrelation = 44, kGraphNode = 64, kGraph = 72;
}
namespace set_record {  // CUpti_ActivityMemset4: the same places
inline constexpr std::size_t kSize = 88, kBytes = 8, kStart = 16, kEnd = 24, kCorrelation = 44, kGraphNode = 64, kGraph = 72;
}
namespace api_record {  // CUpti_ActivityAPI
inline constexpr std::size_t kSize = 40, kCall = 4, kStart = 8, kEnd = 16, kThread = 28, kCorrelation = 32, kReturn = 36;
}
namespace external_record {  // CUpti_ActivityExternalCorrelation
inline constexpr std::size_t kSize = 24, kExternalKind = 4, kExternalId = 8, kCorrelation = 16;
}
namespace overhead_record {  // CUpti_ActivityOverhead3
inline constexpr std::size_t kSize = 56, kOverheadKind = 4, kStart = 24, kEnd = 32, kCorrelation = 40;
}

// Bytes of a record of this kind in CUDA 13.0; 0: a kind that fathom does not read.
std::size_t record_size(std::uint32_t record_kind);

// A field at an offset. Records are 8-byte aligned in a buffer, their fields not always: memcpy, which costs nothing.
template <class T>
T field(const std::uint8_t* record, std::size_t offset) {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

}  // namespace fathom::cuda
