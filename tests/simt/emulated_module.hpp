// The CUDA module's table filled with an emulated device: memory of the emulator, kernels on fibers, products by plain loops, graphs as lists of
// calls. The whole host side of the CUDA backend (kernels/cuda_host) then runs on the CPU as it would on a GPU.
//
// Include it in one test file: kernels are compiled where it stands, and instrumented there.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/conform.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/grouped.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/module.hpp"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/router.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/sequence.cuh"
#include "kernels/cuda_host/backend.hpp"
#include "kernels/cuda_host/device.hpp"
#include "tests/simt/memory.hpp"

namespace fathom::testing {

using namespace fathom::cuda;

// What the emulated device counts.
struct EmulatedDevice {
  std::vector<Matmul> plans;
  std::vector<std::function<void()>>* capture = nullptr;  // calls go here instead of being made
  std::int64_t launches = 0, products = 0, downloads = 0, graph_launches = 0;
  std::int64_t allocated = 0;
  std::int64_t memory = std::int64_t{1} << 30;
  double now = 0;  // advances by a microsecond per call
};
inline EmulatedDevice& emulated() {
  static EmulatedDevice device;
  return device;
}

namespace emulation {

using EmulatedGraph = std::vector<std::function<void()>>;

inline Status queue(std::function<void()> call) {
  EmulatedDevice& d = emulated();
  if (d.capture) {
    d.capture->push_back(std::move(call));
    return Status::kOk;
  }
  d.now += 1e-6;
  call();
  return Status::kOk;
}

// What the driver refuses while a stream is captured, because it would wait, allocate, or read host memory again at every replay.
inline Status refused_in_capture(const char* what, Text* text) {
  if (!emulated().capture) return Status::kOk;
  if (text) std::snprintf(text->text, sizeof text->text, "%s while a stream is captured", what);
  return Status::kFailed;
}

inline float element(const void* from, DType type, std::int64_t i) {
  return type == DType::kF32 ? static_cast<const float*>(from)[i] : static_cast<float>(static_cast<const bf16*>(from)[i]);
}
inline void set_element(void* to, DType type, std::int64_t i, float value) {
  if (type == DType::kF32)
    static_cast<float*>(to)[i] = value;
  else
    static_cast<bf16*>(to)[i] = bf16(value);
}

inline void product(const Matmul& p, const void* a, const void* b, void* c, const void* bias) {
  for (std::int64_t part = 0; part < p.batch; ++part)
    for (std::int64_t row = 0; row < p.m; ++row)
      for (std::int64_t col = 0; col < p.n; ++col) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum += static_cast<double>(element(a, p.type, part * p.batch_a + (p.transpose_a ? k * p.lda + row : row * p.lda + k))) *
                 static_cast<double>(element(b, p.type, part * p.batch_b + (p.transpose_b ? col * p.ldb + k : k * p.ldb + col)));
        const std::int64_t at = part * p.batch_c + row * p.ldc + col;
        if (p.beta != 0) sum += static_cast<double>(p.beta) * static_cast<double>(element(c, p.result, at));
        if (p.bias) sum += static_cast<double>(element(bias, p.bias_type, col));
        set_element(c, p.result, at, static_cast<float>(sum));
      }
}

inline Module make() {
  Module m;
  m.abi = kModuleAbi;
  m.bytes = sizeof(Module);
  m.build_id = "emulated";
  m.architectures = "90";
  m.probe = [](DeviceInfo* info, Text*) {
    std::snprintf(info->name, sizeof info->name, "emulated device");
    info->major = 9, info->multiprocessors = 4, info->memory_total = emulated().memory, info->driver = kNeededDriver, info->l2_bytes = 64 << 10;
    return Status::kOk;
  };
  m.open = [](Device** device, Text*) {
    *device = &emulated();
    return Status::kOk;
  };
  m.close = [](Device*) {};
  m.state = [](Device*, DeviceState*) { return Status::kOk; };
  m.allocate = [](Device*, std::int64_t bytes, void** memory, Text* text) {
    if (const Status status = refused_in_capture("allocated", text); status != Status::kOk) return status;
    *memory = simt::device_allocate(static_cast<std::size_t>(bytes));
    emulated().allocated += bytes;
    return Status::kOk;
  };
  m.release = [](Device*, void* memory) { simt::device_free(memory); };
  m.memory_free = [](Device*, std::int64_t* bytes, Text* text) {
    if (const Status status = refused_in_capture("asked for free memory", text); status != Status::kOk) return status;
    *bytes = emulated().memory;
    return Status::kOk;
  };
  m.upload = [](Device*, void* to, const void* from, std::int64_t bytes, Text* text) {
    if (const Status status = refused_in_capture("copied from the host", text); status != Status::kOk) return status;
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return Status::kOk;
  };
  m.download = [](Device*, void* to, const void* from, std::int64_t bytes, Text* text) {
    if (const Status status = refused_in_capture("copied to the host", text); status != Status::kOk) return status;
    ++emulated().downloads;
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return Status::kOk;
  };
  m.clear = [](Device*, void* memory, std::int64_t bytes, Text*) { return queue([=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }); };
  m.copy = [](Device*, void* to, const void* from, std::int64_t bytes, Text*) { return queue([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }); };
  m.wait = [](Device*, Text* text) { return refused_in_capture("waited", text); };
  m.make_event = [](Device*, Event** event, Text*) {
    *event = new double(0);
    return Status::kOk;
  };
  m.free_event = [](Device*, Event* event) { delete static_cast<double*>(event); };
  m.record = [](Device*, Event* event, Text*) {
    *static_cast<double*>(event) = emulated().now;
    return Status::kOk;
  };
  m.wait_event = [](Device*, Event*, Text* text) { return refused_in_capture("waited for an event", text); };
  m.elapsed = [](Device*, Event* from, Event* to, double* seconds, Text*) {
    *seconds = *static_cast<double*>(to) - *static_cast<double*>(from);
    return Status::kOk;
  };
  m.flush_l2 = [](Device*, Text*) { return Status::kOk; };
  m.hold_stream = [](Device*, double, Text* text) { return refused_in_capture("held the stream", text); };
  m.release_stream = [](Device*, Text*) { return Status::kOk; };
  m.begin_capture = [](Device*, Text* text) {
    if (const Status status = refused_in_capture("began a capture", text); status != Status::kOk) return status;
    emulated().capture = new EmulatedGraph;
    return Status::kOk;
  };
  m.end_capture = [](Device*, Graph** graph, std::int64_t* nodes, Text*) {
    *nodes = static_cast<std::int64_t>(emulated().capture->size());
    *graph = emulated().capture;
    emulated().capture = nullptr;
    return Status::kOk;
  };
  m.abandon_capture = [](Device*, Text*) {
    delete emulated().capture;
    emulated().capture = nullptr;
    return Status::kOk;
  };
  m.launch_graph = [](Device*, Graph* graph, Text* text) {
    if (const Status status = refused_in_capture("launched a graph", text); status != Status::kOk) return status;
    ++emulated().graph_launches;
    for (const auto& call : *static_cast<EmulatedGraph*>(graph)) call();
    emulated().now += 1e-6;
    return Status::kOk;
  };
  m.free_graph = [](Device*, Graph* graph) { delete static_cast<EmulatedGraph*>(graph); };
  m.plan_matmul = [](Device*, const Matmul* product, std::int32_t, std::int32_t* plan, MatmulChoice* choice, Text* text) {
    if (const Status status = refused_in_capture("chose a product's algorithm, which times candidates,", text); status != Status::kOk) return status;
    emulated().plans.push_back(*product);
    *plan = static_cast<std::int32_t>(emulated().plans.size()) - 1;
    choice->tile_m = 16, choice->tile_n = 8;
    return Status::kOk;
  };
  m.matmul = [](Device*, std::int32_t plan, const void* a, const void* b, void* c, const void* bias, Text*) {
    ++emulated().products;
    return queue([=] { product(emulated().plans.at(static_cast<std::size_t>(plan)), a, b, c, bias); });
  };
#define FATHOM_EMULATE(name, Args)                                        \
  m.kernels.name = [](Device*, const Args* args, Text*) {                 \
    ++emulated().launches;                                                \
    return queue([copy = *args] { fathom::cuda::name(copy, nullptr); });  \
  };
  FATHOM_CUDA_KERNELS(FATHOM_EMULATE)
#undef FATHOM_EMULATE
  return m;
}

}  // namespace emulation

inline std::shared_ptr<OpenDevice> emulated_device() {
  static const Module module = emulation::make();
  static const std::shared_ptr<OpenDevice> device = std::make_shared<OpenDevice>(module);
  return device;
}

class EmulatedBackend : public CudaBackend {
 public:
  Support available() const override { return {}; }
  std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const override { return bind_on(workload, options, emulated_device()); }
};

}  // namespace fathom::testing
