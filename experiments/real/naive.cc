#include "experiments/real/naive.h"

#include <cmath>
#include <limits>
#include <string>

#include "ttr/error.h"

namespace ttr::experiments {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 24;

std::int64_t Checked(const char* name, std::int64_t value) {
  if (value >= 1 && value <= kMost) return value;
  throw Error("forecast", name, "from 1 to " + std::to_string(kMost), std::to_string(value));
}

}  // namespace

Naive::Naive(std::int64_t columns, std::int64_t period, std::int64_t horizon)
    : columns_(Checked("columns", columns)),
      period_(Checked("season", period)),
      reach_(period * ((Checked("horizon", horizon) + period - 1) / period)),
      ring_(static_cast<std::size_t>(reach_ * columns), std::numeric_limits<double>::quiet_NaN()) {}

void Naive::Next(std::span<const double> row, std::span<double> forecast) {
  const std::int64_t before = (next_ + reach_ - period_) % reach_;  // one period before this row
  for (std::int64_t c = 0; c < columns_; ++c) {
    double& slot = ring_[next_ * columns_ + c];
    forecast[c] = slot;
    const double fallback = before == next_ ? slot : ring_[before * columns_ + c];
    slot = std::isnan(row[c]) ? fallback : row[c];
  }
  next_ = next_ + 1 == reach_ ? 0 : next_ + 1;
}

}  // namespace ttr::experiments
