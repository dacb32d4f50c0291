// The parts of the short convolution: its window of inputs, its weights, one or a few outputs.
// Compiled once for every target.

#if defined(TTR_ROWS_CONV_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_CONV_ROWS_INL_H_
#undef TTR_ROWS_CONV_ROWS_INL_H_
#else
#define TTR_ROWS_CONV_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/rows/conv_columns-inl.h"
#include "src/engines/rows/row_access-inl.h"
#include "src/engines/rows/short_conv_kernel.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// The weights of step j at data + j * stride, in T.
template <class T>
struct ConvWeights {
  const T* data;
  std::int64_t stride;
};

/// Weights of channels begin .. begin + count: in place, if they are of type T, else in `scratch`
/// (`width` times `count` numbers).
template <class T>
ConvWeights<T> WeightsOf(const ConvTask& task, std::int64_t begin, std::int64_t count, T* scratch) {
  const ConvColumns& weight = task.weight;
  if (weight.dtype == DTypeOf<T>() && weight.channel_stride == 1) {
    return {static_cast<const T*>(weight.data) + begin, weight.row_stride};
  }
  LoadColumns(weight, begin, count, scratch);
  return {scratch, count};
}

/// Inputs of a sequence by their token, -(W - 1) .. T - 1, in T. Rows of another type are converted
/// once, into a ring of `slots` rows; those before the first token have rows of their own.
template <class T>
class Window {
 public:
  static std::int64_t Numbers(std::int64_t dim, std::int64_t width, std::int64_t slots) {
    return (width - 1 + slots) * dim;
  }

  /// Inputs of tokens from `first` on (-(W - 1) at the least).
  Window(const ConvTask& task, std::int64_t first, std::int64_t slots, T* scratch)
      : task_(task),
        before_(scratch),
        ring_(scratch + (task.width - 1) * task.dim),
        slots_(slots),
        converted_(std::max<std::int64_t>(first, 0)),
        in_place_(task.x.dtype == DTypeOf<T>()) {
    if (first >= 0) return;
    const std::int64_t before = task.width - 1;
    if (task.state) {
      LoadColumns(task.state.Rows(task.state.rows - before, before), 0, task.dim, before_);
    } else {
      std::fill(before_, before_ + before * task.dim, T(0));
    }
  }

  /// Makes tokens up to `end` ready; of the converted ones the last `slots` stay.
  HWY_INLINE void Advance(std::int64_t end) {
    if (in_place_) return;
    for (; converted_ < end; ++converted_) {
      sn::LoadRow(task_.x, converted_, 0, task_.dim, ring_ + converted_ % slots_ * task_.dim);
    }
  }

  HWY_INLINE const T* Row(std::int64_t t) const {
    if (t < 0) return before_ + (t + task_.width - 1) * task_.dim;
    if (in_place_) return static_cast<const T*>(task_.x.data) + t * task_.x.stride;
    return ring_ + t % slots_ * task_.dim;
  }

 private:
  const ConvTask& task_;
  T* before_;
  T* ring_;
  std::int64_t slots_;
  std::int64_t converted_;
  bool in_place_;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V z) {
  const auto one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(z, hn::Add(one, sn::Exp(d, hn::Neg(z))));
}

/// Pointers to the rows of inputs that K outputs read.
template <class T, int K>
using InputRows = const T * [kMaxConvWidth + K - 1];

/// K outputs of `width` + K - 1 rows of inputs, channel by channel: out[k] = b + sum_j w_j x[k +
/// j].
template <int K, class T>
HWY_INLINE void ConvolveRows(std::int64_t width, ConvWeights<T> weights, const T* bias,
                             const InputRows<T, K>& x, std::int64_t dim, bool silu, T* const* out) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto channels = [&](std::int64_t c, const auto& load, const auto& store) HWY_ATTR {
    V sums[K], rows[K];
    const V start = bias == nullptr ? hn::Zero(d) : load(bias + c);
    TTR_UNROLL
    for (int k = 0; k < K; ++k) sums[k] = start;
    TTR_UNROLL
    for (int k = 0; k + 1 < K; ++k) rows[k + 1] = load(x[k] + c);
    for (std::int64_t j = 0; j < width; ++j) {
      TTR_UNROLL
      for (int k = 0; k + 1 < K; ++k) rows[k] = rows[k + 1];
      rows[K - 1] = load(x[j + K - 1] + c);
      const V w = load(weights.data + j * weights.stride + c);
      TTR_UNROLL
      for (int k = 0; k < K; ++k) sums[k] = hn::MulAdd(w, rows[k], sums[k]);
    }
    TTR_UNROLL
    for (int k = 0; k < K; ++k) store(silu ? Silu(d, sums[k]) : sums[k], out[k] + c);
  };
  std::int64_t c = 0;
  for (; c + lanes <= dim; c += lanes) {
    channels(
        c, [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); },
        [&](V v, T* p) HWY_ATTR { hn::StoreU(v, d, p); });
  }
  if (c < dim) {
    channels(
        c, [&](const T* p) HWY_ATTR { return sn::LoadSome(d, p, dim - c); },
        [&](V v, T* p) HWY_ATTR { sn::StoreSome(v, d, p, dim - c); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_CONV_ROWS_INL_H_
