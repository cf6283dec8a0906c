// The backends by name. What is not compiled in, or not on this machine, is listed with its reason and cannot be bound.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/backend.hpp"

namespace fathom {

// "reference", "cpu", "cuda", "fake", in this order, whether available or not; they live as long as the program.
const std::vector<const Backend*>& all_backends();

// Throws Error(kInput) with the nearest name for an unknown one, Error(kEnvironment) with the reason for one that is not available.
const Backend& backend(std::string_view name);
// The former of the two alone: asking whether a backend is available would open the CUDA module.
void check_backend_name(std::string_view name);

}  // namespace fathom
