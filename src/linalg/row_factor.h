/// Least squares over rows that come one after the other, where they may not span the space and
/// may weigh many orders of magnitude more or less than each other: plain C++, in double.
#pragma once

#include <cstdint>
#include <vector>

namespace ttr::linalg {

/// X P = Q' [W; 0] by reflections of rows in any number, and with them Q'^T Y of `sides` numbers
/// beside each: the singular values of X, where those of X^T X are their squares. Columns come in
/// order of what is left of them, and the row with the largest number in a column takes its
/// reflection: what is rounded in a row is then small beside that row, however light (Cox and
/// Higham, Stability of Householder QR factorization for weighted least squares problems, 1998).
///
/// Cost: 4 n (n + sides) flops a row. Memory: 2 n (n + sides) numbers.
class RowFactor {
 public:
  /// n columns and `sides` beside them; the first rows are `diagonal` I beside zeros.
  void Start(std::int64_t n, std::int64_t sides, double diagonal);
  /// Room for a row of n + sides numbers, which the caller fills.
  double* Next();
  /// Factors, once all rows are there. Pivots up to `rounding` times the first count as 0.
  void Finish(double rounding);
  /// Finish() of columns that were divided by `scale`, n numbers, to be told apart from rounding.
  void Finish(double rounding, const double* scale);

  bool singular() const { return rank_ < size_; }
  std::int64_t rank() const { return rank_; }
  /// `sides` numbers: row i < rank() of Q^T Y.
  const double* side(std::int64_t i) const { return &rows_[i * width_ + size_]; }
  /// w, `rank()` numbers, so that w . w' = b^T (X^T X)^+ b'. With z = column c of the sides w . z =
  /// b^T X^+ y.
  void Whiten(const double* b, double* w) const;
  /// x = X^+ y of what Whiten() gives or, of column c, side(i)[c]. `z` is overwritten.
  void Return(double* z, double* x) const;
  /// x = X^+ X b: the part of b that rows span. Not in place.
  void Project(const double* b, double* x) const;

 private:
  void Reduce();
  void FindRank(double rounding);
  bool Pivot(std::int64_t j);
  void Reflect(std::int64_t j);
  void AddSquares(const double* row, std::int64_t begin);
  void RestoreOrder();
  void Orthogonalise();

  std::int64_t size_ = 0, width_ = 0;
  std::int64_t filled_ = 0;  // rows
  std::int64_t rank_ = 0;
  std::vector<double> rows_;         // of width_; in the end W and Q^T Y
  std::vector<std::int64_t> order_;  // column i here is column order_[i] of X
  std::vector<double> squares_;      // of what is left of a column, in units of unit_^2
  double unit_ = 1;
  std::vector<double> basis_;  // B: rank_ rows of size_, where W^T = B^T U
  std::vector<double> small_;  // U: rank_ rows of rank_
  mutable std::vector<double> work_;
};

}  // namespace ttr::linalg
