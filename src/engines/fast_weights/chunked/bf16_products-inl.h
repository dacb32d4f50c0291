// Products with the memory in bfloat16 (Call::bf16_products): factors are rounded, sums are floats.
// An instruction takes two products a lane, of pairs: rows of keys and of the memory, two and two,
// where it is read; tokens where it is written. The chunk's small matrices and the memory itself
// stay in float. Strips have a copy of pairs, which is renewed as they are written.
// Compiled once for every target; only where kHasBf16Pairs is there anything of it. Where tiles
// multiply (bf16_tiles-inl.h), only that copy is.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/bf16_pairs-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <class T>
inline constexpr bool kHasBf16Pairs = TTR_HAS_BF16_PAIRS && std::is_same_v<T, float>;

#if TTR_HAS_BF16_PAIRS

using sn::Pair;
using sn::Pairs;
using sn::Wide;

/// tile[FIRST + i] += pair i times b, i < 4.
template <int FIRST, int R, int NV>
HWY_INLINE void MulAddFour(const sn::FourPairs& left, const hn::Vec<Pairs> (&b)[NV],
                           ln::Tile<Wide, R, NV>& tile) {
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    tile[FIRST][n] = left.template AddProducts<0>(tile[FIRST][n], b[n]);
    tile[FIRST + 1][n] = left.template AddProducts<1>(tile[FIRST + 1][n], b[n]);
    tile[FIRST + 2][n] = left.template AddProducts<2>(tile[FIRST + 2][n], b[n]);
    tile[FIRST + 3][n] = left.template AddProducts<3>(tile[FIRST + 3][n], b[n]);
  }
}

/// tile[r] += sum_s left[r row + s step] . right's row s, s < count, both of pairs; row = 1 where
/// not SEVERAL.
template <bool SEVERAL, int R, int NV>
HWY_INLINE void MulAddPairs(const std::uint32_t* HWY_RESTRICT left, std::int64_t row,
                            std::int64_t step, const std::uint32_t* HWY_RESTRICT right,
                            std::int64_t count, ln::Tile<Wide, R, NV>& tile) {
  const Pairs d;
  constexpr std::size_t kLanes = hn::MaxLanes(Pairs());
  for (std::int64_t s = 0; s < count; ++s, left += step, right += NV * kLanes) {
    hn::Vec<Pairs> b[NV];
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) b[n] = hn::Load(d, right + n * kLanes);
    if constexpr (!SEVERAL) {
      static_assert(R == 8);
      MulAddFour<0>(sn::FourPairs(left), b, tile);
      MulAddFour<4>(sn::FourPairs(left + 4), b, tile);
    } else {
      TTR_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto a = hn::Set(d, left[r * row]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) tile[r][n] = sn::AddProducts(tile[r][n], a, b[n]);
      }
    }
  }
}

/// Pairs of two rows each, from columns of a chunk [rows][kChunk]: for what reads. `rows` is a
/// multiple of four.
inline void PairRowsOf(const float* columns, std::int64_t rows, std::uint32_t* pairs) {
  const Wide d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Wide());
  // A vector is two rows, or a part of one.
  constexpr std::int64_t kBlock = std::min<std::int64_t>(kLanes, kChunk);
  constexpr std::int64_t kNext = std::max<std::int64_t>(kLanes, kChunk);
  for (std::int64_t at = 0; at < rows * kChunk; at += 2 * kNext) {
    for (std::int64_t c = 0; c < kNext; c += kLanes) {
      const auto low = hn::Load(d, columns + at + c);
      const auto high = hn::Load(d, columns + at + kNext + c);
      hn::Store(Pair<kBlock>(low, high), Pairs(), pairs + at / 2 + c);
    }
  }
}

/// Pairs of two tokens each, from columns of a chunk [rows][kChunk]: for what writes.
inline void PairTokensOf(const float* columns, std::int64_t rows, std::uint32_t* pairs) {
  const Wide d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Wide());
  for (std::int64_t at = 0; at < rows * kChunk; at += 2 * kLanes) {
    const auto low = hn::Load(d, columns + at), high = hn::Load(d, columns + at + kLanes);
    hn::Store(sn::RoundBoth(low, high), Pairs(), pairs + at / 2);
  }
}

/// Rows of a strip, two and two, as its copy has them.
template <int R, int NV>
HWY_INLINE void PairTile(const ln::Tile<Wide, R, NV>& tile, std::uint32_t* pairs) {
  constexpr std::size_t kLanes = hn::MaxLanes(Wide());
  TTR_UNROLL
  for (int r = 0; r < R; r += 2) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto pair = Pair<kLanes>(tile[r][n], tile[r + 1][n]);
      hn::Store(pair, Pairs(), pairs + (r / 2 * NV + n) * kLanes);
    }
  }
}

/// A whole strip of `rows` rows, an even number.
template <int NV>
void PairStrip(const float* strip, std::int64_t rows, std::uint32_t* pairs) {
  const Wide d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Wide()), kWidth = NV * kLanes;
  for (std::int64_t row = 0; row < rows; row += 2, strip += 2 * kWidth, pairs += kWidth) {
    ln::Tile<Wide, 2, NV> tile;
    for (int n = 0; n < NV; ++n) {
      tile[0][n] = hn::Load(d, strip + n * kLanes);
      tile[1][n] = hn::Load(d, strip + kWidth + n * kLanes);
    }
    PairTile(tile, pairs);
  }
}

/// The errors of a chunk's tokens, two and two, in place of the first half of them.
template <int NV>
HWY_INLINE void PairHeld(ln::Tile<Wide, kChunk, NV>& held) {
  TTR_UNROLL
  for (int j = 0; j < kChunk / 2; ++j) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto pair = Pair<hn::MaxLanes(Wide())>(held[2 * j][n], held[2 * j + 1][n]);
      held[j][n] = hn::BitCast(Wide(), pair);
    }
  }
}

/// tile[r] += pair J of keys[r] times held[J].
template <int J, int R, int NV>
HWY_INLINE void MulAddHeldPair(const sn::FourPairs (&keys)[R],
                               const ln::Tile<Wide, kChunk, NV>& held,
                               ln::Tile<Wide, R, NV>& tile) {
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto error = hn::BitCast(Pairs(), held[J][n]);
      tile[r][n] = keys[r].template AddProducts<J>(tile[r][n], error);
    }
  }
}

/// tile[r] += sum_j keys[r kChunk / 2 + j] held[j], of pairs.
template <int NV>
HWY_INLINE void MulAddHeld(const std::uint32_t* HWY_RESTRICT keys,
                           const ln::Tile<Wide, kChunk, NV>& held, ln::Tile<Wide, 4, NV>& tile) {
  static_assert(kChunk == 8);
  const sn::FourPairs rows[4] = {sn::FourPairs(keys), sn::FourPairs(keys + 4),
                                 sn::FourPairs(keys + 8), sn::FourPairs(keys + 12)};
  MulAddHeldPair<0>(rows, held, tile);
  MulAddHeldPair<1>(rows, held, tile);
  MulAddHeldPair<2>(rows, held, tile);
  MulAddHeldPair<3>(rows, held, tile);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
