/// How far off the forecasts of one output have been, and how far off the next one may be.
///
/// Residuals e_i = x_i - forecast_i are *predictive*: the forecast of row i was made before row i
/// was known. They are weighted by age, w_i = g^(t - i), g the decay:
///
///     s^2   = sum_i w_i e_i^2 / sum_i w_i        mean loss = s^2 / 2
///     n_eff = (sum_i w_i)^2 / sum_i w_i^2        = tanh(-t log(g) / 2) / tanh(-log(g) / 2)
///
/// with t residuals so far; n_eff = t for g = 1, and tends to (1 + g) / (1 - g) else. s is carried
/// by
///
///     s_t^2 = (1 - r) s_{t-1}^2 + r e_t^2,       r = 1 / sum_i w_i = (1 - g) / (1 - g^t)
///
/// a weighted mean of two squares, taken as the length of a vector: nothing is subtracted, nothing
/// overflows, and a rounding fades as fast as the residual that it came with. (Moments are taken
/// about 0, not about the residuals' mean: a forecaster that is always off by the same is off.)
///
/// The prediction interval at a level p is
///
///     forecast +- q s,     P(|T| <= q) = p,  T Student's t with n degrees of freedom,
///     n = n_eff 3 h / (2 h^2 + 1)
///
/// What is assumed, and what follows:
/// - Residuals are Gaussian, centred, and of a variance that moves slowly beside 1 / (1 - g) rows.
/// - No term is added for the uncertainty of the parameters (no leverage): a residual was made with
///   parameters that did not know it, so s^2 holds their uncertainty already, as it was on average.
///   With forgetting that is what it is now; without, the young fit's larger residuals stay in the
///   mean, and s is too large by about p log(t) / 2 t of itself (p parameters, t residuals).
/// - No degrees of freedom are taken off for parameters, for the same reason: none was fitted to a
///   residual before that counted. n is that of the scaled chi-square with the mean and variance of
///   s^2 (Satterthwaite), which for independent residuals is n_eff. What parameters do cost is
///   paid at the start: the first residuals, of a fit that is hardly determined yet, are not taken
///   (`skip`); see Forecaster.
/// - h rows ahead, s is that of the residuals h rows ahead themselves, never a scaled one-step s.
///   Neighbouring ones share h - k of their h innovations; with the correlations 1 - k/h of a
///   random walk Satterthwaite's number is n_eff / (1 + 2 sum_{0<k<h} (1 - k/h)^2), the n above.
/// - Below one degree of freedom there is no interval.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "src/forecast/recent_errors.h"

namespace ttr::forecasting {

/// (sum w)^2 / sum w^2 of `count` weights 1, g, g^2, ...; g in (0, 1].
double EffectiveSamples(double decay, std::int64_t count);

class Residuals {
 public:
  /// `decay` in (0, 1]; the first `skip` residuals are not taken; `conformal`: margins are those of
  /// RecentErrors of so many. Throws Error out of range.
  Residuals(double decay, std::int64_t skip, std::int64_t conformal = 0);

  /// One that is not finite (a forecast that ran away) is passed over.
  void Add(double residual);

  /// Residuals taken so far.
  std::int64_t count() const { return count_; }
  double EffectiveSamples() const { return forecasting::EffectiveSamples(decay_, count_); }
  /// s, the residuals' root mean square; NaN while there are none.
  double Scale() const;
  double MeanLoss() const { return Scale() * Scale() / 2; }
  /// q s, half of the interval's width; NaN where there is none.
  double Margin(double level, std::int64_t horizon);

  nlohmann::json Save() const;
  /// Takes over what was saved of residuals with the same decay and skip. Throws Error when it
  /// cannot be that.
  void Load(const nlohmann::json& saved);

 private:
  double decay_;
  std::int64_t skip_;
  std::int64_t skipped_ = 0;
  std::int64_t count_ = 0;
  double scale_ = 0;
  std::optional<RecentErrors> recent_;
  // The last quantile: with a decay its degrees of freedom soon stand still.
  double quantile_ = 0;
  double quantile_level_ = 0;
  double quantile_degrees_ = 0;
};

}  // namespace ttr::forecasting
