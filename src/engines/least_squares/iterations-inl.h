// Solvers that approach A x = q, for many right-hand sides at once. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIONS_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIONS_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIONS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/prefix_systems-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Right-hand sides are rows; row j belongs to system j / `per_system`, as many as there are. What
/// became of each is left in it.status (of ttr::Status) and it.iterations.
template <class T>
class Iterations {
 public:
  using Block = ln::Block<T>;

  Iterations(const Iteration& how, const PrefixSystems<T>& systems, const Scratch<T>& s,
             const IterationScratch<T>& it)
      : how_(how), systems_(systems), s_(s), it_(it) {}

  /// x with A x = q, approximately; rows in scratch, until the next call. `q` has `rows` rows in a
  /// block of a multiple of kUnit. `steps`: where step n of gradient descent leaves the P r of row
  /// j, in row n rows + j.
  Block Solve(const Block& q, std::int64_t rows, std::int64_t per_system,
              const Block& steps = {}) const {
    for (std::int64_t j = 0; j < rows; ++j) {
      it_.slot[j] = static_cast<std::int32_t>(j);
      it_.system[j] = static_cast<std::int32_t>(std::min(j / per_system, systems_.count() - 1));
      it_.status[j] = kSolved;
      it_.iterations[j] = how_.steps;
    }
    for (std::int64_t j = 0; j < RoundUp(rows, kUnit); ++j) Clear(j);
    if (how_.steps == 0) return {it_.x, s_.k_stride};
    switch (how_.solver) {
      case Solver::kConjugateGradient: ConjugateGradient(q, rows); return {it_.x, s_.k_stride};
      case Solver::kChebyshev: Chebyshev(q, rows); return {it_.d, it_.d_stride};
      default: GradientDescent(q, rows, steps); return {it_.d, it_.d_stride};
    }
  }

  /// |q - (A_i + R_i) x| / |q| of rows c_i x, in `residual`. `x` may be what is multiplied by A:
  /// its numbers stay.
  void FindResiduals(const Block& q, const Block& x, std::int64_t rows,
                     std::int64_t per_system) const {
    for (std::int64_t j = 0; j < RoundUp(rows, kUnit); ++j) {
      it_.system[j] = static_cast<std::int32_t>(std::min(j / per_system, systems_.count() - 1));
      if (x.data == it_.d) continue;
      const T* const row = x.Row(j);
      const std::int64_t count = j < rows ? s_.keys_unit : 0;
      std::fill(std::copy(row, row + count, D(j)), D(j) + s_.keys_unit, T(0));
    }
    Products(rows);
    for (std::int64_t j = 0; j < rows; ++j) {
      const Vec one = Spread(1);
      const Vec rho = Spread(systems_.RidgeFactor(it_.system[j]));
      ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
        const Vec ax = systems_.Finish(d, one, rho, AD(j), D(j), v);
        hn::Store(hn::Sub(hn::Load(d, q.Row(j) + v), ax), d, R(j) + v);
      });
      const double size = sn::SumOfSquares(q.Row(j), s_.keys_unit);
      it_.residual[j] = size == 0 ? 0 : std::sqrt(sn::SumOfSquares(R(j), s_.keys_unit) / size);
    }
  }

 private:
  using Tag = hn::ScalableTag<T>;
  using Vec = hn::Vec<Tag>;
  static constexpr std::int8_t kSolved = 0, kRegularised = 1, kNotConverged = 2;

  T* D(std::int64_t p) const { return it_.d + p * it_.d_stride; }
  T* AD(std::int64_t p) const { return it_.ad + p * s_.k_stride; }
  T* R(std::int64_t j) const { return it_.r + j * s_.k_stride; }
  T* X(std::int64_t j) const { return it_.x + j * s_.k_stride; }

  void Clear(std::int64_t j) const {
    std::fill(D(j), D(j) + s_.keys_unit, T(0));
    std::fill(X(j), X(j) + s_.keys_unit, T(0));
    std::fill(R(j), R(j) + s_.keys_unit, T(0));
  }

  /// Calls each(tag, v) for every vector of a row.
  template <class Each>
  HWY_INLINE void ForVectors(const Each& each) const {
    const Tag d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t v = 0; v < s_.keys_unit; v += lanes) each(d, v);
  }

  static Vec Spread(double x) { return hn::Set(Tag(), static_cast<T>(x)); }
  static double Sum(Vec v) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(Tag(), v))); }

  double Dot(const T* x, const T* y) const {
    Vec sum = hn::Zero(Tag());
    ForVectors([&](auto d, std::int64_t v)
                   HWY_ATTR { sum = hn::MulAdd(hn::Load(d, x + v), hn::Load(d, y + v), sum); });
    return Sum(sum);
  }

  /// ad <- A_i d of a slot.
  void Products(std::int64_t rows) const {
    systems_.Multiply(Block{it_.d, it_.d_stride}, it_.system, rows, Block{it_.ad, s_.k_stride});
  }

  /// x <- x + eta P (q - A x). The first step needs no product.
  void GradientDescent(const Block& q, std::int64_t rows, const Block& steps) const {
    for (std::int64_t n = 0; n < how_.steps; ++n) {
      if (n > 0) Products(rows);
      for (std::int64_t j = 0; j < rows; ++j) {
        const std::int64_t system = it_.system[j];
        T* const residual = R(j);
        T* const x = D(j);
        if (n == 0) {
          std::copy(q.Row(j), q.Row(j) + s_.keys_unit, residual);
        } else {
          const Vec fade = Spread(systems_.Fade(system));
          const Vec factor = hn::Set(Tag(), systems_.Factor(system));
          ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
            const Vec ax = systems_.Finish(d, fade, factor, AD(j), x, v);
            hn::Store(hn::Sub(hn::Load(d, q.Row(j) + v), ax), d, residual + v);
          });
        }
        const T* const step = systems_.Precondition(system, residual, it_.row);
        if (steps.data != nullptr) std::copy(step, step + s_.keys_unit, steps.Row(n * rows + j));
        const Vec eta = Spread(how_.eta);
        ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
          hn::Store(hn::MulAdd(eta, hn::Load(d, step + v), hn::Load(d, x + v)), d, x + v);
        });
      }
    }
  }

  /// x_{n+1} = w (x_n - x_{n-1} + (q - A x_n) / c) + x_{n-1}.
  void Chebyshev(const Block& q, std::int64_t rows) const {
    for (std::int64_t j = 0; j < rows; ++j) {
      const double low = systems_.Low(it_.system[j]);
      const double high = systems_.High(it_.system[j]);
      const double centre = (high + low) / 2;
      const double rho = (high - low) / (high + low);
      it_.size[j] = centre == 0 ? 0 : 1 / centre;
      it_.damping[j] = centre == 0 ? 0 : rho * rho;
      it_.product[j] = 2;                             // w
      if (centre == 0) it_.status[j] = kRegularised;  // A = 0, x = 0
      const Vec inverse = Spread(it_.size[j]);
      ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
        hn::Store(hn::Mul(inverse, hn::Load(d, q.Row(j) + v)), d, D(j) + v);
      });
      if (centre == 0) Clear(j);
    }
    for (std::int64_t n = 1; n < how_.steps; ++n) {
      Products(rows);
      for (std::int64_t j = 0; j < rows; ++j) {
        if (it_.status[j] != kSolved) continue;
        const std::int64_t system = it_.system[j];
        it_.product[j] = 4 / (4 - it_.damping[j] * it_.product[j]);
        const Vec weight = Spread(it_.product[j]);
        const Vec inverse = Spread(it_.size[j]);
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
    }
  }

  /// A share of |A| or |P| that is no number of a singular one, but rounding.
  static constexpr double kRounding = 4 * static_cast<double>(std::numeric_limits<T>::epsilon());

  /// For q of unit length, so that squares neither overflow nor vanish. Slots hold the directions
  /// of the right-hand sides that have not converged, in order.
  void ConjugateGradient(const Block& q, std::int64_t rows) const {
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
      const Vec size = Spread(it_.size[j]);
      ForVectors([&](auto d, std::int64_t v)
                     HWY_ATTR { hn::Store(hn::Mul(size, hn::Load(d, X(j) + v)), d, X(j) + v); });
    }
  }

  /// The first direction, in `slot`. False: there is nothing to do for row j.
  bool Start(const Block& q, std::int64_t j, double goal, std::int64_t slot) const {
    const double size = std::sqrt(sn::SumOfSquares(q.Row(j), s_.keys_unit));
    it_.size[j] = 1;
    it_.iterations[j] = 0;
    if (std::isnan(size)) {
      std::fill(X(j), X(j) + s_.keys_unit, std::numeric_limits<T>::quiet_NaN());
      return false;
    }
    if (size == 0 || !std::isfinite(size) || goal >= 1) return false;
    it_.size[j] = size;
    for (std::int64_t v = 0; v < s_.keys_unit; ++v) {
      R(j)[v] = static_cast<T>(static_cast<double>(q.Row(j)[v]) / size);
    }
    const auto system = static_cast<std::int32_t>(it_.system[j]);
    const T* const z = systems_.Precondition(system, R(j), it_.row);
    it_.product[j] = it_.gain[j] = Dot(R(j), z);
    std::copy(z, z + s_.keys_unit, D(slot));
    it_.slot[slot] = static_cast<std::int32_t>(j);
    it_.system[slot] = system;
    return true;
  }

  /// One step of the right-hand side in slot p; its next direction is in slot `kept`. False: it is
  /// done.
  bool Step(std::int64_t p, std::int64_t n, double goal, std::int64_t saved) const {
    const std::int64_t j = it_.slot[p];
    const std::int32_t system = it_.system[p];
    const Vec fade = Spread(systems_.Fade(system));
    const Vec factor = hn::Set(Tag(), systems_.Factor(system));
    T* const direction = D(p);
    T* const product = AD(p);
    Vec sum = hn::Zero(Tag()), length = sum;
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec own = hn::Load(d, direction + v);
      const Vec ad = systems_.Finish(d, fade, factor, product, direction, v);
      hn::Store(ad, d, product + v);
      sum = hn::MulAdd(ad, own, sum);
      length = hn::MulAdd(own, own, length);
    });
    const double curvature = Sum(sum);
    it_.iterations[j] = n;
    if (curvature <= kRounding * systems_.Trace(system) * Sum(length)) {
      // A is singular along d, and q has a part there.
      it_.status[j] = kNotConverged;
      return false;
    }
    const Vec alpha = Spread(it_.product[j] / curvature);
    T* const x = X(j);
    T* const r = R(j);
    sum = hn::Zero(Tag());
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec step = hn::MulAdd(alpha, hn::Load(d, direction + v), hn::Load(d, x + v));
      const Vec left = hn::NegMulAdd(alpha, hn::Load(d, product + v), hn::Load(d, r + v));
      hn::Store(step, d, x + v);
      hn::Store(left, d, r + v);
      sum = hn::MulAdd(left, left, sum);
    });
    const double residual = Sum(sum);  // its square
    if (residual <= goal * goal) return false;
    if (n == how_.steps) {
      if (how_.tolerance > 0 && residual > goal * goal) it_.status[j] = kNotConverged;
      return false;
    }
    const T* const z = systems_.Precondition(system, r, it_.row);
    const double next = z == r ? residual : Dot(r, z);
    if (next <= kRounding * it_.gain[j] * residual) {  // so is P, along r
      it_.status[j] = kNotConverged;
      return false;
    }
    it_.gain[j] = std::max(it_.gain[j], next / residual);
    const Vec beta = Spread(next / it_.product[j]);
    it_.product[j] = next;
    T* const to = D(saved);
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      hn::Store(hn::MulAdd(beta, hn::Load(d, direction + v), hn::Load(d, z + v)), d, to + v);
    });
    it_.slot[saved] = static_cast<std::int32_t>(j);
    it_.system[saved] = system;
    return true;
  }

  const Iteration& how_;
  const PrefixSystems<T>& systems_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIONS_INL_H_
