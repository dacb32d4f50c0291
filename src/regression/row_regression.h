/// What a Regression does: rows into stacks, and the triangle of those that count.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/regression/rotated_rows.h"
#include "src/regression/suffixes.h"
#include "ttr/regression.h"

namespace ttr::regression {

class RowRegression {
 public:
  explicit RowRegression(const RegressionOptions& options);
  RowRegression(const RegressionOptions& options, const Regression::Tensors& saved);

  // As Regression has them.
  const RegressionOptions& options() const { return o_; }
  void Learn(const RegressionRows& rows);
  void Predict(std::span<const double> queries, std::span<double> values);
  void Coefficients(std::span<double> numbers);
  std::int64_t count() const { return count_; }
  std::int64_t held() const {
    return o_.has_window() ? older_.count() + newer_rows_.count() : count_;
  }
  Regression::Tensors Fit();
  Regression::Tensors Save() const;
  Regression::Tensors Rows() const;

 private:
  /// Rows of a call, with the logarithm of what was forgotten from before it up to each.
  struct Batch {
    std::vector<double> rows, weights, log_decays;
    std::int64_t count = 0, first = 0;  // that may still count behind the last one
  };

  void CheckRows(const RegressionRows& rows) const;
  Batch Read(const RegressionRows& rows) const;
  /// The first row that is in the window behind the last one.
  std::int64_t FirstThatCounts(const RegressionRows& rows) const;
  void Rotate(const Batch& batch);
  void Keep(const Batch& batch, const RegressionRows& rows);
  void Evict();
  void Turn();
  /// The rows that count, without a ridge that stays.
  const RotatedRows& Counted();
  /// With it.
  const RotatedRows& Solved();
  double ridge() const;

  RegressionOptions o_;
  RowSizes sizes_;
  std::int64_t count_ = 0;
  double last_time_ = 0;      // of the last row
  RotatedRows newer_;         // without a window: all rows
  std::int64_t rotated_ = 0;  // rows that went into it
  bool placed_ = false;       // has its origin been chosen?
  RowStore newer_rows_;       // of a window
  double newer_log_ = 0;      // the logarithm of what was forgotten since it began
  Suffixes older_;
  double older_log_ = 0;  // and since the last of these
  std::optional<RotatedRows> counted_, solved_;
};

}  // namespace ttr::regression
