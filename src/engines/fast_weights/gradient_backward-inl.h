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
#include "src/engines/fast_weights/gradient_forward-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_momentum-inl.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/engines/fast_weights/gradient_turn-inl.h"
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
  alignas(64) T update_to_end[kTokens] = {};  // of e_nj
  T prefix[2][kTokens + 1] = {};
  T epsilon = 0;  // the last
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

  /// Takes x_i . (G_i M^T) of a read, or of its part N; of one that is behind a border nothing.
  void Read(const Chunk& chunk, const Coefficients<T>& c, ReadKind kind, bool reset, const T* sums,
            std::int64_t part = 0) {
    for (int i = 0; i < chunk.tokens; ++i) {
      const T state = c.State(kind, i, part), own = c.Own(kind, i);
      if (reset && state * own == 0) continue;
      prefix[part][kind.before ? i : i + 1] += own * sums[i];
      if (kind.own) h[i] += state * sums[i];
    }
  }

  /// Takes w_j . (u_j dM'^T) of a write, or with dN'.
  void Write(const Chunk& chunk, const T* sums, std::int64_t part = 0) {
    T* const to = part == 0 ? between[chunk.tokens] : update_to_end;
    for (int j = 0; j < chunk.tokens; ++j) to[j] += sums[j];
  }

  /// Takes what multiplies M between the chunk's ends; with momentum, pi and epsilon besides.
  void Last(const Chunk& chunk, const Coefficients<T>& c, bool reset, T of_memory, T of_update = 0,
            T update = 0) {
    if (!reset || c.Last(chunk) != 0) prefix[0][chunk.tokens] += of_memory;
    prefix[1][chunk.tokens] += of_update;
    epsilon = update;
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
      T grad = sums[i] + prefix[0][i + 1] * c.prefix[0][i];
      prefix[0][i] += c.a[i] * prefix[0][i + 1];
      if (call.reset && c.a[i] == 0) grad = 0;
      if (call.d_decay != nullptr) call.d_decay[chunk.at + i] = grad;
      if (call.d_erase_decay != nullptr) call.d_erase_decay[chunk.at + i] = h[i];
    }
  }

  /// The same with momentum, backwards through p_ij, e_ij and their like (gradient_momentum-inl.h).
  /// Both `tallies` have room for kTokens rows of lanes.
  void DecaysAndMomentum(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                         T* tallies, T* update_tallies) {
    const hn::ScalableTag<T> d;
    std::fill(tallies, tallies + kSquare, T(0));
    std::fill(update_tallies, update_tallies + kSquare, T(0));
    for (std::int64_t j = 0; j < chunk.tokens; j += Lanes<T>()) {
      const auto column = hn::Iota(d, static_cast<T>(j));
      auto by_p = hn::Load(d, between[chunk.tokens] + j);
      auto by_e = hn::Load(d, update_to_end + j);
      for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
        const auto past = hn::Lt(column, hn::Set(d, static_cast<T>(i)));
        by_p = hn::IfThenElseZero(past, by_p);
        by_e = hn::Add(hn::IfThenElseZero(past, by_e), by_p);
        T *const tally = tallies + i * kTokens, *const update_tally = update_tallies + i * kTokens;
        hn::Store(hn::MulAdd(by_p, hn::Load(d, c.between[i] + j), hn::Load(d, tally)), d, tally);
        hn::Store(hn::MulAdd(by_e, hn::Load(d, c.updates[i] + j), hn::Load(d, update_tally)), d,
                  update_tally);
        by_p = hn::MulAdd(hn::Set(d, c.a[i]), by_p, hn::Load(d, between[i] + j));
        by_e = hn::Mul(hn::Set(d, c.m[i]), by_e);
      }
    }
    T sums[kTokens], update_sums[kTokens];
    SumTallies(tallies, sums);
    SumTallies(update_tallies, update_sums);
    for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
      const T by_alpha = prefix[0][i + 1], by_pi = prefix[1][i + 1];
      epsilon += by_pi;
      T grad = sums[i] + by_alpha * c.prefix[0][i] + by_pi * c.prefix[1][i];
      call.d_momentum[chunk.at + i] = update_sums[i] + epsilon * c.epsilon[i];
      prefix[0][i] += c.a[i] * by_alpha;
      prefix[1][i] += c.a[i] * by_pi;
      epsilon *= c.m[i];
      const bool border = call.reset && c.h[i] == 0;
      call.d_decay[chunk.at + i] = border ? T(0) : grad;
      call.d_erase_decay[chunk.at + i] = border ? T(0) : h[i];
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

/// tile += whole rows, which lie one behind the other.
template <int NV, class T>
HWY_INLINE void AddTile(const T* more, sn::Tile<hn::ScalableTag<T>, sn::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < sn::kTileRows; ++r) {
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
  constexpr int kRows = sn::kTileRows;
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
    sn::SetZero(d, tile);
    if (chunk.forget) return;
    sn::Accumulate<false>(d, g[i], g.stride, 1, from, NV * Lanes<T>(), call.sizes.value_dim, tile);
  };
  const T* const update_factors = scratch.parts > 1 ? c.ReadFactors(kind, update_own, 1) : nullptr;
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    sn::Tile<decltype(d), kRows, NV> tile;
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
  const std::int64_t index = scratch.reads + w;
  auto read = [&](const T* from, std::int64_t j, auto& tile) HWY_ATTR {
    Fetch(call);
    sn::SetZero(d, tile);
    sn::MulAddRows<1, kTokens>(d, columns + j, from, NV * Lanes<T>(), call.sizes.value_dim, tile);
  };
  for (std::int64_t j = 0; j < chunk.tokens; j += kRows) {
    sn::Tile<decltype(d), kRows, NV> tile;
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
      sn::Accumulate<false>(d, pairs + next * kTokens, 1, kTokens, reads[next] + key, reads.stride,
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
  constexpr std::int64_t kReads = 8;
  for (std::int64_t part = 0; part < scratch.parts; ++part) {
    T* const of_part = strip + part * scratch.matrix;
    for (std::int64_t x = 0; x < scratch.reads; x += kReads) {
      Outer<T> outers[kReads];
      const std::int64_t count = std::min(kReads, scratch.reads - x);
      for (std::int64_t o = 0; o < count; ++o) {
        const View<T> g = rows.DecayedGrad(x + o, part);
        outers[o] = {rows.Read(x + o).data + key, scratch.keys, g.data, g.stride};
      }
      UpdateStrip<NV, false, T>(call, chunk.tokens, of_part, of_part, one, outers, count, nullptr,
                                nullptr);
    }
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
