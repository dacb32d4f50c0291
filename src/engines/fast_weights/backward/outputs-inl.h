// Through output norms and denominators: from dL/dy to the gradients of what a block's queries
// find. Compiled once for every target.

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

/// The factors of an output gain numerator / divisor.
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

/// An output that is more than what a query finds: y is the numerator, or as Forward saves it
/// (`divided`) the output before it is normalised.
template <class T>
struct TransformedOutput {
  const T* y;
  T sum;  // of weights
  bool divided;
};

/// From dy of an output of row r, in `to`, to the gradient of its numerator and, behind it, of its
/// sum of weights.
template <class T>
void ThroughOutput(const Options& options, const TransformedOutput<T>& output, std::int64_t count,
                   std::int64_t r, T* to, BackwardRows<T>& rows) {
  RunningArrays<T>& running = rows.running;
  const T* const y = output.y;
  const T maximum =
      running.maxima == nullptr ? T(0) : running.maxima[options.read_before ? r : r + 1];
  const Quotient<T> quotient = QuotientOf(options, output.sum, maximum);
  const T factor = output.divided ? T(1) : quotient.factor;
  const T fold = rows.folds_scale ? static_cast<T>(options.scale) : T(1);
  if (options.output_norm != OutputNorm::kNone) {
    for (std::int64_t i = 0; i < count; ++i) rows.row[i] = factor * y[i];
    ThroughNorm(options, rows.row, count, to);
  }
  T along = 0;  // dL/d log(factor)
  if (quotient.d_sum != 0 || quotient.d_maximum != 0) along = factor * DotFirst(to, y, count);
  sn::Multiply(to, count, fold * quotient.factor);
  // d log(1 / |sum|) = -d sum / sum
  if (quotient.d_sum != 0) to[count] = -along / output.sum * fold;
  if (options.read_before && rows.first + r == 0) {
    running.d_first_maximum += along * quotient.d_maximum;
  }
}

/// What query q of row r of the block found: as Forward saved it, or else as it was computed anew.
template <class T>
TransformedOutput<T> OutputOf(const Options& options, const Memory& memory,
                              const BackwardRows<T>& rows, std::int64_t q, std::int64_t r) {
  const bool divides = options.denominator != Denominator::kNone;
  if (memory.saved.outputs == nullptr) {
    const T* const y = rows.whole.y + (q * rows.rows + r) * rows.value_stride;
    return {y, divides ? y[memory.dims.value_dim] : T(0), false};
  }
  const std::int64_t place = (rows.first + r) * rows.queries + q;
  return {static_cast<const T*>(memory.saved.outputs) + place * rows.value_stride,
          divides ? static_cast<const T*>(memory.saved.sums)[place] : T(0), true};
}

/// Row `token` of dy times a factor.
template <class T>
HWY_INLINE void LoadScaled(const Rows& dy, std::int64_t token, std::int64_t count, T factor,
                           T* to) {
  if (dy.dtype == DTypeOf<T>()) {
    return CopyScaled(static_cast<const T*>(dy.data) + token * dy.stride, count, factor, to);
  }
  LoadRow(dy, token, 0, count, to);
  if (factor != 1) sn::Multiply(to, count, factor);
}

template <class T>
void GatherOutputs(const Options& options, const Memory& memory, BackwardRows<T>& rows) {
  const bool transforms = options.transforms_outputs();
  const std::int64_t count = memory.dims.value_dim, stride = rows.value_stride;
  const T factor = transforms ? T(1) : rows.OutputFactor(options);
  for (std::int64_t q = 0; q < rows.queries; ++q) {
    Rows dy = memory.y;
    dy.data = static_cast<std::byte*>(dy.data) +
              q * memory.y_head_stride * static_cast<std::int64_t>(SizeOf(dy.dtype));
    for (std::int64_t r = 0; r < rows.count; ++r) {
      T* const to = rows.dy + (q * rows.rows + r) * stride;
      if (!memory.Reads(rows.first + r)) {
        std::fill_n(to, stride, T(0));
        continue;
      }
      LoadScaled(dy, memory.Token(rows.first + r), count, factor, to);
      Pad(to, count, stride);
      if (!transforms) continue;
      ThroughOutput(options, OutputOf(options, memory, rows, q, r), count, r, to, rows);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_OUTPUTS_INL_H_
