// Pairs of channels that rotate into each other behind a block's last token: how the gradient of a
// complex memory enters the frame of a block (backward/rotation-inl.h). Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_ROTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_ROTATION_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_ROTATION_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_ROTATION_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls visit(channel, places of its vector of channels x and of y) for every value column, and
/// end(channel) behind the last of a vector.
template <class T, class Visit, class End>
HWY_INLINE void ForPairs(const GradientCall<T>& call, const Scratch<T>& scratch, const Visit& visit,
                         const End& end) {
  const std::int64_t half = call.sizes.key_dim / 2;
  for (std::int64_t k = 0; k < half; k += Lanes<T>()) {
    // Where channels k and k + half of the first value are, and the width of their strips.
    std::int64_t at[2], width[2];
    for (std::int64_t i = 0; i < 2; ++i) {
      const std::int64_t key = k + i * half, strip = key / (2 * Lanes<T>()) * (2 * Lanes<T>());
      at[i] = strip * scratch.values + key - strip;
      width[i] = Vectors<T>(strip, scratch.keys) * Lanes<T>();
    }
    for (std::int64_t v = 0; v < call.sizes.value_dim; ++v) {
      visit(k, at[0] + v * width[0], at[1] + v * width[1]);
    }
    end(k);
  }
}

/// The gradient of the memory behind a block's last token, into the block's frame.
template <class T>
void EnterFrame(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  const std::int64_t half = call.sizes.key_dim / 2;
  auto rotate = [&](std::int64_t k, std::int64_t at_x, std::int64_t at_y) HWY_ATTR {
    const auto cosine = hn::Load(d, call.rotation.frame + k),
               sine = hn::Load(d, call.rotation.frame + half + k);
    const auto dx = hn::Load(d, scratch.adjoint + at_x), dy = hn::Load(d, scratch.adjoint + at_y);
    hn::Store(hn::MulAdd(sine, dy, hn::Mul(cosine, dx)), d, scratch.adjoint + at_x);
    hn::Store(hn::NegMulAdd(sine, dx, hn::Mul(cosine, dy)), d, scratch.adjoint + at_y);
  };
  ForPairs(call, scratch, rotate, [](std::int64_t) {});
}

/// FrameRotation::d_angle of a memory and its gradient. A number without a gradient need not be
/// finite.
template <class T>
void AngleGradient(const GradientCall<T>& call, const Scratch<T>& scratch, const T* memory) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  auto add = [&](std::int64_t, std::int64_t at_x, std::int64_t at_y) HWY_ATTR {
    const auto dx = hn::Load(d, scratch.adjoint + at_x), dy = hn::Load(d, scratch.adjoint + at_y);
    const auto by_x = hn::Mul(hn::Load(d, memory + at_y), dx);
    const auto by_y = hn::Mul(hn::Load(d, memory + at_x), dy);
    sum = hn::Add(sum, hn::IfThenZeroElse(hn::Eq(dy, hn::Zero(d)), by_y));
    sum = hn::Sub(sum, hn::IfThenZeroElse(hn::Eq(dx, hn::Zero(d)), by_x));
  };
  auto store = [&](std::int64_t k) HWY_ATTR {
    hn::Store(sum, d, call.rotation.d_angle + k);
    sum = hn::Zero(d);
  };
  ForPairs(call, scratch, add, store);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_ROTATION_INL_H_
