#include "kernels/cuda/cupti_config.hpp"

#if FATHOM_CUPTI_HEADERS
#include "kernels/cuda/cupti_activity.hpp"

#include <algorithm>

#include "kernels/cuda/cupti_records.hpp"

namespace fathom::cuda {
namespace {

// RUNTIME and DRIVER are needed although their records are not wanted: without them no external correlation record is made, and
// cuBLASLt launches through the driver API. Not KERNEL, which serialises; not GRAPH_TRACE, which hides the kernels of graphs.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_OVERHEAD};
constexpr auto kOpStack = static_cast<CUpti_ExternalCorrelationKind>(kExternalOp);
constexpr auto kPassStack = static_cast<CUpti_ExternalCorrelationKind>(kExternalPass);

}  // namespace

std::atomic<ActivitySession*> ActivitySession::current_{nullptr};

ActivitySession::ActivitySession(CuptiApi& api, const DeviceCalls& device, ProfilerFacts facts, ActivityOptions options)
    : api_(api), device_(device), facts_(std::move(facts)), options_(options) {}

ActivitySession::~ActivitySession() {
  close();
  ActivitySession* self = this;
  current_.compare_exchange_strong(self, nullptr);
}

bool ActivitySession::fail(Finding finding) {
  if (state_ != SessionState::kFailed) finding_ = std::move(finding);
  state_ = SessionState::kFailed;
  close();
  return false;
}

bool ActivitySession::refuse() {
  if (state_ == SessionState::kFailed) return false;
  return fail({0, Rung::kEvents, "the activity session was used out of order", "", true});
}

bool ActivitySession::check(int code, Stage stage, const char* call) { return code == CUPTI_SUCCESS || fail(explain_cupti(code, stage, call, facts_)); }

bool ActivitySession::open() {
  if (state_ != SessionState::kNew) return refuse();
  if (api_.session_opened) return fail({0, Rung::kEvents, "a process can hold one activity session, and this one had its own", "", true});
  int count = 0;
  facts_.driver_version = 0;
  if (const int code = device_.driver_version(&facts_.driver_version)) return fail(explain_cuda(code, facts_));
  if (Finding finding = explain_driver(facts_.driver_version, facts_); !finding.message.empty()) return fail(std::move(finding));
  if (const int code = device_.device_count(&count)) return fail(explain_cuda(code, facts_));
  if (count == 0) return fail(explain_cuda(100, facts_));

  // Only now may CUPTI be called: without a driver some of its functions end the process.
  if (!check(api_.cuptiGetVersion(&version_), Stage::kLibrary, "cuptiGetVersion")) return false;
  if (version_ < CUPTI_API_VERSION) return fail(explain_old_library(version_, CUPTI_API_VERSION));
  if (version_ / 10000 != CUPTI_API_VERSION / 10000)
    notes_.push_back("CUPTI " + std::to_string(version_) + " is of another major version than the " + std::to_string(CUPTI_API_VERSION) + " that fathom was built with");

  api_.session_opened = true;
  current_ = this;
  char holder[128] = "";
  CUpti_SubscriberParams params = {};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "fathom";
  params.oldSubscriberName = holder;
  params.oldSubscriberSize = sizeof holder;
  const int subscribed = api_.cuptiSubscribe_v2(&subscriber_, on_callback, this, &params);
  holder[sizeof holder - 1] = '\0';
  facts_.holder = holder;
  if (subscribed != CUPTI_SUCCESS) subscriber_ = nullptr;
  if (!check(subscribed, Stage::kSubscribe, "cuptiSubscribe_v2")) return false;
  if (!check(api_.cuptiEnableDomain(1, subscriber_, CUPTI_CB_DOMAIN_STATE), Stage::kSubscribe, "cuptiEnableDomain")) return false;
  for (const CUpti_CallbackId id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
    if (!check(api_.cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id), Stage::kSubscribe, "cuptiEnableCallback")) return false;

  if (!set_attributes()) return false;
  if (!check(api_.cuptiActivityRegisterCallbacks(on_request, on_complete), Stage::kActivity, "cuptiActivityRegisterCallbacks")) return false;
  if (!enable()) return false;
  state_ = SessionState::kOpen;

  if (!push(kSelfTestOp, 0)) return false;
  if (const int code = device_.launch_known_kernel()) return fail(explain_cuda(code, facts_));
  return pop() && check(api_.cuptiActivityPushExternalCorrelationId(kOpStack, kOutsideOp), Stage::kActivity, "cuptiActivityPushExternalCorrelationId");
}

bool ActivitySession::set_attributes() {
  std::uint8_t off = 0, on = 1;
  std::size_t byte = sizeof off, word = sizeof(std::size_t);
  const auto set = [&](CUpti_ActivityAttribute attribute, std::size_t* size, void* value) {
    return check(api_.cuptiActivitySetAttribute(attribute, size, value), Stage::kActivity, "cuptiActivitySetAttribute");
  };
  if (!set(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &byte, &off)) return false;
  if (!set(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &byte, &on)) return false;
  if (options_.device_buffer_bytes > 0 && !set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &word, &options_.device_buffer_bytes)) return false;
  if (options_.device_buffer_limit > 0 && !set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &word, &options_.device_buffer_limit)) return false;
  return true;
}

bool ActivitySession::enable() {
  for (const CUpti_ActivityKind each : kKinds) {
    if (!check(api_.cuptiActivityEnable(each), Stage::kActivity, "cuptiActivityEnable")) return false;
    enabled_.push_back(each);
  }
  return true;
}

bool ActivitySession::push(std::uint64_t op, std::uint64_t pass) {
  if (state_ != SessionState::kOpen || depth_ != 0) return refuse();
  if (!check(api_.cuptiActivityPushExternalCorrelationId(kPassStack, pass), Stage::kActivity, "cuptiActivityPushExternalCorrelationId")) return false;
  if (!check(api_.cuptiActivityPushExternalCorrelationId(kOpStack, op), Stage::kActivity, "cuptiActivityPushExternalCorrelationId")) return false;
  current_op_ = op;
  in_op_ = true;
  ++depth_;
  return true;
}

bool ActivitySession::pop() {
  if (state_ != SessionState::kOpen || depth_ != 1) return refuse();
  --depth_;
  in_op_ = false;
  std::uint64_t last = 0;
  return check(api_.cuptiActivityPopExternalCorrelationId(kOpStack, &last), Stage::kActivity, "cuptiActivityPopExternalCorrelationId") &&
         check(api_.cuptiActivityPopExternalCorrelationId(kPassStack, &last), Stage::kActivity, "cuptiActivityPopExternalCorrelationId");
}

bool ActivitySession::finish(Activity& activity) {
  if (state_ != SessionState::kOpen || depth_ != 0) return refuse();
  if (const int code = device_.synchronize()) return fail(explain_cuda(code, facts_));  // a flush does not synchronise
  if (!check(api_.cuptiActivityFlushAll(0), Stage::kActivity, "cuptiActivityFlushAll")) return false;
  if (!check(api_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), Stage::kActivity, "cuptiActivityFlushAll")) return false;

  std::vector<ActivityBuffer> filled;
  DecodeOptions options;
  std::size_t lost = 0;
  std::string tracer_error;
  {
    const std::lock_guard lock(mutex_);
    for (const Buffer& buffer : buffers_)
      if (buffer.complete) filled.push_back({buffer.data.get(), buffer.valid_bytes});
    options.node_ops = node_ops_;
    lost = lost_bytes_;
    tracer_error = tracer_error_;
    for (const std::string& warning : tracer_warnings_) notes_.push_back("the tracer warns: " + warning);
  }
  if (!tracer_error.empty()) return fail({0, Rung::kEvents, "the tracer failed: " + tracer_error + "; times by CUDA events still work", "", false});
  options.exact_sizes = version_ == CUPTI_API_VERSION;
  options.next = [this](std::uint8_t* buffer, std::size_t valid_bytes, std::uint8_t** record) {
    return static_cast<int>(api_.cuptiActivityGetNextRecord(buffer, valid_bytes, reinterpret_cast<CUpti_Activity**>(record)));
  };
  activity = decode(filled, options);
  std::size_t dropped = 0;
  if (!check(api_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), Stage::kActivity, "cuptiActivityGetNumDroppedRecords")) return false;
  activity.dropped = dropped + lost / api_record::kSize;  // at most: the smallest record that every launch leaves

  const auto pass = activity.passes.find(0);
  const auto test = pass == activity.passes.end() ? std::map<std::uint64_t, OpActivity>::iterator() : pass->second.ops.find(kSelfTestOp);
  if (pass == activity.passes.end() || test == pass->second.ops.end() || test->second.kernels != 1)
    return fail(activity.kernels > 0 && activity.attributed == 0 ? explain_no_match(activity.kernels) : explain_no_records());
  pass->second.ops.erase(test);
  --activity.kernels;
  --activity.attributed;
  if (const auto outside = pass->second.ops.find(kOutsideOp); outside != pass->second.ops.end()) {
    activity.outside = outside->second.kernels;
    activity.kernels -= activity.outside;
    activity.attributed -= activity.outside;
    pass->second.ops.erase(outside);
  }
  close();
  state_ = SessionState::kFinished;
  return true;
}

// No cuptiFinalize: it is known to crash, and the process ends soon.
void ActivitySession::close() {
  for (const CUpti_ActivityKind each : enabled_) api_.cuptiActivityDisable(each);
  enabled_.clear();
  if (subscriber_) api_.cuptiUnsubscribe(subscriber_);
  subscriber_ = nullptr;
}

void ActivitySession::graph_node(const CUpti_GraphData& data, bool cloned) {
  std::uint64_t node = 0, original = 0;
  if (api_.cuptiGetGraphNodeId(data.node, &node) != CUPTI_SUCCESS) return;
  if (!cloned) {
    if (!in_op_) return;
    const std::lock_guard lock(mutex_);
    node_ops_[node] = current_op_;
    return;
  }
  // Instantiation clones the captured nodes: the op of a node passes on to its copy.
  if (api_.cuptiGetGraphNodeId(data.originalNode, &original) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(mutex_);
  const auto found = node_ops_.find(original);
  if (found != node_ops_.end()) node_ops_[node] = found->second;
}

void ActivitySession::tracer_state(CUpti_CallbackId what, const CUpti_StateData& data) {
  const char* text = data.notification.message;
  const std::string message = std::string(text ? text : "no message") + " (" + cupti_code_name(data.notification.result) + ")";
  const std::lock_guard lock(mutex_);
  if (what == CUPTI_CBID_STATE_WARNING)
    tracer_warnings_.push_back(message);
  else if (tracer_error_.empty())
    tracer_error_ = message;
}

void CUPTIAPI ActivitySession::on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  auto* session = static_cast<ActivitySession*>(self);
  if (!session || !data) return;
  if (domain == CUPTI_CB_DOMAIN_STATE) session->tracer_state(id, *static_cast<const CUpti_StateData*>(data));
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
  const auto* resource = static_cast<const CUpti_ResourceData*>(data);
  const bool cloned = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  if ((cloned || id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) && resource->resourceDescriptor)
    session->graph_node(*static_cast<const CUpti_GraphData*>(resource->resourceDescriptor), cloned);
}

std::uint8_t* ActivitySession::request() {
  const std::lock_guard lock(mutex_);
  if (buffers_.size() < options_.most_buffers) {
    buffers_.push_back({std::make_unique<std::uint8_t[]>(options_.buffer_bytes), 0, false});
    return buffers_.back().data.get();
  }
  // A refused buffer crashes older libraries and drops records in newer ones without saying which; a scratch buffer is counted.
  if (!scratch_) scratch_ = std::make_unique<std::uint8_t[]>(options_.buffer_bytes);
  return scratch_.get();
}

void ActivitySession::complete(std::uint8_t* data, std::size_t valid_bytes) {
  const std::lock_guard lock(mutex_);
  if (data == scratch_.get()) {
    lost_bytes_ += valid_bytes;
    std::fill_n(scratch_.get(), valid_bytes, std::uint8_t{0});  // handed out as zeroed
    return;
  }
  for (Buffer& buffer : buffers_) {
    if (buffer.data.get() != data) continue;
    buffer.valid_bytes = valid_bytes;
    buffer.complete = true;
    return;
  }
}

void CUPTIAPI ActivitySession::on_request(std::uint8_t** buffer, size_t* size, size_t* most_records) {
  ActivitySession* session = current_;
  *most_records = 0;
  *buffer = nullptr;
  *size = 0;
  if (!session) return;
  *buffer = session->request();
  *size = session->options_.buffer_bytes;
}

void CUPTIAPI ActivitySession::on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, size_t, size_t valid_bytes) {
  if (ActivitySession* session = current_; session && buffer) session->complete(buffer, valid_bytes);
}

}  // namespace fathom::cuda
#endif
