// The large half of a chunk's backward pass, strip by strip of key channels: with M the memory
// before the chunk and dM' the gradient behind it, c and D of gradient_rows-inl.h,
//
//     dx_i = c_i G_i M^T       + sum_j dP_ij D_ij w_j             of every read x
//     dw_j = D_nj u_j dM'^T    + sum_x,i dP_ij D_ij x_i
//     dM   = c_n dM' + sum_x,i (c_i x_i)^T G_i
//
// and the gradients of the decays from what they multiply; with momentum, sums over both parts of
// the memory (gradient_momentum-inl.h). Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_adjoint-inl.h"
#include "src/engines/fast_weights/gradient_channel-inl.h"
#include "src/engines/fast_weights/gradient_coefficients-inl.h"
#include "src/engines/fast_weights/gradient_forward-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_momentum-inl.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/engines/fast_weights/gradient_turn-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
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

/// Row r of the tile times factors[r]; 0 where that is 0.
template <int NV, class T>
HWY_INLINE void ScaleTile(const T* factors, ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  bool zeros = false;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    const auto factor = hn::Set(d, factors[r]);
    zeros = zeros || factors[r] == 0;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(factor, tile[r][n]);
  }
  if (!zeros) return;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    const auto none = hn::Eq(hn::Set(d, factors[r]), hn::Zero(d));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) tile[r][n] = hn::IfThenZeroElse(none, tile[r][n]);
  }
}

/// tile += whole rows, which lie one behind the other.
template <int NV, class T>
HWY_INLINE void AddTile(const T* more, ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      tile[r][n] = hn::Add(tile[r][n], hn::Load(d, more + (r * NV + n) * Lanes<T>()));
    }
  }
}

/// The gradients of one read; where channels decay, key_grads, those of its decayed rows. Those of
/// an erasure that has none of its own go to `joined`, [kTokens] rows of the strip's width.
template <int NV, class T>
void ReadGradients(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const ChunkRows<T>& rows, const Scratch<T>& scratch, const T* memory,
                   std::int64_t key, std::int64_t x, T* joined) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  const ReadKind kind = KindOf(call, x);
  const View<T> g = rows.Grad(x);
  const T* strip = memory + key * scratch.values;
  T own[kTokens], update_own[kTokens];
  const T* const factors = c.ReadFactors(kind, own);
  std::int64_t stride;
  T* const out = rows.ReadGradient(x, &stride);
  auto read = [&](const T* from, std::int64_t i, auto& tile) HWY_ATTR {
    Fetch(call);
    ln::SetZero(d, tile);
    if (chunk.forget) return;
    ln::Accumulate<false>(d, g[i], g.stride, 1, from, NV * Lanes<T>(), call.sizes.value_dim, tile);
  };
  const T* const update_factors = scratch.parts > 1 ? c.ReadFactors(kind, update_own, 1) : nullptr;
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    if (update_factors != nullptr) {
      read(strip + scratch.matrix, i, tile);
      Tally<NV>(chunk, rows.Read(x), i, key, tile, scratch.Tallies(1, x));
      ScaleTile<NV>(update_factors + i, tile);
      StoreTile<NV>(kRows, scratch.part_tile, NV * Lanes<T>(), tile);
    }
    read(strip, i, tile);
    if (channels) {
      StoreTile<NV>(kRows, scratch.key_grads + (x * kTokens + i) * scratch.keys + key, scratch.keys,
                    tile);
      continue;
    }
    if (call.sizes.decay == GradientDecay::kScalar) {
      Tally<NV>(chunk, rows.Read(x), i, key, tile, scratch.Tallies(0, x));
      ScaleTile<NV>(factors + i, tile);
    }
    if (update_factors != nullptr) AddTile<NV>(scratch.part_tile, tile);
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      const T* pairs = scratch.score_grads + (x * scratch.writes + w) * kSquare + i * kTokens;
      const View<T> writes = rows.Write(w);
      ln::Accumulate<false>(d, pairs, kTokens, 1, writes.data + key, writes.stride, i, tile);
      MulAddTriangle<true, NV>(pairs + i, kTokens, 1, writes[i] + key, writes.stride, tile);
    }
    if (out == nullptr) {
      StoreTile<NV>(kRows, joined + i * NV * Lanes<T>(), NV * Lanes<T>(), tile);
    } else if (call.stream_query && x < call.sizes.queries) {
      StoreTile<NV, true>(chunk.tokens - i, out + i * stride + key, stride, tile);
    } else {
      StoreTile<NV>(chunk.tokens - i, out + i * stride + key, stride, tile);
    }
  }
}

/// The same of one write, to which it adds `joined`, if any.
template <int NV, class T>
void WriteGradients(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                    const ChunkRows<T>& rows, const Scratch<T>& scratch, std::int64_t key,
                    std::int64_t w, const T* joined) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  const T* columns = scratch.update_columns + w * scratch.values * kTokens;
  const T* strip = scratch.adjoint + key * scratch.values;
  std::int64_t stride;
  T* out = rows.WriteGradient(w, &stride) + key;
  const std::int64_t index = scratch.reads + w;
  auto read = [&](const T* from, std::int64_t j, auto& tile) HWY_ATTR {
    Fetch(call);
    ln::SetZero(d, tile);
    ln::MulAddRows<1, kTokens>(d, columns + j, from, NV * Lanes<T>(), call.sizes.value_dim, tile);
  };
  for (std::int64_t j = 0; j < chunk.tokens; j += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    if (scratch.parts > 1) {
      read(strip + scratch.matrix, j, tile);
      Tally<NV>(chunk, rows.Write(w), j, key, tile, scratch.Tallies(1, index));
      ScaleTile<NV>(c.to_end[1] + j, tile);
      StoreTile<NV>(kRows, scratch.part_tile, NV * Lanes<T>(), tile);
    }
    read(strip, j, tile);
    if (channels) {
      StoreTile<NV>(kRows, scratch.key_grads + (index * kTokens + j) * scratch.keys + key,
                    scratch.keys, tile);
      continue;
    }
    if (call.sizes.decay == GradientDecay::kScalar) {
      Tally<NV>(chunk, rows.Write(w), j, key, tile, scratch.Tallies(0, index));
      ScaleTile<NV>(c.to_end[0] + j, tile);
    }
    if (scratch.parts > 1) AddTile<NV>(scratch.part_tile, tile);
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      const T* pairs = scratch.score_grads + (x * scratch.writes + w) * kSquare + j;
      const View<T> reads = rows.Read(x);
      const std::int64_t next = j + kRows;
      MulAddTriangle<false, NV>(pairs + j * kTokens, 1, kTokens, reads[j] + key, reads.stride,
                                tile);
      ln::Accumulate<false>(d, pairs + next * kTokens, 1, kTokens, reads[next] + key, reads.stride,
                            chunk.tokens - next, tile);
    }
    if (joined != nullptr) AddTile<NV>(joined + j * NV * Lanes<T>(), tile);
    if (call.stream_write && w == 0) {
      StoreTile<NV, true>(chunk.tokens - j, out + j * stride, stride, tile);
    } else {
      StoreTile<NV>(chunk.tokens - j, out + j * stride, stride, tile);
    }
  }
}

/// strip = decay (.) strip + sum_x x^T G, key channel by key channel, of a part of the memory.
/// `overlap` sums partner (.) strip by lanes, if there is a partner.
template <int NV, class T>
void AddReads(const GradientCall<T>& call, const Chunk& chunk, const ChunkRows<T>& rows,
              const Scratch<T>& scratch, std::int64_t key, std::int64_t part, T* strip,
              hn::Vec<hn::ScalableTag<T>> (&decay)[NV], const T* partner, T* overlap) {
  const hn::ScalableTag<T> d;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  constexpr std::int64_t kReads = 8;
  for (std::int64_t x = 0; x < scratch.reads; x += kReads) {
    Outer<T> outers[kReads];
    const std::int64_t count = std::min(kReads, scratch.reads - x);
    for (std::int64_t o = 0; o < count; ++o) {
      const View<T> g = rows.DecayedGrad(x + o, part);
      const T* const read =
          channels ? scratch.read_rows + (x + o) * kTokens * scratch.keys : rows.Read(x + o).data;
      outers[o] = {read + key, scratch.keys, g.data, g.stride};
    }
    if (partner != nullptr) {
      UpdateStrip<NV, true>(call, chunk.tokens, strip, strip, decay, outers, count, partner,
                            overlap);
    } else {
      UpdateStrip<NV, false, T>(call, chunk.tokens, strip, strip, decay, outers, count, nullptr,
                                nullptr);
    }
    for (int n = 0; n < NV; ++n) decay[n] = hn::Set(d, T(1));
    partner = nullptr;
  }
}

/// A strip of both parts, with momentum, as BackwardStrip does it.
template <int NV, class T>
void UpdateParts(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                 const ChunkRows<T>& rows, const Scratch<T>& scratch, const T* memory,
                 std::int64_t key, T (&overlaps)[3][2 * kTokens]) {
  const hn::ScalableTag<T> d;
  const std::int64_t at = key * scratch.values;
  T* const strip = scratch.adjoint + at;
  Turn<T>(chunk, c).Backward(NV * Lanes<T>() * scratch.values, scratch.matrix, memory + at, strip,
                             overlaps);
  hn::Vec<decltype(d)> one[NV];
  for (int n = 0; n < NV; ++n) one[n] = hn::Set(d, T(1));
  for (std::int64_t part = 0; part < scratch.parts; ++part) {
    AddReads<NV, T>(call, chunk, rows, scratch, key, part, strip + part * scratch.matrix, one,
                    nullptr, nullptr);
  }
}

/// One strip of key channels. `overlaps` sums M (.) dM' by lanes; with momentum, what Turn does.
template <int NV, class T>
void BackwardStrip(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const ChunkRows<T>& rows, const Scratch<T>& scratch, const T* memory,
                   std::int64_t key, T (&overlaps)[3][2 * kTokens]) {
  const hn::ScalableTag<T> d;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  alignas(64) T joined[kTokens * NV * Lanes<T>()];
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    ReadGradients<NV>(call, chunk, c, rows, scratch, memory, key, x, joined);
  }
  const bool joins = call.erase && !call.d_erase && !channels;
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    WriteGradients<NV>(call, chunk, c, rows, scratch, key, w, joins && w == 0 ? joined : nullptr);
  }
  if (scratch.parts > 1) {
    return UpdateParts<NV>(call, chunk, c, rows, scratch, memory, key, overlaps);
  }
  T* strip = scratch.adjoint + key * scratch.values;
  T* const overlap = overlaps[0];
  if (channels) std::fill(overlap, overlap + NV * Lanes<T>(), T(0));
  if (chunk.forget) {
    std::fill(strip, strip + NV * Lanes<T>() * scratch.values, T(0));
  } else {
    hn::Vec<decltype(d)> decay[NV];
    LastDecay(call, chunk, c.Last(chunk), key, decay);
    const bool decays = call.sizes.decay != GradientDecay::kNone;
    AddReads<NV, T>(call, chunk, rows, scratch, key, 0, strip, decay,
                    decays ? memory + key * scratch.values : nullptr, overlap);
  }
  if (!channels) return;
  for (int n = 0; n < NV; ++n) {
    ChannelGradients(call, chunk, scratch, rows, key + n * Lanes<T>(),
                     hn::Load(d, overlap + n * Lanes<T>()));
  }
}

/// From dL/dM behind the chunk, in scratch.adjoint, to the same before it, and every gradient of
/// the chunk's tokens. `memory` is the one before the chunk.
template <class T>
void BackwardChunk(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                   const T* memory) {
  const bool scalar = call.sizes.decay == GradientDecay::kScalar;
  const Coefficients<T> c(call, chunk);
  const ChunkRows<T> rows(call, chunk, scratch);
  rows.CopyKeys();
  rows.CopyValues();
  rows.CopyGradients(c);
  if (call.sizes.decay == GradientDecay::kChannel) {
    Prefixes(call, chunk, scratch);
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      DecayReads(call, chunk, rows.Read(x), x, scratch);
    }
  }
  Adjoint(call, chunk, c, rows, scratch);
  if (scratch.parts > 1) DecayUpdateGradients(call, chunk, c, rows, scratch);

  CoefficientGradients<T> grads;
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      const std::int64_t index = (x * scratch.writes + w) * kSquare;
      grads.Scores(chunk, c, KindOf(call, x), scratch.products + index,
                   scratch.score_grads + index);
    }
  }
  const std::int64_t all = scratch.reads + scratch.writes;
  for (std::int64_t part = 0; part < scratch.parts; ++part) {
    std::fill_n(scratch.Tallies(part, 0), all * kSquare, T(0));
  }
  alignas(64) T overlaps[3][2 * kTokens] = {};
  for (std::int64_t k = 0; k < scratch.keys;) {
    if (Vectors<T>(k, scratch.keys) == 2) {
      BackwardStrip<2>(call, chunk, c, rows, scratch, memory, k, overlaps);
      k += 2 * Lanes<T>();
    } else {
      BackwardStrip<1>(call, chunk, c, rows, scratch, memory, k, overlaps);
      k += Lanes<T>();
    }
  }
  if (!scalar) return;
  T sums[kTokens];
  for (std::int64_t part = 0; part < scratch.parts; ++part) {
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      SumTallies(scratch.Tallies(part, x), sums);
      grads.Read(chunk, c, KindOf(call, x), call.reset, sums, part);
    }
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      SumTallies(scratch.Tallies(part, scratch.reads + w), sums);
      grads.Write(chunk, sums, part);
    }
  }
  T last[3];
  for (int s = 0; s < 3; ++s)
    last[s] = std::accumulate(overlaps[s], overlaps[s] + 2 * kTokens, T(0));
  grads.Last(chunk, c, call.reset, last[0], last[1], last[2]);
  if (scratch.parts > 1) {
    grads.DecaysAndMomentum(call, chunk, c, scratch.Tallies(0, 0), scratch.Tallies(1, 0));
  } else {
    grads.Decays(call, chunk, c, scratch.tallies);
  }
}

/// All chunks of a block that was replayed, the last first.
template <class T>
void BackwardBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const Replay<T>& replay = *scratch.replay;
  if (call.frame != nullptr) EnterFrame(call, scratch);
  for (std::int64_t i = replay.count - 1; i >= 0; --i) {
    BackwardChunk(call, replay.chunks[i], scratch, replay.memories[i]);
  }
  if (call.turned == nullptr) return;
  if (replay.chunks[0].forget) {
    std::fill(call.turned, call.turned + call.sizes.key_dim / 2, T(0));
  } else {
    Turned(call, scratch, replay.memories[0]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
