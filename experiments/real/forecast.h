/// Forecasts of the rows of a table by several memories and the naive forecasters, side by side,
/// while the table is read; and their errors.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/real/forecast_watch.h"
#include "experiments/real/naive.h"
#include "experiments/real/named_recipe.h"
#include "ttr/forecast.h"

namespace ttr::experiments {

struct ForecastOptions {
  std::vector<std::string> columns{};    ///< the names of the columns that are forecast
  std::vector<std::string> exogenous{};  ///< those that are known before their rows
  std::int64_t lags = 16;
  std::vector<std::int64_t> sparse_lags{};  ///< these alone, the last of which is `lags`; or none
  std::vector<std::int64_t> differences{};  ///< seasons
  bool logarithm = false;
  Strategy strategy = Strategy::kRecursive;
  std::int64_t horizon = 1;
  std::int64_t ahead = 0;   ///< rows beyond the end of the table that are forecast
  std::int64_t season = 0;  ///< rows; 0: no seasonal naive forecaster
  std::vector<NamedRecipe> memories{};
  Units units = Units::kWindow;
  GateConstants gates{};
  double interval = 0;             ///< level of the memories' prediction intervals; 0: none
  double interval_decay = 0;       ///< of the residuals' weights; 0: the memory's own
  std::int64_t conformal = 0;      ///< intervals are quantiles of so many errors; 0: Student's t
  bool selects_bandwidth = false;  ///< while they read, of memories with one (bandwidth.h)
};

/// The errors of one method on one column, over the rows that every method has a forecast of.
struct ForecastErrors {
  std::string method;
  std::string column;
  std::int64_t rows = 0;
  double mean_absolute = 0;
  double root_mean_square = 0;
  double relative = 0;  ///< root mean square over that of the naive forecaster

  // Intervals, over those of these rows that had one: NaN where none had.
  double coverage = 0;  ///< share of the rows inside
  double width = 0;     ///< mean
  double loss = 0;      ///< mean loss of all residuals so far, weighted by age (residuals.h)
  std::int64_t intervals = 0;

  double growth = 0;  ///< of recent errors beside those before; 0: none to speak of (ErrorDrift)
};

/// Forecasts of a block of rows.
class Forecasts {
 public:
  Forecasts(std::int64_t methods, std::int64_t rows, std::int64_t columns);

  /// [C]; NaN where there is none.
  std::span<double> At(std::int64_t method, std::int64_t row);
  /// [C]; half the width of the interval around it, NaN where there is none.
  std::span<double> Margin(std::int64_t method, std::int64_t row);
  /// Was one made? A memory that has run away may have made one that is NaN.
  bool Made(std::int64_t method, std::int64_t row, std::int64_t column) const;
  void SetMade(std::int64_t method, std::int64_t row);

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<double> values_;
  std::vector<double> margins_;
  std::vector<char> made_;
};

class ForecastRun {
 public:
  /// Throws Error for options and recipes that have no meaning.
  explicit ForecastRun(const ForecastOptions& options);

  /// The names of the methods, in the order of Forecasts: naive, seasonal_naive (with a season),
  /// then the memories by their texts.
  const std::vector<std::string>& methods() const { return methods_; }

  const ForecastOptions& options() const { return options_; }

  /// Reads a block of rows ([rows, C], NaN where missing) and returns the forecasts *of* these
  /// rows. However a table is cut into blocks, the forecasts are the same. Memories run in
  /// parallel. `known` has the exogenous columns [m, E] of these rows and of later ones: errors of
  /// rows ahead are measured as far as they are known.
  Forecasts Next(std::span<const double> rows, std::span<const double> known = {});

  /// The forecasts of the next `ahead` rows, whose exogenous columns are `known` [ahead, E]. Throws
  /// Error where a memory has read too few rows.
  Forecasts Ahead(std::span<const double> known = {});
  /// The same, or nothing there.
  std::optional<Forecasts> AheadIfAny(std::span<const double> known = {});

  std::vector<ForecastErrors> Errors() const;
  /// How well every method is determined; none where it is no least-squares memory. O((lags C)^3)
  /// each.
  std::vector<std::optional<FitQuality>> Qualities() const;
  /// The bandwidth in use of every method; none where none is selected.
  std::vector<std::optional<double>> Bandwidths() const;
  /// Does it give intervals? Naive forecasters never do.
  bool HasIntervals(std::int64_t method) const;
  bool IsMemory(std::int64_t method) const;
  /// That of such a method around a forecast with this margin.
  Interval IntervalOf(std::int64_t method, double forecast, double margin) const;
  /// Rows up to the first forecast's own, from the first that counts.
  std::int64_t LeastRows() const;

  /// Everything that later rows depend on, in one file, atomically. A run resumed from it with the
  /// same options continues bit for bit. Only the errors start anew.
  void Save(const std::filesystem::path& path) const;
  /// Throws Error that names what does not match: columns, lags, horizon, season, units, memories,
  /// gates; or a damaged file.
  void Resume(const std::filesystem::path& path);

 private:
  void Score(std::span<const double> rows, Forecasts& forecasts);
  void CheckLogarithms(std::span<const double> rows) const;

  struct Sums {
    double absolute = 0;
    double squares = 0;
    double widths = 0;
    std::int64_t intervals = 0;
    std::int64_t inside = 0;
    ErrorDrift drift{};
  };

  ForecastOptions options_;
  std::vector<std::string> methods_;
  std::vector<Naive> naive_;
  std::vector<Forecaster> forecasters_;
  std::vector<Sums> sums_;            // [methods, C]
  std::vector<std::int64_t> scored_;  // [C]
  std::int64_t rows_ = 0;             // read in this run
};

/// The options that a saved run had, memories included: what a resumed one takes where the user
/// said nothing. Throws Error for a file that is none.
ForecastOptions SavedOptions(const std::filesystem::path& path);

}  // namespace ttr::experiments
