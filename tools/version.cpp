#include "tools/cli.hpp"

#ifndef FATHOM_VERSION
#define FATHOM_VERSION "unknown"
#endif
#ifndef FATHOM_COMMIT
#define FATHOM_COMMIT ""
#endif
#ifndef FATHOM_BUILT_IN
#define FATHOM_BUILT_IN ""
#endif

namespace fathom {

std::string version_text() {
  std::string text = std::string("fathom ") + FATHOM_VERSION;
  const std::string commit = FATHOM_COMMIT;
  if (!commit.empty()) text += " (" + commit + ")";
  const std::string built_in = FATHOM_BUILT_IN;
  if (!built_in.empty()) text += ", " + built_in;
  return text;
}

}  // namespace fathom
