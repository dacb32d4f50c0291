// Register tiles: small products and triangular solves on R rows x NV vectors held in registers.
// Compiled once for every target (included by kernel files after hwy/foreach_target.h).

#if defined(TTR_LINALG_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_TILE_INL_H_
#undef TTR_LINALG_TILE_INL_H_
#else
#define TTR_LINALG_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Rows of a tile that is two vectors wide: its accumulators, two vectors of the right factor and a
/// broadcast of the left one fit the registers (32, or 16 before AVX-512).
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 8;
#else
inline constexpr int kTileRows = 4;
#endif

template <class D, int R, int NV>
using Tile = hn::Vec<D>[R][NV];

template <class D, int R, int NV>
HWY_INLINE void SetZero(D d, Tile<D, R, NV>& tile) {
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) tile[r][v] = hn::Zero(d);
  }
}

/// A vector that several products take, kept in its register. (g++ 12 reads it from memory again
/// for each of them, and a core has not as many loads a cycle as those would be. The vector is
/// passed by value, as g++ writes one behind a reference to memory, too.)
template <class V>
HWY_INLINE V InRegister(V v) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if constexpr (kTileRows == 4) asm("" : "+x"(v.raw));
#endif
  return v;
}

/// tile[r] += sum_s a[r a_row + s a_step] b[s b_step ...], s < count; SUBTRACT: -=.
template <bool SUBTRACT, class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void Accumulate(D d, const T* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_step,
                           const T* HWY_RESTRICT b, std::int64_t b_step, std::int64_t count,
                           Tile<D, R, NV>& tile) {
  const std::size_t lanes = hn::Lanes(d);
  // The sum is a tile of its own, as g++ 12 writes the caller's to memory in every step.
  Tile<D, R, NV> sum;
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) sum[r][v] = tile[r][v];
  }
  for (std::int64_t s = 0; s < count; ++s) {
    hn::Vec<D> right[NV];
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) right[v] = InRegister(hn::LoadU(d, b + v * lanes));
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const hn::Vec<D> left = hn::Set(d, a[r * a_row]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) {
        if constexpr (SUBTRACT) {
          sum[r][v] = hn::NegMulAdd(left, right[v], sum[r][v]);
        } else {
          sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
        }
      }
    }
    a += a_step;
    b += b_step;
  }
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) tile[r][v] = sum[r][v];
  }
}

/// tile[r] += sum_s a[r A_ROW + s A_STEP] b[s b_step ...], s < count, with steps that the compiler
/// knows.
template <std::int64_t A_ROW, std::int64_t A_STEP, class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void MulAddRows(D d, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                           std::int64_t b_step, std::int64_t count, Tile<D, R, NV>& tile) {
  Accumulate<false>(d, a, A_ROW, A_STEP, b, b_step, count, tile);
}

/// Forward substitution in the tile: tile[r] += sum_{j < r} lower[r ROW + j] tile[j], rows in
/// order. Column by column, so that no row waits for a chain of its own. Row r reads rows j < r
/// only: what is not finite in a later row stays there.
template <std::size_t ROW, class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void SolveUnitLower(D d, const T* HWY_RESTRICT lower, Tile<D, R, NV>& tile) {
  TTR_UNROLL
  for (int j = 0; j < R - 1; ++j) {
    TTR_UNROLL
    for (int r = 1; r < R; ++r) {
      if (r <= j) continue;
      const hn::Vec<D> left = hn::Set(d, lower[r * ROW + j]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) tile[r][v] = hn::MulAdd(left, tile[j][v], tile[r][v]);
    }
  }
}

/// tile[r] += sum_{j < r} lower[r ROW + j] b[j b_step ...]: the same triangle, of another matrix.
template <std::size_t ROW, class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void MulAddStrictLower(D d, const T* HWY_RESTRICT lower, const T* HWY_RESTRICT b,
                                  std::size_t b_step, Tile<D, R, NV>& tile) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (int j = 0; j < R - 1; ++j) {
    hn::Vec<D> right[NV];
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) right[v] = hn::Load(d, b + j * b_step + v * lanes);
    TTR_UNROLL
    for (int r = 1; r < R; ++r) {
      if (r <= j) continue;
      const hn::Vec<D> left = hn::Set(d, lower[r * ROW + j]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) tile[r][v] = hn::MulAdd(left, right[v], tile[r][v]);
    }
  }
}

/// Backward substitution in the tile with the transpose: tile[r] += sum_{i > r} lower[i ROW + r]
/// tile[i], rows from the last to the first.
template <std::size_t ROW, class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void SolveUnitLowerTransposed(D d, const T* HWY_RESTRICT lower, Tile<D, R, NV>& tile) {
  TTR_UNROLL
  for (int i = R - 1; i > 0; --i) {
    TTR_UNROLL
    for (int r = 0; r < R - 1; ++r) {
      if (r >= i) continue;
      const hn::Vec<D> left = hn::Set(d, lower[i * ROW + r]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) tile[r][v] = hn::MulAdd(left, tile[i][v], tile[r][v]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_TILE_INL_H_
