/// The mean of direct and recursive forecasts, and how far off it has been.
///
/// A recursion learns one step from every pair, and carries what this step misses from row to row;
/// a memory of rows k ahead has no such bias and more noise (Taieb and Hyndman, 2012: "Recursive
/// and direct multi-step forecasting: the best of both worlds"). The recursion's step has an
/// intercept, so that it follows a drift, where the direct memories return to the window's level.
/// Where neither is right they are off for reasons of their own, and the mean is better than
/// either. The weights are equal: weights by past errors are estimates with errors of their own,
/// which cost more than they bring (Timmermann, 2006: "Forecast combinations").
///
/// Intervals follow from the errors of the mean itself, lead by lead (lead_errors.h): those of its
/// two parts say nothing of how they cancel.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/forecast/lead_errors.h"

namespace ttr::forecasting {

class Combination {
 public:
  struct Options {
    std::int64_t columns = 1;
    std::int64_t horizon = 2;
    std::int64_t ahead = 0;  ///< rows whose errors are measured, if more than the horizon
    double level = 0;        ///< of the intervals of Next(); 0: none
    bool measures_errors = true;
    double decay = 1;            ///< of the errors' weights
    std::int64_t conformal = 0;  ///< errors kept of each lead
    std::int64_t skip = 0;       ///< first errors of each lead that are not taken
  };

  explicit Combination(const Options& options);

  /// Rows that a path has.
  std::int64_t rows() const;
  /// A row [C] was read, NaN where missing. Writes its forecast and margin, made `horizon` rows
  /// ago; false, and they stay as they are, where none was.
  bool Next(std::span<const double> row, std::span<double> forecast, std::span<double> margin);
  /// The forecasts of the rows behind the one that was read last, [rows(), C]; NaN beyond the
  /// horizon where they do not go so far yet.
  void Begin(std::vector<double> path);

  /// Half the widths of the intervals of the next rows [n, C]; NaN where nobody has measured
  /// errors.
  void Margins(double level, std::span<double> margins);
  /// Errors of the rows `horizon` ahead. They must be measured.
  const Residuals& residuals(std::int64_t column) const;

  std::string SaveText() const;
  /// Takes over what was saved with the same options. Error: what is damaged, or of other sizes.
  void LoadText(std::string_view saved);

 private:
  nlohmann::json Save() const;
  void Load(const nlohmann::json& saved);

  struct Pending {
    std::vector<double> forecast, margin;  // [C]; no margin without intervals
  };

  Options options_;
  std::deque<Pending> pending_;  // of the next `horizon` rows
  std::optional<LeadErrors> errors_;
};

}  // namespace ttr::forecasting
