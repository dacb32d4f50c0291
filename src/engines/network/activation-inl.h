// What lies between two layers of a network, and back through it, twice. Compiled once for every
// target.

#if defined(TTR_NETWORK_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_ACTIVATION_INL_H_
#undef TTR_NETWORK_ACTIVATION_INL_H_
#else
#define TTR_NETWORK_ACTIVATION_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/rows-inl.h"
#include "src/simd/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// x = act(z), or act(a) (.) g with z = [a, g]. A token's row has, beside x:
///
/// | slope | act'(z)  or [g act'(a), act(a)]   | the gradient for z is that for x times this   |
/// | curvature  | act''(z) or [g act''(a), act'(a)] | slopes of the slope |
template <class T>
class Activated {
 public:
  Activated(const Options& options, const Shape& shape)
      : which_(options.activation), gated_(options.gated), count_(shape.hidden) {}

  /// Fills x, `slope`, which may be z, and `curvature` if it is given.
  HWY_INLINE void Apply(const T* z, T* x, T* slope, T* curvature = nullptr) const {
    sn::WithActivation(which_, [&](auto which) HWY_ATTR {
      constexpr auto kWhich = decltype(which)::value;
      gated_ ? ApplyGated<kWhich>(z, x, slope, curvature)
             : ApplyPlain<kWhich>(z, x, slope, curvature);
    });
  }

  /// d, the gradient for x, becomes that for z.
  HWY_INLINE void PassBack(const T* slope, T* d) const { PassBack(slope, d, {0, count_}); }
  /// PassBack() for some channels; slope and d begin with those of channel 0.
  HWY_INLINE void PassBack(const T* slope, T* d, Range of) const {
    const std::int64_t n = of.count();
    slope += of.begin;
    d += of.begin;
    if (gated_) {
      std::copy(d, d + n, d + count_);
      MultiplyRow(n, slope + count_, d + count_);
    }
    MultiplyRow(n, slope, d);
  }

  /// dz += the gradient for z that comes from d, the one for x.
  HWY_INLINE void AddPassedBack(const T* d, const T* slope, T* dz) const {
    AddProduct(count_, d, slope, dz);
    if (gated_) AddProduct(count_, d, slope + count_, dz + count_);
  }

  /// Goes back through PassBack() of `before`: d, the gradient for its result, becomes that for
  /// `before` in `through`, and that for z in `dz`.
  HWY_INLINE void PassSlope(const T* d, const T* before, const T* slope, const T* curvature,
                            T* through, T* dz) const {
    const auto product = [](auto, auto a, auto b) HWY_ATTR { return hn::Mul(a, b); };
    const auto three = [](auto, auto a, auto b, auto c)
                           HWY_ATTR { return hn::Mul(hn::Mul(a, b), c); };
    sn::MapRows(count_, through, product, d, slope);
    sn::MapRows(count_, dz, three, d, before, curvature);
    if (!gated_) return;
    AddProduct(count_, d + count_, slope + count_, through);
    sn::MapRows(count_, dz + count_, three, d, before, curvature + count_);
    const auto add = [](auto, auto sum, auto a, auto b, auto c)
                         HWY_ATTR { return hn::MulAdd(hn::Mul(a, b), c, sum); };
    sn::MapRows(count_, dz, add, static_cast<const T*>(dz), d + count_, before, curvature + count_);
  }

 private:
  template <simd::Activation WHICH>
  HWY_INLINE void ApplyPlain(const T* z, T* x, T* slope, T* curvature) const {
    ForVectors([&](auto d, std::int64_t i, std::int64_t rest) HWY_ATTR {
      const auto at = sn::Activate<WHICH>(d, Load(d, z + i, rest));
      Store(d, at.value, x + i, rest);
      Store(d, at.slope, slope + i, rest);
      if (curvature != nullptr) Store(d, at.curvature, curvature + i, rest);
    });
  }

  template <simd::Activation WHICH>
  HWY_INLINE void ApplyGated(const T* z, T* x, T* slope, T* curvature) const {
    ForVectors([&](auto d, std::int64_t i, std::int64_t rest) HWY_ATTR {
      const auto at = sn::Activate<WHICH>(d, Load(d, z + i, rest));
      const auto gate = Load(d, z + count_ + i, rest);
      Store(d, hn::Mul(at.value, gate), x + i, rest);
      Store(d, hn::Mul(at.slope, gate), slope + i, rest);
      Store(d, at.value, slope + count_ + i, rest);
      if (curvature == nullptr) return;
      Store(d, hn::Mul(at.curvature, gate), curvature + i, rest);
      Store(d, at.slope, curvature + count_ + i, rest);
    });
  }

  /// visit(tag, first, numbers) of vectors of a row; 0 numbers: a whole one.
  template <class Visit>
  HWY_INLINE void ForVectors(const Visit& visit) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t i = 0;
    for (; i + lanes <= count_; i += lanes) visit(d, i, 0);
    if (i < count_) visit(d, i, count_ - i);
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const T* from, std::int64_t rest) {
    return rest == 0 ? hn::LoadU(d, from) : sn::LoadSome(d, from, rest);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, T* to, std::int64_t rest) {
    rest == 0 ? hn::StoreU(v, d, to) : sn::StoreSome(v, d, to, rest);
  }

  simd::Activation which_;
  bool gated_;
  std::int64_t count_;  // of x
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_ACTIVATION_INL_H_
