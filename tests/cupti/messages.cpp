// What users read when profiling is not possible: whole texts, because "error 35" was all that other tools said.
#include <catch2/catch.hpp>

#include "kernels/cuda/cupti_messages.hpp"

using namespace fathom::cuda;

TEST_CASE("driver and device") {
  ProfilerFacts facts;
  CHECK(one_line(explain_driver(0, facts)) == "no NVIDIA driver found. To get it: install the driver (r580 or newer); nvidia-smi must list the GPU");
  CHECK(explain_driver(12080, facts).message == "driver supports CUDA 12.8, fathom needs 13.0 (r580 or newer)");
  CHECK(explain_driver(13000, facts).message.empty());
  CHECK(explain_driver(13010, facts).message.empty());
  facts.driver_version = 12040;
  CHECK(explain_cuda(35, facts).message == "driver supports CUDA 12.4, fathom needs 13.0 (r580 or newer)");
  facts.driver_version = 0;
  CHECK(explain_cuda(35, facts).message == "no NVIDIA driver found");
  CHECK(one_line(explain_cuda(34, facts)) == "the CUDA stub library was loaded. To get it: remove the stubs folder from LD_LIBRARY_PATH");
  CHECK(explain_cuda(100, facts).message == "no GPU visible (CUDA_VISIBLE_DEVICES='')");
  facts.visible_devices = "7";
  CHECK(one_line(explain_cuda(100, facts)) == "no GPU visible (CUDA_VISIBLE_DEVICES='7'). To get it: unset CUDA_VISIBLE_DEVICES, or name a GPU that exists");
  for (const int code : {34, 35, 100, 999}) CHECK(explain_cuda(code, facts).rung == Rung::kHost);
}

TEST_CASE("counters refused: the facts and the cures") {
  ProfilerFacts facts;
  facts.admin_only = 1;
  facts.sys_admin = 0;
  const Finding finding = explain_cupti(35, Stage::kCounters, "cuptiRangeProfilerEnable", facts);
  CHECK(finding.rung == Rung::kActivity);
  CHECK(finding.message == "GPU counters are restricted to administrators (RmProfilingAdminOnly: 1, CAP_SYS_ADMIN missing); kernel times still work");
  CHECK(finding.cure == "run as root; in a container add --cap-add=SYS_ADMIN and be root inside; or set the driver option NVreg_RestrictProfilingToAdminUsers=0");
  const Finding early = explain_cupti(35, Stage::kSubscribe, "cuptiSubscribe_v2", ProfilerFacts{});
  CHECK(early.rung == Rung::kEvents);
  CHECK(early.message == "GPU counters are restricted to administrators (RmProfilingAdminOnly: unknown, CAP_SYS_ADMIN unknown); times by CUDA events still work");
}

TEST_CASE("who holds what") {
  ProfilerFacts facts;
  facts.holder = "Nsight Systems";
  CHECK(explain_cupti(39, Stage::kSubscribe, "cuptiSubscribe_v2", facts).message == "CUPTI is in use by Nsight Systems; times by CUDA events still work");
  CHECK(explain_cupti(12, Stage::kSubscribe, "cuptiSubscribe_v2", ProfilerFacts{}).message == "CUPTI is in use by another tool; times by CUDA events still work");
  CHECK(explain_cupti(12, Stage::kActivity, "cuptiActivityEnable", facts).message == "cuptiActivityEnable failed with CUPTI_ERROR_MAX_LIMIT_REACHED (12); times by CUDA events still work");
  const Finding busy = explain_cupti(26, Stage::kCounters, "cuptiRangeProfilerStart", facts);
  CHECK(busy.message == "another profiler or DCGM holds the GPU counters; kernel times still work");
  CHECK(busy.cure == "dcgmi profile --pause; before Hopper one process holds the counters of the whole machine");
}

TEST_CASE("modes in which nothing can be profiled") {
  const std::pair<int, const char*> modes[] = {{33, "a virtual GPU"}, {40, "a virtual GPU"}, {41, "confidential computing"}, {42, "a mining card"}, {43, "MIG"}, {44, "SLI"}, {45, "WSL"}};
  for (const auto& [code, name] : modes) {
    CHECK(explain_cupti(code, Stage::kCounters, "x", {}).message == std::string("profiling is not possible under ") + name + "; using activity");
    CHECK(explain_cupti(code, Stage::kActivity, "x", {}).message == std::string("profiling is not possible under ") + name + "; using events");
  }
  ProfilerFacts facts;
  facts.chip = "GH100";
  CHECK(explain_unsupported({"virtual GPU (possible, but switched off)", "WSL"}, facts).message ==
        "counters are not possible here (virtual GPU (possible, but switched off), WSL, chip GH100); kernel times still work");
}

TEST_CASE("versions, chips, internal errors") {
  ProfilerFacts facts;
  facts.chip = "GR100";
  facts.driver_version = 13000;
  CHECK(explain_cupti(46, Stage::kCounters, "x", facts).message == "chip GR100 is not known to CUPTI 13.0.1; counters off");
  CHECK(explain_cupti(15, Stage::kSubscribe, "x", facts).message == "CUPTI does not fit the driver (CUDA 13.0); times by CUDA events still work");
  CHECK(explain_cupti(15, Stage::kSubscribe, "x", ProfilerFacts{}).message == "CUPTI found no driver; times by CUDA events still work");
  for (const int code : {36, 38}) CHECK(explain_cupti(code, Stage::kCounters, "x", facts).internal);
  CHECK(explain_cupti(999, Stage::kCounters, "cuptiProfilerInitialize", facts).message == "cuptiProfilerInitialize failed with CUPTI_ERROR_UNKNOWN (999); kernel times still work");
  CHECK(explain_cupti(77, Stage::kCounters, "f", facts).message == "f failed with an unknown CUPTI code (77); kernel times still work");
  CHECK(explain_old_library(130000, 130001).message == "CUPTI 130000 is older than the 130001 that fathom was built with; times by CUDA events still work");
  CHECK(explain_missing_library("libcupti.so.13: cannot open shared object file").message ==
        "CUPTI could not be loaded: libcupti.so.13: cannot open shared object file; times by CUDA events still work");
  CHECK(explain_no_records().message == "the tracer records nothing: a kernel launched for the purpose left no record; times by CUDA events still work");
  CHECK(explain_no_match(41).message == "the tracer recorded 41 kernels, but none of them belongs to an op; times by CUDA events still work");
}

TEST_CASE("every code has words, and a rung below the one that failed") {
  for (int code = 1; code <= 46; ++code)
    for (const Stage stage : {Stage::kLibrary, Stage::kSubscribe, Stage::kActivity, Stage::kCounters}) {
      const Finding finding = explain_cupti(code, stage, "cuptiAnything", {});
      CHECK(!finding.message.empty());
      CHECK(finding.code == code);
      CHECK(finding.rung < (stage == Stage::kCounters ? Rung::kCounters : Rung::kActivity));
      CHECK(std::string(cupti_code_name(code)).starts_with("CUPTI_ERROR_"));
    }
}

TEST_CASE("permissions are read in both spellings") {
  CHECK(parse_admin_only("EnableMSI: 1\nRmProfilingAdminOnly: 1\n") == 1);
  CHECK(parse_admin_only("RmProfilingAdminOnly: 0\n") == 0);
  CHECK(parse_admin_only("NVreg_RestrictProfilingToAdminUsers: 1\n") == 1);
  CHECK(parse_admin_only("EnableMSI: 1\n") == -1);
  CHECK(parse_admin_only("") == -1);
  ProfilerFacts facts;
  CHECK(parse_capabilities("Name:\tx\nCapEff:\t00000000a80425fb\n", facts));   // docker's default set
  CHECK(facts.sys_admin == 0);
  CHECK(facts.perfmon == 0);
  CHECK(parse_capabilities("CapEff:\t000001ffffffffff\n", facts));
  CHECK(facts.sys_admin == 1);
  CHECK(facts.perfmon == 1);
  CHECK(parse_capabilities("CapEff:\t0000004000000000\n", facts));   // bit 38 alone
  CHECK(facts.sys_admin == 0);
  CHECK(facts.perfmon == 1);
  CHECK_FALSE(parse_capabilities("CapEff:\t\n", facts));
  CHECK_FALSE(parse_capabilities("", facts));
}

TEST_CASE("rungs have the names that rows carry") {
  CHECK(std::string(rung_name(Rung::kHost)) == "host");
  CHECK(std::string(rung_name(Rung::kEvents)) == "events");
  CHECK(std::string(rung_name(Rung::kActivity)) == "activity");
  CHECK(std::string(rung_name(Rung::kCounters)) == "counters+activity");
}
