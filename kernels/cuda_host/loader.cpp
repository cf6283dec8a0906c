#include "kernels/cuda_host/loader.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <mutex>

#include "lib/error.hpp"

namespace fathom::cuda {
namespace {

constexpr char kFile[] = "libfathom_cuda.so";

Environment& stored_environment() {
  static Environment environment;
  return environment;
}

std::string program_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.string();
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

void set_environment(const Environment& environment) { stored_environment() = environment; }
const Environment& environment() { return stored_environment(); }

std::string build_id() { return FATHOM_CUDA_BUILD_ID; }

std::vector<std::string> module_candidates(const std::string& program, const Environment& environment) {
  if (!environment.module_path.empty()) return {environment.module_path};  // what was asked for, and nothing else
  if (program.empty()) return {};
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  return {(folder / kFile).string(), (folder.parent_path() / "lib" / "fathom" / kFile).string()};
}

Loaded open_module(const std::vector<std::string>& candidates, const std::string& build) {
  Loaded loaded;
  for (const std::string& path : candidates) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    loaded.path = path;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      loaded.reason = fmt::format("the CUDA module cannot be loaded: {}", why ? why : "unknown reason");
      return loaded;
    }
    const auto entry = reinterpret_cast<ModuleEntry>(dlsym(library, kModuleEntry));
    const Module* module = entry ? entry(kModuleAbi) : nullptr;
    if (!entry)
      loaded.reason = fmt::format("{} is no CUDA module of fathom", path);
    else if (!module || module->abi != kModuleAbi || module->bytes != sizeof(Module) || !module->build_id || build != module->build_id)
      loaded.reason = fmt::format("{} belongs to another build of fathom (module {}, program {}): build both together", path,
                                  module && module->abi == kModuleAbi && module->build_id ? module->build_id : "of another ABI", build);
    else
      loaded.module = module;
    if (!loaded.module) dlclose(library);
    return loaded;
  }
  loaded.reason = "the CUDA module was not found";
  for (size_t i = 0; i < candidates.size(); ++i) loaded.reason += (i == 0 ? " (looked for " : ", ") + candidates[i];
  if (!candidates.empty()) loaded.reason += "): build with the CUDA 13 toolkit installed (cmake says whether it was found)";
  return loaded;
}

const Loaded& load_module() {
  static std::once_flag once;
  static Loaded loaded;
  std::call_once(once, [] { loaded = open_module(module_candidates(program_path(), environment()), build_id()); });
  return loaded;
}

const Probed& probe_device() {
  static std::once_flag once;
  static Probed probed;
  std::call_once(once, [] {
    const Loaded& loaded = load_module();
    if (!loaded.module) {
      probed.status = Status::kFailed;
      probed.reason = loaded.reason;
      return;
    }
    Text text;
    probed.status = loaded.module->probe(&probed.info, &text);
    if (probed.status != Status::kOk) probed.reason = device_message(probed.status, probed.info, text.text, environment());
  });
  return probed;
}

std::string device_message(Status status, const DeviceInfo& info, const std::string& text, const Environment& environment) {
  switch (status) {
    case Status::kOk: return {};
    case Status::kNoDriver: return "no NVIDIA driver found";
    case Status::kOldDriver:
      return fmt::format("driver supports CUDA {}, fathom needs {} (r580 or newer)", version_text(info.driver), version_text(kNeededDriver));
    case Status::kStubDriver: return "the CUDA stub library was loaded; remove the stubs folder from LD_LIBRARY_PATH";
    case Status::kNoDevice:
      return environment.visible_devices_set ? fmt::format("no GPU visible (CUDA_VISIBLE_DEVICES='{}')", environment.visible_devices) : "no GPU visible (CUDA_VISIBLE_DEVICES is not set)";
    case Status::kOldDevice: return fmt::format("the module has no code for this GPU ({}, sm_{}{}): {}", info.name[0] ? info.name : "unknown", info.major, info.minor, text);
    case Status::kOutOfMemory: return fmt::format("the GPU's memory does not suffice: {}", text);
    case Status::kRefused: return text;
    case Status::kFailed: return text.empty() ? "the CUDA module failed" : text;
  }
  return text;
}

void must(Status status, const char* what, const Text& text) {
  if (status == Status::kOk) return;
  const std::string message = fmt::format("{}: {}", what, device_message(status, {}, text.text, environment()));
  if (status == Status::kRefused) throw_input(message);
  throw Error(ErrorKind::kEnvironment, message);
}

}  // namespace fathom::cuda
