/// Columns that are known before their row, behind the lags in a memory's key.
///
/// A row x of E numbers belongs to the row that is forecast. In a window's units each is taken
/// relative to its mean m_e over the latest half of the window's rows, since these have what x was
/// there, and divided as the lags are:
///
///     key_e = (x_e - m_e) / (u_e s)
///
/// Half of them: in y_t = a_1 y_{t-1} + ... + a_p y_{t-p} + b x_t + c the rows t - 1 .. t - k tell
/// b m_e + c as a sum of lags 1 .. k + p, which the window has for p up to its other half; the more
/// rows the less noise. Then the relation has no constant left, as that of a window's key.
///
/// u_e is the length of (x_e - m_e) over the first window and row where it is not 0, fixed from
/// then on; s the window's scale. So a shift or a factor of x changes nothing, and what x adds to a
/// linear memory's forecast has the unit of the data, whatever the window's scale. Units::kRaw:
/// the numbers themselves.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "src/forecast/lag_window.h"
#include "ttr/forecast.h"

namespace ttr::forecasting {

class Regressors {
 public:
  /// `count` of them, 0 or more; `lags`: rows in the key of the window.
  Regressors(std::int64_t count, std::int64_t lags, Units units);

  std::int64_t count() const { return static_cast<std::int64_t>(unit_.size()); }
  /// Puts those of the row that is forecast behind the window's key.
  void AddTo(LagKey& key, std::span<const double> x);
  /// The row has come.
  void Push(std::span<const double> x);

  nlohmann::json Save() const;
  /// Throws Error when it is not what Save() of these sizes gave.
  void Load(const nlohmann::json& saved);

 private:
  bool raw_;
  LagWindow window_;
  std::vector<double> unit_;  // u_e, 0 while unknown
};

}  // namespace ttr::forecasting
