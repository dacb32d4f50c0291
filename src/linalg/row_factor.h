/// Least squares over rows that come one after the other, where they may not span the space: plain
/// C++, in double.
#pragma once

#include <cstdint>
#include <vector>

namespace ttr::linalg {

/// X = Q R by reflections, of rows in any number: the singular values of X, where those of X^T X
/// are their squares. Then R P = Q' [W; 0] with pivoting of columns, W of full rank r.
///
/// Cost: 2 n^2 flops a row; 2 n^3 in the end.
class RowFactor {
 public:
  /// n columns; the first rows are `diagonal` I.
  void Start(std::int64_t n, double diagonal);
  /// `count` rows of n numbers, which are overwritten.
  void Add(double* rows, std::int64_t count);
  /// Once all rows are there. Pivots up to `rounding` times the first are none.
  void Finish(double rounding);

  bool singular() const { return rank_ < size_; }
  std::int64_t rank() const { return rank_; }
  /// w, `rank()` numbers, so that w . w' = b^T (X^T X)^+ b'. Of a row of X it has no length
  /// above 1.
  void Whiten(const double* b, double* w) const;
  /// x = (X^T X)^+ b. Not in place.
  void Solve(const double* b, double* x) const;
  /// x = X^+ X b: the part of b that rows span. Not in place.
  void Project(const double* b, double* x) const;

 private:
  void Orthogonalise();

  std::int64_t size_ = 0;
  std::int64_t rank_ = 0;
  std::vector<double> upper_;        // R, then W P^T in its first rows: rows of size_
  std::vector<std::int64_t> order_;  // column i of W is column order_[i] of X
  std::vector<double> basis_;        // B: rank_ rows of size_, where W^T = B^T U
  std::vector<double> small_;        // U: rank_ rows of rank_
  mutable std::vector<double> work_;
};

}  // namespace ttr::linalg
