// A token of a complex memory M + i N, forwards and backwards, for a few value columns. Names as in
// gradient_paired.h; A and B are the adjoints of M and N, C = g cos p and S = g sin p. Backwards,
// with the turned memory M~ = C M' - S N', N~ = S M' + C N':
//
//     A += q^T dy
//     du = w A,  dw += u A^T,  dv = b du,  db = v du
//     dlog g = M~ . A + N~ . B,  dp = M~ . B - N~ . A
//     A' = C A + S B,  B' = C B - S A
//
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_TURN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_TURN_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_TURN_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_TURN_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_paired_layout.h"
#include "src/engines/fast_weights/gradient_reads-inl.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// How a vector of channels turns.
template <class D>
struct Turning {
  hn::Vec<D> cosine, sine;
  hn::Mask<D> forgets;

  HWY_INLINE Turning(D d, const hn::TFromD<D>* cosines, const hn::TFromD<D>* sines)
      : cosine(hn::Load(d, cosines)),
        sine(hn::Load(d, sines)),
        forgets(hn::And(hn::Eq(cosine, hn::Zero(d)), hn::Eq(sine, hn::Zero(d)))) {}

  /// re, im = C re - S im, S re + C im.
  HWY_INLINE void Forwards(hn::Vec<D>& re, hn::Vec<D>& im) const {
    const auto turned = hn::NegMulAdd(sine, im, hn::Mul(cosine, re));
    im = hn::IfThenZeroElse(forgets, hn::MulAdd(sine, re, hn::Mul(cosine, im)));
    re = hn::IfThenZeroElse(forgets, turned);
  }

  /// The same by the angle's opposite.
  HWY_INLINE void Backwards(hn::Vec<D>& re, hn::Vec<D>& im) const {
    const auto turned = hn::MulAdd(sine, im, hn::Mul(cosine, re));
    im = hn::IfThenZeroElse(forgets, hn::NegMulAdd(sine, re, hn::Mul(cosine, im)));
    re = hn::IfThenZeroElse(forgets, turned);
  }
};

/// The memory after a token from that before it, which may be the same.
template <class T>
HWY_INLINE void StepTurn(const PairedCall<T>& call, const PairedToken& at,
                         const PairedScratch<T>& scratch, const T* from, T* to) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  const std::int64_t keys = scratch.keys;
  const T* const write = call.write.data + at.t * call.write.stride;
  const T* const value = call.value.data + at.t * call.value.stride + at.column;
  const T* const cosines = call.cosines.data + at.t * call.cosines.stride;
  const T* const sines = call.sines.data + at.t * call.sines.stride;
  hn::Vec<decltype(d)> updates[kPairedColumns];
  TTR_UNROLL
  for (int c = 0; c < kPairedColumns; ++c) updates[c] = hn::Set(d, call.step[at.t] * value[c]);
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    const Turning turning(d, cosines + k, sines + k);
    const auto w = hn::Load(d, write + k);
    TTR_UNROLL
    for (int c = 0; c < kPairedColumns; ++c) {
      const std::int64_t x = k * kPairedColumns + c * kLanes;
      auto re = hn::Load(d, from + x), im = hn::Load(d, from + scratch.part + x);
      turning.Forwards(re, im);
      hn::Store(hn::MulAdd(updates[c], w, re), d, to + x);
      hn::Store(im, d, to + scratch.part + x);
    }
  }
}

/// dv and db, and what the bonus adds to dv and gets from it. `by_update`: du.
template <class T>
HWY_INLINE void UnwriteValue(const PairedCall<T>& call, const PairedToken& at, const T* by_update) {
  const T* const value = call.value.data + at.t * call.value.stride + at.column;
  T* const d_value = call.d_value.data + at.t * call.d_value.stride + at.column;
  for (int c = 0; c < kPairedColumns; ++c) {
    d_value[c] = call.step[at.t] * by_update[c];
    call.d_step[at.t] += value[c] * by_update[c];
  }
  for (std::int64_t p = 0; call.bonus && p < call.sizes.queries; ++p) {
    const T bonus = call.bonus.data[p * call.bonus.head_stride + at.t * call.bonus.stride];
    T& d_bonus = call.d_bonus.data[p * call.d_bonus.head_stride + at.t * call.d_bonus.stride];
    const T* const dy = call.d_output.data + p * call.d_output.head_stride +
                        at.t * call.d_output.stride + at.column;
    for (int c = 0; c < kPairedColumns; ++c) {
      d_value[c] += bonus * dy[c];
      d_bonus += value[c] * dy[c];
    }
  }
}

/// From the adjoint after a token to that before it; adds to the gradients of the token's inputs.
template <class T>
HWY_INLINE void UnstepTurn(const PairedCall<T>& call, const PairedToken& at,
                           const PairedScratch<T>& scratch, const T* before, const T* after) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  const std::int64_t keys = scratch.keys;
  const T* const write = call.write.data + at.t * call.write.stride;
  const T* const value = call.value.data + at.t * call.value.stride + at.column;
  const T* const cosines = call.cosines.data + at.t * call.cosines.stride;
  const T* const sines = call.sines.data + at.t * call.sines.stride;
  T* const d_write = call.d_write.data + at.t * call.d_write.stride;
  T* const d_log_decay = call.d_log_decay.data + at.t * call.d_log_decay.stride;
  T* const d_phase = call.d_phase.data + at.t * call.d_phase.stride;
  if (!call.read_before) Unread(call, at, scratch, after);
  hn::Vec<decltype(d)> sums[kPairedColumns], updates[kPairedColumns];
  TTR_UNROLL
  for (int c = 0; c < kPairedColumns; ++c) {
    sums[c] = hn::Zero(d);
    updates[c] = hn::Set(d, call.step[at.t] * value[c]);
  }
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    const Turning turning(d, cosines + k, sines + k);
    const auto w = hn::Load(d, write + k);
    auto by_write = hn::Load(d, d_write + k);
    auto by_decay = hn::Zero(d), by_phase = hn::Zero(d);
    TTR_UNROLL
    for (int c = 0; c < kPairedColumns; ++c) {
      const std::int64_t x = k * kPairedColumns + c * kLanes;
      auto re = hn::Load(d, before + x), im = hn::Load(d, before + scratch.part + x);
      turning.Forwards(re, im);
      auto of_re = hn::Load(d, scratch.adjoint + x);
      auto of_im = hn::Load(d, scratch.adjoint + scratch.part + x);
      sums[c] = hn::MulAdd(of_re, w, sums[c]);
      by_write = hn::MulAdd(updates[c], of_re, by_write);
      by_decay = hn::MulAdd(re, of_re, hn::MulAdd(im, of_im, by_decay));
      by_phase = hn::MulAdd(re, of_im, hn::NegMulAdd(im, of_re, by_phase));
      turning.Backwards(of_re, of_im);
      hn::Store(of_re, d, scratch.adjoint + x);
      hn::Store(of_im, d, scratch.adjoint + scratch.part + x);
    }
    hn::Store(by_write, d, d_write + k);
    // Zero times an adjoint that is not finite would not be zero.
    by_decay = hn::IfThenZeroElse(turning.forgets, by_decay);
    by_phase = hn::IfThenZeroElse(turning.forgets, by_phase);
    hn::Store(hn::Add(hn::Load(d, d_log_decay + k), by_decay), d, d_log_decay + k);
    hn::Store(hn::Add(hn::Load(d, d_phase + k), by_phase), d, d_phase + k);
  }
  T by_update[kPairedColumns];
  TTR_UNROLL
  for (int c = 0; c < kPairedColumns; ++c) {
    by_update[c] = hn::GetLane(hn::SumOfLanes(d, sums[c]));
  }
  UnwriteValue(call, at, by_update);
  if (call.read_before) Unread(call, at, scratch, before);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_TURN_INL_H_
