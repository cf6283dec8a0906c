#include "kernels/cuda/cupti_decode.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "kernels/cuda/cupti_records.hpp"

namespace fathom::cuda {
namespace {

// Which op and pass a call belonged to, and when it began.
struct Call {
  std::optional<std::uint64_t> op, pass;
  std::uint64_t start = 0;  // 0: no API record
};

struct Interval {
  std::uint64_t start = 0, end = 0;
};

// A stamp beyond 2^63 ns would be the year 2262: the sign bit of a broken record.
bool plausible(std::uint64_t stamp) { return stamp != 0 && stamp < (std::uint64_t{1} << 63); }

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string demangled(const char* name) {
  if (!name) return "(no name)";
  int status = 0;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && plain ? plain : name;
  std::free(plain);
  return result;
}

class Decoder {
 public:
  explicit Decoder(const DecodeOptions& options) : options_(options) {}

  Activity run(std::span<const ActivityBuffer> buffers) {
    for (const ActivityBuffer& buffer : buffers) walk(buffer, true);
    for (const ActivityBuffer& buffer : buffers) walk(buffer, false);
    for (const ActivityBuffer& buffer : buffers) check_tail(buffer);
    for (auto& [id, pass] : result_.passes) close(pass, intervals_[id]);
    for (auto& [key, shape] : shapes_) result_.shapes.push_back(std::move(shape));
    std::stable_sort(result_.shapes.begin(), result_.shapes.end(), [](const KernelShape& a, const KernelShape& b) { return a.seconds > b.seconds; });
    return std::move(result_);
  }

 private:
  void walk(const ActivityBuffer& buffer, bool first) {
    if (buffer.valid_bytes == 0) return;
    std::uint8_t* record = nullptr;
    std::uint8_t* previous = nullptr;
    for (;;) {
      const int code = options_.next(buffer.data, buffer.valid_bytes, &record);
      if (code != kRecordFound) {
        if (first && code != kEndOfBuffer) ++result_.broken_buffers;
        break;
      }
      if (first) {
        if (previous) strides_[field<std::uint32_t>(previous, 0)] = static_cast<std::size_t>(record - previous);
        collect(record);
      } else {
        read(record);
      }
      previous = record;
    }
    if (first) last_[buffer.data] = previous;
  }

  // The library reports no error for a buffer cut inside its last record.
  void check_tail(const ActivityBuffer& buffer) {
    if (buffer.valid_bytes == 0) return;
    const std::uint8_t* last = last_[buffer.data];
    if (!last) {
      ++result_.cut_tails;
      return;
    }
    const std::uint32_t what = field<std::uint32_t>(last, 0);
    const auto stride = strides_.find(what);
    const std::size_t size = options_.exact_sizes ? record_size(what) : stride != strides_.end() ? stride->second : 0;
    if (size > 0 && static_cast<std::size_t>(last - buffer.data) + size != buffer.valid_bytes) ++result_.cut_tails;
  }

  void collect(const std::uint8_t* record) {
    ++result_.records;
    switch (field<std::uint32_t>(record, 0)) {
      case kind::kExternalCorrelation: {
        Call& call = calls_[field<std::uint32_t>(record, external_record::kCorrelation)];
        const auto id = field<std::uint64_t>(record, external_record::kExternalId);
        const auto which = field<std::uint32_t>(record, external_record::kExternalKind);
        if (which == kExternalOp) call.op = id;
        if (which == kExternalPass) call.pass = id;
        break;
      }
      case kind::kRuntime:
      case kind::kDriver: {
        Call& call = calls_[field<std::uint32_t>(record, api_record::kCorrelation)];
        const auto start = field<std::uint64_t>(record, api_record::kStart);
        if (plausible(start) && (call.start == 0 || start < call.start)) call.start = start;
        if (field<std::uint32_t>(record, api_record::kReturn) != 0) ++result_.failed_calls;
        break;
      }
      case kind::kOverhead: {
        OverheadActivity& total = result_.overheads[field<std::uint32_t>(record, overhead_record::kOverheadKind)];
        const auto start = field<std::uint64_t>(record, overhead_record::kStart), end = field<std::uint64_t>(record, overhead_record::kEnd);
        ++total.count;
        if (plausible(start) && plausible(end) && end >= start) total.seconds += seconds(end - start);
        break;
      }
      case kind::kKernel:
      case kind::kMemcpy:
      case kind::kMemset:
        break;
      default:
        ++result_.other_records;
    }
  }

  void read(const std::uint8_t* record) {
    switch (field<std::uint32_t>(record, 0)) {
      case kind::kKernel: {
        using namespace kernel_record;
        const auto name = field<const char*>(record, kName);
        ++result_.kernels;
        const Place place = find(field<std::uint32_t>(record, kCorrelation), field<std::uint64_t>(record, kGraphNode), true);
        ++place.op->kernels;
        const double time = timed(record, kStart, kEnd, place);
        place.op->kernel_seconds += time;
        KernelShape& shape = shapes_[name ? std::string(name) : std::string()];
        if (shape.launches++ == 0) {
          shape.name = demangled(name);
          shape.registers = field<std::uint16_t>(record, kRegisters);
          shape.shared_bytes = std::int64_t{field<std::int32_t>(record, kStaticShared)} + field<std::int32_t>(record, kDynamicShared);
          shape.local_bytes_per_thread = field<std::uint32_t>(record, kLocalPerThread);
          for (std::size_t i = 0; i < 3; ++i) {
            shape.grid[i] = field<std::uint32_t>(record, kGrid + 4 * i);
            shape.block[i] = field<std::uint32_t>(record, kBlock + 4 * i);
          }
        }
        shape.seconds += time;
        break;
      }
      case kind::kMemcpy:
      case kind::kMemset: {  // both have these fields in the same places
        using namespace copy_record;
        const Place place = find(field<std::uint32_t>(record, kCorrelation), field<std::uint64_t>(record, kGraphNode), false);
        ++result_.copies;
        ++place.op->copies;
        const auto bytes = field<std::uint64_t>(record, kBytes);
        place.op->copy_bytes = bytes > ~place.op->copy_bytes ? ~std::uint64_t{0} : place.op->copy_bytes + bytes;  // garbage must not wrap into a plausible sum
        place.op->copy_seconds += timed(record, kStart, kEnd, place);
        break;
      }
      default:
        break;
    }
  }

  struct Place {
    OpActivity* op = nullptr;
    const Call* call = nullptr;
    std::optional<std::uint64_t> pass;
  };

  Place find(std::uint32_t correlation, std::uint64_t node, bool kernel) {
    Place place;
    const auto call = calls_.find(correlation);
    if (call != calls_.end()) place.call = &call->second;
    // A graph's kernels share their launch's call, which can only name the launch: the node knows better.
    std::optional<std::uint64_t> op;
    if (node != 0) {
      const auto found = options_.node_ops.find(node);
      if (found != options_.node_ops.end()) {
        op = found->second;
        if (kernel) ++result_.by_graph_node;
      }
    }
    if (!op && node == 0 && place.call) op = place.call->op;
    if (!op) {
      place.op = &result_.unattributed;
      return place;
    }
    if (kernel) ++result_.attributed;
    place.pass = place.call && place.call->pass ? *place.call->pass : 0;
    place.op = &result_.passes[*place.pass].ops[*op];
    return place;
  }

  // Seconds of a record, 0 and a mark in its class where the stamps are unusable.
  double timed(const std::uint8_t* record, std::size_t start_at, std::size_t end_at, const Place& place) {
    const auto start = field<std::uint64_t>(record, start_at), end = field<std::uint64_t>(record, end_at);
    std::int64_t* trouble = nullptr;
    if (!plausible(start) || !plausible(end))
      trouble = &result_.no_stamp;
    else if (end < start)
      trouble = &result_.reversed;
    else if (place.call && place.call->start > start + options_.skew_ns)
      trouble = &result_.before_launch;
    if (trouble) {
      ++*trouble;
      ++place.op->without_time;
      return 0;
    }
    if (place.pass) intervals_[*place.pass].push_back({start, end});
    return seconds(end - start);
  }

  static void close(PassActivity& pass, std::vector<Interval>& intervals) {
    if (intervals.empty()) return;
    std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
    std::uint64_t busy = 0, reach = intervals.front().start, sum = 0;
    for (const Interval& each : intervals) {
      sum += each.end - each.start;
      if (each.end <= reach) continue;
      busy += each.end - std::max(each.start, reach);
      reach = each.end;
    }
    pass.busy_seconds = seconds(busy);
    pass.sum_seconds = seconds(sum);
    pass.span_seconds = seconds(reach - intervals.front().start);
  }

  const DecodeOptions& options_;
  Activity result_;
  std::unordered_map<std::uint32_t, Call> calls_;
  std::map<std::uint64_t, std::vector<Interval>> intervals_;
  std::map<std::uint32_t, std::size_t> strides_;
  std::map<const std::uint8_t*, const std::uint8_t*> last_;
  std::map<std::string, KernelShape> shapes_;
};

}  // namespace

const char* overhead_name(std::uint32_t overhead_kind) {
  switch (overhead_kind) {
    case 1: return "driver compiler";
    case overhead::kBufferFlush: return "buffer flush";
    case overhead::kInstrumentation: return "instrumentation";
    case overhead::kResource: return "profiler resources";
    case overhead::kModuleLoading: return "module loading";
    case overhead::kLazyFunctionLoading: return "lazy function loading";
    case overhead::kCommandBufferFull: return "command buffer full";
    case overhead::kBufferRequest: return "buffer request";
    case overhead::kUvmInit: return "unified memory set-up";
    default: return "unknown overhead";
  }
}

std::size_t record_size(std::uint32_t record_kind) {
  switch (record_kind) {
    case kind::kMemcpy: return copy_record::kSize;
    case kind::kMemset: return set_record::kSize;
    case kind::kDriver:
    case kind::kRuntime: return api_record::kSize;
    case kind::kKernel: return kernel_record::kSize;
    case kind::kOverhead: return overhead_record::kSize;
    case kind::kExternalCorrelation: return external_record::kSize;
    default: return 0;
  }
}

int walk_records(std::uint8_t* buffer, std::size_t valid_bytes, std::uint8_t** record) {
  if (!buffer) return kNullBuffer;
  std::size_t at = 0;
  if (*record) at = static_cast<std::size_t>(*record - buffer) + record_size(field<std::uint32_t>(*record, 0));
  if (at + sizeof(std::uint32_t) > valid_bytes) return kEndOfBuffer;
  const std::size_t size = record_size(field<std::uint32_t>(buffer + at, 0));
  if (size == 0) return kBrokenBuffer;
  if (at + size > valid_bytes) return kEndOfBuffer;
  *record = buffer + at;
  return kRecordFound;
}

bool Activity::clean() const { return !overheads.contains(overhead::kLazyFunctionLoading) && !overheads.contains(overhead::kCommandBufferFull); }

bool Activity::complete() const { return dropped == 0 && broken_buffers == 0 && cut_tails == 0 && without_time() == 0; }

Activity decode(std::span<const ActivityBuffer> buffers, const DecodeOptions& options) { return Decoder(options).run(buffers); }

std::vector<std::string> trouble(const Activity& a) {
  std::vector<std::string> lines;
  const auto of = [&](std::int64_t n, const char* what) {
    if (n > 0) lines.push_back(std::to_string(n) + " of " + std::to_string(a.kernels + a.copies) + " " + what);
  };
  of(a.no_stamp, "kernels, copies and fills without time; use fewer steps");
  of(a.reversed, "kernels, copies and fills end before they start: the device clock jumped");
  of(a.before_launch, "kernels, copies and fills start more than 1 us before their own launch: the clocks disagree");
  if (a.dropped > 0) lines.push_back(std::to_string(a.dropped) + " activity records were dropped: the profile is incomplete");
  if (a.broken_buffers > 0) lines.push_back(std::to_string(a.broken_buffers) + " activity buffers hold a record of a kind that this CUPTI does not know; what follows it was lost");
  if (a.cut_tails > 0) lines.push_back(std::to_string(a.cut_tails) + " activity buffers end inside a record: the profile is incomplete");
  if (a.failed_calls > 0) lines.push_back(std::to_string(a.failed_calls) + " CUDA calls returned an error while tracing");
  if (a.unattributed.kernels > 0) lines.push_back(std::to_string(a.unattributed.kernels) + " of " + std::to_string(a.kernels) + " kernels belong to no op");
  if (!a.clean()) {
    for (const std::uint32_t each : {overhead::kLazyFunctionLoading, overhead::kCommandBufferFull})
      if (const auto found = a.overheads.find(each); found != a.overheads.end())
        lines.push_back(std::string(overhead_name(each)) + " happened " + std::to_string(found->second.count) + " times: not a clean sample");
  }
  return lines;
}

}  // namespace fathom::cuda
