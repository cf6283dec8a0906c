// What a failed call of CUDA or CUPTI means for the user: the message, the cure, and the rung of the ladder that still works.
//
// The ladder is counters -> activity -> events -> host clock. Every fall has a reason in words; "error 35" alone helps nobody. Codes and
// their meaning: cupti_result.h of CUDA 13.0 and its release notes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fathom::cuda {

enum class Rung : std::uint8_t { kHost, kEvents, kActivity, kCounters };
// "host", "events", "activity", "counters+activity": what a result row carries.
const char* rung_name(Rung rung);

// What is known about the machine when something fails; unknown is -1 or empty.
struct ProfilerFacts {
  int driver_version = -1;         // 13000; 0: no driver
  int admin_only = -1;             // RmProfilingAdminOnly of the driver
  int sys_admin = -1;              // CAP_SYS_ADMIN, capability bit 21
  int perfmon = -1;                // CAP_PERFMON, capability bit 38
  std::string visible_devices;     // CUDA_VISIBLE_DEVICES as the user set it
  std::string holder;              // who holds CUPTI already
  std::string chip;                // "GH100"
};

// /proc/driver/nvidia/params: "RmProfilingAdminOnly: 1" or "NVreg_RestrictProfilingToAdminUsers: 1"; -1 where neither stands.
int parse_admin_only(const std::string& params);
// /proc/self/status: the CapEff mask; false where there is none.
bool parse_capabilities(const std::string& status, ProfilerFacts& facts);
// Both files of this machine; what cannot be read stays unknown.
void read_permissions(ProfilerFacts& facts);

// Where a call failed: what still works depends on it.
enum class Stage : std::uint8_t { kDevice, kLibrary, kSubscribe, kActivity, kCounters };

struct Finding {
  int code = 0;
  Rung rung = Rung::kHost;         // best rung that still works; kHost at Stage::kDevice means that nothing runs on this device
  std::string message;             // a sentence without its full stop
  std::string cure;                // what to do about it; may be empty
  bool internal = false;           // a mistake of fathom, not of the machine
};

// A CUDA runtime error code (cudaError) before anything of CUPTI is called.
Finding explain_cuda(int code, const ProfilerFacts& facts);
// The result of cudaDriverGetVersion: 0 without a driver. Code 0 where all is well.
Finding explain_driver(int driver_version, const ProfilerFacts& facts);
// A CUptiResult of the function `call`.
Finding explain_cupti(int code, Stage stage, const char* call, const ProfilerFacts& facts);
// The library could not be opened, or is older than the headers that fathom was built with.
Finding explain_missing_library(const std::string& loader_message);
Finding explain_old_library(std::uint32_t found, std::uint32_t built_with);
// The profile is empty, or nothing of it belongs to any op.
Finding explain_no_records();
Finding explain_no_match(std::int64_t kernels);
// A device that may be profiled in principle, but not like this: names of the modes that stand in the way.
Finding explain_unsupported(const std::vector<std::string>& modes, const ProfilerFacts& facts);

// "message; cure" as one line for notes and errors.
std::string one_line(const Finding& finding);

// The name of a CUptiResult, "CUPTI_ERROR_HARDWARE_BUSY", without the library.
const char* cupti_code_name(int code);

}  // namespace fathom::cuda
