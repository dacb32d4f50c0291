// Gradients by shares and monomials, pair by pair, every query in a lane. Compiled once for every
// target.

#if defined(TTR_LOCAL_POLYNOMIAL_SLOPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_SLOPES_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_SLOPES_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_SLOPES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/pairs-inl.h"
#include "src/engines/local_polynomial/fit-inl.h"
#include "src/engines/local_polynomial/gradient.h"
#include "src/simd/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;

/// With a_i = dy . v_i, h_i = (f_i - f_bar) . s, e_i = p_i (1 - (f_i - f_bar) . u) and the residual
/// r_i = a_i - a_bar - h_i of fitting a,
///
///     by log (w_i s_i)    ds_i = e_i r_i + ridge p_i u . s
///     by f_i              df_i = -(p_i r_i u + e_i s)
///
/// and of a singular system, n = f_bar less its part that keys span and s2 = Sigma^+ s, by f_i
/// -p_i (f_i - f_bar) . s2 n, too.
template <class T>
class Slopes {
  using D = ln::SystemTag<T>;
  using V = hn::Vec<D>;

 public:
  Slopes(const Monomials& monomials, const FitRecord<T>& record, const GradientScratch<T>& scratch)
      : f_(monomials), r_(record), one_(scratch.fit.one), adjoint_(scratch.adjoint) {
    any_singular_ = std::any_of(r_.singular, r_.singular + kQueries, [](T x) { return x != 0; });
    const std::int64_t wide = linalg::RoundUp(f_.count, kUnit);
    std::fill(adjoint_, adjoint_ + wide * Lanes(), T(0));
  }

  static std::int64_t Lanes() { return ln::SystemsAtOnce<T>(); }
  static std::int64_t Vectors() { return kQueries / Lanes(); }

  /// A pair for a vector of queries: `share`, and what it is of pairs that take part; a.
  struct Pair {
    V share, active, a;
  };
  struct Gradient {
    V ds, e;
  };

  /// Leaves the gradient by k - q of every query in Adjoint(c), where ADJOINT.
  template <bool ADJOINT>
  HWY_INLINE Gradient Of(std::int64_t vector, const T* k, const Pair& pair) const {
    const D d;
    const std::int64_t lanes = Lanes(), wide = linalg::RoundUp(f_.count, linalg::kPanelRows);
    const std::int64_t at = vector * wide * lanes;
    const auto unseen = hn::Eq(pair.share, hn::Zero(d));
    ExpandSeen(vector, k, unseen);
    V by_u = hn::Zero(d), by_s = hn::Zero(d), by_twice = hn::Zero(d);
    for (std::int64_t j = 0; j < f_.count; ++j) {
      const std::int64_t place = at + j * lanes;
      const V f = hn::Sub(hn::Load(d, one_ + j * lanes), hn::Load(d, r_.means + place));
      by_u = hn::MulAdd(f, hn::Load(d, r_.u + place), by_u);
      by_s = hn::MulAdd(f, hn::Load(d, r_.s + place), by_s);
      if (any_singular_) by_twice = hn::MulAdd(f, hn::Load(d, r_.twice + place), by_twice);
    }
    const V total = hn::Load(d, r_.totals + vector * lanes);
    const V dot = hn::Load(d, r_.dots + vector * lanes);
    const V residual = hn::Sub(hn::Sub(pair.a, total), by_s);
    const V factor = hn::Sub(hn::Set(d, T(1)), by_u);
    const V slope = hn::MulAdd(factor, residual, dot);
    const V ds = hn::IfThenZeroElse(unseen, hn::Mul(pair.share, slope));
    const auto idle = hn::Eq(pair.active, hn::Zero(d));
    const V e = hn::IfThenZeroElse(idle, hn::Mul(pair.active, factor));
    if constexpr (ADJOINT) {
      const V pr = hn::IfThenZeroElse(idle, hn::Mul(pair.active, residual));
      for (std::int64_t j = 0; j < f_.count; ++j) {
        const std::int64_t place = at + j * lanes;
        const V by =
            hn::MulAdd(pr, hn::Load(d, r_.u + place), hn::Mul(e, hn::Load(d, r_.s + place)));
        hn::Store(hn::Neg(by), d, adjoint_ + j * lanes);
      }
      if (any_singular_) AddNormals(at, hn::IfThenZeroElse(idle, hn::Mul(pair.active, by_twice)));
      GoThroughMonomials();
    }
    return {ds, e};
  }

  V Adjoint(std::int64_t channel) const { return hn::Load(D(), adjoint_ + channel * Lanes()); }

  /// Adds the sums over lanes to a row of whole units.
  HWY_INLINE void AddAdjoint(T* row) const {
    const D d;
    constexpr std::int64_t kCount = hn::MaxLanes(D());
    for (std::int64_t c = 0; c < f_.channels; c += kCount) {
      const V sums = sn::SumVectors<kCount>(d, static_cast<const T*>(adjoint_ + c * kCount));
      hn::Store(hn::Add(hn::Load(d, row + c), sums), d, row + c);
    }
  }

 private:
  template <class M>
  HWY_INLINE void ExpandSeen(std::int64_t vector, const T* k, M unseen) const {
    const D d;
    const std::int64_t lanes = Lanes();
    const T* const centre = r_.centres + vector * f_.channels * lanes;
    for (std::int64_t c = 0; c < f_.channels; ++c) {
      const V x = hn::Sub(hn::Set(d, k[c]), hn::Load(d, centre + c * lanes));
      hn::Store(hn::IfThenZeroElse(unseen, x), d, one_ + c * lanes);
    }
    for (std::int64_t j = f_.channels; j < f_.count; ++j) {
      const V before = hn::Load(d, one_ + f_.before[j] * lanes);
      hn::Store(hn::Mul(before, hn::Load(d, one_ + f_.channel[j] * lanes)), d, one_ + j * lanes);
    }
  }

  void AddNormals(std::int64_t at, V by) const {
    const D d;
    for (std::int64_t j = 0; j < f_.count; ++j) {
      T* const to = adjoint_ + j * Lanes();
      const V normal = hn::Load(d, r_.normal + at + j * Lanes());
      hn::Store(hn::NegMulAdd(by, normal, hn::Load(d, to)), d, to);
    }
  }

  /// Turns the gradient by monomials into that by channels, monomials of higher degrees first.
  void GoThroughMonomials() const {
    const D d;
    const std::int64_t lanes = Lanes();
    for (std::int64_t j = f_.count - 1; j >= f_.channels; --j) {
      const std::int64_t b = f_.before[j] * lanes, c = f_.channel[j] * lanes;
      const V by = hn::Load(d, adjoint_ + j * lanes);
      hn::Store(hn::MulAdd(by, hn::Load(d, one_ + c), hn::Load(d, adjoint_ + b)), d, adjoint_ + b);
      hn::Store(hn::MulAdd(by, hn::Load(d, one_ + b), hn::Load(d, adjoint_ + c)), d, adjoint_ + c);
      // What SumVectors reads beyond the channels is zero.
      hn::Store(hn::Zero(d), d, adjoint_ + j * lanes);
    }
  }

  const Monomials& f_;
  const FitRecord<T>& r_;
  T *one_, *adjoint_;
  bool any_singular_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_SLOPES_INL_H_
