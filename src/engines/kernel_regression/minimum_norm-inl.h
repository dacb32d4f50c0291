// Prefixes that are singular, or may be: pair by pair, in double. Compiled once for every target.
//
// A pair whose key is in the span of those before it, in the kernel's space, has a row of L that
// ends before its diagonal: A = F F^T with as many columns of F as there are pairs that span, F =
// D^-1 [rows of L]. The solution of least norm is then
//
//     y = s^T A^+ V = z^T (F^T F)^-1 F^T V,   z = L^-1 s over the pairs that span
//
// the regression of V on the rows of F, of which rotations keep the triangle. As long as all rows
// span, F = L and y = z^T L^-1 V. O(rank (rank + Dv)) a pair and a query.

#if defined(TTR_KERNEL_REGRESSION_MINIMUM_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_MINIMUM_NORM_INL_H_
#undef TTR_KERNEL_REGRESSION_MINIMUM_NORM_INL_H_
#else
#define TTR_KERNEL_REGRESSION_MINIMUM_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/kernel_regression/load-inl.h"
#include "src/engines/kernel_regression/rotated_rows-inl.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

/// Are rows of F needed again, from the first on?
enum class PrefixRows : std::uint8_t { kUsed, kKept };

template <class T>
class MinimumNormPrefixes {
 public:
  MinimumNormPrefixes(const Task& task, const Factor<T>& factor, PrefixRows kept)
      : options_(task.options),
        m_(task.memory),
        f_(factor),
        rotated_(m_.value_dim),
        keeps_(kept == PrefixRows::kKept),
        rotates_(keeps_) {
    const std::int64_t pairs = std::min(m_.all(), f_.progress->nonfinite);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const PairScale scale = ScaleOf(i);
      if (!scale.none()) top_ = std::max(top_, scale.log);
    }
    cut_ = linalg::Rounding<double>(pairs);
    value_.resize(static_cast<std::size_t>(m_.value_dim));
    room_.resize(value_.size());
  }

  /// The pairs before `end`.
  void AddUpTo(std::int64_t end) {
    for (; added_ < end; ++added_) Add(added_);
  }
  bool singular() const { return singular_; }

  std::size_t rank() const { return rows_.size(); }

  /// z = L^-1 s
  const std::vector<double>& Solve(const T* query) {
    z_.resize(rows_.size());
    for (std::size_t j = 0; j < rows_.size(); ++j) {
      z_[j] = Forward(j, KernelOf(f_.keys.Row(span_[j]), query, gains_[j], NoOffset()), z_);
    }
    return z_;
  }

  /// y = m(q)
  void Read(const T* query, double* y) {
    Solve(query);
    if (rotates_) return rotated_.Read(z_, y);
    std::fill(y, y + m_.value_dim, 0.0);
    for (std::size_t j = 0; j < rows_.size(); ++j) {
      sn::AddScaled(m_.value_dim, z_[j], e_[j].data(), y);
    }
  }

  // Rows and values that were kept, over the root of the greatest diagonal of A.
  const std::vector<double>& row(std::int64_t i) const { return kept_rows_[i]; }
  const std::vector<double>& value(std::int64_t i) const { return kept_values_[i]; }
  /// log w_i^1/2, and the factor of a ridge, over the greatest diagonal of A.
  double LogRoot(std::int64_t i) const { return (LogWeight(i) - top_) / 2; }
  double Share() const { return std::exp(-top_); }
  /// (F^T F)^-1 x
  std::vector<double> SolveTwice(std::vector<double> x) const {
    rotated_.SolveTwice(x);
    return x;
  }

  bool HasPart(std::int64_t i) const {
    return f_.gains[i] != NoGain<T>(options_.kernel) || f_.diagonal[i] == 0;
  }

 private:
  double LogWeight(std::int64_t i) const { return m_.weighted ? cn::OffsetOf(m_, i) : 0; }
  PairScale ScaleOf(std::int64_t i) const {
    if (!HasPart(i)) return {options_, 0, 0, -std::numeric_limits<double>::infinity()};
    return {options_, m_.ridge, sn::SumOfSquares(f_.keys.Row(i), m_.key_dim), LogWeight(i)};
  }
  double NoOffset() const { return options_.kernel == Kernel::kLinear ? 1 : 0; }

  double KernelOf(const T* a, const T* b, double left, double right) const {
    return GainedKernel(options_, m_, a, b, left, right);
  }

  /// Entry j of L^-1 s from those before it.
  double Forward(std::size_t j, double s, const std::vector<double>& z) const {
    const std::vector<double>& row = rows_[j];
    return (s - sn::WideDot(static_cast<std::int64_t>(j), row.data(), z.data())) / row[j];
  }

  void Add(std::int64_t i) {
    std::vector<double> row;
    if (HasPart(i)) {
      const PairScale scale = ScaleOf(i);
      if (scale.none()) {
        BecomeSingular();  // a row of zeros
      } else {
        row = RowOf(i, scale);
        for (double& x : row) x *= std::exp((scale.log - top_) / 2);
        if (rotates_) Rotate(row, i);
      }
      LoadValue(i, std::exp(LogRoot(i)), value_);
    } else {
      std::fill(value_.begin(), value_.end(), 0.0);
    }
    if (!keeps_) return;
    kept_rows_.push_back(row);
    kept_values_.push_back(value_);
  }

  /// The row of L, which ends before its diagonal where those before span it.
  std::vector<double> RowOf(std::int64_t i, const PairScale& scale) {
    std::vector<double> row(rows_.size());
    for (std::size_t j = 0; j < rows_.size(); ++j) {
      const double s = KernelOf(f_.keys.Row(span_[j]), f_.keys.Row(i), gains_[j], scale.gain);
      row[j] = Forward(j, s, row);
    }
    const auto count = static_cast<std::int64_t>(row.size());
    const double share = 1 - sn::WideDot(count, row.data(), row.data());
    if (share > cut_ * (1 + SharesOf(row))) {
      row.push_back(std::sqrt(share));
      Span(i, row, scale);
    } else {
      BecomeSingular();
    }
    return row;
  }

  /// |w|^2 of a_i = sum_j w_j a_j + what is left of it: (w, -1) bounds the least eigenvalue.
  double SharesOf(const std::vector<double>& row) {
    z_ = row;
    double sum = 0;
    for (std::size_t j = row.size(); j-- > 0;) {
      z_[j] /= rows_[j][j];
      sum += z_[j] * z_[j];
      sn::AddScaled(static_cast<std::int64_t>(j), -z_[j], rows_[j].data(), z_.data());
    }
    return sum;
  }

  void Span(std::int64_t i, const std::vector<double>& row, const PairScale& scale) {
    span_.push_back(i);
    gains_.push_back(scale.gain);
    logs_.push_back(scale.log);
    rows_.push_back(row);
    std::vector<double> e(value_.size());
    LoadValue(i, scale.Factor(scale.gain), e);
    for (std::size_t j = 0; j + 1 < row.size(); ++j) {
      sn::AddScaled(m_.value_dim, -row[j], e_[j].data(), e.data());
    }
    for (double& x : e) x /= row.back();
    e_.push_back(std::move(e));
  }

  void LoadValue(std::int64_t i, double factor, std::vector<double>& to) {
    cn::ValuesOf(m_).Load(i, m_.value_dim, room_.data());
    for (std::size_t c = 0; c < to.size(); ++c) to[c] = factor * static_cast<double>(room_[c]);
  }

  void BecomeSingular() {
    singular_ = true;
    if (rotates_) return;
    rotates_ = true;
    for (std::size_t j = 0; j < rows_.size(); ++j) {
      std::vector<double> row = rows_[j];
      for (double& x : row) x *= std::exp((logs_[j] - top_) / 2);
      Rotate(std::move(row), span_[j]);
    }
  }

  /// A row of F and R V.
  void Rotate(std::vector<double> row, std::int64_t i) {
    LoadValue(i, std::exp(LogRoot(i)), value_);
    rotated_.Add(row, value_);
  }

  const Options& options_;
  const Memory& m_;
  const Factor<T>& f_;
  RotatedRows rotated_;
  double top_ = kLogFaded, cut_ = 0;
  std::int64_t added_ = 0;
  bool keeps_, rotates_, singular_ = false;
  std::vector<std::int64_t> span_;             // pairs that span
  std::vector<double> gains_, logs_;           // of those
  std::vector<std::vector<double>> rows_, e_;  // rows of L and of L^-1 V
  std::vector<std::vector<double>> kept_rows_, kept_values_;
  std::vector<double> z_, value_;
  std::vector<T> room_;
};

/// Answers queries that see more pairs than have a factor, all of which are finite.
template <class T>
void RetrieveByMinimumNormAs(const Task& task, const Factor<T>& f, T* row) {
  const Memory& m = task.memory;
  MinimumNormPrefixes<T> prefixes(task, f, PrefixRows::kUsed);
  std::vector<double> y(static_cast<std::size_t>(m.value_dim));
  for (std::int64_t at = 0; at < m.rows; ++at) {
    const std::int64_t t = at / m.queries, end = m.visible.End(t);
    if (end <= f.progress->good || end > f.progress->nonfinite) continue;
    prefixes.AddUpTo(end);
    cn::LoadQuery(m, common::Place::Of(m, at), 1, row);
    prefixes.Read(row, y.data());
    const std::int64_t query = at - t * m.queries;
    sn::StoreRow(y.data(), t, 0, m.value_dim, m.y.Of(query));
    if (prefixes.singular() && m.status) {
      const Rows status = m.status.Of(query);
      static_cast<std::int8_t*>(status.data)[t * status.stride] = 1;  // kRegularised
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_MINIMUM_NORM_INL_H_
