// A vector memory through its tokens: every row is read or written once, from its beginning to its
// end, and the state stays in the caches. Compiled once for every target.

#if defined(TTR_SCAN_VECTOR_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_VECTOR_FORWARD_INL_H_
#undef TTR_SCAN_VECTOR_FORWARD_INL_H_
#else
#define TTR_SCAN_VECTOR_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/scan/vector/step-inl.h"
#include "src/simd/caches.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Channels begin .. begin + count of token t's row: in place if they can be used there, else a
/// copy in T, with zeros up to a whole vector. Null where there are no rows.
template <class T>
HWY_INLINE const T* ChannelsOf(const Rows& rows, std::int64_t t, std::int64_t begin,
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

template <class T>
T WeightOf(const Vector& memory, std::int64_t t) {
  return memory.importance ? sn::LoadOne<T>(memory.importance, t) : T(1);
}

/// Are rows, if any, read and written in place?
template <class T, class... R>
HWY_INLINE bool InPlace(const R&... rows) {
  return ((!rows || rows.dtype == DTypeOf<T>()) && ...);
}

/// Are all rows read and written in place: whole vectors, values and outputs of V?
template <class T, class V>
HWY_INLINE bool AllInPlace(const Options& options, const Vector& memory) {
  return memory.channels % hn::MaxLanes(hn::ScalableTag<T>()) == 0 &&
         options.output_norm == OutputNorm::kNone && InPlace<V>(memory.v, memory.v_im, memory.y) &&
         InPlace<T>(memory.log_decay, memory.phase);
}

/// `V`: T, or bfloat16 where AllInPlace().
template <class T, class V>
class VectorForward {
 public:
  VectorForward(const Options& options, const Vector& memory, const VectorScratch<T>& scratch)
      : options_(options), memory_(memory), scratch_(scratch) {}

  void Run() {
    for (std::int64_t t = 0, together; t < memory_.tokens; t += together) {
      together = TokensTogether(t);
      SaveState(t);
      Tokens(t, together);
    }
    if (streams_) hwy::FlushStream();
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  /// So many tokens from t on can be taken together: their rows are in place, and what is one
  /// number a token does not change.
  std::int64_t TokensTogether(std::int64_t t) const {
    if (!together_) return 1;
    const std::int64_t end = t - t % kCheckpoint + kCheckpoint;  // where a state may be saved
    return std::min(end, memory_.tokens) - t;
  }

  /// The state before token t.
  const T* Re(std::int64_t t) const {
    return static_cast<const T*>(memory_.state.re) + t * memory_.state.stride;
  }
  const T* Im(std::int64_t t) const {
    return complex_ ? static_cast<const T*>(memory_.state.im) + t * memory_.state.stride : nullptr;
  }

  void SaveState(std::int64_t t) const {
    const VectorStates& saved = memory_.saved;
    if (saved.re == nullptr || t == 0 || t % kCheckpoint != 0) return;
    const std::int64_t at = (t / kCheckpoint - 1) * saved.stride;
    std::copy_n(Re(t), memory_.channels, static_cast<T*>(saved.re) + at);
    if (complex_) std::copy_n(Im(t), memory_.channels, static_cast<T*>(saved.im) + at);
  }

  HWY_INLINE void Tokens(std::int64_t t, std::int64_t together) {
    Piece<T, V> piece{};
    piece.tokens = together;
    piece.follows = t + together < memory_.tokens;
    piece.gate = GateOf<T>(memory_, t);
    piece.weight = WeightOf<T>(memory_, t);
    piece.next = {memory_.v.stride,
                  memory_.v_im.stride,
                  memory_.log_decay.stride,
                  memory_.phase.stride,
                  in_place_y_ ? memory_.y.stride : 0,
                  memory_.state.stride};
    for (std::int64_t c = 0; c < filled_; c += kPiece) {
      WholeVectors(t, c, std::min(kPiece, filled_ - c), piece);
    }
    if (filled_ < memory_.channels) Tail(t, filled_, memory_.channels - filled_, piece);
    if (norm_ && memory_.y) {
      sn::DivideByNorm(scratch_.y, memory_.channels, options_.NormLength(memory_.channels), 0);
      sn::StoreRow(scratch_.y, t, 0, memory_.channels, memory_.y);
    }
  }

  HWY_INLINE void WholeVectors(std::int64_t t, std::int64_t c, std::int64_t count,
                               Piece<T, V>& piece) {
    Inputs(t, c, count, true, piece);
    piece.fetches = fetches_;
    piece.streams = streams_;
    piece.re = Re(t) + c;
    piece.re_out = const_cast<T*>(piece.re) + memory_.state.stride;
    piece.im = complex_ ? Im(t) + c : nullptr;
    piece.im_out = complex_ ? const_cast<T*>(piece.im) + memory_.state.stride : nullptr;
    if (memory_.y && in_place_y_) {
      piece.y = static_cast<V*>(memory_.y.data) + t * memory_.y.stride + c;
      return Step(options_, piece, count);
    }
    OwnOutput(c, piece);
    Step(options_, piece, count);
    if (memory_.y && !norm_) sn::StoreRow(scratch_.y, t, c, count, memory_.y);
  }

  /// Fewer channels than a vector, by way of copies.
  void Tail(std::int64_t t, std::int64_t c, std::int64_t count, Piece<T, V>& piece) {
    Inputs(t, c, count, false, piece);
    piece.fetches = piece.streams = false;
    piece.re = piece.re_out = scratch_.re;
    piece.im = piece.im_out = complex_ ? scratch_.im : nullptr;
    piece.next.y = 0;
    OwnOutput(c, piece);
    std::copy_n(Re(t) + c, count, scratch_.re);
    if (complex_) std::copy_n(Im(t) + c, count, scratch_.im);
    Step(options_, piece, count);
    const std::int64_t after = memory_.state.stride + c;
    std::copy_n(scratch_.re, count, const_cast<T*>(Re(t)) + after);
    if (complex_) std::copy_n(scratch_.im, count, const_cast<T*>(Im(t)) + after);
    if (memory_.y && !norm_) sn::StoreRow(scratch_.y, t, c, count, memory_.y);
  }

  HWY_INLINE void Inputs(std::int64_t t, std::int64_t c, std::int64_t count, bool whole,
                         Piece<T, V>& piece) const {
    const auto values = [&](const Rows& rows, [[maybe_unused]] T* copy) -> const V* {
      if constexpr (std::is_same_v<T, V>) return ChannelsOf(rows, t, c, count, whole, copy);
      return rows ? static_cast<const V*>(rows.data) + t * rows.stride + c : nullptr;
    };
    piece.v = values(memory_.v, scratch_.v);
    piece.v_im = values(memory_.v_im, scratch_.v_im);
    piece.log_decay = ChannelsOf(memory_.log_decay, t, c, count, whole, scratch_.log_decay);
    piece.phase = ChannelsOf(memory_.phase, t, c, count, whole, scratch_.phase);
  }

  /// Outputs of channels from c on by way of the scratch: of all, where there is a norm.
  HWY_INLINE void OwnOutput(std::int64_t c, Piece<T, V>& piece) const {
    if constexpr (std::is_same_v<T, V>) {
      piece.y = memory_.y ? scratch_.y + (norm_ ? c : 0) : nullptr;
    }
  }

  const Options& options_;
  const Vector& memory_;
  const VectorScratch<T>& scratch_;
  const std::int64_t filled_ = memory_.channels / kLanes * kLanes;
  const bool norm_ = options_.output_norm != OutputNorm::kNone;
  const bool complex_ = memory_.complex();
  const bool in_place_y_ = !norm_ && memory_.y.dtype == DTypeOf<V>();
  const bool streams_ = in_place_y_ && simd::PastCaches<T>(memory_.y, memory_.tokens,
                                                           simd::TheCaches().uncached_outputs);
  const bool fetches_ =
      InPlace<V>(memory_.v, memory_.v_im) && InPlace<T>(memory_.log_decay, memory_.phase);
  const bool together_ = memory_.channels <= kPiece && !memory_.gate && !memory_.importance &&
                         AllInPlace<T, V>(options_, memory_);
};

template <class T>
void RunVector(const Options& options, const Vector& memory, const VectorScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, float>) {
    if (AllInPlace<T, BFloat16>(options, memory)) {
      return VectorForward<T, BFloat16>(options, memory, scratch).Run();
    }
  }
  VectorForward<T, T>(options, memory, scratch).Run();
}

/// Every token reads the memory as it is.
template <class T>
void ReadVector(const Options& options, const Vector& memory, const VectorScratch<T>& scratch) {
  const T* re = static_cast<const T*>(memory.state.re);
  const bool norm = options.output_norm != OutputNorm::kNone;
  for (std::int64_t c = 0; c < memory.channels;) {
    const std::int64_t count = norm ? memory.channels : std::min(kPiece, memory.channels - c);
    for (std::int64_t i = 0; i < count; ++i) {
      scratch.y[i] = static_cast<T>(options.scale) * re[c + i];
    }
    if (norm) sn::DivideByNorm(scratch.y, count, options.NormLength(count), 0);
    for (std::int64_t t = 0; t < memory.tokens; ++t) {
      sn::StoreRow(scratch.y, t, c, count, memory.y);
    }
    c += count;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_VECTOR_FORWARD_INL_H_
