// Gradients of a memory of which a prefix is singular, or may be: query by query, in double, with
// the rank of every prefix held. Compiled once for every target.
//
// With F, z and R as in minimum_norm-inl.h, G = F^T F = R^T R, u = V dy and P = F G^-1 F^T,
//
//     a = A^+ s = F G^-1 z        b = A^+ u = F G^-2 F^T u        ds = b        dV = a dy^T
//     dA = - a b^T + (A^+ a) ((I - P) u)^T,   A^+ a = F G^-2 z

#if defined(TTR_KERNEL_REGRESSION_MINIMUM_NORM_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_MINIMUM_NORM_GRADIENT_INL_H_
#undef TTR_KERNEL_REGRESSION_MINIMUM_NORM_GRADIENT_INL_H_
#else
#define TTR_KERNEL_REGRESSION_MINIMUM_NORM_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/common/pair_gradients-inl.h"
#include "src/engines/kernel_regression/gradient.h"
#include "src/engines/kernel_regression/minimum_norm-inl.h"
#include "src/engines/kernel_regression/weights_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

template <class T>
class MinimumNormGradient {
 public:
  MinimumNormGradient(const GradientTask& task, const Factor<T>& factor)
      : options_(task.task.options),
        m_(task.task.memory),
        g_(task.gradient),
        f_(factor),
        prefixes_(task.task, factor, PrefixRows::kKept),
        pairs_(m_.all()),
        dk_(pairs_ * m_.key_dim),
        dv_(pairs_ * m_.value_dim),
        da_(pairs_ * pairs_),
        by_root_(pairs_) {
    const auto wide = static_cast<std::size_t>(std::max(m_.key_dim, m_.value_dim));
    for (std::vector<T>* room : {&query_, &row_, &room_, &spare_}) room->resize(wide);
    dy_.resize(wide);
    dq_.resize(wide);
  }

  void Run() {
    for (std::int64_t at = 0; at < m_.rows; ++at) Query(at);
    Chain();
    for (std::int64_t i = 0; i < pairs_; ++i) StorePair(i);
    if (g_.dridge != nullptr) *g_.dridge = ridge_;
    if (g_.dbandwidth != nullptr) *g_.dbandwidth = m_.bandwidth == 0 ? 0 : width_ / m_.bandwidth;
  }

 private:
  using Vector = std::vector<double>;

  void Query(std::int64_t at) {
    const std::int64_t t = at / m_.queries, query = at - t * m_.queries;
    std::fill(dq_.begin(), dq_.end(), 0.0);
    cn::LoadQuery(m_, {query, t}, 1, query_.data());
    AddQuery(t, query);
    for (std::int64_t c = 0; c < m_.key_dim; ++c) row_[c] = static_cast<T>(dq_[c]);
    if (m_.normalises) sn::LoadRow(m_.q.Of(query), t, 0, m_.key_dim, room_.data());
    const simd::Rows to = g_.dq ? g_.dq.Of(query) : simd::Rows();
    cn::StoreGradientRow(row_.data(), m_.normalises ? room_.data() : nullptr, to, t, m_.key_dim,
                         spare_.data());
  }

  void AddQuery(std::int64_t t, std::int64_t query) {
    const std::int64_t end = m_.visible.End(t);
    prefixes_.AddUpTo(end);
    sn::LoadRow(g_.dy.Of(query), t, 0, m_.value_dim, row_.data());
    for (std::int64_t c = 0; c < m_.value_dim; ++c) dy_[c] = static_cast<double>(row_[c]);
    Vector u(end), h(prefixes_.rank());
    for (std::int64_t i = 0; i < end; ++i) {
      u[i] = sn::WideDot(m_.value_dim, prefixes_.value(i).data(), dy_.data());
      const Vector& row = prefixes_.row(i);
      sn::AddScaled(static_cast<std::int64_t>(row.size()), u[i], row.data(), h.data());
    }
    const Vector once = prefixes_.SolveTwice(prefixes_.Solve(query_.data()));
    const Vector g = prefixes_.SolveTwice(h);
    const Vector a = Times(once, end), b = Times(prefixes_.SolveTwice(g), end);
    AddOuter(-1, a, b);
    if (prefixes_.singular()) {
      Vector rest = Times(g, end);
      for (std::int64_t i = 0; i < end; ++i) rest[i] = u[i] - rest[i];
      AddOuter(1, Times(prefixes_.SolveTwice(once), end), rest);
    }
    for (std::int64_t i = 0; i < end; ++i) {
      sn::AddScaled(m_.value_dim, a[i], dy_.data(), &dv_[i * m_.value_dim]);
      if (!prefixes_.HasPart(i)) continue;
      by_root_[i] += AddSlope(b[i], prefixes_.LogRoot(i), i, query_.data(), dq_.data());
    }
  }

  /// F x of the pairs before `end`.
  Vector Times(const Vector& x, std::int64_t end) const {
    Vector result(end);
    for (std::int64_t i = 0; i < end; ++i) {
      const Vector& row = prefixes_.row(i);
      result[i] = sn::WideDot(static_cast<std::int64_t>(row.size()), row.data(), x.data());
    }
    return result;
  }

  void AddOuter(double factor, const Vector& left, const Vector& right) {
    const auto count = static_cast<std::int64_t>(right.size());
    for (std::int64_t i = 0; i < count; ++i) {
      sn::AddScaled(count, factor * left[i], right.data(), &da_[i * pairs_]);
    }
  }

  /// `weight` times the slopes of exp(log) k(key i, x), to dk_i and dx. Returns weight times that
  /// value.
  double AddSlope(double weight, double log, std::int64_t i, const T* x, double* dx) {
    const T* const key = f_.keys.Row(i);
    double* const dk = &dk_[i * m_.key_dim];
    if (HasScale(options_.kernel)) {
      const double dot = options_.scale * sn::WideDot(m_.key_dim, key, x);
      const bool linear = options_.kernel == Kernel::kLinear;
      const double slope = weight * std::exp(linear ? log : log + dot);
      for (std::int64_t c = 0; c < m_.key_dim; ++c) {
        dk[c] += slope * options_.scale * static_cast<double>(x[c]);
        dx[c] += slope * options_.scale * static_cast<double>(key[c]);
      }
      return linear ? slope * dot : slope;
    }
    double squares = 0;
    for (std::int64_t c = 0; c < m_.key_dim; ++c) {
      const double difference = static_cast<double>(key[c]) - static_cast<double>(x[c]);
      squares += difference * difference;
    }
    if (squares == 0) return weight * std::exp(log);
    const AtDistance at = OfDistance(options_.kernel, squares, m_.bandwidth);
    const double value = weight * std::exp(log + at.log);
    const double along = value * at.along;
    if (value == 0) return 0;
    for (std::int64_t c = 0; c < m_.key_dim; ++c) {
      const double difference = static_cast<double>(key[c]) - static_cast<double>(x[c]);
      dk[c] -= along * difference;
      dx[c] += along * difference;
    }
    width_ += value * at.by_width;
    return value;
  }

  /// Goes back from dA to keys, weights and the ridge.
  void Chain() {
    for (std::int64_t i = 0; i < pairs_; ++i) {
      if (i >= SeenPairs(m_) || !prefixes_.HasPart(i)) continue;
      ridge_ += da_[i * pairs_ + i] * prefixes_.Share();
      for (std::int64_t j = 0; j < SeenPairs(m_); ++j) {
        if (!prefixes_.HasPart(j)) continue;
        const double log = prefixes_.LogRoot(i) + prefixes_.LogRoot(j);
        const double value =
            AddSlope(da_[i * pairs_ + j], log, i, f_.keys.Row(j), &dk_[j * m_.key_dim]);
        by_root_[i] += value;
        by_root_[j] += value;
      }
    }
  }

  void StorePair(std::int64_t i) {
    Vector value(static_cast<std::size_t>(m_.value_dim));
    const bool part = i < SeenPairs(m_) && prefixes_.HasPart(i);
    if (part) {
      by_root_[i] += sn::WideDot(m_.value_dim, prefixes_.value(i).data(), &dv_[i * m_.value_dim]);
    }
    const double factor = part ? std::exp(prefixes_.LogRoot(i)) : 0;
    for (std::int64_t c = 0; c < m_.key_dim; ++c) {
      row_[c] = static_cast<T>(dk_[i * m_.key_dim + c]);
    }
    Vector dv(static_cast<std::size_t>(m_.value_dim));
    std::vector<T> dvalue(dv.size());
    for (std::size_t c = 0; c < dv.size(); ++c) {
      dvalue[c] = static_cast<T>(factor * dv_[i * m_.value_dim + static_cast<std::int64_t>(c)]);
    }
    cn::StorePairGradient(m_, g_, i, row_.data(), dvalue.data(), room_.data(), spare_.data());
    StoreWeightGradient(m_, g_, i, part ? by_root_[i] / 2 : 0, part);
  }

  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const Factor<T>& f_;
  MinimumNormPrefixes<T> prefixes_;
  std::int64_t pairs_;
  double ridge_ = 0, width_ = 0;
  Vector dk_, dv_, da_, by_root_;  // the last: by the logarithm of w^1/2
  Vector dy_, dq_;
  std::vector<T> query_, row_, room_, spare_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_MINIMUM_NORM_GRADIENT_INL_H_
