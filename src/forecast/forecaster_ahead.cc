// Rows beyond those that a forecaster was asked for: recursion, and how wide its intervals are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "src/forecast/forecaster.h"
#include "ttr/error.h"

namespace ttr::forecasting {

// `known`: of the rows to come. A path begins where it is known so far.
void MemoryForecaster::BeginLead(std::span<const double> known) {
  if (known.size() < static_cast<std::size_t>(options_.ahead * regressors_.count())) return;
  std::vector<double> path(static_cast<std::size_t>(options_.ahead * options_.columns));
  GoOn(path, known);
  path.erase(path.begin(), path.begin() + options_.horizon * options_.columns);
  leads_->Begin(std::move(path));
}

bool MemoryForecaster::CanGoOn() const {
  if (regressors_.count() > 0) return window_.full();
  return static_cast<std::int64_t>(pending_.size()) == options_.horizon;
}

// The forecasts of the next rows, as many as there is room for.
void MemoryForecaster::GoOn(std::span<double> forecasts, std::span<const double> known) {
  const std::size_t columns = value_.size();
  const std::size_t rows = forecasts.size() / columns;
  const std::size_t made = std::min(rows, pending_.size());
  for (std::size_t k = 0; k < made; ++k) {
    std::copy_n(pending_[k].forecast.begin(), columns, forecasts.begin() + k * columns);
  }
  LagWindow window = window_;
  Regressors regressors = regressors_;
  Differences differences = differences_;
  LagKey key;
  std::vector<double> row(columns);
  const auto horizon = static_cast<std::size_t>(options_.horizon);
  const auto exogenous = static_cast<std::size_t>(regressors.count());
  for (std::size_t n = made; n < rows; ++n) {
    for (std::size_t c = 0; n >= horizon && c < columns; ++c) {
      const double forecast = forecasts[(n - horizon) * columns + c];
      row[c] = std::isfinite(forecast) ? forecast : window.latest()[c] + differences.base()[c];
      differenced_[c] = row[c] - differences.base()[c];
    }
    if (n >= horizon) {
      window.Push(differenced_);
      differences.Push(row);
      if (exogenous > 0) regressors.Push(known.subspan((n - 1) * exogenous, exogenous));
    }
    window.MakeKey(key);
    if (exogenous > 0) regressors.AddTo(key, known.subspan(n * exogenous, exogenous));
    Answer(key, value_);
    const auto next = forecasts.subspan(n * columns, columns);
    window.ToData(key, value_, next);
    for (std::size_t c = 0; c < columns; ++c) next[c] += differences.base()[c];
  }
}

bool MemoryForecaster::Ahead(std::span<double> forecasts, std::span<double> margins,
                             std::span<const double> known) {
  std::fill(forecasts.begin(), forecasts.end(), std::numeric_limits<double>::quiet_NaN());
  std::fill(margins.begin(), margins.end(), std::numeric_limits<double>::quiet_NaN());
  const std::size_t needed =
      forecasts.size() / value_.size() * static_cast<std::size_t>(regressors_.count());
  if (known.size() != needed) {
    throw Error("forecast", "known",
                "the exogenous columns of all rows to come, " + std::to_string(needed) + " numbers",
                std::to_string(known.size()));
  }
  if (!CanGoOn()) return false;
  GoOn(forecasts, known);
  if (options_.interval > 0 && !margins.empty()) {
    Margins(options_.interval, margins);
    // Up to the horizon as they were made.
    for (std::size_t i = 0; i < margins.size() && i < pending_.size() * value_.size(); ++i) {
      margins[i] = pending_[i / value_.size()].margin[i % value_.size()];
    }
  }
  return true;
}

std::span<const double> MemoryForecaster::Latest() const {
  if (pending_.empty()) return {};
  return pending_.back().forecast;
}

std::span<const double> MemoryForecaster::LatestMargin() const {
  if (pending_.empty()) return {};
  return pending_.back().margin;
}

void MemoryForecaster::LatestMargin(double level, std::span<double> margin) {
  std::ranges::fill(margin, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t c = 0; c < residuals_.size(); ++c) {
    margin[c] = residuals_[c].Margin(level, options_.horizon);
  }
}

void MemoryForecaster::Margins(double level, std::span<double> margins) {
  std::fill(margins.begin(), margins.end(), std::numeric_limits<double>::quiet_NaN());
  const auto rows = static_cast<std::int64_t>(margins.size() / value_.size());
  for (std::int64_t k = 0; k < rows; ++k) {
    const auto row = margins.subspan(k * value_.size(), value_.size());
    if (k < options_.horizon) {
      LatestMargin(level, row);
      continue;
    }
    for (std::int64_t c = 0; leads_ && k < options_.ahead && c < options_.columns; ++c) {
      row[c] = leads_->Margin(level, k + 1, c);
    }
  }
}

}  // namespace ttr::forecasting
