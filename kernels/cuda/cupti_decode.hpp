// From raw activity buffers to time per op: two passes, because records arrive before what they refer to.
//
// Pass 1 collects which op and pass each API call belonged to (external correlation) and when it began; pass 2 reads kernels, copies and fills
// and attributes them by op id, never by name. Kernels of a CUDA graph share the correlation id of their launch and are joined by graph node.
// What carries no usable time is counted by class and excluded, and never becomes a zero.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fathom::cuda {

// What cuptiActivityGetNextRecord returns.
inline constexpr int kRecordFound = 0, kNullBuffer = 1, kEndOfBuffer = 12, kBrokenBuffer = 21;

// Sets *record to the record after it (null: the first) and returns one of the codes above.
using NextRecord = std::function<int(std::uint8_t* buffer, std::size_t valid_bytes, std::uint8_t** record)>;

// Walks buffers of CUDA 13.0 by the sizes of the kinds that fathom reads; for tests and for files, where no CUPTI is loaded. Behaves like
// the library: a record cut short ends the buffer (12), an unknown kind breaks it (21).
int walk_records(std::uint8_t* buffer, std::size_t valid_bytes, std::uint8_t** record);

struct ActivityBuffer {
  std::uint8_t* data = nullptr;
  std::size_t valid_bytes = 0;
};

struct DecodeOptions {
  NextRecord next = walk_records;
  // The library wrote structs of exactly the sizes of CUDA 13.0, so that a cut last record is found by its size. Else by the distance
  // between two records of its kind in the same run, where there are two.
  bool exact_sizes = true;
  // Graph node id -> op id, from the resource callbacks during capture and instantiation.
  std::unordered_map<std::uint64_t, std::uint64_t> node_ops;
  std::uint64_t skew_ns = 1000;  // a start this little before its own launch call is interpolation, not trouble
};

// One op in one pass.
struct OpActivity {
  std::int64_t kernels = 0;        // with and without time
  std::int64_t copies = 0;         // copies and fills
  std::int64_t without_time = 0;   // of both: no usable stamps
  double kernel_seconds = 0;
  double copy_seconds = 0;
  std::uint64_t copy_bytes = 0;    // copies and fills
};

struct OverheadActivity {
  std::int64_t count = 0;
  double seconds = 0;
};

// One kernel as recorded, for tables of launch shapes.
struct KernelShape {
  std::string name;  // demangled
  std::int64_t launches = 0;
  double seconds = 0;
  int registers = 0;
  std::int64_t shared_bytes = 0, local_bytes_per_thread = 0;
  std::uint32_t grid[3] = {0, 0, 0}, block[3] = {0, 0, 0};
};

struct PassActivity {
  std::map<std::uint64_t, OpActivity> ops;   // by op id
  double busy_seconds = 0;   // union of all intervals on the device
  double span_seconds = 0;   // first start to last end
  double sum_seconds = 0;    // sum of kernels, copies and fills
};

struct Activity {
  std::map<std::uint64_t, PassActivity> passes;  // by pass id
  OpActivity unattributed;            // no op id led to them
  std::int64_t kernels = 0, attributed = 0, by_graph_node = 0;  // kernels only
  std::int64_t copies = 0;            // copies and fills
  std::int64_t outside = 0;           // kernels launched between ops; set by the session, and part of no other figure
  std::int64_t no_stamp = 0;          // start or end 0 (or the sign bit of a broken stamp)
  std::int64_t reversed = 0;          // end before start
  std::int64_t before_launch = 0;     // start more than skew before its own call
  std::int64_t failed_calls = 0;      // API records with a return value other than 0
  std::int64_t records = 0, other_records = 0;
  std::int64_t broken_buffers = 0, cut_tails = 0;
  std::uint64_t dropped = 0;          // as the library counts them; set by the session
  std::map<std::uint32_t, OverheadActivity> overheads;
  std::vector<KernelShape> shapes;    // by time, longest first

  // A step that contains loading of functions or a full command buffer is no clean sample.
  bool clean() const;
  // Something is missing: dropped records, broken or cut buffers, kernels without time.
  bool complete() const;
  std::int64_t without_time() const { return no_stamp + reversed + before_launch; }
};

Activity decode(std::span<const ActivityBuffer> buffers, const DecodeOptions& options);

// One sentence per class of trouble, for the notes of a result; empty when there is none.
std::vector<std::string> trouble(const Activity& activity);

}  // namespace fathom::cuda
