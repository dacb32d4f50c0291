#include "src/forecast/residuals.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "src/forecast/student_t.h"
#include "ttr/error.h"

namespace ttr::forecasting {

double EffectiveSamples(double decay, std::int64_t count) {
  const auto n = static_cast<double>(count);
  const double rate = -std::log(decay);
  return rate == 0 ? n : std::tanh(n * rate / 2) / std::tanh(rate / 2);
}

Residuals::Residuals(double decay, std::int64_t skip, std::int64_t conformal)
    : decay_(decay), skip_(skip) {
  // Written so that NaN fails.
  if (!(decay > 0 && decay <= 1)) {
    throw Error("forecast", "the decay of residuals", "above 0 and at most 1",
                std::to_string(decay));
  }
  if (skip < 0) throw Error("forecast", "skipped residuals", "0 or more", std::to_string(skip));
  if (conformal > 0) recent_.emplace(conformal);
}

void Residuals::Add(double residual) {
  if (!std::isfinite(residual)) return;
  if (skipped_ < skip_) {
    ++skipped_;
    return;
  }
  if (recent_) recent_->Add(residual);
  ++count_;
  const auto n = static_cast<double>(count_);
  const double r =
      decay_ == 1 ? 1 / n : std::min(1., (1 - decay_) / -std::expm1(n * std::log(decay_)));
  scale_ = std::hypot(std::sqrt(1 - r) * scale_, std::sqrt(r) * residual);
}

double Residuals::Scale() const {
  return count_ == 0 ? std::numeric_limits<double>::quiet_NaN() : scale_;
}

double Residuals::Margin(double level, std::int64_t horizon) {
  if (recent_) {
    const double margin = recent_->Margin(level);
    if (!std::isnan(margin)) return margin;
  }
  const auto h = static_cast<double>(horizon);
  const double degrees = EffectiveSamples() * 3 * h / (2 * h * h + 1);
  if (degrees < 1) return std::numeric_limits<double>::quiet_NaN();
  if (level != quantile_level_ || degrees != quantile_degrees_) {
    quantile_ = StudentQuantile(level, degrees);
    quantile_level_ = level;
    quantile_degrees_ = degrees;
  }
  return quantile_ * scale_;
}

}  // namespace ttr::forecasting
