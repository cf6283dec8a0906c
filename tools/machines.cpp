#include "tools/machines.hpp"

namespace fathom {
std::vector<std::pair<std::string, std::string>> list_machine_names() { return {}; }
std::vector<std::pair<std::string, std::string>> list_backend_names() { return {}; }
}  // namespace fathom
