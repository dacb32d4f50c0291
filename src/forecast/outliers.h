/// What of a pair far from the rest a forecaster's memory learns.
///
/// Pairs come in the units of a window (lag_window.h), whose key is no longer than 1. A value that
/// lies many such lengths away must not outvote all others.
///
/// *Linear memories without an intercept.* A value longer than 1 is divided by its length, d, and
/// so is its key. v = M k and v / d = M k / d are the same relation, and its squared error counts
/// 1 / d^2 as much. Where the values of a trend lie outside of the window, all of them are divided
/// alike, and nothing of the trend is lost.
///
/// *Other memories.* There a pair that is divided is another relation. v = M k + b becomes v / d =
/// M k / d + b / d, with another intercept; a kernel compares keys by their distance, and the
/// divided key lies elsewhere; a step of NLMS, over |k|^2, does not see the factor at all. Such
/// memories were taught that a line ends at its window's scale. So the key stays, and the *error*
/// is held:
///
///     value = forecast + e min(1, room / |e|),   e the error of the forecast
///
/// a winsorised residual, whose influence is bounded and which leaves least squares what they are
/// where nothing is held (Huber, "Robust statistics", 1981, 7.8). A trend that is forecast has no
/// error, however far it leads out of the window; and it is held symmetrically around what is
/// forecast, so that noise around a trend does not pull it towards the window's mean.
///
/// The room is the reach of a window, max(1, ((L - 1) / 2 + h) / sqrt(L (L^2 - 1) / 12)): how far
/// from its mean a straight line is h rows behind a window of L rows and length 1. It doubles with
/// every h errors that were held one after the other: what keeps on being an outlier is none. (A
/// step of the level is one event, of which h rows had been forecast before it came.)
///
/// *Networks.* Their steps of descent diverge with targets far off, and then the forecasts, around
/// which errors are held, do as well. The key stays, and the value is no longer than 1: forecasts
/// of a trend that leads out of its window stay behind.
#pragma once

#include <cstdint>
#include <span>

#include "ttr/recipe.h"

namespace ttr::forecasting {

/// Is a pair divided by d the same relation to the memory, with a weight of 1 / d^2?
bool WeighsByLength(const Recipe& recipe);

/// The reach of a window of length 1.
double Reach(std::int64_t lags, std::int64_t horizon);

class Outliers {
 public:
  Outliers(const Recipe& recipe, std::int64_t lags, std::int64_t horizon);

  /// Makes of a window's pair the one that is learned. `forecast` [C], of the value; one that is
  /// not finite is the window's mean, 0. All in the units of the window.
  void Hold(std::span<double> key, std::span<double> value, std::span<const double> forecast);

  /// Errors held one after the other up to now: all that there is to save.
  std::int64_t run() const { return run_; }
  void set_run(std::int64_t run) { run_ = run; }

 private:
  bool divides_;
  bool descends_;
  double reach_;
  std::int64_t horizon_;
  std::int64_t run_ = 0;
};

}  // namespace ttr::forecasting
