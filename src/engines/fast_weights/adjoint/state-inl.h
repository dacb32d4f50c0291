// Products of a chunk's rows with the whole memory, which is transposed, [values][keys] in strips
// of key channels. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_STATE_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_STATE_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_STATE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <span>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/chunk-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// Calls visit(number of the adjoint, the same of `matrix`, one of call.ends).
template <class M, class T, class Visit>
void ForAdjoint(const GradientCall<T>& call, const Scratch<T>& scratch, M* matrix,
                const Visit& visit) {
  for (std::int64_t plane = 0; plane < scratch.planes; ++plane) {
    for (std::int64_t k = 0; k < call.sizes.key_dim;) {
      const std::int64_t width = Vectors<T>(k, scratch.keys) * Lanes<T>();
      const std::int64_t filled = std::min(width, call.sizes.key_dim - k);
      T* strip = scratch.adjoint + plane * scratch.matrix + k * scratch.values;
      for (std::int64_t i = 0; i < filled; ++i) {
        M* row = matrix + plane * call.ends.update + (k + i) * call.ends.stride;
        for (std::int64_t v = 0; v < call.sizes.value_dim; ++v) visit(strip[v * width + i], row[v]);
      }
      k += width;
    }
  }
}

/// The adjoint = dL/dM_T, 0 where there is none.
template <class T>
void LoadAdjoint(const GradientCall<T>& call, const Scratch<T>& scratch) {
  std::fill(scratch.adjoint, scratch.adjoint + scratch.state, T(0));
  if (call.ends.final == nullptr) return;
  ForAdjoint(call, scratch, call.ends.final, [](T& to, const T& from) { to = from; });
}

/// The gradient of the initial memory = the adjoint.
template <class T>
void StoreAdjoint(const GradientCall<T>& call, const Scratch<T>& scratch) {
  ForAdjoint(call, scratch, call.ends.initial, [](const T& from, T& to) { to = from; });
}

/// The sum of the products of the final memory with its gradient.
template <class T>
T Overlap(const Scratch<T>& scratch, const T* memory) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < scratch.state; i += Lanes<T>()) {
    sum = hn::MulAdd(hn::Load(d, memory + i), hn::Load(d, scratch.adjoint + i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class T>
HWY_INLINE void Fetch(const GradientCall<T>& call) {
  if (call.prefetcher != nullptr) call.prefetcher->Fetch();
}

/// Token vectors of a tile, and its rows: one vector wide, it needs twice the rows to hide the
/// latency of a multiply-add.
template <class T>
inline constexpr int kTokenVectors = Lanes<T>() < kTokens ? 2 : 1;
template <class T>
inline constexpr int kTokenRows = kTokenVectors<T> == 2 ? ln::kTileRows : 2 * ln::kTileRows;

/// Paces what is fetched ahead: a little with every tile of `reads` readings of the memory, `rows`
/// products of a chunk's rows with it, and `updates` of it.
template <class T>
void StartFetching(const GradientCall<T>& call, const Scratch<T>& scratch, std::int64_t reads,
                   std::int64_t rows, std::int64_t updates) {
  if (call.prefetcher == nullptr) return;
  const std::int64_t strips = RoundUp(scratch.keys, 2 * Lanes<T>()) / (2 * Lanes<T>());
  const std::int64_t values = call.sizes.value_dim;
  const std::int64_t tiles = RoundUp(values, ln::kTileRows) / ln::kTileRows;
  const std::int64_t token_tiles =
      RoundUp(values, kTokenRows<T>) / kTokenRows<T> * kTokens / (kTokenVectors<T> * Lanes<T>());
  call.prefetcher->Start(reads * token_tiles + rows * strips * (kTokens / ln::kTileRows) +
                         updates * strips * tiles);
}

/// out[v][i] = sum_k state[v][k] columns[k][i]: the memory read along the tokens' rows.
template <class T>
void ReadState(const GradientCall<T>& call, const Scratch<T>& scratch, const T* HWY_RESTRICT state,
               const T* HWY_RESTRICT columns, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const GradientSizes& sizes = call.sizes;
  constexpr int kNV = kTokenVectors<T>;
  constexpr int kRows = kTokenRows<T>;
  constexpr std::int64_t kLanes = Lanes<T>();
  std::int64_t v = 0;
  for (; v < sizes.value_dim; v += kRows) {
    for (std::int64_t i = 0; i < kTokens; i += kNV * kLanes) {
      Fetch(call);
      ln::Tile<decltype(d), kRows, kNV> tile;
      ln::SetZero(d, tile);
      for (std::int64_t k = 0; k < sizes.key_dim;) {
        const std::int64_t left = sizes.key_dim - k;
        const T* strip = state + k * scratch.values;
        const T* right = columns + k * kTokens + i;
        if (Vectors<T>(k, scratch.keys) == 2) {
          ln::MulAddRows<2 * kLanes, 1>(d, strip + v * 2 * kLanes, right, kTokens,
                                        std::min(left, 2 * kLanes), tile);
          k += 2 * kLanes;
        } else {
          ln::MulAddRows<kLanes, 1>(d, strip + v * kLanes, right, kTokens, std::min(left, kLanes),
                                    tile);
          k += kLanes;
        }
      }
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TTR_UNROLL
        for (int n = 0; n < kNV; ++n) {
          hn::Store(tile[r][n], d, out + (v + r) * kTokens + i + n * kLanes);
        }
      }
    }
  }
  if (v < scratch.values) std::fill(out + v * kTokens, out + scratch.values * kTokens, T(0));
}

/// One product rows^T values that is added to a strip of the memory.
template <class T>
struct Outer {
  const T* rows;  // [token], at the strip's first key
  std::int64_t row_stride;
  const T* values;  // [token]
  std::int64_t value_stride;
};

/// Sums of products with a strip, by lanes: sums[lane] += strip (.) partner, an array of its size.
template <class T>
struct StripOverlap {
  const T* partner;
  T* sums;
};

/// strip = decay (.) strip + sum over the outer products of `tokens` rows. OVERLAP: and its overlap
/// before that, whose sums stay in memory: registers are for the tile.
template <int NV, bool OVERLAP, class T>
HWY_NOINLINE void UpdateStrip(const GradientCall<T>& call, std::int64_t tokens, T* strip,
                              const hn::Vec<hn::ScalableTag<T>> (&decay)[NV],
                              std::span<const Outer<T>> outers, StripOverlap<T> overlap = {}) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kLanes = Lanes<T>();
  constexpr std::int64_t kWidth = NV * kLanes;
  const Zeros<NV, T> zeros(decay);
  for (std::int64_t v = 0; v < call.sizes.value_dim; v += kRows) {
    Fetch(call);
    T* const at = strip + v * kWidth;
    ln::Tile<decltype(d), kRows, NV> tile;
    LoadTile<NV>(at, kWidth, tile);
    if constexpr (OVERLAP) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        auto sum = hn::Load(d, overlap.sums + n * kLanes);
        TTR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const auto partner = hn::Load(d, overlap.partner + (v + r) * kWidth + n * kLanes);
          sum = hn::MulAdd(tile[r][n], partner, sum);
        }
        hn::Store(sum, d, overlap.sums + n * kLanes);
      }
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(decay[n], tile[r][n]);
    }
    zeros.Clear(tile);
    for (const Outer<T>& outer : outers) {
      ln::Accumulate<false>(d, outer.values + v, 1, outer.value_stride, outer.rows,
                            outer.row_stride, tokens, tile);
    }
    StoreTile<NV>(kRows, at, kWidth, tile);
  }
}

/// c_n of the chunk on the lanes of one strip.
template <int NV, class T>
HWY_INLINE void LastDecay(const GradientCall<T>& call, const Chunk& chunk, T last, std::int64_t key,
                          hn::Vec<hn::ScalableTag<T>> (&decay)[NV]) {
  const hn::ScalableTag<T> d;
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  for (int n = 0; n < NV; ++n) {
    decay[n] = hn::Set(d, last);
    if (!channels) continue;
    const View<T> gates = RowsOf(call.in.gates, chunk);
    for (std::int64_t i = 0; i < chunk.tokens; ++i) {
      decay[n] = hn::Mul(decay[n], hn::Load(d, gates[i] + key + n * Lanes<T>()));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_STATE_INL_H_
