// Threads that stay on their cores while something is timed.
//
// A scheduler may leave two threads of one process on one core for seconds while another core idles; every barrier then waits for a time slice (8 ms were seen
// instead of 15 us). And memory that one thread wrote is near to its core alone.
#pragma once

namespace fathom::cpu {

// While one of these lives, OpenMP thread i stays on the i-th CPU that the process may use; the last one gives all threads their freedom back. Does nothing
// where the threads are fewer or more than these CPUs (which of them share a core is not known), where OMP_PROC_BIND says something, or where the system refuses.
class PinnedThreads {
 public:
  explicit PinnedThreads(int threads);
  ~PinnedThreads();
  PinnedThreads(const PinnedThreads&) = delete;
  PinnedThreads& operator=(const PinnedThreads&) = delete;

  static bool active();

 private:
  bool holds_ = false;
};

}  // namespace fathom::cpu
