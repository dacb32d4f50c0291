// Fits of queries that see fewer pairs than there are monomials, by systems of pairs: (X X^T +
// ridge I)^-1 in place of (X^T X + ridge I)^-1. Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_DUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_DUAL_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_DUAL_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_DUAL_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"
#include "src/engines/common/queries-inl.h"
#include "src/engines/local_polynomial/covariance-inl.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/interleaved-inl.h"
#include "src/linalg/rounding.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;

/// With h the heaviest pair of a query, X has the rows sqrt(p_i) (f_i - g) of the others, as
/// ExactFit has them, and
///
///     alpha = (X X^T + ridge I)^-1 X f_bar,    u = (f_bar - X^T alpha) / ridge
///     e_i = p_i (1 + S / (1 + sqrt(p_h))) - sqrt(p_i) alpha_i,    e_h = p_h + sqrt(p_h) S
///     S = sum_i sqrt(p_i) alpha_i,    s = X^T (X X^T + ridge I)^-1 sqrt(p) (a - a_g)
///
/// Weights scale rows and columns of X X^T: light pairs lose no digits.
template <class T>
class DualFit {
  using D = ln::SystemTag<T>;

 public:
  DualFit(const Task& task, const WeightScratch<T>& weights, const FitScratch<T>& fit)
      : m_(task.memory),
        f_(task.monomials),
        linear_(task.options.degree == 1),
        weights_(weights),
        fit_(fit),
        s_(fit.dual) {}

  void Start() const { std::fill(s_.counts, s_.counts + kQueries, std::int64_t{0}); }

  /// Appends the pairs of a block to which queries of the method `of` give shares; and their
  /// numbers `a`, [pair][query] or null.
  void Gather(std::int64_t first, std::int64_t count, const FitMethods& of,
              const Block<T>* a) const {
    for (std::int64_t j = 0; j < count; ++j) {
      const T* const shares = weights_.p.Row(j);
      for (std::int64_t i = 0; i < kQueries; ++i) {
        if (shares[i] == 0 || of[i] != FitMethod::kDual || s_.counts[i] == s_.most) continue;
        const std::int64_t at = i * s_.most + s_.counts[i]++;
        s_.pairs[at] = first + j;
        s_.shares[at] = shares[i];
        if (a != nullptr) s_.numbers[at] = a->Row(j)[i];
      }
    }
  }

  /// A vector of queries: their e, or u and s where there are two `sides`. Regular() of the fit is
  /// false for queries whose numbers are not to be used.
  void Solve(std::int64_t vector, std::int64_t sides) const {
    T* const regular = fit_.regular + vector * Lanes();
    const std::int64_t rows = StartSystems(vector, sides);
    for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
      const std::int64_t i = vector * Lanes() + lane;
      const bool hit = weights_.hits[i] != 0, mean = s_.counts[i] == 0 || hit;
      if (hit && s_.counts[i] != 0 && sides == 2) fit_.totals[i] = Total(i);
      regular[lane] = !mean && FillSystem(i, lane, sides) ? T(1) : T(0);
    }
    const ln::Panels<T> h{fit_.h, linalg::PanelsOf(rows)};
    const ln::RightSides<T> right{s_.sides, fit_.wide, sides};
    const ln::PivotLimits<T> limits{static_cast<T>(LeastPivot(linear_ ? 1 : 2, m_.ridge)),
                                    static_cast<T>(linalg::kFaded<T>)};
    ln::FactorInterleaved(AsTheyAre{h}, limits, h, fit_.inverses, right, regular);
    ln::SubstituteUpInterleaved(h, fit_.inverses, right);
    for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
      const std::int64_t i = vector * Lanes() + lane;
      if (regular[lane] != 0) sides == 1 ? Weigh(i, lane) : Return(i, lane);
    }
  }

  /// e[pair][query] of a block of pairs: p where a system is not regular, 0 for queries of other
  /// methods.
  void Weigh(std::int64_t first, std::int64_t count, const Block<T>& e) const {
    linalg::ZeroRows(e, 0, linalg::RoundUp(count, kUnit), kQueries);
    for (std::int64_t i = 0; i < kQueries; ++i) {
      for (std::int64_t r = 0; r < s_.counts[i]; ++r) {
        const std::int64_t j = s_.pairs[i * s_.most + r] - first;
        if (j < 0 || j >= count) continue;
        e.Row(j)[i] = fit_.regular[i] != 0 ? s_.e[i * s_.most + r] : s_.shares[i * s_.most + r];
      }
    }
  }

 private:
  static std::int64_t Lanes() { return ln::SystemsAtOnce<T>(); }

  struct AsTheyAre {
    ln::Panels<T> h;
    template <class Tag>
    HWY_INLINE void operator()(Tag d, std::int64_t i, std::int64_t j,
                               ln::Square<Tag>& square) const {
      ln::LoadSquare(d, h.At(i, j), square);
    }
  };

  /// Identities beside zeros. Returns the rows of the largest system.
  std::int64_t StartSystems(std::int64_t vector, std::int64_t sides) const {
    std::int64_t rows = 1;
    for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
      rows = std::max(rows, s_.counts[vector * Lanes() + lane] - 1);
    }
    const std::int64_t panels = linalg::PanelsOf(rows);
    std::fill(fit_.h, fit_.h + linalg::VectorsBefore(panels) * Lanes(), T(0));
    std::fill(s_.sides, s_.sides + sides * fit_.wide * Lanes(), T(0));
    for (std::int64_t r = 0; r < panels * linalg::kPanelRows; ++r) {
      std::fill_n(At(r, r), Lanes(), T(1));
    }
    return rows;
  }

  /// Element (r, c), c <= r, of all systems.
  T* At(std::int64_t r, std::int64_t c) const {
    constexpr std::int64_t kRows = linalg::kPanelRows;
    const ln::Panels<T> h{fit_.h, 0};
    return h.At(r / kRows, c / kRows) + (c % kRows * kRows + r % kRows) * Lanes();
  }
  T* Side(std::int64_t side, std::int64_t r) const {
    return s_.sides + (side * fit_.wide + r) * Lanes();
  }

  /// False where the system is singular, or nearly.
  bool FillSystem(std::int64_t i, std::int64_t lane, std::int64_t sides) const {
    MoveHeaviest(i);
    FillRows(i);
    const T centre = sides > 1 ? CentreOf(i) : 0;
    const std::int64_t rows = s_.counts[i] - 1, whole = linalg::RoundUp(rows, kUnit);
    const std::int64_t wide = linalg::RoundUp(f_.count, kUnit);
    linalg::ZeroRows(s_.x, rows, whole, wide);
    ln::Transpose(s_.x, whole, wide, s_.xt);
    ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(s_.x), s_.xt, linalg::RoundUp(rows, kStrip),
                                 ln::UpperResult{whole, f_.count}, s_.products);
    const T ridge = static_cast<T>(m_.ridge);
    T least = m_.ridge > 0 || rows == 0 ? ridge : s_.products.Row(0)[0], most = ridge;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c <= r; ++c) At(r, c)[lane] = s_.products.Row(c)[r];
      const T diagonal = s_.products.Row(r)[r];
      least = std::min(least, diagonal + ridge);
      most = std::max(most, diagonal + ridge);
      At(r, r)[lane] = diagonal + ridge;
      Side(0, r)[lane] = sn::Dot(wide, static_cast<const T*>(s_.x.Row(r)), s_.mean);
      if (sides > 1) {
        const std::int64_t at = i * s_.most + r;
        Side(1, r)[lane] = std::sqrt(s_.shares[at]) * (s_.numbers[at] - centre);
      }
    }
    return !(least < most * LeastDiagonal());
  }

  /// The least diagonal, as a share of the greatest: well above what the definition's rank no
  /// longer counts.
  T LeastDiagonal() const {
    const double rounding = 16 * linalg::Rounding<double>(f_.count);
    return static_cast<T>(m_.ridge > 0 ? rounding * rounding : 1e-16);
  }

  /// The heaviest pair of query i becomes its last.
  void MoveHeaviest(std::int64_t i) const {
    const std::int64_t at = i * s_.most, last = at + s_.counts[i] - 1;
    const std::int64_t heaviest =
        std::max_element(s_.shares + at, s_.shares + last + 1) - s_.shares;
    std::swap(s_.shares[heaviest], s_.shares[last]);
    std::swap(s_.pairs[heaviest], s_.pairs[last]);
    std::swap(s_.numbers[heaviest], s_.numbers[last]);
  }

  /// s.x: rows of query i; s.mean: f_bar.
  void FillRows(std::int64_t i) const {
    const std::int64_t at = i * s_.most, rows = s_.counts[i] - 1;
    const T* const shares = s_.shares + at;
    const T* const q = weights_.q.Row(i);
    // Keys in degree 1 may be counted from any point, so not from q, which may be far.
    cn::KeysOf(m_).Load(s_.pairs[at + rows], m_.key_dim, s_.heaviest);
    std::copy_n(linear_ ? s_.heaviest : q, m_.key_dim, s_.origin);
    Expand(s_.heaviest);
    const std::int64_t wide = linalg::RoundUp(f_.count, kUnit);
    std::fill(s_.heaviest + f_.count, s_.heaviest + wide, T(0));
    std::fill(s_.mean, s_.mean + wide, T(0));
    for (std::int64_t r = 0; r < rows; ++r) {
      T* const row = s_.x.Row(r);
      cn::KeysOf(m_).Load(s_.pairs[at + r], m_.key_dim, row);
      Expand(row);
      std::fill(row + f_.count, row + wide, T(0));
      if (!linear_) sn::AddScaled(wide, T(-1), static_cast<const T*>(s_.heaviest), row);
      sn::AddScaled(wide, shares[r], static_cast<const T*>(row), s_.mean);
    }
    const T by = 1 / (1 + std::sqrt(shares[rows]));
    for (std::int64_t r = 0; r < rows; ++r) {
      T* const row = s_.x.Row(r);
      sn::AddScaled(wide, -by, static_cast<const T*>(s_.mean), row);
      sn::Multiply(row, wide, std::sqrt(shares[r]));
    }
    // The mean is counted from the origin, then from q.
    sn::AddScaled(wide, T(1), static_cast<const T*>(s_.heaviest), s_.mean);
    for (std::int64_t c = 0; linear_ && c < f_.count; ++c) s_.mean[c] += s_.origin[c] - q[c];
  }

  void Expand(T* key) const { ExpandRow<T>(f_, key, s_.origin, key); }

  /// The mean of a query's numbers.
  T Total(std::int64_t i) const {
    T sum = 0;
    for (std::int64_t r = i * s_.most; r < i * s_.most + s_.counts[i]; ++r) {
      sum += s_.shares[r] * s_.numbers[r];
    }
    return sum;
  }

  /// a_g.
  T CentreOf(std::int64_t i) const {
    const std::int64_t h = i * s_.most + s_.counts[i] - 1;
    const T root = std::sqrt(s_.shares[h]);
    return (Total(i) + root * s_.numbers[h]) / (1 + root);
  }

  void Weigh(std::int64_t i, std::int64_t lane) const {
    const std::int64_t rows = s_.counts[i] - 1;
    const T* const p = s_.shares + i * s_.most;
    T* const e = s_.e + i * s_.most;
    T sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += std::sqrt(p[r]) * Side(0, r)[lane];
    const T root = std::sqrt(p[rows]);
    for (std::int64_t r = 0; r < rows; ++r) {
      e[r] = p[r] * (1 + sum / (1 + root)) - std::sqrt(p[r]) * Side(0, r)[lane];
    }
    e[rows] = p[rows] + root * sum;
  }

  /// Leaves what Fit does: means from the centre, u and s.
  void Return(std::int64_t i, std::int64_t lane) const {
    FillRows(i);
    const std::int64_t vector = i / Lanes(), rows = s_.counts[i] - 1;
    const std::int64_t wide = linalg::RoundUp(f_.count, kUnit);
    T* const sum = s_.heaviest;
    const T* const q = weights_.q.Row(i);
    for (std::int64_t j = 0; j < f_.count; ++j) {
      const T centre =
          linear_ ? fit_.centres[(vector * f_.channels + j) * Lanes() + lane] - q[j] : 0;
      fit_.means[(vector * fit_.wide + j) * Lanes() + lane] = s_.mean[j] - centre;
    }
    fit_.totals[i] = Total(i);
    for (std::int64_t side = 0; side < 2; ++side) {
      std::fill(sum, sum + wide, T(0));
      for (std::int64_t r = 0; r < rows; ++r) {
        sn::AddScaled(wide, Side(side, r)[lane], static_cast<const T*>(s_.x.Row(r)), sum);
      }
      T* const to = fit_.sides + (side * kQueries / Lanes() + vector) * fit_.wide * Lanes() + lane;
      for (std::int64_t j = 0; j < f_.count; ++j) {
        to[j * Lanes()] = side == 0 ? (s_.mean[j] - sum[j]) / static_cast<T>(m_.ridge) : sum[j];
      }
    }
  }

  const Memory& m_;
  const Monomials& f_;
  const bool linear_;
  const WeightScratch<T>& weights_;
  const FitScratch<T>& fit_;
  const DualScratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_DUAL_INL_H_
