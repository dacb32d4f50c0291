/// Means over seeds and what they decide.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

/// Mean and its standard error, sd / sqrt(n) with n - 1 in the variance; of one value the error is
/// NaN (and is not shown). Sums run in the order of the values.
report::Measured MeanOf(const std::vector<double>& values);

/// "0.281 ± 0.004"
std::string Show(const report::Measured& measured, int digits = 3);

/// One column of a study: its value at every seed, in the same order as every other column's.
struct Sample {
  std::string name;
  std::vector<double> values;
};

/// The claim that the mean of each sample is below the mean of the next, and by more than two
/// standard errors of the difference (seed by seed; a single seed needs only to be below). The
/// evidence names all means.
Claim Increasing(std::string what, const std::vector<Sample>& samples);

/// mean - 2 errors and mean + 2 errors of each column of `rows` ([seed][t]), for a band.
struct Band {
  std::vector<double> mean, low, high;
};
Band BandOf(const std::vector<std::vector<double>>& rows);

/// The mean of values[begin .. end).
double MeanOfRange(const std::vector<double>& values, std::size_t begin, std::size_t end);

}  // namespace ttr::experiments
