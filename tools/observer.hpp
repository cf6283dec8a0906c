// What the machine did around a measurement, and which clock an execution is timed by.
#pragma once

#include <memory>
#include <string>

#include "lib/backend.hpp"
#include "lib/measure.hpp"

namespace fathom {

// Foreign CPU use and steal from /proc/stat; null for the fake backend.
std::unique_ptr<MachineObserver> make_observer(const std::string& backend);

}  // namespace fathom
