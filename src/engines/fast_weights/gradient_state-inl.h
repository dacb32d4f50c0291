// Products of a chunk's rows with the whole memory, which is kept transposed, [values][keys] in
// strips of key channels. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_STATE_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_STATE_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_STATE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// Vectors of the strip of lanes that begins at `first` of `count`: two, or one at the end.
template <class T>
int Vectors(std::int64_t first, std::int64_t count) {
  return count - first > Lanes<T>() ? 2 : 1;
}

/// Calls visit(number of a state of the scratch, the same of the caller's).
template <class S, class M, class T, class Visit>
void ForState(const GradientCall<T>& call, const Scratch<T>& scratch, S* state, M* matrix,
              std::int64_t stride, const Visit& visit) {
  for (std::int64_t part = 0; part < scratch.parts; ++part) {
    for (std::int64_t k = 0; k < call.sizes.key_dim;) {
      const std::int64_t width = Vectors<T>(k, scratch.keys) * Lanes<T>();
      const std::int64_t filled = std::min(width, call.sizes.key_dim - k);
      S* strip = state + part * scratch.matrix + k * scratch.values;
      for (std::int64_t i = 0; i < filled; ++i) {
        M* row = matrix + part * call.update + (k + i) * stride;
        for (std::int64_t v = 0; v < call.sizes.value_dim; ++v) visit(strip[v * width + i], row[v]);
      }
      k += width;
    }
  }
}

/// state = matrix^T, matrix [key_dim][value_dim]; 0 where there is none.
template <class T>
void LoadState(const GradientCall<T>& call, const Scratch<T>& scratch, const T* matrix,
               std::int64_t stride, T* state) {
  std::fill(state, state + scratch.state, T(0));
  if (matrix == nullptr) return;
  ForState(call, scratch, state, matrix, stride, [](T& to, const T& from) { to = from; });
}

template <class T>
void StoreState(const GradientCall<T>& call, const Scratch<T>& scratch, const T* state, T* matrix,
                std::int64_t stride) {
  ForState(call, scratch, state, matrix, stride, [](const T& from, T& to) { to = from; });
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
  if (call.ahead != nullptr) call.ahead->Fetch();
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
  if (call.ahead == nullptr) return;
  const std::int64_t strips = RoundUp(scratch.keys, 2 * Lanes<T>()) / (2 * Lanes<T>());
  const std::int64_t values = call.sizes.value_dim;
  const std::int64_t tiles = RoundUp(values, ln::kTileRows) / ln::kTileRows;
  const std::int64_t token_tiles =
      RoundUp(values, kTokenRows<T>) / kTokenRows<T> * kTokens / (kTokenVectors<T> * Lanes<T>());
  call.ahead->Start(reads * token_tiles + rows * strips * (kTokens / ln::kTileRows) +
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

/// out = the first `count` rows of the tile; kPast: past the caches.
template <int NV, bool kPast = false, class T>
HWY_INLINE void StoreTile(std::int64_t count, T* out, std::int64_t stride,
                          const ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    if (r >= count) break;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      T* const to = out + r * stride + n * Lanes<T>();
      if constexpr (kPast) {
        hn::Stream(tile[r][n], d, to);
      } else {
        hn::Store(tile[r][n], d, to);
      }
    }
  }
}

/// The tile = whole rows.
template <int NV, class T>
HWY_INLINE void LoadTile(const T* in, std::int64_t stride,
                         ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < ln::kTileRows; ++r) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) tile[r][n] = hn::Load(d, in + r * stride + n * Lanes<T>());
  }
}

/// tile[r] += sum_s a[r a_row + s a_step] b[s b_step ...] of a triangle as high as the tile: s <=
/// r, or s >= r.
template <bool LOWER, int NV, class T>
HWY_INLINE void MulAddTriangle(const T* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_step,
                               const T* HWY_RESTRICT b, std::int64_t b_step,
                               ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int s = 0; s < ln::kTileRows; ++s) {
    hn::Vec<decltype(d)> right[NV];
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) right[n] = hn::Load(d, b + s * b_step + n * Lanes<T>());
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      if (LOWER ? s > r : s < r) continue;
      const auto left = hn::Set(d, a[r * a_row + s * a_step]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = hn::MulAdd(left, right[n], tile[r][n]);
    }
  }
}

/// Factors of which some may be 0: what they multiply need not be a number.
template <int NV, class T>
struct Zeros {
  using D = hn::ScalableTag<T>;
  hn::Mask<D> at[NV];
  bool any = false;

  HWY_INLINE explicit Zeros(const hn::Vec<D> (&factors)[NV]) {
    const D d;
    for (int n = 0; n < NV; ++n) {
      at[n] = hn::Eq(factors[n], hn::Zero(d));
      any = any || !hn::AllFalse(d, at[n]);
    }
  }

  HWY_INLINE void Clear(ln::Tile<D, ln::kTileRows, NV>& tile) const {
    if (!any) return;
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = hn::IfThenZeroElse(at[n], tile[r][n]);
    }
  }
};

/// One product rows^T values that is added to a strip of the memory.
template <class T>
struct Outer {
  const T* rows;  // [token], at the strip's first key
  std::int64_t row_stride;
  const T* values;  // [token]
  std::int64_t value_stride;
};

/// out = decay (.) in + sum over the outer products, of one strip; in null: 0. With a partner, an
/// array of `out`'s size, overlap[lane] += in (.) partner, before the decay. `out` may be `in`.
template <int NV, bool OVERLAP, class T>
HWY_INLINE void UpdateStrip(const GradientCall<T>& call, std::int64_t tokens, const T* in, T* out,
                            const hn::Vec<hn::ScalableTag<T>> (&decay)[NV], const Outer<T>* outers,
                            std::int64_t count, const T* partner, T* overlap) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kLanes = Lanes<T>();
  constexpr std::int64_t kWidth = NV * kLanes;
  hn::Vec<decltype(d)> sums[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) sums[n] = hn::Zero(d);
  const Zeros<NV, T> zeros(decay);
  for (std::int64_t v = 0; v < call.sizes.value_dim; v += kRows) {
    Fetch(call);
    ln::Tile<decltype(d), kRows, NV> tile;
    if (in == nullptr) {
      ln::SetZero(d, tile);
    } else {
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          const auto x = hn::Load(d, in + (v + r) * kWidth + n * kLanes);
          tile[r][n] = hn::Mul(decay[n], x);
          if constexpr (OVERLAP) {
            sums[n] = hn::MulAdd(x, hn::Load(d, partner + (v + r) * kWidth + n * kLanes), sums[n]);
          }
        }
      }
      zeros.Clear(tile);
    }
    for (std::int64_t o = 0; o < count; ++o) {
      ln::Accumulate<false>(d, outers[o].values + v, 1, outers[o].value_stride, outers[o].rows,
                            outers[o].row_stride, tokens, tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        hn::Store(tile[r][n], d, out + (v + r) * kWidth + n * kLanes);
      }
    }
  }
  if constexpr (OVERLAP) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      hn::Store(hn::Add(sums[n], hn::Load(d, overlap + n * kLanes)), d, overlap + n * kLanes);
    }
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
    const View<T> gates = GatesOf(call, chunk);
    for (std::int64_t i = 0; i < chunk.tokens; ++i) {
      decay[n] = hn::Mul(decay[n], hn::Load(d, gates[i] + key + n * Lanes<T>()));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_STATE_INL_H_
