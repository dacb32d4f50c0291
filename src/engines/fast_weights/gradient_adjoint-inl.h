// The small half of a chunk's backward pass: from dL/dM behind the chunk and dL/dy to the gradients
// of its innovations and of its small matrices. With P the scores of the reads, A those of the
// erasures, G the gradients of what the reads find:
//
//     du_j = w_j dM'  + sum_i P_ij G_i - sum_{i > j} A_ij b_i du_i       solved backwards
//     dv_i = b_i du_i,   db_i = du_i . e_i,   G_erase,i = -b_i du_i,   dP_ij = G_i . u_j
//
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_ADJOINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_ADJOINT_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_ADJOINT_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_ADJOINT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_channel-inl.h"
#include "src/engines/fast_weights/gradient_forward-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_momentum-inl.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/lane_sums-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// out[i] = the sum of the lanes of tally row i.
template <class T>
void SumTallies(const T* tallies, T* out) {
  const hn::ScalableTag<T> d;
  if constexpr (Lanes<T>() == kTokens) {
    hn::StoreU(sn::SumVectors<kTokens>(d, tallies), d, out);
    return;
  }
  LaneSums<T> sums;
  std::fill(out, out + kTokens, T(0));
  for (int i = 0; i < kTokens; ++i) sums.Add(hn::Load(d, tallies + i * kTokens), out + i);
  sums.Flush();
}

/// write_columns, products and scores of one write.
template <class T>
void ScoresOf(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
              const ChunkRows<T>& rows, const Scratch<T>& scratch, std::int64_t w) {
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  const View<T> writes = rows.Write(w);
  if (channels) {
    sn::TransposeStrided(scratch.WriteRow(w, chunk.at), scratch.write_stride, kTokens, scratch.keys,
                         scratch.write_columns, kTokens);
  } else {
    sn::TransposeStrided(writes.data, writes.stride, kTokens, scratch.keys, scratch.write_columns,
                         kTokens);
  }
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    const std::int64_t index = (x * scratch.writes + w) * kSquare;
    T* products = scratch.products + index;
    const ReadKind kind = KindOf(call, x);
    if (x == call.sizes.queries && !call.sizes.saved) {
      const T* saved = EraseProducts(call, chunk, scratch, w);
      std::copy(saved, saved + chunk.tokens * kTokens, products);
    } else if (channels) {
      ChannelProducts(call, chunk, kind, rows.Read(x), writes, scratch, products);
    } else {
      Products(rows.Read(x), scratch.write_columns, call.sizes.key_dim, products);
    }
    Scores(chunk, c, kind, products, scratch.scores + index);
  }
}

/// products, scores and the innovations' gradients from the memory's alone.
template <class T>
void PrepareScores(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const ChunkRows<T>& rows, const Scratch<T>& scratch) {
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    ScoresOf(call, chunk, c, rows, scratch, w);
    ReadParts(call, scratch, scratch.adjoint, scratch.write_columns, c.to_end[0], c.to_end[1],
              scratch.columns);
    sn::TransposeStrided(scratch.columns, kTokens, scratch.values, kTokens,
                         scratch.update_grads + w * kTokens * scratch.values, scratch.values);
  }
}

/// Stores gradients of values, to which it adds what the bonus of each query carries.
template <int NV, class T>
HWY_INLINE void StoreValueGradients(const GradientCall<T>& call, const Chunk& chunk,
                                    const ChunkRows<T>& rows, std::int64_t i, std::int64_t column,
                                    const GradientRows<T>& out, bool bonus,
                                    ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  if (!out) return;
  const std::int64_t t = chunk.at + i;
  for (std::int64_t x = 0; bonus && call.bonus && x < call.sizes.queries; ++x) {
    const T* factors = call.bonus.data + x * call.bonus.head_stride;
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      if (i + r >= chunk.tokens) break;
      const auto factor = hn::Set(d, factors[(t + r) * call.bonus.stride]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const auto dy = hn::Load(d, rows.Grad(x)[i + r] + column + n * Lanes<T>());
        tile[r][n] = hn::MulAdd(factor, dy, tile[r][n]);
      }
    }
  }
  T* const to = out.data + t * out.stride + column;
  if (call.stream_value) {
    StoreTile<NV, true>(chunk.tokens - i, to, out.stride, tile);
  } else {
    StoreTile<NV>(chunk.tokens - i, to, out.stride, tile);
  }
}

/// tile = the gradients of the updates of `write` from what lies behind the chunk and from the
/// first `reads` reads.
template <int NV, class T>
HWY_INLINE void CollectUpdateGradients(const Chunk& chunk, const ChunkRows<T>& rows,
                                       const T* to_end, std::int64_t write, std::int64_t reads,
                                       std::int64_t i, std::int64_t column,
                                       const Scratch<T>& scratch,
                                       ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  const T* grads = scratch.update_grads + (write * kTokens + i) * scratch.values + column;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    const auto factor = hn::Set(d, to_end[i + r]);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto grad = hn::Load(d, grads + r * scratch.values + n * Lanes<T>());
      tile[r][n] = hn::Mul(factor, grad);
    }
  }
  if (i + ln::kTileRows > chunk.tokens) {
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        if (i + r >= chunk.tokens) tile[r][n] = hn::Zero(d);
      }
    }
  }
  for (std::int64_t x = 0; x < reads; ++x) {
    const T* scores = scratch.scores + (x * scratch.writes + write) * kSquare + i;
    const View<T> g = rows.Grad(x);
    const std::int64_t next = i + ln::kTileRows;
    MulAddTriangle<false, NV>(scores + i * kTokens, 1, kTokens, g[i] + column, g.stride, tile);
    ln::Accumulate<false>(d, scores + next * kTokens, 1, kTokens, g[next] + column, g.stride,
                          chunk.tokens - next, tile);
  }
}

/// One strip of value columns of the backward substitution. `lower` [i][j] = -A_ij b_i.
template <int NV, class T>
void SolveAdjoint(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                  const ChunkRows<T>& rows, const T* to_end, const T* lower, std::int64_t column,
                  const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kLanes = Lanes<T>();
  const GradientSizes& sizes = call.sizes;
  const View<T> errors = ErrorsOf(call, chunk, scratch);
  T* tallies = scratch.Tallies(0, scratch.reads + scratch.writes);
  T* grads = scratch.update_grads + column;
  const std::int64_t erasure = sizes.queries * kTokens * scratch.values + column;
  T* erasures = scratch.read_grads + erasure;
  T* decayed = scratch.DecayedGrads(0, sizes.queries) + column;
  const bool decays = sizes.decay == GradientDecay::kScalar;
  T own[kTokens];
  const T* const factors = c.ReadFactors(KindOf(call, sizes.queries), own);
  const std::int64_t last = (chunk.tokens - 1) / kRows * kRows;
  for (std::int64_t i = last; i >= 0; i -= kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    CollectUpdateGradients<NV>(chunk, rows, to_end, 0, sizes.queries, i, column, scratch, tile);
    if (sizes.erase) {
      ln::Accumulate<false>(d, lower + (i + kRows) * kTokens + i, 1, kTokens,
                            grads + (i + kRows) * scratch.values, scratch.values,
                            chunk.tokens - i - kRows, tile);
      ln::SolveUnitLowerTransposed<kTokens>(d, lower + i * (kTokens + 1), tile);
    }
    StoreTile<NV>(kRows, grads + i * scratch.values, scratch.values, tile);
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const T* error = errors[std::min(i + r, chunk.tokens - 1)] + column;
      const auto step = hn::Set(d, c.b[i + r]);
      auto tally = hn::Load(d, tallies + (i + r) * kTokens);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        tally = hn::MulAdd(tile[r][n], hn::Load(d, error + n * kLanes), tally);
        tile[r][n] = hn::Mul(step, tile[r][n]);
      }
      hn::Store(tally, d, tallies + (i + r) * kTokens);
    }
    if (sizes.erase) {
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto factor = hn::Set(d, factors[i + r]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          const std::int64_t at = (i + r) * scratch.values + n * kLanes;
          const auto grad = hn::Neg(tile[r][n]);
          hn::Store(grad, d, erasures + at);
          if (decays) hn::Store(hn::Mul(factor, grad), d, decayed + at);
        }
      }
    }
    StoreValueGradients<NV>(call, chunk, rows, i, column, call.d_value, !sizes.second_write, tile);
  }
  for (std::int64_t i = last; sizes.second_write && i >= 0; i -= kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    CollectUpdateGradients<NV>(chunk, rows, to_end, 1, scratch.reads, i, column, scratch, tile);
    StoreValueGradients<NV>(call, chunk, rows, i, column, call.d_second_value, true, tile);
  }
}

/// d_bonus_i = dy_i . x_i.
template <class T>
void BonusGradients(const GradientCall<T>& call, const Chunk& chunk, const ChunkRows<T>& rows,
                    const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  if (!call.d_bonus) return;
  const GradientRows<const T>& values = call.sizes.second_write ? call.second_value : call.value;
  for (std::int64_t x = 0; x < call.sizes.queries; ++x) {
    for (std::int64_t i = 0; i < chunk.tokens; ++i) {
      const std::int64_t t = chunk.at + i;
      auto sum = hn::Zero(d);
      for (std::int64_t v = 0; v < scratch.values; v += Lanes<T>()) {
        sum = hn::MulAdd(hn::Load(d, rows.Grad(x)[i] + v),
                         hn::Load(d, values.data + t * values.stride + v), sum);
      }
      call.d_bonus.data[x * call.d_bonus.head_stride + t * call.d_bonus.stride] =
          hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

/// Everything of the chunk that does not touch the memory before it: the gradients of values and
/// steps, read_grads and decayed_grads of the erasure, and score_grads.
template <class T>
void Adjoint(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
             const ChunkRows<T>& rows, const Scratch<T>& scratch) {
  const GradientSizes& sizes = call.sizes;
  PrepareScores(call, chunk, c, rows, scratch);
  alignas(64) T lower[kSquare];
  if (sizes.erase) {
    const T* scores = scratch.scores + sizes.queries * scratch.writes * kSquare;
    for (int i = 0; i < kTokens; ++i) {
      for (int j = 0; j < kTokens; ++j) {
        lower[i * kTokens + j] = -c.b[i] * scores[i * kTokens + j];
      }
    }
  }
  T to_end[kTokens];
  // Rows carry the decays of channels; what is read of two parts has been multiplied.
  const bool carried = sizes.decay == GradientDecay::kChannel || scratch.parts > 1;
  for (int j = 0; j < kTokens; ++j) to_end[j] = carried ? T(1) : c.to_end[0][j];
  T* tallies = scratch.Tallies(0, scratch.reads + scratch.writes);
  std::fill(tallies, tallies + kSquare, T(0));
  for (std::int64_t v = 0; v < scratch.values;) {
    if (Vectors<T>(v, scratch.values) == 2) {
      SolveAdjoint<2>(call, chunk, c, rows, to_end, lower, v, scratch);
      v += 2 * Lanes<T>();
    } else {
      SolveAdjoint<1>(call, chunk, c, rows, to_end, lower, v, scratch);
      v += Lanes<T>();
    }
  }
  if (call.d_step != nullptr) {
    T sums[kTokens];
    SumTallies(tallies, sums);
    std::copy(sums, sums + chunk.tokens, call.d_step + chunk.at);
  }
  BonusGradients(call, chunk, rows, scratch);
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const View<T> values = rows.Update(w);
    T* columns = scratch.update_columns + w * scratch.values * kTokens;
    sn::TransposeStrided(values.data, values.stride, kTokens, scratch.values, columns, kTokens);
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      Products(rows.Grad(x), columns, sizes.value_dim,
               scratch.score_grads + (x * scratch.writes + w) * kSquare);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_ADJOINT_INL_H_
