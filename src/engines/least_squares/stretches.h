/// Several threads for one memory: each answers a stretch of its sequence.
///
/// What a thread needs is the memory as its stretch begins, and to write is a fraction of what it
/// is to answer. So every thread writes all tokens before its stretch, and the later a stretch the
/// shorter it is. With f = what writing costs of both, P threads take 1 / P of the time times
/// 1 + (P - 1) f / 2 or so.
///
/// Answers do not depend on the number of threads, to the bit: chunks are those of one thread, and
/// what a chunk adds to the memory is the same whoever answers it.
#pragma once

#include <cstddef>

#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/work.h"

namespace ttr::least_squares {

using RunMemory = void (*)(const Options&, const Memory&, const Sizes&, std::byte*);

/// Into how many stretches the sequences of a call are cut; 1: there are memories enough.
std::int64_t StretchesOf(const Work& work, int threads);

/// Bytes that one of them takes besides the scratch of its worker.
std::size_t StretchBytes(const Sizes& sizes);

/// `start`: of every worker `bytes`, and StretchBytes of every stretch of every memory.
void RunStretches(const Options& options, const Work& work, std::int64_t stretches, int workers,
                  Executor& executor, std::byte* start, std::size_t bytes, RunMemory run);

}  // namespace ttr::least_squares
