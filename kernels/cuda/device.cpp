// The module's table: looking for a device, memory, copies, events, graphs. Products are in matmul.cpp, kernels in one .cu per family.
#include "kernels/cuda/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "kernels/cuda/cupti_table.hpp"

namespace fathom::cuda {

Status tell(Text* text, Status status, const std::string& message) {
  if (text) std::snprintf(text->text, sizeof text->text, "%s", message.c_str());
  return status;
}

Status check(cudaError_t code, const char* what, Text* text) {
  if (code == cudaSuccess) return Status::kOk;
  const std::string message = std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")";
  cudaGetLastError();  // clears it where it is not sticky
  switch (code) {
    case cudaErrorMemoryAllocation: return tell(text, Status::kOutOfMemory, message);
    case cudaErrorInsufficientDriver: return tell(text, Status::kOldDriver, message);
    case cudaErrorStubLibrary: return tell(text, Status::kStubDriver, message);
    case cudaErrorNoDevice: return tell(text, Status::kNoDevice, message);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:  // what some drivers say instead
    case cudaErrorUnsupportedPtxVersion: return tell(text, Status::kOldDevice, message);
    default: return tell(text, Status::kFailed, message);
  }
}

namespace {

Status describe(DeviceInfo& info, Text* text) {
  cudaDeviceProp properties{};
  if (const Status status = check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties", text); status != Status::kOk) return status;
  std::snprintf(info.name, sizeof info.name, "%s", properties.name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(properties.uuid.bytes);
  std::string uuid = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char two[4];
    std::snprintf(two, sizeof two, "%02x", bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += two;
  }
  std::snprintf(info.uuid, sizeof info.uuid, "%s", uuid.c_str());
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_total = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.l2_bytes = properties.l2CacheSize;
  info.shared_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  info.ecc = properties.ECCEnabled;
  info.memory_bus_bits = properties.memoryBusWidth;
  int value = 0;  // gone from cudaDeviceProp in CUDA 13
  if (cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0) == cudaSuccess) info.clock_khz = value;
  if (cudaDeviceGetAttribute(&value, cudaDevAttrMemoryClockRate, 0) == cudaSuccess) info.memory_clock_khz = value;
  return Status::kOk;
}

Status probe(DeviceInfo* info, Text* text) {
  return guarded(text, [&]() -> Status {
    *info = DeviceInfo{};
    info->runtime = CUDART_VERSION;
    // Without a driver this succeeds with version 0, while other calls fail with codes that say less.
    if (const cudaError_t code = cudaDriverGetVersion(&info->driver); code != cudaSuccess) return check(code, "cudaDriverGetVersion", text);
    if (info->driver == 0) return tell(text, Status::kNoDriver, "cudaDriverGetVersion: no driver");
    int count = 0;
    if (const Status status = check(cudaGetDeviceCount(&count), "cudaGetDeviceCount", text); status != Status::kOk) return status;
    if (count == 0) return tell(text, Status::kNoDevice, "cudaGetDeviceCount: none");
    if (info->driver < kNeededDriver) return tell(text, Status::kOldDriver, "cudaDriverGetVersion");
    info->cublaslt = cublaslt_version();
    if (const Status status = describe(*info, text); status != Status::kOk) return status;
    return has_code_for_device(text);
  });
}

void close(Device* device) {
  if (!device) return;
  DeviceHandle& d = handle(device);
  d.matmuls.reset();
  if (d.stream) cudaStreamSynchronize(d.stream), cudaStreamDestroy(d.stream);
  if (d.flush) cudaFree(d.flush);
  if (d.hold) cudaFreeHost(const_cast<std::int32_t*>(d.hold));
  delete &d;
}

Status open(Device** device, Text* text) {
  return guarded(text, [&]() -> Status {
    auto made = std::make_unique<DeviceHandle>();
    if (const Status status = probe(&made->info, text); status != Status::kOk) return status;
    if (const Status status = check(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "cudaStreamCreate", text); status != Status::kOk) return status;
    void* hold = nullptr;
    if (const Status status = check(cudaHostAlloc(&hold, sizeof(std::int32_t), cudaHostAllocMapped), "cudaHostAlloc", text); status != Status::kOk) return status;
    made->hold = static_cast<volatile std::int32_t*>(hold);
    made->matmuls = make_matmuls(made->info, made->stream);
    made->management = open_management(made->info.uuid);
    *device = made.release();
    return Status::kOk;
  });
}

Status state(Device* device, DeviceState* now) {
  *now = read_state(handle(device).management.get());
  return Status::kOk;
}

Status allocate(Device*, std::int64_t bytes, void** memory, Text* text) {
  const std::string what = "cudaMalloc of " + std::to_string(bytes) + " bytes";
  return check(cudaMalloc(memory, static_cast<std::size_t>(std::max<std::int64_t>(1, bytes))), what.c_str(), text);
}

void release(Device*, void* memory) { cudaFree(memory); }

Status memory_free(Device*, std::int64_t* bytes, Text* text) {
  std::size_t free = 0, total = 0;
  const Status status = check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", text);
  *bytes = static_cast<std::int64_t>(free);
  return status;
}

Status upload(Device* device, void* to, const void* from, std::int64_t bytes, Text* text) {
  return check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, handle(device).stream), "copy to the GPU", text);
}

Status wait(Device* device, Text* text) { return check(cudaStreamSynchronize(handle(device).stream), "waiting for the GPU", text); }

Status download(Device* device, void* to, const void* from, std::int64_t bytes, Text* text) {
  if (const Status status = check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, handle(device).stream), "copy from the GPU", text);
      status != Status::kOk)
    return status;
  return wait(device, text);
}

Status clear(Device* device, void* memory, std::int64_t bytes, Text* text) {
  return check(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), handle(device).stream), "clearing GPU memory", text);
}

Status copy(Device* device, void* to, const void* from, std::int64_t bytes, Text* text) {
  return check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, handle(device).stream), "copy on the GPU", text);
}

Status make_event(Device*, Event** event, Text* text) {
  cudaEvent_t made = nullptr;
  const Status status = check(cudaEventCreate(&made), "cudaEventCreate", text);
  *event = made;
  return status;
}

void free_event(Device*, Event* event) { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

Status record(Device* device, Event* event, Text* text) {
  return check(cudaEventRecord(static_cast<cudaEvent_t>(event), handle(device).stream), "cudaEventRecord", text);
}

Status wait_event(Device*, Event* event, Text* text) { return check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize", text); }

Status elapsed(Device*, Event* from, Event* to, double* seconds, Text* text) {
  float milliseconds = 0;
  const Status status = check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)), "cudaEventElapsedTime", text);
  *seconds = static_cast<double>(milliseconds) * 1e-3;
  return status;
}

Status flush_l2(Device* device, Text* text) {
  DeviceHandle& d = handle(device);
  if (!d.flush) {  // once: allocating costs a second
    d.flush_bytes = std::max<std::int64_t>(64 << 20, 2 * d.info.l2_bytes);
    if (const Status status = allocate(device, d.flush_bytes, &d.flush, text); status != Status::kOk) return status;
  }
  if (const Status status = clear(device, d.flush, d.flush_bytes, text); status != Status::kOk) return status;
  return check(launch_read(d.stream, d.flush, d.flush_bytes, d.info.multiprocessors), "reading the flush buffer", text);
}

Status hold_stream(Device* device, double seconds, Text* text) {
  DeviceHandle& d = handle(device);
  *d.hold = 0;
  return check(launch_hold(d.stream, d.hold, seconds), "holding the stream", text);
}

Status release_stream(Device* device, Text*) {
  *handle(device).hold = 1;
  return Status::kOk;
}

Status begin_capture(Device* device, Text* text) {
  return check(cudaStreamBeginCapture(handle(device).stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture", text);
}

Status end_capture(Device* device, Graph** graph, std::int64_t* nodes, Text* text) {
  cudaGraph_t captured = nullptr;
  if (const Status status = check(cudaStreamEndCapture(handle(device).stream, &captured), "cudaStreamEndCapture", text); status != Status::kOk) return status;
  std::size_t count = 0;
  cudaGraphGetNodes(captured, nullptr, &count);
  *nodes = static_cast<std::int64_t>(count);
  cudaGraphExec_t made = nullptr;
  Status status = check(cudaGraphInstantiate(&made, captured, 0), "cudaGraphInstantiate", text);
  cudaGraphDestroy(captured);
  if (status == Status::kOk) status = check(cudaGraphUpload(made, handle(device).stream), "cudaGraphUpload", text);
  if (status != Status::kOk && made) cudaGraphExecDestroy(std::exchange(made, nullptr));
  *graph = made;
  return status;
}

Status abandon_capture(Device* device, Text*) {
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(handle(device).stream, &captured);
  if (captured) cudaGraphDestroy(captured);
  cudaGetLastError();
  return Status::kOk;
}

Status launch_graph(Device* device, Graph* graph, Text* text) {
  return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), handle(device).stream), "cudaGraphLaunch", text);
}

void free_graph(Device*, Graph* graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

Module make_table() {
  Module m;
  m.abi = kModuleAbi;
  m.bytes = sizeof(Module);
  m.build_id = FATHOM_CUDA_BUILD_ID;
  m.architectures = FATHOM_CUDA_ARCHITECTURES;
  m.probe = probe;
  m.open = open;
  m.close = close;
  m.state = state;
  m.allocate = allocate;
  m.release = release;
  m.memory_free = memory_free;
  m.upload = upload;
  m.download = download;
  m.clear = clear;
  m.copy = copy;
  m.wait = wait;
  m.make_event = make_event;
  m.free_event = free_event;
  m.record = record;
  m.wait_event = wait_event;
  m.elapsed = elapsed;
  m.flush_l2 = flush_l2;
  m.hold_stream = hold_stream;
  m.release_stream = release_stream;
  m.begin_capture = begin_capture;
  m.end_capture = end_capture;
  m.abandon_capture = abandon_capture;
  m.launch_graph = launch_graph;
  m.free_graph = free_graph;
  m.plan_matmul = plan_matmul;
  m.matmul = run_matmul;
#define FATHOM_CUDA_ENTRY(name, Args) m.kernels.name = launch_##name;
  FATHOM_CUDA_KERNELS(FATHOM_CUDA_ENTRY)
#undef FATHOM_CUDA_ENTRY
#if FATHOM_CUPTI_HEADERS
  m.profiler = &profiler_table(runtime_device_calls(), nullptr);
#endif
  return m;
}

}  // namespace
}  // namespace fathom::cuda

extern "C" __attribute__((visibility("default"))) const fathom::cuda::Module* fathom_cuda_module(std::uint32_t abi) {
  static const fathom::cuda::Module table = fathom::cuda::make_table();
  return abi == fathom::cuda::kModuleAbi ? &table : nullptr;
}
