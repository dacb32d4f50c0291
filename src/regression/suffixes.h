/// The older rows of a window: what is left of them, whichever is the first that counts.
#pragma once

#include <cstdint>
#include <vector>

#include "src/regression/rotated_rows.h"

namespace ttr::regression {

/// Rows as a window keeps them: [x y], the weight, the time, and the logarithm of what was
/// forgotten up to it.
class RowStore {
 public:
  explicit RowStore(std::int64_t width = 1) : width_(width) {}

  std::int64_t count() const { return static_cast<std::int64_t>(numbers_.size()) / stride(); }
  std::int64_t width() const { return width_; }
  std::int64_t stride() const { return width_ + 3; }
  const double* Row(std::int64_t i) const {
    return &numbers_[static_cast<std::size_t>(i * stride())];
  }
  double weight(std::int64_t i) const { return Row(i)[width_]; }
  double time(std::int64_t i) const { return Row(i)[width_ + 1]; }
  double log_decay(std::int64_t i) const { return Row(i)[width_ + 2]; }

  double* Append();
  std::vector<double>& numbers() { return numbers_; }
  const std::vector<double>& numbers() const { return numbers_; }

 private:
  std::int64_t width_;
  std::vector<double> numbers_;
};

/// Triangles of every suffix of some rows: every sqrt(n)-th is kept, and those between two of these
/// are built when one is asked for.
class Suffixes {
 public:
  explicit Suffixes(const RowSizes& sizes) : sizes_(sizes), store_(sizes.width()) {}
  /// Weights count as behind the last row.
  Suffixes(const RowSizes& sizes, RowStore rows, std::int64_t first = 0);

  std::int64_t count() const { return store_.count() - first_; }
  std::int64_t first() const { return first_; }
  const RowStore& rows() const { return store_; }
  double front_time() const { return store_.time(first_); }
  void Drop(std::int64_t rows) { first_ += rows; }

  /// Those from the first that has not been dropped; count() must not be 0.
  const RotatedRows& Sums();

 private:
  void AddRows(std::int64_t begin, std::int64_t end, RotatedRows& to) const;

  RowSizes sizes_;
  RowStore store_;
  std::int64_t first_ = 0, stride_ = 1;
  std::vector<double> weights_;
  std::vector<RotatedRows> marks_;    // [i]: of rows i stride_ .. n
  std::int64_t within_ = -1;          // the mark that these lie before
  std::vector<RotatedRows> between_;  // from each row of it on, the last first
};

}  // namespace ttr::regression
