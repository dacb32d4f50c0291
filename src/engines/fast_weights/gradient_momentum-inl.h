// A token of a memory with momentum, forwards and backwards, for a few value columns. Names as in
// gradient_momentum.h; A and B are the adjoints of M and N. Backwards, with e = v - h r M':
//
//     A += q^T dy                        B += A
//     du = w B,  dw += u B^T,  db = e du
//     de = b du = dv,  dr -= h de M'^T,  dh = -r M' de
//     da = M' . A,  dm = N' . B
//     A' = a A - h r^T de,  B' = m B
//
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_MOMENTUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_MOMENTUM_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_MOMENTUM_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_MOMENTUM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_momentum_layout.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The memories after a token from those before it, which may be the same; keeps r M and errors.
template <class T>
HWY_NOINLINE void Step(const MomentumCall<T>& call, const MomentumToken& at,
                       const MomentumScratch<T>& scratch, const T* from, T* to) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  const std::int64_t keys = scratch.keys;
  const T* const erase = call.erase.data + at.t * call.erase.stride;
  const T* const write = call.write.data + at.t * call.write.stride;
  const T* const value = call.value.data + at.t * call.value.stride + at.column;
  const T seen_decay = call.erase_decay[at.t];
  const bool forgets = seen_decay == 0;
  T* const seen = scratch.seen + at.i * kMomentumColumns;
  T* const errors = scratch.errors + at.i * kMomentumColumns;
  hn::Vec<decltype(d)> sums[kMomentumColumns], updates[kMomentumColumns];
  TTR_UNROLL
  for (int c = 0; c < kMomentumColumns; ++c) sums[c] = hn::Zero(d);
  for (std::int64_t k = 0; !forgets && k < keys; k += kLanes) {
    const auto r = hn::Load(d, erase + k);
    TTR_UNROLL
    for (int c = 0; c < kMomentumColumns; ++c) {
      sums[c] = hn::MulAdd(r, hn::Load(d, from + k * kMomentumColumns + c * kLanes), sums[c]);
    }
  }
  TTR_UNROLL
  for (int c = 0; c < kMomentumColumns; ++c) {
    seen[c] = hn::GetLane(hn::SumOfLanes(d, sums[c]));
    errors[c] = value[c] - seen_decay * seen[c];
    updates[c] = hn::Set(d, call.step[at.t] * errors[c]);
  }
  const auto decay = hn::Set(d, call.decay[at.t]);
  const auto momentum = hn::Set(d, call.momentum[at.t]);
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    const auto w = hn::Load(d, write + k);
    TTR_UNROLL
    for (int c = 0; c < kMomentumColumns; ++c) {
      const std::int64_t x = k * kMomentumColumns + c * kLanes;
      const auto before = hn::Load(d, from + x);
      const auto last = hn::Mul(momentum, hn::Load(d, from + scratch.part + x));
      const auto update = hn::MulAdd(updates[c], w, last);
      hn::Store(update, d, to + scratch.part + x);
      hn::Store(forgets ? update : hn::MulAdd(decay, before, update), d, to + x);
    }
  }
}

/// The reads of a token: A += q^T dy, dq += dy M^T.
template <class T>
HWY_INLINE void Unread(const MomentumCall<T>& call, const MomentumToken& at,
                       const MomentumScratch<T>& scratch, const T* memory) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  const std::int64_t keys = scratch.keys;
  for (std::int64_t p = 0; p < call.sizes.queries; ++p) {
    const T* const query = call.query.data + p * call.query.head_stride + at.t * call.query.stride;
    T* const d_query =
        call.d_query.data + p * call.d_query.head_stride + at.t * call.d_query.stride;
    const T* const dy = call.d_output.data + p * call.d_output.head_stride +
                        at.t * call.d_output.stride + at.column;
    hn::Vec<decltype(d)> weights[kMomentumColumns];
    TTR_UNROLL
    for (int c = 0; c < kMomentumColumns; ++c) weights[c] = hn::Set(d, dy[c]);
    for (std::int64_t k = 0; k < keys; k += kLanes) {
      const auto q = hn::Load(d, query + k);
      auto by_query = hn::Load(d, d_query + k);
      TTR_UNROLL
      for (int c = 0; c < kMomentumColumns; ++c) {
        const std::int64_t x = k * kMomentumColumns + c * kLanes;
        by_query = hn::MulAdd(weights[c], hn::Load(d, memory + x), by_query);
        const auto adjoint = hn::Load(d, scratch.adjoint + x);
        hn::Store(hn::MulAdd(weights[c], q, adjoint), d, scratch.adjoint + x);
      }
      hn::Store(by_query, d, d_query + k);
    }
  }
}

/// From the adjoint after a token to that before it; adds to the gradients of the token's inputs.
template <class T>
HWY_NOINLINE void Unstep(const MomentumCall<T>& call, const MomentumToken& at,
                         const MomentumScratch<T>& scratch, const T* before, const T* after) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  const std::int64_t keys = scratch.keys;
  const T* const erase = call.erase.data + at.t * call.erase.stride;
  const T* const write = call.write.data + at.t * call.write.stride;
  T* const d_erase = call.d_erase.data + at.t * call.d_erase.stride;
  T* const d_write = call.d_write.data + at.t * call.d_write.stride;
  T* const d_value = call.d_value.data + at.t * call.d_value.stride + at.column;
  T* const memory = scratch.adjoint;
  T* const update = scratch.adjoint + scratch.part;
  const T step = call.step[at.t];
  const T seen_decay = call.erase_decay[at.t];
  const bool forgets = seen_decay == 0;
  if (!call.read_before) Unread(call, at, scratch, after);

  hn::Vec<decltype(d)> sums[kMomentumColumns];
  TTR_UNROLL
  for (int c = 0; c < kMomentumColumns; ++c) sums[c] = hn::Zero(d);
  auto d_decay = hn::Zero(d), d_momentum = hn::Zero(d);
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    const auto w = hn::Load(d, write + k);
    TTR_UNROLL
    for (int c = 0; c < kMomentumColumns; ++c) {
      const std::int64_t x = k * kMomentumColumns + c * kLanes;
      const auto of_memory = hn::Load(d, memory + x);
      const auto of_update = hn::Add(hn::Load(d, update + x), of_memory);
      hn::Store(of_update, d, update + x);
      sums[c] = hn::MulAdd(of_update, w, sums[c]);
      d_decay = hn::MulAdd(hn::Load(d, before + x), of_memory, d_decay);
      d_momentum = hn::MulAdd(hn::Load(d, before + scratch.part + x), of_update, d_momentum);
    }
  }
  call.d_momentum[at.t] += hn::GetLane(hn::SumOfLanes(d, d_momentum));
  if (!forgets) call.d_decay[at.t] += hn::GetLane(hn::SumOfLanes(d, d_decay));

  const T* const seen = scratch.seen + at.i * kMomentumColumns;
  const T* const errors = scratch.errors + at.i * kMomentumColumns;
  hn::Vec<decltype(d)> written[kMomentumColumns], erased[kMomentumColumns];
  T d_step = 0, d_seen_decay = 0;
  TTR_UNROLL
  for (int c = 0; c < kMomentumColumns; ++c) {
    const T by_update = hn::GetLane(hn::SumOfLanes(d, sums[c]));
    const T by_error = step * by_update;
    d_step += errors[c] * by_update;
    d_seen_decay -= seen[c] * by_error;
    d_value[c] = by_error;
    written[c] = hn::Set(d, step * errors[c]);
    erased[c] = hn::Set(d, -seen_decay * by_error);
  }
  call.d_step[at.t] += d_step;
  if (!forgets) call.d_erase_decay[at.t] += d_seen_decay;

  const auto decay = hn::Set(d, call.decay[at.t]);
  const auto momentum = hn::Set(d, call.momentum[at.t]);
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    const auto r = hn::Load(d, erase + k);
    auto by_write = hn::Load(d, d_write + k);
    auto by_erase = hn::Load(d, d_erase + k);
    TTR_UNROLL
    for (int c = 0; c < kMomentumColumns; ++c) {
      const std::int64_t x = k * kMomentumColumns + c * kLanes;
      const auto of_update = hn::Load(d, update + x);
      by_write = hn::MulAdd(written[c], of_update, by_write);
      hn::Store(hn::Mul(momentum, of_update), d, update + x);
      if (forgets) {
        hn::Store(hn::Zero(d), d, memory + x);
      } else {
        by_erase = hn::MulAdd(erased[c], hn::Load(d, before + x), by_erase);
        const auto decayed = hn::Mul(decay, hn::Load(d, memory + x));
        hn::Store(hn::MulAdd(erased[c], r, decayed), d, memory + x);
      }
    }
    hn::Store(by_write, d, d_write + k);
    hn::Store(by_erase, d, d_erase + k);
  }
  if (call.read_before) Unread(call, at, scratch, before);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_MOMENTUM_INL_H_
