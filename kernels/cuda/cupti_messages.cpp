#include "kernels/cuda/cupti_messages.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace fathom::cuda {
namespace {

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

std::string still(Rung rung) {
  switch (rung) {
    case Rung::kCounters: return "counters still work";
    case Rung::kActivity: return "kernel times still work";
    case Rung::kEvents: return "times by CUDA events still work";
    case Rung::kHost: return "nothing of the profiler works";
  }
  return {};
}

// What is left when a call of this stage fails.
Rung below(Stage stage) {
  switch (stage) {
    case Stage::kDevice: return Rung::kHost;
    case Stage::kLibrary:
    case Stage::kSubscribe:
    case Stage::kActivity: return Rung::kEvents;
    case Stage::kCounters: return Rung::kActivity;
  }
  return Rung::kHost;
}

std::string slurp(const char* path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The facts behind a refusal, as far as they are known.
std::string permission_facts(const ProfilerFacts& facts) {
  std::string text = "RmProfilingAdminOnly: ";
  text += facts.admin_only < 0 ? "unknown" : std::to_string(facts.admin_only);
  text += facts.sys_admin == 1 ? ", CAP_SYS_ADMIN present" : facts.sys_admin == 0 ? ", CAP_SYS_ADMIN missing" : ", CAP_SYS_ADMIN unknown";
  if (facts.perfmon == 1) text += ", CAP_PERFMON present";
  return text;
}

const char* mode_of(int code) {
  switch (code) {
    case 33:
    case 40: return "a virtual GPU";
    case 41: return "confidential computing";
    case 42: return "a mining card";
    case 43: return "MIG";
    case 44: return "SLI";
    case 45: return "WSL";
    default: return nullptr;
  }
}

}  // namespace

const char* rung_name(Rung rung) {
  switch (rung) {
    case Rung::kHost: return "host";
    case Rung::kEvents: return "events";
    case Rung::kActivity: return "activity";
    case Rung::kCounters: return "counters+activity";
  }
  return "host";
}

int parse_admin_only(const std::string& params) {
  std::istringstream lines(params);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon);
    if (key.find("RmProfilingAdminOnly") == std::string::npos && key.find("RestrictProfilingToAdminUsers") == std::string::npos) continue;
    const std::size_t digit = line.find_first_of("0123456789", colon);
    if (digit != std::string::npos) return line[digit] == '0' ? 0 : 1;
  }
  return -1;
}

bool parse_capabilities(const std::string& status, ProfilerFacts& facts) {
  const std::size_t at = status.find("CapEff:");
  if (at == std::string::npos) return false;
  const char* begin = status.c_str() + at + 7;
  char* end = nullptr;
  const unsigned long long mask = std::strtoull(begin, &end, 16);
  if (end == begin) return false;
  facts.sys_admin = static_cast<int>(mask >> 21 & 1);
  facts.perfmon = static_cast<int>(mask >> 38 & 1);
  return true;
}

void read_permissions(ProfilerFacts& facts) {
  facts.admin_only = parse_admin_only(slurp("/proc/driver/nvidia/params"));
  parse_capabilities(slurp("/proc/self/status"), facts);
}

Finding explain_driver(int driver_version, const ProfilerFacts& facts) {
  if (driver_version == 0) return {0, Rung::kHost, "no NVIDIA driver found", "install the driver (r580 or newer); nvidia-smi must list the GPU", false};
  if (driver_version < 13000) return explain_cuda(35, [&] { ProfilerFacts f = facts; f.driver_version = driver_version; return f; }());
  return {0, Rung::kCounters, "", "", false};
}

Finding explain_cuda(int code, const ProfilerFacts& facts) {
  Finding f{code, Rung::kHost, "", "", false};
  switch (code) {
    case 35:
      if (facts.driver_version <= 0) return explain_driver(0, facts);
      f.message = "driver supports CUDA " + version_text(facts.driver_version) + ", fathom needs 13.0 (r580 or newer)";
      f.cure = "update the driver";
      break;
    case 34:
      f.message = "the CUDA stub library was loaded";
      f.cure = "remove the stubs folder from LD_LIBRARY_PATH";
      break;
    case 100:
      f.message = "no GPU visible (CUDA_VISIBLE_DEVICES='" + facts.visible_devices + "')";
      f.cure = facts.visible_devices.empty() ? "nvidia-smi must list a GPU" : "unset CUDA_VISIBLE_DEVICES, or name a GPU that exists";
      break;
    default:
      f.message = "CUDA reports error " + std::to_string(code) + " before any work";
      f.cure = "nvidia-smi tells whether the device is healthy";
  }
  return f;
}

Finding explain_cupti(int code, Stage stage, const char* call, const ProfilerFacts& facts) {
  Finding f{code, below(stage), "", "", false};
  if (const char* mode = mode_of(code)) {
    f.message = std::string("profiling is not possible under ") + mode + "; using " + rung_name(f.rung);
    if (code == 40) f.cure = "enable profiling in the virtual GPU's configuration on the host";
    return f;
  }
  switch (code) {
    case 35:
      f.message = "GPU counters are restricted to administrators (" + permission_facts(facts) + "); " + still(f.rung);
      f.cure = "run as root; in a container add --cap-add=SYS_ADMIN and be root inside; or set the driver option NVreg_RestrictProfilingToAdminUsers=0";
      break;
    case 26:
      f.message = "another profiler or DCGM holds the GPU counters; " + still(f.rung);
      f.cure = "dcgmi profile --pause; before Hopper one process holds the counters of the whole machine";
      break;
    case 12:
    case 39:
      if (code == 12 && stage != Stage::kSubscribe) break;
      f.message = "CUPTI is in use by " + (facts.holder.empty() ? std::string("another tool") : facts.holder) + "; " + still(f.rung);
      f.cure = "run without nsys, ncu, compute-sanitizer, cuda-gdb or another CUPTI client";
      break;
    case 15:
      f.message = facts.driver_version > 0 ? "CUPTI does not fit the driver (CUDA " + version_text(facts.driver_version) + "); " + still(f.rung)
                                           : "CUPTI found no driver; " + still(f.rung);
      f.cure = "fathom needs a driver for CUDA 13.0 (r580 or newer)";
      break;
    case 46:
      f.message = "chip " + (facts.chip.empty() ? std::string("of this device") : facts.chip) + " is not known to CUPTI 13.0.1; counters off";
      f.cure = "a newer CUPTI may know it";
      break;
    case 17:
      f.message = "a counter of the set does not exist on chip " + facts.chip + "; counters off";
      break;
    case 36:
    case 38:
      f.message = std::string("two profiling interfaces were mixed in one process (") + call + ", " + cupti_code_name(code) + ")";
      f.internal = true;
      break;
    case 8:
      f.message = std::string("out of memory while profiling (") + call + "); " + still(f.rung);
      f.cure = "profile fewer steps or a smaller configuration";
      break;
    default:
      break;
  }
  if (f.message.empty()) f.message = std::string(call) + " failed with " + cupti_code_name(code) + " (" + std::to_string(code) + "); " + still(f.rung);
  return f;
}

Finding explain_missing_library(const std::string& loader_message) {
  return {0, Rung::kEvents, "CUPTI could not be loaded: " + loader_message + "; " + still(Rung::kEvents), "install the CUPTI of CUDA 13, or put its folder into LD_LIBRARY_PATH", false};
}

Finding explain_old_library(std::uint32_t found, std::uint32_t built_with) {
  return {0, Rung::kEvents, "CUPTI " + std::to_string(found) + " is older than the " + std::to_string(built_with) + " that fathom was built with; " + still(Rung::kEvents),
          "install CUDA 13.0 update 1 or newer", false};
}

Finding explain_no_records() {
  return {0, Rung::kEvents, "the tracer records nothing: a kernel launched for the purpose left no record; " + still(Rung::kEvents), "driver and CUPTI may not fit each other", false};
}

Finding explain_no_match(std::int64_t kernels) {
  return {0, Rung::kEvents, "the tracer recorded " + std::to_string(kernels) + " kernels, but none of them belongs to an op; " + still(Rung::kEvents), "", true};
}

Finding explain_unsupported(const std::vector<std::string>& modes, const ProfilerFacts& facts) {
  std::string list;
  for (const std::string& mode : modes) list += (list.empty() ? "" : ", ") + mode;
  return {0, Rung::kActivity, "counters are not possible here (" + (list.empty() ? std::string("no reason given") : list) + (facts.chip.empty() ? "" : ", chip " + facts.chip) + "); " + still(Rung::kActivity), "", false};
}

std::string one_line(const Finding& finding) { return finding.cure.empty() ? finding.message : finding.message + ". To get it: " + finding.cure; }

const char* cupti_code_name(int code) {
  static const char* const kNames[] = {
      "CUPTI_SUCCESS", "CUPTI_ERROR_INVALID_PARAMETER", "CUPTI_ERROR_INVALID_DEVICE", "CUPTI_ERROR_INVALID_CONTEXT", "CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID",
      "CUPTI_ERROR_INVALID_EVENT_ID", "CUPTI_ERROR_INVALID_EVENT_NAME", "CUPTI_ERROR_INVALID_OPERATION", "CUPTI_ERROR_OUT_OF_MEMORY", "CUPTI_ERROR_HARDWARE",
      "CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT", "CUPTI_ERROR_API_NOT_IMPLEMENTED", "CUPTI_ERROR_MAX_LIMIT_REACHED", "CUPTI_ERROR_NOT_READY",
      "CUPTI_ERROR_NOT_COMPATIBLE", "CUPTI_ERROR_NOT_INITIALIZED", "CUPTI_ERROR_INVALID_METRIC_ID", "CUPTI_ERROR_INVALID_METRIC_NAME", "CUPTI_ERROR_QUEUE_EMPTY",
      "CUPTI_ERROR_INVALID_HANDLE", "CUPTI_ERROR_INVALID_STREAM", "CUPTI_ERROR_INVALID_KIND", "CUPTI_ERROR_INVALID_EVENT_VALUE", "CUPTI_ERROR_DISABLED",
      "CUPTI_ERROR_INVALID_MODULE", "CUPTI_ERROR_INVALID_METRIC_VALUE", "CUPTI_ERROR_HARDWARE_BUSY", "CUPTI_ERROR_NOT_SUPPORTED",
      "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED", "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE", "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES",
      "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS", "CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED", "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED",
      "CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED",
      "CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE", "CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED", "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
      "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED",
      "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED", "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED", "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED", "CUPTI_ERROR_INVALID_CHIP_NAME"};
  if (code >= 0 && code < static_cast<int>(sizeof kNames / sizeof kNames[0])) return kNames[code];
  return code == 999 ? "CUPTI_ERROR_UNKNOWN" : "an unknown CUPTI code";
}

}  // namespace fathom::cuda
