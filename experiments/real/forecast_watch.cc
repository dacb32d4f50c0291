#include "experiments/real/forecast_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "experiments/real/forecast.h"

namespace ttr::experiments {
namespace {

// Standard errors: what one in 100 000 runs is off by.
constexpr double kFar = 4.5;
constexpr std::int64_t kFewestIntervals = 50;
// Ten of a double's sixteen digits are lost at this condition.
constexpr double kMostCondition = 1e10;
constexpr std::size_t kLooks = 64;

std::string CoverageWarning(const ForecastErrors& errors, const ForecastOptions& options) {
  const auto count = static_cast<double>(errors.intervals);
  const double level = options.interval;
  // Errors h rows ahead are alike for h rows.
  const double chance =
      std::sqrt(level * (1 - level) * static_cast<double>(options.horizon) / count);
  if (errors.intervals < kFewestIntervals || std::abs(errors.coverage - level) <= kFar * chance)
    return "";
  return fmt::format(
      "intervals of {} were to hold {:g} of the rows and held {:.3f} of {}{}", errors.method, level,
      errors.coverage, errors.intervals,
      options.conformal > 0 ? "" : ": --interval-kind conformal follows the coverage");
}

std::string DriftWarning(const ForecastErrors& errors, const ForecastOptions& options) {
  if (errors.growth == 0) return "";
  return fmt::format(
      "the last {} errors of {} are {:.2g} times those before (drift): {}a memory that forgets "
      "(weighted_rls{{decay: 0.99}}) follows a change",
      ErrorDrift::kRecent, errors.method, errors.growth,
      options.logarithm ? "" : "where errors grow with the level take --log; ");
}

}  // namespace

void ErrorDrift::Add(double size) {
  if (!std::isfinite(size)) return;
  recent_.push_back(size);
  if (recent_.size() <= kRecent) return;
  const double old = recent_.front();
  recent_.pop_front();
  ++count_;
  const double apart = old - mean_;
  mean_ += apart / count_;
  squares_ += apart * (old - mean_);
}

double ErrorDrift::Growth(std::int64_t horizon) const {
  if (count_ < static_cast<double>(kRecent)) return 0;
  const auto n = static_cast<double>(recent_.size());
  const double mean = std::accumulate(recent_.begin(), recent_.end(), 0.) / n;
  double squares = 0;
  for (const double size : recent_) squares += (size - mean) * (size - mean);
  const double variance = squares / (n * (n - 1)) + squares_ / (count_ * (count_ - 1));
  const double chance = std::sqrt(variance * static_cast<double>(horizon));
  return mean > 1.25 * mean_ && mean - mean_ > kFar * chance ? mean / mean_ : 0;
}

std::vector<std::string> ForecastWarnings(const ForecastRun& run, const ForecastOptions& options) {
  std::vector<std::string> warnings;
  const auto add = [&](const std::string& warning, const std::string& column) {
    if (warning.empty()) return;
    warnings.push_back(options.columns.size() > 1 ? "'" + column + "': " + warning : warning);
  };
  const std::vector<ForecastErrors> all = run.Errors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto method = static_cast<std::int64_t>(i % run.methods().size());
    if (method == 0 && all[i].rows == 0) {
      add("no row has a value and a forecast by every method", all[i].column);
    }
    if (run.HasIntervals(method)) add(CoverageWarning(all[i], options), all[i].column);
    if (run.IsMemory(method)) add(DriftWarning(all[i], options), all[i].column);
  }
  if (options.units != Units::kRaw) return warnings;  // harmless there: docs/forecast.md
  const std::vector<std::optional<FitQuality>> qualities = run.Qualities();
  const std::size_t naive = qualities.size() - options.memories.size();
  for (std::size_t m = naive; m < qualities.size(); ++m) {
    if (!qualities[m] || qualities[m]->condition <= kMostCondition) continue;
    // The condition of what rows are rotated into is the root of this.
    if (GetOption(options.memories[m - naive].recipe, "factor") == "qr") continue;
    warnings.push_back(fmt::format(
        "the condition of {} is {:.2g}, which leaves few digits: take --units window, a "
        "larger ridge, or factor: qr in the recipe",
        run.methods()[m], qualities[m]->condition));
  }
  return warnings;
}

void ConditionTrace::Look(const ForecastRun& run, std::int64_t rows) {
  seen_ += rows;
  if (seen_ < next_) return;
  const std::vector<std::optional<FitQuality>> qualities = run.Qualities();
  conditions_.resize(qualities.size());
  rows_.push_back(static_cast<double>(seen_));
  for (std::size_t m = 0; m < qualities.size(); ++m) {
    conditions_[m].push_back(qualities[m] ? qualities[m]->condition
                                          : std::numeric_limits<double>::quiet_NaN());
  }
  if (rows_.size() > kLooks) Thin();
  next_ = seen_ + every_;
}

// Every other look stays, and the next ones come half as often.
void ConditionTrace::Thin() {
  const auto halve = [](std::vector<double>& numbers) {
    for (std::size_t i = 0; 2 * i < numbers.size(); ++i) numbers[i] = numbers[2 * i];
    numbers.resize((numbers.size() + 1) / 2);
  };
  halve(rows_);
  for (std::vector<double>& one : conditions_) halve(one);
  every_ = std::max<std::int64_t>(2 * every_, seen_ / static_cast<std::int64_t>(kLooks / 2));
}

}  // namespace ttr::experiments
