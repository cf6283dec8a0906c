// A CUPTI and a CUDA runtime made of fakes: they record the order of calls, fail where they are told to, and deliver buffers of the test's choice.
#pragma once

#include "kernels/cuda/cupti_config.hpp"

#if FATHOM_CUPTI_HEADERS

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/cupti_counters.hpp"
#include "tests/cupti/buffers.hpp"

namespace fathom::cuda {

struct FakeCupti {
  CuptiApi api;
  DeviceCalls device;
  std::vector<std::string> calls;                // names, in order
  std::map<std::string, int> fails;              // function -> code
  int driver = 13000, devices = 1;
  std::uint32_t version = CUPTI_API_VERSION;
  std::string holder;                            // written where cuptiSubscribe_v2 says who holds CUPTI
  std::function<void(FakeCupti&)> on_flush;      // delivers buffers
  std::size_t dropped = 0;
  std::function<double(std::size_t range, std::size_t metric)> value = [](std::size_t range, std::size_t metric) { return 1000.0 * static_cast<double>(range + 1) + static_cast<double>(metric); };
  std::string chip = "GH100";
  std::size_t passes = 1, ranges_dropped = 0;
  bool supported = true;
  int passes_submitted_after = -1;               // Stop says "all submitted" after this many; -1: after `passes`

  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_CallbackFunc callback = nullptr;
  void* callback_user = nullptr;
  std::vector<std::pair<int, std::uint64_t>> external;  // pushes in order
  std::vector<std::string> metrics, ranges;
  int stops = 0;

  static FakeCupti*& now() {
    static FakeCupti* current = nullptr;
    return current;
  }
  int called(const char* name) {
    calls.emplace_back(name);
    const auto found = fails.find(name);
    return found == fails.end() ? 0 : found->second;
  }
  std::size_t count(const std::string& name) const { return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), name)); }
  bool before(const std::string& first, const std::string& second) const {
    return std::find(calls.begin(), calls.end(), first) < std::find(calls.begin(), calls.end(), second);
  }

  // What CUPTI does in a flush: asks for a buffer, fills it, hands it back.
  void deliver(const std::vector<std::uint8_t>& bytes) {
    std::uint8_t* buffer = nullptr;
    size_t size = 0, most = 1;
    request(&buffer, &size, &most);
    if (!buffer || bytes.size() > size) return;
    std::memcpy(buffer, bytes.data(), bytes.size());
    complete(nullptr, 0, buffer, size, bytes.size());
  }
  // The records that the session's own test kernel leaves.
  static BufferMaker self_test(std::uint64_t at = 1'000'000) {
    BufferMaker m;
    m.launch(1, kSelfTestOp, 0, at).kernel(1, at + 1000, at + 2000, "fathom_profiler_self_test");
    return m;
  }

  FakeCupti();
};

}  // namespace fathom::cuda
#endif
