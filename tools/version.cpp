// fathom --version: which program this is. A record carries the first line, so that a figure can be traced to the code that made it.
#include "tools/version.hpp"

#include <fmt/format.h>

#if FATHOM_CPU
#include <omp.h>
#include <oneapi/dnnl/dnnl_version.h>
#endif

#include <fathom_commit.hpp>  // written by the build

namespace fathom {

std::string version_text() {
  const std::string_view commit = FATHOM_COMMIT;
  return commit.empty() ? fmt::format("fathom {}", FATHOM_VERSION) : fmt::format("fathom {} ({})", FATHOM_VERSION, commit);
}

std::string compiler_text() { return FATHOM_COMPILER; }

std::string version_page() {
  std::string text = version_text() + "\n";
  text += fmt::format("build:        {}, {}\n", FATHOM_BUILD_TYPE, FATHOM_COMPILER);
#if FATHOM_CPU
  text += fmt::format("CPU backend:  on (oneDNN {}.{}.{}, OpenMP {})\n", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH, _OPENMP);
#else
  text += "CPU backend:  off (FATHOM_CPU=OFF)\n";
#endif
  text += fmt::format("CUDA backend: {}\n", FATHOM_CUDA_STATUS);
  const std::string_view sanitizers = FATHOM_SANITIZERS;
  return text + fmt::format("sanitizers:   {}", sanitizers.empty() ? "none" : sanitizers);
}

}  // namespace fathom
