#include "src/simd/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace ttr::simd {

#if defined(__x86_64__)

bool HasBf16Pairs() { return __builtin_cpu_supports("avx512bf16") != 0; }

bool MultipliesBf16PairsFast() {
  static const bool is_amd = [] {
    unsigned highest = 0, vendor[3] = {};
    if (__get_cpuid(0, &highest, &vendor[0], &vendor[2], &vendor[1]) == 0) return false;
    return std::memcmp(vendor, "AuthenticAMD", sizeof(vendor)) == 0;
  }();
  return is_amd && HasBf16Pairs();
}

#elif defined(__aarch64__) && defined(__linux__)

bool HasBf16Pairs() { return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }

bool MultipliesBf16PairsFast() { return HasBf16Pairs(); }

#else

bool HasBf16Pairs() { return false; }

bool MultipliesBf16PairsFast() { return false; }

#endif

}  // namespace ttr::simd
