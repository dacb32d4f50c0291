#include "src/forecast/combination.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ttr::forecasting {

Combination::Combination(const Options& options) : options_(options) {
  if (!options.measures_errors) return;
  errors_.emplace(LeadErrors::Options{.columns = options.columns,
                                      .horizon = 0,
                                      .ahead = rows(),
                                      .decay = options.decay,
                                      .conformal = options.conformal,
                                      .skip = options.skip});
}

std::int64_t Combination::rows() const {
  return options_.measures_errors ? std::max(options_.horizon, options_.ahead) : options_.horizon;
}

bool Combination::Next(std::span<const double> row, std::span<double> forecast,
                       std::span<double> margin) {
  if (errors_) errors_->Add(row);
  if (static_cast<std::int64_t>(pending_.size()) < options_.horizon) return false;
  const Pending& made = pending_.front();
  std::ranges::copy(made.forecast, forecast.begin());
  if (!made.margin.empty() && !margin.empty()) std::ranges::copy(made.margin, margin.begin());
  pending_.pop_front();
  return true;
}

void Combination::Begin(std::vector<double> path) {
  Pending& made = pending_.emplace_back();
  const auto columns = static_cast<std::size_t>(options_.columns);
  const auto last =
      std::span(path).subspan(static_cast<std::size_t>(options_.horizon - 1) * columns, columns);
  made.forecast.assign(last.begin(), last.end());
  if (options_.level > 0) {
    for (std::int64_t c = 0; c < options_.columns; ++c) {
      made.margin.push_back(errors_->Margin(options_.level, options_.horizon, c));
    }
  }
  if (errors_ && errors_->Begins()) errors_->Begin(std::move(path));
}

void Combination::Margins(double level, std::span<double> margins) {
  std::ranges::fill(margins, std::numeric_limits<double>::quiet_NaN());
  if (!errors_) return;
  const auto measured = static_cast<std::size_t>(rows() * options_.columns);
  for (std::size_t i = 0; i < std::min(margins.size(), measured); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    margins[i] = errors_->Margin(level, place / options_.columns + 1, place % options_.columns);
  }
}

const Residuals& Combination::residuals(std::int64_t column) const {
  return errors_.value().residuals(options_.horizon, column);
}

}  // namespace ttr::forecasting
