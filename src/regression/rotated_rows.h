/// What rows leave behind: a triangle, from an origin near them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ttr/state.h"
#include "ttr/tensor.h"

namespace ttr::regression {

/// A row is z = [x y]; where there is an intercept its key is [x 1].
struct RowSizes {
  std::int64_t keys = 1, values = 1;
  bool intercept = true;

  std::int64_t width() const { return keys + values; }
  std::int64_t channels() const { return keys + (intercept ? 1 : 0); }
};

/// Rows [n, stride], and what each counts.
struct WeightedRows {
  const double* rows = nullptr;
  std::int64_t stride = 0, count = 0;
  const double* weights = nullptr;  // [count]

  const double* Row(std::int64_t i) const { return rows + i * stride; }
};

class RotatedRows {
 public:
  explicit RotatedRows(const RowSizes& sizes);

  const RowSizes& sizes() const { return sizes_; }
  const std::vector<double>& origin() const { return origin_; }

  /// Puts the origin of a triangle without rows.
  void Begin(std::vector<double> origin);
  /// Puts it, column by column, at the number that is nearest to the mean of the rows that have a
  /// weight: whole numbers stay whole when it is subtracted. False: none has.
  bool BeginNear(const WeightedRows& rows);
  /// Moves it to the mean of the rows.
  void Centre();

  void Rotate(const WeightedRows& rows);
  /// Every weight times a factor.
  void Fade(double factor);
  /// The rows of another triangle, their weights times a factor.
  void Add(const RotatedRows& other, double factor);
  /// A row of weight `ridge` for every coefficient but the intercept.
  void AddRidge(double ridge);

  /// m of queries [n, keys] into [n, values]. Of least norm where the triangle is singular.
  void Answer(std::int64_t n, const double* queries, double* values) const;
  /// [keys + 1, values], the intercept last.
  void Coefficients(double* numbers) const;

  double* r() const { return Entry(0); }    // [channels, channels]: D, and L below it
  double* w() const { return Entry(1); }    // [channels, values]
  double* rss() const { return Entry(2); }  // [values]

  /// Sums of g and of g^2 over the rows that have a weight.
  double sum = 0, sum_of_squares = 0;

 private:
  double* Entry(std::size_t i) const { return state_.entries()[i].view.as<double>(); }
  std::int64_t RowOfD(std::int64_t i) const { return i * (sizes_.channels() + 1); }
  /// Has every channel more than rounding beside those behind it?
  bool IsRegular() const;

  RowSizes sizes_;
  State state_;
  std::vector<double> origin_;  // [width]; zeros without an intercept
};

}  // namespace ttr::regression
