#include "src/forecast/lead_errors.h"

#include <cmath>
#include <utility>

namespace ttr::forecasting {
namespace {

constexpr std::int64_t kMostAnswers = 64;  // a row

std::int64_t Quotient(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

LeadErrors::LeadErrors(const Options& options)
    : options_(options), stride_(Quotient(options.ahead - options.horizon, kMostAnswers)) {
  const double decay = std::pow(options.decay, static_cast<double>(stride_));
  residuals_.assign(static_cast<std::size_t>((options.ahead - options.horizon) * options.columns),
                    Residuals(decay, Quotient(options.skip, stride_), options.conformal));
}

void LeadErrors::Add(std::span<const double> row) {
  ++rows_;
  for (Path& path : paths_) {
    const std::int64_t beyond = ++path.age - options_.horizon - 1;
    if (beyond < 0) continue;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::size_t i = static_cast<std::size_t>(beyond) * row.size() + c;
      residuals_[i].Add(row[c] - path.forecasts[i]);
    }
  }
  if (!paths_.empty() && paths_.front().age == options_.ahead) paths_.pop_front();
}

void LeadErrors::Begin(std::vector<double> path) {
  paths_.push_back({.age = 0, .forecasts = std::move(path)});
}

double LeadErrors::Margin(double level, std::int64_t lead, std::int64_t column) {
  return residuals_[Place(lead, column)].Margin(level, Quotient(lead, stride_));
}

}  // namespace ttr::forecasting
