// Steps of a size of its own for every weight, and back through them. Compiled once for every
// target.

#if defined(TTR_NETWORK_ADAPTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_ADAPTED_INL_H_
#undef TTR_NETWORK_ADAPTED_INL_H_
#else
#define TTR_NETWORK_ADAPTED_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/coefficients.h"
#include "src/engines/network/rows-inl.h"
#include "src/engines/network/task.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// visit(tag, first, load, store) of vectors of a row of `count` numbers, the last of which may be
/// short.
template <class T, class Visit>
HWY_INLINE void ForRow(std::int64_t count, const Visit& visit) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    visit(
        d, i, [=](const T* from) HWY_ATTR { return hn::LoadU(d, from); },
        [=](V v, T* to) HWY_ATTR { hn::StoreU(v, d, to); });
  }
  if (const std::int64_t rest = count - i; rest > 0) {
    visit(
        d, i, [=](const T* from) HWY_ATTR { return sn::LoadSome(d, from, rest); },
        [=](V v, T* to) HWY_ATTR { sn::StoreSome(v, d, to, rest); });
  }
}

/// What one token makes of V, G and A, with g = x dz^T:
///
///     V = keep V' + take g^2,  G = mean G' + (1 - mean) g, or g
///     A = decay A' - step G / (sqrt V + eps)
///
/// A token of step 0 brings no g. A factor of zero takes nothing, not even NaN.
template <class T>
struct AdaptedStep {
  bool averages;
  T keep, take, eps, step, mean, decay;

  AdaptedStep(const Options& options, const Rates<T>& rates)
      : averages(options.momentum),
        keep(static_cast<T>(options.keep)),
        take(static_cast<T>(options.take())),
        eps(static_cast<T>(options.eps)),
        step(rates.step[0]),
        mean(options.momentum ? rates.momentum[0] : T(0)),
        decay(DecayFactor(options, rates, 0)) {}

  /// Writes one row, whose input is x. `means` is not touched where there are none.
  HWY_INLINE void WriteRow(std::int64_t count, T x, const T* dz, T* squares, T* means, T* a) const {
    ForRow<T>(count, [&](auto d, std::int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const auto g = Gradient(d, x, load(dz + i));
      const auto v = Squares(d, load(squares + i), g);
      store(v, squares + i);
      auto mean_g = g;
      if (averages) {
        mean_g = Mean(d, load(means + i), g);
        store(mean_g, means + i);
      }
      auto kept = Faded(d, decay, load(a + i));
      if (step != 0) {
        const auto root = hn::Add(hn::Sqrt(v), hn::Set(d, eps));
        kept = hn::NegMulAdd(hn::Set(d, step), hn::Div(mean_g, root), kept);
      }
      store(kept, a + i);
    });
  }

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V Gradient(D d, T x, V dz) const {
    return step == 0 ? hn::Zero(d) : hn::Mul(hn::Set(d, x), dz);
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V Squares(D d, V before, V g) const {
    return hn::MulAdd(hn::Mul(g, g), hn::Set(d, take), Faded(d, keep, before));
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V Mean(D d, V before, V g) const {
    return hn::MulAdd(g, hn::Set(d, 1 - mean), Faded(d, mean, before));
  }

 private:
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Faded(D d, T factor, V x) {
    return factor == 0 ? hn::Zero(d) : hn::Mul(hn::Set(d, factor), x);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_ADAPTED_INL_H_
