/// Which instruction sets are compiled, and the one that kernels are called on.
///
/// A kernel file is compiled once for every target (hwy/foreach_target.h), exports its entry points
/// with HWY_EXPORT, and calls them with TTR_DISPATCH(Function)(arguments). Include this file before
/// any of Highway's.
#pragma once

// Left out: targets that would add compile time and no speed (AVX3_DL, whose additions over AVX3
// are for bytes); SSSE3 and SSE4, because processors have had AVX2 since 2013, and older ones run
// SCALAR; those whose vectors have no fixed size, because register tiles are arrays of vectors; and
// what the build was told to leave out (cmake/TtrSimdTargets.cmake).
#ifndef TTR_WITHOUT_TARGETS
#define TTR_WITHOUT_TARGETS 0
#endif
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                              \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   HWY_RVV | (TTR_WITHOUT_TARGETS))
#endif

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttr::simd {

/// Highway's bits of the targets that are in both, best first. Throws ttr::SystemError where there
/// is none: the program was compiled for other processors.
std::vector<std::int64_t> UsableTargets(std::int64_t compiled, std::int64_t supported);

/// The place of ttr::ChosenTarget() in the tables that HWY_EXPORT makes, and its errors: every
/// kernel is reached through here, so a processor without its instructions never meets it.
std::size_t ChosenIndex();

}  // namespace ttr::simd

/// Highway's own HWY_DYNAMIC_DISPATCH follows a choice that all users of Highway in a process
/// share; this one follows ttr's. (A single compiled target has a table of one entry.)
#define TTR_DISPATCH(FUNCTION) (*(HWY_DISPATCH_TABLE(FUNCTION)[::ttr::simd::ChosenIndex()]))
