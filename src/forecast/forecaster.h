/// What a Forecaster does.
///
/// At row t the memory holds the pairs (window that ends at row i - n, row i) of all rows i <= t;
/// it is asked with the window that ends at row t, and its answer is the forecast of row t + n,
/// made from nothing later than row t (n the horizon: direct forecasts, no forecast is fed back).
///
/// A memory that holds nothing yet, and a window in which nothing moves, forecast the window's
/// mean; such a window is not memorized.
///
/// Missing values: the forecast of that row stands in for them in the windows, or the last value
/// where there is no forecast; from the (lags + 1)-th missing row of a gap on the mean of the
/// window, so that a long gap ends flat instead of running away. A row whose values are all missing
/// is not memorized; in a row with some of them missing, the forecast is memorized in their place.
/// The first row that counts is the first with a value in every column.
///
/// An outlier, a value far from its window beside the window's scale, is learned with less weight
/// or with a smaller error, as the memory has it (outliers.h); not with Units::kRaw.
///
/// With exogenous columns the question of a row waits until its own are known: when the row is
/// read, before its value is looked at.
///
/// With an interval, every forecast is made with a margin, from the residuals known at the time
/// (residuals.h); those of the first 2 lags C forecasts are not taken. A least-squares fit of p
/// parameters to n rows of noise misses the next row by a variance 1 + p / (n - p - 1) times that
/// of the noise: without bound at n = p, down to about twice at n = 2 p.
///
/// Beyond the horizon (`ahead`) forecasts go on by recursion: those of the next rows take the rows'
/// places in the window, one after the other, and the memory, which learns nothing on the way, is
/// asked with every such window. Their intervals are those of lead_errors.h.
///
/// With bandwidths to select, the memory is asked with every candidate (bandwidth.h); the forecast
/// is the answer of the one whose answers were the best so far, in the units of the memory and with
/// the same weights as pairs that are memorized.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/forecast/bandwidth.h"
#include "src/forecast/constant_gates.h"
#include "src/forecast/differences.h"
#include "src/forecast/lag_window.h"
#include "src/forecast/lead_errors.h"
#include "src/forecast/outliers.h"
#include "src/forecast/regressors.h"
#include "src/forecast/residuals.h"
#include "ttr/forecast.h"
#include "ttr/memory.h"

namespace ttr::forecasting {

class MemoryForecaster {
 public:
  /// Throws Error for sizes below 1 and for recipes that cannot forecast.
  MemoryForecaster(const Recipe& recipe, const ForecasterOptions& options);

  // As Forecaster has them.
  bool Next(std::span<const double> row, std::span<double> forecast, std::span<double> margin,
            std::span<const double> known);
  bool Ahead(std::span<double> forecasts, std::span<double> margins, std::span<const double> known);
  void Margins(double level, std::span<double> margins);
  const ForecasterOptions& options() const { return options_; }
  std::int64_t rows() const { return rows_; }
  const AssociativeMemory& memory() const { return memory_; }
  std::optional<FitQuality> Quality() const;
  std::optional<double> Bandwidth() const;
  std::string SaveText() const;
  void LoadText(AssociativeMemory memory, std::string_view saved);

  /// The forecast of the row `horizon` behind the one that was read last, and half the width of its
  /// interval; empty where there is none.
  std::span<const double> Latest() const;
  std::span<const double> LatestMargin() const;
  /// Half the width of its interval at any level [C], by the errors up to now.
  void LatestMargin(double level, std::span<double> margin);

  /// The first errors that are not taken.
  std::int64_t skipped_errors() const { return 2 * memory_.sizes().key_dim; }
  /// Errors so far of every column; empty where they are not measured.
  const std::vector<Residuals>& residuals() const { return residuals_; }

 private:
  struct Pending {
    LagKey window;
    std::vector<double> forecast;
    std::vector<double> margin;      // empty without intervals
    std::vector<double> candidates;  // [bandwidth, C], in the memory's units; or empty
  };

  nlohmann::json Save() const;
  void Load(AssociativeMemory memory, const nlohmann::json& saved);
  void Fill(std::span<const double> row, std::span<const double> forecast);
  std::span<const double> Differenced(std::span<const double> row);
  void Learn(const Pending& asked);
  void Ask(std::span<const double> known);
  void BeginLead(std::span<const double> known);
  bool IsMean(const LagKey& window) const;
  void Answer(const LagKey& window, std::span<double> answer);
  void GoOn(std::span<double> forecasts, std::span<const double> known);
  bool CanGoOn() const;
  void AskCandidates(Pending& asked);
  void ScoreCandidates(const Pending& asked);

  ForecasterOptions options_;
  AssociativeMemory memory_;
  LagWindow window_;  // of differences, if any
  Regressors regressors_;
  Differences differences_;
  Outliers outliers_;
  bool erases_along_key_ = false;
  std::int64_t rows_ = 0;          // since the first with a value in every column
  std::deque<Pending> pending_;    // forecasts of the next `horizon` rows
  std::vector<std::int64_t> gap_;  // rows missing up to now, of each column
  std::vector<double> filled_;     // the row, with its gaps filled
  // Scratch of Learn and Ask.
  std::vector<double> key_, value_, expected_, differenced_;
  std::vector<Residuals> residuals_;  // of each column, where errors are measured
  std::optional<BandwidthSelector> bandwidths_;
  std::optional<LeadErrors> leads_;  // where they are beyond the horizon
};

}  // namespace ttr::forecasting
