// All right-hand sides of a chunk through a solver that iterates, and Chebyshev's iteration.
// Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_ITERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_ITERATIONS_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_ITERATIONS_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_ITERATIONS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/core/diverged.h"
#include "src/engines/least_squares/iterative/conjugate_gradients-inl.h"
#include "src/engines/least_squares/iterative/gradient_descent-inl.h"
#include "src/engines/least_squares/iterative/solver_rows-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// x_{n+1} = w (x_n - x_{n-1} + (q - A x_n) / c) + x_{n-1}, c the centre of an interval that holds
/// all eigenvalues. Its gradient is that of the converged problem.
template <class T>
class Chebyshev : public SolverRows<T> {
  using Base = SolverRows<T>;
  using Base::D, Base::AD, Base::X, Base::ForVectors, Base::Spread, Base::Products, Base::kSolved,
      Base::kRegularised, Base::how_, Base::prepared_, Base::systems_, Base::sides_;
  using typename Base::Tag, typename Base::Vec;

 public:
  using Base::Base;

  /// x in the rows of d.
  void Solve(const Block<T>& q, std::int64_t rows) const {
    for (std::int64_t j = 0; j < rows; ++j) Start(q, j);
    for (std::int64_t n = 1; n < how_.steps; ++n) {
      Products(rows);
      for (std::int64_t j = 0; j < rows; ++j) {
        if (sides_.status[j] == kSolved) Step(q, j);
      }
    }
  }

 private:
  void Start(const Block<T>& q, std::int64_t j) const {
    const double low = prepared_.Low(sides_.system[j]);
    const double high = prepared_.High(sides_.system[j]);
    const double centre = (high + low) / 2;
    const double rho = (high - low) / (high + low);
    sides_.size[j] = centre == 0 ? 0 : 1 / centre;
    sides_.damping[j] = centre == 0 ? 0 : rho * rho;
    sides_.product[j] = 2;                             // w
    if (centre == 0) sides_.status[j] = kRegularised;  // A = 0, x = 0
    const Vec inverse = Spread(sides_.size[j]);
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      hn::Store(hn::Mul(inverse, hn::Load(d, q.Row(j) + v)), d, D(j) + v);
    });
    if (centre == 0) this->Clear(j);
  }

  void Step(const Block<T>& q, std::int64_t j) const {
    const std::int64_t system = sides_.system[j];
    sides_.product[j] = 4 / (4 - sides_.damping[j] * sides_.product[j]);
    const Vec weight = Spread(sides_.product[j]);
    const Vec inverse = Spread(sides_.size[j]);
    const Vec fade = Spread(systems_.Fade(system));
    const Vec factor = hn::Set(Tag(), systems_.Factor(system));
    T* const x = D(j);
    T* const before = X(j);
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec now = hn::Load(d, x + v);
      const Vec last = hn::Load(d, before + v);
      const Vec ax = systems_.Finish(d, fade, factor, AD(j), x, v);
      const Vec residual = hn::Sub(hn::Load(d, q.Row(j) + v), ax);
      const Vec step = hn::MulAdd(inverse, residual, hn::Sub(now, last));
      hn::Store(now, d, before + v);
      hn::Store(hn::MulAdd(weight, step, last), d, x + v);
    });
  }
};

/// Right-hand sides are rows of whole units; row j belongs to system j / `per_system`.
template <class T>
class Iterations : public SolverRows<T> {
  using Base = SolverRows<T>;
  using Base::D, Base::AD, Base::R, Base::ForVectors, Base::Spread, Base::SystemOf, Base::Products,
      Base::how_, Base::prepared_, Base::systems_, Base::s_, Base::it_, Base::sides_;
  using typename Base::Tag, typename Base::Vec;

 public:
  using Base::Base;

  /// x with A x = q, approximately; rows in scratch, until the next call. `steps`: of
  /// GradientDescent.
  Block<T> Solve(const Block<T>& q, std::int64_t rows, std::int64_t per_system,
                 const Block<T>& steps = {}) const {
    for (std::int64_t j = 0; j < rows; ++j) {
      sides_.slot[j] = static_cast<std::int32_t>(j);
      sides_.system[j] = SystemOf(j, per_system);
      sides_.status[j] = Base::kSolved;
      sides_.iterations[j] = how_.steps;
    }
    for (std::int64_t j = 0; j < RoundUp(rows, kUnit); ++j) this->Clear(j);
    if (how_.steps == 0) return it_.x;
    if (how_.solver == Solver::kConjugateGradient) {
      ConjugateGradients<T>(how_, prepared_, s_, it_).Solve(q, rows);
      return it_.x;
    }
    if (how_.solver == Solver::kChebyshev) {
      Chebyshev<T>(how_, prepared_, s_, it_).Solve(q, rows);
    } else {
      GradientDescent<T>(how_, prepared_, s_, it_).Solve(q, rows, steps);
    }
    return it_.d;
  }

  /// |q - (A_i + R_i) x| / |q| of rows c_i x, in `residual`. `x` may be what is multiplied by A:
  /// its numbers stay.
  void FindResiduals(const Block<T>& q, const Block<T>& x, std::int64_t rows,
                     std::int64_t per_system) const {
    for (std::int64_t j = 0; j < RoundUp(rows, kUnit); ++j) {
      sides_.system[j] = SystemOf(j, per_system);
      if (x.data == it_.d.data) continue;
      const T* const row = x.Row(j);
      const std::int64_t count = j < rows ? s_.keys_unit : 0;
      std::fill(std::copy(row, row + count, D(j)), D(j) + s_.keys_unit, T(0));
    }
    Products(rows);
    for (std::int64_t j = 0; j < rows; ++j) {
      const Vec one = Spread(1);
      const Vec rho = Spread(systems_.RidgeFactor(sides_.system[j]));
      ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
        const Vec ax = systems_.Finish(d, one, rho, AD(j), D(j), v);
        hn::Store(hn::Sub(hn::Load(d, q.Row(j) + v), ax), d, R(j) + v);
      });
      sides_.residual[j] = RelativeResidual(std::sqrt(sn::SumOfSquares(R(j), s_.keys_unit)),
                                            std::sqrt(sn::SumOfSquares(q.Row(j), s_.keys_unit)));
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_ITERATIONS_INL_H_
