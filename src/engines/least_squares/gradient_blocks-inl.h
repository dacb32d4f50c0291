// What preconditioners of blocks add to dL/dA. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_BLOCKS_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_BLOCKS_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/simd/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The diagonal blocks of dL/dA + its transpose for every answering token, in the scale of its
/// part: row i of a token's, as many numbers as a block has channels, belongs to channel i.
template <class T>
class GradientBlocks {
 public:
  using Block = sn::Block<T>;

  GradientBlocks(const Options& options, const Memory& memory, const GradientScratch<T>& scratch)
      : dim_(memory.key_dim),
        n_(options.descends() ? scratch.iteration.block : 0),
        size_(scratch.chunk.keys_unit * n_),
        blocks_(scratch.blocks) {}

  /// Are there blocks? Channels of one.
  bool any() const { return n_ > 0; }
  std::int64_t channels() const { return n_; }

  void Clear(std::int64_t token) const { std::fill(Of(token), Of(token) + size_, T(0)); }

  /// The blocks of -factor f e^T, and of its transpose.
  void Subtract(std::int64_t token, double factor, const T* f, const T* e) const {
    ForRows(Of(token), [&](std::int64_t i, std::int64_t begin, std::int64_t count, T* row) {
      const T by_f = static_cast<T>(factor) * f[i];
      const T by_e = static_cast<T>(factor) * e[i];
      for (std::int64_t c = 0; c < count; ++c) row[c] -= by_f * e[begin + c] + by_e * f[begin + c];
    });
  }

  /// dL/dA_ii.
  double Diagonal(std::int64_t token, std::int64_t i) const {
    return any() ? static_cast<double>(Of(token)[i * n_ + i % n_]) / 2 : 0;
  }

  /// All of a part's to its keys, each token's to the keys that it sees, and to F + F^T. Overwrites
  /// them by their sums.
  void Add(const Part& part, const Block& keys, const Block& dk, const Block& f) const {
    for (std::int64_t j = part.reading - 1; j >= 0; --j) {
      T* const sum = Of(part.begin + j);
      for (std::int64_t i = 0; i < size_ && j + 1 < part.reading; ++i) sum[i] += sum[size_ + i];
      if (j >= part.tokens) continue;
      ForRows(sum, [&](std::int64_t i, std::int64_t begin, std::int64_t count, const T* row) {
        const T key = keys.Row(j)[i];
        T* const to = dk.Row(j) + begin;
        for (std::int64_t c = 0; c < count; ++c) to[c] += key * row[c];
      });
    }
    ForRows(Of(part.begin),
            [&](std::int64_t i, std::int64_t begin, std::int64_t count, const T* row) {
              T* const to = f.Row(i) + begin;
              for (std::int64_t c = 0; c < count; ++c) to[c] += row[c];
            });
  }

 private:
  T* Of(std::int64_t token) const { return blocks_ + token * size_; }

  /// Calls each(channel, first channel of its block, channels of that, row).
  template <class Each>
  void ForRows(T* rows, const Each& each) const {
    for (std::int64_t i = 0; i < dim_; ++i) {
      const std::int64_t begin = i / n_ * n_;
      each(i, begin, std::min(n_, dim_ - begin), rows + i * n_);
    }
  }

  std::int64_t dim_, n_, size_;
  T* blocks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_BLOCKS_INL_H_
