/// The last rows of a table as the key of a memory, in units that follow the data.
///
/// A window holds the last `lags` rows of C columns. Each column is taken relative to its mean m_c
/// in the window; all columns together are divided by one scale s, the larger of the window's
/// length and a running mean of such lengths (rate 1 / (10 lags), each counted as 10 r at the
/// most):
///
///     w_ic = (x_ic - m_c) / u_c,    s = max(|w|, r),    key = w / s       so that |key| <= 1
///
/// u_c is the length of the first window of the column that is not flat, fixed from then on (it
/// cancels where there is one column). The value that is memorized with the key lies in these
/// units, (x_c - m_c) / (u_c s), so a shift or a factor of a column changes keys and values by
/// rounding alone, and forecasts m_c + u_c s y_c follow the data. Key and value divided by one
/// number are the same linear relation, so a scale that moves does not disturb a linear memory.
///
/// Units::kRaw: keys and values are the data themselves.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "ttr/forecast.h"

namespace ttr::forecasting {

/// A window's key, and what leads from the memory's answer back to the data.
struct LagKey {
  std::vector<double> key;     ///< [lags, C], the latest row first
  std::vector<double> centre;  ///< m_c
  double scale = 1;            ///< s; 0 where all windows so far were flat
  bool flat = false;           ///< no column moves inside the window: nothing to learn from
};

class LagWindow {
 public:
  /// Keeps the lags 1 .. `lags`; or `sparse` alone, rising, the last of which is `lags`.
  LagWindow(std::int64_t lags, std::int64_t columns, Units units,
            std::span<const std::int64_t> sparse = {});

  /// Takes one row of C numbers, none missing.
  void Push(std::span<const double> row);
  /// Are there `lags` rows?
  bool full() const { return rows_ == lags_; }
  std::int64_t rows() const { return rows_; }
  bool empty() const { return rows_ == 0; }
  /// The latest row, [C].
  std::span<const double> latest() const;
  /// Mean of a column over the lags that are there.
  double Mean(std::int64_t column) const;
  /// The lags of a column that are there, less `origin`, as one vector: its length.
  double LengthAround(std::int64_t column, double origin) const;

  /// The key of the window, which is full. Called once a row: it moves the running scale on.
  void MakeKey(LagKey& key);

  /// From data to the memory's units and back, [C].
  void ToMemory(const LagKey& key, std::span<const double> data, std::span<double> memory) const;
  void ToData(const LagKey& key, std::span<const double> memory, std::span<double> data) const;

  nlohmann::json Save() const;
  /// Throws Error when it is not what Save() of a window of these sizes gave.
  void Load(const nlohmann::json& saved);

 private:
  double At(std::int64_t age, std::int64_t column) const;

  std::int64_t lags_;
  std::int64_t columns_;
  Units units_;
  std::vector<std::int64_t> ages_;  // of the key's rows: 0 is the latest
  std::vector<double> ring_;        // [lags, C]
  std::int64_t next_ = 0;           // row of ring_ that is written next
  std::int64_t rows_ = 0;           // rows that are there
  std::vector<double> unit_;        // u_c, 0 while unknown
  double running_ = 0;              // r
};

}  // namespace ttr::forecasting
