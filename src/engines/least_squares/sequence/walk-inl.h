// One memory taken through its sequence, chunk by chunk. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_SEQUENCE_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_SEQUENCE_WALK_INL_H_
#undef TTR_LEAST_SQUARES_SEQUENCE_WALK_INL_H_
#else
#define TTR_LEAST_SQUARES_SEQUENCE_WALK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The outputs that read a chunk of `tokens`, which begin with that of token `begin`.
struct Reads {
  std::int64_t begin, count;
};

/// A Solver (exact/solver-inl.h, iterative/solver-inl.h) gives outputs; what is written, and when,
/// is the same for all of them:
///
///     BlockTokens()      tokens of a block that NextBlock(t) writes and reads; 1: there are none
///     MostTokens()       of a chunk that is read
///     ReadMemory(b, e)   outputs of tokens b .. e by the memory as it is
///     ReadChunk(c, r)    outputs of a chunk of several tokens, not yet written. How many tokens of
///                        it have theirs; 0: its first token is to be done alone
///     TakeFirst(c, r)    shortens such a chunk to one token or a few, writes and reads these
template <class T, class Solver>
class Walk {
 public:
  Walk(const Options& options, const Memory& memory, const Scratch<T>& scratch,
       const RunningSums<T>& sums, Solver& solver)
      : options_(options), memory_(memory), s_(scratch), sums_(sums), solver_(solver) {}

  void Run() {
    Segment whole = WholeOf(memory_);
    Segment& segment = memory_.segment != nullptr ? *memory_.segment : whole;
    // Writes end with blocks, too: sums of other chunks would have other bits.
    const std::int64_t block = solver_.BlockTokens();
    const bool reads = sums_.Begin(options_, block, segment);
    if (reads && options_.read_before && segment.begin == 0) solver_.ReadMemory(0, 1);
    std::int64_t t = segment.begin;
    while (t < segment.end) {
      if (reads && block > 1) {
        t += solver_.NextBlock(t);
        continue;
      }
      std::int64_t most = reads ? solver_.MostTokens() : s_.chunk;
      if (block > 1) most = std::min(most, block - t % block);
      const std::int64_t done = Next(t, most, reads, segment);
      if (done == 0) return;
      t += done;
    }
    sums_.End(t, segment);
    if (segment.reads_last) solver_.ReadMemory(segment.first, segment.end);
  }

 private:
  /// Tokens from t on, `most` at the most; how many. 0: that would write more than the segment.
  std::int64_t Next(std::int64_t t, std::int64_t most, bool reads, Segment& segment) {
    const Fetch fetch = reads && most > 1 ? Solver::kFetch : Fetch::kNow;
    const Chunk chunk = GatherChunk(memory_, t, most, s_, fetch);
    if (!sums_.Enter(chunk, segment)) return 0;
    sums_.Fade(chunk.decay);
    const Reads read = ReadsOf(chunk);
    if (!reads || read.count == 0) {
      sums_.Write(chunk);
    } else if (chunk.tokens == 1) {
      WriteAndRead(chunk, read);
    } else {
      const std::int64_t right = solver_.ReadChunk(chunk, read, fetch);
      if (right == chunk.tokens) {
        sums_.Write(chunk);
      } else {
        // What stays written is always the chunk as a whole: a thread that only writes would not
        // know of the parts, and sums of parts have other bits.
        sums_.Save(s_.saved);
        RunInParts(chunk, right);
        sums_.Load(s_.saved);
        sums_.Write(GatherChunk(memory_, t, most, s_));
      }
    }
    return chunk.tokens;
  }

  /// Reads, and writes, a chunk of which ReadChunk() did only `right` tokens.
  void RunInParts(Chunk part, std::int64_t right) {
    const std::int64_t end = part.first + part.tokens;
    solver_.BeginParts();
    for (;;) {
      if (part.tokens == 1) {
        WriteAndRead(part, ReadsOf(part));
      } else if (right == 0) {
        solver_.TakeFirst(part, ReadsOf(part).begin);
      } else {
        sums_.Shorten(part, right);
        sums_.Write(part);
      }
      const std::int64_t t = part.first + part.tokens;
      if (t == end) return;
      part = GatherChunk(memory_, t, end - t, s_);
      sums_.Fade(part.decay);
      if (part.tokens > 1) right = solver_.ReadChunk(part, ReadsOf(part), Fetch::kNow);
    }
  }

  Reads ReadsOf(const Chunk& chunk) const {
    const std::int64_t begin = chunk.first + (options_.read_before ? 1 : 0);
    return {begin, std::min(begin + chunk.tokens, memory_.tokens) - begin};
  }

  void WriteAndRead(const Chunk& token, const Reads& read) {
    sums_.Write(token);
    solver_.ReadMemory(read.begin, read.begin + read.count);
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const RunningSums<T>& sums_;
  Solver& solver_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_SEQUENCE_WALK_INL_H_
