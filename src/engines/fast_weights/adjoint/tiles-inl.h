// Register tiles that are stored, loaded and scaled, and sums of lanes. Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_TILES_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_TILES_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/chunk-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/lane_sums-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// Vectors of the strip of lanes that begins at `first` of `count`: two, or one at the end.
template <class T>
int Vectors(std::int64_t first, std::int64_t count) {
  return count - first > Lanes<T>() ? 2 : 1;
}

/// Calls visit.operator()<NV>(first) for every strip of `count` lanes.
template <class T, class Visit>
void ForStrips(std::int64_t count, const Visit& visit) {
  for (std::int64_t k = 0; k < count;) {
    if (Vectors<T>(k, count) == 2) {
      visit.template operator()<2>(k);
      k += 2 * Lanes<T>();
    } else {
      visit.template operator()<1>(k);
      k += Lanes<T>();
    }
  }
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

/// out = the first `count` rows of the tile, past the caches if `past`.
template <int NV, class T>
HWY_INLINE void StoreTile(bool past, std::int64_t count, T* out, std::int64_t stride,
                          const ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  past ? StoreTile<NV, true>(count, out, stride, tile)
       : StoreTile<NV, false>(count, out, stride, tile);
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

/// Adds up the lanes of vectors, as many at a time as a vector has lanes.
template <class T>
class LaneSums {
 public:
  /// *out += the sum of the lanes of `v`, at the latest with Flush.
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<T>> v, T* out) {
    const hn::ScalableTag<T> d;
    hn::Store(v, d, vectors_ + count_ * kLanes);
    targets_[count_] = out;
    if (++count_ == kLanes) Flush();
  }

  void Flush() {
    const hn::ScalableTag<T> d;
    for (std::int64_t i = count_; i < kLanes; ++i) {
      hn::Store(hn::Zero(d), d, vectors_ + i * kLanes);
    }
    alignas(64) T sums[kLanes];
    hn::Store(sn::SumVectors<kLanes>(d, vectors_), d, sums);
    for (std::int64_t i = 0; i < count_; ++i) *targets_[i] += sums[i];
    count_ = 0;
  }

 private:
  static constexpr std::int64_t kLanes = Lanes<T>();

  alignas(64) T vectors_[kLanes * kLanes];
  T* targets_[kLanes];
  std::int64_t count_ = 0;
};

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

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_TILES_INL_H_
