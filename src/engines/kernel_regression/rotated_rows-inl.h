// A regression on rows that grow longer, by rotations. Compiled once for every
// target.

#if defined(TTR_KERNEL_REGRESSION_ROTATED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_ROTATED_ROWS_INL_H_
#undef TTR_KERNEL_REGRESSION_ROTATED_ROWS_INL_H_
#else
#define TTR_KERNEL_REGRESSION_ROTATED_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;

/// The regression of values on rows that grow longer: R of F = Q R, and Q^T V.
class RotatedRows {
 public:
  explicit RotatedRows(std::int64_t value_dim) : value_dim_(value_dim) {}

  /// One row more, of as many numbers as the longest so far or one more; it is overwritten.
  void Add(std::vector<double>& row, std::vector<double>& value) {
    const std::size_t size = row.size();
    for (std::size_t j = 0; j < upper_.size(); ++j) upper_[j].resize(size - j);
    for (std::size_t j = 0; j < size; ++j) {
      if (j == upper_.size()) {
        upper_.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(j), row.end());
        sums_.push_back(value);
        return;
      }
      if (row[j] == 0) continue;
      std::vector<double>& upper = upper_[j];
      const double length = std::hypot(upper[0], row[j]);
      const double c = upper[0] / length, s = row[j] / length;
      Rotate(c, s, size - j, upper.data(), row.data() + j);
      Rotate(c, s, value.size(), sums_[j].data(), value.data());
    }
  }

  /// x <- (R^T R)^-1 x
  void SolveTwice(std::vector<double>& x) const {
    for (std::size_t i = 0; i < upper_.size(); ++i) {
      x[i] /= upper_[i][0];
      sn::AddScaled(static_cast<std::int64_t>(upper_[i].size()) - 1, -x[i], upper_[i].data() + 1,
                    x.data() + i + 1);
    }
    for (std::size_t i = upper_.size(); i-- > 0;) {
      const auto count = static_cast<std::int64_t>(upper_[i].size()) - 1;
      x[i] = (x[i] - sn::WideDot(count, upper_[i].data() + 1, x.data() + i + 1)) / upper_[i][0];
    }
  }

  /// y = z^T R^-1 Q^T V; z is overwritten.
  void Read(std::vector<double>& z, double* y) const {
    std::fill(y, y + value_dim_, 0.0);
    for (std::size_t i = 0; i < upper_.size(); ++i) {
      z[i] /= upper_[i][0];
      sn::AddScaled(static_cast<std::int64_t>(upper_[i].size()) - 1, -z[i], upper_[i].data() + 1,
                    z.data() + i + 1);
      sn::AddScaled(value_dim_, z[i], sums_[i].data(), y);
    }
  }

 private:
  static void Rotate(double c, double s, std::size_t count, double* a, double* b) {
    for (std::size_t i = 0; i < count; ++i) {
      const double x = a[i], y = b[i];
      a[i] = c * x + s * y;
      b[i] = c * y - s * x;
    }
  }

  std::int64_t value_dim_;
  std::vector<std::vector<double>> upper_;  // rows of R, from the diagonal on
  std::vector<std::vector<double>> sums_;   // rows of Q^T V
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_ROTATED_ROWS_INL_H_
