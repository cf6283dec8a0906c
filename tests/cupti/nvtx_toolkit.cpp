// A vendor's tool sees our op paths: ranges around the ops of a pass, as NVTX hands them to what is injected. Needs the toolkit's headers, no GPU.
#include <catch2/catch.hpp>
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "kernels/cuda/nvtx.hpp"
#include "kernels/cuda_host/profiler.hpp"
#include "models/builder.hpp"
#include "models/registry.hpp"

using namespace fathom;

TEST_CASE("ranges of a pass carry the op paths in the domain fathom") {
#if FATHOM_NVTX
  const std::string listener = std::string(FATHOM_BINARY_DIR) + "/tests/libnvtx_listener.so";
  REQUIRE(setenv("NVTX_INJECTION64_PATH", listener.c_str(), 1) == 0);  // asked at the first call of NVTX in the process
  Scenario scenario;
  scenario.length = 8;
  const Workload list = build(builtin_network("mod-tiny"), scenario);
  cuda::ProfilerTable table = {};
  table.range_begin = cuda::nvtx_begin;
  table.range_end = cuda::nvtx_end;
  cuda::RangeObserver observer(list, table);
  std::string wanted;
  for (int i = 0; i < static_cast<int>(list.instances().size()); ++i) {
    observer.begin_op(i);
    observer.end_op(i);
    wanted += "fathom begin " + list.path(list.instances()[static_cast<size_t>(i)]) + "\nfathom end\n";
  }
  void* loaded = dlopen(listener.c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(loaded);
  const auto heard = reinterpret_cast<const char* (*)()>(dlsym(loaded, "fathom_nvtx_heard"));
  REQUIRE(heard);
  CHECK(std::string(heard()) == wanted);
  CHECK(wanted.find("fathom begin embed/tokens\n") != std::string::npos);
#else
  std::cout << "skipped: nvtx3 of the CUDA toolkit is not installed\n";
  CHECK(FATHOM_NVTX == 0);
#endif
}
