// Matrix products by cuBLASLt: one handle, one fixed workspace, and an algorithm per shape that is chosen once and written down.
//
// Row-major C = A B is column-major C' = B' A': operands change places and nothing is copied. The choice is the heuristic's first, or, where
// the caller allows time for it, the fastest of up to eight timed in turns (ABAB, not AA..BB). Products are repeatable: cuBLASLt reduces split
// products in a fixed order on one stream.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {
namespace {

constexpr std::int64_t kWorkspaceHopper = 32 << 20, kWorkspace = 4 << 20;
constexpr int kCandidates = 8;
constexpr int kTuneRounds = 5;

struct TileSize {
  std::int32_t id, m, n;
};
constexpr TileSize kTiles[] = {
#include <cublaslt_tiles.inl>
};

// Library objects with their destructors.
template <class T, cublasStatus_t (*Destroy)(T)>
struct Owner {
  Owner() = default;
  Owner(Owner&& other) noexcept : it(std::exchange(other.it, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(it, other.it);
    return *this;
  }
  ~Owner() {
    if (it) Destroy(it);
  }
  T it = nullptr;
};
using Handle = Owner<cublasLtHandle_t, cublasLtDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Description = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// A product that is not done, as opposed to a library that failed.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void must(cublasStatus_t code, const char* what) {
  if (code != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(code));
}

cudaDataType_t library_type(DType type) {
  switch (type) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: throw Refused("matrix products run in f32, bf16 and f16");
  }
}

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  must(cublasLtMatmulDescSetAttribute(description.it, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

Layout layout(DType type, std::int64_t rows, std::int64_t cols, std::int64_t stride, int batch, std::int64_t batch_stride) {
  Layout made;
  must(cublasLtMatrixLayoutCreate(&made.it, library_type(type), static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols), stride), "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    must(cublasLtMatrixLayoutSetAttribute(made.it, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), "batch count");
    must(cublasLtMatrixLayoutSetAttribute(made.it, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof batch_stride), "batch stride");
  }
  return made;
}

struct Plan {
  Matmul product;
  Description description;
  Layout first, second, result;  // the library's A and B are our B and A
  cublasLtMatmulAlgo_t algorithm{};
  MatmulChoice choice;
};

template <class T>
T configured(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T missing) {
  T value{};
  std::size_t written = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS ? value : missing;
}

MatmulChoice describe(const cublasLtMatmulHeuristicResult_t& result) {
  MatmulChoice choice;
  const cublasLtMatmulAlgo_t& a = result.algo;
  choice.algorithm = configured<std::int32_t>(a, CUBLASLT_ALGO_CONFIG_ID, -1);
  choice.tile = static_cast<std::int32_t>(configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID, 0));
  choice.stages = static_cast<std::int32_t>(configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0));
  choice.split_k = configured<std::int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 0);
  choice.reduction = static_cast<std::int32_t>(configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 0));
  choice.swizzle = static_cast<std::int32_t>(configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 0));
  choice.custom = static_cast<std::int32_t>(configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 0));
  choice.cluster = configured<std::uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 0);
  for (const TileSize& tile : kTiles) {
    if (tile.id != choice.tile) continue;
    choice.tile_m = tile.n;  // the library's rows are our columns
    choice.tile_n = tile.m;
  }
  choice.waves = result.wavesCount;
  choice.workspace = static_cast<std::int64_t>(result.workspaceSize);
  return choice;
}

}  // namespace

class Matmuls {
 public:
  Matmuls(const DeviceInfo& info, cudaStream_t stream) : stream_(stream), workspace_bytes_(info.major >= 9 ? kWorkspaceHopper : kWorkspace) {
    must(cublasLtCreate(&handle_.it), "cublasLtCreate");
    if (cudaMalloc(&workspace_, static_cast<std::size_t>(workspace_bytes_)) != cudaSuccess) throw std::runtime_error("no memory for the product workspace");
  }
  ~Matmuls() { cudaFree(workspace_); }
  Matmuls(const Matmuls&) = delete;
  Matmuls& operator=(const Matmuls&) = delete;

  std::int32_t find(const Matmul& product, int tune, MatmulChoice& choice) {
    for (std::size_t i = 0; i < plans_.size(); ++i)
      if (plans_[i]->product == product) return choice = plans_[i]->choice, static_cast<std::int32_t>(i);
    auto plan = std::make_unique<Plan>(make(product));
    choose(*plan, tune);
    choice = plan->choice;
    plans_.push_back(std::move(plan));
    return static_cast<std::int32_t>(plans_.size()) - 1;
  }

  cublasStatus_t run(std::int32_t which, const void* a, const void* b, void* c, const void* bias) {
    Plan& plan = *plans_.at(static_cast<std::size_t>(which));
    if (plan.product.bias) set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    return call(plan, plan.algorithm, a, b, c);
  }

 private:
  cublasStatus_t call(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b, void* c) {
    const float one = 1.0f;
    return cublasLtMatmul(handle_.it, plan.description.it, &one, b, plan.first.it, a, plan.second.it, &plan.product.beta, c, plan.result.it, c, plan.result.it,
                          &algorithm, workspace_, static_cast<std::size_t>(workspace_bytes_), stream_);
  }

  static Plan make(const Matmul& p) {
    if (p.m <= 0 || p.n <= 0 || p.k <= 0) throw Refused("a product without rows, columns or terms");
    Plan plan;
    plan.product = p;
    const bool exact = p.type == DType::kF32 && !p.tf32;
    must(cublasLtMatmulDescCreate(&plan.description.it, exact || p.type != DType::kF32 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const std::int32_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, second);
    if (p.bias) {
      set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BIAS));
      set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(library_type(p.bias_type)));
    }
    plan.first = p.transpose_b ? layout(p.type, p.k, p.n, p.ldb, p.batch, p.batch_b) : layout(p.type, p.n, p.k, p.ldb, p.batch, p.batch_b);
    plan.second = p.transpose_a ? layout(p.type, p.m, p.k, p.lda, p.batch, p.batch_a) : layout(p.type, p.k, p.m, p.lda, p.batch, p.batch_a);
    plan.result = layout(p.result, p.n, p.m, p.ldc, p.batch, p.batch_c);
    return plan;
  }

  void choose(Plan& plan, int tune) {
    Preference preference;
    must(cublasLtMatmulPreferenceCreate(&preference.it), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      must(cublasLtMatmulPreferenceSetAttribute(preference.it, attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes_));  // the default is none
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(which, static_cast<std::uint32_t>(plan.product.alignment));
    // The heuristic infers the bias's alignment from its address: one that is a multiple of what every bias has, and of no more.
    if (plan.product.bias) set<const void*>(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const char*>(workspace_) + std::min<std::int64_t>(64, plan.product.alignment));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    const cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(handle_.it, plan.description.it, plan.first.it, plan.second.it, plan.result.it, plan.result.it, preference.it,
                                                               kCandidates, results.data(), &found);
    if (code != CUBLAS_STATUS_SUCCESS && code != CUBLAS_STATUS_NOT_SUPPORTED && code != CUBLAS_STATUS_INVALID_VALUE) must(code, "cublasLtMatmulAlgoGetHeuristic");
    if (code != CUBLAS_STATUS_SUCCESS || found == 0)
      throw Refused("cuBLASLt offers no algorithm for m " + std::to_string(plan.product.m) + ", n " + std::to_string(plan.product.n) + ", k " +
                               std::to_string(plan.product.k) + ": " + cublasLtGetStatusString(code));
    const int tried = std::min(found, tune);
    int best = 0;
    std::vector<float> seconds;
    if (tried > 0) {  // one candidate is run too, so that its kernels are loaded before anything is timed or captured
      seconds = time(plan, {results.data(), results.data() + tried});
      best = static_cast<int>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
    }
    plan.algorithm = results[static_cast<std::size_t>(best)].algo;
    plan.choice = describe(results[static_cast<std::size_t>(best)]);
    plan.choice.candidates = found;
    if (tried > 1) {
      plan.choice.tried = tried;
      plan.choice.seconds = seconds[static_cast<std::size_t>(best)];
      plan.choice.first_seconds = seconds[0];
    }
  }

  // Median seconds of each candidate, the candidates taking turns, on operands of its own (values of both signs: zeros are faster).
  std::vector<float> time(Plan& plan, const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
    const Matmul& p = plan.product;
    const auto span = [&](std::int64_t rows, std::int64_t stride, std::int64_t batch) { return (p.batch - 1) * batch + rows * stride; };
    const std::int64_t size = dtype_bytes(p.type);
    const std::int64_t bytes[4] = {span(p.transpose_a ? p.k : p.m, p.lda, p.batch_a) * size, span(p.transpose_b ? p.n : p.k, p.ldb, p.batch_b) * size,
                                   span(p.m, p.ldc, p.batch_c) * dtype_bytes(p.result), p.n * dtype_bytes(p.bias_type)};
    void* memory[4] = {};
    cudaEvent_t begin = nullptr, end = nullptr;
    std::vector<std::vector<float>> times(candidates.size());
    bool ok = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
    for (int i = 0; i < 4 && ok; ++i) ok = cudaMalloc(&memory[i], static_cast<std::size_t>(bytes[i])) == cudaSuccess && fill(memory[i], bytes[i], i == 2 ? p.result : p.type);
    if (ok && p.bias) set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory[3]);
    for (int round = -1; round < kTuneRounds && ok; ++round) {  // round -1 warms up
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        cudaEventRecord(begin, stream_);
        const bool ran = call(plan, candidates[i].algo, memory[0], memory[1], memory[2]) == CUBLAS_STATUS_SUCCESS;
        cudaEventRecord(end, stream_);
        float milliseconds = 0;
        if (cudaEventSynchronize(end) != cudaSuccess || cudaEventElapsedTime(&milliseconds, begin, end) != cudaSuccess || !ran) milliseconds = 1e9f;
        if (round >= 0) times[i].push_back(milliseconds * 1e-3f);
      }
    }
    for (void* each : memory) cudaFree(each);
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    cudaGetLastError();
    std::vector<float> medians;
    for (auto& list : times) {
      std::sort(list.begin(), list.end());
      medians.push_back(list.empty() ? 0.0f : list[list.size() / 2]);  // no memory to tune in: all equal, so the heuristic's first stays
    }
    return medians;
  }

  static bool fill(void* memory, std::int64_t bytes, DType type) {
    std::vector<std::uint32_t> block(std::min<std::int64_t>(1 << 18, (bytes + 3) / 4));
    std::uint32_t state = 12345;
    const auto next = [&] {  // a bf16 of either sign near one
      state = state * 1664525u + 1013904223u;
      return 0x3f00u + ((state >> 16) & 0x80ffu);
    };
    for (auto& word : block) word = type == DType::kF32 ? next() << 16 | (state & 0xffffu) : next() << 16 | next();
    // One block comes from the host; the device doubles it.
    auto* to = static_cast<char*>(memory);
    std::int64_t done = std::min(static_cast<std::int64_t>(block.size() * 4), bytes);
    if (cudaMemcpy(to, block.data(), static_cast<std::size_t>(done), cudaMemcpyHostToDevice) != cudaSuccess) return false;
    for (; done < bytes; done = std::min(2 * done, bytes))
      if (cudaMemcpy(to + done, to, static_cast<std::size_t>(std::min(done, bytes - done)), cudaMemcpyDeviceToDevice) != cudaSuccess) return false;
    return cudaDeviceSynchronize() == cudaSuccess;  // the products run on a stream that does not wait for these copies
  }

  Handle handle_;
  cudaStream_t stream_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
  void* workspace_ = nullptr;
  std::vector<std::unique_ptr<Plan>> plans_;
};

std::shared_ptr<Matmuls> make_matmuls(const DeviceInfo& info, cudaStream_t stream) { return std::make_shared<Matmuls>(info, stream); }

std::int32_t cublaslt_version() { return static_cast<std::int32_t>(cublasLtGetVersion()); }

Status plan_matmul(Device* device, const Matmul* product, std::int32_t tune, std::int32_t* plan, MatmulChoice* choice, Text* text) {
  try {
    *plan = handle(device).matmuls->find(*product, tune, *choice);
    return Status::kOk;
  } catch (const Refused& error) {
    return tell(text, Status::kRefused, error.what());
  } catch (const std::exception& error) {
    return tell(text, Status::kFailed, error.what());
  }
}

Status run_matmul(Device* device, std::int32_t plan, const void* a, const void* b, void* c, const void* bias, Text* text) {
  return guarded(text, [&] {
    const cublasStatus_t code = handle(device).matmuls->run(plan, a, b, c, bias);
    return code == CUBLAS_STATUS_SUCCESS ? Status::kOk : tell(text, Status::kFailed, std::string("cublasLtMatmul: ") + cublasLtGetStatusString(code));
  });
}

}  // namespace fathom::cuda
