/// The pairs of the last rows, kept beside a state that is written every few rows (Call::pending).
/// A row then reads the memory once and writes none of it.
///
///     M^T = c (.) (S + sum_i w_i^T u_i)
///
/// S [Dk, Dv] is the state's tensor; c the decays since it was flushed, one number or one a key
/// channel (row); w_i the key of pair i and u_i what is written along it, one of them over the c
/// behind the pair. So no element is multiplied by a decay until c is small: pairs that have waited
/// long enough are added to S as they are, in the pass that reads it. To leave out the last pairs
/// is to go back by so many rows. With a separate value key a pair has w' and v, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// How the numbers of Call::pending are divided: what belongs to the keys, of which parts of a
/// memory have copies, and behind it what belongs to the columns, which they share. Pairs lie in
/// slots, a ring; one more slot than there can be pairs, so that the c behind the pair that was
/// written last is still there.
struct PendingLayout {
  std::int64_t slots;
  std::int64_t key_rows;  // numbers of a key, whole lines
  std::int64_t columns;
  std::int64_t keys;    // of a pair: 2 with a separate value key
  std::int64_t decays;  // rows of c of a pair: 0 where it is a number
  std::int64_t beside;  // numbers of the state beside the memory, as it was before a pair

  template <class T>
  static PendingLayout Of(const Options& options, std::int64_t key_dim, std::int64_t value_dim,
                          std::int64_t pairs) {
    const std::int64_t rows = RoundUp(key_dim, kLine<T>);
    const std::int64_t sums =
        (options.denominator != Denominator::kNone ? 1 : 0) + (options.preconditioned ? 1 : 0);
    const bool line = sums > 0 || options.step == Step::kLogWeight;
    return {.slots = pairs + 1,
            .key_rows = rows,
            .columns = RoundUp(value_dim, kLine<T>),
            .keys = options.separate_value_key() ? 2 : 1,
            .decays = options.by_channel() ? 1 : 0,
            .beside = sums * rows + (line ? kLine<T> : 0)};
  }

  std::int64_t OfSlot() const { return (keys + decays) * key_rows + beside; }
  template <class T>
  std::int64_t HeadNumbers() const {
    return kLine<T> + RoundUp(slots, kLine<T>);
  }
  template <class T>
  std::int64_t KeyNumbers() const {
    return HeadNumbers<T>() + slots * OfSlot();
  }
  std::int64_t ValueNumbers() const { return slots * keys * columns; }
};

/// Numbers that belong to the keys, of sizes.pairs pairs; 0 where there are none.
inline std::int64_t PendingKeyNumbers(const Options& options, const Sizes& sizes) {
  if (sizes.pairs == 0) return 0;
  const auto numbers = [&]<class T>(T) {
    return PendingLayout::Of<T>(options, sizes.key_dim, sizes.value_dim, sizes.pairs)
        .template KeyNumbers<T>();
  };
  return sizes.state == DType::kFloat64 ? numbers(double()) : numbers(float());
}

/// The arrays themselves.
template <class T>
class Pending {
 public:
  Pending(const Options& options, const Memory& memory)
      : layout_(PendingLayout::Of<T>(options, memory.dims.key_dim, memory.dims.value_dim,
                                     memory.pending.pairs)),
        head_(static_cast<T*>(memory.pending.keys.data)),
        values_(static_cast<T*>(memory.pending.values)) {}

  const PendingLayout& layout() const { return layout_; }
  /// Room for so many pairs.
  std::int64_t room() const { return layout_.slots - 1; }

  std::int64_t count() const { return static_cast<std::int64_t>(head_[0]); }
  void SetCount(std::int64_t count) const { head_[0] = static_cast<T>(count); }

  /// Is c before the first pair not 1?
  bool decayed() const { return head_[1] != 0; }
  /// c behind pair i: a number, or else a row. Behind pair -1, which was written, where decayed().
  T& number(std::int64_t i) const { return head_[kLine<T> + Slot(i)]; }
  T* decay(std::int64_t i) const { return At(i) + layout_.keys * layout_.key_rows; }
  /// w of pair i, or w'.
  T* key(std::int64_t i, std::int64_t which = 0) const { return At(i) + which * layout_.key_rows; }
  /// The state beside the memory before pair i: sum, curvature, a line with the maximum.
  T* beside(std::int64_t i) const {
    return At(i) + (layout_.keys + layout_.decays) * layout_.key_rows;
  }
  /// u of pair i, or v; all columns.
  T* value(std::int64_t i, std::int64_t which = 0) const {
    return values_ + (Slot(i) * layout_.keys + which) * layout_.columns;
  }

  /// The first `pairs` have been added to S.
  void DropFirst(std::int64_t pairs) const {
    head_[2] = static_cast<T>(Slot(pairs));
    head_[1] = 1;
    SetCount(count() - pairs);
  }
  /// S is M.
  void Clear() const { head_[0] = head_[1] = 0; }

 private:
  /// Where pair i lies, -1 <= i <= room().
  std::int64_t Slot(std::int64_t i) const {
    const std::int64_t slot = static_cast<std::int64_t>(head_[2]) + i;
    if (slot < 0) return slot + layout_.slots;
    return slot < layout_.slots ? slot : slot - layout_.slots;
  }
  T* At(std::int64_t i) const {
    return head_ + layout_.template HeadNumbers<T>() + Slot(i) * layout_.OfSlot();
  }

  PendingLayout layout_;
  T* head_;  // how many, decayed(), the first's slot; c of every slot; slots
  T* values_;
};

}  // namespace ttr::fast_weights
