#include "kernels/cpu/pinned.hpp"

#include "kernels/cpu/cpu_info.hpp"

#if defined(__linux__) && defined(_OPENMP)
#include <omp.h>
#include <sched.h>
#endif

namespace fathom::cpu {
namespace {

int holders = 0, pinned_threads = 0;

#if defined(__linux__) && defined(_OPENMP)
// Every thread to its own CPU, or to all of them.
bool place(int threads, bool each) {
  const std::vector<int>& cpus = cpu_info().cpus;
  int refused = 0;
#pragma omp parallel num_threads(threads) reduction(+ : refused)
  {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (each)
      CPU_SET(cpus[static_cast<std::size_t>(omp_get_thread_num()) % cpus.size()], &set);
    else
      for (const int cpu : cpus) CPU_SET(cpu, &set);
    refused += sched_setaffinity(0, sizeof(set), &set) != 0;
  }
  return refused == 0;
}
bool bound_already() { return omp_get_proc_bind() != omp_proc_bind_false; }  // OMP_PROC_BIND
#else
bool place(int, bool) { return false; }
bool bound_already() { return false; }
#endif

}  // namespace

PinnedThreads::PinnedThreads(int threads) {
  if (threads < 2 || static_cast<std::size_t>(threads) != cpu_info().cpus.size() || bound_already()) return;
  if (holders == 0) {
    if (!place(threads, true)) {
      place(threads, false);
      return;
    }
    pinned_threads = threads;
  }
  holds_ = true;
  ++holders;
}

PinnedThreads::~PinnedThreads() {
  if (!holds_ || --holders > 0) return;
  place(pinned_threads, false);
}

bool PinnedThreads::active() { return holders > 0; }

}  // namespace fathom::cpu
