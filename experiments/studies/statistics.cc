#include "experiments/studies/statistics.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

namespace ttr::experiments {

report::Measured MeanOf(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = MeanOfRange(values, 0, values.size());
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  return {mean, values.size() < 2 ? std::numeric_limits<double>::quiet_NaN()
                                  : std::sqrt(squares / (n - 1) / n)};
}

std::string Show(const report::Measured& measured, int digits) {
  const std::string value = report::ShowReal(measured.value, digits);
  return std::isfinite(measured.error)
             ? fmt::format("{} ± {}", value, report::ShowReal(measured.error, digits))
             : value;
}

Claim Increasing(std::string what, const std::vector<Sample>& samples) {
  Claim claim{std::move(what), true, ""};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    claim.evidence += fmt::format("{}{} {}", i == 0 ? "" : " < ", samples[i].name,
                                  Show(MeanOf(samples[i].values)));
    if (i == 0) continue;
    std::vector<double> differences;
    for (std::size_t s = 0; s < samples[i].values.size(); ++s) {
      differences.push_back(samples[i].values[s] - samples[i - 1].values[s]);
    }
    const report::Measured difference = MeanOf(differences);
    const double doubt = std::isfinite(difference.error) ? 2 * difference.error : 0;
    if (!(difference.value > doubt)) claim.holds = false;
  }
  return claim;
}

Band BandOf(const std::vector<std::vector<double>>& rows) {
  Band band;
  if (rows.empty()) return band;
  for (std::size_t t = 0; t < rows.front().size(); ++t) {
    std::vector<double> column;
    for (const auto& row : rows) column.push_back(row[t]);
    const report::Measured m = MeanOf(column);
    const double error = std::isfinite(m.error) ? m.error : 0;
    band.mean.push_back(m.value);
    band.low.push_back(m.value - 2 * error);
    band.high.push_back(m.value + 2 * error);
  }
  return band;
}

double MeanOfRange(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

}  // namespace ttr::experiments
