/// The last errors of a forecaster, for intervals that know no distribution and forget a spike.
///
/// Adaptive conformal inference (Gibbs and Candes, 2021): the margin at a row is a quantile of the
/// sizes of the errors before it, at a rank p_t that follows what was covered,
///
///     p_{t+1} = p_t + g (level - [|e_t| <= margin_t]),    g = 0.02
///
/// so that in the long run the share of rows inside is the level, whatever the errors are and
/// however they depend on each other. The errors themselves are kept, the last n, and p is found
/// again from them whenever a margin is asked for, at any level: it starts at the level, and the
/// older half serves the younger one for quantiles. An error is gone n rows later. While there are
/// too few errors for a level, less than level / (1 - level), residuals.h has its margin of
/// Student's t.
#pragma once

#include <cstdint>
#include <deque>

namespace ttr::forecasting {

class RecentErrors {
 public:
  explicit RecentErrors(std::int64_t most) : most_(static_cast<std::size_t>(most)) {}

  void Add(double error);
  /// NaN while there are so few errors that the largest is no such quantile. O(n^2) moves.
  double Margin(double level) const;

  const std::deque<double>& sizes() const { return sizes_; }

 private:
  std::size_t most_;
  std::deque<double> sizes_;  // |e|, the oldest first
};

}  // namespace ttr::forecasting
