#include "tests/simt/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>

namespace fathom::simt {

#ifdef __SANITIZE_ADDRESS__

void* device_allocate(std::size_t bytes) {
  void* p = ::operator new(bytes, std::align_val_t{256});
  std::memset(p, 0xFF, bytes);
  return p;
}
void device_free(void* p) { ::operator delete(p, std::align_val_t{256}); }
bool is_device_memory(const void*) { return false; }
std::string shadow_access(const Accessor&, const void*, std::size_t, Access) { return {}; }

unsigned char* shared_begin(std::size_t bytes) {
  static unsigned char* current = nullptr;
  ::operator delete(current, std::align_val_t{256});
  current = static_cast<unsigned char*>(::operator new(bytes, std::align_val_t{256}));
  std::memset(current, 0xFF, bytes);
  return current;
}

#else

namespace {

struct Cell {  // two bytes of memory
  std::uint32_t write_block, write_generation;
  std::uint32_t read_block, read_generation;
  std::uint16_t write_thread, write_syncs, read_thread, read_syncs;
  bool allocated, write_atomic, many_readers, many_warps, many_blocks;
};
constexpr std::size_t kArena = std::size_t{256} << 20;
constexpr std::size_t kShared = std::size_t{256} << 10;  // the arena's first part
constexpr std::size_t kGap = 4096;                       // between buffers: stays unallocated

struct Arena {
  unsigned char* data;
  Cell* cells;
  std::size_t used = kShared + kGap;
  std::size_t shared_bytes = 0;
  std::map<unsigned char*, std::size_t> live;

  Arena() {
    const auto map = [](std::size_t bytes) {
      void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
      return p;
    };
    data = static_cast<unsigned char*>(map(kArena));
    cells = static_cast<Cell*>(map(kArena / 2 * sizeof(Cell)));
  }
  void mark(std::size_t at, std::size_t bytes, bool allocated) {
    for (std::size_t c = at / 2; c < (at + bytes + 1) / 2; ++c) cells[c] = Cell{}, cells[c].allocated = allocated;
  }
};
Arena& arena() {
  static Arena a;
  return a;
}

std::string name_of(std::uint16_t thread) { return "thread " + std::to_string(thread); }

}  // namespace

void* device_allocate(std::size_t bytes) {
  Arena& a = arena();
  if (a.used + bytes + 2 * kGap > kArena) throw std::bad_alloc();
  const std::size_t at = a.used;
  a.used = (at + bytes + kGap + 255) / 256 * 256;
  std::memset(a.data + at, 0xFF, bytes);
  a.mark(at, bytes, true);
  a.live[a.data + at] = bytes;
  return a.data + at;
}

void device_free(void* p) {
  Arena& a = arena();
  const auto it = a.live.find(static_cast<unsigned char*>(p));
  a.mark(static_cast<std::size_t>(it->first - a.data), it->second, false);
  a.live.erase(it);
  if (a.live.empty()) a.used = kShared + kGap;
}

bool is_device_memory(const void* p) {
  const auto* at = static_cast<const unsigned char*>(p);
  return at >= arena().data && at < arena().data + kArena;
}

unsigned char* shared_begin(std::size_t bytes) {
  Arena& a = arena();
  if (bytes > kShared) throw std::runtime_error("shared memory of " + std::to_string(bytes) + " bytes: no GPU has that much per block");
  if (bytes != a.shared_bytes) {
    a.mark(0, a.shared_bytes, false);
    a.mark(0, bytes, true);
    a.shared_bytes = bytes;
  }
  std::memset(a.data, 0xFF, bytes);
  return a.data;
}

std::string shadow_access(const Accessor& who, const void* p, std::size_t bytes, Access access) {
  Arena& a = arena();
  const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(p) - a.data);
  const bool shared = offset < kShared;
  const auto where = [&] {
    if (shared) return "byte " + std::to_string(offset) + " of shared memory (" + std::to_string(a.shared_bytes) + " bytes)";
    auto it = a.live.upper_bound(a.data + offset);
    if (it == a.live.begin()) return std::string("memory before the first buffer");
    --it;
    return "byte " + std::to_string(a.data + offset - it->first) + " of a buffer of " + std::to_string(it->second) + " bytes";
  };
  const bool write = access != Access::kRead;
  for (std::size_t c = offset / 2; c < (offset + bytes + 1) / 2; ++c) {
    Cell& cell = a.cells[c];
    if (!cell.allocated) return std::string(write ? "write" : "read") + " out of bounds: " + where();
    const auto unordered = [&](std::uint16_t thread, std::uint16_t syncs) {
      return thread != who.thread && !(thread / 32 == who.thread / 32 && syncs != who.warp_syncs);
    };
    const bool written = cell.write_block >= who.launch_first && cell.write_block != 0;
    const bool both_atomic = access == Access::kAtomic && cell.write_atomic;
    if (written && !both_atomic) {
      if (cell.write_block != who.block) {
        if (!shared) return std::string("race between blocks: ") + (write ? "written" : "read after a write") + " by another block of the launch: " + where();
      } else if (cell.write_generation == who.generation && unordered(cell.write_thread, cell.write_syncs)) {
        return std::string("race: ") + (write ? "written" : "read") + " without a barrier after a write by " + name_of(cell.write_thread) + ": " + where();
      }
    }
    if (shared && access == Access::kRead && !(written && cell.write_block == who.block)) return "read of shared memory that nobody wrote: " + where();
    const bool read_here = cell.read_block == who.block && cell.read_generation == who.generation && cell.read_block != 0;
    if (write) {
      if (!shared && cell.read_block >= who.launch_first && cell.read_block != 0 && (cell.read_block != who.block || cell.many_blocks))
        return "race between blocks: written after a read by another block of the launch: " + where();
      if (read_here && (cell.many_warps || (cell.many_readers && cell.read_syncs == who.warp_syncs) || unordered(cell.read_thread, cell.read_syncs)))
        return "race: written without a barrier after a read by " + name_of(cell.read_thread) + ": " + where();
      cell.write_block = who.block, cell.write_generation = who.generation;
      cell.write_thread = who.thread, cell.write_syncs = who.warp_syncs;
      cell.write_atomic = access == Access::kAtomic;
    } else {
      const bool other_block = cell.read_block >= who.launch_first && cell.read_block != 0 && cell.read_block != who.block;
      cell.many_blocks = other_block || (cell.many_blocks && cell.read_block >= who.launch_first);
      // The last reader is kept, and whether there were others since the barrier that orders them before a later write.
      if (!read_here) cell.many_readers = cell.many_warps = false;
      const bool other = read_here && cell.read_thread != who.thread;
      if (other && cell.read_thread / 32 != who.thread / 32) cell.many_warps = true;
      cell.many_readers = (other || cell.many_readers) && read_here && cell.read_syncs == who.warp_syncs;
      cell.read_block = who.block, cell.read_generation = who.generation;
      cell.read_thread = who.thread, cell.read_syncs = who.warp_syncs;
    }
  }
  return {};
}

#endif

}  // namespace fathom::simt
