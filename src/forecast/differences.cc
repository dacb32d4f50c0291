#include "src/forecast/differences.h"

#include <algorithm>

namespace ttr::forecasting {

Differences::Differences(std::span<const std::int64_t> seasons, std::int64_t columns)
    : coefficients_{1}, base_(static_cast<std::size_t>(columns)) {
  for (const std::int64_t season : seasons) {
    std::vector<double> product = coefficients_;
    product.resize(product.size() + static_cast<std::size_t>(season));
    for (std::size_t j = 0; j < coefficients_.size(); ++j) {
      product[j + static_cast<std::size_t>(season)] -= coefficients_[j];
    }
    coefficients_ = std::move(product);
  }
}

void Differences::Push(std::span<const double> row) {
  if (coefficients_.size() == 1) return;
  rows_.emplace_back(row.begin(), row.end());
  if (rows_.size() == coefficients_.size()) rows_.pop_front();
  if (!ready()) return;
  for (std::size_t c = 0; c < base_.size(); ++c) {
    double sum = 0;
    for (std::size_t j = 1; j < coefficients_.size(); ++j) {
      const double coefficient = coefficients_[j];
      if (coefficient != 0) sum -= coefficient * rows_[rows_.size() - j][c];
    }
    base_[c] = sum;
  }
}

std::vector<double> Differences::rows() const {
  std::vector<double> rows;
  for (const std::vector<double>& row : rows_) rows.insert(rows.end(), row.begin(), row.end());
  return rows;
}

}  // namespace ttr::forecasting
