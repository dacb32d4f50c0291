// Positive definite kernels of blocks of keys and columns. Compiled once for every target.

#if defined(TTR_KERNEL_REGRESSION_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_KERNELS_INL_H_
#undef TTR_KERNEL_REGRESSION_KERNELS_INL_H_
#else
#define TTR_KERNEL_REGRESSION_KERNELS_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/kernel_regression/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;
using common::Kernel;

/// k(a, b) times the gains of both. Gains of a kernel that has a logarithm are logarithms, so that
/// no kernel overflows beside its diagonal.
template <Kernel KERNEL>
struct Gained {
  static constexpr Kernel kKernel = KERNEL;
  static constexpr bool kByDistance = common::IsByDistance(KERNEL);
  static constexpr bool kByLogarithm = common::HasLogarithm(KERNEL);

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x, V width, V left, V right) {
    if constexpr (KERNEL == Kernel::kLinear) {
      return hn::Mul(x, hn::Mul(left, right));
    } else {
      const V log = hn::Add(cn::LogKernel<KERNEL>::Of(d, x, width), hn::Add(left, right));
      // The logarithm of a kernel of distances is at most 0, as its gains are.
      return kByDistance ? sn::ExpFlushed(d, log) : sn::Exp(d, log);
    }
  }
};

/// use(Gained<kernel>()), for those that span a space of functions.
template <class Use>
HWY_INLINE void WithGained(Kernel kernel, const Use& use) {
  if (kernel == Kernel::kLinear) return use(Gained<Kernel::kLinear>());
  cn::WithKernel(kernel, [&](auto unit) HWY_ATTR {
    constexpr Kernel kKernel = decltype(unit)::kKernel;
    if constexpr (common::FactsOf(kKernel).positive_definite) use(Gained<kKernel>());
  });
}

/// The gain of a pair or a column that takes no part.
template <class T>
T NoGain(Kernel kernel) {
  return kernel == Kernel::kLinear ? T(0) : -std::numeric_limits<T>::infinity();
}

/// to(i, j) = the product, or squared distance, of key i and column j of a panel.
template <class T>
void Compare(Kernel kernel, const Block<T>& keys, std::int64_t rows, const Block<T>& kt,
             std::int64_t channels, const Block<T>& to) {
  if (common::IsByDistance(kernel)) {
    for (std::int64_t i = 0; i < rows; i += ln::kTileRows) {
      cn::SquaredDistances(keys.Rows(i), kt, kPanel<T>, channels, to.Rows(i));
    }
  } else {
    ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(keys), kt, rows,
                                 ln::Whole{kPanel<T>, channels}, to);
  }
}

/// Keys in rows, and a panel of columns.
template <class T>
struct PanelPairs {
  Block<T> keys;  // [row][channel]
  const T* gains;
  std::int64_t rows, channels;
  Block<T> kt;                      // [channel][column]
  const T* column_gains = nullptr;  // null: none
};

/// to(i, j) = k(key i, column j) and gains.
template <class T>
void KernelBlock(Kernel kernel, const PanelPairs<T>& pairs, T width, const Block<T>& to) {
  Compare(kernel, pairs.keys, pairs.rows, pairs.kt, pairs.channels, to);
  WithGained(kernel, [&](auto gained) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto w = hn::Set(d, width);
    const auto none = hn::Set(d, gained.kByLogarithm ? T(0) : T(1));
    const T* const columns = pairs.column_gains;
    for (std::int64_t i = 0; i < pairs.rows; ++i) {
      const auto gain = hn::Set(d, pairs.gains[i]);
      for (std::int64_t c = 0; c < kPanel<T>; c += lanes) {
        const auto column = columns == nullptr ? none : hn::LoadU(d, columns + c);
        T* const at = to.Row(i) + c;
        hn::Store(gained.Of(d, hn::Load(d, at), w, gain, column), d, at);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_KERNELS_INL_H_
