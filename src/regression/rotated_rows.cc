#include "src/regression/rotated_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "ttr/executor.h"
#include "ttr/layer.h"

namespace ttr::regression {
namespace {

/// Rotates rows of any weights; a ridge is rows, too.
const Layer& Rotations() {
  static const Layer layer("importance(input) | linear | exact(factor: qr, ridge: 0)");
  return layer;
}

/// Memory that the calls of a thread share.
struct Workspace {
  std::vector<double> keys, values, weights;
  std::vector<std::byte> scratch;
};

Workspace& OfThread() {
  static thread_local Workspace workspace;
  return workspace;
}

constexpr std::int64_t kBlock = 128;  // rows of a call

TensorView Tokens(const double* data, std::int64_t rows, std::int64_t columns) {
  return TensorView::Of(data, Shape{1, rows, 1, columns});
}

CallOptions OptionsOf(const RowSizes& sizes, std::int64_t tokens) {
  std::vector<std::byte>& scratch = OfThread().scratch;
  const Dims dims{.tokens = tokens, .key_dim = sizes.channels(), .value_dim = sizes.values};
  const std::size_t bytes = Rotations().ScratchBytes(dims, 1);
  if (scratch.size() < bytes) scratch.resize(bytes);
  return {.executor = &SequentialExecutor(), .scratch = scratch};
}

void Resize(std::vector<double>& numbers, std::int64_t count) {
  if (numbers.size() < static_cast<std::size_t>(count)) {
    numbers.resize(static_cast<std::size_t>(count));
  }
}

/// x to four bits, which leave whole numbers whole.
double FewBits(double x) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(16 * mantissa) / 16, exponent);
}

/// The workspace's first rows, rotated into a state.
void Memorize(const RowSizes& sizes, std::int64_t rows, State& state) {
  const Workspace& work = OfThread();
  Rotations().Memorize({.k = Tokens(work.keys.data(), rows, sizes.channels()),
                        .v = Tokens(work.values.data(), rows, sizes.values),
                        .importance = TensorView::Of(work.weights.data(), Shape{1, rows, 1})},
                       state, OptionsOf(sizes, rows));
}

}  // namespace

RotatedRows::RotatedRows(const RowSizes& sizes)
    : sizes_(sizes), origin_(static_cast<std::size_t>(sizes.width())) {
  const std::int64_t n = sizes.channels();
  state_.Set("state.r", Tensor(DType::kFloat64, {1, 1, n, n}));
  state_.Set("state", Tensor(DType::kFloat64, {1, 1, n, sizes.values}));
  state_.Set("state.rss", Tensor(DType::kFloat64, {1, 1, sizes.values}));
}

// ---- The origin ---------------------------------------------------------------------------------

void RotatedRows::Begin(std::vector<double> origin) { origin_ = std::move(origin); }

bool RotatedRows::BeginNear(const WeightedRows& rows) {
  const auto width = static_cast<std::size_t>(sizes_.width());
  std::vector<double> mean(width), nearest(width);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    if (rows.weights[i] == 0) continue;
    ++counted;  // the mean so far, which cannot overflow
    const double* const row = rows.Row(i);
    for (std::size_t c = 0; c < width; ++c) {
      mean[c] += row[c] / static_cast<double>(counted) - mean[c] / static_cast<double>(counted);
    }
  }
  if (counted == 0) return false;
  std::vector<double> distance(width, std::numeric_limits<double>::infinity());
  for (std::int64_t i = 0; i < rows.count; ++i) {
    if (rows.weights[i] == 0) continue;
    const double* const row = rows.Row(i);
    for (std::size_t c = 0; c < width; ++c) {
      const double apart = std::abs(row[c] - mean[c]);
      if (apart >= distance[c]) continue;
      distance[c] = apart;
      nearest[c] = row[c];
    }
  }
  Begin(std::move(nearest));
  return true;
}

void RotatedRows::Centre() {
  const std::int64_t n = sizes_.channels(), last = n - 1;
  if (!sizes_.intercept || r()[RowOfD(last)] <= 0) return;
  // The row of the 1 has the means. A triangle that is regular has no need of the very mean, which
  // the map of least norm is from.
  const bool roughly = IsRegular();
  for (std::int64_t c = 0; c < sizes_.width(); ++c) {
    double& mean =
        c < sizes_.keys ? r()[last * n + c] : w()[last * sizes_.values + c - sizes_.keys];
    double& at = origin_[static_cast<std::size_t>(c)];
    const double moved = at + (roughly ? FewBits(mean) : mean);
    mean -= moved - at;  // by as much as it did move
    at = moved;
  }
}

bool RotatedRows::IsRegular() const {
  const std::int64_t n = sizes_.channels();
  const double rounding = 64 * static_cast<double>(n) * std::numeric_limits<double>::epsilon();
  for (std::int64_t j = 0; j < n; ++j) {
    double square = r()[RowOfD(j)];
    for (std::int64_t i = j + 1; i < n; ++i)
      square += r()[RowOfD(i)] * r()[i * n + j] * r()[i * n + j];
    if (!(r()[RowOfD(j)] > rounding * rounding * square)) return false;
  }
  return true;
}

// ---- Rows ---------------------------------------------------------------------------------------

void RotatedRows::Rotate(const WeightedRows& rows) {
  const std::int64_t n = sizes_.channels();
  Workspace& work = OfThread();
  Resize(work.keys, kBlock * n);
  Resize(work.values, kBlock * sizes_.values);
  Resize(work.weights, kBlock);
  for (std::int64_t begin = 0; begin < rows.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, rows.count - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const double* const row = rows.Row(begin + i);
      double* const key = &work.keys[static_cast<std::size_t>(i * n)];
      double* const value = &work.values[static_cast<std::size_t>(i * sizes_.values)];
      for (std::int64_t c = 0; c < sizes_.keys; ++c) key[c] = row[c] - origin_[c];
      if (sizes_.intercept) key[n - 1] = 1;
      for (std::int64_t c = 0; c < sizes_.values; ++c) {
        value[c] = row[sizes_.keys + c] - origin_[sizes_.keys + c];
      }
      work.weights[static_cast<std::size_t>(i)] = rows.weights[begin + i];
    }
    Memorize(sizes_, count, state_);
  }
}

void RotatedRows::Fade(double factor) {
  if (factor == 1) return;
  for (std::int64_t i = 0; i < sizes_.channels(); ++i) r()[RowOfD(i)] *= factor;
  for (std::int64_t c = 0; c < sizes_.values; ++c) rss()[c] *= factor;
  sum *= factor;
  sum_of_squares *= factor * factor;
}

void RotatedRows::Add(const RotatedRows& other, double factor) {
  const std::int64_t n = sizes_.channels(), values = sizes_.values;
  Workspace& work = OfThread();
  Resize(work.keys, n * n);
  Resize(work.values, n * values);
  Resize(work.weights, n);
  std::copy(other.r(), other.r() + n * n, work.keys.data());
  std::copy(other.w(), other.w() + n * values, work.values.data());
  for (std::int64_t i = 0; i < n; ++i) {
    double& d = work.keys[static_cast<std::size_t>(RowOfD(i))];
    work.weights[static_cast<std::size_t>(i)] = factor * std::exchange(d, 1.0);
  }
  if (sizes_.intercept) {  // as they are seen from here
    for (std::int64_t c = 0; c < sizes_.width(); ++c) {
      const double apart =
          other.origin_[static_cast<std::size_t>(c)] - origin_[static_cast<std::size_t>(c)];
      (c < sizes_.keys
           ? work.keys[static_cast<std::size_t>((n - 1) * n + c)]
           : work.values[static_cast<std::size_t>((n - 1) * values + c - sizes_.keys)]) += apart;
    }
  }
  Memorize(sizes_, n, state_);
  for (std::int64_t c = 0; c < values; ++c) rss()[c] += factor * other.rss()[c];
  sum += factor * other.sum;
  sum_of_squares += factor * factor * other.sum_of_squares;
}

void RotatedRows::AddRidge(double ridge) {
  const std::int64_t n = sizes_.channels();
  if (ridge == 0) return;
  Workspace& work = OfThread();
  work.keys.assign(static_cast<std::size_t>(n * n), 0.0);
  work.values.assign(static_cast<std::size_t>(n * sizes_.values), 0.0);
  work.weights.assign(static_cast<std::size_t>(n), ridge);
  for (std::int64_t i = 0; i < n; ++i) work.keys[static_cast<std::size_t>(RowOfD(i))] = 1;
  Memorize(sizes_, sizes_.keys, state_);
}

// ---- Answers ------------------------------------------------------------------------------------

void RotatedRows::Answer(std::int64_t count, const double* queries, double* values) const {
  const std::int64_t n = sizes_.channels();
  std::vector<double>& keys = OfThread().keys;
  Resize(keys, kBlock * n);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t rows = std::min(kBlock, count - begin);
    for (std::int64_t i = 0; i < rows; ++i) {
      double* const key = &keys[static_cast<std::size_t>(i * n)];
      const double* const query = queries + (begin + i) * sizes_.keys;
      for (std::int64_t c = 0; c < sizes_.keys; ++c) key[c] = query[c] - origin_[c];
      if (sizes_.intercept) key[n - 1] = 1;
    }
    double* const answers = values + begin * sizes_.values;
    Rotations().Retrieve({.q = Tokens(keys.data(), rows, n)}, state_,
                         {.y = Tokens(answers, rows, sizes_.values)}, OptionsOf(sizes_, rows));
    for (std::int64_t i = 0; i < rows * sizes_.values; ++i) {
      answers[i] += origin_[static_cast<std::size_t>(sizes_.keys + i % sizes_.values)];
    }
  }
}

void RotatedRows::Coefficients(double* numbers) const {
  const std::int64_t n = sizes_.channels(), keys = sizes_.keys, values = sizes_.values;
  Workspace& work = OfThread();
  work.keys.assign(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t i = 0; i < n; ++i) work.keys[static_cast<std::size_t>(RowOfD(i))] = 1;
  Rotations().Retrieve({.q = Tokens(work.keys.data(), n, n)}, state_,
                       {.y = Tokens(numbers, n, values)}, OptionsOf(sizes_, n));
  for (std::int64_t c = 0; c < values; ++c) {
    double& at_zero = numbers[keys * values + c];
    at_zero = (sizes_.intercept ? at_zero : 0) + origin_[static_cast<std::size_t>(keys + c)];
    for (std::int64_t i = 0; i < keys; ++i) at_zero -= origin_[i] * numbers[i * values + c];
  }
}

}  // namespace ttr::regression
