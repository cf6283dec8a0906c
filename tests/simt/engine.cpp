// The emulator behind kernels/cuda/simt_host.hpp: blocks of fibers, barriers, warp collectives, and what is checked on the way.
#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cuda/simt.hpp"
#include "tests/simt/fiber.hpp"
#include "tests/simt/memory.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace fathom::simt {
namespace {

constexpr int kLanes = 32;
constexpr std::size_t kStack = std::size_t{256} << 10;

enum class State { kReady, kAtWarp, kAtBlock, kDone };
struct Abort {};  // unwinds the other threads after a failure
struct Copy {
  void* to;
  const void* from;  // null: zeros
  Site at;
};

struct Thread {
  int index = 0;
  State state = State::kReady;
  Site at;
  Fiber* fiber = nullptr;
  void* fake_stack = nullptr;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  int live = 0, arrived = 0;
  std::uint32_t ready = 0, parked = 0;
  Site at;
  unsigned phase = 0;
  std::uint16_t syncs = 0;
  Slot slots[2][kLanes];
};

struct Block {
  Place place;
  int threads = 0, live = 0, arrived = 0;
  std::uint32_t serial = 0, launch_first = 0, generation = 0;
  bool vote = false, verdict = false;
  Site at;
  std::uint64_t random = 1;
  const std::function<void()>* kernel = nullptr;
  const char* name = "";
  std::string error;
};

Block block;
std::vector<std::unique_ptr<Thread>> pool;  // kept for the whole process: fibers are expensive to make
std::vector<Warp> warps;
Thread* current = nullptr;
#ifdef __SANITIZE_ADDRESS__  // a stack that is left keeps its fake frames; the sanitizer must know where the other one lies
void* scheduler_fake_stack = nullptr;
const void* scheduler_low = nullptr;
std::size_t scheduler_size = 0;
#endif

bool same(const Site& a, const Site& b) { return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0; }
std::string text(const Site& at) {
  const std::string file = at.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(at.line());
}
void record(const std::string& what) {
  if (!block.error.empty()) return;
  const auto& b = block.place.block;
  block.error = what + "; block (" + std::to_string(b[0]) + ", " + std::to_string(b[1]) + ", " + std::to_string(b[2]) + ")" +
                (current ? ", thread " + std::to_string(current->index) : "") + ", " + block.name;
}

void to_fiber(Thread& t) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber_stack_low(t.fiber), fiber_stack_size(t.fiber));
#endif
  fiber_enter(t.fiber);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
}
void to_scheduler(Thread& t) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&t.fake_stack, scheduler_low, scheduler_size);
#endif
  fiber_leave(t.fiber);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(t.fake_stack, &scheduler_low, &scheduler_size);
#endif
}

void suspend(State state, const Site& at) {
  Thread* me = current;
  me->state = state;
  me->at = at;
  to_scheduler(*me);
  current = me;
  block.place.thread = me->index;
  if (!block.error.empty()) throw Abort{};
}

void thread_body(void* argument) {
  auto* t = static_cast<Thread*>(argument);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_low, &scheduler_size);
#endif
  for (;;) {
    current = t;
    block.place.thread = t->index;
    try {
      (*block.kernel)();
      if (!t->open.empty() || std::any_of(t->groups.begin(), t->groups.end(), [](const auto& g) { return !g.empty(); }))
        record("asynchronous copies that nobody waited for");
    } catch (const Abort&) {
    } catch (const std::exception& e) {
      record(e.what());
    }
    t->open.clear();
    t->groups.clear();
    t->state = State::kDone;
    to_scheduler(*t);
  }
}

void resume(Thread& t) {
  t.state = State::kReady;
  current = &t;
  block.place.thread = t.index;
  to_fiber(t);
  current = nullptr;
}

std::uint64_t next_random() {
  block.random += 0x9e3779b97f4a7c15u;
  std::uint64_t z = block.random;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void arrange(std::vector<std::int64_t>& list) {
  if (options().order == Order::kReverse) std::reverse(list.begin(), list.end());
  if (options().order == Order::kShuffled)
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[next_random() % i]);
}

void wake(State state) {
  for (int i = 0; i < block.threads; ++i)
    if (pool[static_cast<std::size_t>(i)]->state == state) warps[static_cast<std::size_t>(i / kLanes)].ready |= 1u << (i % kLanes);
}

std::string deadlock() {
  for (int i = 0; i < block.threads; ++i) {
    const Thread& t = *pool[static_cast<std::size_t>(i)];
    if (t.state == State::kAtBlock) return "deadlock: " + std::to_string(block.arrived) + " of " + std::to_string(block.live) + " threads wait at the barrier " + text(t.at);
    if (t.state == State::kAtWarp) return "deadlock: lanes wait at the collective " + text(t.at) + " for lanes that do not come";
  }
  return "deadlock";
}

void run_warp(Warp& w, int first, bool& moved) {
  std::vector<std::int64_t> lanes;
  while (w.ready != 0) {
    moved = true;
    lanes.clear();
    for (int l = 0; l < kLanes; ++l)
      if (w.ready >> l & 1u) lanes.push_back(l);
    arrange(lanes);
    w.ready = 0;
    for (const std::int64_t l : lanes) {
      Thread& t = *pool[static_cast<std::size_t>(first + l)];
      resume(t);
      if (t.state == State::kDone) --block.live, --w.live;
      if (t.state == State::kAtWarp) w.parked |= 1u << l;
    }
    if (w.arrived == 0 || w.arrived != w.live) continue;
    if (w.live != kLanes) record("collective " + text(w.at) + " met by " + std::to_string(w.live) + " of 32 lanes: the others returned");
    w.arrived = 0;
    ++w.phase;
    std::memset(static_cast<void*>(w.slots[w.phase & 1]), 0xFF, sizeof w.slots[0]);
    w.ready = w.parked;
    w.parked = 0;
  }
}

void run_block() {
  block.live = block.threads;
  block.arrived = 0;
  block.vote = false;
  ++block.generation;
  for (Warp& w : warps) {
    w.live = kLanes;
    w.arrived = 0;
    w.parked = 0;
    w.ready = ~0u;
    w.phase = 0;
    w.syncs = 0;
    std::memset(static_cast<void*>(w.slots), 0xFF, sizeof w.slots);
  }
  std::vector<std::int64_t> order;
  while (block.live > 0) {
    bool moved = false;
    order.resize(warps.size());
    std::iota(order.begin(), order.end(), 0);
    arrange(order);
    for (const std::int64_t w : order) run_warp(warps[static_cast<std::size_t>(w)], static_cast<int>(w) * kLanes, moved);
    if (block.live > 0 && block.arrived == block.live) {
      if (block.live != block.threads)
        record("barrier " + text(block.at) + " met by " + std::to_string(block.live) + " of " + std::to_string(block.threads) + " threads: the others returned");
      block.arrived = 0;
      ++block.generation;
      block.verdict = std::exchange(block.vote, false);
      moved = true;
      wake(State::kAtBlock);
    }
    if (moved && block.error.empty()) continue;
    if (block.error.empty()) record(deadlock());
    block.arrived = 0;
    for (Warp& w : warps) w.arrived = 0, w.parked = 0;
    wake(State::kAtBlock);
    wake(State::kAtWarp);
  }
}

void access(const void* p, std::size_t bytes, Access kind, const Site* at) {
  if (current == nullptr || !is_device_memory(p) || !block.error.empty()) return;
  const auto thread = static_cast<std::uint16_t>(current->index);
  const Accessor who{block.serial, block.launch_first, block.generation, thread, warps[thread / kLanes].syncs};
  const std::string wrong = shadow_access(who, p, bytes, kind);
  if (!wrong.empty()) record(wrong + (at ? " at " + text(*at) : ""));
}

}  // namespace

Options& options() {
  static Options o;
  return o;
}
Statistics& statistics() {
  static Statistics s;
  return s;
}
const Place& here() { return block.place; }

void fail(const std::string& what, const Site& at) { throw Failure(what + " at " + text(at)); }

void hook(const void* p, std::size_t bytes, bool write, const void*) { access(p, bytes, write ? Access::kWrite : Access::kRead, nullptr); }
void note(const void* p, std::size_t bytes, bool write, const Site& at) { access(p, bytes, write ? Access::kWrite : Access::kRead, &at); }
void note_atomic(const void* p, std::size_t bytes, const Site& at) { access(p, bytes, Access::kAtomic, &at); }
void check_aligned(const void* p, const Site& at) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) fail("16-byte access to an address that is no multiple of 16", at);
}

const Slot* exchange(const void* value, std::size_t bytes, const Site& at) {
  Warp& w = warps[static_cast<std::size_t>(current->index / kLanes)];
  const unsigned phase = w.phase & 1;
  std::memcpy(w.slots[phase][current->index % kLanes].bytes, value, bytes);
  if (w.arrived++ == 0)
    w.at = at;
  else if (!same(w.at, at))
    record("divergent warp: lanes at " + text(w.at) + " and " + text(at));
  suspend(State::kAtWarp, at);
  return w.slots[phase];
}

void block_barrier(const Site& at) {
  if (block.arrived++ == 0)
    block.at = at;
  else if (!same(block.at, at))
    record("divergent barrier: threads at " + text(block.at) + " and " + text(at));
  suspend(State::kAtBlock, at);
}

bool vote(bool p, const Site& at) {
  block.vote |= p;
  block_barrier(at);
  return block.verdict;
}

void warp_barrier(const Site& at) {
  const char nothing = 0;
  exchange(&nothing, 1, at);
  Warp& w = warps[static_cast<std::size_t>(current->index / kLanes)];
  w.syncs = static_cast<std::uint16_t>(w.phase);  // the same for all lanes that left this rendezvous
}

void async_copy(void* to, const void* from, const Site& at) {
  check_aligned(to, at);
  if (from) check_aligned(from, at);
  note(to, 16, true, at);  // it may land at once: whoever still reads what it overwrites races with it
  current->open.push_back({to, from, at});
}
void async_commit() {
  current->groups.push_back(std::move(current->open));
  current->open.clear();
}
void async_wait(int pending) {
  while (static_cast<int>(current->groups.size()) > pending) {
    for (const Copy& copy : current->groups.front()) {
      if (copy.from) {
        note(copy.from, 16, false, copy.at);
        note(copy.to, 16, true, copy.at);
        if (block.error.empty()) std::memcpy(copy.to, copy.from, 16);
      } else {
        note(copy.to, 16, true, copy.at);
        if (block.error.empty()) std::memset(copy.to, 0, 16);
      }
    }
    current->groups.pop_front();
  }
}

void note_matrix_rows(const Slot* rows, int count, const Site&) {
  for (int i = 0; i < count; i += 8) {
    int hits[8] = {};
    for (int r = i; r < i + 8; ++r) ++hits[reinterpret_cast<std::uintptr_t>(peek<const void*>(rows, r)) / 16 % 8];
    ++statistics().matrix_loads;
    statistics().matrix_conflicts += *std::max_element(hits, hits + 8) - 1;
  }
}

void run(const cuda::LaunchShape& shape, const std::function<void()>& kernel, const char* name) {
  if (shape.grid_x <= 0 || shape.grid_y <= 0 || shape.grid_z <= 0) return;
  if (shape.block <= 0 || shape.block > 1024 || shape.block % kLanes != 0) throw Failure("a block of " + std::to_string(shape.block) + " threads");
  if (shape.grid_x > 0x7fffffff || shape.grid_y > 65535 || shape.grid_z > 65535) throw Failure("the grid is too large");
  for (int i = static_cast<int>(pool.size()); i < shape.block; ++i) {
    auto& t = pool.emplace_back(std::make_unique<Thread>());
    t->index = i;
    t->fiber = fiber_new(kStack, thread_body, t.get());
  }
  ++statistics().launches;
  block.kernel = &kernel;
  block.name = name;
  block.error.clear();
  block.threads = block.place.threads = shape.block;
  warps.resize(static_cast<std::size_t>(shape.block / kLanes));
  block.launch_first = block.serial + 1;
  block.random = options().seed;
  const std::int64_t blocks = shape.grid_x * shape.grid_y * shape.grid_z;
  std::vector<std::int64_t> order(static_cast<std::size_t>(options().last_blocks > 0 ? std::min(blocks, options().last_blocks) : blocks));
  std::iota(order.begin(), order.end(), blocks - static_cast<std::int64_t>(order.size()));
  arrange(order);
  block.place.grid[0] = shape.grid_x, block.place.grid[1] = shape.grid_y, block.place.grid[2] = shape.grid_z;
  for (const std::int64_t b : order) {
    block.place.block[0] = b % shape.grid_x;
    block.place.block[1] = b / shape.grid_x % shape.grid_y;
    block.place.block[2] = b / (shape.grid_x * shape.grid_y);
    ++block.serial;
    ++statistics().blocks;
    block.place.shared = shared_begin(static_cast<std::size_t>(shape.shared));
    run_block();
    if (!block.error.empty()) throw Failure(std::exchange(block.error, {}));
  }
}

}  // namespace fathom::simt
