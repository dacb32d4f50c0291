// Tokens that each have a system of their own, read in blocks. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_EXACT_OWN_SYSTEMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_EXACT_OWN_SYSTEMS_INL_H_
#undef TTR_LEAST_SQUARES_EXACT_OWN_SYSTEMS_INL_H_
#else
#define TTR_LEAST_SQUARES_EXACT_OWN_SYSTEMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/exact/interleaved_systems-inl.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Writes and reads the tokens of a sequence: all systems of a block are solved for x_t first, then
/// the outputs y_t = B_t^T x_t come from products of whole chunks.
template <class T>
class OwnSystems {
 public:
  OwnSystems(const Options& options, const Memory& memory, const Scratch<T>& scratch,
             const RunningSums<T>& sums, const InterleavedScratch<T>& block)
      : options_(options),
        memory_(memory),
        s_(scratch),
        sums_(sums),
        block_(block),
        systems_(memory.ridge, options.ridge == Ridge::kRelative, memory.key_dim(), block) {}

  /// The block of tokens that begins with t; how many.
  std::int64_t Next(std::int64_t t) {
    const std::int64_t tokens =
        std::min(InterleavedSystems<T>::BlockTokens(memory_.tokens), memory_.tokens - t);
    const std::int64_t begin = t + (options_.read_before ? 1 : 0);  // of the outputs
    const std::int64_t reading = std::min(begin + tokens, memory_.tokens) - begin;
    Gather(t, tokens, begin, reading);
    systems_.Solve(s_.a, tokens, memory_.queries);
    for (std::int64_t i = 0; i < reading; ++i) {
      if (!block_.regularised[i]) continue;
      for (std::int64_t r = 0; r < memory_.queries; ++r) MarkRegularised(memory_, begin + i, r);
    }
    for (std::int64_t i = 0; i < tokens;) {
      i += Read(t + i, tokens - i, begin + i, std::max<std::int64_t>(reading - i, 0), i);
    }
    return tokens;
  }

 private:
  /// Keys, decays and right-hand sides of a block.
  void Gather(std::int64_t t, std::int64_t tokens, std::int64_t begin, std::int64_t reading) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      block_.decay[i] = static_cast<T>(std::exp(LogDecay(memory_, t + i)));
      LoadScaled(memory_.k, t + i, memory_.key_dim(),
                 static_cast<T>(std::sqrt(ImportanceOf(memory_, t + i))), block_.keys.Row(i),
                 block_.keys_unit);
    }
    Scratch<T> queries = s_;
    queries.q = block_.right;
    GatherQueries(options_, memory_, begin, reading, queries);
    linalg::ZeroRows(block_.right, reading * memory_.queries, tokens * memory_.queries,
                     block_.right.stride);
  }

  /// The outputs of a chunk from its solutions, which begin with those of the block's token
  /// `solved`; then writes it. Returns how many tokens it has.
  std::int64_t Read(std::int64_t t, std::int64_t most, std::int64_t begin, std::int64_t outputs,
                    std::int64_t solved) {
    const Chunk chunk = GatherChunk(memory_, t, std::min(most, s_.chunk), s_);
    sums_.Fade(chunk.decay);
    const std::int64_t reading = std::min(outputs, chunk.tokens);
    if (reading > 0) {
      const Block<T> x = block_.right.Rows(solved * memory_.queries);
      double log_c = 0;
      for (std::int64_t i = 1; i < reading; ++i) {
        log_c += LogDecay(memory_, t + i);
        if (log_c == 0) continue;
        const T c = static_cast<T>(std::exp(log_c));
        for (std::int64_t r = 0; r < memory_.queries; ++r) {
          sn::Multiply(x.Row(i * memory_.queries + r), memory_.key_dim(), c);
        }
      }
      const Block<T>& kt = s_.prefix.keys;
      ln::Transpose(s_.k, RoundUp(chunk.tokens, kUnit), s_.keys_unit, kt);
      sums_.Read(kt, x, chunk.tokens, RoundUp(reading * memory_.queries, kUnit),
                 {s_.prefix.tokens.u.data, s_.chunk});
      ScatterOutputs(memory_, begin, reading, s_);
    }
    sums_.Write(chunk);
    return chunk.tokens;
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const RunningSums<T>& sums_;
  const InterleavedScratch<T>& block_;
  InterleavedSystems<T> systems_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_EXACT_OWN_SYSTEMS_INL_H_
