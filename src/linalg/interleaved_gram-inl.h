// H + R of many tokens side by side, as a factor takes it. Compiled once for every target.

#if defined(TTR_LINALG_INTERLEAVED_GRAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_INTERLEAVED_GRAM_INL_H_
#undef TTR_LINALG_INTERLEAVED_GRAM_INL_H_
#else
#define TTR_LINALG_INTERLEAVED_GRAM_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/linalg/panels-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// What a round does to H where it is, square by square: H <- g H + k k^T.
template <class T>
struct Gram {
  Panels<T> h;
  const T* key;
  const T* decay;

  template <class D>
  HWY_INLINE void Update(D d, std::int64_t i, std::int64_t j, Square<D>& square) const {
    const std::size_t lanes = hn::Lanes(d);
    const hn::Vec<D> g = hn::Load(d, decay);
    const hn::Mask<D> saved = hn::Ne(g, hn::Zero(d));  // what is forgotten leaves no NaN
    T* const at = h.At(i, j);
    hn::Vec<D> rows[kPanelRows];
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      rows[r] = hn::Load(d, key + (static_cast<std::size_t>(i * kPanelRows) + r) * lanes);
    }
    TTR_UNROLL
    for (std::size_t c = 0; c < kPanelRows; ++c) {
      const hn::Vec<D> column =
          hn::Load(d, key + (static_cast<std::size_t>(j * kPanelRows) + c) * lanes);
      TTR_UNROLL
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        T* const element = at + (c * kPanelRows + r) * lanes;
        const hn::Vec<D> faded = hn::IfThenElseZero(saved, hn::Mul(g, hn::Load(d, element)));
        square[r][c] = hn::MulAdd(rows[r], column, faded);
        hn::Store(square[r][c], d, element);
      }
    }
  }
};

/// Squares of H + R for the factor.
template <class T>
struct RidgedGram {
  Gram<T> gram;
  bool update;  // is H still to be taken to the next token?
  const double* ridge;
  std::int64_t size;
  const T* factor;  // of the ridge, in every lane

  template <class D>
  HWY_INLINE void operator()(D d, std::int64_t i, std::int64_t j, Square<D>& square) const {
    if (update) {
      gram.Update(d, i, j, square);
    } else {
      LoadSquare(d, gram.h.At(i, j), square);
    }
    if (i != j) return;
    TTR_UNROLL
    for (int r = 0; r < kPanelRows; ++r) {
      const std::int64_t row = i * kPanelRows + r;
      square[r][r] = row < size ? hn::MulAdd(hn::Set(d, static_cast<T>(ridge[row])),
                                             hn::Load(d, factor), square[r][r])
                                : hn::Set(d, T(1));
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_INTERLEAVED_GRAM_INL_H_
