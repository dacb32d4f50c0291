// A chunk whose decay is a number a channel: the decays multiply the keys. Compiled once for every
// target.
//
// Key j is carried along: p_j = D_ij (.) w_j at row i, so that every pair has the exact product of
// the decays between, without quotients, and at the end p_j is what the memory is written with. A
// pair costs three vector operations a vector of channels, 28 pairs a chunk. A complex decay
// (GateLoop) turns p_j as well: its real and imaginary parts are the keys of two memories.

#if defined(TTR_FAST_WEIGHTS_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHANNELS_INL_H_
#undef TTR_FAST_WEIGHTS_CHANNELS_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHANNELS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/prepare-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// out[j] = factor x . rows[j stride ...], j < N; x of any alignment.
template <int N, class T>
HWY_INLINE void DotRows(const T* HWY_RESTRICT x, const T* HWY_RESTRICT rows, std::int64_t stride,
                        T factor, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  sn::Tile<decltype(d), N, 1> sums;
  sn::SetZero(d, sums);
  for (std::int64_t c = 0; c < stride; c += hn::MaxLanes(d)) {
    const auto left = hn::LoadU(d, x + c);
    TTR_UNROLL
    for (int j = 0; j < N; ++j) {
      sums[j][0] = hn::MulAdd(left, hn::Load(d, rows + j * stride + c), sums[j][0]);
    }
  }
  TTR_UNROLL
  for (int j = 0; j < N; ++j) out[j] = factor * hn::GetLane(hn::SumOfLanes(d, sums[j][0]));
}

/// The same for j < count <= kChunk; what follows them in a row of kChunk numbers is undefined.
template <class T>
HWY_INLINE void Dots(const T* x, const T* rows, std::int64_t stride, std::int64_t count, T factor,
                     T* out) {
  static_assert(kChunk == 8);
  if (count == 0) return;
  if (count <= 2) return DotRows<2>(x, rows, stride, factor, out);
  if (count <= 4) return DotRows<4>(x, rows, stride, factor, out);
  DotRows<8>(x, rows, stride, factor, out);
}

/// rows[j] *= x for j < count; and where the decay turns, by x e^{i phase}.
template <class T>
HWY_INLINE void DecayRows(const T* HWY_RESTRICT x, std::int64_t stride, std::int64_t count,
                          T* HWY_RESTRICT rows) {
  const hn::ScalableTag<T> d;
  for (std::int64_t c = 0; c < stride; c += hn::MaxLanes(d)) {
    const auto factor = hn::Load(d, x + c);
    for (std::int64_t j = 0; j < count; ++j) {
      T* at = rows + j * stride + c;
      hn::Store(hn::Mul(factor, hn::Load(d, at)), d, at);
    }
  }
}

/// (re + i im) *= factor (cosine + i sine), `count` rows of each.
template <class T>
HWY_INLINE void TurnRows(const T* HWY_RESTRICT factors, const T* HWY_RESTRICT cosines,
                         const T* HWY_RESTRICT sines, std::int64_t stride, std::int64_t count,
                         T* HWY_RESTRICT re, T* HWY_RESTRICT im) {
  const hn::ScalableTag<T> d;
  for (std::int64_t c = 0; c < stride; c += hn::MaxLanes(d)) {
    const auto factor = hn::Load(d, factors + c);
    const auto cosine = hn::Mul(factor, hn::Load(d, cosines + c));
    const auto sine = hn::Mul(factor, hn::Load(d, sines + c));
    for (std::int64_t j = 0; j < count; ++j) {
      const auto x = hn::Load(d, re + j * stride + c);
      const auto y = hn::Load(d, im + j * stride + c);
      hn::Store(hn::NegMulAdd(sine, y, hn::Mul(cosine, x)), d, re + j * stride + c);
      hn::Store(hn::MulAdd(sine, x, hn::Mul(cosine, y)), d, im + j * stride + c);
    }
  }
}

/// A decay that is a number a channel. Do the rows `lie`, as RowsLie() says? Otherwise they are
/// gathered. Rows of g are used up.
template <class T>
HWY_INLINE void PrepareChannels(const Options& options, const Memory& memory, const Chunk& chunk,
                                bool lie, const Scratch<T>& scratch, const Prepared<T>& out) {
  const Gathered<T>& g = scratch.gathered;
  const std::int64_t stride = g.stride;
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const T scale = static_cast<T>(options.scale);
  const std::int64_t state_rows = StateRows<T>(options, memory.key_dim);
  const bool apart = options.apart();
  T* const keys = g.products;
  T* const others = g.products + kChunk * stride;  // keys of values, or imaginary parts
  const std::int64_t imaginary = g.query_stride * memory.queries;
  T* const decay = out.row_decay;  // c_i
  T* const turned = out.turn[2];   // its imaginary part
  auto row_of = [&](const Rows& rows, std::int64_t i) {
    return static_cast<const T*>(rows.data) + (chunk.first + i) * rows.stride;
  };
  for (std::int64_t i = 0; lie && i < chunk.rows; ++i) {
    ExpRow(row_of(memory.log_decay, i), stride, g.factors + i * stride);
  }
  std::fill(decay, decay + stride, T(1));
  if (options.phase) std::fill(turned, turned + stride, T(0));
  for (std::int64_t d = 0; d < stride; ++d) {
    out.forgotten[d] = chunk.forget && g.factors[d] == 0 ? T(1) : T(0);
  }

  // Row i against the keys before it, and as it meets the memory.
  auto erase = [&](std::int64_t i) {
    T* row = g.erase + i * stride;
    const T* from = lie ? row_of(memory.k, i) : row;
    Dots(from, keys, stride, i, T(-1), out.lower + i * kChunk);
    if (apart) Dots(from, others, stride, i, T(-1), out.lower_value + i * kChunk);
    MultiplyRows(from, decay, stride, row);
  };
  auto read = [&](std::int64_t i, std::int64_t count) {
    if (!memory.Reads(chunk.first + i)) return;
    for (std::int64_t q = 0; q < queries; ++q) {
      T* row = g.query + q * g.query_stride + i * stride;
      const T* from = lie ? row_of(memory.q, i) + q * memory.q_head_stride : row;
      const std::int64_t at = q * kChunk * kChunk + i * kChunk;
      Dots(from, keys, stride, count, scale, out.scores + at);
      if (apart) Dots(from, others, stride, count, scale, out.score_values + at);
      if (options.phase) {
        // Re(M q) of a complex memory M: its imaginary part is read with the sign turned.
        MultiplyRows(from, turned, stride, row + imaginary);
        MultiplyBy(row + imaginary, stride, T(-1));
      }
      MultiplyRows(from, decay, stride, row);
    }
  };
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    if (apart) erase(i);
    if (options.read_before) read(i, i);
    const T* factors = g.factors + i * stride;
    if (options.phase) {
      TurnRows(factors, g.cosines + i * stride, g.sines + i * stride, stride, i, keys, others);
      TurnRows(factors, g.cosines + i * stride, g.sines + i * stride, stride, 1, decay, turned);
    } else {
      DecayRows(factors, stride, i, keys);
      if (apart) DecayRows(factors, stride, i, others);
      DecayRows(factors, stride, 1, decay);
    }
    Copy(lie ? row_of(memory.k, i) : g.write + i * stride, stride, keys + i * stride);
    if (apart) std::copy_n(g.value + i * stride, stride, others + i * stride);
    if (options.phase) std::fill_n(others + i * stride, stride, T(0));
    if (options.erases() && !apart) erase(i);
    if (!options.read_before) read(i, i + 1);
  }

  auto pack = [&](const T* rows, bool reads, T* first, std::int64_t second) {
    PackColumns(memory, chunk, rows, stride, reads, scratch.zeros, first);
    if (options.phase) {
      PackColumns(memory, chunk, rows + second, stride, reads, scratch.zeros,
                  first + memory.key_dim * kChunk);
    }
    PadColumns(first, (options.phase ? 2 : 1) * memory.key_dim, state_rows);
  };
  if (options.erases()) pack(g.erase, false, out.erase, 0);
  if (apart) pack(others, false, out.value, 0);
  pack(keys, false, out.write, kChunk * stride);
  for (std::int64_t q = 0; q < queries; ++q) {
    pack(g.query + q * g.query_stride, true, out.queries + q * state_rows * kChunk, imaginary);
  }
  if (options.phase) {
    for (std::int64_t d = 0; d < stride; ++d) {
      out.turn[1][d] = -turned[d];
      out.turn[3][d] = decay[d];
    }
  }
  std::fill(out.read, out.read + queries * kChunk, scale);
  for (int i = 0; i < kChunk; ++i) {
    out.step[i] = g.step[i];
    out.decay[i] = out.to_end[i] = 1;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHANNELS_INL_H_
