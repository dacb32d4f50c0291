// The gradients of a vector memory. Compiled once for every target.

#if defined(TTR_SCAN_GRADIENT_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_GRADIENT_VECTOR_INL_H_
#undef TTR_SCAN_GRADIENT_VECTOR_INL_H_
#else
#define TTR_SCAN_GRADIENT_VECTOR_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/scan/gradient_layout.h"
#include "src/engines/scan/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A piece of the gradients of one token; never null, but for the imaginary parts of a real memory.
template <class T>
struct GradientPiece {
  const T* dy;
  T *dv, *dv_im, *dlog_decay, *dphase;
  T *dre, *dim;  // in: of the state after the token; out: before it
};

/// What a token's one gate and its importance get from these channels.
template <class T>
struct GateSums {
  T gate = 0, importance = 0;
};

/// One token backwards. `piece`: re and im are the state before the token. A function of its own as
/// StepPiece() is.
template <Weight WEIGHT, bool CHANNEL, bool COMPLEX, class T>
HWY_NOINLINE void BackPiece(const Options& options, const Piece<T>& piece, std::int64_t count,
                            const GradientPiece<T>& out, GateSums<T>& sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto scale = hn::Set(d, static_cast<T>(options.scale));
  V gate_sum = hn::Zero(d), importance_sum = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += hn::MaxLanes(hn::ScalableTag<T>())) {
    V weight;
    const auto decay = DecayAt<WEIGHT, CHANNEL>(d, piece, i, weight);
    const auto dy = hn::Mul(scale, hn::LoadU(d, out.dy + i));
    auto dre = hn::LoadU(d, out.dre + i);
    if (!options.read_before) dre = hn::Add(dre, dy);
    auto faded = sn::Fade(decay, hn::LoadU(d, piece.re + i));
    auto dweight = hn::Mul(dre, hn::LoadU(d, piece.v + i));
    V dlog, before;
    if constexpr (COMPLEX) {
      const auto dim = hn::LoadU(d, out.dim + i);
      V sine, cosine;
      sn::SinCos(d, hn::LoadU(d, piece.phase + i), sine, cosine);
      const auto imaginary = sn::Fade(decay, hn::LoadU(d, piece.im + i));
      const auto turned = hn::MulAdd(sine, faded, hn::Mul(cosine, imaginary));
      faded = hn::NegMulAdd(sine, imaginary, hn::Mul(cosine, faded));
      if (piece.v_im != nullptr) {
        dweight = hn::MulAdd(dim, hn::LoadU(d, piece.v_im + i), dweight);
      }
      dlog = hn::MulAdd(dim, turned, hn::Mul(dre, faded));
      const auto dphase = hn::NegMulAdd(dre, turned, hn::Mul(dim, faded));
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
    if constexpr (WEIGHT == Weight::kComplement) {
      dlog = hn::NegMulAdd(decay.factor, dweight, dlog);
    }
    if constexpr (WEIGHT == Weight::kRootComplement) {
      // w = sqrt(1 - g^2), dw / d log g = -g^2 / w
      const auto slope = hn::Div(hn::Mul(decay.factor, decay.factor), weight);
      const auto finite = hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), slope);
      dlog = hn::NegMulAdd(finite, dweight, dlog);
    }
    dlog = hn::IfThenZeroElse(decay.forgets, dlog);
    if constexpr (CHANNEL) {
      hn::StoreU(dlog, d, out.dlog_decay + i);
    } else {
      gate_sum = hn::Add(gate_sum, dlog);
    }
    importance_sum = hn::Add(importance_sum, dweight);
    hn::StoreU(options.read_before ? hn::Add(before, dy) : before, d, out.dre + i);
  }
  sums.gate += hn::GetLane(hn::SumOfLanes(d, gate_sum));
  sums.importance += hn::GetLane(hn::SumOfLanes(d, importance_sum));
}

template <class T>
HWY_INLINE void Back(const Options& options, const Piece<T>& piece, std::int64_t count,
                     const GradientPiece<T>& out, GateSums<T>& sums) {
  const auto by_weight = [&](auto complex) {
    constexpr bool kComplex = decltype(complex)::value;
    switch (options.weight) {
      case Weight::kOne:
        return BackPiece<Weight::kOne, true, kComplex>(options, piece, count, out, sums);
      case Weight::kComplement:
        return BackPiece<Weight::kComplement, true, kComplex>(options, piece, count, out, sums);
      case Weight::kRootComplement:
        return BackPiece<Weight::kRootComplement, true, kComplex>(options, piece, count, out, sums);
    }
  };
  if (piece.log_decay == nullptr) {
    BackPiece<Weight::kOne, false, false>(options, piece, count, out, sums);
  } else if (piece.phase == nullptr) {
    by_weight(std::false_type());
  } else {
    by_weight(std::true_type());
  }
}

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

/// Token t backwards, all channels; `re` and `im` are the state before it.
template <class T>
void BackToken(const Options& options, const Vector& memory, const VectorGradient& gradient,
               std::int64_t t, const T* re, const T* im, const VectorScratch<T>& forward,
               const VectorGradientScratch<T>& scratch) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t filled = memory.channels / kLanes * kLanes;
  Piece<T> piece{};
  piece.gate = GateOf<T>(memory, t);
  piece.weight = memory.importance ? sn::LoadOne<T>(memory.importance, t) : T(1);
  GateSums<T> sums;
  for (std::int64_t c = 0; c < memory.channels;) {
    const bool whole = c < filled;
    const std::int64_t count = whole ? std::min(kPiece, filled - c) : memory.channels - c;
    piece.v = Channels(memory.v, t, c, count, whole, forward.v);
    piece.v_im = Channels(memory.v_im, t, c, count, whole, forward.v_im);
    piece.log_decay = Channels(memory.log_decay, t, c, count, whole, forward.log_decay);
    piece.phase = Channels(memory.phase, t, c, count, whole, forward.phase);
    const auto own = [&](const T* data, T* copy) -> T* {
      if (data == nullptr) return nullptr;
      if (whole) return const_cast<T*>(data) + c;
      std::copy(data + c, data + c + count, copy);
      std::fill(copy + count, copy + kLanes, T(0));
      return copy;
    };
    piece.re = own(re, scratch.old_re);
    piece.im = own(im, scratch.old_im);
    T* dre = static_cast<T*>(gradient.dre);
    T* dim = static_cast<T*>(gradient.dim);
    GradientPiece<T> out{Channels(gradient.dy, t, c, count, whole, scratch.dy),
                         Target(gradient.dv, t, c, whole, scratch.dv),
                         Target(gradient.dv_im, t, c, whole, scratch.dv_im),
                         Target(gradient.dlog_decay, t, c, whole, scratch.dlog_decay),
                         Target(gradient.dphase, t, c, whole, scratch.dphase),
                         own(dre, scratch.dre),
                         own(dim, scratch.dim)};
    Back(options, piece, count, out, sums);
    if (!whole) {
      std::copy(out.dre, out.dre + count, dre + c);
      if (dim != nullptr) std::copy(out.dim, out.dim + count, dim + c);
    }
    Deliver(out.dv, scratch.dv, t, c, count, gradient.dv);
    Deliver(out.dv_im, scratch.dv_im, t, c, count, gradient.dv_im);
    Deliver(out.dlog_decay, scratch.dlog_decay, t, c, count, gradient.dlog_decay);
    Deliver(out.dphase, scratch.dphase, t, c, count, gradient.dphase);
    c += count;
  }
  Deliver(&sums.gate, &sums.gate, t, 0, 1, gradient.dgate);
  Deliver(&sums.importance, &sums.importance, t, 0, 1, gradient.dimportance);
}

template <class T>
void BackVector(const Options& options, const Vector& memory, const VectorGradient& gradient,
                const VectorScratch<T>& forward, const VectorGradientScratch<T>& scratch) {
  const std::int64_t channels = memory.channels;
  const std::int64_t stride = scratch.stride;
  const bool complex = memory.im != nullptr;
  const auto tokens_of = [&](std::int64_t block) {
    return std::min(kCheckpoint, memory.tokens - block * kCheckpoint);
  };
  // The first tokens of a block after the state `re`, `im`.
  const auto run = [&](std::int64_t block, std::int64_t tokens, T* re, T* im,
                       std::int64_t state_stride) {
    Vector part = memory;
    for (Rows* rows :
         {&part.v, &part.v_im, &part.log_decay, &part.phase, &part.gate, &part.importance}) {
      if (!*rows) continue;
      rows->data =
          static_cast<std::byte*>(rows->data) +
          block * kCheckpoint * rows->stride * static_cast<std::int64_t>(SizeOf(rows->dtype));
    }
    part.y = {};
    part.saved_re = nullptr;
    part.re = re;
    part.im = complex ? im : nullptr;
    part.tokens = tokens;
    part.state_stride = state_stride;
    RunVector(options, part, forward);
  };
  const auto copy = [&](const T* from, T* to) { std::copy(from, from + channels, to); };

  const std::int64_t blocks = Checkpoints(memory.tokens);
  if (blocks == 0) return;
  Vector saved = memory;
  if (memory.saved_re == nullptr) {
    saved.saved_re = scratch.saved_re;
    saved.saved_im = scratch.saved_im;
    saved.saved_stride = stride;
  }
  // The state before a block.
  const auto load = [&](std::int64_t block, T* re, T* im) {
    const auto from = [&](const void* first, const void* others) {
      return block == 0 ? static_cast<const T*>(first)
                        : static_cast<const T*>(others) + (block - 1) * saved.saved_stride;
    };
    copy(from(memory.re, saved.saved_re), re);
    if (complex) copy(from(memory.im, saved.saved_im), im);
  };
  for (std::int64_t block = 0; memory.saved_re == nullptr && block + 1 < blocks; ++block) {
    T* const re = scratch.saved_re + block * stride;
    T* const im = complex ? scratch.saved_im + block * stride : nullptr;
    load(block, re, im);
    run(block, kCheckpoint, re, im, 0);
  }
  for (std::int64_t block = blocks - 1; block >= 0; --block) {
    load(block, scratch.re, scratch.im);
    run(block, tokens_of(block) - 1, scratch.re, scratch.im, stride);
    for (std::int64_t i = tokens_of(block) - 1; i >= 0; --i) {
      BackToken<T>(options, memory, gradient, block * kCheckpoint + i, scratch.re + i * stride,
                   complex ? scratch.im + i * stride : nullptr, forward, scratch);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_GRADIENT_VECTOR_INL_H_
