// Slopes of kernels of the distance. Compiled once for every target.

#if defined(TTR_COMMON_SLOPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_SLOPE_INL_H_
#undef TTR_COMMON_SLOPE_INL_H_
#else
#define TTR_COMMON_SLOPE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Of a kernel of the squared distance x: d log s / dq = Along (k - q), and d log s / dB. At d = 0
/// both are 0: there a kernel is even, has a kink, or is a hit.
template <class KERNEL>
struct Slope;

template <Kernel KERNEL>
struct Slope<LogKernel<KERNEL>> {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Along(D d, V x, V width) {
    using T = hn::TFromD<D>;
    const auto hit = hn::Eq(x, hn::Zero(d));
    if constexpr (KERNEL == Kernel::kGaussian) {
      return hn::Add(width, width);
    } else if constexpr (KERNEL == Kernel::kLaplace) {
      return hn::IfThenZeroElse(hit, hn::Div(width, hn::Sqrt(x)));
    } else if constexpr (KERNEL == Kernel::kInverseDistance) {
      return hn::IfThenZeroElse(hit, hn::Div(hn::Set(d, T(1)), x));
    } else {
      const V n = hn::Set(d, T(2 * PowerOf(KERNEL)));
      return hn::Div(hn::Mul(n, width), hn::NegMulAdd(x, width, hn::Set(d, T(1))));
    }
  }

  /// Times B.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V ByWidth(D d, V x, V width) {
    if constexpr (KERNEL == Kernel::kGaussian) {
      return hn::Mul(x, width);
    } else if constexpr (KERNEL == Kernel::kLaplace) {
      return hn::Mul(hn::Sqrt(x), width);
    } else {
      return hn::Mul(x, Along(d, x, width));
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_SLOPE_INL_H_
