// Calibrated time of ops on a CPU.
#include <fmt/format.h>

#include "lib/predict/op_model.hpp"

namespace fathom {

std::unique_ptr<OpModel> make_cpu_model(const Ceilings& ceilings) {
  throw_input(fmt::format("machine '{}' has not been calibrated", ceilings.machine().name), {}, "run 'fathom calibrate', or use --predictor roofline");
}

}  // namespace fathom
