#include "tests/support/targets.h"

#include <cstdlib>

namespace ttr::test {

std::vector<std::string> Targets() {
  // Not by ChosenTarget(), which reads the environment once a process: death tests change it.
  const char* const named = std::getenv("TTR_TARGET");
  if (named != nullptr && *named != '\0') return {named};
  return SupportedTargets();
}

}  // namespace ttr::test
