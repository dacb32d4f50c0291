// From inputs to whole sequences of rows.

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/row_io.h"
#include "src/engines/rows/features_kernel.h"

namespace ttr::fast_weights {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

template <class T>
T SquaredNorm(const T* x, std::int64_t count) {
  T sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

/// Row t of keys or queries, normalised if asked for.
template <class T>
void ReadKey(const Options& options, const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  ReadRow(rows, t, count, to);
  if (!options.normalise_qk) return;
  const T factor = 1 / std::sqrt(SquaredNorm(to, count) + static_cast<T>(1e-6));
  for (std::int64_t i = 0; i < count; ++i) to[i] *= factor;
}

/// to = phi(from), padded.
template <class T>
void MapRow(const Options& options, const Memory& memory, std::int64_t position, T* from,
            std::int64_t stride, T* to) {
  if (options.features.map == rows::Map::kNone) {
    std::copy_n(from, memory.key_dim, to);
  } else {
    rows::FeatureTask task;
    task.x = {from, DTypeOf<T>(), 0};
    task.y = {to, DTypeOf<T>(), 0};
    task.w = memory.features_w;
    task.b = memory.features_b;
    task.tokens = 1;
    task.dim = memory.input_dim;
    task.features = memory.features;
    task.phi_dim = memory.key_dim;
    task.position = position;
    task.scratch = from + RoundUp(memory.input_dim, kLine<T>);
    rows::RunFeatures(DTypeOf<T>(), options.features, task);
  }
  std::fill(to + memory.key_dim, to + stride, T(0));
}

template <class T>
T StepSize(const Options& options, T s, T n) {
  switch (options.step) {
    case Step::kOne: return 1;
    case Step::kInput:
    case Step::kLogWeight: return s;
    case Step::kNlms:
      return n == 0 ? T(0) : static_cast<T>(options.eta) / (n + static_cast<T>(options.eps));
    case Step::kLonghorn: return s / (1 + s * n);
    case Step::kEfla: return s * n == 0 ? s : -std::expm1(-s * n) / n;
  }
  return 1;
}

/// Curvature after row r, and the key that it makes of `key` (PreconditionRow in keys-inl.h).
template <class T>
void Precondition(const Options& options, T weight, std::int64_t count, const T* key,
                  const T* before, T* after, T* to) {
  for (std::int64_t d = 0; d < count; ++d) {
    after[d] = static_cast<T>(options.curvature_decay) * before[d] + weight * key[d] * key[d];
    const T l =
        std::log(after[d] + static_cast<T>(1e-6)) - static_cast<T>(options.curvature_centre);
    to[d] = key[d] * std::pow(static_cast<T>(1.5), -l / (1 + std::abs(l)));
  }
}

template <class T>
void GatherKeyRow(const Options& options, const Memory& memory, std::int64_t r, double position,
                  BackwardRows<T>& rows) {
  const std::int64_t token = memory.Token(r), dim = memory.key_dim, stride = rows.key_stride;
  T* const key = rows.key + r * stride;
  T* const write = rows.write + r * stride;
  T* const erase = rows.erase + r * stride;
  if (options.by_channel()) {
    T* const log_decay = rows.log_decay + r * stride;
    std::fill(log_decay, log_decay + stride, T(0));
    if (options.decay == Decay::kChannel) {
      if (memory.Starts(r)) ReadRow(memory.log_decay, token, dim, log_decay);
    } else if (options.decay != Decay::kNone) {
      const double shared = options.decay == Decay::kConstant
                                ? std::log(memory.decay_factor)
                                : ReadOne<double>(memory.log_decay, token);
      std::fill(log_decay, log_decay + dim, static_cast<T>(shared));
    }
  }
  if (options.phase) ReadPadded(memory.phase, token, dim, stride, rows.phase + r * stride);
  if (options.key == Key::kInput) {
    ReadKey(options, memory.k, r, memory.input_dim, rows.row);
    MapRow(options, memory, static_cast<std::int64_t>(position) + token, rows.row, stride, key);
  } else {
    const T factor = options.key == Key::kRootComplement ? T(2) : T(1);
    ReadPadded(memory.log_decay, token, dim, stride, key);
    for (std::int64_t d = 0; d < dim; ++d) {
      const T complement = -std::expm1(factor * key[d]);
      key[d] = options.key == Key::kRootComplement ? std::sqrt(complement) : complement;
    }
  }
  switch (options.erase) {
    case Erase::kKey:
      if (!options.preconditioned) break;
      Precondition(options, memory.importance ? ReadOne<T>(memory.importance, token) : T(1), dim,
                   key, rows.curvature + r * stride, rows.curvature + (r + 1) * stride, write);
      std::fill(write + dim, write + stride, T(0));
      break;
    case Erase::kEraseKey: ReadPadded(memory.erase_key, token, dim, stride, erase); break;
    case Erase::kGatedKey:
      ReadPadded(memory.erase_gate, token, dim, stride, erase);
      for (std::int64_t d = 0; d < dim; ++d) erase[d] *= key[d];
      break;
    case Erase::kApart:
      ReadPadded(memory.erase_key, token, dim, stride, erase);
      ReadPadded(memory.erase_gate, token, dim, stride, write);
      for (std::int64_t d = 0; d < dim; ++d) write[d] *= erase[d];
      break;
  }
}

/// Step, decay and what the erasure sees of it.
template <class T>
void GatherNumbers(const Options& options, const Memory& memory, std::int64_t r,
                   BackwardRows<T>& rows) {
  const std::int64_t token = memory.Token(r);
  const T s = memory.step ? ReadOne<T>(memory.step, r) : T(0);
  const T* key = rows.key + r * rows.key_stride;
  rows.step[r] = StepSize(options, s, SquaredNorm(key, memory.key_dim));
  T decay = 1;
  const bool starts = memory.Starts(r);
  if (options.step == Step::kLogWeight) {
    double log_decay = options.decay == Decay::kConstant ? std::log(memory.decay_factor) : 0;
    if (memory.log_decay) log_decay = ReadOne<double>(memory.log_decay, token);
    const double weight = ReadOne<double>(memory.step, r);
    const double past = log_decay == kNothing ? kNothing : log_decay + rows.final_maximum;
    rows.kept[r] = past >= weight;
    rows.final_maximum = std::max(past, weight);
    rows.maxima[r + 1] = static_cast<T>(rows.final_maximum);
    rows.log_weight_decay[r] =
        static_cast<T>(past == kNothing ? kNothing : past - rows.final_maximum);
    decay = std::exp(rows.log_weight_decay[r]);
    rows.step[r] =
        weight == kNothing ? T(0) : std::exp(static_cast<T>(weight - rows.final_maximum));
  } else if (starts && options.decay == Decay::kConstant) {
    decay = static_cast<T>(memory.decay_factor);
  } else if (starts && options.decay == Decay::kScalar) {
    decay = std::exp(ReadOne<T>(memory.log_decay, token));
  }
  T kept = 1;
  if (options.shrink != Shrink::kNone) {
    const T lambda = ReadOne<T>(memory.weight_decay, token);
    kept -= options.shrink == Shrink::kCoupled ? rows.step[r] * lambda : lambda;
    rows.shrinkage[r] = 1 - kept;
  }
  if (options.momentum) rows.momentum[r] = ReadOne<T>(memory.momentum, token);
  rows.decay[r] = kept * decay;
  rows.erase_decay[r] = decay;
}

template <class T>
void GatherQueryRow(const Options& options, const Memory& memory, std::int64_t r, std::int64_t q,
                    double position, BackwardRows<T>& rows) {
  const std::int64_t token = memory.Token(r), stride = rows.key_stride;
  T* const query = rows.query + (q * rows.rows + r) * stride;
  if (!memory.Reads(r)) {
    std::fill(query, query + stride, T(0));
    return;
  }
  ReadKey(options, QueryRows(memory, q), token, memory.input_dim, rows.row);
  if (options.correction != 0) {
    WithRow(memory.erase_key, token, [&](const auto* erase) {
      for (std::int64_t d = 0; d < memory.input_dim; ++d) {
        rows.row[d] -= static_cast<T>(options.correction) * ReadNumber<T>(erase[d]);
      }
    });
  }
  MapRow(options, memory, static_cast<std::int64_t>(position) + token, rows.row, stride, query);
  for (std::int64_t d = 0; d < memory.key_dim; ++d) query[d] *= static_cast<T>(options.scale);
  if (!options.bonus) return;
  T sum = 0;
  ReadRow(memory.bonus, 0, memory.key_dim, rows.row);
  const T* key = rows.key + r * stride;
  for (std::int64_t d = 0; d < memory.key_dim; ++d) sum += rows.row[d] * key[d] * query[d];
  rows.bonus[q * rows.rows + r] = sum;
}

template <class T>
void GatherState(const Memory& memory, const void* state, std::int64_t stride,
                 std::int64_t value_stride, T* to) {
  for (std::int64_t d = 0; d < memory.key_dim; ++d, to += value_stride) {
    std::copy_n(static_cast<const T*>(state) + d * stride, memory.value_dim, to);
    std::fill(to + memory.value_dim, to + value_stride, T(0));
  }
}

void FetchInputs(const Memory& memory, std::int64_t r, std::int64_t queries) {
  const std::int64_t token = memory.Token(r);
  FetchRow(memory.k, r, memory.input_dim);
  FetchRow(memory.v, r, memory.value_dim);
  FetchRow(memory.erase_key, token, memory.key_dim);
  FetchRow(memory.erase_gate, token, memory.key_dim);
  for (std::int64_t q = 0; q < queries; ++q) {
    FetchRow(QueryRows(memory, q), token, memory.input_dim);
  }
}

}  // namespace

template <class T>
void GatherRows(const Options& options, const Memory& memory, BackwardRows<T>& rows) {
  const bool extended = options.denominator != Denominator::kNone;
  const double position = memory.position ? ReadOne<double>(memory.position, 0) : 0;
  rows.final_maximum = memory.maximum ? ReadOne<double>(memory.maximum, 0) : 0;
  if (rows.maxima != nullptr) rows.maxima[0] = static_cast<T>(rows.final_maximum);
  if (options.preconditioned) {
    ReadPadded(memory.curvature, 0, memory.key_dim, rows.key_stride, rows.curvature);
  }
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    if (r + kRowsAhead < rows.rows) FetchInputs(memory, r + kRowsAhead, rows.queries);
    GatherKeyRow(options, memory, r, position, rows);
    GatherNumbers(options, memory, r, rows);
    for (std::int64_t q = 0; q < rows.queries; ++q) {
      GatherQueryRow(options, memory, r, q, position, rows);
    }
    T* const value = rows.value + r * rows.value_stride;
    ReadPadded(memory.v, r, memory.value_dim, rows.value_stride, value);
    if (extended) value[memory.value_dim] = 1;
  }
  GatherState(memory, memory.state, memory.state_stride, rows.value_stride, rows.initial);
  if (options.paired()) {
    GatherState(memory, memory.second, memory.second_stride, rows.value_stride,
                rows.initial_second);
  }
  if (!extended) return;
  ReadRow(memory.sum, 0, memory.key_dim, rows.row);
  for (std::int64_t d = 0; d < memory.key_dim; ++d) {
    rows.initial[d * rows.value_stride + memory.value_dim] = rows.row[d];
  }
}

template void GatherRows(const Options&, const Memory&, BackwardRows<float>&);
template void GatherRows(const Options&, const Memory&, BackwardRows<double>&);

}  // namespace ttr::fast_weights
