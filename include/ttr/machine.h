/// What this machine can do at most, measured: the limits that kernels are held against.
#pragma once

#include <cstddef>

namespace ttr {

/// GFLOP/s of fused multiply-adds on registers, one thread, on the chosen SIMD target: the best of
/// several runs of about a millisecond.
double MeasureFmaPeak(bool float64 = false);

/// GB/s (read + written) of multiplying `bytes` of memory in place, one thread: the best of several
/// passes. What an update of a state of that size can reach.
double MeasureInPlaceBandwidth(std::size_t bytes);

}  // namespace ttr
