// Systems of some queries by conjugate gradients, all queries together. Compiled once for every
// target.

#if defined(TTR_LOCAL_POLYNOMIAL_CONJUGATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_CONJUGATE_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_CONJUGATE_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_CONJUGATE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/panels-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Sixteenths of the channels: iterations that take about as long as elimination.
inline constexpr std::int64_t kIterationShare = 3;

/// The covariance in degree 1 applied to kQueries columns at once, with x_i = k_i - centre and m
/// the means of x_i:
///
///     A z = sum_i p_i x_i (x_i . z - m . z) + ridge z
///
/// two products with register tiles a block of pairs, where SharedMoments forms half a Gram matrix.
/// Numbers of queries lie [channel][query].
template <class T>
class ConjugateGradients {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  ConjugateGradients(std::int64_t channels, double ridge, const FitScratch<T>& fit)
      : channels_(channels), ridge_(static_cast<T>(ridge)), fit_(fit), s_(fit.conjugate) {}

  /// Can it be worth trying, by pairs that are seen by any query of the task?
  bool Takes(std::int64_t pairs) const {
    return s_.shares.data != nullptr && ridge_ > 0 && pairs > channels_ && pairs <= kKeptPairs;
  }

  void StartKeys() {
    std::fill(s_.keys, s_.keys + Wide(), T(0));
    key_squares_ = 0;
  }
  void AddKeys(const Block<T>& k, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T* const row = k.Row(i);
      sn::AddScaled(Wide(), T(1), row, s_.keys);
      key_squares_ += sn::Dot(Wide(), row, row);
    }
  }
  /// Do few iterations suffice, were all keys weighed alike?
  bool IsWellConditioned(std::int64_t pairs) const {
    if (pairs == 0) return false;
    const auto count = static_cast<T>(pairs);
    const T squares = sn::Dot(Wide(), static_cast<const T*>(s_.keys), s_.keys) / (count * count);
    return IsSmall(key_squares_ / count - squares);
  }

  void Start() const {
    for (const Block<T>* block : {&s_.means, &s_.squares}) {
      linalg::ZeroRows(*block, 0, Wide(), kQueries);
    }
  }

  /// Keys less the centre in fit.centred.k and shares of a block of pairs, from pair `at` of those
  /// that are kept.
  void Add(std::int64_t at, const Block<T>& p, std::int64_t count) const {
    const D d;
    const std::int64_t whole = linalg::RoundUp(count, kUnit);
    linalg::CopyRows(p, whole, kQueries, s_.shares.Rows(at));
    AddProducts(fit_.centred.k, p, count, s_.means);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t c = 0; c < Wide(); c += Lanes()) {
        const V x = hn::Load(d, fit_.centred.k.Row(i) + c);
        hn::Store(hn::Mul(x, x), d, s_.products.Row(i) + c);
      }
    }
    AddProducts(s_.products, p, count, s_.squares);
  }

  /// Has query i digits in its variances, and a ridge that keeps the condition low?
  bool IsSound(std::int64_t i) const {
    T trace = 0;
    for (std::int64_t c = 0; c < channels_; ++c) {
      const T second = s_.squares.Row(c)[i], mean = s_.means.Row(c)[i];
      const T variance = second - mean * mean;
      if (!(variance + ridge_ >= second / 32)) return false;
      trace += variance;
    }
    return IsSmall(trace);
  }

  /// Solves for what is in `right`, [channel][query], the first side of the fit. for_blocks(use):
  /// use(at, count) of all blocks of pairs, whose keys less the centre are in fit.centred.k.
  /// `solves` keeps the queries that converge before elimination would be done.
  template <class ForBlocks>
  void Solve(const ForBlocks& for_blocks, std::array<bool, kQueries>& solves) const {
    const std::int64_t most = channels_ * kIterationShare / 16;
    Begin(solves);
    for (std::int64_t iteration = 0; IsUnderWay(solves); ++iteration) {
      if (iteration == most) {
        GiveUp(solves, [](double, double) { return true; });
        break;
      }
      Apply(for_blocks);
      Step();
      if (iteration % 4 != 3) continue;
      // A query is hopeless if it does not converge in time at its rate so far.
      GiveUp(solves, [&](double begun, double left) {
        return !((begun - left) * static_cast<double>(most) >=
                 begun * static_cast<double>(iteration + 1));
      });
    }
    Scatter(s_.solution, fit_.sides);
    Scatter(s_.means, fit_.means);
    std::fill_n(fit_.regular, kQueries, T(1));
    std::fill_n(fit_.cancelled, kQueries, T(0));
  }

  /// Room for a right-hand side.
  const Block<T>& right() const { return s_.residual; }
  const Block<T>& means() const { return s_.means; }

 private:
  static std::int64_t Lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }
  std::int64_t Wide() const { return linalg::RoundUp(channels_, kUnit); }

  /// Is the sum of variances small beside the ridge? More channels leave time for more iterations.
  bool IsSmall(T trace) const {
    const auto most = static_cast<T>(channels_ * channels_ / 1024);
    return trace <= ridge_ * most * static_cast<T>(channels_);
  }

  /// to += rows^T weights.
  void AddProducts(const Block<T>& rows, const Block<T>& weights, std::int64_t count,
                   const Block<T>& to) const {
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(rows), weights, Wide(),
                                 ln::Whole{kQueries, count}, to);
  }

  /// sums[query] = sum over channels of a b.
  void Dots(const Block<T>& a, const Block<T>& b, T* sums) const {
    const D d;
    for (std::int64_t q = 0; q < kQueries; q += Lanes()) {
      V sum = hn::Zero(d);
      for (std::int64_t c = 0; c < channels_; ++c) {
        sum = hn::MulAdd(hn::Load(d, a.Row(c) + q), hn::Load(d, b.Row(c) + q), sum);
      }
      hn::Store(sum, d, sums + q);
    }
  }

  bool IsDone(std::int64_t i) const { return s_.left[i] <= s_.allowed[i]; }

  bool IsUnderWay(const std::array<bool, kQueries>& solves) const {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      if (solves[i] && !IsDone(i)) return true;
    }
    return false;
  }

  /// Leaves out queries that are not done and `hopeless`. That is asked with how far they were from
  /// their tolerance at first and how far they are now, in powers of e.
  template <class Hopeless>
  void GiveUp(std::array<bool, kQueries>& solves, const Hopeless& hopeless) const {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      if (!solves[i] || IsDone(i)) continue;
      const double left = std::log(static_cast<double>(s_.left[i] / s_.allowed[i]));
      if (hopeless(kBegun, left)) solves[i] = false;
    }
  }

  void Begin(const std::array<bool, kQueries>& solves) const {
    linalg::ZeroRows(s_.solution, 0, Wide(), kQueries);
    linalg::CopyRows(s_.residual, Wide(), kQueries, s_.direction);
    Dots(s_.residual, s_.residual, s_.left);
    for (std::int64_t i = 0; i < kQueries; ++i) {
      if (!solves[i]) s_.left[i] = 0;
      s_.allowed[i] = s_.left[i] * (kTolerance * kTolerance);
    }
  }

  /// s.image = A direction.
  template <class ForBlocks>
  void Apply(const ForBlocks& for_blocks) const {
    const D d;
    for (std::int64_t c = 0; c < Wide(); ++c) {
      for (std::int64_t q = 0; q < kQueries; q += Lanes()) {
        hn::Store(hn::Mul(hn::Set(d, ridge_), hn::Load(d, s_.direction.Row(c) + q)), d,
                  s_.image.Row(c) + q);
      }
    }
    Dots(s_.means, s_.direction, s_.along);
    for_blocks([&](std::int64_t at, std::int64_t count) {
      const Block<T> p = s_.shares.Rows(at);
      ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(fit_.centred.k), s_.direction,
                                   linalg::RoundUp(count, kStrip), ln::Whole{kQueries, channels_},
                                   s_.weighed);
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t q = 0; q < kQueries; q += Lanes()) {
          T* const to = s_.weighed.Row(i) + q;
          const V z = hn::Sub(hn::Load(d, to), hn::Load(d, s_.along + q));
          hn::Store(hn::Mul(hn::Load(d, p.Row(i) + q), z), d, to);
        }
      }
      AddProducts(fit_.centred.k, s_.weighed, count, s_.image);
    });
  }

  void Step() const {
    const D d;
    Dots(s_.direction, s_.image, s_.along);
    for (std::int64_t i = 0; i < kQueries; ++i) {
      const bool done = IsDone(i);
      s_.along[i] = done ? T(0) : s_.left[i] / s_.along[i];
    }
    AddTimes(s_.along, s_.direction, s_.solution);
    for (std::int64_t i = 0; i < kQueries; ++i) s_.along[i] = -s_.along[i];
    AddTimes(s_.along, s_.image, s_.residual);
    Dots(s_.residual, s_.residual, s_.along);
    for (std::int64_t i = 0; i < kQueries; ++i) {
      const bool done = IsDone(i);
      const T before = s_.left[i];
      if (!done) s_.left[i] = s_.along[i];
      s_.along[i] = done ? T(0) : s_.along[i] / before;
    }
    for (std::int64_t c = 0; c < channels_; ++c) {
      for (std::int64_t q = 0; q < kQueries; q += Lanes()) {
        T* const to = s_.direction.Row(c) + q;
        hn::Store(hn::MulAdd(hn::Load(d, s_.along + q), hn::Load(d, to),
                             hn::Load(d, s_.residual.Row(c) + q)),
                  d, to);
      }
    }
  }

  /// to += factor x, a factor a query.
  void AddTimes(const T* factor, const Block<T>& x, const Block<T>& to) const {
    const D d;
    for (std::int64_t c = 0; c < channels_; ++c) {
      for (std::int64_t q = 0; q < kQueries; q += Lanes()) {
        const V sum = hn::Load(d, to.Row(c) + q);
        hn::Store(hn::MulAdd(hn::Load(d, factor + q), hn::Load(d, x.Row(c) + q), sum), d,
                  to.Row(c) + q);
      }
    }
  }

  /// [channel][query] to [vector][channel][lane].
  void Scatter(const Block<T>& from, T* to) const {
    const std::int64_t lanes = ln::SystemsAtOnce<T>();
    for (std::int64_t c = 0; c < channels_; ++c) {
      for (std::int64_t i = 0; i < kQueries; ++i) {
        to[(i / lanes * fit_.wide + c) * lanes + i % lanes] = from.Row(c)[i];
      }
    }
  }

  static constexpr T kTolerance = 4 * std::numeric_limits<T>::epsilon();
  const double kBegun = -2 * std::log(static_cast<double>(kTolerance));

  const std::int64_t channels_;
  const T ridge_;
  T key_squares_ = 0;
  const FitScratch<T>& fit_;
  const ConjugateScratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_CONJUGATE_INL_H_
