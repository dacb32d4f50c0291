// Outputs of singular memories, by solutions of least norm. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_EXACT_MINIMUM_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_EXACT_MINIMUM_NORM_INL_H_
#undef TTR_LEAST_SQUARES_EXACT_MINIMUM_NORM_INL_H_
#else
#define TTR_LEAST_SQUARES_EXACT_MINIMUM_NORM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/exact/minimum_norm_memory.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Token by token, in double: D^3 ten times for each. Queries are those gathered in s.q.
template <class T>
class MinimumNormReader {
 public:
  MinimumNormReader(const Options& options, const Memory& memory, const Scratch<T>& scratch)
      : memory_(memory), s_(scratch), sums_(memory, options, scratch) {}

  /// Outputs of the memory as it is.
  void ReadMemory(std::int64_t begin, std::int64_t reading) {
    for (std::int64_t i = 0; i < reading; ++i) Read(begin + i, i);
  }

  /// Outputs of the first `reading` tokens of a chunk, each of which sees one of its tokens more.
  void ReadChunk(const Chunk& chunk, std::int64_t begin, std::int64_t reading) {
    for (std::int64_t i = 0; i < chunk.tokens; ++i) {
      sums_.Add(s_.k.Row(i), s_.v.Row(i));
      if (i < reading) Read(begin + i, i);
    }
  }

 private:
  /// The queries of `token`, which are the i-th of those gathered.
  void Read(std::int64_t token, std::int64_t i) {
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      const std::int64_t j = i * memory_.queries + r;
      if (sums_.Read(s_.q.Row(j), s_.y.Row(j))) MarkRegularised(memory_, token, r);
      if (!memory_.Stores(token)) continue;
      sn::StoreRow(s_.y.Row(j), token, 0, memory_.value_dim(), OutputRows(memory_, r));
    }
  }

  const Memory& memory_;
  const Scratch<T>& s_;
  MinimumNormMemory<T> sums_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_EXACT_MINIMUM_NORM_INL_H_
