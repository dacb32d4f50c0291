#include "tests/engines/activation_kernels.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/engines/activation_kernels.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/simd/activation-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::test {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;

template <class T>
void ActivateAs(simd::Activation activation, std::int64_t count, const T* z, T* value, T* slope,
                T* curvature) {
  sn::WithActivation(activation, [&](auto which) HWY_ATTR {
    const auto at = [](auto d, auto x)
                        HWY_ATTR { return sn::Activate<decltype(which)::value>(d, x); };
    sn::MapRows(count, value, [&](auto d, auto x) HWY_ATTR { return at(d, x).value; }, z);
    sn::MapRows(count, slope, [&](auto d, auto x) HWY_ATTR { return at(d, x).slope; }, z);
    sn::MapRows(count, curvature, [&](auto d, auto x) HWY_ATTR { return at(d, x).curvature; }, z);
  });
}

void ActivateFloat(simd::Activation activation, std::int64_t count, const float* z, float* value,
                   float* slope, float* curvature) {
  ActivateAs(activation, count, z, value, slope, curvature);
}
void ActivateDouble(simd::Activation activation, std::int64_t count, const double* z, double* value,
                    double* slope, double* curvature) {
  ActivateAs(activation, count, z, value, slope, curvature);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::test
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::test {

HWY_EXPORT(ActivateFloat);
HWY_EXPORT(ActivateDouble);

template <>
void Activate(simd::Activation activation, std::int64_t count, const float* z, float* value,
              float* slope, float* curvature) {
  TTR_DISPATCH(ActivateFloat)(activation, count, z, value, slope, curvature);
}
template <>
void Activate(simd::Activation activation, std::int64_t count, const double* z, double* value,
              double* slope, double* curvature) {
  TTR_DISPATCH(ActivateDouble)(activation, count, z, value, slope, curvature);
}

}  // namespace ttr::test
#endif  // HWY_ONCE
