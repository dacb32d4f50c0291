// Prints the best SIMD target that kernels can be compiled for and this processor has.
#include "src/simd/targets.h"

#include <cstdint>
#include <cstdio>

#include "hwy/highway.h"

int main() {
  std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  // Highway does not count NEON as supported where AES, which no kernel uses, is missing.
  if (targets == 0) targets = HWY_STATIC_TARGET;
  std::fputs(hwy::TargetName(targets & -targets), stdout);
}
