// The backward pass: queries with the pairs that they see, then pairs with the queries that see
// them. Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_GRADIENT_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_GRADIENT_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/pair_gradients-inl.h"
#include "src/engines/local_polynomial/exact-inl.h"
#include "src/engines/local_polynomial/fits-inl.h"
#include "src/engines/local_polynomial/slopes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

/// What both passes do with a group of queries and a block of pairs.
template <class T>
class GradientBlocks {
 protected:
  GradientBlocks(const GradientTask& task, const GradientScratch<T>& scratch)
      : task_(task), m_(task.memory), g_(task.gradient), s_(scratch) {}

  bool ByDistance() const { return common::IsByDistance(task_.options.kernel); }
  std::int64_t KeyWidth() const { return linalg::RoundUp(m_.key_dim, kUnit); }
  std::int64_t ValueWidth() const { return linalg::RoundUp(m_.value_dim, kUnit); }

  FitRecord<T> RecordOf(std::int64_t first) const {
    ScratchLayout layout(g_.records + static_cast<std::size_t>(first / kQueries) * g_.record_bytes);
    return {task_.monomials.count, m_.key_dim, layout};
  }

  void LoadOutputGradients(std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const common::Place place = common::Place::Of(m_, first + i);
      sn::LoadRow(g_.dy.Of(place.query), place.token, 0, m_.value_dim, s_.dy.Row(i));
      std::fill(s_.dy.Row(i) + m_.value_dim, s_.dy.Row(i) + ValueWidth(), T(0));
    }
    linalg::ZeroRows(s_.dy, count, kQueries, ValueWidth());
  }

  void LoadValues(std::int64_t first, std::int64_t count) const {
    cn::LoadPairs(cn::ValuesOf(m_), first, count, m_.value_dim, s_.v);
    ln::Transpose(s_.v, linalg::RoundUp(count, kUnit), ValueWidth(), s_.vt);
  }

  /// s.a = dy . v of values that are loaded.
  void TakeNumbers(std::int64_t count) const {
    const std::int64_t columns = linalg::RoundUp(count, kUnit);
    ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(s_.dy), s_.vt, kQueries,
                                 ln::Whole{columns, m_.value_dim}, s_.rows);
    ln::Transpose(s_.rows, kQueries, columns, s_.a);
  }

  /// s.rows = s.ds times the kernel's slope along k - q, of pairs that take part; width(query,
  /// sum): of ds times that by the bandwidth.
  template <class Width>
  void TakeKernelSlopes(const WeightScratch<T>& weights, T width, std::int64_t queries,
                        std::int64_t count, const Width& by_width) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t columns = linalg::RoundUp(count, kUnit);
    linalg::ZeroRows(s_.ds, count, columns, kQueries);
    ln::Transpose(s_.ds, columns, kQueries, s_.rows);
    if (!ByDistance()) return;
    cn::WithKernel(task_.options.kernel, [&](auto kernel) {
      using K = decltype(kernel);
      if constexpr (K::kByDistance) {
        const auto w = hn::Set(d, width);
        for (std::int64_t i = 0; i < queries; ++i) {
          auto sum = hn::Zero(d);
          for (std::int64_t j = 0; j < columns; j += lanes) {
            T* const to = s_.rows.Row(i) + j;
            const auto ds = hn::Load(d, to);
            const auto x = hn::Load(d, weights.x.Row(i) + j);
            const auto nothing = hn::Eq(ds, hn::Zero(d));
            const auto along = hn::Mul(ds, K::Along(d, x, w));
            const auto by = hn::Mul(ds, K::ByWidth(d, x, w));
            sum = hn::Add(sum, hn::IfThenZeroElse(nothing, by));
            hn::Store(hn::IfThenZeroElse(nothing, along), d, to);
          }
          by_width(i, hn::GetLane(hn::SumOfLanes(d, sum)));
        }
      }
    });
  }

  const GradientTask& task_;
  const Memory& m_;
  const MemoryGradient& g_;
  const GradientScratch<T>& s_;
};

template <class T>
class QueryGradients : GradientBlocks<T> {
  using Base = GradientBlocks<T>;
  using Base::g_, Base::m_, Base::s_, Base::task_;

 public:
  QueryGradients(const GradientTask& task, const GradientScratch<T>& scratch)
      : Base(task, scratch),
        queries_{.options = task.options,
                 .memory = task.memory,
                 .monomials = task.monomials,
                 .first = task.first,
                 .count = task.count},
        weights_(WithoutMarks(scratch.weights)),
        fits_(queries_, weights_, scratch.fit, scratch.means, 2),
        record_(this->RecordOf(task.first)) {}

  void Run() {
    this->LoadOutputGradients(task_.first, task_.count);
    LeaveOutIdle();
    fits_.Run([&](std::int64_t first, std::int64_t count) {
      this->LoadValues(first, count);
      this->TakeNumbers(count);
      return &s_.a;
    });
    Record();
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (fits_.NeedsExact(i)) RecordExact(i);
    }
    Finish();
    linalg::ZeroRows(s_.dq, 0, kQueries, this->KeyWidth());
    std::fill_n(s_.fit.sides, m_.key_dim * kQueries, T(0));
    fits_.weights().ForBlocks(
        [&](std::int64_t first, std::int64_t count) { AddPairs(first, count); });
    Store();
  }

 private:
  static std::int64_t Lanes() { return Fit<T>::Lanes(); }
  std::int64_t Wide() const { return s_.fit.wide; }
  bool IsLinear() const { return task_.options.degree == 1; }

  /// Queries whose dy is zero take no part, even where their numbers are NaN.
  void LeaveOutIdle() {
    std::array<bool, kQueries> idle{};
    for (std::int64_t i = 0; i < task_.count; ++i) {
      const T* const dy = s_.dy.Row(i);
      idle[i] = std::all_of(dy, dy + m_.value_dim, [](T x) { return x == 0; });
    }
    fits_.weights().LeaveOut(idle);
  }

  static WeightScratch<T> WithoutMarks(WeightScratch<T> scratch) {
    scratch.marks = nullptr;
    return scratch;
  }

  void Record() const {
    const FitScratch<T>& fit = s_.fit;
    const std::int64_t numbers = Wide() * kQueries;
    std::copy_n(fit.centres, m_.key_dim * kQueries, record_.centres);
    std::copy_n(fit.means, numbers, record_.means);
    std::copy_n(fit.sides, numbers, record_.u);
    std::copy_n(fit.sides + numbers, numbers, record_.s);
    std::copy_n(fit.totals, kQueries, record_.totals);
    std::copy_n(weights_.tops, kQueries, record_.tops);
    std::copy_n(weights_.sums, kQueries, record_.sums);
    std::copy_n(weights_.hits, kQueries, record_.hits);
    std::fill_n(record_.singular, kQueries, T(0));
    std::fill_n(record_.twice, numbers, T(0));
    std::fill_n(record_.normal, numbers, T(0));
  }

  /// Number j of query i in an array of lanes with `rows` rows a vector.
  T& At(T* lanes, std::int64_t rows, std::int64_t i, std::int64_t j) const {
    return lanes[(i / Lanes() * rows + j) * Lanes() + i % Lanes()];
  }

  void RecordExact(std::int64_t i) const {
    std::vector<double> value(static_cast<std::size_t>(m_.value_dim));
    const ExactFit fit(queries_, task_.first + i, 1, [&](std::int64_t pair, double* a) {
      cn::ValuesOf(m_).Load(pair, m_.value_dim, value.data());
      *a = 0;
      for (std::int64_t c = 0; c < m_.value_dim; ++c) {
        *a += value[c] * static_cast<double>(s_.dy.Row(i)[c]);
      }
    });
    const ExactFit::Systems systems = fit.Differentiate();
    record_.totals[i] = static_cast<T>(systems.total);
    record_.singular[i] = fit.singular() ? T(1) : T(0);
    for (std::int64_t j = 0; j < task_.monomials.count; ++j) {
      double mean = systems.mean[j];
      if (IsLinear()) {
        // Counted from the mean itself.
        const double at = mean + static_cast<double>(s_.weights.q.Row(i)[j]);
        T& centre = At(record_.centres, m_.key_dim, i, j);
        centre = static_cast<T>(at);
        mean = at - static_cast<double>(centre);
      }
      At(record_.means, Wide(), i, j) = static_cast<T>(mean);
      At(record_.u, Wide(), i, j) = static_cast<T>(systems.u[j]);
      At(record_.s, Wide(), i, j) = static_cast<T>(systems.s[j]);
      At(record_.twice, Wide(), i, j) = static_cast<T>(systems.twice[j]);
      At(record_.normal, Wide(), i, j) = static_cast<T>(systems.normal[j]);
    }
  }

  /// ridge u . s.
  void Finish() const {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      double product = 0;
      for (std::int64_t j = 0; j < task_.monomials.count; ++j) {
        product += static_cast<double>(At(record_.u, Wide(), i, j)) *
                   static_cast<double>(At(record_.s, Wide(), i, j));
      }
      record_.dots[i] = static_cast<T>(m_.ridge * product);
      if (i < task_.count) {
        g_.ridge_sums[task_.first + i] = product;
        g_.width_sums[task_.first + i] = 0;
      }
    }
  }

  void AddPairs(std::int64_t first, std::int64_t count) {
    Weights<T>& weights = fits_.weights();
    if (!weights.Share(first, count)) return;
    this->LoadValues(first, count);
    this->TakeNumbers(count);
    IsLinear() ? Differentiate<false>(count) : Differentiate<true>(count);
    this->TakeKernelSlopes(
        weights_, weights.width(), task_.count, count,
        [&](std::int64_t i, T sum) { g_.width_sums[task_.first + i] += static_cast<double>(sum); });
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.rows), s_.weights.k, kQueries,
                                 ln::Whole{this->KeyWidth(), count}, s_.dq);
    if (!this->ByDistance()) return;
    for (std::int64_t i = 0; i < task_.count; ++i) {
      const T sum = sn::Sum(count, static_cast<const T*>(s_.rows.Row(i)));
      sn::AddScaled(m_.key_dim, -sum, static_cast<const T*>(s_.weights.q.Row(i)), s_.dq.Row(i));
    }
  }

  template <bool ADJOINT>
  void Differentiate(std::int64_t count) const {
    const ln::SystemTag<T> d;
    const Slopes<T> slopes(task_.monomials, record_, s_);
    for (std::int64_t vector = 0; vector < Fit<T>::Vectors(); ++vector) {
      const std::int64_t lane = vector * Lanes();
      for (std::int64_t j = 0; j < count; ++j) {
        const auto share = hn::Load(d, s_.weights.p.Row(j) + lane);
        if (hn::AllTrue(d, hn::Eq(share, hn::Zero(d)))) {
          hn::Store(share, d, s_.ds.Row(j) + lane);
          continue;
        }
        const auto a = hn::Load(d, s_.a.Row(j) + lane);
        const auto gradient =
            slopes.template Of<ADJOINT>(vector, s_.weights.k.Row(j), {share, share, a});
        hn::Store(gradient.ds, d, s_.ds.Row(j) + lane);
        if constexpr (ADJOINT) SubtractAdjoint(slopes, lane);
      }
    }
  }

  /// The gradient by q is minus the sum over pairs of those by k - q. (The sum from scores is in
  /// s.dq, and is still to be multiplied by the scale.)
  void SubtractAdjoint(const Slopes<T>& slopes, std::int64_t lane) const {
    const ln::SystemTag<T> d;
    for (std::int64_t c = 0; c < m_.key_dim; ++c) {
      T* const to = s_.fit.sides + (c * kQueries + lane);
      hn::Store(hn::Sub(hn::Load(d, to), slopes.Adjoint(c)), d, to);
    }
  }

  void Store() const {
    const cn::PairGradientRows<T> rows(m_, g_, s_.row, s_.spare);
    const T scale = this->ByDistance() ? T(1) : static_cast<T>(task_.options.scale);
    for (std::int64_t i = 0; i < task_.count; ++i) {
      T* const row = s_.dq.Row(i);
      for (std::int64_t c = 0; c < m_.key_dim; ++c) {
        // In degree 1 the shares of e sum to 1, and residuals to 0.
        const T fitted = IsLinear() ? At(record_.s, Wide(), i, c) : s_.fit.sides[c * kQueries + i];
        row[c] = scale * row[c] + fitted;
      }
      rows.StoreQuery(common::Place::Of(m_, task_.first + i), row);
    }
  }

  const Task queries_;
  const WeightScratch<T> weights_;
  Fits<T> fits_;
  const FitRecord<T> record_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_GRADIENT_INL_H_
