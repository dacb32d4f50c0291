// The rows of a chunk: their copies, and decayed to the chunk's two ends. Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_ROWS_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_ROWS_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/chunk-inl.h"
#include "src/engines/fast_weights/adjoint/coefficients-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// out = the chunk's rows, and rows of zeros behind them: kTokens in all.
template <class T>
void CopyRows(const Chunk& chunk, View<T> from, std::int64_t width, T* out) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < chunk.tokens; ++i, out += width) {
    for (std::int64_t k = 0; k < width; k += Lanes<T>()) {
      hn::Store(hn::Load(d, from[i] + k), d, out + k);
    }
  }
  std::fill(out, out + (kTokens - chunk.tokens) * width, T(0));
}

/// A chunk on its way back: what its kernels share, and copies of all its rows. Rows of heads side
/// by side lie whole pages apart and would drive each other out of the first-level cache.
template <class T>
class ChunkWork {
 public:
  const GradientCall<T>& call;
  const Scratch<T>& scratch;
  const Chunk& chunk;
  const Coefficients<T> c;
  const bool channels, scalar;  // how the memory decays

  ChunkWork(const GradientCall<T>& of, const Chunk& which, const Scratch<T>& in)
      : call(of),
        scratch(in),
        chunk(which),
        c(of, which),
        channels(of.sizes.decay == GradientDecay::kChannel),
        scalar(of.sizes.decay == GradientDecay::kScalar),
        joined_(of.in.erase && of.in.erase.data == of.in.write.data) {}

  /// Makes the copies; before that, the rows below have no meaning.
  void Copy() const {
    const BlockRows<const T>& in = call.in;
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      const bool query = x < call.sizes.queries;
      CopyRows(chunk, RowsOf(query ? in.query : in.erase, chunk, query ? x : 0), scratch.keys,
               scratch.copies.reads + x * Keys());
    }
    for (std::int64_t w = joined_ ? 1 : 0; w < scratch.writes; ++w) {
      CopyRows(chunk, RowsOf(w == 0 ? in.write : in.second_write, chunk), scratch.keys,
               scratch.copies.writes + w * Keys());
    }
    if (scratch.writes > 1 && chunk.tokens < kTokens) {
      CopyRows(chunk, RowsOf(in.second_value, chunk), scratch.values, scratch.copies.second_values);
    }
    for (std::int64_t x = 0; x < call.sizes.queries; ++x) CopyOutputGradients(x);
  }

  ReadKind Kind(std::int64_t x) const { return KindOf(call, x); }
  View<T> Read(std::int64_t x) const { return {scratch.copies.reads + x * Keys(), scratch.keys}; }
  /// Read x as it meets the memory before the chunk, where channels decay.
  View<T> DecayedRead(std::int64_t x) const {
    return {scratch.copies.decayed_reads + x * Keys(), scratch.keys};
  }
  View<T> Write(std::int64_t w) const {
    if (w == 0 && joined_) return Read(call.sizes.queries);
    return {scratch.copies.writes + w * Keys(), scratch.keys};
  }
  View<T> Gates() const { return RowsOf(call.in.gates, chunk); }

  /// Grad() is the gradient of what read x finds. DecayedGrad() is that times the factor of the
  /// memory that it finds, where the factor is a number.
  View<T> Grad(std::int64_t x) const {
    return {scratch.grads.reads + x * Values(), scratch.values};
  }
  View<T> DecayedGrad(std::int64_t x, std::int64_t plane = 0) const {
    if (!scalar) return Grad(x);
    return {scratch.DecayedGrads(plane, x), scratch.values};
  }

  /// The rows that a chunk writes: the innovations, or the second values.
  View<T> Update(std::int64_t w) const {
    if (w == 0) return {scratch.updates + chunk.at * scratch.update_stride, scratch.update_stride};
    if (chunk.tokens < kTokens) return {scratch.copies.second_values, scratch.values};
    return RowsOf(call.in.second_value, chunk);
  }

  /// Where the gradients of the reads and of the writes go: the row of the chunk's first token.
  /// An erasure whose rows are those that are written has none.
  T* ReadGradient(std::int64_t x, std::int64_t* stride) const {
    const bool query = x < call.sizes.queries;
    const GradientRows<T>& rows = query ? call.d.query : call.d.erase;
    *stride = rows.stride;
    if (!rows) return nullptr;
    return rows.data + (query ? x * rows.head_stride : 0) + chunk.at * rows.stride;
  }
  T* WriteGradient(std::int64_t w, std::int64_t* stride) const {
    const GradientRows<T>& rows = w == 0 ? call.d.write : call.d.second_write;
    *stride = rows.stride;
    return rows.data + chunk.at * rows.stride;
  }

  /// Where products, scores or their gradients of one read and one write begin.
  std::int64_t Square(std::int64_t x, std::int64_t w) const {
    return (x * scratch.writes + w) * kSquare;
  }

 private:
  std::int64_t Keys() const { return kTokens * scratch.keys; }
  std::int64_t Values() const { return kTokens * scratch.values; }

  /// Copies the gradients of what query x finds, and their products with its ReadFactors().
  void CopyOutputGradients(std::int64_t x) const {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, call.output_factor);
    const View<T> from = RowsOf(call.d_output, chunk, x);
    T* out = scratch.grads.reads + x * Values();
    T* decayed = scratch.DecayedGrads(0, x);
    T own[kTokens];
    const T* const factors = c.ReadFactors(Kind(x), own);
    for (std::int64_t i = 0; i < chunk.tokens; ++i) {
      const auto factor = hn::Set(d, factors[i]);
      for (std::int64_t v = 0; v < scratch.values; v += Lanes<T>()) {
        const auto grad = hn::Mul(scale, hn::Load(d, from[i] + v));
        hn::Store(grad, d, out + i * scratch.values + v);
        if (scalar) hn::Store(hn::Mul(factor, grad), d, decayed + i * scratch.values + v);
      }
    }
    std::fill(out + chunk.tokens * scratch.values, out + Values(), T(0));
  }

  bool joined_;  // are the erasing rows those that are written?
};

/// prefixes[i] = c_{i-1}, of channels.
template <class T>
void Prefixes(const ChunkWork<T>& on) {
  const hn::ScalableTag<T> d;
  const Scratch<T>& scratch = on.scratch;
  const View<T> gates = on.Gates();
  std::fill(scratch.prefixes, scratch.prefixes + scratch.keys, T(1));
  for (std::int64_t i = 0; i < on.chunk.tokens; ++i) {
    const T* row = scratch.prefixes + i * scratch.keys;
    for (std::int64_t k = 0; k < scratch.keys; k += Lanes<T>()) {
      const auto next = hn::Mul(hn::Load(d, row + k), hn::Load(d, gates[i] + k));
      hn::Store(next, d, scratch.prefixes + (i + 1) * scratch.keys + k);
    }
  }
}

/// The decayed rows of read x, from the prefixes.
template <class T>
void DecayReads(const ChunkWork<T>& on, std::int64_t x) {
  const hn::ScalableTag<T> d;
  const Scratch<T>& scratch = on.scratch;
  const View<T> in = on.Read(x);
  const bool before = on.Kind(x).before;
  T* out = scratch.copies.decayed_reads + x * kTokens * scratch.keys;
  for (std::int64_t i = 0; i < on.chunk.tokens; ++i, out += scratch.keys) {
    const T* prefix = scratch.prefixes + (before ? i : i + 1) * scratch.keys;
    for (std::int64_t k = 0; k < scratch.keys; k += Lanes<T>()) {
      hn::Store(hn::Mul(hn::Load(d, prefix + k), hn::Load(d, in[i] + k)), d, out + k);
    }
  }
  std::fill(out, out + (kTokens - on.chunk.tokens) * scratch.keys, T(0));
}

/// out_i = factor_i in_i, rows beyond the chunk's last 0.
template <class T>
void ScaleRows(const Chunk& chunk, View<T> in, const T* factors, std::int64_t width, T* out,
               std::int64_t stride) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < kTokens; ++i, out += stride) {
    if (i >= chunk.tokens) {
      std::fill(out, out + width, T(0));
      continue;
    }
    const auto factor = hn::Set(d, factors[i]);
    for (std::int64_t k = 0; k < width; k += Lanes<T>()) {
      hn::Store(hn::Mul(factor, hn::Load(d, in[i] + k)), d, out + k);
    }
  }
}

/// The rows of write w as they stand at the chunk's end, where channels decay.
template <class T>
void DecayChannelWrites(const GradientCall<T>& call, const Chunk& chunk, View<T> in,
                        const Scratch<T>& scratch, std::int64_t w) {
  const hn::ScalableTag<T> d;
  const View<T> gates = RowsOf(call.in.gates, chunk);
  const std::int64_t stride = scratch.write_stride;
  T* out = scratch.WriteRow(w, chunk.at);
  for (std::int64_t k = 0; k < scratch.keys; k += Lanes<T>()) {
    auto factor = hn::Set(d, T(1));
    for (std::int64_t j = chunk.tokens - 1; j >= 0; --j) {
      hn::Store(hn::Mul(factor, hn::Load(d, in[j] + k)), d, out + j * stride + k);
      factor = hn::Mul(factor, hn::Load(d, gates[j] + k));
    }
    for (std::int64_t j = chunk.tokens; j < kTokens; ++j) {
      hn::Store(hn::Zero(d), d, out + j * stride + k);
    }
  }
}

/// write_rows of the chunk: w_j as it stands at the chunk's end.
template <class T>
void DecayWrites(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                 const Scratch<T>& scratch) {
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const View<T> in = RowsOf(w == 0 ? call.in.write : call.in.second_write, chunk);
    if (call.sizes.decay == GradientDecay::kChannel) {
      DecayChannelWrites(call, chunk, in, scratch, w);
      continue;
    }
    for (std::int64_t plane = 0; plane < scratch.planes; ++plane) {
      ScaleRows(chunk, in, c.to_end[plane], scratch.keys, scratch.WriteRow(w + plane, chunk.at),
                scratch.write_stride);
    }
  }
}

/// What the steps of the chunk go along, b_i times which is u_i: the errors, or the values.
template <class T>
View<T> ErrorsOf(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch) {
  if (!call.sizes.erase) return RowsOf(call.in.value, chunk);
  return {call.saved.errors + chunk.first * scratch.values, scratch.values};
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_ROWS_INL_H_
