// Fits of some queries, each in a lane of its own: means and covariances of monomials, and their
// systems. Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_FIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_FIT_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_FIT_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_FIT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/covariance-inl.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/interleaved-inl.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// Keys are counted from a centre of each query. In degree 1 it is the mean of keys to rounding, so
/// that |q| and |k| may be much larger than the spread; else it is the query, for the ridge is on
/// the coefficients of monomials there. `mean` below is that of keys counted so.
template <class T>
class Fit {
  using D = ln::SystemTag<T>;
  using V = hn::Vec<D>;

 public:
  Fit(const Monomials& monomials, double ridge, const FitScratch<T>& scratch)
      : f_(monomials), ridge_(ridge), s_(scratch) {}

  static std::int64_t Lanes() { return ln::SystemsAtOnce<T>(); }
  static std::int64_t Vectors() { return kQueries / Lanes(); }

  /// `centres`: rows of queries.
  void Start(const Block<T>& centres, std::int64_t sides) const {
    for (std::int64_t vector = 0; vector < Vectors(); ++vector) {
      for (std::int64_t c = 0; c < f_.channels; ++c) {
        for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
          Centre(vector)[c * Lanes() + lane] = centres.Row(vector * Lanes() + lane)[c];
        }
      }
    }
    std::fill(s_.means, s_.means + s_.wide * kQueries, T(0));
    std::fill(s_.sides, s_.sides + sides * s_.wide * kQueries, T(0));
    std::fill(s_.totals, s_.totals + kQueries, T(0));
    const std::int64_t vectors = linalg::VectorsBefore(linalg::PanelsOf(f_.count));
    std::fill(s_.h, s_.h + vectors * kQueries, T(0));
  }

  /// Adds pairs, rows of `k` with shares `p`, [pair][query], to means and second moments; and
  /// numbers `a` of theirs, [pair][query] or null, to what the second system is solved for.
  void Add(const Block<T>& k, const Block<T>& p, std::int64_t count, const Block<T>* a) const {
    for (std::int64_t vector = 0; vector < Vectors(); ++vector) {
      for (std::int64_t j = 0; j < count; j += s_.depth) {
        const std::int64_t depth = std::min(s_.depth, count - j);
        if (!FillPanels(vector, k.Rows(j), p.Rows(j), depth)) continue;
        if (a != nullptr) AddNumbers(vector, p.Rows(j), a->Rows(j), depth);
        AddProducts(vector, linalg::RoundUp(depth, linalg::kPanelRows));
      }
    }
  }

  /// Solves every query of the `vector` for u = (Sigma + ridge I)^-1 f_bar, and with two `sides`
  /// also for s = (Sigma + ridge I)^-1 c, c the covariance of monomials and a. Regular() is false
  /// for those whose system is singular, or nearly. queries: those that are fitted.
  void Solve(std::int64_t vector, const Block<T>& queries, std::int64_t sides) const {
    const D d;
    const bool linear = f_.count == f_.channels;
    for (std::int64_t j = 0; j < s_.wide; ++j) {
      const V mean = hn::Load(d, Mean(vector) + j * Lanes());
      V f = mean;
      if (linear && j < f_.channels) {
        for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
          s_.one[lane] = queries.Row(vector * Lanes() + lane)[j];
        }
        const V from = hn::Sub(hn::Load(d, Centre(vector) + j * Lanes()), hn::Load(d, s_.one));
        f = hn::Add(from, mean);
      }
      hn::Store(f, d, Side(vector, 0) + j * Lanes());
      if (sides < 2) continue;
      T* const second = Side(vector, 1) + j * Lanes();
      const V a = hn::Load(d, Total(vector));
      hn::Store(hn::NegMulAdd(a, mean, hn::Load(d, second)), d, second);
    }
    const ln::RightSides<T> right{Side(vector, 0), s_.wide * Vectors(), sides};
    Factor(vector, right);
    ln::SubstituteUpInterleaved(H(vector), s_.inverses, right);
  }

  /// e[pair][query] = p (1 - (f - mean) . u).
  void Weigh(const Block<T>& k, const Block<T>& p, std::int64_t count, const Block<T>& e) const {
    const D d;
    const V one = hn::Set(d, T(1));
    for (std::int64_t vector = 0; vector < Vectors(); ++vector) {
      const T* const u = Side(vector, 0);
      V of_mean = one;  // 1 + mean . u
      for (std::int64_t j = 0; j < f_.count; ++j) {
        const V mean = hn::Load(d, Mean(vector) + j * Lanes());
        of_mean = hn::MulAdd(mean, hn::Load(d, u + j * Lanes()), of_mean);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const V share = hn::Load(d, p.Row(i) + vector * Lanes());
        if (hn::AllTrue(d, hn::Eq(share, hn::Zero(d)))) {
          hn::Store(share, d, e.Row(i) + vector * Lanes());
          continue;
        }
        const V sum = hn::Sub(of_mean, Evaluate(vector, k.Row(i), u));
        const V weight = hn::IfThenZeroElse(hn::Eq(share, hn::Zero(d)), hn::Mul(share, sum));
        hn::Store(weight, d, e.Row(i) + vector * Lanes());
      }
    }
  }

  /// Side r of one query: monomial j at j Lanes().
  T* SideOf(std::int64_t query, std::int64_t r) const {
    return Side(query / Lanes(), r) + query % Lanes();
  }
  bool Regular(std::int64_t query) const { return s_.regular[query] != 0; }
  /// Is a system not regular because the digits of a variance are gone?
  bool Cancelled(std::int64_t query) const { return s_.cancelled[query] != 0; }

 private:
  T* Centre(std::int64_t vector) const { return s_.centres + vector * f_.channels * Lanes(); }
  T* Regulars(std::int64_t vector) const { return s_.regular + vector * Lanes(); }
  T* Total(std::int64_t vector) const { return s_.totals + vector * Lanes(); }
  T* Mean(std::int64_t vector) const { return s_.means + vector * s_.wide * Lanes(); }
  T* Side(std::int64_t vector, std::int64_t r) const {
    return s_.sides + (vector + r * Vectors()) * s_.wide * Lanes();
  }
  ln::Panels<T> H(std::int64_t vector) const {
    const std::int64_t panels = linalg::PanelsOf(f_.count);
    return {s_.h + vector * linalg::VectorsBefore(panels) * Lanes(), panels};
  }

  /// The monomials of a pair in s.one.
  HWY_INLINE void Expand(std::int64_t vector, const T* k) const {
    ExpandKey<T>(f_, k, Centre(vector), s_.one);
  }

  /// sum_j f_j z_j of one pair.
  HWY_INLINE V Evaluate(std::int64_t vector, const T* k, const T* z) const {
    const D d;
    const std::int64_t lanes = Lanes();
    V even = hn::Zero(d), odd = hn::Zero(d);
    if (f_.count == f_.channels) {
      const T* const centre = Centre(vector);
      std::int64_t c = 0;
      for (; c + 2 <= f_.channels; c += 2) {
        const V x = hn::Sub(hn::Set(d, k[c]), hn::Load(d, centre + c * lanes));
        const V y = hn::Sub(hn::Set(d, k[c + 1]), hn::Load(d, centre + (c + 1) * lanes));
        even = hn::MulAdd(x, hn::Load(d, z + c * lanes), even);
        odd = hn::MulAdd(y, hn::Load(d, z + (c + 1) * lanes), odd);
      }
      if (c < f_.channels) {
        const V x = hn::Sub(hn::Set(d, k[c]), hn::Load(d, centre + c * lanes));
        even = hn::MulAdd(x, hn::Load(d, z + c * lanes), even);
      }
      return hn::Add(even, odd);
    }
    Expand(vector, k);
    for (std::int64_t j = 0; j < f_.count; ++j) {
      even = hn::MulAdd(hn::Load(d, s_.one + j * lanes), hn::Load(d, z + j * lanes), even);
    }
    return even;
  }

  /// The monomials of some pairs in s.columns, and times -p in s.rows. False where no pair has a
  /// share.
  bool FillPanels(std::int64_t vector, const Block<T>& k, const Block<T>& p,
                  std::int64_t count) const {
    const D d;
    const std::int64_t lanes = Lanes(), panel = s_.depth * linalg::kPanelRows * lanes;
    V any = hn::Zero(d);
    for (std::int64_t i = 0; i < count; ++i) {
      any = hn::Or(any, hn::Load(d, p.Row(i) + vector * lanes));
    }
    if (hn::AllTrue(d, hn::Eq(any, hn::Zero(d)))) return false;
    T* const mean = Mean(vector);
    const std::int64_t whole = linalg::RoundUp(count, linalg::kPanelRows);
    for (std::int64_t i = 0; i < whole; ++i) {
      V share = hn::Zero(d);
      if (i < count) {
        share = hn::Load(d, p.Row(i) + vector * lanes);
        Expand(vector, k.Row(i));
      }
      for (std::int64_t j = 0; j < s_.wide; ++j) {
        const std::int64_t at = j / linalg::kPanelRows * panel +
                                (i * linalg::kPanelRows + j % linalg::kPanelRows) * lanes;
        V f = hn::Zero(d);
        if (i < count && j < f_.count) {
          // Numbers that are not finite go only to queries that give them weight.
          f = hn::IfThenZeroElse(hn::Eq(share, f), hn::Load(d, s_.one + j * lanes));
        }
        const V weighed = hn::Mul(share, f);
        hn::Store(f, d, s_.columns + at);
        hn::Store(hn::Neg(weighed), d, s_.rows + at);
        hn::Store(hn::Add(hn::Load(d, mean + j * lanes), weighed), d, mean + j * lanes);
      }
    }
    return true;
  }

  /// sum p a f and sum p a of the pairs whose monomials are in s.columns.
  void AddNumbers(std::int64_t vector, const Block<T>& p, const Block<T>& a,
                  std::int64_t count) const {
    const D d;
    const std::int64_t lanes = Lanes(), panel = s_.depth * linalg::kPanelRows * lanes;
    T* const to = Side(vector, 1);
    T* const total = Total(vector);
    for (std::int64_t i = 0; i < count; ++i) {
      const V share = hn::Load(d, p.Row(i) + vector * lanes);
      const V number = hn::Load(d, a.Row(i) + vector * lanes);
      const V weighed = hn::IfThenZeroElse(hn::Eq(share, hn::Zero(d)), hn::Mul(share, number));
      hn::Store(hn::Add(hn::Load(d, total), weighed), d, total);
      for (std::int64_t j = 0; j < f_.count; ++j) {
        const std::int64_t at = j / linalg::kPanelRows * panel +
                                (i * linalg::kPanelRows + j % linalg::kPanelRows) * lanes;
        const V f = hn::Load(d, s_.columns + at);
        hn::Store(hn::MulAdd(weighed, f, hn::Load(d, to + j * lanes)), d, to + j * lanes);
      }
    }
  }

  void AddProducts(std::int64_t vector, std::int64_t depth) const {
    const D d;
    const ln::Panels<T> h = H(vector);
    const std::int64_t panel = s_.depth * linalg::kPanelRows * Lanes();
    for (std::int64_t i = 0; i < h.count; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        ln::Square<D> square;
        ln::LoadSquare(d, h.At(i, j), square);
        ln::SubtractProduct(d, s_.rows + i * panel, s_.columns + j * panel, depth, square);
        ln::StoreSquare(d, square, h.At(i, j));
      }
    }
  }

  void Factor(std::int64_t vector, const ln::RightSides<T>& sides) const {
    const ln::Panels<T> h = H(vector);
    MarkCancelled(vector);
    const ln::PivotLimits<T> limits{
        static_cast<T>(LeastPivot(f_.count == f_.channels ? 1 : 2, ridge_)),
        static_cast<T>(linalg::kFaded<T>)};
    const Covariance<T> matrix{h, Mean(vector), static_cast<T>(ridge_), f_.count};
    ln::FactorInterleaved(matrix, limits, h, s_.inverses, sides, Regulars(vector));
  }

  /// A variance that is left of a much larger second moment has lost its digits. One that is tiny
  /// beside another may be rounding of that.
  void MarkCancelled(std::int64_t vector) const {
    const D d;
    const ln::Panels<T> h = H(vector);
    V cancelled = hn::Zero(d), least = hn::Set(d, std::numeric_limits<T>::max()), most = cancelled;
    for (std::int64_t j = 0; j < f_.count; ++j) {
      const std::int64_t panel = j / linalg::kPanelRows, r = j % linalg::kPanelRows;
      const V second = hn::Load(d, h.At(panel, panel) + (r * linalg::kPanelRows + r) * Lanes());
      const V mean = hn::Load(d, Mean(vector) + j * Lanes());
      const V left = hn::Add(hn::NegMulAdd(mean, mean, second), hn::Set(d, static_cast<T>(ridge_)));
      const auto lost = hn::Lt(left, hn::Mul(second, hn::Set(d, T(1.0 / 32))));
      cancelled = hn::IfThenElse(lost, hn::Set(d, T(1)), cancelled);
      least = hn::Min(least, left);
      most = hn::Max(most, left);
    }
    hn::Store(cancelled, d, s_.cancelled + vector * Lanes());
    const auto uneven = hn::Lt(least, hn::Mul(most, hn::Set(d, LeastVariance())));
    const auto lost = hn::Or(uneven, hn::Ne(cancelled, hn::Zero(d)));
    hn::Store(hn::IfThenZeroElse(lost, hn::Set(d, T(1))), d, Regulars(vector));
  }

  /// The least variance, as a share of the greatest. With a ridge it is one that the definition's
  /// rank still counts.
  T LeastVariance() const {
    const double rounding = 16 * linalg::Rounding<double>(f_.count);
    if (ridge_ > 0) return static_cast<T>(rounding * rounding);
    return sizeof(T) == 4 ? T(1e-4) : T(1e-10);
  }

  const Monomials& f_;
  const double ridge_;
  const FitScratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_FIT_INL_H_
