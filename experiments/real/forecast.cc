#include "experiments/real/forecast.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "ttr/error.h"
#include "ttr/executor.h"

namespace ttr::experiments {

Forecasts::Forecasts(std::int64_t methods, std::int64_t rows, std::int64_t columns)
    : rows_(rows),
      columns_(columns),
      values_(static_cast<std::size_t>(methods * rows * columns),
              std::numeric_limits<double>::quiet_NaN()),
      margins_(values_),
      made_(static_cast<std::size_t>(methods * rows)) {}

std::span<double> Forecasts::At(std::int64_t method, std::int64_t row) {
  return std::span(values_).subspan((method * rows_ + row) * columns_, columns_);
}

std::span<double> Forecasts::Margin(std::int64_t method, std::int64_t row) {
  return std::span(margins_).subspan((method * rows_ + row) * columns_, columns_);
}

bool Forecasts::Made(std::int64_t method, std::int64_t row, std::int64_t column) const {
  const std::int64_t at = method * rows_ + row;
  return made_[at] != 0 || !std::isnan(values_[at * columns_ + column]);
}

void Forecasts::SetMade(std::int64_t method, std::int64_t row) { made_[method * rows_ + row] = 1; }

ForecastRun::ForecastRun(const ForecastOptions& options) : options_(options) {
  const auto columns = static_cast<std::int64_t>(options.columns.size());
  if (columns == 0) throw Error("forecast", "--column", "given at least once", "absent");
  if (options.interval == 0 && options.interval_decay != 0) {
    throw Error("forecast", "--interval", "given with --interval-decay", "absent");
  }
  methods_ = {"naive"};
  naive_.emplace_back(columns, 1, options.horizon);
  if (options.season != 0) {
    methods_.push_back("seasonal_naive");
    naive_.emplace_back(columns, options.season, options.horizon);
  }
  std::set<std::string> known(methods_.begin(), methods_.end());
  for (const NamedRecipe& memory : options.memories) {
    if (!known.insert(memory.text).second) {
      throw Error("forecast", "--memory", "different from all others",
                  "'" + memory.text + "' twice");
    }
    methods_.push_back(memory.text);
    try {
      forecasters_.emplace_back(
          memory.recipe,
          ForecasterOptions{.lags = options.lags,
                            .columns = columns,
                            .horizon = options.horizon,
                            .sparse_lags = options.sparse_lags,
                            .differences = options.differences,
                            .logarithm = options.logarithm,
                            .strategy = options.strategy,
                            .exogenous = static_cast<std::int64_t>(options.exogenous.size()),
                            .ahead = options.ahead,
                            .units = options.units,
                            .gates = options.gates,
                            .interval = options.interval,
                            .interval_decay = options.interval_decay,
                            .conformal = options.conformal,
                            .selects_bandwidth = options.selects_bandwidth});
    } catch (const Error& error) {
      throw Error("--memory '" + memory.text + "': " + error.what());
    }
  }
  const std::vector<std::optional<double>> bandwidths = Bandwidths();
  if (options.selects_bandwidth &&
      std::none_of(bandwidths.begin(), bandwidths.end(), [](const auto& one) { return !!one; })) {
    throw Error("forecast", "--bandwidth auto",
                "given with a memory that reads with any bandwidth, such as nadaraya_watson or "
                "local_linear{kernel: gaussian, bandwidth: 1}",
                "given without");
  }
  sums_.resize(methods_.size() * static_cast<std::size_t>(columns));
  scored_.resize(static_cast<std::size_t>(columns));
}

void ForecastRun::CheckLogarithms(std::span<const double> rows) const {
  const std::size_t columns = options_.columns.size();
  for (std::size_t i = 0; options_.logarithm && i < rows.size(); ++i) {
    if (!(rows[i] <= 0)) continue;
    throw Error(
        "forecast", "column '" + options_.columns[i % columns] + "'",
        "above 0 in every row (--log)",
        fmt::format("{:g} in row {}", rows[i], rows_ + 1 + static_cast<std::int64_t>(i / columns)));
  }
}

Forecasts ForecastRun::Next(std::span<const double> rows, std::span<const double> known) {
  CheckLogarithms(rows);
  const auto columns = static_cast<std::int64_t>(options_.columns.size());
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / columns;
  const auto naive = static_cast<std::int64_t>(naive_.size());
  const std::size_t exogenous = options_.exogenous.size();
  Forecasts forecasts(static_cast<std::int64_t>(methods_.size()), count, columns);
  const auto run = [&](std::int64_t method) {
    for (std::int64_t t = 0; t < count; ++t) {
      const auto row = rows.subspan(t * columns, columns);
      const auto forecast = forecasts.At(method, t);
      if (method < naive) {
        naive_[method].Next(row, forecast);
        continue;
      }
      const auto from = known.subspan(static_cast<std::size_t>(t) * exogenous);
      const auto margin = forecasts.Margin(method, t);
      if (forecasters_[method - naive].Next(row, forecast, margin, from)) {
        forecasts.SetMade(method, t);
      }
    }
  };
  const auto methods = static_cast<std::int64_t>(methods_.size());
  // A row that is waited for is not worth the way to other threads.
  (count == 1 ? SequentialExecutor() : DefaultExecutor()).Run(methods, run);
  Score(rows, forecasts);
  rows_ += count;
  return forecasts;
}

Forecasts ForecastRun::Ahead(std::span<const double> known) {
  std::optional<Forecasts> forecasts = AheadIfAny(known);
  if (forecasts) return *std::move(forecasts);
  throw Error("forecast", "--ahead",
              "asked after " + std::to_string(LeastRows() - 1) +
                  " rows (--lags + --horizon - 1 and --differences) from the first with a value in "
                  "every column",
              "asked after fewer");
}

std::optional<Forecasts> ForecastRun::AheadIfAny(std::span<const double> known) {
  const auto columns = static_cast<std::int64_t>(options_.columns.size());
  const auto naive = static_cast<std::int64_t>(naive_.size());
  const auto methods = static_cast<std::int64_t>(methods_.size());
  const std::vector<double> missing(static_cast<std::size_t>(columns),
                                    std::numeric_limits<double>::quiet_NaN());
  Forecasts forecasts(methods, options_.ahead, columns);
  for (std::int64_t m = 0; m < naive; ++m) {
    Naive method = naive_[m];
    for (std::int64_t t = 0; t < options_.ahead; ++t) method.Next(missing, forecasts.At(m, t));
  }
  const auto size = static_cast<std::size_t>(options_.ahead * columns);
  for (std::int64_t m = naive; m < methods; ++m) {
    const bool made = forecasters_[m - naive].Ahead({forecasts.At(m, 0).data(), size},
                                                    {forecasts.Margin(m, 0).data(), size}, known);
    if (!made) return std::nullopt;
    for (std::int64_t t = 0; t < options_.ahead; ++t) forecasts.SetMade(m, t);
  }
  return forecasts;
}

void ForecastRun::Score(std::span<const double> rows, Forecasts& forecasts) {
  const auto columns = static_cast<std::int64_t>(options_.columns.size());
  const auto methods = static_cast<std::int64_t>(methods_.size());
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / columns;
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const double x = rows[t * columns + c];
      bool all = !std::isnan(x);
      for (std::int64_t m = 0; m < methods; ++m) all = all && forecasts.Made(m, t, c);
      if (!all) continue;
      ++scored_[c];
      for (std::int64_t m = 0; m < methods; ++m) {
        const double forecast = forecasts.At(m, t)[c];
        const double error = forecast - x;
        Sums& sums = sums_[m * columns + c];
        sums.absolute += std::abs(error);
        sums.squares += error * error;
        sums.drift.Add(std::abs(error));
        const double margin = forecasts.Margin(m, t)[c];
        if (std::isnan(margin)) continue;
        const auto [lower, upper] = IntervalOf(m, forecast, margin);
        ++sums.intervals;
        sums.widths += upper - lower;
        // As the bounds are written; a forecast that is NaN has nothing inside.
        if (lower <= x && x <= upper) ++sums.inside;
      }
    }
  }
}

std::vector<ForecastErrors> ForecastRun::Errors() const {
  std::vector<ForecastErrors> errors;
  const std::size_t columns = options_.columns.size();
  for (std::size_t c = 0; c < columns; ++c) {
    const auto rows = static_cast<double>(scored_[c]);
    for (std::size_t m = 0; m < methods_.size(); ++m) {
      const Sums& sums = sums_[m * columns + c];
      const auto intervals = static_cast<double>(sums.intervals);
      errors.push_back(
          {.method = methods_[m],
           .column = options_.columns[c],
           .rows = scored_[c],
           .mean_absolute = sums.absolute / rows,
           .root_mean_square = std::sqrt(sums.squares / rows),
           .relative = std::sqrt(sums.squares / sums_[c].squares),
           .coverage = static_cast<double>(sums.inside) / intervals,
           .width = sums.widths / intervals,
           .loss = HasIntervals(static_cast<std::int64_t>(m))
                       ? forecasters_[m - naive_.size()].MeanLoss(static_cast<std::int64_t>(c))
                       : std::numeric_limits<double>::quiet_NaN(),
           .intervals = sums.intervals,
           .growth = sums.drift.Growth(options_.horizon)});
    }
  }
  return errors;
}

std::vector<std::optional<FitQuality>> ForecastRun::Qualities() const {
  std::vector<std::optional<FitQuality>> qualities(naive_.size());
  for (const Forecaster& forecaster : forecasters_) qualities.push_back(forecaster.Quality());
  return qualities;
}

std::vector<std::optional<double>> ForecastRun::Bandwidths() const {
  std::vector<std::optional<double>> bandwidths(naive_.size());
  for (const Forecaster& forecaster : forecasters_) bandwidths.push_back(forecaster.Bandwidth());
  return bandwidths;
}

bool ForecastRun::HasIntervals(std::int64_t method) const {
  return options_.interval > 0 && IsMemory(method);
}

bool ForecastRun::IsMemory(std::int64_t method) const {
  return method >= static_cast<std::int64_t>(naive_.size());
}

Interval ForecastRun::IntervalOf(std::int64_t method, double forecast, double margin) const {
  return forecasters_[method - static_cast<std::int64_t>(naive_.size())].IntervalOf(forecast,
                                                                                    margin);
}

std::int64_t ForecastRun::LeastRows() const {
  return options_.lags + options_.horizon +
         std::accumulate(options_.differences.begin(), options_.differences.end(), std::int64_t{0});
}

}  // namespace ttr::experiments
