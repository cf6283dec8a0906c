// Facts about this computer that a record carries: what ran it, so that figures of many machines can stand in one file.
#pragma once

#include "reports/record.hpp"

namespace fathom {

// cpu, cores, threads, memory_bytes, cpu_l2_bytes, cpu_l3_bytes, system and compiler, those that can be found out. `threads`: as asked, 0: all cores;
// the reference backend uses one.
void set_host_facts(Figures& environment, const std::string& backend, int threads);

}  // namespace fathom
