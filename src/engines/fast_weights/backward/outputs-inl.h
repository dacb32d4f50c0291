// Through output norms and denominators: from dL/dy to the gradients of what a block's rows answer.
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_OUTPUTS_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_OUTPUTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_OUTPUTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/gather-inl.h"
#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/operands/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

/// What an answer x = gain numerator / divisor is made of.
template <class T>
struct Quotient {
  T factor;         // gain / divisor
  T d_sum = 0;      // of the divisor by the sum of weights, its last column
  T d_maximum = 0;  // of log(factor) by the maximum of the log-weights
};

template <class T>
Quotient<T> QuotientOf(const Options& options, T sum, T maximum) {
  const T gain = static_cast<T>(options.gain);
  switch (options.denominator) {
    case Denominator::kNone:
      if (options.step != Step::kLogWeight) return {gain};
      return {gain * std::exp(maximum), 0, 1};
    case Denominator::kSum:
      if (sum == 0) return {T(0)};
      return {gain / sum, 1};
    case Denominator::kStabilised: {
      const T floor = std::exp(-maximum);
      if (std::abs(sum) < floor) return {gain / floor, 0, 1};
      return {gain / std::abs(sum), sum < 0 ? T(-1) : T(1)};
    }
  }
  return {gain};
}

/// dx of a normalised row x / sqrt(|x|^2 / n + eps), from `dy` in place; n = 1 or the row's length.
template <class T>
void ThroughNorm(const Options& options, const T* x, std::int64_t count, T* dy) {
  double product = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    product += static_cast<double>(x[i]) * static_cast<double>(dy[i]);
  }
  const double length = options.output_norm == OutputNorm::kRms ? static_cast<double>(count) : 1;
  const double norm = std::sqrt(sn::SumOfSquares(x, count) / length + options.output_norm_eps);
  if (norm == 0) return;
  const double along = product / (length * norm * norm * norm);
  for (std::int64_t i = 0; i < count; ++i) {
    dy[i] = static_cast<T>(static_cast<double>(dy[i]) / norm - along * static_cast<double>(x[i]));
  }
}

/// dy, in `to`, of an answer that is not the numerator y alone, which row r of the block has, and
/// whose weights have this sum; or, as Forward keeps it, with `factored`, is y before it is
/// normalised.
template <class T>
void ThroughAnswer(const Options& options, const T* y, T sum, bool factored, std::int64_t count,
                   std::int64_t r, T* to, BackwardRows<T>& rows) {
  const bool extended = options.denominator != Denominator::kNone;
  const T maximum =
      rows.running.maxima == nullptr ? T(0) : rows.running.maxima[options.read_before ? r : r + 1];
  const Quotient<T> quotient = QuotientOf(options, sum, maximum);
  const T factor = factored ? T(1) : quotient.factor;
  const T fold = rows.folds_scale ? static_cast<T>(options.scale) : T(1);
  if (options.output_norm != OutputNorm::kNone) {
    for (std::int64_t i = 0; i < count; ++i) rows.row[i] = factor * y[i];
    ThroughNorm(options, rows.row, count, to);
  }
  T along = 0;  // dL/d log(factor)
  if (quotient.d_sum != 0 || quotient.d_maximum != 0) {
    along = factor * DotFirst(to, y, count);
  }
  sn::Multiply(to, count, fold * quotient.factor);
  // d log(1 / |sum|) = -d sum / sum
  if (extended && quotient.d_sum != 0) to[count] = -along / sum * fold;
  if (options.read_before && rows.first + r == 0) {
    rows.running.d_first_maximum += along * quotient.d_maximum;
  }
}

template <class T>
void GatherOutputs(const Options& options, const Memory& memory, BackwardRows<T>& rows) {
  const bool answers = options.transforms_outputs();
  const bool divides = options.denominator != Denominator::kNone;
  const auto* const saved = static_cast<const T*>(memory.saved_outputs);
  const auto* const saved_sums = static_cast<const T*>(memory.saved_sums);
  const std::int64_t count = memory.value_dim, stride = rows.value_stride;
  const T factor = answers ? T(1) : rows.OutputFactor(options);
  for (std::int64_t q = 0; q < rows.queries; ++q) {
    Rows dy = memory.y;
    dy.data = static_cast<std::byte*>(dy.data) +
              q * memory.y_head_stride * static_cast<std::int64_t>(SizeOf(dy.dtype));
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t at = (q * rows.rows + r) * stride, row = rows.first + r;
      T* const to = rows.dy + at;
      if (!memory.Reads(row)) {
        std::fill_n(to, stride, T(0));
        continue;
      }
      const std::int64_t token = memory.Token(row);
      if (dy.dtype == DTypeOf<T>()) {
        CopyScaled(static_cast<const T*>(dy.data) + token * dy.stride, count, factor, to);
      } else {
        LoadRow(dy, token, 0, count, to);
        if (factor != 1) sn::Multiply(to, count, factor);
      }
      Pad(to, count, stride);
      if (!answers) continue;
      const std::int64_t place = row * rows.queries + q;
      const T* const y = saved != nullptr ? saved + place * stride : rows.whole.y + at;
      const T sum = !divides ? T(0) : saved != nullptr ? saved_sums[place] : y[count];
      ThroughAnswer(options, y, sum, saved != nullptr, count, r, to, rows);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_OUTPUTS_INL_H_
