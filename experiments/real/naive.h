/// The forecasters that everything else is measured against: the last value, and the value one
/// season ago.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

namespace ttr::experiments {

/// forecast of row t = the value `period` rows earlier that was known `horizon` rows earlier:
///
///     x[t - period ceil(horizon / period)]
///
/// Where that is missing, the value one period before it, and so on. With period 1 it is the last
/// value known (naive), with a season's length the seasonal naive.
class Naive {
 public:
  /// Throws Error for a period or horizon below 1.
  Naive(std::int64_t columns, std::int64_t period, std::int64_t horizon);

  /// Reads a row of C values, NaN where missing, and writes the forecast of that row (NaN where
  /// there is none).
  void Next(std::span<const double> row, std::span<double> forecast);

  nlohmann::json Save() const;
  void Load(const nlohmann::json& saved);

 private:
  std::int64_t columns_;
  std::int64_t period_;
  std::int64_t reach_;        // period ceil(horizon / period)
  std::vector<double> ring_;  // [reach, C], gaps filled by the value one period before
  std::int64_t next_ = 0;     // row of ring_ that row t takes, and that row t - reach left
};

}  // namespace ttr::experiments
