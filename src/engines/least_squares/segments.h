/// Several threads for one memory: each gives the outputs of a segment of its sequence.
///
/// A thread needs the memory as its segment begins, and writing costs a fraction of what outputs
/// cost. So every thread writes all tokens before its segment, and later segments are shorter. With
/// f = what writing costs of both, P threads take 1 / P of the time times 1 + (P - 1) f / 2 or so.
///
/// Outputs do not depend on the number of threads, to the bit: chunks are those of one thread, and
/// what a chunk adds to the memory is the same whichever thread adds it.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/least_squares/work.h"

namespace ttr::least_squares {

/// What takes a memory through its sequence, and the scratch that it needs.
struct MemoryRunner {
  void (*run)(const Options&, const Memory&, const Sizes&, std::byte* scratch);
  std::size_t bytes;
};

/// Into how many segments the sequences of a call are cut; 1: there are memories enough.
std::int64_t SegmentsOf(const Work& work, int threads);

/// Bytes that one of them takes besides the scratch of its worker.
std::size_t SegmentBytes(const Sizes& sizes);

/// As many workers as segments of all memories; `scratch` holds the runner's bytes and SegmentBytes
/// for each (common::WorkerScratch).
void RunSegments(const Options& options, const Work& work, std::int64_t segments,
                 Executor& executor, std::span<std::byte> scratch, const MemoryRunner& runner);

}  // namespace ttr::least_squares
