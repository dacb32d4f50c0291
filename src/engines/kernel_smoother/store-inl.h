// Sums of weights and values become outputs. Compiled once for every target.

#if defined(TTR_KERNEL_SMOOTHER_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_STORE_INL_H_
#undef TTR_KERNEL_SMOOTHER_STORE_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_STORE_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;

/// The sum of a query's weights over exp(top); those are true once they are multiplied by
/// exp(total), too.
template <class T>
struct WeightSum {
  T top, sum;
  double total;

  bool none() const { return top == cn::kNever<T> && sum == 0; }
  double Factor(const Options& options) const {
    if (none()) return 0;
    if (options.normalised) return 1 / static_cast<double>(sum);
    return options.eta * std::exp(static_cast<double>(top) + total);
  }
};

/// y, the sum of weighted values over exp(top), as the output.
template <class T>
void StoreOutput(const Options& options, const Memory& m, const Place& place,
                 const WeightSum<T>& sum, T* y) {
  const bool none = sum.none();
  const double factor = sum.Factor(options);
  for (std::int64_t c = 0; c < m.value_dim; ++c) {
    y[c] = none ? T(0) : static_cast<T>(static_cast<double>(y[c]) * factor);
  }
  if (options.output_norm != OutputNorm::kNone) {
    const bool rms = options.output_norm == OutputNorm::kRms;
    sn::DivideByNorm(y, m.value_dim, rms ? static_cast<double>(m.value_dim) : 1, 0);
  }
  if (m.y) sn::StoreRow(y, place.token, 0, m.value_dim, m.y.Of(place.query));
  if (none && options.normalised && m.status) {
    const Rows status = m.status.Of(place.query);
    static_cast<std::int8_t*>(status.data)[place.token * status.stride] = 3;  // kSingular
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_STORE_INL_H_
