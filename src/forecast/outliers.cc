#include "src/forecast/outliers.h"

#include <algorithm>
#include <cmath>

namespace ttr::forecasting {
namespace {

// 2^1000 is longer than any error, and a double.
constexpr double kMostDoublings = 1000;

double OrZero(double x) { return std::isfinite(x) ? x : 0; }

}  // namespace

bool WeighsByLength(const Recipe& recipe) {
  const bool is_linear = recipe.function.kind == FunctionClass::kLinear &&
                         recipe.function.features == FeatureMap::kNone;
  const bool is_homogeneous = recipe.reading.normalise_sum == NormaliseSum::kNone &&
                              !recipe.reading.normalise_qk &&
                              recipe.reading.output_norm == OutputNorm::kNone;
  const bool sees_no_length =
      recipe.optimizer.solver == Solver::kSgd && recipe.optimizer.step == StepRule::kNlms;
  return is_linear && is_homogeneous && !sees_no_length;
}

double Reach(std::int64_t lags, std::int64_t horizon) {
  if (lags == 1) return 1;  // nothing moves in such a window
  const auto n = static_cast<double>(lags);
  const double line = (n - 1) / 2 + static_cast<double>(horizon);
  return std::max(1., line / std::sqrt(n * (n * n - 1) / 12));
}

Outliers::Outliers(const Recipe& recipe, std::int64_t lags, std::int64_t horizon)
    : divides_(WeighsByLength(recipe)),
      descends_(recipe.function.kind == FunctionClass::kNetwork),
      reach_(Reach(lags, horizon)),
      horizon_(horizon) {}

void Outliers::Hold(std::span<double> key, std::span<double> value,
                    std::span<const double> forecast) {
  const bool holds_value = divides_ || descends_;
  double length = 0;
  for (std::size_t c = 0; c < value.size(); ++c) {
    length = std::hypot(length, holds_value ? value[c] : value[c] - OrZero(forecast[c]));
  }
  if (holds_value) {
    if (!(length > 1)) return;
    for (double& x : key) x /= divides_ ? length : 1;
    for (double& x : value) x /= length;
    return;
  }
  const double doublings = static_cast<double>(run_) / static_cast<double>(horizon_);
  const double room = reach_ * std::exp2(std::min(doublings, kMostDoublings));
  if (!(length > room)) {
    run_ = 0;
    return;
  }
  ++run_;
  for (std::size_t c = 0; c < value.size(); ++c) {
    const double from = OrZero(forecast[c]);
    value[c] = from + (value[c] - from) * (room / length);
  }
}

}  // namespace ttr::forecasting
