// Back through one step that is adapted a weight. Compiled once for every target.

#if defined(TTR_NETWORK_ADAPTED_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_ADAPTED_GRADIENT_INL_H_
#undef TTR_NETWORK_ADAPTED_GRADIENT_INL_H_
#else
#define TTR_NETWORK_ADAPTED_GRADIENT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/adapted-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// Back through AdaptedStep, row by row: gradients for V, G and A become those for V', G' and A'.
///
///     ~G -= step ~A / (sqrt V + eps),  ~V += step ~A G / (2 sqrt V (sqrt V + eps)^2)
///     ~g  = (1 - mean) ~G + 2 take g ~V
template <class T>
class AdaptedGradient {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  /// Row r of a layer: parameters before the token, and gradients. Without means: null.
  struct Row {
    const T *a, *means, *squares;
    T *da, *dmeans, *dsquares;
  };

  AdaptedGradient(const AdaptedStep<T>& step, const T* dz, T* ddz, std::int64_t columns)
      : step_(step), dz_(dz), ddz_(ddz), columns_(columns) {}

  /// Adds to ddz what the row gives, and returns what is added to the gradient for its input x.
  HWY_INLINE T PassRow(const Row& row, T x) {
    const D d;
    V down = hn::Zero(d);
    ForRow<T>(columns_, [&](auto, std::int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const V dz = load(dz_ + i), dg = PassWeights(row, i, x, load, store);
      if (step_.step == 0) return;
      down = hn::MulAdd(dg, dz, down);
      store(hn::MulAdd(dg, hn::Set(d, x), load(ddz_ + i)), ddz_ + i);
    });
    return hn::GetLane(hn::SumOfLanes(d, down));
  }

  T step() const { return Sum(of_step_); }
  T mean() const { return Sum(of_mean_); }
  T decay() const { return Sum(of_decay_); }

 private:
  static T Sum(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

  /// The gradient for g.
  template <class Load, class Store>
  HWY_INLINE V PassWeights(const Row& row, std::int64_t i, T x, const Load& load,
                           const Store& store) {
    const D d;
    const V zero = hn::Zero(d), step = hn::Set(d, step_.step);
    const V g = step_.Gradient(d, x, load(dz_ + i)), da = load(row.da + i);
    const V squares = step_.Squares(d, load(row.squares + i), g);
    const V before = step_.averages ? load(row.means + i) : zero;
    const V mean = step_.averages ? step_.Mean(d, before, g) : g;
    const V root = hn::Sqrt(squares), divisor = hn::Add(root, hn::Set(d, step_.eps));
    const V share = hn::Div(da, divisor), moved = hn::Mul(share, mean);
    of_decay_ = hn::MulAdd(da, load(row.a + i), of_decay_);
    store(hn::Mul(da, hn::Set(d, step_.decay)), row.da + i);
    if (step_.step != 0) of_step_ = hn::Sub(of_step_, moved);

    // Where the root is 0, all gradients were 0.
    const V slope = hn::Div(hn::Mul(step, moved), hn::Mul(hn::Add(root, root), divisor));
    const V dsquares =
        hn::Add(load(row.dsquares + i), hn::IfThenElse(hn::Gt(root, zero), slope, zero));
    store(hn::Mul(dsquares, hn::Set(d, step_.keep)), row.dsquares + i);
    V dmean = hn::Neg(hn::Mul(step, share));
    if (step_.averages) {
      dmean = hn::Add(dmean, load(row.dmeans + i));
      of_mean_ = hn::MulAdd(dmean, hn::Sub(before, g), of_mean_);
      store(hn::Mul(dmean, hn::Set(d, step_.mean)), row.dmeans + i);
      dmean = hn::Mul(dmean, hn::Set(d, 1 - step_.mean));
    }
    if (step_.step == 0) return zero;
    return hn::MulAdd(hn::Mul(dsquares, hn::Set(d, 2 * step_.take)), g, dmean);
  }

  AdaptedStep<T> step_;
  const T* dz_;
  T* ddz_;
  std::int64_t columns_;
  V of_step_ = hn::Zero(D()), of_mean_ = hn::Zero(D()), of_decay_ = hn::Zero(D());
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_ADAPTED_GRADIENT_INL_H_
