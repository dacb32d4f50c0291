#include "src/linalg/row_factor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ttr::linalg {
namespace {

/// Rows that are taken together, beside those that stand for all before.
std::int64_t BlockOf(std::int64_t size) { return std::max<std::int64_t>(size, 16); }

double Dot(const double* x, const double* y, std::int64_t n) {
  return std::inner_product(x, x + n, y, 0.0);
}

void Subtract(double factor, const double* x, std::int64_t n, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

double Largest(const double* x, std::int64_t n) {
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  return most;
}

/// The length of x, without overflow.
double LengthOf(const double* x, std::int64_t n) {
  const double most = Largest(x, n);
  if (most == 0) return 0;
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += x[i] / most * (x[i] / most);
  return most * std::sqrt(squares);
}

}  // namespace

void RowFactor::Start(std::int64_t n, std::int64_t sides, double diagonal) {
  size_ = rank_ = n;
  width_ = n + sides;
  rows_.assign(static_cast<std::size_t>((n + BlockOf(n)) * width_), 0);
  order_.resize(static_cast<std::size_t>(n));
  std::iota(order_.begin(), order_.end(), 0);
  squares_.resize(static_cast<std::size_t>(n));
  work_.resize(static_cast<std::size_t>(std::max(width_, 2 * n)));
  filled_ = 0;
  if (diagonal == 0) return;
  for (std::int64_t i = 0; i < n; ++i) rows_[i * width_ + i] = diagonal;
  filled_ = n;
}

double* RowFactor::Next() {
  if (filled_ == size_ + BlockOf(size_)) {
    Reduce();
    RestoreOrder();
  }
  return &rows_[filled_++ * width_];
}

/// Reduces the rows to as many as there are columns, at most.
void RowFactor::Reduce() {
  const std::int64_t n = size_;
  unit_ = 0;
  for (std::int64_t i = 0; i < filled_; ++i) {
    unit_ = std::max(unit_, Largest(&rows_[i * width_], n));
  }
  std::fill(squares_.begin(), squares_.end(), 0.0);
  for (std::int64_t i = 0; i < filled_; ++i) AddSquares(&rows_[i * width_], 0);
  std::int64_t j = 0;
  while (j < std::min(filled_, n) && Pivot(j)) Reflect(j++);
  filled_ = j;
}

/// Puts columns into the order in which they were given, for rows to come.
void RowFactor::RestoreOrder() {
  for (std::int64_t i = 0; i < filled_; ++i) {
    double* const row = &rows_[i * width_];
    std::copy_n(row, size_, work_.data());
    for (std::int64_t c = 0; c < size_; ++c) row[order_[c]] = work_[c];
  }
  std::iota(order_.begin(), order_.end(), 0);
}

/// Takes the column of which most is left to place j. False where nothing is.
bool RowFactor::Pivot(std::int64_t j) {
  const auto best = std::max_element(squares_.begin() + j, squares_.end()) - squares_.begin();
  if (!(squares_[best] > 0)) return false;
  if (best == j) return true;
  std::swap(order_[j], order_[best]);
  std::swap(squares_[j], squares_[best]);
  for (std::int64_t i = 0; i < filled_; ++i) {
    std::swap(rows_[i * width_ + j], rows_[i * width_ + best]);
  }
  return true;
}

/// I - t v v^T, v_j = 1, takes column j of the rows from j on into the largest of them.
void RowFactor::Reflect(std::int64_t j) {
  std::int64_t largest = j;
  for (std::int64_t i = j + 1; i < filled_; ++i) {
    if (std::abs(rows_[i * width_ + j]) > std::abs(rows_[largest * width_ + j])) largest = i;
  }
  double* const row = &rows_[j * width_];
  if (largest != j) std::swap_ranges(row, row + width_, &rows_[largest * width_]);
  double squares = 0;
  for (std::int64_t i = j; i < filled_; ++i) {
    const double ratio = rows_[i * width_ + j] / row[j];
    squares += ratio * ratio;
  }
  const double length = row[j] * std::sqrt(squares), first = row[j] + length;
  const std::int64_t begin = j + 1, count = width_ - begin;
  double* const sums = work_.data();
  std::copy_n(row + begin, count, sums);
  double t = 1;
  for (std::int64_t i = begin; i < filled_; ++i) {
    double* const at = &rows_[i * width_];
    at[j] /= first;
    t += at[j] * at[j];
    Subtract(-at[j], at + begin, count, sums);
  }
  for (std::int64_t c = 0; c < count; ++c) sums[c] *= 2 / t;
  Subtract(1, sums, count, row + begin);
  row[j] = -length;
  std::fill(squares_.begin() + begin, squares_.end(), 0.0);
  for (std::int64_t i = begin; i < filled_; ++i) {
    double* const at = &rows_[i * width_];
    Subtract(at[j], sums, count, at + begin);
    at[j] = 0;
    AddSquares(at, begin);
  }
}

void RowFactor::AddSquares(const double* row, std::int64_t begin) {
  const double by = unit_ > 0 ? 1 / unit_ : 0;
  for (std::int64_t c = begin; c < size_; ++c) squares_[c] += (row[c] * by) * (row[c] * by);
}

void RowFactor::Finish(double rounding) {
  FindRank(rounding);
  if (singular()) Orthogonalise();
}

void RowFactor::Finish(double rounding, const double* scale) {
  FindRank(rounding);
  for (std::int64_t i = 0; i < rank_; ++i) {
    for (std::int64_t c = 0; c < size_; ++c) rows_[i * width_ + c] *= scale[order_[c]];
  }
  if (singular()) Orthogonalise();
}

void RowFactor::FindRank(double rounding) {
  Reduce();
  const auto pivot = [this](std::int64_t j) { return std::abs(rows_[j * width_ + j]); };
  rank_ = 0;
  while (rank_ < filled_ && pivot(rank_) > rounding * pivot(0)) ++rank_;
}

// W^T = B^T U, by Gram and Schmidt, twice: B is then orthogonal to rounding.
void RowFactor::Orthogonalise() {
  const std::int64_t n = size_, r = rank_;
  basis_.resize(static_cast<std::size_t>(r * n));
  small_.assign(static_cast<std::size_t>(r * r), 0);
  for (std::int64_t j = 0; j < r; ++j) {
    double* const row = &basis_[j * n];
    std::copy_n(&rows_[j * width_], n, row);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t i = 0; i < j; ++i) {
        const double part = Dot(&basis_[i * n], row, n);
        Subtract(part, &basis_[i * n], n, row);
        small_[i * r + j] += part;
      }
    }
    const double length = LengthOf(row, n);
    small_[j * r + j] = length;
    for (std::int64_t i = 0; i < n; ++i) row[i] /= length;
  }
}

// W at full rank has W^T W = P^T X^T X P. Else W = U^T B, so that (W^T W)^+ = B^T U^-T U^-1 B.
void RowFactor::Whiten(const double* b, double* w) const {
  const std::int64_t n = size_, r = rank_;
  double* const ordered = singular() ? work_.data() : w;
  for (std::int64_t i = 0; i < n; ++i) ordered[i] = b[order_[i]];
  if (!singular()) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double* const row = &rows_[i * width_];
      w[i] /= row[i];
      Subtract(w[i], row + i + 1, n - i - 1, w + i + 1);
    }
    return;
  }
  for (std::int64_t i = 0; i < r; ++i) w[i] = Dot(&basis_[i * n], ordered, n);
  for (std::int64_t i = r - 1; i >= 0; --i) {
    w[i] -= Dot(&small_[i * r + i + 1], w + i + 1, r - i - 1);
    w[i] /= small_[i * r + i];
  }
}

// W^+ z.
void RowFactor::Return(double* z, double* x) const {
  const std::int64_t n = size_, r = rank_;
  if (!singular()) {
    for (std::int64_t i = n - 1; i >= 0; --i) {
      const double* const row = &rows_[i * width_];
      z[i] -= Dot(row + i + 1, z + i + 1, n - i - 1);
      z[i] /= row[i];
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
    std::copy_n(b, n, x);
    return;
  }
  double *const ordered = work_.data(), *const sum = ordered + n;
  std::fill_n(sum, n, 0.0);
  for (std::int64_t i = 0; i < n; ++i) ordered[i] = b[order_[i]];
  for (std::int64_t i = 0; i < rank_; ++i) {
    Subtract(-Dot(&basis_[i * n], ordered, n), &basis_[i * n], n, sum);
  }
  for (std::int64_t i = 0; i < n; ++i) x[order_[i]] = sum[i];
}

}  // namespace ttr::linalg
