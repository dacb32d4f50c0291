// The gradients of a vector memory. Compiled once for every target.

#if defined(TTR_SCAN_VECTOR_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_VECTOR_BACKWARD_INL_H_
#undef TTR_SCAN_VECTOR_BACKWARD_INL_H_
#else
#define TTR_SCAN_VECTOR_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/row_views.h"
#include "src/engines/scan/vector/forward-inl.h"
#include "src/engines/scan/vector/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Where a piece of a gradient is written: where it belongs, if it can be written there.
template <class T>
HWY_INLINE T* Target(const Rows& rows, std::int64_t t, std::int64_t begin, bool whole_vectors,
                     T* scratch) {
  if (!rows || !whole_vectors || rows.dtype != DTypeOf<T>()) return scratch;
  return static_cast<T*>(rows.data) + t * rows.stride + begin;
}

/// Takes a piece from the scratch to where it belongs, if somebody wants it.
template <class T>
HWY_INLINE void Deliver(const T* piece, const T* scratch, std::int64_t t, std::int64_t begin,
                        std::int64_t count, const Rows& rows) {
  if (rows && piece == scratch) sn::StoreRow(piece, t, begin, count, rows);
}

/// Block by block of kCheckpoint tokens, from the last to the first: the states of a block are
/// found anew from the one before it, and then its tokens are taken back.
template <class T>
class VectorBackward {
 public:
  VectorBackward(const VectorTask& task, const VectorGradientScratch<T>& scratch)
      : options_(task.options), memory_(task.memory), gradient_(task.gradient), s_(scratch) {
    if (memory_.saved.re != nullptr) return;
    saved_ = {s_.saved_re, s_.saved_im, s_.stride};
  }

  void Run() {
    const std::int64_t blocks = BlocksOf(memory_.tokens);
    if (memory_.saved.re == nullptr) {
      for (std::int64_t block = 0; block + 1 < blocks; ++block) {
        T* const re = s_.saved_re + block * s_.stride;
        T* const im = complex_ ? s_.saved_im + block * s_.stride : nullptr;
        LoadState(block, re, im);
        Forward(block, kCheckpoint, {re, im, 0});
      }
    }
    for (std::int64_t block = blocks - 1; block >= 0; --block) {
      const std::int64_t first = block * kCheckpoint;
      const std::int64_t tokens = std::min(kCheckpoint, memory_.tokens - first);
      LoadState(block, s_.re, s_.im);
      Forward(block, tokens - 1, {s_.re, complex_ ? s_.im : nullptr, s_.stride});
      for (std::int64_t i = tokens - 1; i >= 0; --i) {
        Back(first + i, s_.re + i * s_.stride, complex_ ? s_.im + i * s_.stride : nullptr);
      }
    }
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  /// The state before a block.
  void LoadState(std::int64_t block, T* re, T* im) const {
    const VectorStates& from = block == 0 ? memory_.state : saved_;
    const std::int64_t at = block == 0 ? 0 : (block - 1) * saved_.stride;
    std::copy_n(static_cast<const T*>(from.re) + at, memory_.channels, re);
    if (complex_) std::copy_n(static_cast<const T*>(from.im) + at, memory_.channels, im);
  }

  /// The first tokens of a block after `state`, without their outputs.
  void Forward(std::int64_t block, std::int64_t tokens, const VectorStates& state) const {
    Vector part = memory_;
    for (Rows* rows :
         {&part.v, &part.v_im, &part.log_decay, &part.phase, &part.gate, &part.importance}) {
      if (*rows) *rows = common::Moved(*rows, block * kCheckpoint * rows->stride);
    }
    part.y = {};
    part.saved = {};
    part.state = state;
    part.tokens = tokens;
    RunVector(options_, part, s_.forward);
  }

  /// Takes token t backwards, all channels; `re` and `im` are the state before it.
  void Back(std::int64_t t, const T* re, const T* im) const {
    const std::int64_t filled = memory_.channels / kLanes * kLanes;
    Piece<T> piece{};
    piece.gate = GateOf<T>(memory_, t);
    piece.weight = WeightOf<T>(memory_, t);
    GateSums<T> sums{};
    for (std::int64_t c = 0, count; c < memory_.channels; c += count) {
      const bool whole = c < filled;
      count = whole ? std::min(kPiece, filled - c) : memory_.channels - c;
      piece.re = Own(re, c, count, whole, s_.old_re);
      piece.im = Own(im, c, count, whole, s_.old_im);
      BackPieceOf(t, c, count, whole, piece, sums);
    }
    Deliver(&sums.gate, &sums.gate, t, 0, 1, gradient_.dgate);
    Deliver(&sums.importance, &sums.importance, t, 0, 1, gradient_.dimportance);
  }

  HWY_INLINE void BackPieceOf(std::int64_t t, std::int64_t c, std::int64_t count, bool whole,
                              Piece<T>& piece, GateSums<T>& sums) const {
    const VectorScratch<T>& f = s_.forward;
    const VectorGradient& g = gradient_;
    piece.v = ChannelsOf(memory_.v, t, c, count, whole, f.v);
    piece.v_im = ChannelsOf(memory_.v_im, t, c, count, whole, f.v_im);
    piece.log_decay = ChannelsOf(memory_.log_decay, t, c, count, whole, f.log_decay);
    piece.phase = ChannelsOf(memory_.phase, t, c, count, whole, f.phase);
    T* const dre = static_cast<T*>(g.dre);
    T* const dim = static_cast<T*>(g.dim);
    const GradientPiece<T> out{ChannelsOf(g.dy, t, c, count, whole, s_.dy),
                               Target(g.dv, t, c, whole, s_.dv),
                               Target(g.dv_im, t, c, whole, s_.dv_im),
                               Target(g.dlog_decay, t, c, whole, s_.dlog_decay),
                               Target(g.dphase, t, c, whole, s_.dphase),
                               Own(dre, c, count, whole, s_.dre),
                               Own(dim, c, count, whole, s_.dim)};
    StepBack(options_, piece, count, out, sums);
    if (!whole) {
      std::copy_n(out.dre, count, dre + c);
      if (dim != nullptr) std::copy_n(out.dim, count, dim + c);
    }
    Deliver(out.dv, s_.dv, t, c, count, g.dv);
    Deliver(out.dv_im, s_.dv_im, t, c, count, g.dv_im);
    Deliver(out.dlog_decay, s_.dlog_decay, t, c, count, g.dlog_decay);
    Deliver(out.dphase, s_.dphase, t, c, count, g.dphase);
  }

  /// Channels c .. c + count in place, or a copy of fewer than a vector with zeros after them.
  static HWY_INLINE T* Own(const T* data, std::int64_t c, std::int64_t count, bool whole, T* copy) {
    if (data == nullptr) return nullptr;
    if (whole) return const_cast<T*>(data) + c;
    std::copy_n(data + c, count, copy);
    std::fill(copy + count, copy + kLanes, T(0));
    return copy;
  }

  const Options& options_;
  const Vector& memory_;
  const VectorGradient& gradient_;
  const VectorGradientScratch<T>& s_;
  VectorStates saved_ = memory_.saved;
  const bool complex_ = memory_.complex();
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_VECTOR_BACKWARD_INL_H_
