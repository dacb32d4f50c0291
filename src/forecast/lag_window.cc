#include "src/forecast/lag_window.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ttr/error.h"

namespace ttr::forecasting {
namespace {

// A window counts as this many running means at the most: one spike of 10^6 would leave all keys of
// the next 100 lags too short to be told apart.
constexpr double kMostGrowth = 10;

// |x| without overflow or underflow on the way.
double Length(std::span<const double> x) {
  double greatest = 0;
  for (const double value : x) greatest = std::max(greatest, std::abs(value));
  if (greatest == 0 || !std::isfinite(greatest)) return greatest;
  double sum = 0;
  for (const double value : x) sum += (value / greatest) * (value / greatest);
  return greatest * std::sqrt(sum);
}

}  // namespace

LagWindow::LagWindow(std::int64_t lags, std::int64_t columns, Units units,
                     std::span<const std::int64_t> sparse)
    : lags_(lags),
      columns_(columns),
      units_(units),
      ring_(static_cast<std::size_t>(lags * columns)),
      unit_(static_cast<std::size_t>(columns)) {
  for (const std::int64_t lag : sparse) ages_.push_back(lag - 1);
  for (std::int64_t age = 0; sparse.empty() && age < lags; ++age) ages_.push_back(age);
}

double LagWindow::At(std::int64_t age, std::int64_t column) const {
  const std::int64_t row = next_ - 1 - age;
  return ring_[(row < 0 ? row + lags_ : row) * columns_ + column];
}

void LagWindow::Push(std::span<const double> row) {
  std::copy(row.begin(), row.end(), ring_.begin() + next_ * columns_);
  next_ = next_ + 1 == lags_ ? 0 : next_ + 1;
  rows_ = std::min(rows_ + 1, lags_);
}

std::span<const double> LagWindow::latest() const {
  const std::int64_t row = next_ == 0 ? lags_ - 1 : next_ - 1;
  return std::span(ring_).subspan(row * columns_, columns_);
}

double LagWindow::Mean(std::int64_t column) const {
  // The sum is taken around the latest value, so that equal values have exactly that mean.
  const double origin = At(0, column);
  double sum = 0;
  std::int64_t count = 0;
  for (const std::int64_t age : ages_) {
    if (age >= rows_) break;
    sum += At(age, column) - origin;
    ++count;
  }
  return count == 0 ? origin : origin + sum / static_cast<double>(count);
}

double LagWindow::LengthAround(std::int64_t column, double origin) const {
  std::vector<double> apart;
  for (const std::int64_t age : ages_) {
    if (age < rows_) apart.push_back(At(age, column) - origin);
  }
  return Length(apart);
}

void LagWindow::MakeKey(LagKey& key) {
  const auto lags = static_cast<std::int64_t>(ages_.size());
  key.key.resize(static_cast<std::size_t>(lags * columns_));
  key.centre.assign(unit_.size(), 0);
  key.scale = 1;
  if (units_ == Units::kRaw) {
    for (std::int64_t i = 0; i < lags; ++i) {
      for (std::int64_t c = 0; c < columns_; ++c) key.key[i * columns_ + c] = At(ages_[i], c);
    }
    key.flat = Length(key.key) == 0;
    return;
  }
  std::vector<double> column(ages_.size());
  for (std::int64_t c = 0; c < columns_; ++c) {
    key.centre[c] = Mean(c);
    double greatest = 0;
    for (std::int64_t i = 0; i < lags; ++i) {
      column[i] = At(ages_[i], c) - key.centre[c];
      greatest = std::max(greatest, std::abs(At(ages_[i], c)));
    }
    double length = Length(column);
    // Equal numbers leave rounding errors, which are no movement.
    const double rounding = 4 * std::numeric_limits<double>::epsilon() * greatest *
                            std::sqrt(static_cast<double>(lags));
    if (length <= rounding) {
      length = 0;
      std::fill(column.begin(), column.end(), 0);
    }
    if (unit_[c] == 0) unit_[c] = length;
    const double unit = unit_[c] == 0 ? 1 : unit_[c];
    for (std::int64_t i = 0; i < lags; ++i) key.key[i * columns_ + c] = column[i] / unit;
  }
  const double length = Length(key.key);
  const double held = std::min(length, kMostGrowth * running_);
  running_ =
      running_ == 0 ? length : running_ + (held - running_) / (10 * static_cast<double>(lags_));
  key.scale = std::max(length, running_);
  key.flat = length == 0;
  if (key.scale > 0) {
    for (double& x : key.key) x /= key.scale;
  }
}

void LagWindow::ToMemory(const LagKey& key, std::span<const double> data,
                         std::span<double> memory) const {
  for (std::size_t c = 0; c < memory.size(); ++c) {
    const double unit = units_ == Units::kRaw || unit_[c] == 0 ? 1 : unit_[c];
    memory[c] = (data[c] - key.centre[c]) / unit / (key.scale == 0 ? 1 : key.scale);
  }
}

void LagWindow::ToData(const LagKey& key, std::span<const double> memory,
                       std::span<double> data) const {
  for (std::size_t c = 0; c < data.size(); ++c) {
    const double unit = units_ == Units::kRaw || unit_[c] == 0 ? 1 : unit_[c];
    data[c] = key.centre[c] + unit * key.scale * memory[c];
  }
}

}  // namespace ttr::forecasting
