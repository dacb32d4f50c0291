// A chunk's backward pass over one strip of key channels: with M the memory before the chunk and
// dM' the gradient behind it, c and D of coefficients-inl.h,
//
//     dx_i = c_i G_i M^T       + sum_j dP_ij D_ij w_j             of every read x
//     dw_j = D_nj u_j dM'^T    + sum_x,i dP_ij D_ij x_i
//     dM   = c_n dM' + sum_x,i (c_i x_i)^T G_i
//
// and sums from which the gradients of the decays are made; with momentum, over both planes of the
// memory (momentum-inl.h). Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_STRIP_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_STRIP_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_STRIP_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <span>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/channels-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/momentum-inl.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/state-inl.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// tally[i] += the products of tile row i with x_i, by lanes.
template <int NV, class T>
HWY_INLINE void Tally(const Chunk& chunk, View<T> rows, std::int64_t i, std::int64_t key,
                      const ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile, T* tallies) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    auto sum = hn::Load(d, tallies + (i + r) * kTokens);
    const T* row = rows[std::min(i + r, chunk.tokens - 1)] + key;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      sum = hn::MulAdd(tile[r][n], hn::Load(d, row + n * Lanes<T>()), sum);
    }
    hn::Store(sum, d, tallies + (i + r) * kTokens);
  }
}

/// tile += sum_j dP_ij D_ij w_j of reads i .. of x.
template <int NV, class T>
HWY_INLINE void AddWrites(const ChunkWork<T>& on, std::int64_t x, std::int64_t i, std::int64_t key,
                          ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  for (std::int64_t w = 0; w < on.scratch.writes; ++w) {
    const T* pairs = on.scratch.squares.score_grads + on.Square(x, w) + i * kTokens;
    const View<T> writes = on.Write(w);
    ln::Accumulate<false>(d, pairs, kTokens, 1, writes.data + key, writes.stride, i, tile);
    MulAddTriangle<true, NV>(pairs + i, kTokens, 1, writes[i] + key, writes.stride, tile);
  }
}

/// tile += sum_x,i dP_ij D_ij x_i of writes j .. of w.
template <int NV, class T>
HWY_INLINE void AddReads(const ChunkWork<T>& on, std::int64_t w, std::int64_t j, std::int64_t key,
                         ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  const std::int64_t next = j + ln::kTileRows;
  for (std::int64_t x = 0; x < on.scratch.reads; ++x) {
    const T* pairs = on.scratch.squares.score_grads + on.Square(x, w) + j;
    const View<T> reads = on.Read(x);
    MulAddTriangle<false, NV>(pairs + j * kTokens, 1, kTokens, reads[j] + key, reads.stride, tile);
    ln::Accumulate<false>(d, pairs + next * kTokens, 1, kTokens, reads[next] + key, reads.stride,
                          on.chunk.tokens - next, tile);
  }
}

/// The tile times `factors`, where the decay is a number, and tallied before that.
template <int NV, class T>
HWY_INLINE void DecayTile(const Chunk& chunk, View<T> rows, const T* factors, std::int64_t i,
                          std::int64_t key, T* tallies,
                          ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  Tally<NV>(chunk, rows, i, key, tile, tallies);
  ScaleTile<NV>(factors + i, tile);
}

/// The gradients of one read; where channels decay, grads.keys, those of its decayed rows. Those of
/// an erasure that has none of its own go to `joined`, [kTokens] rows of the strip's width.
template <int NV, class T>
void ReadGradients(const ChunkWork<T>& on, const T* memory, std::int64_t key, std::int64_t x,
                   T* joined) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kWidth = NV * Lanes<T>();
  const Scratch<T>& scratch = on.scratch;
  const std::int64_t tokens = on.chunk.tokens;
  const View<T> g = on.Grad(x);
  const T* strip = memory + key * scratch.values;
  T own[2][kTokens];
  const T* const factors = on.c.ReadFactors(on.Kind(x), own[0]);
  const bool planes = scratch.planes > 1;
  const T* const update_factors = planes ? on.c.ReadFactors(on.Kind(x), own[1], 1) : nullptr;
  std::int64_t stride;
  T* const out = on.ReadGradient(x, &stride);
  auto read = [&](const T* from, std::int64_t i, auto& tile) HWY_ATTR {
    Fetch(on.call);
    ln::SetZero(d, tile);
    if (on.chunk.forget) return;
    ln::Accumulate<false>(d, g[i], g.stride, 1, from, kWidth, on.call.sizes.value_dim, tile);
  };
  for (std::int64_t i = 0; i < tokens; i += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    if (planes) {
      read(strip + scratch.matrix, i, tile);
      DecayTile<NV>(on.chunk, on.Read(x), update_factors, i, key, scratch.Tallies(1, x), tile);
      StoreTile<NV>(kRows, scratch.update_tile, kWidth, tile);
    }
    read(strip, i, tile);
    if (on.channels) {
      StoreTile<NV>(kRows, scratch.grads.keys + (x * kTokens + i) * scratch.keys + key,
                    scratch.keys, tile);
      continue;
    }
    if (on.scalar) {
      DecayTile<NV>(on.chunk, on.Read(x), factors, i, key, scratch.Tallies(0, x), tile);
    }
    if (planes) AddTile<NV>(scratch.update_tile, tile);
    AddWrites<NV>(on, x, i, key, tile);
    if (out == nullptr) {
      StoreTile<NV>(kRows, joined + i * kWidth, kWidth, tile);
    } else {
      const bool past = on.call.stream_query && x < on.call.sizes.queries;
      StoreTile<NV>(past, tokens - i, out + i * stride + key, stride, tile);
    }
  }
}

/// The gradients of one write, with `joined` added, if any.
template <int NV, class T>
void WriteGradients(const ChunkWork<T>& on, std::int64_t key, std::int64_t w, const T* joined) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kWidth = NV * Lanes<T>();
  const Scratch<T>& scratch = on.scratch;
  const T* columns = scratch.columns.updates + w * scratch.values * kTokens;
  const T* strip = scratch.adjoint + key * scratch.values;
  const std::int64_t index = scratch.reads + w;
  std::int64_t stride;
  T* out = on.WriteGradient(w, &stride) + key;
  auto read = [&](const T* from, std::int64_t j, auto& tile) HWY_ATTR {
    Fetch(on.call);
    ln::SetZero(d, tile);
    ln::MulAddRows<1, kTokens>(d, columns + j, from, kWidth, on.call.sizes.value_dim, tile);
  };
  for (std::int64_t j = 0; j < on.chunk.tokens; j += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    if (scratch.planes > 1) {
      read(strip + scratch.matrix, j, tile);
      DecayTile<NV>(on.chunk, on.Write(w), on.c.to_end[1], j, key, scratch.Tallies(1, index), tile);
      StoreTile<NV>(kRows, scratch.update_tile, kWidth, tile);
    }
    read(strip, j, tile);
    if (on.channels) {
      StoreTile<NV>(kRows, scratch.grads.keys + (index * kTokens + j) * scratch.keys + key,
                    scratch.keys, tile);
      continue;
    }
    if (on.scalar) {
      DecayTile<NV>(on.chunk, on.Write(w), on.c.to_end[0], j, key, scratch.Tallies(0, index), tile);
    }
    if (scratch.planes > 1) AddTile<NV>(scratch.update_tile, tile);
    AddReads<NV>(on, w, j, key, tile);
    if (joined != nullptr) AddTile<NV>(joined + j * kWidth, tile);
    StoreTile<NV>(on.call.stream_write && w == 0, on.chunk.tokens - j, out + j * stride, stride,
                  tile);
  }
}

/// strip = decay (.) strip + sum_x x^T G, key channel by key channel, of a plane of the adjoint;
/// and its overlap before that with a partner, if there is one.
template <int NV, class T>
void UpdateAdjoint(const ChunkWork<T>& on, std::int64_t key, std::int64_t plane,
                   hn::Vec<hn::ScalableTag<T>> (&decay)[NV], StripOverlap<T> overlap) {
  const hn::ScalableTag<T> d;
  const Scratch<T>& scratch = on.scratch;
  T* const strip = scratch.adjoint + plane * scratch.matrix + key * scratch.values;
  constexpr std::int64_t kReads = 8;
  for (std::int64_t x = 0; x < scratch.reads; x += kReads) {
    Outer<T> outers[kReads];
    const std::int64_t count = std::min(kReads, scratch.reads - x);
    for (std::int64_t o = 0; o < count; ++o) {
      const View<T> g = on.DecayedGrad(x + o, plane);
      const View<T> read = on.channels ? on.DecayedRead(x + o) : on.Read(x + o);
      outers[o] = {read.data + key, read.stride, g.data, g.stride};
    }
    const std::span<const Outer<T>> all(outers, static_cast<std::size_t>(count));
    if (overlap.partner != nullptr) {
      alignas(64) T sums[NV * Lanes<T>()] = {};
      UpdateStrip<NV, true, T>(on.call, on.chunk.tokens, strip, decay, all,
                               {overlap.partner, sums});
      for (std::int64_t i = 0; i < NV * Lanes<T>(); ++i) overlap.sums[i] += sums[i];
    } else {
      UpdateStrip<NV, false, T>(on.call, on.chunk.tokens, strip, decay, all);
    }
    for (int n = 0; n < NV; ++n) decay[n] = hn::Set(d, T(1));
    overlap.partner = nullptr;
  }
}

/// A strip of both planes of the adjoint, with momentum.
template <int NV, class T>
void UpdatePlanes(const ChunkWork<T>& on, const T* memory, std::int64_t key,
                  T (&overlaps)[3][2 * kTokens]) {
  const hn::ScalableTag<T> d;
  const Scratch<T>& scratch = on.scratch;
  const std::int64_t at = key * scratch.values;
  Transition<T>(on.chunk, on.c)
      .Backward(NV * Lanes<T>() * scratch.values, scratch.matrix, memory + at, scratch.adjoint + at,
                overlaps);
  hn::Vec<decltype(d)> one[NV];
  for (int n = 0; n < NV; ++n) one[n] = hn::Set(d, T(1));
  for (std::int64_t plane = 0; plane < scratch.planes; ++plane) {
    UpdateAdjoint<NV, T>(on, key, plane, one, {});
  }
}

/// One strip of key channels. `overlaps` sums M (.) dM' by lanes; with momentum, what Transition
/// does.
template <int NV, class T>
void BackwardStrip(const ChunkWork<T>& on, const T* memory, std::int64_t key,
                   T (&overlaps)[3][2 * kTokens]) {
  const hn::ScalableTag<T> d;
  const GradientCall<T>& call = on.call;
  const Scratch<T>& scratch = on.scratch;
  alignas(64) T joined[kTokens * NV * Lanes<T>()];
  for (std::int64_t x = 0; x < scratch.reads; ++x) ReadGradients<NV>(on, memory, key, x, joined);
  const bool joins = call.in.erase && !call.d.erase && !on.channels;
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    WriteGradients<NV>(on, key, w, joins && w == 0 ? joined : nullptr);
  }
  if (scratch.planes > 1) return UpdatePlanes<NV>(on, memory, key, overlaps);
  T* const overlap = overlaps[0];
  if (on.channels) std::fill(overlap, overlap + NV * Lanes<T>(), T(0));
  if (on.chunk.forget) {
    T* const strip = scratch.adjoint + key * scratch.values;
    std::fill(strip, strip + NV * Lanes<T>() * scratch.values, T(0));
  } else {
    hn::Vec<decltype(d)> decay[NV];
    LastDecay(call, on.chunk, on.c.Last(on.chunk), key, decay);
    const bool decays = on.channels || on.scalar;
    UpdateAdjoint<NV, T>(on, key, 0, decay,
                         {decays ? memory + key * scratch.values : nullptr, overlap});
  }
  if (!on.channels) return;
  for (int n = 0; n < NV; ++n) {
    ChannelGradients(on, key + n * Lanes<T>(), hn::Load(d, overlap + n * Lanes<T>()));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_STRIP_INL_H_
