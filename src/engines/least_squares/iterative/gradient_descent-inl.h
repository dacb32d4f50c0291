// Gradient descent, and the slope of its steps. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_GRADIENT_DESCENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_GRADIENT_DESCENT_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_GRADIENT_DESCENT_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_GRADIENT_DESCENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/solver_rows-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// d <- P (q - A x) + m d, x <- x + eta d from 0, n times; the first step needs no product. d is
/// called a step.
template <class T>
class GradientDescent : public SolverRows<T> {
  using Base = SolverRows<T>;
  using Base::D, Base::AD, Base::R, Base::X, Base::ForVectors, Base::Spread, Base::Products,
      Base::how_, Base::prepared_, Base::systems_, Base::s_, Base::it_, Base::sides_;
  using typename Base::Tag, typename Base::Vec;

 public:
  using Base::Base;

  /// x in the rows of it_.d. `steps`: where step n of row j is left, in row n rows + j, if at all.
  void Solve(const Block<T>& q, std::int64_t rows, const Block<T>& steps) const {
    for (std::int64_t n = 0; n < how_.steps; ++n) {
      if (n > 0) Products(rows);
      for (std::int64_t j = 0; j < rows; ++j) {
        const std::int64_t system = sides_.system[j];
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
        const T* const step = how_.momentum ? AddMomentum(n, j, residual)
                                            : prepared_.Precondition(system, residual, it_.row);
        if (steps.data != nullptr) std::copy(step, step + s_.keys_unit, steps.Row(n * rows + j));
        const Vec eta = Spread(how_.given ? static_cast<double>(it_.etas[j * how_.steps + n])
                                          : prepared_.StepSize(system));
        ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
          hn::Store(hn::MulAdd(eta, hn::Load(d, step + v), hn::Load(d, x + v)), d, x + v);
        });
      }
    }
  }

 private:
  /// Step n of row j without P: the residual and a share of the step before.
  const T* AddMomentum(std::int64_t n, std::int64_t j, const T* residual) const {
    T* const step = X(j);
    if (n == 0) {
      std::copy(residual, residual + s_.keys_unit, step);
      return step;
    }
    const Vec share = hn::Set(Tag(), it_.momentum[j]);
    ForVectors([&](auto d, std::int64_t v) HWY_ATTR {
      hn::Store(hn::MulAdd(share, hn::Load(d, step + v), hn::Load(d, residual + v)), d, step + v);
    });
    return step;
  }
};

/// The slope of n steps, exactly. They are linear in q, and their adjoint is the same recurrence
/// from u = B dy. With e_i the i-th step of x (from 1), without momentum P r_i, and f_i that of z,
///
///     dL/dA = -eta sum_{0 < i < n} f_{n-i} x_i^T - eta sum_{0 < i <= n} D(f_{n+1-i} e_i^T)
///
/// where D keeps the blocks whose inverses P is made of. That of a singular block moves within its
/// range, too: + D((P z)(q - D(A) P q)^T), for all but q lies in the range of D(A). A P of low rank
/// moves as LowRankSlope says. There is no P beside momentum.
template <class T>
class DescentSlope {
 public:
  DescentSlope(const Options& options, const Memory& memory, const PreparedSystems<T>& prepared,
               const IterationScratch<T>& it, const DescentSlopeScratch<T>& scratch,
               std::int64_t keys_unit, const InputSlopes& inputs)
      : how_(options.iteration),
        dim_(memory.key_dim()),
        unit_(keys_unit),
        inputs_(inputs),
        queries_(memory.queries),
        low_rank_pairs_(LowRankPairs(options, memory.key_dim())),
        prepared_(prepared),
        it_(it),
        s_(scratch),
        blocks_(dim_, keys_unit, it.p.block, scratch.blocks),
        low_rank_(how_, dim_, prepared.low_rank(), prepared.spectra(), scratch.low_rank) {}

  /// The pairs, blocks and worth of the j-th of `read.count` tokens, whose `sides` (q and u) and
  /// `solutions` (x and z) are rows, `queries` of each a token.
  void Store(const Reads& read, std::int64_t j, const Block<T>& sides,
             const Block<T>& solutions) const {
    const std::int64_t token = read.begin + j;
    const std::int64_t system = std::min(j, prepared_.systems().count() - 1);
    if (blocks_.any()) blocks_.Clear(token);
    for (std::int64_t r = 0; r < queries_; ++r) {
      const std::int64_t q = 2 * j * queries_ + r;
      const Side side{token,
                      token * queries_ + r,
                      system,
                      prepared_.systems().Fade(system),
                      prepared_.StepSize(system),
                      how_.given ? it_.etas + q * how_.steps : nullptr,
                      how_.momentum ? static_cast<double>(it_.momentum[q]) : 0,
                      s_.steps.Rows(q),
                      s_.steps.Rows(q + queries_),
                      2 * read.count * queries_};
      StorePairs(side);
      if (low_rank_pairs_ > 0) {
        StoreLowRank(side, sides.Row(q), sides.Row(q + queries_));
        // No worth: f(A) (A, B) -> f(c A) (c A, c B), nothing is won by both together.
      } else if (blocks_.any()) {
        SubtractBlocks(side, sides.Row(q), solutions.Row(q + queries_));
      } else {
        s_.worth[token] += Worth(side, solutions.Row(q), sides.Row(q + queries_));
        if (how_.relative) AddStepSlope(side, sides.Row(q + queries_));
        const std::int64_t z = 2 * j * queries_ + queries_;
        if (how_.given) AddStepSlopes(side, r, it_.etas + z * how_.steps);
        if (how_.momentum) AddMomentumSlope(side, r, it_.momentum[z]);
      }
    }
  }

 private:
  /// One query of a token, and its steps.
  struct Side {
    std::int64_t token, output, system;
    double c, eta;
    const T* etas;    // of every step, where they are given
    double momentum;  // or 0
    Block<T> x_steps, z_steps;
    std::int64_t rows;  // from one step to the next

    const T* E(std::int64_t i) const { return x_steps.Row((i - 1) * rows); }
    const T* F(std::int64_t i) const { return z_steps.Row((i - 1) * rows); }
    double Eta(std::int64_t i) const {
      return etas == nullptr ? eta : static_cast<double>(etas[i - 1]);
    }
  };

  /// <dL/dA, A> + <dL/dB, B>; without P, A x_i = r_0 - r_i, and r_i = e_{i+1} - m e_i.
  double Worth(const Side& side, const T* x, const T* u) const {
    const std::int64_t n = how_.steps;
    double worth = Dot(x, u);
    for (std::int64_t i = 1; i < n; ++i) {
      const T* const f = side.F(n - i);
      double product = Dot(f, side.E(1)) - Dot(f, side.E(i + 1));
      if (side.momentum != 0) product += side.momentum * Dot(f, side.E(i));
      worth -= side.Eta(i + 1) * product;
    }
    return worth;
  }

  /// dL/d eta, the same for all steps: sum_i f_{n+1-i} . (e_i - m e_{i-1}); without momentum all
  /// products are one.
  double EtaSlope(const Side& side, const T* u) const {
    const std::int64_t n = how_.steps;
    if (side.momentum == 0) return static_cast<double>(n) * Dot(side.E(n), u);
    double slope = 0;
    for (std::int64_t i = 1; i <= n; ++i) {
      slope += Dot(side.F(n + 1 - i), side.E(i));
      if (i > 1) slope -= side.momentum * Dot(side.F(n + 1 - i), side.E(i - 1));
    }
    return slope;
  }

  /// The size of steps is eta / b, b = |A|_F + the largest ridge beside A.
  void AddStepSlope(const Side& side, const T* u) const {
    if (side.eta == 0) return;
    const double by_bound = -side.eta * side.eta / how_.eta * EtaSlope(side, u);
    s_.bound_slope[side.token] += by_bound;
    s_.worth[side.token] += by_bound * how_.eta / side.eta;
  }

  /// dL/d eta_i = f_{n+1-i} . e_i of query r, added to those of the queries before; in the place of
  /// the sizes that z has taken.
  void AddStepSlopes(const Side& side, std::int64_t r, T* slopes) const {
    const std::int64_t n = how_.steps;
    for (std::int64_t i = 1; i <= n; ++i) {
      const T slope = static_cast<T>(Dot(side.F(n + 1 - i), side.E(i)));
      slopes[i - 1] = r == 0 ? slope : slopes[i - 1] + slope;
    }
    if (r == queries_ - 1 && inputs_.step) sn::StoreRow(slopes, side.token, 0, n, inputs_.step);
  }

  /// dL/dm = eta sum_{1 < i <= n} f_{n+1-i} . e_{i-1} of query r, in the same way.
  void AddMomentumSlope(const Side& side, std::int64_t r, T& slope) const {
    double own = 0;
    for (std::int64_t i = 2; i <= how_.steps; ++i) {
      own += side.eta * Dot(side.F(how_.steps + 1 - i), side.E(i - 1));
    }
    slope = r == 0 ? static_cast<T>(own) : slope + static_cast<T>(own);
    if (r == queries_ - 1 && inputs_.momentum) {
      sn::StoreRow(&slope, side.token, 0, 1, inputs_.momentum);
    }
  }

  void SubtractBlocks(const Side& side, const T* q, const T* z) const {
    const std::int64_t n = how_.steps;
    for (std::int64_t i = 1; i <= n; ++i) {
      blocks_.Subtract(side.token, side.eta * side.c, side.F(n + 1 - i), side.E(i));
    }
    if (blocks_.channels() == 1 || n == 0) return;
    const T* const pz = prepared_.Precondition(side.system, z, it_.row);
    T* const rest = s_.row;
    prepared_.blocks().MultiplyBlocks(side.system, side.E(1), s_.sums, rest);
    for (std::int64_t i = 0; i < dim_; ++i) rest[i] = q[i] - rest[i];
    blocks_.Subtract(side.token, -side.c, pz, rest);
  }

  /// eta_{i+1} c f_{n-i} and x_i.
  void StorePairs(const Side& side) const {
    const std::int64_t n = how_.steps;
    if (SumsPairs()) {
      for (std::int64_t p = 0; p < dim_; ++p) {
        for (T* const row : {s_.pairs.X(p, side.output), s_.pairs.Z(p, side.output)}) {
          std::fill(row, row + unit_, T(0));
        }
        s_.pairs.X(p, side.output)[p] = T(1);
      }
    }
    T* HWY_RESTRICT const x = s_.row;
    std::fill(x, x + unit_, T(0));
    for (std::int64_t i = 1; i < n; ++i) {
      const T* HWY_RESTRICT const step = side.E(i);
      const T eta = static_cast<T>(side.Eta(i));
      for (std::int64_t v = 0; v < unit_; ++v) x[v] += eta * step[v];
      StorePair(i - 1, side.output, x, side.F(n - i), static_cast<T>(side.Eta(i + 1) * side.c));
    }
  }

  void StoreLowRank(const Side& side, const T* q, const T* u) const {
    T* const x = s_.row;
    T* const z = it_.row;
    std::fill(x, x + unit_, T(0));
    std::fill(z, z + unit_, T(0));
    std::int64_t pair = how_.steps - 1;
    low_rank_.ForPairs(side.system, q, u, x, z, [&](T* row, const T* other) {
      if (side.c != 1) sn::Multiply(row, unit_, static_cast<T>(side.c));
      StorePair(pair++, side.output, row, other);
    });
  }

  /// Would there be more pairs than dimensions? Then the columns of their sum are stored, each
  /// beside a unit vector.
  bool SumsPairs() const { return how_.steps - 1 + low_rank_pairs_ > dim_; }

  /// x and `factor` times `other`.
  void StorePair(std::int64_t pair, std::int64_t output, const T* x, const T* other,
                 T factor = 1) const {
    if (!SumsPairs()) {
      std::copy(x, x + unit_, s_.pairs.X(pair, output));
      T* HWY_RESTRICT const z = s_.pairs.Z(pair, output);
      for (std::int64_t v = 0; v < unit_; ++v) z[v] = factor * other[v];
      return;
    }
    for (std::int64_t p = 0; p < dim_; ++p) {
      T* HWY_RESTRICT const z = s_.pairs.Z(p, output);
      const T by = x[p] * factor;
      for (std::int64_t v = 0; v < unit_; ++v) z[v] += by * other[v];
    }
  }

  double Dot(const T* a, const T* b) const { return sn::WideDot(dim_, a, b); }

  const Iteration& how_;
  const std::int64_t dim_, unit_;
  const InputSlopes inputs_;
  const std::int64_t queries_, low_rank_pairs_;
  const PreparedSystems<T>& prepared_;
  const IterationScratch<T>& it_;
  const DescentSlopeScratch<T> s_;
  const BlockSlope<T> blocks_;
  const LowRankSlope<T> low_rank_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_GRADIENT_DESCENT_INL_H_
