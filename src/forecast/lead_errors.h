/// How far off forecasts are that go on beyond the horizon, where a memory's own forecasts stand in
/// for the rows that it does not have.
///
/// Nothing is scaled from the errors at the horizon h: while a table is read, a path begins at
/// every m-th row t, the forecasts of rows t + h + 1 .. t + n made from nothing later than row t,
/// and each is held against its row when that has come. The errors at a lead k = h + 1 .. n make an
/// interval just as those at the horizon do (residuals.h), so intervals widen as the recursion's
/// errors do.
///
/// m = ceil((n - h) / 64) keeps the cost below 64 answers a row: paths that begin at neighbouring
/// rows share most of their innovations. With a decay g the weights are then those of g^m, and
/// errors at a lead k share what those of a horizon ceil(k / m) do.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "src/forecast/residuals.h"

namespace ttr::forecasting {

class LeadErrors {
 public:
  struct Options {
    std::int64_t columns = 1;
    std::int64_t horizon = 1;    ///< h; 0 where every lead is measured here
    std::int64_t ahead = 2;      ///< n, above the horizon
    double decay = 1;            ///< g
    std::int64_t conformal = 0;  ///< errors kept of each lead
    std::int64_t skip = 0;       ///< first rows whose paths are not taken
  };

  explicit LeadErrors(const Options& options);

  /// A row of C values was read, NaN where missing.
  void Add(std::span<const double> row);
  /// Does a path begin at the row that was read last?
  bool Begins() const { return rows_ % stride_ == 0; }
  /// It does: the forecasts of the rows from the (horizon + 1)-th to the n-th after it, [n - h, C].
  void Begin(std::vector<double> path);

  /// Half of the interval's width at a lead from h + 1 to n; NaN where there is none.
  double Margin(double level, std::int64_t lead, std::int64_t column);
  const Residuals& residuals(std::int64_t lead, std::int64_t column) const {
    return residuals_[static_cast<std::size_t>(Place(lead, column))];
  }

  nlohmann::json Save() const;
  /// Takes over what was saved with the same options; of other ones nothing, so that the errors
  /// begin anew.
  void Load(const nlohmann::json& saved);

 private:
  struct Path {
    std::int64_t age = 0;  // rows read since it began
    std::vector<double> forecasts;
  };

  std::int64_t Place(std::int64_t lead, std::int64_t column) const {
    return (lead - options_.horizon - 1) * options_.columns + column;
  }

  Options options_;
  std::int64_t stride_;
  std::int64_t rows_ = 0;
  std::deque<Path> paths_;            // the oldest first
  std::vector<Residuals> residuals_;  // [n - h, C]
};

}  // namespace ttr::forecasting
