// The activity session: kernel, copy and fill times per op, in the order of calls that CUPTI needs (driver, version, subscribe, attributes,
// buffers, kinds; then work; then synchronise, flush, flush, decode, dropped, disable, unsubscribe).
//
// One session per process, opened before any context exists. After any failure every further call is refused and finding() keeps
// the first reason. Not thread safe, except for the buffer callbacks, which CUPTI calls from its own thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/cupti_api.hpp"
#include "kernels/cuda/cupti_decode.hpp"
#include "kernels/cuda/cupti_device.hpp"
#include "kernels/cuda/cupti_messages.hpp"

namespace fathom::cuda {

struct ActivityOptions {
  std::size_t buffer_bytes = std::size_t{4} << 20;  // 8-byte aligned, zeroed
  std::size_t most_buffers = 128;                   // beyond, records go to one scratch buffer and are counted as lost
  std::size_t device_buffer_bytes = 0;              // 0: the library's default (3.2 MB: 100 000 records)
  std::size_t device_buffer_limit = 0;              // 0: the library's default (250)
};

enum class SessionState : std::uint8_t { kNew, kOpen, kFinished, kFailed };

// Op ids of this value belong to the session's own test kernel.
inline constexpr std::uint64_t kSelfTestOp = ~std::uint64_t{0};
// What is launched between ops (set-up, algorithms that are tried out) belongs to this one, so that work without any id is a loss and not a guess.
inline constexpr std::uint64_t kOutsideOp = ~std::uint64_t{1};

class ActivitySession {
 public:
  ActivitySession(CuptiApi& api, const DeviceCalls& device, ProfilerFacts facts, ActivityOptions options = {});
  ~ActivitySession();
  ActivitySession(const ActivitySession&) = delete;
  ActivitySession& operator=(const ActivitySession&) = delete;

  // All of these return false after a failure.
  bool open();
  bool push(std::uint64_t op, std::uint64_t pass);  // what is launched until pop belongs to this op
  bool pop();
  bool finish(Activity& activity);

  SessionState state() const { return state_; }
  const Finding& finding() const { return finding_; }
  const ProfilerFacts& facts() const { return facts_; }
  std::uint32_t library_version() const { return version_; }
  // Warnings of the tracer and what the session noticed, for the notes of a result.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  bool check(int code, Stage stage, const char* call);
  bool fail(Finding finding);
  bool refuse();  // a call in the wrong state
  bool set_attributes();
  bool enable();
  void close();
  void graph_node(const CUpti_GraphData& data, bool cloned);
  void tracer_state(CUpti_CallbackId what, const CUpti_StateData& data);
  std::uint8_t* request();
  void complete(std::uint8_t* buffer, std::size_t valid_bytes);

  static void CUPTIAPI on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);
  static void CUPTIAPI on_request(std::uint8_t** buffer, size_t* size, size_t* most_records);
  static void CUPTIAPI on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, size_t size, size_t valid_bytes);

  struct Buffer {
    std::unique_ptr<std::uint8_t[]> data;
    std::size_t valid_bytes = 0;
    bool complete = false;
  };

  CuptiApi& api_;
  const DeviceCalls& device_;
  ProfilerFacts facts_;
  ActivityOptions options_;
  SessionState state_ = SessionState::kNew;
  Finding finding_;
  std::vector<std::string> notes_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::uint32_t version_ = 0;
  std::vector<CUpti_ActivityKind> enabled_;
  int depth_ = 0;  // pushes without their pop
  std::atomic<std::uint64_t> current_op_{0};
  std::atomic<bool> in_op_{false};

  std::mutex mutex_;  // buffers, node map and tracer messages: the callbacks' side
  std::deque<Buffer> buffers_;
  std::unique_ptr<std::uint8_t[]> scratch_;
  std::size_t lost_bytes_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> node_ops_;
  std::string tracer_error_;
  std::vector<std::string> tracer_warnings_;

  static std::atomic<ActivitySession*> current_;  // buffer callbacks carry no user pointer
};

}  // namespace fathom::cuda
