#include "src/linalg/minimum_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace ttr::linalg {
namespace {

// In four sums, which need not wait for each other.
double Dot(const double* x, const double* y, std::int64_t n) {
  double sums[4] = {0, 0, 0, 0};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) sums[j] += x[i + j] * y[i + j];
  }
  for (; i < n; ++i) sums[0] += x[i] * y[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void Subtract(double factor, const double* x, std::int64_t n, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

}  // namespace

void MinimumNorm::Factor(std::int64_t n, const double* a, double rounding, double faded) {
  size_ = n;
  rank_ = 0;
  const auto count = static_cast<std::size_t>(n);
  scale_.assign(count, 0);
  order_.resize(count);
  lower_.assign(count * count, 0);
  basis_.clear();
  finite_ = std::all_of(a, a + n * n, [](double x) { return std::isfinite(x); });
  if (!finite_) {
    rank_ = n;
    return;
  }
  std::iota(order_.begin(), order_.end(), 0);
  std::vector<double> left(count);  // what is left of the diagonal
  for (std::int64_t i = 0; i < n; ++i) {
    const double diagonal = a[i * n + i];
    if (diagonal <= faded) continue;
    scale_[i] = 1 / std::sqrt(diagonal);
    left[i] = 1;
  }
  for (std::int64_t j = 0; j < n; ++j) {
    const auto best = std::max_element(left.begin() + j, left.end()) - left.begin();
    if (left[best] <= rounding) break;
    std::swap(left[j], left[best]);
    std::swap(order_[j], order_[best]);
    std::swap_ranges(&lower_[j * n], &lower_[j * n] + j, &lower_[best * n]);
    const double pivot = std::sqrt(left[j]);
    double* const row = &lower_[j * n];
    row[j] = pivot;
    const std::int64_t at = order_[j];
    for (std::int64_t i = j + 1; i < n; ++i) {
      double* const below = &lower_[i * n];
      const std::int64_t other = order_[i];
      const double element = a[other * n + at] * scale_[other] * scale_[at];
      below[j] = (element - Dot(below, row, j)) / pivot;
      left[i] -= below[j] * below[j];
    }
    ++rank_;
  }
  if (singular()) Orthogonalise();
}

// F = Q R, by Gram and Schmidt, twice: Q is then orthogonal to rounding.
void MinimumNorm::Orthogonalise() {
  const std::int64_t n = size_;
  const std::int64_t r = rank_;
  basis_.assign(static_cast<std::size_t>(r * n), 0);
  upper_.assign(static_cast<std::size_t>(r * r), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = order_[i];
    if (scale_[at] == 0) continue;
    for (std::int64_t j = 0; j < std::min(i + 1, r); ++j) {
      basis_[j * n + at] = lower_[i * n + j] / scale_[at];
    }
  }
  for (std::int64_t j = 0; j < r; ++j) {
    double* const q = &basis_[j * n];
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t i = 0; i < j; ++i) {
        const double part = Dot(&basis_[i * n], q, n);
        Subtract(part, &basis_[i * n], n, q);
        upper_[i * r + j] += part;
      }
    }
    const double length = std::sqrt(Dot(q, q, n));
    upper_[j * r + j] = length;
    for (std::int64_t i = 0; i < n; ++i) q[i] /= length;
  }
}

void MinimumNorm::Solve(const double* q, double* x) const {
  const std::int64_t n = size_;
  const std::int64_t r = rank_;
  if (!finite_) {
    std::fill(x, x + n, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  std::vector<double>& z = work_;
  z.assign(static_cast<std::size_t>(r), 0);
  if (!singular()) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = order_[i];
      z[i] = (q[at] * scale_[at] - Dot(&lower_[i * n], z.data(), i)) / lower_[i * n + i];
    }
    for (std::int64_t i = n - 1; i >= 0; --i) {
      z[i] /= lower_[i * n + i];
      Subtract(z[i], &lower_[i * n], i, z.data());
    }
    for (std::int64_t i = 0; i < n; ++i) x[order_[i]] = z[i] * scale_[order_[i]];
    return;
  }
  // x = Q R^-T R^-1 Q^T q: A = F F^T = Q (R R^T) Q^T.
  for (std::int64_t i = 0; i < r; ++i) z[i] = Dot(&basis_[i * n], q, n);
  for (std::int64_t i = r - 1; i >= 0; --i) {
    for (std::int64_t j = i + 1; j < r; ++j) z[i] -= upper_[i * r + j] * z[j];
    z[i] /= upper_[i * r + i];
  }
  for (std::int64_t i = 0; i < r; ++i) {
    z[i] /= upper_[i * r + i];
    Subtract(z[i], &upper_[i * r + i + 1], r - i - 1, z.data() + i + 1);
  }
  std::fill(x, x + n, 0.0);
  for (std::int64_t i = 0; i < r; ++i) Subtract(-z[i], &basis_[i * n], n, x);
}

}  // namespace ttr::linalg
