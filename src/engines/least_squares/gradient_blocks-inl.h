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
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The diagonal blocks of dL/dA + its transpose for every answering token, in the scale of its
/// part: row i of a token's, as many numbers as a block has channels, belongs to channel i.
template <class T>
class GradientBlocks {
 public:
  using Block = ln::Block<T>;

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
  void Subtract(std::int64_t token, double factor, const T* HWY_RESTRICT f,
                const T* HWY_RESTRICT e) const {
    T* HWY_RESTRICT const to = Of(token);
    const T by = static_cast<T>(factor);
    if (n_ == 1) {
      for (std::int64_t i = 0; i < dim_; ++i) to[i] -= 2 * by * f[i] * e[i];
      return;
    }
    ForRows([&](std::int64_t i, std::int64_t begin, std::int64_t count) {
      const T by_f = by * f[i];
      const T by_e = by * e[i];
      T* HWY_RESTRICT const row = to + i * n_;
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
      T* HWY_RESTRICT const sum = Of(part.begin + j);
      const T* HWY_RESTRICT const later = sum + size_;
      for (std::int64_t i = 0; i < size_ && j + 1 < part.reading; ++i) sum[i] += later[i];
      if (j < part.tokens) AddProduct(sum, keys.Row(j), dk.Row(j));
    }
    const T* const sum = Of(part.begin);
    ForRows([&](std::int64_t i, std::int64_t begin, std::int64_t count) {
      for (std::int64_t c = 0; c < count; ++c) f.Row(i)[begin + c] += sum[i * n_ + c];
    });
  }

 private:
  T* Of(std::int64_t token) const { return blocks_ + token * size_; }

  void AddProduct(const T* HWY_RESTRICT blocks, const T* HWY_RESTRICT x, T* HWY_RESTRICT to) const {
    if (n_ == 1) {
      for (std::int64_t i = 0; i < dim_; ++i) to[i] += blocks[i] * x[i];
      return;
    }
    ForRows([&](std::int64_t i, std::int64_t begin, std::int64_t count) {
      for (std::int64_t c = 0; c < count; ++c) to[begin + c] += x[i] * blocks[i * n_ + c];
    });
  }

  /// Calls each(channel, first channel of its block, channels of that).
  template <class Each>
  void ForRows(const Each& each) const {
    for (std::int64_t begin = 0; begin < dim_; begin += n_) {
      const std::int64_t count = std::min(n_, dim_ - begin);
      for (std::int64_t i = begin; i < begin + count; ++i) each(i, begin, count);
    }
  }

  std::int64_t dim_, n_, size_;
  T* blocks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_BLOCKS_INL_H_
