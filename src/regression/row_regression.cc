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

Tensor TensorOf(const double* numbers, const Shape& shape) {
  return Tensor::Copy(TensorView::Of(numbers, shape));
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

// ---- What is given -------------------------------------------------------------------------------

void RowRegression::CheckRows(const RegressionRows& rows) const {
  const auto fail = [](std::string_view what, std::string_view required, double given,
                       std::size_t row, std::int64_t column) {
    std::string place = FormatNumber(given) + " in row " + std::to_string(row);
    if (column >= 0) place += ", column " + std::to_string(column);
    throw Error("learn", what, required, place);
  };
  const auto keys = static_cast<std::size_t>(o_.key_dim), values = static_cast<std::size_t>(o_.value_dim);
  const std::size_t n = rows.values.size() / values;
  const auto require_size = [](std::string_view what, std::size_t given, std::size_t required) {
    if (given == required) return;
    throw Error("learn", what, std::to_string(required) + " numbers", std::to_string(given));
  };
  require_size("y", rows.values.size(), n * values);
  require_size("X", rows.keys.size(), n * keys);
  if (!rows.weights.empty()) require_size("weights", rows.weights.size(), n);
  require_size("times", rows.times.size(), o_.has_times() ? n : 0);
  const auto require_finite = [&](std::string_view what, std::span<const double> numbers, std::size_t columns) {
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
    if (time < before) fail("times", FormatNumber(before) + " or later, as time goes on,", time, i, -1);
    before = time;
  }
}

std::int64_t RowRegression::FirstThatCounts(const RegressionRows& rows) const {
  const auto n = static_cast<std::int64_t>(rows.values.size()) / o_.value_dim;
  std::int64_t first = o_.window > 0 ? std::max<std::int64_t>(0, n - o_.window) : 0;
  if (o_.span != RegressionOptions::kNever) {
    while (rows.times[static_cast<std::size_t>(first)] <= rows.times.back() - o_.span) ++first;
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
    std::copy_n(&rows.values[static_cast<std::size_t>(i * sizes_.values)], sizes_.values, row + sizes_.keys);
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

// ---- Learning ------------------------------------------------------------------------------------

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
  const auto too_old = [&](double time) {
    return o_.span != RegressionOptions::kNever && time <= last_time_ - o_.span;
  };
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

// ---- Reading -------------------------------------------------------------------------------------

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
    throw Error("coefficients", "numbers", "[key_dim + 1, value_dim]", std::to_string(numbers.size()));
  }
  if (sizes_.intercept) {
    Solved().Coefficients(numbers.data());
  } else {
    Solved().Coefficients(numbers.data());
    std::fill(numbers.end() - o_.value_dim, numbers.end(), 0.0);
  }
}

// ---- As tensors ----------------------------------------------------------------------------------

namespace {

void PutFit(const RotatedRows& rows, const std::string& prefix, Regression::Tensors& to) {
  const RowSizes& s = rows.sizes();
  const double sums[] = {rows.sum, rows.sum_of_squares};
  to[prefix + "r"] = TensorOf(rows.r(), {s.channels(), s.channels()});
  to[prefix + "w"] = TensorOf(rows.w(), {s.channels(), s.values});
  to[prefix + "rss"] = TensorOf(rows.rss(), {s.values});
  to[prefix + "origin"] = TensorOf(rows.origin().data(), {s.width()});
  to[prefix + "sums"] = TensorOf(sums, {2});
}

/// Takes what Save() gave.
class Saved {
 public:
  explicit Saved(const Regression::Tensors& tensors) : tensors_(tensors) {}

  std::span<const double> Get(const std::string& name, std::int64_t count) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw Error("Regression", name, "saved", "absent");
    const Tensor& tensor = found->second;
    if (tensor.dtype() != DType::kFloat64 || (count >= 0 && tensor.elements() != count)) {
      throw Error("Regression", name, std::to_string(count) + " numbers of float64",
                  std::to_string(tensor.elements()) + " of " + std::string(Name(tensor.dtype())));
    }
    return tensor.as<double>();
  }

  void Fill(const std::string& prefix, RotatedRows& to) const {
    const RowSizes& s = to.sizes();
    const auto copy = [&](const char* name, std::int64_t count, double* numbers) {
      const auto given = Get(prefix + name, count);
      std::copy(given.begin(), given.end(), numbers);
    };
    copy("r", s.channels() * s.channels(), to.r());
    copy("w", s.channels() * s.values, to.w());
    copy("rss", s.values, to.rss());
    const auto origin = Get(prefix + "origin", s.width());
    to.Begin({origin.begin(), origin.end()});
    double sums[2];
    copy("sums", 2, sums);
    to.sum = sums[0];
    to.sum_of_squares = sums[1];
  }

 private:
  const Regression::Tensors& tensors_;
};

Tensor RowsOf(const RowStore& rows) {
  return TensorOf(rows.numbers().data(), {rows.count(), rows.stride()});
}

}  // namespace

RowRegression::RowRegression(const RegressionOptions& options, const Regression::Tensors& tensors)
    : RowRegression(options) {
  const Saved saved(tensors);
  const auto counts = saved.Get("counts", 7);
  count_ = static_cast<std::int64_t>(counts[0]);
  last_time_ = counts[1];
  rotated_ = static_cast<std::int64_t>(counts[2]);
  placed_ = counts[3] != 0;
  saved.Fill("", newer_);
  if (!o_.has_window()) return;
  newer_log_ = counts[4];
  older_log_ = counts[5];
  const auto fill = [&](const char* name) {
    RowStore rows(sizes_.width());
    const auto numbers = saved.Get(name, -1);
    if (static_cast<std::int64_t>(numbers.size()) % rows.stride() != 0) {
      throw Error("Regression", name, "rows of " + std::to_string(rows.stride()), std::to_string(numbers.size()));
    }
    rows.numbers().assign(numbers.begin(), numbers.end());
    return rows;
  };
  newer_rows_ = fill("newer");
  older_ = Suffixes(sizes_, fill("older"), static_cast<std::int64_t>(counts[6]));
}

Regression::Tensors RowRegression::Fit() {
  Regression::Tensors tensors;
  PutFit(Counted(), "", tensors);
  return tensors;
}

Regression::Tensors RowRegression::Save() const {
  Regression::Tensors tensors;
  const double counts[] = {static_cast<double>(count_), last_time_, static_cast<double>(rotated_),
                           placed_ ? 1.0 : 0.0, newer_log_, older_log_, static_cast<double>(older_.first())};
  tensors["counts"] = TensorOf(counts, {7});
  PutFit(newer_, "", tensors);
  if (o_.has_window()) {
    tensors["newer"] = RowsOf(newer_rows_);
    tensors["older"] = RowsOf(older_.rows());
  }
  return tensors;
}

Regression::Tensors RowRegression::Rows() const {
  const std::int64_t n = o_.has_window() ? held() : 0, keys = sizes_.keys, values = sizes_.values;
  Regression::Tensors tensors;
  Tensor x(DType::kFloat64, {n, keys}), y(DType::kFloat64, {n, values});
  Tensor weights(DType::kFloat64, {n}), times(DType::kFloat64, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    const bool old = i < older_.count();
    const double* const row =
        old ? older_.rows().Row(older_.first() + i) : newer_rows_.Row(i - older_.count());
    std::copy_n(row, keys, x.as<double>().data() + i * keys);
    std::copy_n(row + keys, values, y.as<double>().data() + i * values);
    weights.as<double>()[i] = row[sizes_.width()];
    times.as<double>()[i] = row[sizes_.width() + 1];
  }
  tensors["keys"] = std::move(x);
  tensors["values"] = std::move(y);
  tensors["weights"] = std::move(weights);
  tensors["times"] = std::move(times);
  return tensors;
}

}  // namespace ttr::regression

namespace ttr {

using regression::RowRegression;

Regression::Regression(const RegressionOptions& options)
    : own_(std::make_unique<RowRegression>(options)) {}
Regression::Regression(const RegressionOptions& options, const Tensors& saved)
    : own_(std::make_unique<RowRegression>(options, saved)) {}
Regression::Regression(const Regression& other)
    : own_(std::make_unique<RowRegression>(*other.own_)) {}
Regression& Regression::operator=(const Regression& other) { return *this = Regression(other); }
Regression::Regression(Regression&&) noexcept = default;
Regression& Regression::operator=(Regression&&) noexcept = default;
Regression::~Regression() = default;

const RegressionOptions& Regression::options() const { return own_->options(); }
void Regression::Learn(const RegressionRows& rows) { own_->Learn(rows); }
void Regression::Predict(std::span<const double> queries, std::span<double> values) {
  own_->Predict(queries, values);
}
void Regression::Coefficients(std::span<double> numbers) { own_->Coefficients(numbers); }
std::int64_t Regression::count() const { return own_->count(); }
std::int64_t Regression::held() const { return own_->held(); }
Regression::Tensors Regression::Fit() { return own_->Fit(); }
Regression::Tensors Regression::Save() const { return own_->Save(); }
Regression::Tensors Regression::Rows() const { return own_->Rows(); }

}  // namespace ttr
