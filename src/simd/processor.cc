#include "src/simd/processor.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

#include <cstring>
#endif

namespace ttr::simd {

bool IsAmd() {
#if defined(__x86_64__) || defined(__i386__)
  static const bool is_amd = [] {
    unsigned highest = 0, vendor[3] = {};
    if (__get_cpuid(0, &highest, &vendor[0], &vendor[2], &vendor[1]) == 0) return false;
    return std::memcmp(vendor, "AuthenticAMD", sizeof(vendor)) == 0;
  }();
  return is_amd;
#else
  return false;
#endif
}

}  // namespace ttr::simd
