/// Do forecasts keep what they promised? What a run says at its end where they do not, and the
/// condition of its least squares while it goes on.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ttr::experiments {

struct ForecastErrors;
struct ForecastOptions;
class ForecastRun;

/// Sizes of errors: those of the last rows beside all before them.
class ErrorDrift {
 public:
  static constexpr std::size_t kRecent = 100;

  /// Those that are not finite are passed over.
  void Add(double size);

  /// Mean of the recent sizes over that of those before, where it is larger than chance explains
  /// (4.5 standard errors, sizes alike for `horizon` rows) and by a quarter at the least; else 0.
  double Growth(std::int64_t horizon) const;

 private:
  std::deque<double> recent_;
  // Sums over all errors that have left it (Welford).
  double count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

/// Sentences for the person who runs it: coverage further from the level than chance explains,
/// errors that have grown, raw data whose condition eats the digits. Empty: all is as promised.
std::vector<std::string> ForecastWarnings(const ForecastRun& run, const ForecastOptions& options);

/// The condition of every method's fit as rows come, at some sixty rows, however many there are.
class ConditionTrace {
 public:
  /// Looks after so many rows, now and then.
  void Look(const ForecastRun& run, std::int64_t rows);

  const std::vector<double>& rows() const { return rows_; }
  /// [method][look]; NaN where there is none.
  const std::vector<std::vector<double>>& conditions() const { return conditions_; }

 private:
  void Thin();

  std::int64_t seen_ = 0;
  std::int64_t every_ = 1;
  std::int64_t next_ = 1;
  std::vector<double> rows_;
  std::vector<std::vector<double>> conditions_;
};

}  // namespace ttr::experiments
