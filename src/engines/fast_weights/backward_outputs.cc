// Through output norms and denominators: from dL/dy to the gradients of what a memory's rows
// answer.

#include <algorithm>
#include <cmath>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/kernel.h"
#include "src/engines/fast_weights/row_io.h"

namespace ttr::fast_weights {
namespace {

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
  double squares = 0, product = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    product += static_cast<double>(x[i]) * static_cast<double>(dy[i]);
  }
  const double length = options.output_norm == OutputNorm::kRms ? static_cast<double>(count) : 1;
  const double norm = std::sqrt(squares / length + options.output_norm_eps);
  if (norm == 0) return;
  const double along = product / (length * norm * norm * norm);
  for (std::int64_t i = 0; i < count; ++i) {
    dy[i] = static_cast<T>(static_cast<double>(dy[i]) / norm - along * static_cast<double>(x[i]));
  }
}

/// What the rows answer before anything is divided, and the memory after them.
template <class T>
void AnswerRows(const Options& options, const Memory& memory, const Sizes& sizes,
                BackwardRows<T>& rows) {
  const Options plain = PlainOptions(options);
  constexpr DType kType = DTypeOf<T>();
  auto of = [&](T* data, std::int64_t stride) { return Rows{data, kType, stride}; };
  const std::int64_t first = options.read_before ? 0 : options.steps - 1;  // row that is read
  std::copy_n(rows.initial, memory.key_dim * rows.value_stride, rows.last);
  Memory m;
  m.steps = options.steps;
  m.read_before = options.read_before;
  m.rows = memory.rows;
  m.k = of(rows.write, rows.key_stride);
  m.erase_key = of(rows.erase, rows.key_stride);
  m.erase_gate = memory.erase_gate;
  if (options.apart()) m.k = of(rows.key, rows.key_stride);
  m.v = of(rows.value, rows.value_stride);
  m.step = of(rows.step, 1);
  m.log_decay = options.decay == Decay::kChannel   ? of(rows.log_decay, rows.key_stride)
                : options.step == Step::kLogWeight ? of(rows.log_weight_decay, 1)
                                                   : memory.log_decay;
  m.decay_factor = memory.decay_factor;
  if (options.shrink != Shrink::kNone) m.weight_decay = of(rows.shrinkage, 1);
  if (options.bonus) m.bonus = memory.bonus;
  m.q = of(rows.query + first * rows.key_stride, options.steps * rows.key_stride);
  m.q_head_stride = rows.rows * rows.key_stride;
  m.y = of(rows.y + first * rows.value_stride, options.steps * rows.value_stride);
  m.y_head_stride = rows.rows * rows.value_stride;
  m.state = rows.last;
  m.state_stride = rows.value_stride;
  if (options.paired()) {
    std::copy_n(rows.initial_second, memory.key_dim * rows.value_stride, rows.last_second);
    m.second = rows.last_second;
    m.second_stride = rows.value_stride;
    m.phase = memory.phase;
    m.momentum = memory.momentum;
  }
  m.input_dim = m.key_dim = memory.key_dim;
  m.value_dim = m.end_column = rows.value_dim;
  m.queries = rows.queries;
  Sizes wide = sizes;
  wide.input_dim = sizes.key_dim;
  wide.value_dim = rows.value_dim;
  const auto run = kType == DType::kFloat64 ? RunMemoryDouble : RunMemoryFloat;
  run(plain, m, Memory{}, wide, rows.forward);
}

}  // namespace

template <class T>
void GatherOutputGradients(const Options& options, const Memory& memory, const Sizes& sizes,
                           BackwardRows<T>& rows) {
  if (NeedsAnswers(options)) AnswerRows(options, memory, sizes, rows);
  rows.d_first_maximum = 0;
  for (std::int64_t q = 0; q < rows.queries; ++q) {
    Rows dy = memory.y;
    dy.data = static_cast<std::byte*>(dy.data) +
              q * memory.y_head_stride * static_cast<std::int64_t>(SizeOf(dy.dtype));
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      T* const to = rows.dy + (q * rows.rows + r) * rows.value_stride;
      std::fill(to, to + rows.value_stride, T(0));
      if (!memory.Reads(r)) continue;
      if (r + kRowsAhead < rows.rows) {
        FetchRow(dy, memory.Token(r + kRowsAhead), memory.value_dim);
      }
      ReadRow(dy, memory.Token(r), memory.value_dim, to);
      const T* const y = rows.y + (q * rows.rows + r) * rows.value_stride;
      T maximum = 0;
      if (rows.maxima != nullptr) maximum = rows.maxima[options.read_before ? r : r + 1];
      const bool extended = options.denominator != Denominator::kNone;
      const Quotient<T> quotient =
          QuotientOf(options, extended ? y[memory.value_dim] : T(0), maximum);
      if (options.output_norm != OutputNorm::kNone) {
        for (std::int64_t i = 0; i < memory.value_dim; ++i) rows.row[i] = quotient.factor * y[i];
        ThroughNorm(options, rows.row, memory.value_dim, to);
      }
      T along = 0;  // dL/d log(factor)
      if (quotient.d_sum != 0 || quotient.d_maximum != 0) {
        for (std::int64_t i = 0; i < memory.value_dim; ++i) along += to[i] * quotient.factor * y[i];
      }
      for (std::int64_t i = 0; i < memory.value_dim; ++i) to[i] *= quotient.factor;
      if (extended && quotient.d_sum != 0) {
        // d log(1 / |sum|) = -d sum / sum
        to[memory.value_dim] = -along / y[memory.value_dim];
      }
      if (options.read_before && r == 0) rows.d_first_maximum += along * quotient.d_maximum;
    }
  }
}

template void GatherOutputGradients(const Options&, const Memory&, const Sizes&,
                                    BackwardRows<float>&);
template void GatherOutputGradients(const Options&, const Memory&, const Sizes&,
                                    BackwardRows<double>&);

}  // namespace ttr::fast_weights
