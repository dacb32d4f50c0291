#include "src/linalg/row_factor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ttr::linalg {
namespace {

double Dot(const double* x, const double* y, std::int64_t n) {
  return std::inner_product(x, x + n, y, 0.0);
}

void Subtract(double factor, const double* x, std::int64_t n, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

/// The length of a column of `count` rows; without overflow.
double LengthOf(const double* column, std::int64_t count, std::int64_t stride) {
  double most = 0, squares = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(column[i * stride]));
  if (most == 0) return 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = column[i * stride] / most;
    squares += x * x;
  }
  return most * std::sqrt(squares);
}

}  // namespace

void RowFactor::Start(std::int64_t n, double diagonal) {
  size_ = rank_ = n;
  upper_.assign(static_cast<std::size_t>(n * n), 0);
  for (std::int64_t i = 0; i < n; ++i) upper_[i * n + i] = diagonal;
}

// A reflection a column takes the rows' part of it into the diagonal: I - v v^T / h with v = (v_0,
// the rows' part), h = v_0^2 + |rows' part|^2 over 2.
void RowFactor::Add(double* rows, std::int64_t count) {
  const std::int64_t n = size_;
  work_.resize(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j) {
    double* const row = &upper_[j * n];
    // The heaviest row on top: reflected into a lighter one it would leave its rounding to others.
    std::int64_t heaviest = 0;
    for (std::int64_t i = 1; i < count; ++i) {
      if (std::abs(rows[i * n + j]) > std::abs(rows[heaviest * n + j])) heaviest = i;
    }
    if (std::abs(rows[heaviest * n + j]) > std::abs(row[j])) {
      std::swap_ranges(row + j, row + n, rows + heaviest * n + j);
    }
    const double below = LengthOf(rows + j, count, n);
    if (below == 0) continue;
    const double length = std::hypot(row[j], below);
    const double first = row[j] + std::copysign(length, row[j]);  // v_0
    const double diagonal = -std::copysign(length, row[j]);
    // With v over v_0: I - t v v^T, t = 2 / |v|^2.
    const double ratio = below / first;
    const double t = 2 / (1 + ratio * ratio);
    double* const sums = work_.data();
    std::copy(row + j + 1, row + n, sums + j + 1);
    for (std::int64_t i = 0; i < count; ++i) {
      double* const at = rows + i * n;
      at[j] /= first;
      Subtract(-at[j], at + j + 1, n - j - 1, sums + j + 1);
    }
    for (std::int64_t c = j + 1; c < n; ++c) sums[c] *= t;
    Subtract(1, sums + j + 1, n - j - 1, row + j + 1);
    for (std::int64_t i = 0; i < count; ++i) {
      double* const at = rows + i * n;
      Subtract(at[j], sums + j + 1, n - j - 1, at + j + 1);
      at[j] = 0;
    }
    row[j] = diagonal;
  }
}

// Columns of R in order of what is left of them, by reflections of rows.
void RowFactor::Finish(double rounding) {
  const std::int64_t n = size_;
  order_.resize(static_cast<std::size_t>(n));
  std::iota(order_.begin(), order_.end(), 0);
  rank_ = 0;
  double first = 0;
  std::vector<double> sums(static_cast<std::size_t>(n));
  const auto column = [&](std::int64_t from, std::int64_t c) { return &upper_[from * n + c]; };
  for (std::int64_t j = 0; j < n; ++j) {
    std::int64_t best = j;
    double most = -1;
    for (std::int64_t c = j; c < n; ++c) {
      const double length = LengthOf(column(j, c), n - j, n);
      if (length > most) {
        most = length;
        best = c;
      }
    }
    if (j == 0) first = most;
    if (!(most > rounding * first)) break;
    std::swap(order_[j], order_[best]);
    for (std::int64_t i = 0; i < n; ++i) std::swap(upper_[i * n + j], upper_[i * n + best]);
    // As in Add, of the rows from j on.
    double* const row = &upper_[j * n];
    const double pivot = row[j] + std::copysign(most, row[j]);
    const double diagonal = -std::copysign(most, row[j]);
    double squares = 1;
    for (std::int64_t i = j + 1; i < n; ++i) {
      upper_[i * n + j] /= pivot;
      squares += upper_[i * n + j] * upper_[i * n + j];
    }
    std::copy(row + j + 1, row + n, sums.data() + j + 1);
    for (std::int64_t i = j + 1; i < n; ++i) {
      Subtract(-upper_[i * n + j], &upper_[i * n] + j + 1, n - j - 1, sums.data() + j + 1);
    }
    for (std::int64_t c = j + 1; c < n; ++c) sums[c] *= 2 / squares;
    Subtract(1, sums.data() + j + 1, n - j - 1, row + j + 1);
    for (std::int64_t i = j + 1; i < n; ++i) {
      Subtract(upper_[i * n + j], sums.data() + j + 1, n - j - 1, &upper_[i * n] + j + 1);
      upper_[i * n + j] = 0;
    }
    row[j] = diagonal;
    ++rank_;
  }
  if (singular()) Orthogonalise();
}

// W^T = B^T U, by Gram and Schmidt, twice: B is then orthogonal to rounding.
void RowFactor::Orthogonalise() {
  const std::int64_t n = size_, r = rank_;
  basis_.assign(upper_.begin(), upper_.begin() + r * n);
  small_.assign(static_cast<std::size_t>(r * r), 0);
  for (std::int64_t j = 0; j < r; ++j) {
    double* const row = &basis_[j * n];
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t i = 0; i < j; ++i) {
        const double part = Dot(&basis_[i * n], row, n);
        Subtract(part, &basis_[i * n], n, row);
        small_[i * r + j] += part;
      }
    }
    const double length = LengthOf(row, n, 1);
    small_[j * r + j] = length;
    for (std::int64_t i = 0; i < n; ++i) row[i] /= length;
  }
}

// Of full rank W^T W = X^T X. Else W = U^T B, so that (W^T W)^+ = B^T U^-T U^-1 B.
void RowFactor::Whiten(const double* b, double* w) const {
  const std::int64_t n = size_, r = rank_;
  work_.resize(static_cast<std::size_t>(n));
  double* const ordered = singular() ? work_.data() : w;
  for (std::int64_t i = 0; i < n; ++i) ordered[i] = b[order_[i]];
  if (!singular()) {
    for (std::int64_t i = 0; i < n; ++i) {
      w[i] /= upper_[i * n + i];
      Subtract(w[i], &upper_[i * n + i + 1], n - i - 1, w + i + 1);
    }
    return;
  }
  for (std::int64_t i = 0; i < r; ++i) w[i] = Dot(&basis_[i * n], ordered, n);
  for (std::int64_t i = r - 1; i >= 0; --i) {
    w[i] -= Dot(&small_[i * r + i + 1], w + i + 1, r - i - 1);
    w[i] /= small_[i * r + i];
  }
}

void RowFactor::Solve(const double* b, double* x) const {
  const std::int64_t n = size_, r = rank_;
  std::vector<double> whitened(static_cast<std::size_t>(r));
  double* const z = whitened.data();
  Whiten(b, z);
  if (!singular()) {
    for (std::int64_t i = n - 1; i >= 0; --i) {
      z[i] -= Dot(&upper_[i * n + i + 1], z + i + 1, n - i - 1);
      z[i] /= upper_[i * n + i];
    }
    for (std::int64_t i = 0; i < n; ++i) x[order_[i]] = z[i];
    return;
  }
  for (std::int64_t i = 0; i < r; ++i) {
    z[i] /= small_[i * r + i];
    Subtract(z[i], &small_[i * r + i + 1], r - i - 1, z + i + 1);
  }
  std::fill(work_.begin(), work_.end(), 0.0);
  for (std::int64_t i = 0; i < r; ++i) Subtract(-z[i], &basis_[i * n], n, work_.data());
  for (std::int64_t i = 0; i < n; ++i) x[order_[i]] = work_[static_cast<std::size_t>(i)];
}

void RowFactor::Project(const double* b, double* x) const {
  const std::int64_t n = size_;
  if (!singular()) {
    std::copy(b, b + n, x);
    return;
  }
  std::vector<double>& z = work_;
  z.assign(static_cast<std::size_t>(2 * n), 0);
  double* const sum = z.data() + n;
  for (std::int64_t i = 0; i < n; ++i) z[i] = b[order_[i]];
  for (std::int64_t i = 0; i < rank_; ++i) {
    Subtract(-Dot(&basis_[i * n], z.data(), n), &basis_[i * n], n, sum);
  }
  for (std::int64_t i = 0; i < n; ++i) x[order_[i]] = sum[i];
}

}  // namespace ttr::linalg
