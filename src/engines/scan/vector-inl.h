// A vector memory through its tokens: every row is read or written once, from its beginning to its
// end, and the state stays in the caches. Compiled once for every target.

#if defined(TTR_SCAN_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_VECTOR_INL_H_
#undef TTR_SCAN_VECTOR_INL_H_
#else
#define TTR_SCAN_VECTOR_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/scan/layout.h"
#include "src/engines/scan/norm-inl.h"
#include "src/simd/decay-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/sincos-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A piece of one token's rows, or of several tokens', in the arithmetic's type T; values and
/// answers in V, which may be bfloat16. What is absent is null.
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
  bool follows;         // does another token come behind them?
  // To the rows of the token that comes next, which are fetched meanwhile if they lie so. A gate
  // that turns is so long a calculation that hardware does not see far enough beyond it.
  bool fetches;
  std::int64_t v_next, v_im_next, log_decay_next, phase_next, y_next, state_next;

  /// Channels i of the next token towards the second-level cache.
  HWY_INLINE void Fetch(std::int64_t i) const {
    if (!fetches) return;
    __builtin_prefetch(v + i + v_next, 0, 2);
    __builtin_prefetch(log_decay + i + log_decay_next, 0, 2);
    __builtin_prefetch(phase + i + phase_next, 0, 2);
    if (v_im != nullptr) __builtin_prefetch(v_im + i + v_im_next, 0, 2);
    if (y != nullptr && !streams) __builtin_prefetch(y + i + y_next, 0, 2);
  }

  /// To the next token.
  HWY_INLINE void Advance() {
    v += v_next;
    if (v_im != nullptr) v_im += v_im_next;
    if (log_decay != nullptr) log_decay += log_decay_next;
    if (phase != nullptr) phase += phase_next;
    if (y != nullptr) y += y_next;
    re += state_next;
    re_out += state_next;
    if (im == nullptr) return;
    im += state_next;
    im_out += state_next;
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

/// One vector of channels of one token. `before`: the mask of the lanes that are read before they
/// are written, all or none.
template <Weight WEIGHT, bool CHANNEL, bool COMPLEX, class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void StepVector(D d, const Piece<T, V>& piece, hn::Vec<D> scale, hn::Vec<D> before,
                           std::int64_t i) {
  if constexpr (COMPLEX) piece.Fetch(i);
  hn::Vec<D> weight;
  const auto decay = DecayAt<WEIGHT, CHANNEL>(d, piece, i, weight);
  const auto old = hn::LoadU(d, piece.re + i);
  auto now = sn::Fade(decay, old);
  if constexpr (COMPLEX) {
    hn::Vec<D> sine, cosine;
    sn::SinCos(d, hn::LoadU(d, piece.phase + i), sine, cosine);
    const auto imaginary = sn::Fade(decay, hn::LoadU(d, piece.im + i));
    auto turned = hn::MulAdd(sine, now, hn::Mul(cosine, imaginary));
    now = hn::NegMulAdd(sine, imaginary, hn::Mul(cosine, now));
    if (piece.v_im != nullptr) {
      turned = hn::MulAdd(weight, sn::LoadWide(d, piece.v_im + i), turned);
    }
    hn::StoreU(turned, d, piece.im_out + i);
  }
  now = hn::MulAdd(weight, sn::LoadWide(d, piece.v + i), now);
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

/// Which of the kernels a memory takes.
template <class T, class V>
HWY_INLINE void Step(const Options& options, const Piece<T, V>& piece, std::int64_t count) {
  const auto by_weight = [&](auto complex) {
    constexpr bool kComplex = decltype(complex)::value;
    switch (options.weight) {
      case Weight::kOne: return StepPiece<Weight::kOne, true, kComplex>(options, piece, count);
      case Weight::kComplement:
        return StepPiece<Weight::kComplement, true, kComplex>(options, piece, count);
      case Weight::kRootComplement:
        return StepPiece<Weight::kRootComplement, true, kComplex>(options, piece, count);
    }
  };
  if (piece.log_decay == nullptr) {
    StepPiece<Weight::kOne, false, false>(options, piece, count);
  } else if (piece.phase == nullptr) {
    by_weight(std::false_type());
  } else {
    by_weight(std::true_type());
  }
}

/// Channels begin .. begin + count of token t's row: where it lies if it can be used there, else a
/// copy in T, with zeros up to a whole vector. Null where there are no rows.
template <class T>
HWY_INLINE const T* Channels(const Rows& rows, std::int64_t t, std::int64_t begin,
                             std::int64_t count, bool whole_vectors, T* copy) {
  if (!rows) return nullptr;
  if (whole_vectors && rows.dtype == DTypeOf<T>()) {
    return static_cast<const T*>(rows.data) + t * rows.stride + begin;
  }
  sn::LoadRow(rows, t, begin, count, copy);
  if (!whole_vectors) {
    std::fill(copy + count, copy + RoundUp(count, hn::MaxLanes(hn::ScalableTag<T>())), T(0));
  }
  return copy;
}

/// exp(x) of a token's one gate; exactly 0 where forgotten.
template <class T>
T GateOf(const Vector& memory, std::int64_t t) {
  if (!memory.gate) return static_cast<T>(memory.decay_factor);
  return std::exp(sn::LoadOne<T>(memory.gate, t));
}

/// Leaves the state before token t where it is kept, if it is.
template <class T>
HWY_INLINE void Keep(const Vector& memory, std::int64_t t, const T* re, const T* im) {
  if (memory.saved_re == nullptr || t == 0 || t % kCheckpoint != 0) return;
  const std::int64_t at = (t / kCheckpoint - 1) * memory.saved_stride;
  std::copy(re, re + memory.channels, static_cast<T*>(memory.saved_re) + at);
  if (im != nullptr) std::copy(im, im + memory.channels, static_cast<T*>(memory.saved_im) + at);
}

/// Are rows, if any, read and written where they lie?
template <class T, class... R>
HWY_INLINE bool Lie(const R&... rows) {
  return ((!rows || rows.dtype == DTypeOf<T>()) && ...);
}

/// Are all rows read and written where they lie: whole vectors, values and answers of V?
template <class T, class V>
HWY_INLINE bool AllLie(const Options& options, const Vector& memory) {
  return memory.channels % hn::MaxLanes(hn::ScalableTag<T>()) == 0 &&
         options.output_norm == OutputNorm::kNone && Lie<V>(memory.v, memory.v_im, memory.y) &&
         Lie<T>(memory.log_decay, memory.phase);
}

/// So many tokens from t on can be taken together: their rows lie, and what is one number a token
/// does not change.
template <class T, class V>
HWY_INLINE std::int64_t TokensTogether(const Options& options, const Vector& memory,
                                       std::int64_t t) {
  if (memory.channels > kPiece || memory.gate || memory.importance ||
      !AllLie<T, V>(options, memory)) {
    return 1;
  }
  const std::int64_t end = t - t % kCheckpoint + kCheckpoint;  // where a state may be kept
  return std::min(end, memory.tokens) - t;
}

/// `V`: T, or bfloat16 where AllLie().
template <class T, class V>
void RunPieces(const Options& options, const Vector& memory, const VectorScratch<T>& scratch) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t filled = memory.channels / kLanes * kLanes;
  const bool norm = options.output_norm != OutputNorm::kNone;
  const bool complex = memory.im != nullptr;
  const bool streams = simd::PastCaches<T>(memory.y, memory.tokens, simd::kUncachedAnswers);
  std::int64_t together;
  for (std::int64_t t = 0; t < memory.tokens; t += together) {
    together = TokensTogether<T, V>(options, memory, t);
    const T* re = static_cast<const T*>(memory.re) + t * memory.state_stride;
    const T* im = complex ? static_cast<const T*>(memory.im) + t * memory.state_stride : nullptr;
    T* re_out = const_cast<T*>(re) + memory.state_stride;
    T* im_out = complex ? const_cast<T*>(im) + memory.state_stride : nullptr;
    Keep(memory, t, re, im);
    Piece<T, V> piece{};
    piece.tokens = together;
    piece.state_next = memory.state_stride;
    piece.gate = GateOf<T>(memory, t);
    piece.weight = memory.importance ? sn::LoadOne<T>(memory.importance, t) : T(1);
    for (std::int64_t c = 0; c < memory.channels;) {
      const bool whole = c < filled;
      const std::int64_t count = whole ? std::min(kPiece, filled - c) : memory.channels - c;
      const auto values = [&](const Rows& rows, T* copy) -> const V* {
        if constexpr (std::is_same_v<T, V>) return Channels(rows, t, c, count, whole, copy);
        return rows ? static_cast<const V*>(rows.data) + t * rows.stride + c : nullptr;
      };
      piece.v = values(memory.v, scratch.v);
      piece.v_im = values(memory.v_im, scratch.v_im);
      piece.log_decay = Channels(memory.log_decay, t, c, count, whole, scratch.log_decay);
      piece.phase = Channels(memory.phase, t, c, count, whole, scratch.phase);
      const bool direct = whole && !norm && memory.y.dtype == DTypeOf<V>();
      piece.streams = direct && streams;
      piece.follows = t + together < memory.tokens;
      piece.fetches =
          whole && Lie<V>(memory.v, memory.v_im) && Lie<T>(memory.log_decay, memory.phase);
      piece.v_next = memory.v.stride;
      piece.v_im_next = memory.v_im.stride;
      piece.y_next = direct ? memory.y.stride : 0;
      piece.log_decay_next = memory.log_decay.stride;
      piece.phase_next = memory.phase.stride;
      if (memory.y && direct) {
        piece.y = static_cast<V*>(memory.y.data) + t * memory.y.stride + c;
      } else if constexpr (std::is_same_v<T, V>) {
        if (memory.y) piece.y = scratch.y + (norm ? c : 0);
      }
      if (whole) {
        piece.re = re + c;
        piece.re_out = re_out + c;
        piece.im = complex ? im + c : nullptr;
        piece.im_out = complex ? im_out + c : nullptr;
      } else {
        piece.re = piece.re_out = scratch.re;
        piece.im = piece.im_out = scratch.im;
        std::copy(re + c, re + c + count, scratch.re);
        if (complex) std::copy(im + c, im + c + count, scratch.im);
      }
      Step(options, piece, count);
      if (!whole) {
        std::copy(scratch.re, scratch.re + count, re_out + c);
        if (complex) std::copy(scratch.im, scratch.im + count, im_out + c);
      }
      if (memory.y && !direct && !norm) sn::StoreRow(scratch.y, t, c, count, memory.y);
      c += count;
    }
    if (norm && memory.y) {
      NormaliseOutput(options, scratch.y, memory.channels);
      sn::StoreRow(scratch.y, t, 0, memory.channels, memory.y);
    }
  }
  if (streams) hwy::FlushStream();
}

template <class T>
void RunVector(const Options& options, const Vector& memory, const VectorScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, float>) {
    if (AllLie<T, BFloat16>(options, memory)) {
      return RunPieces<T, BFloat16>(options, memory, scratch);
    }
  }
  RunPieces<T, T>(options, memory, scratch);
}

/// Every token reads the memory as it is.
template <class T>
void ReadVector(const Options& options, const Vector& memory, const VectorScratch<T>& scratch) {
  const T* re = static_cast<const T*>(memory.re);
  const bool norm = options.output_norm != OutputNorm::kNone;
  for (std::int64_t c = 0; c < memory.channels;) {
    const std::int64_t count = norm ? memory.channels : std::min(kPiece, memory.channels - c);
    for (std::int64_t i = 0; i < count; ++i) {
      scratch.y[i] = static_cast<T>(options.scale) * re[c + i];
    }
    NormaliseOutput(options, scratch.y, count);
    for (std::int64_t t = 0; t < memory.tokens; ++t) {
      sn::StoreRow(scratch.y, t, c, count, memory.y);
    }
    c += count;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_VECTOR_INL_H_
