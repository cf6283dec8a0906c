// Every task is dealt once, to whom it belongs while it has any left.
#include "kernels/cpu/own_first.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <thread>
#include <vector>

using namespace fathom::cpu;

namespace {

std::vector<std::int64_t> taken(OwnFirst& deal, int thread, int most) {
  std::vector<std::int64_t> tasks;
  for (int i = 0; i < most; ++i)
    if (const std::int64_t task = deal.next(thread); task >= 0) tasks.push_back(task);
  return tasks;
}

}  // namespace

TEST_CASE("a thread takes its own stretch in order, then the last tasks of the other") {
  std::array<OwnFirst::Stretch, 2> stretches;
  OwnFirst deal(stretches.data(), 2, 7);  // 0 1 2 | 3 4 5 6
  CHECK(taken(deal, 1, 2) == std::vector<std::int64_t>{3, 4});
  CHECK(taken(deal, 0, 5) == std::vector<std::int64_t>{0, 1, 2, 6, 5});
  CHECK(deal.next(0) == -1);
  CHECK(deal.next(1) == -1);
}

TEST_CASE("fewer tasks than threads, none, and one thread") {
  std::array<OwnFirst::Stretch, 3> stretches;
  OwnFirst few(stretches.data(), 3, 2);  // nothing | 0 | 1
  CHECK(taken(few, 0, 3) == std::vector<std::int64_t>{0, 1});
  OwnFirst none(stretches.data(), 3, 0);
  CHECK(none.next(2) == -1);
  OwnFirst one(stretches.data(), 1, 3);
  CHECK(taken(one, 0, 4) == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("threads that run at once get every task exactly once") {
  constexpr int kThreads = 4, kTasks = 20000;
  std::array<OwnFirst::Stretch, kThreads> stretches;
  OwnFirst deal(stretches.data(), kThreads, kTasks);
  std::array<std::vector<std::int64_t>, kThreads> got;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t task = deal.next(t); task >= 0; task = deal.next(t)) got[static_cast<std::size_t>(t)].push_back(task);
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<int> times(kTasks, 0);
  for (const auto& tasks : got)
    for (const std::int64_t task : tasks) ++times[static_cast<std::size_t>(task)];
  CHECK(times == std::vector<int>(kTasks, 1));
}
