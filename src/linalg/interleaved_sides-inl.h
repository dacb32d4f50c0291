// Right-hand sides of systems side by side, and the triangular solves. Compiled once for every
// target.

#if defined(TTR_LINALG_INTERLEAVED_SIDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_INTERLEAVED_SIDES_INL_H_
#undef TTR_LINALG_INTERLEAVED_SIDES_INL_H_
#else
#define TTR_LINALG_INTERLEAVED_SIDES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/linalg/panels-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Right-hand sides of all systems: element i of the r-th at data[(r stride + i) systems].
template <class T>
struct RightSides {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t count = 0;

  T* Side(std::int64_t r) const { return data + r * stride * SystemsAtOnce<T>(); }
};

/// Calls sides(first, how many as a constant): two right-hand sides at a time.
template <class Sides>
HWY_INLINE void ForSides(std::int64_t count, const Sides& sides) {
  std::int64_t r = 0;
  for (; r + 2 <= count; r += 2) sides(r, std::integral_constant<int, 2>());
  if (r < count) sides(r, std::integral_constant<int, 1>());
}

/// Elements of panel j of NS right-hand sides, those before which are solved: x <- L^-1 x.
template <int NS, class D, class T = hn::TFromD<D>>
HWY_INLINE void SolveDownPanel(D d, const Panels<T>& l, const T* inverses, std::int64_t j,
                               const RightSides<T>& x, std::int64_t first) {
  const std::size_t lanes = hn::Lanes(d);
  // Even and odd steps are summed apart, or few right-hand sides would wait for each other.
  hn::Vec<D> sums[2][NS][kPanelRows];
  T* at[NS];
  TTR_UNROLL
  for (int s = 0; s < NS; ++s) {
    at[s] = x.Side(first + s) + static_cast<std::size_t>(j * kPanelRows) * lanes;
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      sums[0][s][r] = hn::Load(d, at[s] + r * lanes);
      sums[1][s][r] = hn::Zero(d);
    }
  }
  const T* HWY_RESTRICT panel = l.Panel(j);
  for (std::int64_t k = 0; k < j * kPanelRows; k += 2) {
    TTR_UNROLL
    for (std::size_t odd = 0; odd < 2; ++odd) {
      hn::Vec<D> solved[NS];
      TTR_UNROLL
      for (int s = 0; s < NS; ++s) {
        solved[s] = hn::Load(d, x.Side(first + s) + (static_cast<std::size_t>(k) + odd) * lanes);
      }
      TTR_UNROLL
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        const hn::Vec<D> left = hn::Load(d, panel + (odd * kPanelRows + r) * lanes);
        TTR_UNROLL
        for (int s = 0; s < NS; ++s) {
          sums[odd][s][r] = hn::NegMulAdd(left, solved[s], sums[odd][s][r]);
        }
      }
    }
    panel += 2 * kPanelRows * lanes;
  }
  const Triangle<D> triangle(d, l.At(j, j),
                             inverses + static_cast<std::size_t>(j * kPanelRows) * lanes);
  TTR_UNROLL
  for (int s = 0; s < NS; ++s) {
    hn::Vec<D> y[kPanelRows];
    TTR_UNROLL
    for (int r = 0; r < kPanelRows; ++r) y[r] = hn::Add(sums[0][s][r], sums[1][s][r]);
    TTR_UNROLL
    for (int c = 0; c < kPanelRows; ++c) {
      y[c] = hn::Mul(y[c], triangle.inverse[c]);
      TTR_UNROLL
      for (int r = 1; r < kPanelRows; ++r) {
        if (r > c) y[r] = hn::NegMulAdd(triangle.lower[r][c], y[c], y[r]);
      }
      hn::Store(y[c], d, at[s] + static_cast<std::size_t>(c) * lanes);
    }
  }
}

/// x <- L^-T x
template <class T>
HWY_NOINLINE void SubstituteUpInterleaved(const Panels<T>& l, const T* inverses,
                                          const RightSides<T>& x) {
  const SystemTag<T> d;
  using D = decltype(d);
  const std::size_t lanes = hn::Lanes(d);
  ForSides(x.count, [&](std::int64_t first, auto sides) HWY_ATTR {
    constexpr int kSides = sides();
    for (std::int64_t i = l.count - 1; i >= 0; --i) {
      const std::size_t before = static_cast<std::size_t>(i * kPanelRows);
      const Triangle<D> triangle(d, l.At(i, i), inverses + before * lanes);
      hn::Vec<D> solved[kSides][kPanelRows];
      TTR_UNROLL
      for (int s = 0; s < kSides; ++s) {
        T* const at = x.Side(first + s) + before * lanes;
        TTR_UNROLL
        for (std::size_t r = 0; r < kPanelRows; ++r) solved[s][r] = hn::Load(d, at + r * lanes);
        TTR_UNROLL
        for (int c = kPanelRows - 1; c >= 0; --c) {
          solved[s][c] = hn::Mul(solved[s][c], triangle.inverse[c]);
          TTR_UNROLL
          for (int r = 0; r < kPanelRows - 1; ++r) {
            if (r < c) {
              solved[s][r] = hn::NegMulAdd(triangle.lower[c][r], solved[s][c], solved[s][r]);
            }
          }
          hn::Store(solved[s][c], d, at + static_cast<std::size_t>(c) * lanes);
        }
      }
      const T* HWY_RESTRICT panel = l.Panel(i);
      for (std::size_t k = 0; k < before; ++k) {
        hn::Vec<D> left[kPanelRows];
        TTR_UNROLL
        for (std::size_t r = 0; r < kPanelRows; ++r) left[r] = hn::Load(d, panel + r * lanes);
        TTR_UNROLL
        for (int s = 0; s < kSides; ++s) {
          T* const at = x.Side(first + s) + k * lanes;
          hn::Vec<D> sum = hn::Load(d, at);
          TTR_UNROLL
          for (int r = 0; r < kPanelRows; ++r) sum = hn::NegMulAdd(left[r], solved[s][r], sum);
          hn::Store(sum, d, at);
        }
        panel += kPanelRows * lanes;
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_INTERLEAVED_SIDES_INL_H_
