// One row of keys, queries and decays per channel, as they act on the memory. Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_OPERANDS_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_OPERANDS_KEYS_INL_H_
#undef TTR_FAST_WEIGHTS_OPERANDS_KEYS_INL_H_
#else
#define TTR_FAST_WEIGHTS_OPERANDS_KEYS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/erase_rules-inl.h"
#include "src/engines/fast_weights/operands/key_rules-inl.h"
#include "src/engines/fast_weights/operands/rows-inl.h"
#include "src/engines/fast_weights/scratch.h"
#include "src/engines/rows/features_kernel.h"
#include "src/simd/decay-inl.h"
#include "src/simd/sincos-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// x -= factor y, of `count` numbers.
template <class T>
HWY_INLINE void SubtractMultiple(T factor, const T* HWY_RESTRICT y, std::int64_t count,
                                 T* HWY_RESTRICT x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] -= factor * y[i];
}

/// x *= factor, whole vectors.
template <class T>
HWY_INLINE void MultiplyBy(T* x, std::int64_t count, T factor) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, x + i)), d, x + i);
  }
}

/// to = exp(x), x <= 0, whole vectors; x of any alignment.
template <class T>
HWY_INLINE void ExpRow(const T* x, std::int64_t count, T* to) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    auto complement = hn::Zero(d);
    hn::Store(sn::ExpDecay(d, hn::LoadU(d, x + i), complement).factor, d, to + i);
  }
}

/// Cosines and sines of a row of angles.
template <class T>
HWY_INLINE void SinCosRow(std::int64_t count, T* angles_then_cosines, T* sines) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Vec<decltype(d)> sine, cosine;
    sn::SinCos(d, hn::Load(d, angles_then_cosines + i), sine, cosine);
    hn::Store(cosine, d, angles_then_cosines + i);
    hn::Store(sine, d, sines + i);
  }
}

/// phi of the row of Dk numbers at `raw`; what follows them is scratch.
template <class T>
HWY_INLINE void MapFeatureRow(const Options& options, const Memory& memory, std::int64_t position,
                              T* raw, T* to) {
  rows::FeatureTask task;
  task.x = {raw, DTypeOf<T>(), 0};
  task.y = {to, DTypeOf<T>(), 0};
  task.w = memory.inputs.features_w.data;
  task.b = memory.inputs.features_b.data;
  task.tokens = 1;
  task.dim = memory.dims.input_dim;
  task.features = memory.dims.features;
  task.phi_dim = memory.dims.feature_dim;
  task.position = position;
  task.scratch = raw + RoundUp(memory.dims.input_dim, kLine<T>);
  rows::RunFeatures(DTypeOf<T>(), options.features, task);
}

/// Row t of keys or queries as the memory meets it: normalised, its features, and the intercept's
/// 1; of the token at `position`.
template <class T>
HWY_INLINE void LoadMapped(const Options& options, const Memory& memory, const Rows& source,
                           std::int64_t t, std::int64_t position, T* raw, T* to) {
  const std::int64_t dim = memory.dims.feature_dim;
  if (options.features.map == rows::Map::kNone) {
    LoadKey(options, source, t, dim, to);
  } else {
    LoadKey(options, source, t, memory.dims.input_dim, raw);
    MapFeatureRow(options, memory, position, raw, to);
  }
  if (options.intercept) to[dim] = 1;
  Pad(to, memory.dims.key_dim, RoundUp(memory.dims.key_dim, kLine<T>));
}

/// w, r and the separate value key of row i of the chunk, which is row `row` of the sequence.
template <class T>
HWY_INLINE void GatherKey(const Options& options, const Memory& memory, std::int64_t row,
                          std::int64_t i, Running<T>& running, Gathered<T>& out) {
  const std::int64_t stride = out.stride, token = memory.Token(row);
  const bool separate = options.separate_value_key();
  T* const write = out.write + i * stride;
  T* const erase = out.erase + i * stride;
  T* const key = separate ? out.value + i * stride : options.preconditioned ? erase : write;
  if (options.key != Key::kInput) {
    LoadPadded(memory.inputs.log_decay, token, memory.dims.key_dim, stride, key);
    ComplementRow(options.key, key, stride);
  } else {
    LoadMapped(options, memory, memory.inputs.k, row, running.position + token, out.raw, key);
  }
  if (options.preconditioned) {
    const T weight = memory.inputs.importance ? LoadOne<T>(memory.inputs.importance, token) : T(1);
    PreconditionRow(options, weight, key, stride, running.curvature, write);
  }
  WithEraseRule(options.erase, [&](auto rule) HWY_ATTR {
    rule.Load(TokenInputs<T>{memory, token, stride}, key, erase, write);
  });
}

/// The decay per channel of the same row, of an input its logarithm: GatherRows() takes the
/// exponential of all rows together. And the phase.
template <class T>
HWY_INLINE void GatherDecay(const Options& options, const Memory& memory, std::int64_t row,
                            std::int64_t i, Gathered<T>& out) {
  const std::int64_t stride = out.stride, token = memory.Token(row), dim = memory.dims.key_dim;
  const bool starts = memory.Starts(row);
  T* const factors = out.factors + i * stride;
  if (options.decay == Decay::kChannel && starts) {
    LoadPadded(memory.inputs.log_decay, token, dim, stride, factors);
  } else if (options.decay == Decay::kChannel) {
    std::fill_n(factors, stride, T(0));
  } else {
    T factor = 1;
    if (options.decay == Decay::kConstant && starts) {
      factor = static_cast<T>(memory.decay_factor);
    } else if (options.decay == Decay::kScalar && starts) {
      factor = static_cast<T>(std::exp(LoadOne<double>(memory.inputs.log_decay, token)));
    }
    std::fill_n(factors, stride, factor);
  }
  if (!options.phase) return;
  T* const cosines = out.cosines + i * stride;
  LoadPadded(memory.inputs.phase, token, dim, stride, cosines);
  SinCosRow(RoundUp(dim, kLine<T>), cosines, out.sines + i * stride);
}

/// The query of head `query` at row `row`: normalised, corrected by the row's gathered erase key,
/// its features; not scaled.
template <class T>
HWY_INLINE void GatherQuery(const Options& options, const Memory& memory, std::int64_t row,
                            std::int64_t query, const Running<T>& running, const T* erase, T* raw,
                            T* to) {
  const std::int64_t token = memory.Token(row);
  const Rows source = QueryRows(memory, query);
  // A read without a write is at the last token's position, and has no erase key to correct by.
  // Where everything is written first, queries have positions of their own.
  if (!memory.writes() && options.causal) {
    const std::int64_t last = std::max<std::int64_t>(running.position - 1, 0);
    LoadMapped(options, memory, source, token, last, raw, to);
  } else if (options.correction == 0) {
    LoadMapped(options, memory, source, token, running.position + token, raw, to);
  } else {
    const bool maps = options.features.map != rows::Map::kNone;
    T* const plain = maps ? raw : to;
    LoadKey(options, source, token, memory.dims.input_dim, plain);
    SubtractMultiple(static_cast<T>(options.correction), erase, memory.dims.input_dim, plain);
    if (maps) MapFeatureRow(options, memory, running.position + token, raw, to);
    Pad(to, memory.dims.key_dim, RoundUp(memory.dims.key_dim, kLine<T>));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_OPERANDS_KEYS_INL_H_
