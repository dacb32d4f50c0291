// Conjugate gradients whose preconditioner is a factor that all right-hand sides share. Compiled
// once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_SOLVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_SOLVER_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_SOLVER_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_SOLVER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/chunk_factor-inl.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/iterative/systems-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/unroll.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Right-hand sides are columns: a step solves with the factor for all of them at once, and the
/// scalars of an iteration are vectors over them. What is not finite stays in its column. Those
/// that have converged go along with steps of length 0: they end within a step or two of each
/// other.
template <class T>
class ChunkFactorSolver {
 public:
  ChunkFactorSolver(const Iteration& how, const PrefixSystems<T>& systems,
                    const ChunkFactor<T>& factor, const Scratch<T>& s,
                    const IterationScratch<T>& it, const ChunkFactorScratch<T>& f)
      : how_(how), systems_(systems), factor_(factor), s_(s), it_(it), f_(f) {}

  /// x with (G_i + rho_i R) x = q, that is c_i times what solves system i, rows in scratch; i = j /
  /// `per_system` for row j of `q`. it.sides says what became of each.
  Block<T> Solve(const Block<T>& q, std::int64_t rows, std::int64_t per_system) {
    columns_ = RoundUp(rows, kUnit);
    per_system_ = per_system;
    const double goal =
        std::max(how_.tolerance, static_cast<double>(std::numeric_limits<T>::epsilon()));
    std::int64_t open = 0;
    for (std::int64_t j = 0; j < columns_; ++j) open += Start(q, j, rows, goal);
    ln::Transpose(it_.x, columns_, s_.keys_unit, f_.r);
    linalg::ZeroRows(f_.x, 0, s_.keys_unit, f_.x.stride);
    linalg::ZeroRows(f_.d, 0, s_.keys_unit, f_.d.stride);
    for (std::int64_t n = 1; n <= how_.steps && open > 0; ++n) {
      NextDirections(n == 1);
      MultiplyDirections();
      open = Advance(n, rows, goal);
    }
    ln::Transpose(f_.x, s_.keys_unit, columns_, it_.x);
    for (std::int64_t j = 0; j < rows; ++j) {
      if (it_.sides.size[j] != 1) {
        sn::Multiply(it_.x.Row(j), s_.keys_unit, static_cast<T>(it_.sides.size[j]));
      }
    }
    return it_.x;
  }

 private:
  using Tag = hn::ScalableTag<T>;
  using Vec = hn::Vec<Tag>;
  static constexpr std::int8_t kSolved = 0, kNotConverged = 2;
  static constexpr std::int64_t kSums = 4;  // that do not wait for each other; divides kUnit

  /// The j-th right-hand side, of unit length: squares neither overflow nor vanish. 1 where there
  /// is something to do; else its column is 0, and so stays its solution, or NaN.
  std::int64_t Start(const Block<T>& q, std::int64_t j, std::int64_t rows, double goal) const {
    T* const to = it_.x.Row(j);
    std::fill(to, to + s_.keys_unit, T(0));
    it_.sides.slot[j] = 0;  // 1: goes on
    f_.product[j] = f_.rho[j] = 0;
    if (j >= rows) return 0;
    it_.sides.status[j] = kSolved;
    it_.sides.iterations[j] = 0;
    f_.rho[j] =
        static_cast<T>(systems_.RidgeFactor(std::min(j / per_system_, systems_.count() - 1)));
    const double size = std::sqrt(sn::SumOfSquares(q.Row(j), s_.keys_unit));
    it_.sides.size[j] = std::isnan(size) ? size : 1;
    if (!(size > 0) || !std::isfinite(size) || goal >= 1) return 0;
    it_.sides.size[j] = size;
    for (std::int64_t v = 0; v < s_.keys_unit; ++v) {
      to[v] = static_cast<T>(static_cast<double>(q.Row(j)[v]) / size);
    }
    it_.sides.slot[j] = 1;
    return 1;
  }

  /// Calls each(tag, v) for every vector of columns.
  template <class Each>
  HWY_INLINE void ForColumns(const Each& each) const {
    const Tag d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t v = 0; v < columns_; v += lanes) each(d, v);
  }

  /// The sum over rows i of term(i), a vector.
  template <class Term>
  HWY_INLINE Vec Sum(const Term& term) const {
    const Tag d;
    Vec sums[kSums];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (std::int64_t i = 0; i < s_.keys_unit; i += kSums) {
      TTR_UNROLL
      for (int r = 0; r < kSums; ++r) sums[r] = term(i + r, sums[r]);
    }
    return hn::Add(hn::Add(sums[0], sums[2]), hn::Add(sums[1], sums[3]));
  }

  /// z = P r,  beta = r.z / old r.z,  d <- z + beta d
  void NextDirections(bool first) const {
    linalg::CopyRows(f_.r, s_.keys_unit, columns_, f_.z);
    factor_.Multiply(f_.z, columns_, per_system_);
    ForColumns([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec next = Sum([&](std::int64_t i, Vec sum) HWY_ATTR {
        return hn::MulAdd(hn::Load(d, f_.r.Row(i) + v), hn::Load(d, f_.z.Row(i) + v), sum);
      });
      hn::Store(next, d, f_.beta + v);
    });
    for (std::int64_t j = 0; j < columns_; ++j) {
      const T next = f_.beta[j];
      f_.beta[j] = first || it_.sides.slot[j] == 0 ? T(0) : next / f_.product[j];
      f_.product[j] = next;
    }
    ForColumns([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec beta = hn::Load(d, f_.beta + v);
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        T* const to = f_.d.Row(i) + v;
        hn::Store(hn::MulAdd(beta, hn::Load(d, to), hn::Load(d, f_.z.Row(i) + v)), d, to);
      }
    });
  }

  /// ad = (G + rho R) d, and d.ad.
  void MultiplyDirections() const {
    const std::int64_t tokens = factor_.tokens();
    if (tokens > 0) {
      const Block<T> products = f_.d.Rows(s_.keys_unit);
      const std::int64_t unit = RoundUp(tokens, kUnit);
      ln::Multiply<ln::Into::kSet>(Left<T>::Of(s_.k), f_.d, unit, ln::Whole{columns_, s_.keys_unit},
                                   products);
      linalg::ZeroBelowStairs(products, unit, columns_, per_system_, tokens);
    }
    ln::Multiply<ln::Into::kSet>(Left<T>::Transposed(it_.stacked), f_.d, s_.keys_unit,
                                 ln::Whole{columns_, s_.keys_unit + tokens}, f_.ad);
    ForColumns([&](auto tag, std::int64_t v) HWY_ATTR {
      const Vec rho = hn::Load(tag, f_.rho + v);
      const Vec curvature = Sum([&](std::int64_t i, Vec sum) HWY_ATTR {
        T* const product = f_.ad.Row(i) + v;
        const Vec direction = hn::Load(tag, f_.d.Row(i) + v);
        const Vec ridge = hn::Mul(rho, hn::Set(tag, it_.ridge[i]));
        const Vec ad = hn::MulAdd(ridge, direction, hn::Load(tag, product));
        hn::Store(ad, tag, product);
        return hn::MulAdd(ad, direction, sum);
      });
      hn::Store(curvature, tag, f_.curvature + v);
    });
  }

  /// alpha = r.z / d.ad,  x <- x + alpha d,  r <- r - alpha ad. Returns how many go on.
  std::int64_t Advance(std::int64_t n, std::int64_t rows, double goal) const {
    for (std::int64_t j = 0; j < columns_; ++j) {
      f_.alpha[j] = 0;
      if (it_.sides.slot[j] == 0) continue;
      it_.sides.iterations[j] = n;
      if (f_.curvature[j] > 0) {
        f_.alpha[j] = f_.product[j] / f_.curvature[j];
      } else {  // singular along d, and q has a part there
        it_.sides.slot[j] = 0;
        it_.sides.status[j] = kNotConverged;
      }
    }
    ForColumns([&](auto d, std::int64_t v) HWY_ATTR {
      const Vec alpha = hn::Load(d, f_.alpha + v);
      const Vec squares = Sum([&](std::int64_t i, Vec sum) HWY_ATTR {
        T* const x = f_.x.Row(i) + v;
        T* const r = f_.r.Row(i) + v;
        hn::Store(hn::MulAdd(alpha, hn::Load(d, f_.d.Row(i) + v), hn::Load(d, x)), d, x);
        const Vec left = hn::NegMulAdd(alpha, hn::Load(d, f_.ad.Row(i) + v), hn::Load(d, r));
        hn::Store(left, d, r);
        return hn::MulAdd(left, left, sum);
      });
      hn::Store(squares, d, f_.residual + v);
    });
    std::int64_t open = 0;
    for (std::int64_t j = 0; j < rows; ++j) {
      if (it_.sides.slot[j] == 0) continue;
      if (static_cast<double>(f_.residual[j]) <= goal * goal) {
        it_.sides.slot[j] = 0;
      } else if (n == how_.steps) {
        it_.sides.status[j] = kNotConverged;
      } else {
        ++open;
      }
    }
    return open;
  }

  const Iteration& how_;
  const PrefixSystems<T>& systems_;
  const ChunkFactor<T>& factor_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
  const ChunkFactorScratch<T>& f_;
  std::int64_t columns_ = 0, per_system_ = 1;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_SOLVER_INL_H_
