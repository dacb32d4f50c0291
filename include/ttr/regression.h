/// Least squares over rows that come one after the other: of all rows, or of those in a window.
///
///     ttr::Regression model({.key_dim = 3, .ridge = 1e-3, .window = 100});
///     model.Learn({.keys = x, .values = y});           // row 101 pushes row 1 out
///     model.Predict(queries, answers);
///
///     m = argmin  sum_i w_i g_i |y_i - m(x_i)|^2 + ridge |m|^2
///
/// over the rows that count, exactly after every row (Regression.IsTheBatchFitOfTheRowsThatCount in
/// tests/layer/regression_test.cc). g_i is what was forgotten since row i: decay once a row, and
/// 1/2 for every half_life of the time that passed. Rows are rotated into a triangle
/// (`exact(factor: qr)`, docs/least_squares.md), from an origin near them, so that neither an
/// offset nor the square of a Gram matrix costs digits.
///
/// A window is in two stacks, and nothing is subtracted as rows leave it: docs/sklearn.md says how,
/// and what that is worth beside downdates. A row costs O(p^2), in a window amortised, p = key_dim
/// + 1; a read of a window, or beside a ridge that stays, O(p^3), once behind every row.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "ttr/tensor.h"

namespace ttr {

struct RegressionOptions {
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  bool intercept = true;      ///< a 1 behind every key, which no ridge holds
  double ridge = 0;           ///< on all other coefficients, 0 or more
  bool ridge_fades = true;    ///< by `decay` with every row; else it stays
  double decay = 1;           ///< g from one row to the next, above 0 and at most 1
  double half_life = kNever;  ///< time in which a row's weight halves; the ridge stays then
  std::int64_t window = 0;    ///< so many last rows count; 0: all
  double span = kNever;       ///< rows count that are less than this older than the last one

  bool has_times() const { return half_life != kNever || span != kNever; }
  bool has_window() const { return window > 0 || span != kNever; }
};

/// Rows, n of them, the latest last.
struct RegressionRows {
  std::span<const double> keys{};     ///< [n, key_dim]
  std::span<const double> values{};   ///< [n, value_dim]
  std::span<const double> weights{};  ///< [n], 0 or more; empty: ones. A row of 0 takes its place
  std::span<const double> times{};    ///< [n], rising or equal, in any unit; empty: none
};

namespace regression {
class RowRegression;
}

class Regression {
 public:
  using Tensors = std::map<std::string, Tensor>;

  /// Error: an option out of its range.
  explicit Regression(const RegressionOptions& options);
  /// Goes on from what Save() gave, bit for bit. Error: what is missing, or of another shape.
  Regression(const RegressionOptions& options, const Tensors& saved);
  Regression(const Regression& other);
  Regression& operator=(const Regression& other);
  Regression(Regression&&) noexcept;
  Regression& operator=(Regression&&) noexcept;
  ~Regression();

  const RegressionOptions& options() const;

  /// Error, and nothing learned: sizes, numbers that are not finite, a weight below 0, times that
  /// are missing, not asked for or fall; its row and column are named.
  void Learn(const RegressionRows& rows);

  /// m of queries [n, key_dim] into [n, value_dim]; of least norm where the rows that count leave
  /// some direction open. 0 before the first row.
  void Predict(std::span<const double> queries, std::span<double> values);

  /// The map itself: coefficients [key_dim + 1, value_dim], the intercept last.
  void Coefficients(std::span<double> numbers);

  /// Rows learned so far, and rows that a window holds (all without one).
  std::int64_t count() const;
  std::int64_t held() const;

  /// The triangle of the rows that count: "r" [p, p] and "w" [p, value_dim] as "state.r" and
  /// "state" are, "rss" [value_dim], "origin" [key_dim + value_dim] of the rows, and "sums" [2]: of
  /// g and of g^2 over the rows that have a weight. A ridge is in it where that fades.
  Tensors Fit();

  /// Everything, under names of its own: counts, triangles, and the rows of a window.
  Tensors Save() const;

  /// The rows of a window, the oldest first: "keys", "values", "weights", "times".
  Tensors Rows() const;

 private:
  std::unique_ptr<regression::RowRegression> own_;
};

}  // namespace ttr
