// Finding and refusing the CUDA module, and the sentences for what is missing (no GPU and no module needed).
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"

using namespace fathom;
using namespace fathom::cuda;

namespace {

std::string said(Status status, int driver = 0, const Environment& environment = {}) {
  DeviceInfo info;
  info.driver = driver;
  return device_message(status, info, "cudaMalloc of 12 bytes: out of memory", environment);
}

}  // namespace

TEST_CASE("the module is looked for beside the program and in lib/fathom, or only where it was said to be", "[cuda]") {
  CHECK(module_candidates("/opt/f/bin/fathom", {}) == std::vector<std::string>{"/opt/f/bin/libfathom_cuda.so", "/opt/f/lib/fathom/libfathom_cuda.so"});
  Environment given;
  given.module_path = "/x/m.so";
  CHECK(module_candidates("/opt/f/bin/fathom", given) == std::vector<std::string>{"/x/m.so"});
  CHECK(module_candidates("", {}).empty());
}

TEST_CASE("a module that is missing, broken or foreign is refused with its reason", "[cuda]") {
  const Loaded missing = open_module({"/nowhere/a.so", "/nowhere/b.so"}, "id");
  CHECK(missing.module == nullptr);
  CHECK(missing.reason.find("not found (looked for /nowhere/a.so, /nowhere/b.so)") != std::string::npos);

  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "fathom_test_cuda_loader";
  std::filesystem::create_directories(folder);
  const std::string broken = (folder / "broken.so").string();
  std::ofstream(broken) << "not a library";
  const Loaded text = open_module({broken}, "id");
  CHECK(text.module == nullptr);
  CHECK(text.reason.find("cannot be loaded: " + broken) != std::string::npos);
  std::filesystem::remove_all(folder);

  // The program itself is no module: it has no such entry.
  const Loaded foreign = open_module({"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"}, "id");
  CHECK(foreign.module == nullptr);
  CHECK_FALSE(foreign.reason.empty());
}

TEST_CASE("the real module, where it was built, belongs to this program and no other", "[cuda]") {
  const std::string path = std::string(FATHOM_BINARY_DIR) + "/libfathom_cuda.so";
  if (!std::filesystem::exists(path)) {
    WARN("libfathom_cuda.so was not built: no CUDA toolkit; not tested");
    return;
  }
  const Loaded other = open_module({path}, "0123456789abcdef");
  CHECK(other.module == nullptr);
  CHECK(other.reason.find("belongs to another build of fathom (module " + build_id() + ", program 0123456789abcdef)") != std::string::npos);
  const Loaded own = open_module({path}, build_id());
  REQUIRE(own.module != nullptr);
  CHECK(own.module->abi == kModuleAbi);
  // Every function of the table is there.
  const auto* first = reinterpret_cast<void* const*>(&own.module->probe);
  const auto* last = reinterpret_cast<void* const*>(own.module + 1);
  for (const auto* each = first; each < last; ++each) CHECK(*each != nullptr);
  DeviceInfo info;
  Text text_;
  const Status status = own.module->probe(&info, &text_);
  if (status == Status::kOk) return;  // a machine with a GPU
  CHECK(std::string(text_.text).size() > 4);
  Device* device = nullptr;
  Text again;
  CHECK(own.module->open(&device, &again) == status);
  CHECK(device == nullptr);
}

TEST_CASE("each condition has its designed sentence", "[cuda]") {
  CHECK(said(Status::kNoDriver) == "no NVIDIA driver found");
  CHECK(said(Status::kOldDriver, 12080) == "driver supports CUDA 12.8, fathom needs 13.0 (r580 or newer)");
  CHECK(said(Status::kStubDriver) == "the CUDA stub library was loaded; remove the stubs folder from LD_LIBRARY_PATH");
  Environment hidden;
  hidden.visible_devices_set = true;
  CHECK(said(Status::kNoDevice, 13000, hidden) == "no GPU visible (CUDA_VISIBLE_DEVICES='')");
  hidden.visible_devices = "7";
  CHECK(said(Status::kNoDevice, 13000, hidden) == "no GPU visible (CUDA_VISIBLE_DEVICES='7')");
  CHECK(said(Status::kNoDevice, 13000) == "no GPU visible (CUDA_VISIBLE_DEVICES is not set)");
  CHECK(said(Status::kOutOfMemory) == "the GPU's memory does not suffice: cudaMalloc of 12 bytes: out of memory");
}

TEST_CASE("a failed call is an environment error, a refused shape an input error", "[cuda]") {
  Text text;
  std::snprintf(text.text, sizeof text.text, "no algorithm");
  CHECK_NOTHROW(must(Status::kOk, "x", text));
  try {
    must(Status::kRefused, "planning a product", text);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.message() == "planning a product: no algorithm");
  }
  try {
    must(Status::kOutOfMemory, "allocating", text);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kEnvironment);
  }
}
