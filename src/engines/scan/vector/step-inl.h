// One token of a vector memory, forwards and backwards. Compiled once for every target.

#if defined(TTR_SCAN_VECTOR_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_VECTOR_STEP_INL_H_
#undef TTR_SCAN_VECTOR_STEP_INL_H_
#else
#define TTR_SCAN_VECTOR_STEP_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/scan/vector/task.h"
#include "src/simd/decay-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/sincos-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Numbers from the rows of one token to those of the next one.
struct Strides {
  std::int64_t v, v_im, log_decay, phase, y, state;
};

/// A piece of one token's rows, or of several tokens', in the arithmetic's type T; values and
/// outputs in V, which may be bfloat16. What is absent is null.
template <class T, class V = T>
struct Piece {
  const V *v, *v_im;
  const T *log_decay, *phase;
  const T *re, *im;    // before the token
  T *re_out, *im_out;  // after it; may be the same
  V* y;
  bool streams;         // y past the caches?
  T gate, weight;       // of the whole token; the gate counts where log_decay is null
  std::int64_t tokens;  // with the same gate and weight
  bool follows;         // does another token come after them?
  // Are the rows of the token that comes next fetched meanwhile? A gate that rotates is so long a
  // calculation that hardware does not see far enough beyond it.
  bool fetches;
  Strides next;

  /// Channels i of the next token towards the second-level cache.
  HWY_INLINE void Fetch(std::int64_t i) const {
    if (!fetches) return;
    __builtin_prefetch(v + i + next.v, 0, 2);
    __builtin_prefetch(log_decay + i + next.log_decay, 0, 2);
    __builtin_prefetch(phase + i + next.phase, 0, 2);
    if (v_im != nullptr) __builtin_prefetch(v_im + i + next.v_im, 0, 2);
    if (y != nullptr && !streams) __builtin_prefetch(y + i + next.y, 0, 2);
  }

  /// Moves to the next token.
  HWY_INLINE void Advance() {
    v += next.v;
    if (v_im != nullptr) v_im += next.v_im;
    if (log_decay != nullptr) log_decay += next.log_decay;
    if (phase != nullptr) phase += next.phase;
    if (y != nullptr) y += next.y;
    re += next.state;
    re_out += next.state;
    if (im == nullptr) return;
    im += next.state;
    im_out += next.state;
  }
};

/// The decay of one vector of channels and what its value is multiplied by.
template <Weight WEIGHT, bool CHANNEL, class D, class V, class T = hn::TFromD<D>>
HWY_INLINE sn::Decay<D> DecayAt(D d, const Piece<T, V>& piece, std::int64_t i, hn::Vec<D>& weight) {
  weight = hn::Set(d, piece.weight);
  if constexpr (!CHANNEL) {
    const auto gate = hn::Set(d, piece.gate);
    return {gate, hn::Eq(gate, hn::Zero(d))};
  } else {
    hn::Vec<D> complement;
    const auto decay = sn::ExpDecay(d, hn::LoadU(d, piece.log_decay + i), complement);
    if constexpr (WEIGHT == Weight::kComplement) weight = complement;
    if constexpr (WEIGHT == Weight::kRootComplement) {
      // 1 - g^2 = (1 - g) (1 + g)
      weight = hn::Sqrt(hn::MulAdd(complement, decay.factor, complement));
    }
    return decay;
  }
}

/// Values under a gate of exactly 0, which takes nothing, not even NaN: 0 where they are not
/// finite. (An importance of all channels is looked at before a call.)
template <Weight WEIGHT, class D, class V = hn::Vec<D>>
HWY_INLINE V Taken(D d, V weight, V v) {
  if constexpr (WEIGHT == Weight::kOne) return v;
  const auto nothing = hn::AndNot(hn::IsFinite(v), hn::Eq(weight, hn::Zero(d)));
  return hn::IfThenZeroElse(nothing, v);
}

/// weight (.) v, where a gate of exactly 0 takes nothing.
template <Weight WEIGHT, class D, class V = hn::Vec<D>>
HWY_INLINE V Written(D d, V weight, V v) {
  const V written = hn::Mul(weight, v);
  if constexpr (WEIGHT == Weight::kOne) return written;
  return hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), written);
}

/// The gradient of log_decay, from that beside the weight and from that of the weight.
template <Weight WEIGHT, class D, class V = hn::Vec<D>>
HWY_INLINE V WeightSlope(D d, const sn::Decay<D>& decay, V weight, V dweight, V dlog) {
  if constexpr (WEIGHT == Weight::kComplement) return hn::NegMulAdd(decay.factor, dweight, dlog);
  if constexpr (WEIGHT == Weight::kRootComplement) {
    // w = sqrt(1 - g^2), dw / d log g = -g^2 / w
    const auto slope = hn::Div(hn::Mul(decay.factor, decay.factor), weight);
    const auto finite = hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), slope);
    return hn::NegMulAdd(finite, dweight, dlog);
  }
  return dlog;
}

/// One vector of channels of one token. `before`: the mask of the lanes that are read before they
/// are written, all or none.
template <Weight WEIGHT, bool CHANNEL, bool COMPLEX, class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void StepVector(D d, const Piece<T, V>& piece, hn::Vec<D> scale, hn::Vec<D> before,
                           std::int64_t i) {
  if constexpr (COMPLEX) piece.Fetch(i);
  hn::Vec<D> weight;
  const auto decay = DecayAt<WEIGHT, CHANNEL>(d, piece, i, weight);
  const auto old = hn::LoadU(d, piece.re + i);
  // What is written is ready before the state is: from token to token waits one operation.
  const auto written = Written<WEIGHT>(d, weight, sn::LoadWide(d, piece.v + i));
  auto now = old;
  if constexpr (COMPLEX) {
    hn::Vec<D> sine, cosine;
    sn::SinCos(d, hn::LoadU(d, piece.phase + i), sine, cosine);
    const auto real = sn::Fade(decay, old);
    const auto imaginary = sn::Fade(decay, hn::LoadU(d, piece.im + i));
    auto rotated = hn::MulAdd(sine, real, hn::Mul(cosine, imaginary));
    if (piece.v_im != nullptr) {
      rotated = hn::Add(Written<WEIGHT>(d, weight, sn::LoadWide(d, piece.v_im + i)), rotated);
    }
    hn::StoreU(rotated, d, piece.im_out + i);
    now = hn::NegMulAdd(sine, imaginary, hn::MulAdd(cosine, real, written));
  } else {
    now = sn::FadeAdd(decay, old, written);
  }
  hn::StoreU(now, d, piece.re_out + i);
  if (piece.y == nullptr) return;
  // Chosen in registers: a compiler would store both and load one.
  const auto y = hn::Mul(scale, hn::IfThenElse(hn::MaskFromVec(before), old, now));
  if constexpr (std::is_same_v<T, V>) {
    if (piece.streams) return hn::Stream(y, d, piece.y + i);
  }
  sn::StoreNarrow(d, y, piece.y + i);
}

/// All tokens of a piece on `count` channels, rounded up to vectors. A function of its own: among
/// the others a compiler keeps constants of all of them on the stack.
template <Weight WEIGHT, bool CHANNEL, bool COMPLEX, class T, class V>
HWY_NOINLINE void StepPiece(const Options& options, const Piece<T, V>& first, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, static_cast<T>(options.scale));
  const auto before =
      hn::VecFromMask(d, hn::Eq(hn::Set(d, T(options.read_before ? 1 : 0)), hn::Set(d, T(1))));
  Piece<T, V> piece = first;
  for (std::int64_t t = 0; t < first.tokens; ++t) {
    if (t > 0) piece.Advance();
    piece.fetches = first.fetches && (t + 1 < first.tokens || first.follows);
    for (std::int64_t i = 0; i < count; i += hn::MaxLanes(hn::ScalableTag<T>())) {
      StepVector<WEIGHT, CHANNEL, COMPLEX>(d, piece, scale, before, i);
    }
  }
}

/// A piece of the gradients of one token; never null, but for the imaginary parts of a real memory.
template <class T>
struct GradientPiece {
  const T* dy;
  T *dv, *dv_im, *dlog_decay, *dphase;
  T *dre, *dim;  // in: of the state after the token; out: before it
};

/// What a token's one gate (where there is no decay a channel) and its importance get from these
/// channels: numbers, or vectors that are still to be summed.
template <class V>
struct GateSums {
  V gate, importance;
};

/// One vector of channels of one token backwards; `piece` has the state before it.
template <Weight WEIGHT, bool CHANNEL, bool COMPLEX, class D, class T = hn::TFromD<D>>
HWY_INLINE void BackVector(D d, const Options& options, const Piece<T>& piece,
                           const GradientPiece<T>& out, std::int64_t i, hn::Vec<D> scale,
                           GateSums<hn::Vec<D>>& sums) {
  using V = hn::Vec<D>;
  V weight;
  const auto decay = DecayAt<WEIGHT, CHANNEL>(d, piece, i, weight);
  const auto dy = hn::Mul(scale, hn::LoadU(d, out.dy + i));
  auto dre = hn::LoadU(d, out.dre + i);
  if (!options.read_before) dre = hn::Add(dre, dy);
  auto faded = sn::Fade(decay, hn::LoadU(d, piece.re + i));
  auto dweight = hn::Mul(dre, Taken<WEIGHT>(d, weight, hn::LoadU(d, piece.v + i)));
  V dlog, before;
  if constexpr (COMPLEX) {
    const auto dim = hn::LoadU(d, out.dim + i);
    V sine, cosine;
    sn::SinCos(d, hn::LoadU(d, piece.phase + i), sine, cosine);
    const auto imaginary = sn::Fade(decay, hn::LoadU(d, piece.im + i));
    const auto rotated = hn::MulAdd(sine, faded, hn::Mul(cosine, imaginary));
    faded = hn::NegMulAdd(sine, imaginary, hn::Mul(cosine, faded));
    if (piece.v_im != nullptr) {
      dweight = hn::MulAdd(dim, Taken<WEIGHT>(d, weight, hn::LoadU(d, piece.v_im + i)), dweight);
    }
    dlog = hn::MulAdd(dim, rotated, hn::Mul(dre, faded));
    const auto dphase = hn::NegMulAdd(dre, rotated, hn::Mul(dim, faded));
    hn::StoreU(hn::IfThenZeroElse(decay.forgets, dphase), d, out.dphase + i);
    hn::StoreU(hn::Mul(weight, dim), d, out.dv_im + i);
    before = sn::Fade(decay, hn::MulAdd(cosine, dre, hn::Mul(sine, dim)));
    const auto dim_before = hn::NegMulAdd(sine, dre, hn::Mul(cosine, dim));
    hn::StoreU(sn::Fade(decay, dim_before), d, out.dim + i);
  } else {
    dlog = hn::Mul(dre, faded);
    before = sn::Fade(decay, dre);
  }
  hn::StoreU(hn::Mul(weight, dre), d, out.dv + i);
  dlog = WeightSlope<WEIGHT>(d, decay, weight, dweight, dlog);
  dlog = hn::IfThenZeroElse(decay.forgets, dlog);
  if constexpr (CHANNEL) {
    hn::StoreU(dlog, d, out.dlog_decay + i);
  } else {
    sums.gate = hn::Add(sums.gate, dlog);
  }
  if constexpr (WEIGHT == Weight::kOne) sums.importance = hn::Add(sums.importance, dweight);
  hn::StoreU(options.read_before ? hn::Add(before, dy) : before, d, out.dre + i);
}

/// One token backwards. A function of its own as StepPiece() is.
template <Weight WEIGHT, bool CHANNEL, bool COMPLEX, class T>
HWY_NOINLINE void BackPiece(const Options& options, const Piece<T>& piece, std::int64_t count,
                            const GradientPiece<T>& out, GateSums<T>& sums) {
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, static_cast<T>(options.scale));
  GateSums<hn::Vec<decltype(d)>> vectors{hn::Zero(d), hn::Zero(d)};
  for (std::int64_t i = 0; i < count; i += hn::MaxLanes(hn::ScalableTag<T>())) {
    BackVector<WEIGHT, CHANNEL, COMPLEX>(d, options, piece, out, i, scale, vectors);
  }
  sums.gate += hn::GetLane(hn::SumOfLanes(d, vectors.gate));
  sums.importance += hn::GetLane(hn::SumOfLanes(d, vectors.importance));
}

/// Calls run(weight, is there a decay a channel?, is the memory complex?), as constants, with what
/// the rows of a piece ask for.
template <class T, class V, class Run>
HWY_INLINE void WithKind(const Options& options, const Piece<T, V>& piece, const Run& run) {
  if (piece.log_decay == nullptr) {
    return run(std::integral_constant<Weight, Weight::kOne>(), std::false_type(),
               std::false_type());
  }
  const auto by_weight = [&](auto complex) {
    const std::true_type channel;
    switch (options.weight) {
      case Weight::kOne:
        return run(std::integral_constant<Weight, Weight::kOne>(), channel, complex);
      case Weight::kComplement:
        return run(std::integral_constant<Weight, Weight::kComplement>(), channel, complex);
      case Weight::kRootComplement:
        return run(std::integral_constant<Weight, Weight::kRootComplement>(), channel, complex);
    }
  };
  if (piece.phase == nullptr) {
    by_weight(std::false_type());
  } else {
    by_weight(std::true_type());
  }
}

template <class T, class V>
HWY_INLINE void Step(const Options& options, const Piece<T, V>& piece, std::int64_t count) {
  WithKind(options, piece, [&](auto weight, auto channel, auto complex) {
    StepPiece<weight(), channel(), complex()>(options, piece, count);
  });
}

template <class T>
HWY_INLINE void StepBack(const Options& options, const Piece<T>& piece, std::int64_t count,
                         const GradientPiece<T>& out, GateSums<T>& sums) {
  WithKind(options, piece, [&](auto weight, auto channel, auto complex) {
    BackPiece<weight(), channel(), complex()>(options, piece, count, out, sums);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_VECTOR_STEP_INL_H_
