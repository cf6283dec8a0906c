#include "kernels/cuda/cupti_config.hpp"

#if FATHOM_CUPTI_HEADERS
#include "kernels/cuda/cupti_api.hpp"

#include <dlfcn.h>

namespace fathom::cuda {

bool load_cupti(const std::vector<std::string>& names, CuptiApi& api, std::string& message) {
  void* library = nullptr;
  message = "no library name was given";
  for (const std::string& name : names) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library) break;
    const char* reason = dlerror();
    if (&name == &names.front()) message = reason ? reason : name;  // the plain name says most
  }
  if (!library) return false;
#define FATHOM_CUPTI_LOAD(function)                                                       \
  api.function = reinterpret_cast<decltype(api.function)>(dlsym(library, #function));     \
  if (!api.function) {                                                                    \
    message = "it has no " #function ", so it is older than CUDA 13.0";                   \
    return false;                                                                         \
  }
  FATHOM_CUPTI_FUNCTIONS(FATHOM_CUPTI_LOAD)
#undef FATHOM_CUPTI_LOAD
  message.clear();
  return true;
}

std::vector<std::string> cupti_library_names() {
  std::vector<std::string> names = {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "/usr/local/cuda/lib/libcupti.so.13"};
#ifdef FATHOM_CUPTI_LIBRARY
  names.emplace_back(FATHOM_CUPTI_LIBRARY);
#endif
  return names;
}

}  // namespace fathom::cuda
#endif
