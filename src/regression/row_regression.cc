#include "src/regression/row_regression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "src/recipe/text.h"
#include "ttr/error.h"

namespace ttr::regression {
namespace {

void Require(bool holds, std::string_view what, std::string_view required, double given) {
  if (!holds) throw Error("Regression", what, required, FormatNumber(given));
}

RegressionOptions Checked(const RegressionOptions& o) {
  constexpr double kNever = RegressionOptions::kNever;
  Require(o.key_dim >= 1, "key_dim", "1 or more", static_cast<double>(o.key_dim));
  Require(o.value_dim >= 1, "value_dim", "1 or more", static_cast<double>(o.value_dim));
  Require(o.ridge >= 0 && o.ridge < kNever, "ridge", "0 or more and finite", o.ridge);
  Require(o.decay > 0 && o.decay <= 1, "decay", "above 0 and at most 1", o.decay);
  Require(o.half_life > 0, "half_life", "above 0", o.half_life);
  Require(o.window >= 0, "window", "0 or more", static_cast<double>(o.window));
  Require(o.span > 0, "span", "above 0", o.span);
  RegressionOptions checked = o;
  if (o.half_life != kNever) checked.ridge_fades = false;
  return checked;
}

/// Is the origin to be moved, now that rows before .. after have been learned? A mean of few rows
/// moves more.
bool IsDue(std::int64_t before, std::int64_t after) {
  constexpr std::int64_t kRows = 64;
  if (after >= kRows) return before / kRows != after / kRows;
  return std::bit_width(static_cast<std::uint64_t>(before)) !=
         std::bit_width(static_cast<std::uint64_t>(after));
}

}  // namespace

RowRegression::RowRegression(const RegressionOptions& options)
    : o_(Checked(options)),
      sizes_{.keys = o_.key_dim, .values = o_.value_dim, .intercept = o_.intercept},
      newer_(sizes_),
      newer_rows_(sizes_.width()),
      older_(sizes_) {
  if (o_.has_window() || !o_.ridge_fades) return;
  for (std::int64_t i = 0; i < sizes_.keys; ++i) {
    newer_.r()[i * (sizes_.channels() + 1)] = o_.ridge;
  }
}

// ---- What is given ------------------------------------------------------------------------------

void RowRegression::CheckRows(const RegressionRows& rows) const {
  const auto fail = [](std::string_view what, std::string_view required, double given,
                       std::size_t row, std::int64_t column) {
    std::string place = FormatNumber(given) + " in row " + std::to_string(row);
    if (column >= 0) place += ", column " + std::to_string(column);
    throw Error("learn", what, required, place);
  };
  const auto keys = static_cast<std::size_t>(o_.key_dim),
             values = static_cast<std::size_t>(o_.value_dim);
  const std::size_t n = rows.values.size() / values;
  const auto require_size = [](std::string_view what, std::size_t given, std::size_t required) {
    if (given == required) return;
    throw Error("learn", what, std::to_string(required) + " numbers", std::to_string(given));
  };
  require_size("y", rows.values.size(), n * values);
  require_size("X", rows.keys.size(), n * keys);
  if (!rows.weights.empty()) require_size("weights", rows.weights.size(), n);
  require_size("times", rows.times.size(), o_.has_times() ? n : 0);
  const auto require_finite = [&](std::string_view what, std::span<const double> numbers,
                                  std::size_t columns) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (std::isfinite(numbers[i])) continue;
      fail(what, "finite", numbers[i], i / columns, static_cast<std::int64_t>(i % columns));
    }
  };
  require_finite("X", rows.keys, keys);
  require_finite("y", rows.values, values);
  for (std::size_t i = 0; i < rows.weights.size(); ++i) {
    const double w = rows.weights[i];
    if (!(w >= 0 && std::isfinite(w))) fail("weights", "0 or more and finite", w, i, -1);
  }
  double before = count_ > 0 ? last_time_ : -RegressionOptions::kNever;
  for (std::size_t i = 0; i < rows.times.size(); ++i) {
    const double time = rows.times[i];
    if (!std::isfinite(time)) fail("times", "finite", time, i, -1);
    if (time < before)
      fail("times", FormatNumber(before) + " or later, as time goes on,", time, i, -1);
    before = time;
  }
}

std::int64_t RowRegression::FirstThatCounts(const RegressionRows& rows) const {
  const auto n = static_cast<std::int64_t>(rows.values.size()) / o_.value_dim;
  std::int64_t first = o_.window > 0 ? std::max<std::int64_t>(0, n - o_.window) : 0;
  if (o_.span != RegressionOptions::kNever) {
    while (rows.times.back() - rows.times[static_cast<std::size_t>(first)] >= o_.span) ++first;
  }
  return first;
}

RowRegression::Batch RowRegression::Read(const RegressionRows& rows) const {
  Batch batch;
  batch.count = static_cast<std::int64_t>(rows.values.size()) / o_.value_dim;
  batch.first = o_.has_window() ? FirstThatCounts(rows) : 0;
  const std::int64_t width = sizes_.width();
  batch.rows.resize(static_cast<std::size_t>(batch.count * width));
  batch.log_decays.resize(static_cast<std::size_t>(batch.count));
  batch.weights.assign(rows.weights.begin(), rows.weights.end());
  batch.weights.resize(batch.log_decays.size(), 1.0);
  const bool by_time = o_.half_life != RegressionOptions::kNever;
  const double each = std::log(o_.decay);
  double sum = 0, before = last_time_;
  for (std::int64_t i = 0; i < batch.count; ++i) {
    double* const row = &batch.rows[static_cast<std::size_t>(i * width)];
    std::copy_n(&rows.keys[static_cast<std::size_t>(i * sizes_.keys)], sizes_.keys, row);
    std::copy_n(&rows.values[static_cast<std::size_t>(i * sizes_.values)], sizes_.values,
                row + sizes_.keys);
    sum += each;
    if (by_time) {
      const double now = rows.times[static_cast<std::size_t>(i)];
      if (count_ + i > 0) sum -= (now - before) / o_.half_life * std::log(2.0);
      before = now;
    }
    batch.log_decays[static_cast<std::size_t>(i)] = sum;
  }
  return batch;
}

// ---- Learning -----------------------------------------------------------------------------------

void RowRegression::Learn(const RegressionRows& rows) {
  CheckRows(rows);
  if (rows.values.empty()) return;
  const Batch batch = Read(rows);
  if (batch.first > 0) {  // nothing that was before is left
    newer_ = RotatedRows(sizes_);
    newer_rows_ = RowStore(sizes_.width());
    older_ = Suffixes(sizes_);
    newer_log_ = older_log_ = 0;
    rotated_ = 0;
    placed_ = false;
  }
  Rotate(batch);
  if (o_.has_window()) Keep(batch, rows);
  count_ += batch.count;
  if (o_.has_times()) last_time_ = rows.times.back();
  if (o_.has_window()) Evict();
  counted_.reset();
  solved_.reset();
}

void RowRegression::Rotate(const Batch& batch) {
  const double end = batch.log_decays.back();
  newer_.Fade(std::exp(end));
  std::vector<double> weights = batch.weights;
  for (std::int64_t i = batch.first; i < batch.count; ++i) {
    const double g = std::exp(end - batch.log_decays[i]);
    if (weights[i] == 0) continue;
    weights[i] *= g;
    newer_.sum += g;
    newer_.sum_of_squares += g * g;
  }
  const std::int64_t count = batch.count - batch.first;
  const WeightedRows rows{&batch.rows[static_cast<std::size_t>(batch.first * sizes_.width())],
                          sizes_.width(), count, &weights[batch.first]};
  if (sizes_.intercept && !placed_) placed_ = newer_.BeginNear(rows);
  newer_.Rotate(rows);
  if (placed_ && IsDue(rotated_, rotated_ + count)) newer_.Centre();
  rotated_ += count;
}

void RowRegression::Keep(const Batch& batch, const RegressionRows& rows) {
  const std::int64_t width = sizes_.width();
  for (std::int64_t i = batch.first; i < batch.count; ++i) {
    double* const row = newer_rows_.Append();
    std::copy_n(&batch.rows[static_cast<std::size_t>(i * width)], width, row);
    row[width] = batch.weights[i];
    row[width + 1] = o_.has_times() ? rows.times[static_cast<std::size_t>(i)] : 0;
    row[width + 2] = newer_log_ + batch.log_decays[i];
  }
  newer_log_ += batch.log_decays.back();
  older_log_ += batch.log_decays.back();
}

void RowRegression::Evict() {
  const auto too_old = [&](double time) { return last_time_ - time >= o_.span; };
  const auto too_many = [&] { return o_.window > 0 && held() > o_.window; };
  while (true) {
    while (older_.count() > 0 && (too_many() || too_old(older_.front_time()))) older_.Drop(1);
    if (older_.count() > 0 || newer_rows_.count() == 0) return;
    if (!too_many() && !too_old(newer_rows_.time(0))) return;
    Turn();
  }
}

void RowRegression::Turn() {
  older_ = Suffixes(sizes_, std::move(newer_rows_));
  older_log_ = newer_log_ = 0;
  newer_rows_ = RowStore(sizes_.width());
  newer_ = RotatedRows(sizes_);
  rotated_ = 0;
  placed_ = false;  // what leaves may have been far from what comes
}

// ---- Reading ------------------------------------------------------------------------------------

double RowRegression::ridge() const {
  const bool fades = o_.has_window() && o_.ridge_fades;
  return fades ? o_.ridge * std::pow(o_.decay, static_cast<double>(held())) : o_.ridge;
}

const RotatedRows& RowRegression::Counted() {
  if (!o_.has_window()) return newer_;
  if (!counted_) {
    counted_ = newer_;
    if (older_.count() > 0) counted_->Add(older_.Sums(), std::exp(older_log_));
    if (o_.ridge_fades) counted_->AddRidge(ridge());
  }
  return *counted_;
}

const RotatedRows& RowRegression::Solved() {
  const RotatedRows& counted = Counted();
  if (o_.ridge_fades || o_.ridge == 0) return counted;
  if (!solved_) {
    solved_ = counted;
    solved_->AddRidge(ridge());
  }
  return *solved_;
}

void RowRegression::Predict(std::span<const double> queries, std::span<double> values) {
  const auto n = static_cast<std::int64_t>(values.size()) / o_.value_dim;
  if (static_cast<std::int64_t>(queries.size()) != n * o_.key_dim ||
      static_cast<std::int64_t>(values.size()) != n * o_.value_dim) {
    throw Error("predict", "X", "of " + std::to_string(o_.key_dim) + " numbers a row",
                std::to_string(queries.size()) + " numbers");
  }
  if (n > 0) Solved().Answer(n, queries.data(), values.data());
}

void RowRegression::Coefficients(std::span<double> numbers) {
  if (static_cast<std::int64_t>(numbers.size()) != (o_.key_dim + 1) * o_.value_dim) {
    throw Error("coefficients", "numbers", "[key_dim + 1, value_dim]",
                std::to_string(numbers.size()));
  }
  Solved().Coefficients(numbers.data());
}

}  // namespace ttr::regression
