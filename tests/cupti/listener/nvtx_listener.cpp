// What a vendor's tool puts in the place of NVTX's functions, as far as ranges go: it is named by NVTX_INJECTION64_PATH, notes every range that
// begins or ends with the name of its domain, and gives the lines back to the test.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string>& domains() {
  static std::vector<std::string> names;
  return names;
}
std::string& heard() {
  static std::string lines;
  return lines;
}
nvtxDomainHandle_t create(const char* name) {
  domains().emplace_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(domains().size());  // one behind its place: a domain is not null
}
const std::string& name_of(nvtxDomainHandle_t domain) { return domains()[reinterpret_cast<std::size_t>(domain) - 1]; }
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const bool plain = attributes->version == NVTX_VERSION && attributes->messageType == NVTX_MESSAGE_TYPE_ASCII;
  heard() += name_of(domain) + " begin " + (plain ? attributes->message.ascii : "?") + "\n";
  return 0;
}
int pop(nvtxDomainHandle_t domain) {
  heard() += name_of(domain) + " end\n";
  return 0;
}

}  // namespace

extern "C" {

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) || size <= NVTX_CBID_CORE2_DomainCreateA) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

const char* fathom_nvtx_heard() { return heard().c_str(); }

}
