// Deals tasks 0 .. n-1 to threads: each takes those of its own stretch in order, and who is done takes the last ones of others.
//
// Tasks of attention lie in the order of sequences, so a stretch is about the rows that the same thread has in ops that go row by row: it reads what its own core
// wrote last and leaves its results there. Dealt to whoever comes first, half of all operands come from another core's cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

namespace fathom::cpu {

class OwnFirst {
 public:
  // What one thread has left: its first task in the upper half, the one after its last in the lower. On a line of its own.
  struct alignas(64) Stretch {
    std::atomic<std::uint64_t> left;
  };

  // `stretches`: memory for one per thread, contents do not matter. Fewer than 2^32 tasks. Made before the threads begin.
  OwnFirst(Stretch* stretches, int threads, std::int64_t tasks) : stretches_(stretches), threads_(threads) {
    for (int t = 0; t < threads; ++t) new (stretches + t) Stretch{packed(tasks * t / threads, tasks * (t + 1) / threads)};
  }

  // The next task of `thread`; -1: none is left.
  std::int64_t next(int thread) {
    for (int i = 0; i < threads_; ++i) {
      Stretch& from = stretches_[(thread + i) % threads_];
      std::uint64_t left = from.left.load(std::memory_order_relaxed);
      while (begin(left) < end(left)) {
        const std::int64_t task = i == 0 ? begin(left) : end(left) - 1;
        const std::uint64_t after = i == 0 ? packed(task + 1, end(left)) : packed(begin(left), task);
        if (from.left.compare_exchange_weak(left, after, std::memory_order_relaxed)) return task;
      }
    }
    return -1;
  }

 private:
  static std::uint64_t packed(std::int64_t begin, std::int64_t end) { return static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(end); }
  static std::int64_t begin(std::uint64_t left) { return static_cast<std::int64_t>(left >> 32); }
  static std::int64_t end(std::uint64_t left) { return static_cast<std::int64_t>(left & 0xffffffff); }

  Stretch* stretches_;
  int threads_;
};

}  // namespace fathom::cpu
