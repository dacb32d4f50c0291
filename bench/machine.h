/// What the machine can do at most, measured beside the kernels that are held against it.
#pragma once

#include <cstddef>

namespace ttr::bench {

/// GFLOP/s of fused multiply-adds on registers, on one thread and the chosen SIMD target
/// (ttr/target.h): the best of several runs of about a millisecond.
double FmaPeak(bool float64);

/// GB/s (read + written) of multiplying `bytes` of memory in place, on one thread: the best of
/// several passes. What an update of a state of that size can reach.
double InPlaceBandwidth(std::size_t bytes);

}  // namespace ttr::bench
