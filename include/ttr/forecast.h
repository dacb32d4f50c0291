/// A memory that forecasts the rows of a table while it reads them.
///
///     ttr::Forecaster forecaster(ttr::ParseRecipe("rls{ridge: 0.1}"), {.lags = 16});
///     while (...) forecaster.Next(row, forecast);      // of this row, made before it was read
///     forecaster.Ahead(forecasts);                     // of the rows to come
///
/// The key is the window of the last `lags` rows of all C columns, the value the row `horizon`
/// after it. At row t the memory holds the pairs of all rows i <= t; it is asked with the window
/// that ends at row t, and its answer is the forecast of row t + horizon. Nothing is trained
/// beforehand, and a row costs one write and one read of the memory. docs/forecast.md says what
/// units, outliers, missing values and intervals are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/memory.h"

namespace ttr {

/// kWindow: keys and values relative to each window's mean and length; kRaw: the data as they are.
enum class Units { kWindow, kRaw };

/// Gates where nothing is learned: what a network would compute for every token is a constant.
struct GateConstants {
  double step = .5;           ///< `step`; keys have length 1 at most, so 1 replaces what was known
  double decay = .99;         ///< exp(`log_decay`), a token
  double momentum = .5;       ///< `momentum`
  double weight_decay = .01;  ///< `weight_decay`
};

struct ForecasterOptions {
  std::int64_t lags = 1;
  std::int64_t columns = 1;
  std::int64_t horizon = 1;
  /// The lags of the key, rising from 1 or more; empty: 1 .. `lags`. With them `lags` is the last.
  std::vector<std::int64_t> sparse_lags{};
  /// Seasons s of differences x_t - x_{t-s}, one behind the other, that the memory reads in place
  /// of the rows; forecasts, errors and intervals are of the rows all the same. Horizon 1 alone.
  std::vector<std::int64_t> differences{};
  std::int64_t ahead = 0;  ///< rows ahead up to which errors are measured, if that is more
  Units units = Units::kWindow;
  GateConstants gates{};
  bool measures_errors = false;  ///< for Margins(); with an interval they always are
  double interval = 0;           ///< level of the intervals of Next() and Ahead(); 0: none
  double interval_decay = 0;     ///< of the errors' weights; 0: as the recipe's associations fade
  /// Intervals are quantiles of the last so many errors, their rank following what was covered
  /// (adaptive conformal inference); 0: Student's t of the weighted errors.
  std::int64_t conformal = 0;
  /// The bandwidth of a kernel that can be read with any is selected; else it is the recipe's.
  bool selects_bandwidth = false;
};

/// What a least-squares memory rests on.
struct FitQuality {
  double samples = 0;    ///< (sum w)^2 / sum w^2 over the weights w of the pairs' ages
  double condition = 0;  ///< AssociativeMemory::Condition()
};

namespace forecasting {
class MemoryForecaster;
}

class Forecaster {
 public:
  /// Error: sizes below 1, constants out of range, recipes that cannot learn row by row.
  Forecaster(const Recipe& recipe, const ForecasterOptions& options);
  Forecaster(const Forecaster& other);
  Forecaster& operator=(const Forecaster& other);
  Forecaster(Forecaster&&) noexcept;
  Forecaster& operator=(Forecaster&&) noexcept;
  ~Forecaster();

  const ForecasterOptions& options() const;
  /// Rows read since the first that has a value in every column.
  std::int64_t rows() const;

  /// Reads a row [C], NaN where missing. Writes the forecast of this row, made `horizon` rows ago,
  /// and half the width of its interval [C]; false, and NaN there, where none was made. `margin`
  /// may be empty.
  bool Next(std::span<const double> row, std::span<double> forecast, std::span<double> margin = {});

  /// Writes the forecasts of the next n rows [n, C] and half the widths of their intervals [n, C],
  /// NaN where there is none, or empty: the first `horizon` as they were made, all others by
  /// recursion. False, and NaN, before there were lags + horizon - 1 rows.
  bool Ahead(std::span<double> forecasts, std::span<double> margins = {});

  /// Half the widths of the intervals of the next n rows [n, C] at any level, by the errors up to
  /// now; NaN where nobody has measured them.
  void Margins(double level, std::span<double> margins);

  const AssociativeMemory& memory() const;
  /// None where the memory carries no Gram matrix. O((lags C)^3).
  std::optional<FitQuality> Quality() const;
  /// The bandwidth in use; none where none is selected.
  std::optional<double> Bandwidth() const;
  /// Mean loss (half the square) of a column's errors, weighted by age. Errors must be measured.
  double MeanLoss(std::int64_t column) const;
  /// How many of them count: (sum w)^2 / sum w^2.
  double EffectiveErrors(std::int64_t column) const;

  /// All beside the memory itself, as JSON.
  std::string Save() const;
  /// Takes over what was saved, of a forecaster with the same recipe and options, which then goes
  /// on bit for bit. Error: what is damaged, or of other sizes.
  void Load(AssociativeMemory memory, std::string_view saved);

 private:
  std::unique_ptr<forecasting::MemoryForecaster> own_;
};

}  // namespace ttr
