/// Differences of rows, and the way back.
///
///     w_t = (1 - B^s_1) (1 - B^s_2) ... x_t = x_t - base_t,    B x_t = x_{t-1}
///
/// base_t is a sum over the s_1 + s_2 + ... rows before: what is forecast of w leads back to x by
/// it.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace ttr::forecasting {

class Differences {
 public:
  /// Takes seasons s_i >= 1; without any w is x.
  Differences(std::span<const std::int64_t> seasons, std::int64_t columns);

  /// Are there enough rows for a base?
  bool ready() const { return rows_.size() + 1 == coefficients_.size(); }
  bool empty() const { return rows_.empty(); }
  /// The row pushed last.
  std::span<const double> latest() const { return rows_.back(); }
  /// base of the next row, [C].
  std::span<const double> base() const { return base_; }
  /// A row x, none missing: the next one has another base.
  void Push(std::span<const double> row);

  /// The rows behind the base, the oldest first.
  std::vector<double> rows() const;

 private:
  std::vector<double> coefficients_;      // c_0 = 1, c_1, ...: w_t = sum_j c_j x_{t-j}
  std::deque<std::vector<double>> rows_;  // the latest last
  std::vector<double> base_;
};

}  // namespace ttr::forecasting
