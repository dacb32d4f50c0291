// How a row defers its write (decode/deferred_write.h). Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_DECODE_DEFERRED_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_DECODE_DEFERRED_WRITE_INL_H_
#undef TTR_FAST_WEIGHTS_DECODE_DEFERRED_WRITE_INL_H_
#else
#define TTR_FAST_WEIGHTS_DECODE_DEFERRED_WRITE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/decode/columns-inl.h"
#include "src/engines/fast_weights/decode/deferred_write.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// S = M, in the memory's columns; nothing is deferred then.
template <class T>
void FlushRows(const Memory& memory) {
  const DeferredWrite<T> deferred(memory);
  const int keys = deferred.keys();
  if (keys == 0) return;
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t whole =
      memory.extent.end_column - (memory.extent.end_column - memory.extent.first_column) % kLanes;
  T* row = static_cast<T*>(memory.entries.state.data);
  const T *u = deferred.value[0], *v = deferred.value[1];
  for (std::int64_t i = 0; i < memory.dims.key_dim; ++i, row += memory.entries.state.stride) {
    const T decay = deferred.by_channel() ? deferred.decay[i] : deferred.number();
    const T by_u = deferred.write[0][i], by_v = keys > 1 ? deferred.write[1][i] : T(0);
    auto flush = [&](auto tag, std::int64_t j) HWY_ATTR {
      auto m = hn::MulAdd(hn::Set(tag, by_u), hn::LoadU(tag, u + j), hn::LoadU(tag, row + j));
      if (keys > 1) m = hn::MulAdd(hn::Set(tag, by_v), hn::LoadU(tag, v + j), m);
      hn::StoreU(hn::Mul(hn::Set(tag, decay), m), tag, row + j);
    };
    for (std::int64_t j = memory.extent.first_column; j < whole; j += kLanes) flush(d, j);
    for (std::int64_t j = whole; j < memory.extent.end_column; ++j) flush(hn::CappedTag<T, 1>(), j);
  }
  deferred.Clear();
}

/// One row between the deferred write that it finds and the one that it leaves.
template <class T>
class Deferral {
 public:
  /// `decay`: the row's, a number a channel or the same in all.
  Deferral(const Options& options, const Memory& memory, const T* decay)
      : deferred_(memory),
        by_channel_(options.by_channel()),
        keys_(options.separate_value_key() ? 2 : 1),
        rows_(memory.dims.key_dim),
        decay_(decay) {}

  /// Is what is deferred, if anything, of this kind, and c behind the row not so small that numbers
  /// over it could overflow?
  bool Fits() const {
    if (deferred_.keys() != 0 &&
        (deferred_.keys() != keys_ || deferred_.by_channel() != by_channel_)) {
      return false;  // another layer's
    }
    if (!by_channel_) return deferred_.number() * decay_[0] >= kLeast;
    const hn::ScalableTag<T> d;
    const auto least = hn::Set(d, kLeast);
    for (std::int64_t i = 0; i < rows_; i += kLanes) {
      const auto held = hn::Ge(hn::Mul(Before(i), hn::Load(d, decay_ + i)), least);
      const auto there = hn::FirstN(d, static_cast<std::size_t>(rows_ - i));
      if (!hn::AllTrue(d, hn::Or(held, hn::Not(there)))) return false;
    }
    return true;
  }

  /// The row reads S instead of M: c goes into `erase` and rows of `query`, or into `read` and
  /// s.erased.
  void Take(T* erase, T* query, T* read, RowStep<T>& s) const {
    s.deferred = &deferred_;
    s.deferred_scale = T(1);
    if (!by_channel_) {
      const T before = deferred_.number();
      s.erased *= before;
      for (std::int64_t q = 0; q < s.reads.queries; ++q) read[q * kChunk] *= before;
      s.deferred_scale = 1 / (before * decay_[0]);
      return;
    }
    if (deferred_.keys() == 0) return;
    MultiplyRows(deferred_.decay, erase, rows_, erase);
    for (std::int64_t q = 0; q < s.reads.queries; ++q) {
      T* const row = query + q * s.reads.query_stride;
      MultiplyRows(deferred_.decay, row, rows_, row);
    }
  }

  /// Behind the last column.
  void Leave(const RowStep<T>& s) const {
    const bool separate = keys_ == 2;
    if (!by_channel_) {
      Copy(s.write, rows_, deferred_.write[0]);
    } else {
      const hn::ScalableTag<T> d;
      for (std::int64_t i = 0; i < rows_; i += kLanes) {
        const auto after = hn::Mul(Before(i), hn::Load(d, decay_ + i));
        const auto inverse = hn::Div(hn::Set(d, T(1)), after);
        hn::StoreU(after, d, deferred_.decay + i);
        hn::StoreU(hn::Mul(hn::Load(d, s.write + i), inverse), d, deferred_.write[0] + i);
        if (!separate) continue;
        hn::StoreU(hn::Mul(hn::Load(d, s.value_key + i), inverse), d, deferred_.write[1] + i);
      }
    }
    deferred_.Set(keys_, by_channel_, by_channel_ ? T(1) : deferred_.number() * decay_[0]);
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  static constexpr T kLeast = T(1) / (1 << 30);

  /// c of these channels.
  HWY_INLINE hn::Vec<hn::ScalableTag<T>> Before(std::int64_t i) const {
    const hn::ScalableTag<T> d;
    return deferred_.keys() == 0 ? hn::Set(d, T(1)) : hn::LoadU(d, deferred_.decay + i);
  }

  DeferredWrite<T> deferred_;
  bool by_channel_;
  int keys_;
  std::int64_t rows_;
  const T* decay_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_DEFERRED_WRITE_INL_H_
