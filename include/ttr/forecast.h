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

/// Who forecasts the rows up to the horizon.
enum class Strategy {
  kRecursive,  ///< one memory of the rows `horizon` ahead; those between from earlier rows
  kDirect,     ///< a memory for each of the rows 1 .. `horizon` (1000 at the most) ahead
  kCombined,   ///< the mean of these and of the recursion of one of the next row
};

/// "recursive", "direct", "combined".
std::string_view ToString(Strategy strategy);
/// Error: no such name.
Strategy ParseStrategy(std::string_view name);

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
  /// Logarithms of the rows are read, all above 0; forecasts are exponentials, so they are medians.
  bool logarithm = false;
  /// Every row up to the horizon has an interval of its own errors. The memory of a combination's
  /// recursion has an intercept where the recipe is linear, so that the two differ in what they
  /// leave out; the mean is that of logarithms where these are read. No exogenous columns then.
  Strategy strategy = Strategy::kRecursive;
  /// Columns that are known before their row and join its window in the key (calendars, plans,
  /// weather forecasts). Horizon 1, no differences.
  std::int64_t exogenous = 0;
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

/// Between these a value is expected.
struct Interval {
  double lower = 0;
  double upper = 0;
};

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
  /// and half the width of its interval [C], of logarithms where those are read (`IntervalOf`);
  /// false, and NaN there, where none was made. `margin` may be empty. Error: 0 or less where
  /// logarithms are read.
  ///
  /// `known` has the exogenous columns [m, E] of this row and of as many later ones as they are
  /// known of, m >= 1: errors beyond the horizon are measured where those of `ahead` rows are.
  bool Next(std::span<const double> row, std::span<double> forecast, std::span<double> margin = {},
            std::span<const double> known = {});

  /// Writes the forecasts of the next n rows [n, C] and half the widths of their intervals [n, C],
  /// NaN where there is none, or empty: the first `horizon` as they were made, all others by
  /// recursion. False, and NaN, before there were lags + horizon - 1 rows. `known` has the
  /// exogenous columns of these rows [n, E].
  bool Ahead(std::span<double> forecasts, std::span<double> margins = {},
             std::span<const double> known = {});

  /// Half the widths of the intervals of the next n rows [n, C] at any level, by the errors up to
  /// now; NaN where nobody has measured them.
  void Margins(double level, std::span<double> margins);

  /// The interval around a forecast, of half its width as the calls above write it.
  Interval IntervalOf(double forecast, double margin) const;

  /// One, or of other strategies one for each of the rows 1 .. `horizon` ahead; a combination has
  /// that of its recursion before them.
  std::int64_t memories() const;
  const AssociativeMemory& memory(std::int64_t i) const;
  /// That of the rows `horizon` ahead.
  const AssociativeMemory& memory() const { return memory(memories() - 1); }
  /// None where the memory carries neither a Gram matrix nor its triangle. O((lags C)^3).
  std::optional<FitQuality> Quality() const;
  /// The bandwidth in use; none where none is selected.
  std::optional<double> Bandwidth() const;
  /// Mean loss (half the square) of a column's errors, weighted by age. Errors must be measured.
  double MeanLoss(std::int64_t column) const;
  /// How many of them count: (sum w)^2 / sum w^2.
  double EffectiveErrors(std::int64_t column) const;

  /// All beside the memories themselves, as JSON.
  std::string Save() const;
  /// Takes over what was saved, of a forecaster with the same recipe and options, which then goes
  /// on bit for bit. Error: what is damaged, or of other sizes.
  void Load(std::vector<AssociativeMemory> memories, std::string_view saved);

 private:
  struct Own;
  std::unique_ptr<Own> own_;
};

}  // namespace ttr
