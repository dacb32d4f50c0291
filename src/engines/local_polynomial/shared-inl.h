// Moments of keys that several queries count from one centre: products of channels are formed once
// for all of them. Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_SHARED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_SHARED_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_SHARED_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_SHARED_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/panels-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// What Fit sums, of degree 1: sum_i p_i x_i for entries x, products of two channels or channels,
/// and kQueries columns of shares. A product with register tiles, where Fit multiplies vectors by
/// vectors; both factors of a block stay in the first-level cache.
template <class T>
class SharedMoments {
  using D = ln::SystemTag<T>;
  using V = hn::Vec<D>;
  static constexpr int kRows = linalg::kPanelRows;

 public:
  SharedMoments(std::int64_t channels, const FitScratch<T>& scratch)
      : channels_(channels), panels_(linalg::PanelsOf(channels)), s_(scratch) {}

  /// s.centred.k = k - centre, whole units. far(i): row i is so far that its squares are infinite;
  /// it becomes zeros, for queries that give it no share.
  template <class Far>
  void Load(const Block<T>& k, std::int64_t count, const Far& far) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t wide = linalg::RoundUp(channels_, kUnit);
    for (std::int64_t i = 0; i < count; ++i) {
      auto squares = hn::Zero(d);
      for (std::int64_t c = 0; c < wide; c += lanes) {
        const auto x = hn::Sub(hn::Load(d, k.Row(i) + c), hn::Load(d, s_.centred.centre + c));
        squares = hn::MulAdd(x, x, squares);
        hn::Store(x, d, s_.centred.k.Row(i) + c);
      }
      if (hn::AllTrue(d, hn::Lt(squares, hn::Inf(d)))) continue;
      std::fill(s_.centred.k.Row(i), s_.centred.k.Row(i) + wide, T(0));
      far(i);
    }
  }
  void Load(const Block<T>& k, std::int64_t count) const {
    Load(k, count, [](std::int64_t) {});
  }

  /// Adds keys of s.centred.k to means and second moments, and a times shares to the second side.
  void Add(const Block<T>& p, std::int64_t count, const Block<T>* a) const {
    const std::int64_t wide = s_.wide * Lanes();
    for (std::int64_t c = 0; c < s_.wide; c += kRows) {
      AddEntries({s_.centred.k.data + c, s_.centred.k.stride}, p, count, s_.means + c * Lanes(),
                 wide);
    }
    if (a != nullptr) AddNumbers(p, count, *a);
    const std::int64_t vectors = linalg::VectorsBefore(panels_) * Lanes();
    for (std::int64_t i = 0; i < panels_; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        Multiply(i, j, count);
        T* const to = ln::Panels<T>{s_.h, panels_}.At(i, j);
        for (std::int64_t c = 0; c < kRows; ++c) {
          AddEntries({s_.centred.products + c * kRows, kRows * kRows}, p, count,
                     to + c * kRows * Lanes(), vectors);
        }
      }
    }
  }

  /// e[pair][query] = p (1 - (k - mean) . u), u the first sides.
  void Weigh(const Block<T>& p, std::int64_t count, const Block<T>& e) const {
    const D d;
    constexpr int kPairsAtOnce = 2 * kRows;
    for (std::int64_t vector = 0; vector < kQueries / Lanes(); ++vector) {
      const T* const u = s_.sides + vector * s_.wide * Lanes();
      const T* const mean = s_.means + vector * s_.wide * Lanes();
      V one = hn::Set(d, T(1));
      for (std::int64_t c = 0; c < channels_; ++c) {
        one = hn::MulAdd(hn::Load(d, mean + c * Lanes()), hn::Load(d, u + c * Lanes()), one);
      }
      for (std::int64_t i = 0; i < count; i += kPairsAtOnce) {
        ln::Tile<D, kPairsAtOnce, 1> tile;
        TTR_UNROLL
        for (int r = 0; r < kPairsAtOnce; ++r) tile[r][0] = one;
        ln::Accumulate<true, D, kPairsAtOnce, 1>(d, s_.centred.k.Row(i), s_.centred.k.stride, 1, u,
                                                 Lanes(), channels_, tile);
        for (int r = 0; r < kPairsAtOnce; ++r) {
          const V share = hn::Load(d, p.Row(i + r) + vector * Lanes());
          const V weight =
              hn::IfThenZeroElse(hn::Eq(share, hn::Zero(d)), hn::Mul(share, tile[r][0]));
          hn::Store(weight, d, e.Row(i + r) + vector * Lanes());
        }
      }
    }
  }

 private:
  static std::int64_t Lanes() { return ln::SystemsAtOnce<T>(); }

  /// Four entries of every pair: entry r of pair i at data[i step + r].
  struct Entries {
    const T* data;
    std::int64_t step;
  };

  /// to[entry][lane] of all vectors, `vector_stride` apart.
  HWY_INLINE void AddEntries(const Entries& x, const Block<T>& p, std::int64_t count, T* to,
                             std::int64_t vector_stride) const {
    const D d;
    constexpr int kVectors = 2;
    for (std::int64_t vector = 0; vector < kQueries / Lanes(); vector += kVectors) {
      T* const at = to + vector * vector_stride;
      ln::Tile<D, kRows, kVectors> tile;
      TTR_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        TTR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          tile[r][v] = hn::Load(d, at + v * vector_stride + r * Lanes());
        }
      }
      ln::Accumulate<false, D, kRows, kVectors>(d, x.data, 1, x.step, p.data + vector * Lanes(),
                                                p.stride, count, tile);
      TTR_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        TTR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          hn::Store(tile[r][v], d, at + v * vector_stride + r * Lanes());
        }
      }
    }
  }

  /// s.centred.products: channel 4 i + r times channel 4 j + c of every pair, at 4 c + r.
  void Multiply(std::int64_t i, std::int64_t j, std::int64_t count) const {
    const hn::CappedTag<T, kRows> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    // Local copies of pointers, which no store can change.
    const T* HWY_RESTRICT rows = s_.centred.k.data + i * kRows;
    const T* HWY_RESTRICT columns = s_.centred.k.data + j * kRows;
    T* HWY_RESTRICT to = s_.centred.products;
    const std::int64_t stride = s_.centred.k.stride;
    for (std::int64_t pair = 0; pair < count; ++pair) {
      for (std::int64_t r = 0; r < kRows; r += lanes) {
        const auto left = hn::Load(d, rows + r);
        TTR_UNROLL
        for (int c = 0; c < kRows; ++c) {
          hn::Store(hn::Mul(left, hn::Set(d, columns[c])), d, to + c * kRows + r);
        }
      }
      rows += stride;
      columns += stride;
      to += kRows * kRows;
    }
  }

  void AddNumbers(const Block<T>& p, std::int64_t count, const Block<T>& a) const {
    const D d;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t q = 0; q < kQueries; q += Lanes()) {
        const V share = hn::Load(d, p.Row(i) + q);
        const V number = hn::IfThenZeroElse(hn::Eq(share, hn::Zero(d)),
                                            hn::Mul(share, hn::Load(d, a.Row(i) + q)));
        hn::Store(number, d, s_.centred.numbers.Row(i) + q);
        hn::Store(hn::Add(hn::Load(d, s_.totals + q), number), d, s_.totals + q);
      }
    }
    const std::int64_t wide = s_.wide * Lanes();
    T* const second = s_.sides + s_.wide * kQueries;
    for (std::int64_t c = 0; c < s_.wide; c += kRows) {
      AddEntries({s_.centred.k.data + c, s_.centred.k.stride}, s_.centred.numbers, count,
                 second + c * Lanes(), wide);
    }
  }

  const std::int64_t channels_, panels_;
  const FitScratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_SHARED_INL_H_
