#include "src/forecast/recent_errors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ttr::forecasting {
namespace {

constexpr double kRate = .02;

// The smallest of sorted sizes that a share p of n + 1 is not above; the largest where none is.
double Quantile(const std::vector<double>& sorted, double p) {
  const double rank = std::ceil(p * static_cast<double>(sorted.size() + 1));
  const double last = static_cast<double>(sorted.size());
  return sorted[static_cast<std::size_t>(std::clamp(rank, 1., last)) - 1];
}

void Insert(std::vector<double>& sorted, double size) {
  sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), size), size);
}

}  // namespace

void RecentErrors::Add(double error) {
  if (!std::isfinite(error)) return;
  sizes_.push_back(std::abs(error));
  if (sizes_.size() > most_) sizes_.pop_front();
}

double RecentErrors::Margin(double level) const {
  const auto n = static_cast<double>(sizes_.size());
  if (n < level / (1 - level)) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t before = sizes_.size() / 2;
  std::vector<double> sorted;
  double p = level;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (i >= before && i > 0) {
      const bool inside = sizes_[i] <= Quantile(sorted, p);
      p = std::clamp(p + kRate * (level - (inside ? 1 : 0)), 0., 1.);
    }
    Insert(sorted, sizes_[i]);
  }
  return Quantile(sorted, p);
}

}  // namespace ttr::forecasting
