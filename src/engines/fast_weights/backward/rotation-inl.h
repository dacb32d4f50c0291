// Complex decays as real ones, for the backward pass. With P_t the sum of a channel's phases from
// the beginning of the block up to token t, and seen from a frame that rotates with it, H_t = e^{-i
// P_t} h_t, a memory that rotates is twice the channels of one that does not:
//
//     h_t = g e^{i p} h' + k^T v,  y = q Re h
//     [Re H, Im H] = [g, g] (.) [Re H', Im H'] + [k cos P, -k sin P]^T v
//     y = [q cos P, -q sin P] [Re H, Im H]              read before: cos and sin of P_{t-1}
//
// The memory behind a block and its gradient rotate by the block's P (adjoint/rotation-inl.h): the
// next block has a frame of its own. A channel that forgets begins a new one with its token, P = 0.
// The phase p_t rotates all frames from t on, and
//
//     dL/dP_t = dk'_cos k'_sin - dk'_sin k'_cos + the same of the queries,   dL/dp_t = sum_{s >= t}
//
// whose terms mostly cancel: the sum, too, begins anew with every block, from what the memory
// behind the block and its gradient say of it (FrameRotation::d_angle). Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_ROTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_ROTATION_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_ROTATION_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_ROTATION_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/rows.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Cosines and sines of a vector of channels' angles.
template <class D>
struct Angle {
  using V = hn::Vec<D>;
  V cosine, sine;

  /// The two together, of length 1 as they may no longer be after many.
  HWY_INLINE Angle Plus(const Angle& other) const {
    const D d;
    const V c = hn::NegMulAdd(sine, other.sine, hn::Mul(cosine, other.cosine));
    const V s = hn::MulAdd(sine, other.cosine, hn::Mul(cosine, other.sine));
    const V square = hn::MulAdd(c, c, hn::Mul(s, s));
    const V factor =
        hn::NegMulAdd(hn::Set(d, hn::TFromD<D>(0.5)), square, hn::Set(d, hn::TFromD<D>(1.5)));
    return {hn::Mul(factor, c), hn::Mul(factor, s)};
  }

  /// row[k], row[k + half] = cosine row[k], -sine row[k].
  HWY_INLINE void Double(std::int64_t half, hn::TFromD<D>* row) const {
    const D d;
    const V x = hn::Load(d, row);
    hn::Store(hn::Mul(cosine, x), d, row);
    hn::Store(hn::Neg(hn::Mul(sine, x)), d, row + half);
  }

  /// The transpose of Double(): row[k] = cosine row[k] - sine row[k + half], and 0 behind it.
  HWY_INLINE void Halve(std::int64_t half, hn::TFromD<D>* row) const {
    const D d;
    const V along = hn::Mul(cosine, hn::Load(d, row));
    hn::Store(hn::NegMulAdd(sine, hn::Load(d, row + half), along), d, row);
    hn::Store(hn::Zero(d), d, row + half);
  }
};

/// Rows r .. r + count of the block, as they were gathered, doubled; rows.rotation.cosines and
/// rows.rotation.sines, of the tokens' own phases until then, become those of the frames. Channels
/// beyond `dim` forget.
template <class T>
void RotateRows(bool read_before, bool queries, std::int64_t dim, std::int64_t r,
                std::int64_t count, BackwardRows<T>& rows) {
  const hn::ScalableTag<T> d;
  using A = Angle<hn::ScalableTag<T>>;
  const std::int64_t stride = rows.key_stride, half = stride / 2;
  for (std::int64_t at = r * stride; at < (r + count) * stride; at += stride) {
    for (std::int64_t k = 0; k < half; k += static_cast<std::int64_t>(hn::Lanes(d))) {
      T *const cosine = rows.rotation.frame + k, *const sine = rows.rotation.frame + half + k;
      T *const own_cosine = rows.rotation.cosines + at + k, *const own_sine =
                                                                rows.rotation.sines + at + k;
      const A before{hn::Load(d, cosine), hn::Load(d, sine)};
      A after = before.Plus({hn::Load(d, own_cosine), hn::Load(d, own_sine)});
      const auto there =
          hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(dim - k, 0)));
      const auto gate = hn::IfThenElseZero(there, hn::Load(d, rows.gates + at + k));
      const auto forgets = hn::Eq(gate, hn::Zero(d));
      after.cosine = hn::IfThenElse(forgets, hn::Set(d, T(1)), after.cosine);
      after.sine = hn::IfThenZeroElse(forgets, after.sine);
      for (T* const to : {cosine, own_cosine}) hn::Store(after.cosine, d, to);
      for (T* const to : {sine, own_sine}) hn::Store(after.sine, d, to);
      for (const std::int64_t to : {at + k, at + half + k}) hn::Store(gate, d, rows.gates + to);
      after.Double(half, rows.write + at + k);
      for (std::int64_t q = 0; queries && q < rows.queries; ++q) {
        (read_before ? before : after).Double(half, rows.query + q * rows.rows * stride + at + k);
      }
    }
  }
}

/// dL/dP of a doubled row x by its gradient.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> ByAngle(D d, const T* x, const T* dx, std::int64_t half) {
  const auto across = hn::Mul(hn::Load(d, dx + half), hn::Load(d, x));
  return hn::MulSub(hn::Load(d, dx), hn::Load(d, x + half), across);
}

/// Row r of the block and its gradients as if nothing had been doubled, and d_phase; from the last
/// row to the first.
template <class T>
void RotateRowBack(bool read_before, std::int64_t r, BackwardRows<T>& rows) {
  const hn::ScalableTag<T> d;
  using A = Angle<hn::ScalableTag<T>>;
  const std::int64_t stride = rows.key_stride, half = stride / 2, at = r * stride;
  for (std::int64_t k = 0; k < half; k += static_cast<std::int64_t>(hn::Lanes(d))) {
    const A after{hn::Load(d, rows.rotation.cosines + at + k),
                  hn::Load(d, rows.rotation.sines + at + k)};
    A read = after;
    if (read_before) {
      const std::int64_t before = at - stride + k;
      read = r == 0 ? A{hn::Set(d, T(1)), hn::Zero(d)}
                    : A{hn::Load(d, rows.rotation.cosines + before),
                        hn::Load(d, rows.rotation.sines + before)};
    }
    auto by_queries = hn::Zero(d);
    for (std::int64_t q = 0; q < rows.queries; ++q) {
      const std::int64_t place = q * rows.rows * stride + at + k;
      T *const query = rows.query + place, *const d_query = rows.d.query + place;
      by_queries = hn::Add(by_queries, ByAngle(d, query, d_query, half));
      read.Halve(half, query);
      read.Halve(half, d_query);
    }
    T *const key = rows.write + at + k, *const d_key = rows.d.write + at + k;
    auto angle = hn::Add(hn::Load(d, rows.rotation.d_angle + k), ByAngle(d, key, d_key, half));
    after.Halve(half, key);
    after.Halve(half, d_key);
    if (!read_before) angle = hn::Add(angle, by_queries);
    const auto forgets = hn::Eq(hn::Load(d, rows.gates + at + k), hn::Zero(d));
    angle = hn::IfThenZeroElse(forgets, angle);
    hn::Store(angle, d, rows.d_phase + at + k);
    if (read_before) angle = hn::Add(angle, by_queries);
    hn::Store(angle, d, rows.rotation.d_angle + k);
    T* const d_log_decay = rows.d.gates + at + k;
    hn::Store(hn::Add(hn::Load(d, d_log_decay), hn::Load(d, d_log_decay + half)), d, d_log_decay);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_ROTATION_INL_H_
