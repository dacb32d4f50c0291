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

/// Least squares over the rows of the pairs: their factor knows their rank as their squares do not.
/// With h the heaviest pair, a reflection takes the constant out and leaves a row of every other,
///
///     sqrt(p_i) (f_i - g),    g = (f_bar + sqrt(p_h) f_h) / (1 + sqrt(p_h))
///
/// where f_h - f_bar would be nothing but rounding beside light pairs; the ridge adds sqrt(ridge)
/// I. Numbers of the pairs, what is fitted, go the same way. Pair by pair.
class ExactFit {
 public:
  /// load(pair, numbers): what is fitted, `sides` of them.
  template <class Load>
  ExactFit(const Task& task, std::int64_t row, std::int64_t sides, const Load& load)
      : m_(task.memory),
        f_(task.monomials),
        kernel_(task.options.kernel),
        width_(cn::WidthOf<double>(kernel_, m_.bandwidth)),
        seen_(common::QueryBlock(m_, row).SeenByOne(0)),
        place_(common::Place::Of(m_, row)),
        reference_(m_.weighted ? m_.weights.references[place_.token] : 0),
        q_(Size(m_.key_dim)),
        scaled_(q_.size()),
        key_(q_.size()),
        one_(Size(f_.count + sides)),
        mean_(one_.size()) {
    cn::LoadQuery(m_, place_, 1, q_.data());
    cn::LoadQuery(m_, place_, common::IsByDistance(kernel_) ? 1 : task.options.scale,
                  scaled_.data());
    SumWeights();
    Average(load);
    Factor(load);
  }

  bool singular() const { return finite_ && factor_.singular(); }

  /// The fit at the query of all sides.
  template <class T>
  void Predict(T* y) const {
    std::vector<double> w(Size(factor_.rank()));
    factor_.Whiten(mean_.data(), w.data());
    const std::int64_t sides = static_cast<std::int64_t>(mean_.size()) - f_.count;
    for (std::int64_t c = 0; c < sides; ++c) {
      double sum = mean_[f_.count + c];
      for (std::int64_t j = 0; j < factor_.rank(); ++j) sum -= w[j] * factor_.side(j)[c];
      y[c] = finite_ ? static_cast<T>(sum) : std::numeric_limits<T>::quiet_NaN();
    }
  }

  /// What a gradient needs, where one number a pair is fitted.
  struct Systems {
    double total = 0;  // its mean
    std::vector<double> mean, u, s;
    std::vector<double> twice, normal;  // of a singular system, else 0
  };

  Systems Differentiate() const {
    const std::vector<double> none(Size(f_.count));
    Systems result{.total = mean_.back(),
                   .mean = {mean_.begin(), mean_.end() - 1},
                   .u = none,
                   .s = none,
                   .twice = none,
                   .normal = none};
    Solve(mean_.data(), result.u.data());
    if (!finite_) std::fill(result.u.begin(), result.u.end(), std::nan(""));
    std::vector<double> side(Size(factor_.rank()));
    for (std::size_t j = 0; j < side.size(); ++j) {
      side[j] = *factor_.side(static_cast<std::int64_t>(j));
    }
    factor_.Return(side.data(), result.s.data());
    if (!singular()) return result;
    Solve(result.s.data(), result.twice.data());
    factor_.Project(mean_.data(), result.normal.data());
    for (std::size_t j = 0; j < none.size(); ++j) result.normal[j] = mean_[j] - result.normal[j];
    return result;
  }

 private:
  static std::size_t Size(std::int64_t count) { return static_cast<std::size_t>(count); }

  /// log (w s) of a pair, whose key is loaded.
  double LogWeight(std::int64_t i) const {
    const double offset = m_.weighted ? cn::LogWeightOf(m_, place_, i, reference_) : 0;
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

  void LoadKey(std::int64_t i) { cn::KeysOf(m_).Load(i, m_.key_dim, key_.data()); }

  void SumWeights() {
    top_ = cn::kNever<double>;
    for (std::int64_t i = seen_.first; i < seen_.end; ++i) {
      LoadKey(i);
      const double log = LogWeight(i);
      if (log > top_) heaviest_ = i;
      top_ = std::max(top_, log);
    }
    for (std::int64_t i = seen_.first; i < seen_.end; ++i) {
      LoadKey(i);
      sum_ += std::exp(LogWeight(i) - top_);
    }
  }

  template <class Load>
  void Average(const Load& load) {
    ForPairs(load, [&](std::int64_t, double p) {
      for (std::size_t j = 0; j < one_.size(); ++j) mean_[j] += p * one_[j];
    });
  }

  template <class Load>
  void Factor(const Load& load) {
    const double root = std::sqrt(1 / sum_);  // of the heaviest share
    std::vector<double> centre(one_.size());
    ForPairs(load, [&](std::int64_t i, double) {
      if (i != heaviest_) return;
      for (std::size_t j = 0; j < one_.size(); ++j) {
        centre[j] = (mean_[j] + root * one_[j]) / (1 + root);
      }
    });
    for (std::int64_t j = 0; j < f_.count; ++j) finite_ = finite_ && std::isfinite(centre[j]);
    factor_.Start(f_.count, static_cast<std::int64_t>(one_.size()) - f_.count, std::sqrt(m_.ridge));
    ForPairs(load, [&](std::int64_t i, double p) {
      if (i == heaviest_) return;
      double* const row = factor_.Next();
      for (std::size_t j = 0; j < one_.size(); ++j) row[j] = std::sqrt(p) * (one_[j] - centre[j]);
    });
    // Centring rounds at eps times the size of what is centred.
    factor_.Finish(linalg::Rounding<double>(f_.count));
  }

  /// x = (X^T X)^+ b.
  void Solve(const double* b, double* x) const {
    std::vector<double> w(Size(factor_.rank()));
    factor_.Whiten(b, w.data());
    factor_.Return(w.data(), x);
  }

  /// The monomials of the key that is loaded.
  void Expand() {
    for (std::int64_t c = 0; c < f_.channels; ++c) one_[c] = key_[c] - q_[c];
    for (std::int64_t j = f_.channels; j < f_.count; ++j) {
      one_[j] = one_[f_.before[j]] * one_[f_.channel[j]];
    }
  }

  /// use(pair, share) of all that have a share; its monomials and what is fitted are in one_.
  template <class Load, class Use>
  void ForPairs(const Load& load, const Use& use) {
    for (std::int64_t i = seen_.first; i < seen_.end; ++i) {
      LoadKey(i);
      const double p = std::exp(LogWeight(i) - top_) / sum_;
      if (p == 0) continue;
      Expand();
      load(i, one_.data() + f_.count);
      use(i, p);
    }
  }

  const Memory& m_;
  const Monomials& f_;
  const common::Kernel kernel_;
  const double width_;
  const Range seen_;
  const common::Place place_;
  const double reference_;
  double top_ = 0, sum_ = 0;
  std::int64_t heaviest_ = 0;
  bool finite_ = true;
  std::vector<double> q_, scaled_;
  std::vector<double> key_, one_;  // of a pair; its monomials and what is fitted
  std::vector<double> mean_;
  linalg::RowFactor factor_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_EXACT_INL_H_
