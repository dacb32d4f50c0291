// Conjugate gradients with a preconditioner of every system. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_CONJUGATE_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_CONJUGATE_GRADIENTS_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_CONJUGATE_GRADIENTS_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_CONJUGATE_GRADIENTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/solver_rows-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Each q is scaled to unit length, so that squares neither overflow nor vanish. Slots hold the
/// directions of the right-hand sides that have not converged, in order. The gradient is that of
/// the converged problem.
template <class T>
class ConjugateGradients : public SolverRows<T> {
  using Base = SolverRows<T>;
  using Base::D, Base::AD, Base::R, Base::X, Base::ForVectors, Base::Spread, Base::Sum, Base::Dot,
      Base::Products, Base::kNotConverged, Base::how_, Base::prepared_, Base::systems_, Base::s_,
      Base::it_, Base::sides_;
  using typename Base::Tag, typename Base::Vec;

 public:
  using Base::Base;

  /// x in the rows of x.
  void Solve(const Block<T>& q, std::int64_t rows) const {
    const double goal =
        std::max(how_.tolerance, static_cast<double>(std::numeric_limits<T>::epsilon()));
    std::int64_t active = 0;
    for (std::int64_t j = 0; j < rows; ++j) {
      if (Start(q, j, goal, active)) ++active;
    }
    for (std::int64_t n = 1; n <= how_.steps && active > 0; ++n) {
      Products(active);
      std::int64_t saved = 0;
      for (std::int64_t p = 0; p < active; ++p) {
        if (Step(p, n, goal, saved)) ++saved;
      }
      active = saved;
    }
    for (std::int64_t j = 0; j < rows; ++j) {
      const Vec size = Spread(sides_.size[j]);
      ForVectors([&](auto d, std::int64_t v)
                     HWY_ATTR { hn::Store(hn::Mul(size, hn::Load(d, X(j) + v)), d, X(j) + v); });
    }
  }

 private:
  /// A share of |A| or |P| below which a number of a singular matrix is rounding.
  static constexpr double kRounding = 4 * static_cast<double>(std::numeric_limits<T>::epsilon());

  /// The first direction, in `slot`. False: there is nothing to do for row j.
  bool Start(const Block<T>& q, std::int64_t j, double goal, std::int64_t slot) const {
    const double size = std::sqrt(sn::SumOfSquares(q.Row(j), s_.keys_unit));
    sides_.size[j] = 1;
    sides_.iterations[j] = 0;
    if (std::isnan(size)) {
      std::fill(X(j), X(j) + s_.keys_unit, std::numeric_limits<T>::quiet_NaN());
      return false;
    }
    if (size == 0 || !std::isfinite(size) || goal >= 1) return false;
    sides_.size[j] = size;
    for (std::int64_t v = 0; v < s_.keys_unit; ++v) {
      R(j)[v] = static_cast<T>(static_cast<double>(q.Row(j)[v]) / size);
    }
    const auto system = static_cast<std::int32_t>(sides_.system[j]);
    const T* const z = prepared_.Precondition(system, R(j), it_.row);
    sides_.product[j] = sides_.gain[j] = Dot(R(j), z);
    std::copy(z, z + s_.keys_unit, D(slot));
    sides_.slot[slot] = static_cast<std::int32_t>(j);
    sides_.system[slot] = system;
    return true;
  }

  /// One step of the right-hand side in slot p; its next direction goes to slot `next_slot`. False:
  /// it is done.
  bool Step(std::int64_t p, std::int64_t n, double goal, std::int64_t next_slot) const {
    const std::int64_t j = sides_.slot[p];
    const std::int32_t system = sides_.system[p];
    const auto [curvature, length] = FinishProduct(p);
    sides_.iterations[j] = n;
    if (curvature <= kRounding * systems_.Trace(system) * length) {
      // A is singular along d, and q has a part there.
      sides_.status[j] = kNotConverged;
      return false;
    }
    const double residual = Move(p, sides_.product[j] / curvature);
    if (residual <= goal * goal) return false;
    if (n == how_.steps) {
      if (how_.tolerance > 0 && residual > goal * goal) sides_.status[j] = kNotConverged;
      return false;
    }
    const T* const r = R(j);
    const T* const z = prepared_.Precondition(system, r, it_.row);
    const double next = z == r ? residual : Dot(r, z);
    if (next <= kRounding * sides_.gain[j] * residual) {  // so is P, along r
      sides_.status[j] = kNotConverged;
      return false;
    }
    sides_.gain[j] = std::max(sides_.gain[j], next / residual);
    const Vec beta = Spread(next / sides_.product[j]);
    sides_.product[j] = next;
    const T* const direction = D(p);
    T* const to = D(next_slot);
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      hn::Store(hn::MulAdd(beta, hn::Load(d, direction + v), hn::Load(d, z + v)), d, to + v);
    });
    sides_.slot[next_slot] = static_cast<std::int32_t>(j);
    sides_.system[next_slot] = system;
    return true;
  }

  struct Curvature {
    double along, length;
  };
  /// ad of slot p, d . ad and d . d.
  Curvature FinishProduct(std::int64_t p) const {
    const std::int32_t system = sides_.system[p];
    const Vec fade = Spread(systems_.Fade(system));
    const Vec factor = hn::Set(Tag(), systems_.Factor(system));
    const T* const direction = D(p);
    T* const product = AD(p);
    Vec sum = hn::Zero(Tag()), length = sum;
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec own = hn::Load(d, direction + v);
      const Vec ad = systems_.Finish(d, fade, factor, product, direction, v);
      hn::Store(ad, d, product + v);
      sum = hn::MulAdd(ad, own, sum);
      length = hn::MulAdd(own, own, length);
    });
    return {Sum(sum), Sum(length)};
  }

  /// x <- x + alpha d, r <- r - alpha ad; |r|^2.
  double Move(std::int64_t p, double alpha) const {
    const std::int64_t j = sides_.slot[p];
    const Vec by = Spread(alpha);
    const T* const direction = D(p);
    const T* const product = AD(p);
    T* const x = X(j);
    T* const r = R(j);
    Vec sum = hn::Zero(Tag());
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec step = hn::MulAdd(by, hn::Load(d, direction + v), hn::Load(d, x + v));
      const Vec left = hn::NegMulAdd(by, hn::Load(d, product + v), hn::Load(d, r + v));
      hn::Store(step, d, x + v);
      hn::Store(left, d, r + v);
      sum = hn::MulAdd(left, left, sum);
    });
    return Sum(sum);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_CONJUGATE_GRADIENTS_INL_H_
