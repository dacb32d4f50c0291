/// One memory that forecasts the rows of a table while it reads them.
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
#include <vector>

#include "experiments/real/bandwidth.h"
#include "experiments/real/constant_gates.h"
#include "experiments/real/lag_window.h"
#include "experiments/real/lead_errors.h"
#include "experiments/real/outliers.h"
#include "experiments/real/residuals.h"
#include "ttr/memory.h"

namespace ttr::experiments {

struct ForecasterOptions {
  std::int64_t lags = 1;
  std::int64_t columns = 1;
  std::int64_t horizon = 1;
  std::int64_t ahead = 0;  ///< rows that Ahead() forecasts
  Units units = Units::kWindow;
  GateConstants gates{};
  double interval = 0;        ///< level of the prediction intervals; 0: none
  double interval_decay = 0;  ///< of the residuals' weights; 0: the recipe's own (ConstantDecay)
  /// Bandwidths of what ReadsWithAnyBandwidth() are selected; else they are the recipe's.
  bool selects_bandwidth = false;
};

/// What a least-squares memory rests on.
struct FitQuality {
  double samples = 0;    ///< (sum w)^2 / sum w^2 over the weights w of the pairs' ages
  double condition = 0;  ///< AssociativeMemory::Condition()
};

class Forecaster {
 public:
  /// Throws Error for sizes below 1 and for recipes that cannot forecast.
  Forecaster(const Recipe& recipe, const ForecasterOptions& options);

  /// Reads a row of C values, NaN where missing. Writes the forecast of this row, made `horizon`
  /// rows ago, into `forecast`; false, and NaN there, if none was made. The interval of that
  /// forecast is forecast +- margin; [C], NaN where there is none, or empty where none is wanted.
  bool Next(std::span<const double> row, std::span<double> forecast, std::span<double> margin = {});

  /// Writes the forecasts of the next `ahead` rows and half the widths of their intervals, [ahead,
  /// C] each, NaN where there is none: the first `horizon` as they were made, all others from them.
  /// False, and NaN everywhere, before there were lags + horizon - 1 rows.
  bool Ahead(std::span<double> forecasts, std::span<double> margins);

  const AssociativeMemory& memory() const { return memory_; }
  /// Errors so far of every column; empty without intervals.
  const std::vector<Residuals>& residuals() const { return residuals_; }
  /// None where the memory carries no Gram matrix. O((lags C)^3).
  std::optional<FitQuality> Quality() const;
  /// The bandwidth in use; none where none is selected.
  std::optional<double> Bandwidth() const;

  /// All beside the memory itself, as JSON.
  nlohmann::json Save() const;
  /// Takes over what was saved, of a forecaster with the same recipe and options.
  void Load(AssociativeMemory memory, const nlohmann::json& saved);

 private:
  struct Pending {
    LagKey window;
    std::vector<double> forecast;
    std::vector<double> margin;      // empty without intervals
    std::vector<double> candidates;  // [bandwidth, C], in the memory's units; or empty
  };

  void Fill(std::span<const double> row, std::span<const double> forecast);
  void Learn(const Pending& asked);
  void Ask();
  bool IsMean(const LagKey& window) const;
  void Answer(const LagKey& window, std::span<double> answer);
  void GoOn(std::span<double> forecasts);
  bool CanGoOn() const;
  void AskCandidates(Pending& asked);
  void ScoreCandidates(const Pending& asked);

  ForecasterOptions options_;
  AssociativeMemory memory_;
  LagWindow window_;
  Outliers outliers_;
  bool erases_along_key_ = false;
  std::deque<Pending> pending_;    // forecasts of the next `horizon` rows
  std::vector<std::int64_t> gap_;  // rows missing up to now, of each column
  std::vector<double> filled_;     // the row, with its gaps filled
  // Scratch of Learn and Ask.
  std::vector<double> key_, value_, expected_;
  std::vector<Residuals> residuals_;  // of each column, where there are intervals
  std::optional<BandwidthSelector> bandwidths_;
  std::optional<LeadErrors> leads_;  // where there are intervals beyond the horizon
};

}  // namespace ttr::experiments
