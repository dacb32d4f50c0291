// Matrices of many small systems side by side: every lane of a vector has a system of its own, so
// that no operation but whole vectors' occurs. Compiled once for every target.

#if defined(TTR_LINALG_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_PANELS_INL_H_
#undef TTR_LINALG_PANELS_INL_H_
#else
#define TTR_LINALG_PANELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/linalg/interleaved.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using SystemTag = hn::CappedTag<T, static_cast<std::size_t>(kMostSystems<T>)>;

/// How many systems are side by side.
template <class T>
HWY_INLINE std::int64_t SystemsAtOnce() {
  return static_cast<std::int64_t>(hn::Lanes(SystemTag<T>()));
}

/// Four rows and four columns of every system: element [row][column].
template <class D>
using Square = Tile<D, kPanelRows, kPanelRows>;

/// Matrices in panels.
template <class T>
struct Panels {
  T* data = nullptr;
  std::int64_t count = 0;

  T* Panel(std::int64_t i) const { return data + VectorsBefore(i) * SystemsAtOnce<T>(); }
  /// Rows of panel i, columns of panel j <= i.
  T* At(std::int64_t i, std::int64_t j) const {
    return Panel(i) + j * kPanelRows * kPanelRows * SystemsAtOnce<T>();
  }
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void LoadSquare(D d, const T* from, Square<D>& square) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (std::size_t c = 0; c < kPanelRows; ++c) {
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      square[r][c] = hn::Load(d, from + (c * kPanelRows + r) * lanes);
    }
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreSquare(D d, const Square<D>& square, T* to) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (std::size_t c = 0; c < kPanelRows; ++c) {
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      hn::Store(square[r][c], d, to + (c * kPanelRows + r) * lanes);
    }
  }
}

/// The triangle on the diagonal of a factor: lower[c][j], j < c, and the diagonal's reciprocals.
template <class D>
struct Triangle {
  Square<D> lower;
  hn::Vec<D> inverse[kPanelRows];

  template <class T>
  HWY_INLINE Triangle(D d, const T* square, const T* inverses) {
    const std::size_t lanes = hn::Lanes(d);
    TTR_UNROLL
    for (std::size_t j = 0; j < kPanelRows; ++j) {
      inverse[j] = hn::Load(d, inverses + j * lanes);
      TTR_UNROLL
      for (std::size_t c = 0; c < kPanelRows; ++c) {
        if (c > j) lower[c][j] = hn::Load(d, square + (j * kPanelRows + c) * lanes);
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_PANELS_INL_H_
