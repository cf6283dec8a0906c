// The page's style and its script for sorting tables.
#pragma once

#include <string_view>

namespace fathom {

std::string_view html_style();
std::string_view html_script();

}  // namespace fathom
