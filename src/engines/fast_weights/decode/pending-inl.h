// Pairs that are pending: how a row joins them, and how they are flushed (decode/pending.h).
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_DECODE_PENDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_DECODE_PENDING_INL_H_
#undef TTR_FAST_WEIGHTS_DECODE_PENDING_INL_H_
#else
#define TTR_FAST_WEIGHTS_DECODE_PENDING_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/decode/pending.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/keys-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Calls use(S) with the type that its numbers lie in: T, or two bytes where T is float.
template <class T, class Use>
HWY_INLINE void OfStoredState(const Memory& memory, const Use& use) {
  if constexpr (DTypeOf<T>() == DType::kFloat32) {
    switch (memory.entries.state.dtype) {
      case DType::kBFloat16: return use(static_cast<BFloat16*>(memory.entries.state.data));
      case DType::kFloat16: return use(static_cast<Float16*>(memory.entries.state.data));
      default: break;
    }
  }
  use(static_cast<T*>(memory.entries.state.data));
}

/// S += sum of the first `pairs` in NV vectors of columns, or S = c (.) of that with `decays`:
/// kRows rows of the state at a time stay in registers while all pairs are added.
template <class T, class Stored>
class PairAdder {
 public:
  PairAdder(const Pending<T>& pending, const Memory& memory, Stored* state, std::int64_t pairs,
            bool decays)
      : pending_(pending),
        state_(state),
        stride_(memory.entries.state.stride),
        rows_(memory.dims.key_dim),
        pairs_(pairs),
        both_(pending.layout().keys > 1),
        decays_(decays) {}

  template <int NV, class D>
  HWY_INLINE void Columns(D d, std::int64_t column) const {
    constexpr int kRows = std::max(1, std::min(4, 2 * ln::kTileRows / NV));
    std::int64_t row = 0;
    for (; row + kRows <= rows_; row += kRows) Tile<kRows, NV>(d, row, column);
    for (; row < rows_; ++row) Tile<1, NV>(d, row, column);
  }

 private:
  template <int R, int NV, class D>
  HWY_INLINE void Tile(D d, std::int64_t row, std::int64_t column) const {
    constexpr std::int64_t kLanes = hn::MaxLanes(D());
    const std::int64_t stride = stride_;
    Stored* const state = state_ + row * stride + column;
    hn::Vec<D> m[R][NV];
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) m[r][n] = sn::LoadWide(d, state + r * stride + n * kLanes);
    }
    const auto add = [&](const T* key, const T* value) HWY_ATTR {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const auto u = hn::LoadU(d, value + n * kLanes);
        TTR_UNROLL
        for (int r = 0; r < R; ++r) m[r][n] = hn::MulAdd(hn::Set(d, key[r]), u, m[r][n]);
      }
    };
    for (std::int64_t i = 0; i < pairs_; ++i) {
      add(pending_.key(i) + row, pending_.value(i) + column);
      if (both_) add(pending_.key(i, 1) + row, pending_.value(i, 1) + column);
    }
    const bool by_channel = pending_.layout().decays > 0;
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const T c = !decays_     ? T(1)
                  : by_channel ? pending_.decay(pairs_ - 1)[row + r]
                               : pending_.number(pairs_ - 1);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        sn::StoreNarrow(d, hn::Mul(hn::Set(d, c), m[r][n]), state + r * stride + n * kLanes);
      }
    }
  }

  const Pending<T>& pending_;
  Stored* const state_;
  const std::int64_t stride_, rows_;
  const std::int64_t pairs_;
  const bool both_, decays_;
};

/// Adds all pairs but the last `keep` to S, in the memory's columns. Where none is kept S = M.
template <class T>
void FlushPairs(const Options& options, const Memory& memory, std::int64_t keep = 0) {
  const Pending<T> pending(options, memory);
  const std::int64_t pairs = pending.count() - keep;
  if (pairs == 0 && !pending.decayed()) return;
  OfStoredState<T>(memory, [&]<class Stored>(Stored* state) HWY_ATTR {
    const PairAdder<T, Stored> adder(pending, memory, state, pairs, keep == 0);
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
    constexpr int kVectors = 4;
    std::int64_t column = memory.extent.first_column;
    for (; column + kVectors * kLanes <= memory.extent.end_column; column += kVectors * kLanes) {
      adder.template Columns<kVectors>(d, column);
    }
    for (; column + kLanes <= memory.extent.end_column; column += kLanes) {
      adder.template Columns<1>(d, column);
    }
    for (; column < memory.extent.end_column; ++column) {
      adder.template Columns<1>(hn::CappedTag<T, 1>(), column);
    }
  });
  keep == 0 ? pending.Clear() : pending.DropFirst(pairs);
}

/// What is over c must not overflow. Before a call c is brought back to 1 where it is below the
/// first, whatever the call brings; in the middle of one only where it would fall below the second.
template <class T>
inline constexpr T kLeastBefore = T(0x1p-30);
template <class T>
inline constexpr T kLeastWithin = T(0x1p-60);
/// Before a call, where S is float16: numbers over c are to stay below 65504.
template <class T>
inline constexpr T kLeastInFloat16 = T(0x1p-6);

/// Is any c behind the last pair so small that S would be brought back before a call?
template <class T>
bool HasFaded(const Pending<T>& pending, const Memory& memory) {
  const std::int64_t last = pending.count() - 1;
  if (last < 0 && !pending.decayed()) return false;
  const T least =
      memory.entries.state.dtype == DType::kFloat16 ? kLeastInFloat16<T> : kLeastBefore<T>;
  if (pending.layout().decays == 0) return !(pending.number(last) >= least);
  const T* const c = pending.decay(last);
  return !std::all_of(c, c + memory.dims.key_dim, [least](T x) { return x >= least; });
}

/// One row that joins the pairs that are pending.
template <class T>
class Joining {
 public:
  /// `decay`: the row's, a number a channel or the same in all.
  Joining(const Pending<T>& pending, const Memory& memory, const T* decay)
      : pending_(pending),
        before_(pending.count()),
        decayed_(before_ > 0 || pending.decayed()),
        rows_(memory.dims.key_dim),
        by_channel_(pending.layout().decays > 0),
        decay_(decay) {}

  /// Is there room, and is c behind the row at least `limit`?
  bool Fits(T limit) const {
    if (before_ == pending_.room()) return false;
    if (!by_channel_) return Before() * decay_[0] >= limit;
    const hn::ScalableTag<T> d;
    const auto least = hn::Set(d, limit);
    for (std::int64_t i = 0; i < rows_; i += kLanes) {
      const auto held = hn::Ge(hn::Mul(Before(i), hn::Load(d, decay_ + i)), least);
      const auto there = hn::FirstN(d, static_cast<std::size_t>(rows_ - i));
      if (!hn::AllTrue(d, hn::Or(held, hn::Not(there)))) return false;
    }
    return true;
  }

  /// c before the row, where it is a number; else 1.
  T Before() const { return decayed_ && !by_channel_ ? pending_.number(before_ - 1) : T(1); }

  /// Is c a row by which readers are multiplied?
  bool scales() const { return decayed_ && by_channel_; }
  /// A row that reads M, as it reads S: times c, where that is a row.
  void Reader(const T* from, std::int64_t stride, T* to) const {
    if (scales()) {
      MultiplyRows(pending_.decay(before_ - 1), from, stride, to);
    } else {
      Copy(from, stride, to);
    }
  }

  /// Leaves the keys `write` and `value_key` (or null). Returns what multiplies the pair's values.
  T Leave(const T* write, const T* value_key, std::int64_t stride) const {
    pending_.SetCount(before_ + 1);
    if (!by_channel_) {
      Copy(write, stride, pending_.key(before_));
      const T after = Before() * decay_[0];
      pending_.number(before_) = after;
      return 1 / after;
    }
    const hn::ScalableTag<T> d;
    T* const after = pending_.decay(before_);
    for (std::int64_t i = 0; i < stride; i += kLanes) {
      const auto c = hn::Mul(Before(i), hn::Load(d, decay_ + i));
      // Behind the last channel c may be 0, and the keys are.
      const auto inverse = hn::IfThenElse(hn::Eq(c, hn::Zero(d)), c, hn::Div(hn::Set(d, T(1)), c));
      hn::StoreU(c, d, after + i);
      hn::StoreU(hn::Mul(hn::Load(d, write + i), inverse), d, pending_.key(before_) + i);
      if (value_key == nullptr) continue;
      hn::StoreU(hn::Mul(hn::Load(d, value_key + i), inverse), d, pending_.key(before_, 1) + i);
    }
    return 1;
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  /// c of these channels.
  HWY_INLINE hn::Vec<hn::ScalableTag<T>> Before(std::int64_t i) const {
    const hn::ScalableTag<T> d;
    return decayed_ ? hn::LoadU(d, pending_.decay(before_ - 1) + i) : hn::Set(d, T(1));
  }

  const Pending<T>& pending_;
  const std::int64_t before_;
  const bool decayed_;  // is c before the row not 1?
  const std::int64_t rows_;
  const bool by_channel_;
  const T* decay_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_PENDING_INL_H_
