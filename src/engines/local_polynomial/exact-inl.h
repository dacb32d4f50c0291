// The fit of one query whose system is singular, or nearly, in double and by orthogonal factors.
// Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_EXACT_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_EXACT_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_EXACT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/queries-inl.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/rounding.h"
#include "src/linalg/row_factor.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;

/// z = -(X^T X)^+ f_bar of the rows sqrt(p_i) (f_i - f_bar), and of sqrt(ridge) I: the factor of
/// these rows knows their rank as their squares do not. Pair by pair.
class ExactFit {
 public:
  ExactFit(const Task& task, std::int64_t row)
      : m_(task.memory),
        f_(task.monomials),
        kernel_(task.options.kernel),
        width_(cn::WidthOf<double>(kernel_, m_.bandwidth)),
        seen_(common::QueryBlock(m_, row).SeenByOne(0)),
        reference_(cn::ReferenceOf(m_, seen_)),
        q_(Size(m_.key_dim)),
        scaled_(q_.size()),
        key_(q_.size()),
        one_(Size(f_.count)),
        mean_(one_.size()),
        z_(one_.size()) {
    const common::Place place = common::Place::Of(m_, row);
    cn::LoadQuery(m_, place, 1, q_.data());
    cn::LoadQuery(m_, place, common::IsByDistance(kernel_) ? 1 : task.options.scale,
                  scaled_.data());
    SumWeights();
    Factor();
  }

  /// What a gradient needs beside: by numbers a of the pairs, of mean `total`.
  struct Systems {
    double total = 0;
    std::vector<double> mean, u, s;
    std::vector<double> twice, normal;  // of a singular system, else 0
  };

  /// number(pair, room for a value) = a.
  template <class Number>
  Systems Differentiate(const Number& number) const {
    std::vector<double> covariance(one_.size()), value(Size(m_.value_dim));
    Systems result{.mean = mean_, .u = z_, .s = one_, .twice = covariance, .normal = covariance};
    ForPairs([&](std::int64_t i, double p) {
      const double a = number(i, value.data());
      result.total += p * a;
      for (std::int64_t j = 0; j < f_.count; ++j) covariance[j] += p * a * (one_[j] - mean_[j]);
    });
    for (double& u : result.u) u = finite_ ? -u : std::numeric_limits<double>::quiet_NaN();
    factor_.Solve(covariance.data(), result.s.data());
    if (!singular()) return result;
    factor_.Solve(result.s.data(), result.twice.data());
    factor_.Project(mean_.data(), result.normal.data());
    for (std::size_t j = 0; j < one_.size(); ++j) result.normal[j] = mean_[j] - result.normal[j];
    return result;
  }

  bool singular() const { return factor_.singular(); }

  /// y, m.value_dim numbers. 1 + (f_i - f_bar)^T z comes from both whitened: z itself has the
  /// condition of the system, which is the square of that of the rows.
  template <class T>
  void Answer(T* y) const {
    std::vector<double> sums(Size(m_.value_dim)), value(sums.size());
    std::vector<double> whitened(Size(factor_.rank())), mean(whitened.size());
    factor_.Whiten(mean_.data(), mean.data());
    ForPairs([&](std::int64_t i, double p) {
      for (std::int64_t j = 0; j < f_.count; ++j) one_[j] -= mean_[j];
      factor_.Whiten(one_.data(), whitened.data());
      double e = 1;
      for (std::size_t j = 0; j < mean.size(); ++j) e -= whitened[j] * mean[j];
      cn::ValuesOf(m_).Load(i, m_.value_dim, value.data());
      for (std::int64_t c = 0; c < m_.value_dim; ++c) sums[c] += p * e * value[c];
    });
    for (std::int64_t c = 0; c < m_.value_dim; ++c) {
      y[c] = finite_ ? static_cast<T>(sums[c]) : std::numeric_limits<T>::quiet_NaN();
    }
  }

 private:
  static std::size_t Size(std::int64_t count) { return static_cast<std::size_t>(count); }

  /// log (w s) of a pair, whose key is loaded.
  double LogWeight(std::int64_t i) const {
    const double offset = m_.weighted ? cn::OffsetOf(m_, i) - reference_ : 0;
    if (offset == -std::numeric_limits<double>::infinity()) return offset;
    const bool by_distance = common::IsByDistance(kernel_);
    double x = 0;
    for (std::int64_t c = 0; c < m_.key_dim; ++c) {
      const double d = key_[c] - scaled_[c];
      x += by_distance ? d * d : key_[c] * scaled_[c];
    }
    const hn::CappedTag<double, 1> d;
    double log = 0;
    cn::WithKernel(kernel_, [&](auto kernel) {
      log = hn::GetLane(kernel.Of(d, hn::Set(d, x), hn::Set(d, width_)));
    });
    return log + offset;
  }

  void LoadKey(std::int64_t i) const { cn::KeysOf(m_).Load(i, m_.key_dim, key_.data()); }

  void SumWeights() {
    top_ = cn::kNever<double>;
    for (std::int64_t i = seen_.first; i < seen_.end; ++i) {
      LoadKey(i);
      top_ = std::max(top_, LogWeight(i));
    }
    for (std::int64_t i = seen_.first; i < seen_.end; ++i) {
      LoadKey(i);
      sum_ += std::exp(LogWeight(i) - top_);
    }
    ForPairs([&](std::int64_t, double p) {
      for (std::int64_t j = 0; j < f_.count; ++j) mean_[j] += p * one_[j];
    });
  }

  void Factor() {
    constexpr std::int64_t kRows = 32;
    factor_.Start(f_.count, std::sqrt(m_.ridge));
    std::vector<double> rows(Size(kRows * f_.count));
    std::int64_t filled = 0;
    // Heavy rows first: beside them light ones keep their digits.
    std::vector<std::pair<double, std::int64_t>> order;
    ForPairs([&](std::int64_t i, double p) { order.emplace_back(-p, i); });
    std::sort(order.begin(), order.end());
    for (const auto& [weight, i] : order) {
      LoadKey(i);
      Expand();
      const double root = std::sqrt(-weight);
      double* const row = rows.data() + filled * f_.count;
      for (std::int64_t j = 0; j < f_.count; ++j) {
        row[j] = root * (one_[j] - mean_[j]);
        finite_ = finite_ && std::isfinite(row[j]);
      }
      if (++filled == kRows) {
        factor_.Add(rows.data(), filled);
        filled = 0;
      }
    }
    factor_.Add(rows.data(), filled);
    // Centring rounds at eps times the size of what is centred.
    factor_.Finish(linalg::Rounding<double>(f_.count));
    factor_.Solve(mean_.data(), z_.data());
    for (double& z : z_) z = -z;
  }

  /// The monomials of the key that is loaded.
  void Expand() const {
    for (std::int64_t c = 0; c < f_.channels; ++c) one_[c] = key_[c] - q_[c];
    for (std::int64_t j = f_.channels; j < f_.count; ++j) {
      one_[j] = one_[f_.before[j]] * one_[f_.channel[j]];
    }
  }

  /// use(pair, share) of all that have a share, their monomials in one_.
  template <class Use>
  void ForPairs(const Use& use) const {
    for (std::int64_t i = seen_.first; i < seen_.end; ++i) {
      LoadKey(i);
      const double p = std::exp(LogWeight(i) - top_) / sum_;
      if (p == 0) continue;
      Expand();
      use(i, p);
    }
  }

  const Memory& m_;
  const Monomials& f_;
  const common::Kernel kernel_;
  const double width_;
  const Range seen_;
  const double reference_;
  double top_ = 0, sum_ = 0;
  bool finite_ = true;
  std::vector<double> q_, scaled_;
  mutable std::vector<double> key_, one_;
  std::vector<double> mean_, z_;
  linalg::RowFactor factor_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_EXACT_INL_H_
