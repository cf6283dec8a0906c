// NVTX ranges around ops, so that Nsight Systems and Nsight Compute show op paths. Header-only in the toolkit; without a tool attached a
// range costs one test. Compiles to nothing where the toolkit's nvtx3 headers are missing.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define FATHOM_NVTX 1
#else
#define FATHOM_NVTX 0
#endif

namespace fathom::cuda {

#if FATHOM_NVTX
// All ranges stand in one domain, which tools can filter by ("--nvtx-domain-include=fathom").
inline nvtxDomainHandle_t nvtx_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("fathom");
  return domain;
}
inline void nvtx_begin(const char* name) {
  const nvtxDomainHandle_t domain = nvtx_domain();
  if (!domain) return;  // no tool listens
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain, &attributes);
}
inline void nvtx_end() {
  if (const nvtxDomainHandle_t domain = nvtx_domain()) nvtxDomainRangePop(domain);
}
#else
inline void nvtx_begin(const char*) {}
inline void nvtx_end() {}
#endif

// A range as long as the object lives.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name) { nvtx_begin(name); }
  ~NvtxRange() { nvtx_end(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace fathom::cuda
