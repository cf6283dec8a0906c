// Threads stay on their cores while an execution lives and are free afterwards.
#include <catch2/catch.hpp>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/pinned.hpp"
#include "kernels/cpu/probe_memory.hpp"

#if defined(__linux__)
#include <sched.h>

using namespace fathom::cpu;

namespace {

int cpus_allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;
}

}  // namespace

TEST_CASE("pinning holds as long as one of several lives, and frees all") {
  const int all = static_cast<int>(cpu_info().cpus.size());
  REQUIRE(cpus_allowed() == all);
  if (all < 2) {
    WARN("skipped: one CPU");
    return;
  }
  {
    const PinnedThreads first(all);
    if (!PinnedThreads::active()) {
      WARN("skipped: the system refuses, or OMP_PROC_BIND is set");
      return;
    }
    CHECK(cpus_allowed() == 1);
    { const PinnedThreads second(all); }
    CHECK(cpus_allowed() == 1);
  }
  CHECK_FALSE(PinnedThreads::active());
  CHECK(cpus_allowed() == all);
}

TEST_CASE("other thread counts are not pinned: which CPUs share a core is not known") {
  const int all = static_cast<int>(cpu_info().cpus.size());
  const PinnedThreads one(1), more(all + 1);
  CHECK_FALSE(PinnedThreads::active());
  CHECK(cpus_allowed() == all);
}

TEST_CASE("handing over: one thread has nobody to hand to") {
  CHECK_FALSE(cores_apart(1));
  const HandoverProbe none = probe_handover(1);
  CHECK(none.samples == 0);
  CHECK_FALSE(none.apart());
  if (cpu_info().cores < 2) return;
  const HandoverProbe two = probe_handover(2);
  CHECK(two.own > 0);
  CHECK(two.other > 0);
}
#endif
