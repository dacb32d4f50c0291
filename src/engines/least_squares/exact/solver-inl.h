// Exact outputs: one factor for the tokens of a chunk. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_EXACT_SOLVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_EXACT_SOLVER_INL_H_
#undef TTR_LEAST_SQUARES_EXACT_SOLVER_INL_H_
#else
#define TTR_LEAST_SQUARES_EXACT_SOLVER_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <optional>

#include "hwy/highway.h"
#include "src/engines/least_squares/exact/interleaved_systems.h"
#include "src/engines/least_squares/exact/minimum_norm-inl.h"
#include "src/engines/least_squares/exact/own_systems-inl.h"
#include "src/engines/least_squares/exact/prefixes-inl.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/engines/least_squares/sequence/walk-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The Solver of Walk where systems are solved: prefixes of a chunk from one factor
/// (prefixes-inl.h), blocks of tokens with systems of their own (own_systems-inl.h), and token by
/// token where a memory is singular.
template <class T>
class ExactSolver {
 public:
  static constexpr Fetch kFetch = Fetch::kLater;

  ExactSolver(const Options& options, const Memory& memory, const Sizes& sizes,
              const Scratch<T>& scratch, const RunningSums<T>& sums, ScratchLayout& layout)
      : options_(options),
        memory_(memory),
        s_(scratch),
        sums_(sums),
        prefixes_(options, memory, scratch, sums, &prefetcher_) {
    if (HasOwnSystems(options, sizes)) blocks_.emplace(sizes, sizes.queries, layout);
  }
  ExactSolver(const ExactSolver&) = delete;
  ExactSolver& operator=(const ExactSolver&) = delete;

  std::int64_t BlockTokens() const {
    const std::int64_t tokens = memory_.tokens;
    const bool blocks =
        memory_.queries > 0 && options_.own_systems() && InterleavedSystems<T>::Pays(tokens);
    return blocks ? InterleavedSystems<T>::BlockTokens(tokens) : 1;
  }
  std::int64_t MostTokens() const { return options_.own_systems() ? 1 : s_.chunk; }

  std::int64_t NextBlock(std::int64_t t) {
    return OwnSystems<T>(options_, memory_, s_, sums_, *blocks_).Next(t);
  }

  /// x = (A + R)^-1 q, y = B^T x.
  void ReadMemory(std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; t += s_.chunk) {
      const std::int64_t reading = std::min(s_.chunk, end - t);
      const std::int64_t rows = reading * memory_.queries;
      GatherQueries(options_, memory_, t, reading, s_);
      if (!prefixes_.SolveColumns(rows)) {
        MinimumNormReader<T>(options_, memory_, s_).ReadMemory(t, reading);
        continue;
      }
      ln::Multiply<ln::Into::kSet>(Left<T>::Transposed(prefixes_.columns()), s_.b,
                                   RoundUp(rows, kUnit), ln::Whole{s_.values_unit, s_.keys_unit},
                                   s_.y);
      ScatterOutputs(memory_, t, reading, s_);
    }
  }

  std::int64_t ReadChunk(const Chunk& chunk, const Reads& read, Fetch fetch) {
    if (fetch == Fetch::kLater) {
      prefetcher_ =
          PrefetchChunk(memory_, s_, read.begin + chunk.tokens, memory_.y, memory_.y_head_stride);
    }
    GatherQueries(options_, memory_, read.begin, read.count, s_, fetch);
    const std::int64_t rows = read.count * memory_.queries;
    const std::int64_t right = prefixes_.Begin(chunk.tokens, rows, true);
    if (right == 0) return 0;  // the memory is singular as the chunk begins
    single_tokens_ = 1;
    prefixes_.Outputs();
    for (std::int64_t j = 0; j < rows && prefixes_.empty(); ++j) {
      const std::int64_t seen = j / memory_.queries + 1;
      if (seen > std::min(right, memory_.key_dim() - 1)) break;
      MarkRegularised(memory_, read.begin + seen - 1, j % memory_.queries);
    }
    ScatterOutputs(memory_, read.begin, std::min(read.count, right), s_);
    return right;
  }

  void BeginParts() { single_tokens_ = 1; }

  /// Solves with least norm, for more tokens each time before the rest is tried again.
  void TakeFirst(Chunk& part, std::int64_t begin) {
    single_tokens_ = std::min<std::int64_t>(2 * single_tokens_, kUnit);
    sums_.Shorten(part, std::min(part.tokens, single_tokens_));
    const std::int64_t reading = std::min(part.tokens, memory_.tokens - begin);
    MinimumNormReader<T>(options_, memory_, s_).ReadChunk(part, begin, reading);
    sums_.Write(part);
  }

 private:
  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const RunningSums<T>& sums_;
  simd::Prefetcher prefetcher_{0};
  Prefixes<T> prefixes_;
  std::optional<InterleavedScratch<T>> blocks_;
  std::int64_t single_tokens_ = 1;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_EXACT_SOLVER_INL_H_
