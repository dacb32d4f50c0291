// The large half of a chunk's backward pass, strip by strip of key channels: with M the memory
// before the chunk and dM' the gradient behind it, c and D of gradient_rows-inl.h,
//
//     dx_i = c_i G_i M^T       + sum_j dP_ij D_ij w_j             of every read x
//     dw_j = D_nj u_j dM'^T    + sum_x,i dP_ij D_ij x_i
//     dM   = c_n dM' + sum_x,i (c_i x_i)^T G_i
//
// and the gradients of the decays from what they multiply. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_adjoint-inl.h"
#include "src/engines/fast_weights/gradient_channel-inl.h"
#include "src/engines/fast_weights/gradient_forward-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Gradients of the scalar coefficients of a chunk.
template <class T>
struct CoefficientGradients {
  alignas(64) T between[kTokens + 1][kTokens] = {};
  T prefix[kTokens + 1] = {};
  T h[kTokens] = {};

  /// Takes the gradients of the scores, and turns them into those of the products x_i . w_j.
  void Scores(const Chunk& chunk, const Coefficients<T>& c, ReadKind kind, const T* products,
              T* grads) {
    const hn::CappedTag<T, kTokens> d;
    constexpr int kLanes = hn::MaxLanes(d);
    for (int i = 0; i < kTokens; ++i) {
      T* row = grads + i * kTokens;
      const T* product = products + i * kTokens;
      const int count = i < chunk.tokens ? Coefficients<T>::Count(kind, i) : 0;
      const T* factors = c.Between(kind, i);
      T* out = between[kind.before ? i : i + 1];
      if (kind.own) {
        for (int j = 0; j < count; ++j) h[i] += factors[j] * row[j] * product[j];
      }
      const auto own = hn::Set(d, c.Own(kind, i));
      for (int j = 0; j < kTokens; j += kLanes) {
        // What is no pair may be no number.
        const auto pairs = hn::FirstN(d, static_cast<std::size_t>(std::max(count - j, 0)));
        const auto grad = hn::Mul(own, hn::Load(d, row + j));
        const auto by_decay = hn::IfThenElseZero(pairs, hn::Mul(grad, hn::Load(d, product + j)));
        hn::Store(hn::Add(hn::Load(d, out + j), by_decay), d, out + j);
        hn::Store(hn::IfThenElseZero(pairs, hn::Mul(grad, hn::Load(d, factors + j))), d, row + j);
      }
    }
  }

  /// Takes x_i . (G_i M^T) of a read; of one that is behind a border nothing.
  void Read(const Chunk& chunk, const Coefficients<T>& c, ReadKind kind, bool reset,
            const T* sums) {
    for (int i = 0; i < chunk.tokens; ++i) {
      if (reset && c.State(kind, i) == 0) continue;
      prefix[kind.before ? i : i + 1] += c.Own(kind, i) * sums[i];
      if (kind.own) h[i] += c.State(kind, i) * sums[i];
    }
  }

  /// Takes w_j . (u_j dM'^T) of a write.
  void Write(const Chunk& chunk, const T* sums) {
    for (int j = 0; j < chunk.tokens; ++j) between[chunk.tokens][j] += sums[j];
  }

  /// The decays' own, backwards through c_i = a_i c_{i-1} and D_ij = a_i D_{i-1,j}. `tallies` has
  /// room for kTokens rows of lanes.
  void Decays(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
              T* tallies) {
    const hn::ScalableTag<T> d;
    for (int i = 0; i < kTokens; ++i) hn::Store(hn::Zero(d), d, tallies + i * kTokens);
    for (std::int64_t j = 0; j < chunk.tokens; j += Lanes<T>()) {
      const auto column = hn::Iota(d, static_cast<T>(j));
      auto behind = hn::Load(d, between[chunk.tokens] + j);
      for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
        const auto past = hn::Lt(column, hn::Set(d, static_cast<T>(i)));
        behind = hn::IfThenElseZero(past, behind);
        T* const tally = tallies + i * kTokens;
        hn::Store(hn::MulAdd(behind, hn::Load(d, c.between[i] + j), hn::Load(d, tally)), d, tally);
        behind = hn::MulAdd(hn::Set(d, c.a[i]), behind, hn::Load(d, between[i] + j));
      }
    }
    T sums[kTokens];
    SumTallies(tallies, sums);
    for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
      T grad = sums[i] + prefix[i + 1] * c.prefix[i];
      prefix[i] += c.a[i] * prefix[i + 1];
      if (call.reset && c.a[i] == 0) grad = 0;
      if (call.d_decay != nullptr) call.d_decay[chunk.at + i] = grad;
      if (call.d_erase_decay != nullptr) call.d_erase_decay[chunk.at + i] = h[i];
    }
  }
};

/// tally[i] += the products of tile row i with x_i, by lanes.
template <int NV, class T>
HWY_INLINE void Tally(const Chunk& chunk, View<T> rows, std::int64_t i, std::int64_t key,
                      const sn::Tile<hn::ScalableTag<T>, sn::kTileRows, NV>& tile, T* tallies) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < sn::kTileRows; ++r) {
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
HWY_INLINE void ScaleTile(const T* factors, sn::Tile<hn::ScalableTag<T>, sn::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  bool zeros = false;
  TTR_UNROLL
  for (int r = 0; r < sn::kTileRows; ++r) {
    const auto factor = hn::Set(d, factors[r]);
    zeros = zeros || factors[r] == 0;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(factor, tile[r][n]);
  }
  if (!zeros) return;
  TTR_UNROLL
  for (int r = 0; r < sn::kTileRows; ++r) {
    const auto none = hn::Eq(hn::Set(d, factors[r]), hn::Zero(d));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) tile[r][n] = hn::IfThenZeroElse(none, tile[r][n]);
  }
}

/// The gradients of one read; where channels decay, key_grads, those of its decayed rows. Those of
/// an erasure that has none of its own go to `joined`, [kTokens] rows of the strip's width.
template <int NV, class T>
void ReadGradients(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const ChunkRows<T>& rows, const Scratch<T>& scratch, const T* memory,
                   std::int64_t key, std::int64_t x, T* joined) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = sn::kTileRows;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  const ReadKind kind = KindOf(call, x);
  const View<T> g = rows.Grad(x);
  const T* strip = memory + key * scratch.values;
  T own[kTokens];
  const T* const factors = c.ReadFactors(kind, own);
  std::int64_t stride;
  T* const out = rows.ReadGradient(x, &stride);
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    Fetch(call);
    sn::Tile<decltype(d), kRows, NV> tile;
    sn::SetZero(d, tile);
    if (!chunk.forget) {
      sn::Accumulate<false>(d, g[i], g.stride, 1, strip, NV * Lanes<T>(), call.sizes.value_dim,
                            tile);
    }
    if (channels) {
      StoreTile<NV>(kRows, scratch.key_grads + (x * kTokens + i) * scratch.keys + key, scratch.keys,
                    tile);
      continue;
    }
    if (call.sizes.decay == GradientDecay::kScalar) {
      Tally<NV>(chunk, rows.Read(x), i, key, tile, scratch.tallies + x * kSquare);
      ScaleTile<NV>(factors + i, tile);
    }
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      const T* pairs = scratch.score_grads + (x * scratch.writes + w) * kSquare + i * kTokens;
      const View<T> writes = rows.Write(w);
      sn::Accumulate<false>(d, pairs, kTokens, 1, writes.data + key, writes.stride, i, tile);
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
  constexpr int kRows = sn::kTileRows;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  const T* columns = scratch.update_columns + w * scratch.values * kTokens;
  const T* strip = scratch.adjoint + key * scratch.values;
  std::int64_t stride;
  T* out = rows.WriteGradient(w, &stride) + key;
  for (std::int64_t j = 0; j < chunk.tokens; j += kRows) {
    Fetch(call);
    sn::Tile<decltype(d), kRows, NV> tile;
    sn::SetZero(d, tile);
    sn::MulAddRows<1, kTokens>(d, columns + j, strip, NV * Lanes<T>(), call.sizes.value_dim, tile);
    const std::int64_t index = scratch.reads + w;
    if (channels) {
      StoreTile<NV>(kRows, scratch.key_grads + (index * kTokens + j) * scratch.keys + key,
                    scratch.keys, tile);
      continue;
    }
    if (call.sizes.decay == GradientDecay::kScalar) {
      Tally<NV>(chunk, rows.Write(w), j, key, tile, scratch.tallies + index * kSquare);
      ScaleTile<NV>(c.to_end + j, tile);
    }
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      const T* pairs = scratch.score_grads + (x * scratch.writes + w) * kSquare + j;
      const View<T> reads = rows.Read(x);
      const std::int64_t next = j + kRows;
      MulAddTriangle<false, NV>(pairs + j * kTokens, 1, kTokens, reads[j] + key, reads.stride,
                                tile);
      sn::Accumulate<false>(d, pairs + next * kTokens, 1, kTokens, reads[next] + key, reads.stride,
                            chunk.tokens - next, tile);
    }
    if (joined != nullptr) {
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          const T* const more = joined + ((j + r) * NV + n) * Lanes<T>();
          tile[r][n] = hn::Add(tile[r][n], hn::Load(d, more));
        }
      }
    }
    if (call.stream_write && w == 0) {
      StoreTile<NV, true>(chunk.tokens - j, out + j * stride, stride, tile);
    } else {
      StoreTile<NV>(chunk.tokens - j, out + j * stride, stride, tile);
    }
  }
}

/// One strip of key channels. `overlap` sums M (.) dM' by lanes.
template <int NV, class T>
void BackwardStrip(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const ChunkRows<T>& rows, const Scratch<T>& scratch, const T* memory,
                   std::int64_t key, T* overlap) {
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
  T* strip = scratch.adjoint + key * scratch.values;
  if (channels) std::fill(overlap, overlap + NV * Lanes<T>(), T(0));
  if (chunk.forget) {
    std::fill(strip, strip + NV * Lanes<T>() * scratch.values, T(0));
  } else {
    hn::Vec<decltype(d)> decay[NV];
    LastDecay(call, chunk, c.Last(chunk), key, decay);
    const T* partner = memory + key * scratch.values;
    constexpr std::int64_t kReads = 8;
    for (std::int64_t x = 0; x < scratch.reads; x += kReads) {
      Outer<T> outers[kReads];
      const std::int64_t count = std::min(kReads, scratch.reads - x);
      for (std::int64_t o = 0; o < count; ++o) {
        const View<T> g = rows.DecayedGrad(x + o);
        const T* const read =
            channels ? scratch.read_rows + (x + o) * kTokens * scratch.keys : rows.Read(x + o).data;
        outers[o] = {read + key, scratch.keys, g.data, g.stride};
      }
      if (x == 0 && call.sizes.decay != GradientDecay::kNone) {
        UpdateStrip<NV, true>(call, chunk.tokens, strip, strip, decay, outers, count, partner,
                              overlap);
      } else {
        if (x > 0) {
          for (int n = 0; n < NV; ++n) decay[n] = hn::Set(d, T(1));
        }
        UpdateStrip<NV, false, T>(call, chunk.tokens, strip, strip, decay, outers, count, nullptr,
                                  nullptr);
      }
    }
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

  CoefficientGradients<T> grads;
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      const std::int64_t index = (x * scratch.writes + w) * kSquare;
      grads.Scores(chunk, c, KindOf(call, x), scratch.products + index,
                   scratch.score_grads + index);
    }
  }
  const std::int64_t all = scratch.reads + scratch.writes;
  std::fill(scratch.tallies, scratch.tallies + all * kSquare, T(0));
  alignas(64) T overlap[2 * kTokens] = {};
  for (std::int64_t k = 0; k < scratch.keys;) {
    if (Vectors<T>(k, scratch.keys) == 2) {
      BackwardStrip<2>(call, chunk, c, rows, scratch, memory, k, overlap);
      k += 2 * Lanes<T>();
    } else {
      BackwardStrip<1>(call, chunk, c, rows, scratch, memory, k, overlap);
      k += Lanes<T>();
    }
  }
  if (!scalar) return;
  T sums[kTokens];
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    SumTallies(scratch.tallies + x * kSquare, sums);
    grads.Read(chunk, c, KindOf(call, x), call.reset, sums);
  }
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    SumTallies(scratch.tallies + (scratch.reads + w) * kSquare, sums);
    grads.Write(chunk, sums);
  }
  const bool passed = !call.reset || c.Last(chunk) != 0;
  for (const T sum : overlap) grads.prefix[chunk.tokens] += passed ? sum : T(0);
  grads.Decays(call, chunk, c, scratch.tallies);
}

/// All chunks of a block that was replayed, the last first.
template <class T>
void BackwardBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const Replay<T>& replay = *scratch.replay;
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
