/// Which instruction sets are compiled, and the one that kernels are called on.
///
/// A kernel file is compiled once for every target (hwy/foreach_target.h), exports its entry points
/// with HWY_EXPORT, and calls them with TTR_DISPATCH(Function)(arguments). Include this file before
/// any of Highway's.
#pragma once

// Left out: targets that would add compile time and no speed (SSSE3 beside SSE4; AVX3_DL, whose
// additions over AVX3 are for bytes), and those whose vectors have no fixed size, because register
// tiles are arrays of vectors.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#include <cstddef>

namespace ttr::simd {

/// The place of ttr::ChosenTarget() in the tables that HWY_EXPORT makes. Throws ttr::Error where
/// TTR_TARGET names no usable target.
std::size_t ChosenIndex();

}  // namespace ttr::simd

/// Highway's own HWY_DYNAMIC_DISPATCH follows a choice that all users of Highway in a process
/// share; this one follows ttr's. (With a single compiled target the table has one entry.)
#define TTR_DISPATCH(FUNCTION) (*(HWY_DISPATCH_TABLE(FUNCTION)[::ttr::simd::ChosenIndex()]))
