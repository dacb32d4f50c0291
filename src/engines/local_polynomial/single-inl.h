// The fit of a query that is alone, as in decoding: its system as a product over pairs. Compiled
// once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_SINGLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_SINGLE_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_SINGLE_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_SINGLE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/covariance-inl.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/panels-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// What Fit sums for query 0, which would have one lane of its vectors: sum_i p_i f_i f_i^T by
/// register tiles, over the pairs that have a share. It uses the room of the dual, which is not
/// taken at the same time.
template <class T>
class SingleFit {
 public:
  SingleFit(const Monomials& monomials, const FitScratch<T>& fit)
      : f_(monomials), fit_(fit), s_(fit.dual) {}

  /// Keys are counted from `centre`, [channel].
  void Start(const T* centre) const {
    std::copy_n(centre, f_.channels, s_.origin);
    std::fill(s_.mean, s_.mean + Wide(), T(0));
    linalg::ZeroRows(s_.products, 0, Wide(), Wide());
  }

  void Add(const Block<T>& k, const Block<T>& p, std::int64_t count) const {
    std::int64_t rows = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const T share = p.Row(i)[0];
      if (share == 0) continue;
      Expand(k.Row(i), s_.x.Row(rows));
      AddToMean(share, s_.x.Row(rows), s_.xt.Row(rows));
      if (++rows < Wide()) continue;
      AddProducts(rows);
      rows = 0;
    }
    if (rows > 0) AddProducts(rows);
  }

  /// Puts the sums where Fit solves.
  void Finish() const {
    constexpr std::int64_t kRows = linalg::kPanelRows;
    const ln::Panels<T> h{fit_.h, linalg::PanelsOf(f_.count)};
    for (std::int64_t r = 0; r < f_.count; ++r) {
      fit_.means[r * Lanes()] = s_.mean[r];
      for (std::int64_t c = 0; c <= r; ++c) {
        T* const square = h.At(r / kRows, c / kRows);
        square[(c % kRows * kRows + r % kRows) * Lanes()] = s_.products.Row(c)[r];
      }
    }
  }

  /// e[pair][query] = p (1 - (f - mean) . u); of other queries 0.
  void Weigh(const Block<T>& k, const Block<T>& p, std::int64_t count, const Block<T>& e) const {
    T* const u = s_.mean;
    T one = 1;
    std::fill(u, u + Wide(), T(0));
    for (std::int64_t j = 0; j < f_.count; ++j) {
      u[j] = fit_.sides[j * Lanes()];
      one += fit_.means[j * Lanes()] * u[j];
    }
    linalg::ZeroRows(e, 0, linalg::RoundUp(count, kUnit), kQueries);
    for (std::int64_t i = 0; i < count; ++i) {
      const T share = p.Row(i)[0];
      if (share == 0) continue;
      Expand(k.Row(i), s_.heaviest);
      e.Row(i)[0] = share * (one - sn::Dot(Wide(), static_cast<const T*>(s_.heaviest), u));
    }
  }

 private:
  static std::int64_t Lanes() { return ln::SystemsAtOnce<T>(); }
  std::int64_t Wide() const { return linalg::RoundUp(f_.count, kUnit); }

  void Expand(const T* k, T* row) const {
    ExpandRow<T>(f_, k, s_.origin, row);
    std::fill(row + f_.count, row + Wide(), T(0));
  }

  /// weighed = share row.
  void AddToMean(T share, const T* HWY_RESTRICT row, T* HWY_RESTRICT weighed) const {
    T* HWY_RESTRICT mean = s_.mean;
    for (std::int64_t j = 0; j < Wide(); ++j) {
      weighed[j] = share * row[j];
      mean[j] += weighed[j];
    }
  }

  /// The upper triangle, of rows of s.x.
  void AddProducts(std::int64_t rows) const {
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.xt), s_.x,
                                 linalg::RoundUp(f_.count, kStrip), ln::UpperResult{Wide(), rows},
                                 s_.products);
  }

  const Monomials& f_;
  const FitScratch<T>& fit_;
  const DualScratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_SINGLE_INL_H_
