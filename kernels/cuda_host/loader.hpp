// Opens the CUDA module at run time and turns everything that can be missing into the sentence a user needs.
//
// Looked for, in this order: the path that tools/ were given (FATHOM_CUDA_MODULE), beside the program, ../lib/fathom from it. A module is
// refused when its ABI number or build id differs from this program's: their structs would not match. Nothing is opened before somebody asks,
// because the module brings cuBLASLt (half a gigabyte on disk, 0.1 s to load).
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/module.hpp"

namespace fathom::cuda {

// What the environment says; tools/ set it before anything here is called.
struct Environment {
  std::string module_path;      // FATHOM_CUDA_MODULE; empty: search
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES
  bool visible_devices_set = false;
};
void set_environment(const Environment& environment);
const Environment& environment();

struct Loaded {
  const Module* module = nullptr;  // null: `reason` says why
  std::string reason;
  std::string path;
};
// Opens on the first call and keeps the answer. Thread safe.
const Loaded& load_module();

// What was found when the device was looked for, once.
struct Probed {
  Status status = Status::kNoDriver;
  std::string reason;  // of a status that is not kOk
  DeviceInfo info;
};
const Probed& probe_device();

// The pieces, for tests.
std::string build_id();
std::vector<std::string> module_candidates(const std::string& program, const Environment& environment);
// Opens one file; `build` is what the module must answer.
Loaded open_module(const std::vector<std::string>& candidates, const std::string& build);
// The designed sentence of a status (NOTES: conditions and messages); `text` is what the module said.
std::string device_message(Status status, const DeviceInfo& info, const std::string& text, const Environment& environment);

// Throws Error(kEnvironment or kInput) unless the status is kOk. `what` was being done.
void must(Status status, const char* what, const Text& text);

}  // namespace fathom::cuda
