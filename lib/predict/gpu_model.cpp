// Calibrated time of ops on a GPU: fitted parameters of lib/gpu/ per op class.
#include <fmt/format.h>

#include "lib/predict/op_model.hpp"

namespace fathom {

std::unique_ptr<OpModel> make_gpu_model(const Ceilings& ceilings) {
  throw_input(fmt::format("machine '{}' has no calibrated GPU model", ceilings.machine().name), {}, "use --predictor roofline or light");
}

}  // namespace fathom
