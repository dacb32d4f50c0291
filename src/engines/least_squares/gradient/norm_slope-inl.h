// The path of gradients through |A|_F, where the ridge or the size of steps is relative to it.
// Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_NORM_SLOPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_NORM_SLOPE_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_NORM_SLOPE_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_NORM_SLOPE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/gradient/sides-inl.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// s_t = dL/d|A_t|_F adds s_t A_t / |A_t|_F to dL/dA_t. A ridge R = |A|_F diag(ridge) has
/// s_t = ridge . diag(dL/dR_t). Within a stretch, A_t = c_t (A_0 + sum_{j <= t} w_j / c_j k_j
/// k_j^T), so that all of it is
///
///     alpha A_0 + sum_j S_j w_j / c_j k_j k_j^T
///
/// with S_j the sum over t >= j of c_t^2 s_t / |A_t|_F and of the later stretches' alpha, alpha =
/// S_1. The first term waits for what A_0 is made of; A_0 k_i, which a token needs of it, is saved
/// on the way forward.
template <class T>
class NormSlope {
 public:
  NormSlope(const GradientMemory& memory, const GradientScratch<T>& scratch)
      : m_(memory), memory_(memory.memory), s_(scratch), c_(scratch.chunk) {}

  /// Forward, A in the scratch as the stretch begins: |A_t|_F of its reading tokens; A_0 k_i.
  void Find(const Stretch& stretch) const {
    double squares = CopyMemory(s_.f);
    if (stretch.tokens == 0) {
      std::fill(s_.solutions.norm + stretch.begin,
                s_.solutions.norm + stretch.begin + stretch.reading, std::sqrt(squares));
      return;
    }
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    const Block<T>& keys = s_.backward.dk;
    const Block<T> products = s_.solutions.ak.Rows(stretch.first);
    const Block<T>& gram = s_.backward.kz;
    LoadKeys(stretch, keys);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(keys), s_.f, unit,
                                 ln::Whole{c_.keys_unit, c_.keys_unit}, products);
    Gram(keys, unit, gram);
    FindScales(memory_, stretch, s_);
    for (std::int64_t t = 0; t < stretch.tokens; ++t) {
      if (s_.weight[t] != 0) {
        double sum = 2 * Dot(keys.Row(t), products.Row(t));
        for (std::int64_t j = 0; j <= t; ++j) {
          const double product = static_cast<double>(gram.Row(t)[j]);
          sum += (j < t ? 2 : 1) * s_.weight[j] * product * product;
        }
        squares += s_.weight[t] * sum;
      }
      if (t < stretch.reading) s_.solutions.norm[stretch.begin + t] = s_.c[t] * std::sqrt(squares);
    }
  }

  /// Backward: s_t of the stretch's j-th reading token.
  void Set(const Stretch& stretch, std::int64_t j, double s) const {
    const double c = stretch.tokens == 0 ? 1 : s_.c[j];
    const double norm = s_.solutions.norm[stretch.begin + j];
    s_.sums[j] = norm == 0 ? 0 : c * c * s / norm;
  }

  /// Adds the shares of all s_t, with the later stretches' alpha, to dK and to F + F^T.
  void Add(const Stretch& stretch, const Block<T>& keys, const Block<T>& dk, const Block<T>& f) {
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    for (std::int64_t j = std::max(stretch.tokens, stretch.reading) - 1; j >= 0; --j) {
      if (j < stretch.reading) alpha_ += s_.sums[j];
      s_.sums[j] = alpha_;
    }
    if (unit == 0) return;
    const Block<T>& gram = s_.backward.kz;
    const Block<T>& scaled = s_.rows;
    Gram(keys, unit, gram);
    for (std::int64_t i = 0; i < stretch.tokens; ++i) {
      for (std::int64_t j = 0; j < stretch.tokens; ++j) {
        gram.Row(i)[j] *= static_cast<T>(2 * s_.sums[std::max(i, j)] * s_.weight[j]);
      }
      const T before = static_cast<T>(2 * s_.sums[i]);
      const T own = static_cast<T>(2 * s_.sums[i] * s_.weight[i]);
      const T* const product = s_.solutions.ak.Row(stretch.first + i);
      for (std::int64_t v = 0; v < c_.keys_unit; ++v) {
        dk.Row(i)[v] += before * product[v];
        scaled.Row(i)[v] = own * keys.Row(i)[v];
      }
    }
    ln::Multiply<ln::Into::kAdd>(Left<T>::Of(gram), keys, unit, ln::Whole{c_.keys_unit, unit}, dk);
    ln::Multiply<ln::Into::kAdd>(Left<T>::Transposed(scaled), keys, c_.keys_unit,
                                 ln::Whole{c_.keys_unit, stretch.tokens}, f);
  }

  void Fade(double g) { alpha_ *= g * g; }

  /// The gradient of the A that the first stretch starts from is alpha A more.
  double alpha() const { return alpha_; }

 private:
  /// All of A. Returns the sum of its squares.
  double CopyMemory(const Block<T>& a) const {
    double squares = 0;
    for (std::int64_t i = 0; i < c_.keys_unit; ++i) {
      const T* const row = c_.a.Row(i);
      a.Row(i)[i] = row[i];
      for (std::int64_t j = i + 1; j < c_.keys_unit; ++j) a.Row(i)[j] = a.Row(j)[i] = row[j];
      const double own = static_cast<double>(row[i]);
      squares += own * own + 2 * sn::WideDot(c_.keys_unit - i - 1, row + i + 1, row + i + 1);
    }
    return squares;
  }

  /// Gram matrix of rows, in columns that it makes of them.
  void Gram(const Block<T>& rows, std::int64_t unit, const Block<T>& gram) const {
    ln::Transpose(rows, unit, c_.keys_unit, s_.backward.xt);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(rows), s_.backward.xt, unit,
                                 ln::Whole{unit, c_.keys_unit}, gram);
  }

  /// Keys as they are.
  void LoadKeys(const Stretch& stretch, const Block<T>& keys) const {
    for (std::int64_t i = 0; i < RoundUp(stretch.tokens, kUnit); ++i) {
      LoadScaled(memory_.k, stretch.first + i, memory_.key_dim(),
                 Counts(m_, stretch, i) ? T(1) : T(0), keys.Row(i), c_.keys_unit);
    }
  }

  double Dot(const T* a, const T* b) const { return sn::WideDot(memory_.key_dim(), a, b); }

  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  double alpha_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_NORM_SLOPE_INL_H_
