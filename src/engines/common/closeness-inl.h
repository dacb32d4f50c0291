// Weights of pairs around queries, a block of scores at a time: log s(k, q) for some queries and
// many keys, then exp against a maximum that runs along, so that no weight overflows and no score
// is kept. Compiled once for every target.

#if defined(TTR_COMMON_CLOSENESS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_CLOSENESS_INL_H_
#undef TTR_COMMON_CLOSENESS_INL_H_
#else
#define TTR_COMMON_CLOSENESS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/engines/common/closeness.h"
#include "src/engines/common/pairs.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/exp-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

using linalg::Block;
using linalg::Left;

template <class T>
inline constexpr T kNever = -std::numeric_limits<T>::infinity();
/// tile[r] += sum_s (a[r a_row + s] - b[s b_step ...])^2, s < count.
template <class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void AccumulateSquares(D d, const T* HWY_RESTRICT a, std::int64_t a_row,
                                  const T* HWY_RESTRICT b, std::int64_t b_step, std::int64_t count,
                                  ln::Tile<D, R, NV>& tile) {
  const std::size_t lanes = hn::Lanes(d);
  for (std::int64_t s = 0; s < count; ++s) {
    hn::Vec<D> right[NV];
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) right[v] = hn::LoadU(d, b + v * lanes);
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const hn::Vec<D> left = hn::Set(d, a[r * a_row]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) {
        const hn::Vec<D> difference = hn::Sub(right[v], left);
        tile[r][v] = hn::MulAdd(difference, difference, tile[r][v]);
      }
    }
    ++a;
    b += b_step;
  }
}

/// to(i, j) = |row i of `left` - column j of `right`|^2 for kTileRows rows. By differences:
/// products would lose the digits of what is near.
template <class T>
HWY_NOINLINE void SquaredDistances(const Block<T>& left, const Block<T>& right,
                                   std::int64_t columns, std::int64_t steps, const Block<T>& to) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  constexpr int kRows = ln::kTileRows;
  ln::ForTiles(d, 0, columns, [&](std::int64_t j, auto vectors) HWY_ATTR {
    ln::Tile<D, kRows, vectors()> tile;
    ln::SetZero<D, kRows, vectors()>(d, tile);
    AccumulateSquares<D, kRows, vectors()>(d, left.data, left.stride, right.data + j, right.stride,
                                           steps, tile);
    ln::StoreTile<D, kRows, vectors()>(d, tile, to.data + j, to.stride);
  });
}

/// A kernel of similarity is one of these and a line in WithKernel(), beside its facts in
/// closeness.h: one that lacks a part does not compile.
///
///     Of        log s of what a tile holds: a product k . (scale q), or a squared distance x
///     Along     where x is a distance: d log s / dq = Along (k - q)
///     ByWidth   where x is a distance: B d log s / dB
///
/// `width` is 1 / B, or of a kernel in u^2 its square. At x = 0 both slopes are 0: there a kernel
/// is even, has a kink, or is a hit.
template <Kernel KERNEL>
struct LogKernel;

template <Kernel KERNEL>
struct KernelUnit {
  static constexpr Kernel kKernel = KERNEL;
  static constexpr bool kByDistance = IsByDistance(KERNEL);
};

/// exp(x)
template <>
struct LogKernel<Kernel::kExponential> : KernelUnit<Kernel::kExponential> {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D, V x, V) {
    return x;
  }
};

/// -u width, and 0 for a hit: without any width only a hit is near.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FallingFrom(D d, V x, V u, V width) {
  return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Neg(hn::Mul(u, width)));
}

/// exp(-x / B)
template <>
struct LogKernel<Kernel::kGaussian> : KernelUnit<Kernel::kGaussian> {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x, V width) {
    return FallingFrom(d, x, x, width);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Along(D, V, V width) {
    return hn::Add(width, width);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V ByWidth(D, V x, V width) {
    return hn::Mul(x, width);
  }
};

/// exp(-sqrt(x) / B)
template <>
struct LogKernel<Kernel::kLaplace> : KernelUnit<Kernel::kLaplace> {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x, V width) {
    return FallingFrom(d, x, hn::Sqrt(x), width);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Along(D d, V x, V width) {
    return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Div(width, hn::Sqrt(x)));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V ByWidth(D, V x, V width) {
    return hn::Mul(hn::Sqrt(x), width);
  }
};

/// 1 / sqrt(x)
template <>
struct LogKernel<Kernel::kInverseDistance> : KernelUnit<Kernel::kInverseDistance> {
  template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
  static HWY_INLINE V Of(D d, V x, V) {
    const auto hit = hn::Eq(x, hn::Zero(d));
    const auto no_number = hn::Or(hit, hn::Not(hn::Lt(x, hn::Inf(d))));
    const V number = hn::IfThenElse(no_number, hn::Set(d, T(1)), x);
    const V log = hn::Mul(hn::Set(d, T(-0.5)), hn::Log(d, number));
    // An infinite distance gives -inf; NaN stays.
    return hn::IfThenElse(hit, hn::Inf(d), hn::IfThenElse(no_number, hn::Neg(x), log));
  }
  template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
  static HWY_INLINE V Along(D d, V x, V) {
    return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Div(hn::Set(d, T(1)), x));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V ByWidth(D d, V x, V width) {
    return hn::Mul(x, Along(d, x, width));
  }
};

/// (1 - x / B^2)_+^n
template <Kernel KERNEL>
struct CompactKernel : KernelUnit<KERNEL> {
  static constexpr int kPower = FactsOf(KERNEL).power;

  template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
  static HWY_INLINE V Of(D d, V x, V width) {
    const V one = hn::Set(d, T(1));
    const V u2 = hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(x, width));
    const auto near = hn::Lt(u2, one);
    const V rest = hn::IfThenElse(near, hn::Sub(one, u2), one);
    const V log = hn::Mul(hn::Set(d, T(kPower)), hn::Log(d, rest));
    const V far = hn::IfThenElse(hn::Ge(u2, one), hn::Set(d, kNever<T>), u2);
    return hn::IfThenElse(near, log, far);
  }
  template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
  static HWY_INLINE V Along(D d, V x, V width) {
    const V n = hn::Set(d, T(2 * kPower));
    return hn::Div(hn::Mul(n, width), hn::NegMulAdd(x, width, hn::Set(d, T(1))));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V ByWidth(D d, V x, V width) {
    return hn::Mul(x, Along(d, x, width));
  }

  /// s itself: at most 1, and 0 beyond the bandwidth, so that it needs neither logarithm nor
  /// maximum.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Weight(D d, V x, V width) {
    const V one = hn::Set(d, hn::TFromD<D>(1));
    const V u2 = hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(x, width));
    const V rest = hn::IfThenZeroElse(hn::Ge(u2, one), hn::Sub(one, u2));
    V weight = rest;
    TTR_UNROLL
    for (int n = 1; n < kPower; ++n) weight = hn::Mul(rest, weight);
    return weight;
  }
};
template <>
struct LogKernel<Kernel::kEpanechnikov> : CompactKernel<Kernel::kEpanechnikov> {};
template <>
struct LogKernel<Kernel::kBiweight> : CompactKernel<Kernel::kBiweight> {};
template <>
struct LogKernel<Kernel::kTriweight> : CompactKernel<Kernel::kTriweight> {};

/// use(LogKernel<kernel>()), of a kernel that weighs.
template <class Use>
HWY_INLINE void WithKernel(Kernel kernel, const Use& use) {
  switch (kernel) {
    case Kernel::kExponential: return use(LogKernel<Kernel::kExponential>());
    case Kernel::kGaussian: return use(LogKernel<Kernel::kGaussian>());
    case Kernel::kLaplace: return use(LogKernel<Kernel::kLaplace>());
    case Kernel::kEpanechnikov: return use(LogKernel<Kernel::kEpanechnikov>());
    case Kernel::kBiweight: return use(LogKernel<Kernel::kBiweight>());
    case Kernel::kTriweight: return use(LogKernel<Kernel::kTriweight>());
    case Kernel::kInverseDistance: return use(LogKernel<Kernel::kInverseDistance>());
    case Kernel::kLinear: return;
  }
}

/// 1 / B, or its square where the kernel is one of u^2 = (d / B)^2.
template <class T>
T WidthOf(Kernel kernel, double bandwidth) {
  const double inverse = 1 / bandwidth;
  return static_cast<T>(IsCompact(kernel) ? inverse * inverse : inverse);
}

/// Logarithms of weights beside columns of scores: main + shift up to the column `split`, then
/// those of at most a unit of columns in `rest`; both begin whole units.
template <class T>
struct ColumnOffsets {
  const T* main;
  T shift = 0;
  std::int64_t split;
  const T* rest = nullptr;

  T At(std::int64_t column) const {
    return column < split ? main[column] + shift : rest[column - split];
  }
};

/// A vector of offsets, those of columns from j on.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadOffsets(D d, const ColumnOffsets<T>& offsets, std::int64_t j) {
  if (j < offsets.split) return hn::Add(hn::Load(d, offsets.main + j), hn::Set(d, offsets.shift));
  if (j < offsets.split + linalg::kUnit) return hn::Load(d, offsets.rest + (j - offsets.split));
  return hn::Set(d, kNever<T>);  // beyond what is seen
}

/// Is one of the squared distances in [first, end) 0, of a pair that has weight?
template <class T>
bool HasHit(std::int64_t first, std::int64_t end, const ColumnOffsets<T>* offsets,
            const T* squares) {
  for (std::int64_t j = first; j < end; ++j) {
    if (squares[j] == 0 && (offsets == nullptr || offsets->At(j) != kNever<T>)) return true;
  }
  return false;
}

/// Beside a hit nothing else counts: squared distances become 1 (whose logarithm is 0) and
/// infinite.
template <class T>
void KeepHits(std::int64_t count, T* squares) {
  for (std::int64_t j = 0; j < count; ++j) {
    if (squares[j] == 0) {
      squares[j] = 1;
    } else if (squares[j] > 0) {
      squares[j] = std::numeric_limits<T>::infinity();
    }
  }
}

/// Is column j + lane in [first, end)?
template <class D>
HWY_INLINE hn::Mask<D> Inside(D d, std::int64_t j, std::int64_t first, std::int64_t end) {
  using T = hn::TFromD<D>;
  const auto at = hn::Iota(d, static_cast<T>(j));
  return hn::And(hn::Ge(at, hn::Set(d, static_cast<T>(first))),
                 hn::Lt(at, hn::Set(d, static_cast<T>(end))));
}

// A row of scores at a time is where kernels differ: what goes through rows and blocks is compiled
// once for all of them.

template <class KERNEL, class T>
HWY_INLINE T LogScoresOf(std::int64_t count, std::int64_t first, std::int64_t end, T width,
                         const T* offsets, T shift, T* scores) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto never = hn::Set(d, kNever<T>);
  const auto w = hn::Set(d, width), by = hn::Set(d, shift);
  auto top = never;
  const bool whole = first <= 0 && end >= count;
  for (std::int64_t j = 0; j < count; j += lanes) {
    auto x = KERNEL::Of(d, hn::Load(d, scores + j), w);
    if (offsets != nullptr) {
      const auto offset = hn::Load(d, offsets + j);
      x = hn::IfThenElse(hn::Eq(offset, never), never, hn::Add(x, hn::Add(offset, by)));
    }
    if (!whole && (j < first || j + lanes > end)) {
      x = hn::IfThenElse(Inside(d, j, first, end), x, never);
    }
    top = hn::IfThenElse(hn::Lt(top, x), x, top);
    if (KERNEL::kByDistance || offsets != nullptr || !whole) hn::Store(x, d, scores + j);
  }
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

template <class T>
HWY_NOINLINE T LogScoresOfPart(Kernel kernel, std::int64_t count, const Range& inside, T width,
                               const T* offsets, T shift, T* scores) {
  T greatest = kNever<T>;
  WithKernel(kernel, [&](auto of) HWY_ATTR {
    greatest =
        LogScoresOf<decltype(of)>(count, inside.first, inside.end, width, offsets, shift, scores);
  });
  return greatest;
}

/// scores[j] <- log s and what offsets hold for column j of [0, count), whole units; what is
/// outside of [first, end) or has no weight becomes -inf. Returns the greatest, passing over NaN.
template <class T>
T LogScores(Kernel kernel, std::int64_t count, std::int64_t first, std::int64_t end, T width,
            const ColumnOffsets<T>* offsets, T* scores) {
  if (offsets == nullptr) {
    return LogScoresOfPart<T>(kernel, count, {first, end}, width, nullptr, 0, scores);
  }
  const std::int64_t split = std::min(offsets->split, count);
  T greatest =
      LogScoresOfPart<T>(kernel, split, {first, end}, width, offsets->main, offsets->shift, scores);
  std::int64_t done = split;
  if (split < std::min(end, count)) {
    done += linalg::kUnit;
    greatest =
        std::max(greatest, LogScoresOfPart<T>(kernel, linalg::kUnit, {first - split, end - split},
                                              width, offsets->rest, 0, scores + split));
  }
  std::fill(scores + done, scores + std::max(done, count), kNever<T>);
  return greatest;
}

template <class KERNEL, class T>
HWY_INLINE T CompactWeightsOf(std::int64_t count, std::int64_t first, std::int64_t end, T width,
                              T* squares) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto w = hn::Set(d, width);
  auto sum = hn::Zero(d);
  for (std::int64_t j = 0; j < count; j += lanes) {
    auto p = KERNEL::Weight(d, hn::Load(d, squares + j), w);
    if (j < first || j + lanes > end) p = hn::IfThenElseZero(Inside(d, j, first, end), p);
    hn::Store(p, d, squares + j);
    sum = hn::Add(sum, p);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// squares[j] <- s for columns [0, count), whole vectors, under a compact kernel; 0 outside of
/// [first, end). Returns their sum.
template <class T>
HWY_NOINLINE T CompactWeights(Kernel kernel, std::int64_t count, std::int64_t first,
                              std::int64_t end, T width, T* squares) {
  T sum = 0;
  WithKernel(kernel, [&](auto of) HWY_ATTR {
    using Unit = decltype(of);
    if constexpr (IsCompact(Unit::kKernel)) {
      sum = CompactWeightsOf<Unit>(count, first, end, width, squares);
    }
  });
  return sum;
}

/// scores[j] <- exp(scores[j] - top), and their sum.
template <class T>
HWY_INLINE T Exponentials(std::int64_t count, T top, T* scores) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto at = hn::Set(d, top == kNever<T> ? T(0) : top);
  auto sum = hn::Zero(d);
  for (std::int64_t j = 0; j < count; j += lanes) {
    const auto p = sn::ExpFlushed(d, hn::Sub(hn::Load(d, scores + j), at));
    hn::Store(p, d, scores + j);
    sum = hn::Add(sum, p);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// The maximum and the sum of one query's weights as blocks of scores go by: what was summed so far
/// stands over exp(top).
template <class T>
struct RunningSum {
  T top;
  T sum;

  static RunningSum Start() { return {kNever<T>, 0}; }

  /// Takes a block in whose greatest score is `greatest`; scores become weights. Returns what
  /// earlier sums have to be multiplied by.
  HWY_INLINE T Add(std::int64_t count, T greatest, T* scores) {
    T factor = 1;
    if (greatest > top) {
      factor = top == kNever<T> ? T(0) : static_cast<T>(std::exp(top - greatest));
      top = greatest;
    }
    sum = sum * factor + Exponentials(count, top, scores);
    return factor;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_CLOSENESS_INL_H_
