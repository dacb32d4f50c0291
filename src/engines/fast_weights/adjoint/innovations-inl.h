// The small half of a chunk's backward pass: from dL/dM behind the chunk and dL/dy to the gradients
// of its innovations and of its small matrices. With P the scores of the reads, A those of the
// erasures, G the gradients of what the reads find:
//
//     du_j = w_j dM'  + sum_i P_ij G_i - sum_{i > j} A_ij b_i du_i       solved backwards
//     dv_i = b_i du_i,   db_i = du_i . e_i,   G_erase,i = -b_i du_i,   dP_ij = G_i . u_j
//
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_INNOVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_INNOVATIONS_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_INNOVATIONS_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_INNOVATIONS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/momentum-inl.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/scores-inl.h"
#include "src/engines/fast_weights/adjoint/state-inl.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// products, scores and the innovations' gradients from the memory's alone.
template <class T>
void PrepareScores(const ChunkWork<T>& on) {
  const Scratch<T>& scratch = on.scratch;
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    ScoresOf(on, w);
    ReadPlanes(on.call, scratch, scratch.adjoint, scratch.columns.writes, on.c.to_end[0],
               on.c.to_end[1], scratch.columns.found);
    sn::TransposeStrided(scratch.columns.found, kTokens, scratch.values, kTokens,
                         scratch.grads.updates + w * kTokens * scratch.values, scratch.values);
  }
}

/// Stores gradients of values, to which it adds what the bonus of each query carries.
template <int NV, class T>
HWY_INLINE void StoreValueGradients(const ChunkWork<T>& on, std::int64_t i, std::int64_t column,
                                    const GradientRows<T>& out, bool bonus,
                                    ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  const GradientCall<T>& call = on.call;
  if (!out) return;
  const std::int64_t t = on.chunk.at + i;
  for (std::int64_t x = 0; bonus && call.in.bonus && x < call.sizes.queries; ++x) {
    const T* factors = call.in.bonus.data + x * call.in.bonus.head_stride;
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      if (i + r >= on.chunk.tokens) break;
      const auto factor = hn::Set(d, factors[(t + r) * call.in.bonus.stride]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const auto dy = hn::Load(d, on.Grad(x)[i + r] + column + n * Lanes<T>());
        tile[r][n] = hn::MulAdd(factor, dy, tile[r][n]);
      }
    }
  }
  StoreTile<NV>(call.stream_value, on.chunk.tokens - i, out.data + t * out.stride + column,
                out.stride, tile);
}

/// tile = the gradients of the updates of `write` from what lies behind the chunk and from the
/// first `reads` reads.
template <int NV, class T>
HWY_INLINE void CollectUpdateGradients(const ChunkWork<T>& on, const T* to_end, std::int64_t write,
                                       std::int64_t reads, std::int64_t i, std::int64_t column,
                                       ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  const Scratch<T>& scratch = on.scratch;
  const T* grads = scratch.grads.updates + (write * kTokens + i) * scratch.values + column;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    const auto factor = hn::Set(d, to_end[i + r]);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto grad = hn::Load(d, grads + r * scratch.values + n * Lanes<T>());
      tile[r][n] = hn::Mul(factor, grad);
    }
  }
  if (i + ln::kTileRows > on.chunk.tokens) {
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        if (i + r >= on.chunk.tokens) tile[r][n] = hn::Zero(d);
      }
    }
  }
  for (std::int64_t x = 0; x < reads; ++x) {
    const T* scores = scratch.squares.scores + on.Square(x, write) + i;
    const View<T> g = on.Grad(x);
    const std::int64_t next = i + ln::kTileRows;
    MulAddTriangle<false, NV>(scores + i * kTokens, 1, kTokens, g[i] + column, g.stride, tile);
    ln::Accumulate<false>(d, scores + next * kTokens, 1, kTokens, g[next] + column, g.stride,
                          on.chunk.tokens - next, tile);
  }
}

/// From a tile of du to that of b du, whose products with the errors are tallied.
template <int NV, class T>
HWY_INLINE void TakeSteps(const ChunkWork<T>& on, std::int64_t i, std::int64_t column,
                          ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  const View<T> errors = ErrorsOf(on.call, on.chunk, on.scratch);
  T* const tallies = on.scratch.Tallies(0, on.scratch.reads + on.scratch.writes);
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    const T* error = errors[std::min(i + r, on.chunk.tokens - 1)] + column;
    const auto step = hn::Set(d, on.c.b[i + r]);
    auto tally = hn::Load(d, tallies + (i + r) * kTokens);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      tally = hn::MulAdd(tile[r][n], hn::Load(d, error + n * Lanes<T>()), tally);
      tile[r][n] = hn::Mul(step, tile[r][n]);
    }
    hn::Store(tally, d, tallies + (i + r) * kTokens);
  }
}

/// The gradients of what the erasures find, from a tile of b du; by `factors` those of the memory.
template <int NV, class T>
HWY_INLINE void StoreErasures(const ChunkWork<T>& on, const T* factors, std::int64_t i,
                              std::int64_t column,
                              const ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  const Scratch<T>& scratch = on.scratch;
  const std::int64_t erasure = on.call.sizes.queries;
  T* const grads = scratch.grads.reads + erasure * kTokens * scratch.values + column;
  T* const decayed = scratch.DecayedGrads(0, erasure) + column;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    const auto factor = hn::Set(d, factors[i + r]);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::int64_t at = (i + r) * scratch.values + n * Lanes<T>();
      const auto grad = hn::Neg(tile[r][n]);
      hn::Store(grad, d, grads + at);
      if (on.scalar) hn::Store(hn::Mul(factor, grad), d, decayed + at);
    }
  }
}

/// One strip of value columns of the backward substitution. `lower` [i][j] = -A_ij b_i.
template <int NV, class T>
void SolveStrip(const ChunkWork<T>& on, const T* to_end, const T* lower, std::int64_t column) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  const GradientSizes& sizes = on.call.sizes;
  const Scratch<T>& scratch = on.scratch;
  T* const grads = scratch.grads.updates + column;
  T own[kTokens];
  const T* const factors = on.c.ReadFactors(on.Kind(sizes.queries), own);
  const std::int64_t last = (on.chunk.tokens - 1) / kRows * kRows;
  for (std::int64_t i = last; i >= 0; i -= kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    CollectUpdateGradients<NV>(on, to_end, 0, sizes.queries, i, column, tile);
    if (sizes.erase) {
      ln::Accumulate<false>(d, lower + (i + kRows) * kTokens + i, 1, kTokens,
                            grads + (i + kRows) * scratch.values, scratch.values,
                            on.chunk.tokens - i - kRows, tile);
      ln::SolveUnitLowerTransposed<kTokens>(d, lower + i * (kTokens + 1), tile);
    }
    StoreTile<NV>(kRows, grads + i * scratch.values, scratch.values, tile);
    TakeSteps<NV>(on, i, column, tile);
    if (sizes.erase) StoreErasures<NV>(on, factors, i, column, tile);
    StoreValueGradients<NV>(on, i, column, on.call.d.value, !sizes.second_write, tile);
  }
  for (std::int64_t i = last; sizes.second_write && i >= 0; i -= kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    CollectUpdateGradients<NV>(on, to_end, 1, scratch.reads, i, column, tile);
    StoreValueGradients<NV>(on, i, column, on.call.d.second_value, true, tile);
  }
}

/// d_bonus_i = dy_i . x_i.
template <class T>
void BonusGradients(const ChunkWork<T>& on) {
  const hn::ScalableTag<T> d;
  const GradientCall<T>& call = on.call;
  const GradientRows<T>& out = call.d.bonus;
  if (!out) return;
  const View<T> values =
      RowsOf(call.sizes.second_write ? call.in.second_value : call.in.value, on.chunk);
  for (std::int64_t x = 0; x < call.sizes.queries; ++x) {
    for (std::int64_t i = 0; i < on.chunk.tokens; ++i) {
      auto sum = hn::Zero(d);
      for (std::int64_t v = 0; v < on.scratch.values; v += Lanes<T>()) {
        sum = hn::MulAdd(hn::Load(d, on.Grad(x)[i] + v), hn::Load(d, values[i] + v), sum);
      }
      out.data[x * out.head_stride + (on.chunk.at + i) * out.stride] =
          hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

/// du of all value columns, and what follows from it: the gradients of values, steps and of what
/// the erasures find.
template <class T>
void SolveUpdates(const ChunkWork<T>& on) {
  const GradientSizes& sizes = on.call.sizes;
  const Scratch<T>& scratch = on.scratch;
  alignas(64) T lower[kSquare];
  if (sizes.erase) {
    const T* scores = scratch.squares.scores + on.Square(sizes.queries, 0);
    for (int i = 0; i < kTokens; ++i) {
      for (int j = 0; j < kTokens; ++j) {
        lower[i * kTokens + j] = -on.c.b[i] * scores[i * kTokens + j];
      }
    }
  }
  T to_end[kTokens];
  // Rows carry the decays of channels; what is read of two planes has been multiplied.
  const bool in_rows = on.channels || scratch.planes > 1;
  for (int j = 0; j < kTokens; ++j) to_end[j] = in_rows ? T(1) : on.c.to_end[0][j];
  T* tallies = scratch.Tallies(0, scratch.reads + scratch.writes);
  std::fill(tallies, tallies + kSquare, T(0));
  ForStrips<T>(scratch.values, [&]<int NV>(std::int64_t column)
                                   HWY_ATTR { SolveStrip<NV>(on, to_end, lower, column); });
  if (on.call.d.step == nullptr) return;
  T sums[kTokens];
  SumTallies(tallies, sums);
  std::copy(sums, sums + on.chunk.tokens, on.call.d.step + on.chunk.at);
}

/// Everything of the chunk that does not touch the memory before it: the gradients of values and
/// steps, of what the erasures find, and of the scores.
template <class T>
void InnovationGradients(const ChunkWork<T>& on) {
  const Scratch<T>& scratch = on.scratch;
  PrepareScores(on);
  SolveUpdates(on);
  BonusGradients(on);
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const View<T> values = on.Update(w);
    T* columns = scratch.columns.updates + w * scratch.values * kTokens;
    sn::TransposeStrided(values.data, values.stride, kTokens, scratch.values, columns, kTokens);
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      Products(on.Grad(x), columns, on.call.sizes.value_dim,
               scratch.squares.score_grads + on.Square(x, w));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_INNOVATIONS_INL_H_
