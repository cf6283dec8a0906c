// Fills the profiler's table (profiler_table.hpp) with the sessions of cupti_activity.hpp and cupti_counters.hpp.
#pragma once

#include "kernels/cuda/cupti_config.hpp"
#include "kernels/cuda/cupti_device.hpp"
#include "kernels/cuda/profiler_table.hpp"

namespace fathom::cuda {

#if FATHOM_CUPTI_HEADERS
struct CuptiApi;
// The table over this CUDA runtime. `api` null: CUPTI is opened when it is first needed. Tests pass their own. The last call counts.
const ProfilerTable& profiler_table(const DeviceCalls& device, CuptiApi* api);
#endif

}  // namespace fathom::cuda
