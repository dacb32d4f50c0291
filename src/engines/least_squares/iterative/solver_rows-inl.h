// What solvers that iterate on rows of right-hand sides share. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_SOLVER_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_SOLVER_ROWS_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_SOLVER_ROWS_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_SOLVER_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/prepared_systems-inl.h"
#include "src/engines/least_squares/iterative/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Right-hand sides are rows; row j belongs to system j / `per_system`, as many as there are. What
/// becomes of each is left in sides.status (of ttr::Status) and sides.iterations.
template <class T>
class SolverRows {
 public:
  using Tag = hn::ScalableTag<T>;
  using Vec = hn::Vec<Tag>;
  static constexpr std::int8_t kSolved = 0, kRegularised = 1, kNotConverged = 2;

  SolverRows(const Iteration& how, const PreparedSystems<T>& prepared, const Scratch<T>& s,
             const IterationScratch<T>& it)
      : how_(how),
        prepared_(prepared),
        systems_(prepared.systems()),
        s_(s),
        it_(it),
        sides_(it.sides) {}

 protected:
  T* D(std::int64_t p) const { return it_.d.Row(p); }
  T* AD(std::int64_t p) const { return it_.ad.Row(p); }
  T* R(std::int64_t j) const { return it_.r.Row(j); }
  T* X(std::int64_t j) const { return it_.x.Row(j); }

  std::int32_t SystemOf(std::int64_t j, std::int64_t per_system) const {
    return static_cast<std::int32_t>(std::min(j / per_system, systems_.count() - 1));
  }
  void Clear(std::int64_t j) const {
    for (T* const row : {D(j), X(j), R(j)}) std::fill(row, row + s_.keys_unit, T(0));
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
  void Products(std::int64_t rows) const { systems_.Multiply(it_.d, sides_.system, rows, it_.ad); }

  const Iteration& how_;
  const PreparedSystems<T>& prepared_;
  const PrefixSystems<T>& systems_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
  const SideScratch& sides_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_SOLVER_ROWS_INL_H_
