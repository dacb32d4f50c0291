/// What this machine can do at most, measured: the limits that kernels are held against.
///
/// All on one thread, on the chosen SIMD target, each the best of a few passes of about a
/// millisecond (longer where that does not hold one pass). Figures of bandwidth count the bytes
/// that a program asks for: read, plus written; not the lines that a cache fetches to write them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ttr {

/// A level of memory and how much it holds; 0 bytes for the last, main memory.
struct MemoryLevel {
  std::string_view name;  ///< "L1", "L2", "L3", "DRAM"
  std::size_t bytes = 0;
};

/// The data caches that the system reports (none where it does not), then main memory.
std::vector<MemoryLevel> MemoryLevels();

/// GFLOP/s of fused multiply-adds on registers; one counts two.
double MeasureFmaPeak(bool float64 = false);

/// Billions of instructions that do nothing, a second: what the core issues to this thread. Half of
/// it or less while another hardware thread of the core is at work. Takes some ten microseconds.
double MeasureIssueRate();

/// Billions of float exponentials a second, as kernels compute them for gates.
double MeasureExpRate();

/// GB/s of multiplying `bytes` of memory in place (read + written): what an update of a state of
/// that size can reach.
double MeasureInPlaceBandwidth(std::size_t bytes);

/// GB/s of adding up `bytes` of memory.
double MeasureReadBandwidth(std::size_t bytes);

/// GB/s of c = a * constant + b, three arrays of `bytes` in all: what work on inputs that are read
/// once, and answers that are written once, can reach.
double MeasureStreamBandwidth(std::size_t bytes);

}  // namespace ttr
