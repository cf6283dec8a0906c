#include "kernels/cuda_host/throttle.hpp"

namespace fathom {

std::string throttle_text(std::int64_t reasons) {
  // nvmlClocksEventReasons: 1 idle, 2 application clocks, 16 sync boost and 256 display clocks are no throttling.
  struct Reason {
    std::int64_t bit;
    const char* words;
  };
  static constexpr Reason kReasons[] = {
      {4, "power limit"}, {8, "hardware slowdown"}, {32, "temperature (software)"}, {64, "temperature (hardware)"}, {128, "power brake"}};
  std::string text;
  for (const Reason& reason : kReasons)
    if (reasons & reason.bit) text += (text.empty() ? "" : ", ") + std::string(reason.words);
  return text;
}

}  // namespace fathom
