// Products with the memory in bfloat16 (Call::bf16_products): factors are rounded, sums are floats.
// An instruction takes two products a lane, of pairs: rows of keys and of the memory, two and two,
// where it is read; tokens where it is written. The chunk's small matrices and the memory itself
// stay in float. Strips have a copy of pairs, which is renewed as they are written.
// Compiled once for every target; only where kHasBf16Products is there anything of it.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64 && defined(__GNUC__)

template <class T>
inline constexpr bool kHasBf16Products = std::is_same_v<T, float>;

inline bool ProcessorHasBf16Products() { return __builtin_cpu_supports("avx512bf16") != 0; }

using Wide = hn::ScalableTag<float>;
using Pairs = hn::ScalableTag<std::uint32_t>;

// The two instructions by their names: compilers have them for targets of their own only.

/// sum + the products of both halves of every lane.
HWY_INLINE hn::Vec<Wide> AddProducts(hn::Vec<Wide> sum, hn::Vec<Pairs> a, hn::Vec<Pairs> b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

/// The lanes of `low`, rounded, and behind them those of `high`.
HWY_INLINE hn::Vec<Pairs> RoundBoth(hn::Vec<Wide> low, hn::Vec<Wide> high) {
  hn::Vec<Pairs> both;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(high.raw), "v"(low.raw));
  return both;
}

/// Lane i of blocks of so many lanes of both: low in the lower half, high in the upper.
template <int LANES>
HWY_INLINE hn::Vec<Pairs> Pair(hn::Vec<Wide> low, hn::Vec<Wide> high) {
  struct Order {
    std::uint16_t at[2 * hn::MaxLanes(Wide())];
  };
  alignas(64) static constexpr Order kOrder = [] {
    Order order{};
    for (int half = 0; half < static_cast<int>(2 * hn::MaxLanes(Wide())); ++half) {
      const int lane = half / 2;
      order.at[half] =
          static_cast<std::uint16_t>(lane / LANES * 2 * LANES + lane % LANES + half % 2 * LANES);
    }
    return order;
  }();
  hn::Vec<Pairs> both = RoundBoth(low, high);
  both.raw = _mm512_permutexvar_epi16(_mm512_load_si512(kOrder.at), both.raw);
  return both;
}

/// tile[r] += sum_s left[r row + s step] . right's row s, s < count, both of pairs.
template <int R, int NV>
HWY_INLINE void MulAddPairs(const std::uint32_t* HWY_RESTRICT left, std::int64_t row,
                            std::int64_t step, const std::uint32_t* HWY_RESTRICT right,
                            std::int64_t count, ln::Tile<Wide, R, NV>& tile) {
  const Pairs d;
  constexpr std::size_t kLanes = hn::MaxLanes(Pairs());
  for (std::int64_t s = 0; s < count; ++s, left += step, right += NV * kLanes) {
    hn::Vec<Pairs> b[NV];
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) b[n] = hn::Load(d, right + n * kLanes);
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto a = hn::Set(d, left[r * row]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = AddProducts(tile[r][n], a, b[n]);
    }
  }
}

/// Columns of a chunk [rows][kChunk], rows a multiple of four, two rows and two: what reads.
inline void PairRowsOf(const float* columns, std::int64_t rows, std::uint32_t* pairs) {
  const Wide d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Wide());
  static_assert(kLanes == 2 * kChunk);
  for (std::int64_t at = 0; at < rows * kChunk; at += 2 * kLanes) {
    const auto low = hn::Load(d, columns + at), high = hn::Load(d, columns + at + kLanes);
    hn::Store(Pair<kChunk>(low, high), Pairs(), pairs + at / 2);
  }
}

/// The same, two tokens and two: what writes.
inline void PairTokensOf(const float* columns, std::int64_t rows, std::uint32_t* pairs) {
  const Wide d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Wide());
  for (std::int64_t at = 0; at < rows * kChunk; at += 2 * kLanes) {
    const auto low = hn::Load(d, columns + at), high = hn::Load(d, columns + at + kLanes);
    hn::Store(RoundBoth(low, high), Pairs(), pairs + at / 2);
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

/// tile[r] += sum_j keys[r kChunk / 2 + j] held[j], of pairs.
template <int R, int NV>
HWY_INLINE void MulAddHeld(const std::uint32_t* HWY_RESTRICT keys,
                           const ln::Tile<Wide, kChunk, NV>& held, ln::Tile<Wide, R, NV>& tile) {
  const Pairs d;
  TTR_UNROLL
  for (int j = 0; j < kChunk / 2; ++j) {
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto key = hn::Set(d, keys[r * (kChunk / 2) + j]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        tile[r][n] = AddProducts(tile[r][n], key, hn::BitCast(d, held[j][n]));
      }
    }
  }
}

#else

// What is not there is not called.
template <class T>
inline constexpr bool kHasBf16Products = false;

inline bool ProcessorHasBf16Products() { return false; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_BF16_PRODUCTS_INL_H_
