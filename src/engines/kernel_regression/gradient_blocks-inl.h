// What the backward pass does with one block: slopes, back substitution, sums. Compiled once for
// every target.

#if defined(TTR_KERNEL_REGRESSION_GRADIENT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_GRADIENT_BLOCKS_INL_H_
#undef TTR_KERNEL_REGRESSION_GRADIENT_BLOCKS_INL_H_
#else
#define TTR_KERNEL_REGRESSION_GRADIENT_BLOCKS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/kernel_regression/factor-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

/// SlopeBlock() of a kernel, from what Compare() has left in `x`.
template <class GAINED, class T>
double SlopeRows(const PanelPairs<T>& pairs, T width, const Block<T>& by, const Block<T>& x,
                 const Block<T>& e) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto w = hn::Set(d, width);
  const auto none = hn::Set(d, GAINED::kByLogarithm ? T(0) : T(1));
  const T* const columns = pairs.column_gains;
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < pairs.rows; ++i) {
    const auto gain = hn::Set(d, pairs.gains[i]);
    for (std::int64_t c = 0; c < kPanel<T>; c += lanes) {
      const auto column = columns == nullptr ? none : hn::LoadU(d, columns + c);
      const auto at = hn::Load(d, x.Row(i) + c);
      const auto weight = hn::Load(d, by.Row(i) + c);
      if constexpr (!GAINED::kByLogarithm) {
        hn::Store(hn::Mul(weight, hn::Mul(gain, column)), d, e.Row(i) + c);
      } else {
        const auto value = hn::Mul(weight, GAINED::Of(d, at, w, gain, column));
        if constexpr (GAINED::kByDistance) {
          using S = cn::LogKernel<GAINED::kKernel>;
          // A pair without a part may be infinitely far, and 0 times infinity is NaN.
          const auto nothing = hn::Eq(value, hn::Zero(d));
          hn::Store(hn::IfThenZeroElse(nothing, hn::Mul(value, S::Along(d, at, w))), d,
                    e.Row(i) + c);
          sum = hn::Add(sum, hn::IfThenZeroElse(nothing, hn::Mul(value, S::ByWidth(d, at, w))));
        } else {
          hn::Store(value, d, e.Row(i) + c);
        }
      }
    }
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

/// e(i, j) = by(i, j) times the slope of the kernel and its
/// gains, along (key - column) of a distance and else by k . q; `x` is room. Returns the sum of
/// by(i, j) times B and the slope by the bandwidth B.
template <class T>
double SlopeBlock(Kernel kernel, const PanelPairs<T>& pairs, T width, const Block<T>& by,
                  const Block<T>& x, const Block<T>& e) {
  Compare(kernel, pairs.keys, pairs.rows, pairs.kt, pairs.channels, x);
  double sum = 0;
  WithGained(kernel, [&](auto gained)
                         HWY_ATTR { sum = SlopeRows<decltype(gained)>(pairs, width, by, x, e); });
  return sum;
}

/// Columns X that become U^-1 X, from the last block of rows to the first.
template <class T>
void SolveUp(const Factor<T>& f, std::int64_t blocks, const Columns<T>* list, std::int64_t count) {
  constexpr std::int64_t kWide = kPanel<T>;
  const std::int64_t height = f.extent.block;
  const auto subtract = [&](std::int64_t row, std::int64_t rows, std::int64_t group,
                            const Columns<T>& of) HWY_ATTR {
    ln::Multiply<ln::Into::kSubtract>(linalg::Left<T>::Of(f.Panel(group / kWide, row)),
                                      of.x.Rows(group), rows, ln::Whole{of.columns, kWide},
                                      of.x.Rows(row));
  };
  for (std::int64_t a = blocks - 1; a >= 0; --a) {
    const std::int64_t first = a * height;
    for (std::int64_t group = first + height - kWide; group >= first; group -= kWide) {
      for (std::int64_t c = 0; c < count; ++c) {
        if (group >= list[c].rows) continue;
        const linalg::UpperFactor<T> square{f.Panel(group / kWide, group),
                                            f.corners + group * linalg::kCornerNumbers};
        ln::SubstituteUp(square, kWide, list[c].x.Rows(group), list[c].columns);
        if (group > first) subtract(first, group - first, group, list[c]);
      }
    }
    for (std::int64_t b = 0; b < a; ++b) {
      for (std::int64_t group = first; group < first + height; group += kWide) {
        for (std::int64_t c = 0; c < count; ++c) {
          if (group < list[c].rows) subtract(b * height, height, group, list[c]);
        }
      }
    }
  }
}

/// sums[i] += the sum of row i.
template <class T>
void AddRowSums(const Block<T>& block, std::int64_t rows, T* sums) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < rows; ++i) {
    auto sum = hn::Zero(d);
    for (std::int64_t c = 0; c < kPanel<T>; c += lanes) {
      sum = hn::Add(sum, hn::Load(d, block.Row(i) + c));
    }
    sums[i] += hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

/// sums[j] += the sum of column j of a panel.
template <class T>
void AddColumnSums(const Block<T>& block, std::int64_t rows, T* sums) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < kPanel<T>; ++c) sums[c] += block.Row(i)[c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_GRADIENT_BLOCKS_INL_H_
