// What the last layer leaves to the loss, and to readers. Compiled once for every
// target.

#if defined(TTR_NETWORK_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_HEAD_INL_H_
#undef TTR_NETWORK_HEAD_INL_H_
#else
#define TTR_NETWORK_HEAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
struct Head {
  const Options& options;
  std::int64_t count;
  const T *ln_weight, *ln_bias;

  /// z <- the network's output, of input x. With a norm `z` standardised is left in `standard`, if
  /// given, and the inverse of its deviation returned.
  HWY_INLINE T Finish(const T* x, T* z, T* standard) const {
    const T* const from = z;
    T inverse = 1;
    if (options.norm) {
      inverse = Standardise(count, z);
      if (standard != nullptr) std::copy(z, z + count, standard);
      const auto affine = [](auto, auto a, auto weight, auto bias)
                              HWY_ATTR { return hn::MulAdd(a, weight, bias); };
      sn::MapRows(count, z, affine, from, ln_weight, ln_bias);
    }
    if (options.residual) {
      const auto add = [](auto, auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
      sn::MapRows(count, z, add, from, x);
    }
    return inverse;
  }

  /// dz <- the gradient of the loss for the last layer's z, which becomes standard where there is a
  /// norm. Returns the inverse of its deviation.
  HWY_INLINE T Loss(const T* x, const T* v, T* z, T* dz) const {
    return options.dot_product ? DotProduct(v, z, dz) : Squares(x, v, z, dz);
  }

 private:
  /// Loss() for 1/2 |f - v|^2.
  HWY_INLINE T Squares(const T* x, const T* v, T* z, T* dz) const {
    const T* const from = z;
    if (!options.norm) {
      const auto subtract = [](auto, auto a, auto b) HWY_ATTR { return hn::Sub(a, b); };
      const auto beside = [](auto, auto a, auto b, auto c)
                              HWY_ATTR { return hn::Sub(hn::Add(a, b), c); };
      options.residual ? sn::MapRows(count, dz, beside, from, x, v)
                       : sn::MapRows(count, dz, subtract, from, v);
      return 1;
    }
    const T inverse = Standardise(count, z);
    const auto error = [](auto, auto a, auto weight, auto bias, auto b) HWY_ATTR {
      return hn::Mul(weight, hn::Sub(hn::MulAdd(a, weight, bias), b));
    };
    const auto beside = [](auto, auto a, auto weight, auto bias, auto b, auto c) HWY_ATTR {
      return hn::Mul(weight, hn::Sub(hn::Add(hn::MulAdd(a, weight, bias), b), c));
    };
    options.residual ? sn::MapRows(count, dz, beside, from, ln_weight, ln_bias, x, v)
                     : sn::MapRows(count, dz, error, from, ln_weight, ln_bias, v);
    PassBack(count, from, inverse, dz);
    return inverse;
  }

  /// Loss() for -v . f, whose gradient does not depend on what f adds to its norm.
  HWY_INLINE T DotProduct(const T* v, T* z, T* dz) const {
    ScaleRow(count, T(-1), v, dz);
    if (!options.norm) return 1;
    const T inverse = Standardise(count, z);
    MultiplyRow(count, ln_weight, dz);
    PassBack(count, static_cast<const T*>(z), inverse, dz);
    return inverse;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_HEAD_INL_H_
