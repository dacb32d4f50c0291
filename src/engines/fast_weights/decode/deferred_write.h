/// The write of a token that is deferred to the next one (Call::deferred), which does it in the
/// pass of its own reads. So every token passes over the memory once; one that erases would
/// otherwise have to read all of it before it can write any.
///
///     M^T = c (.) (S + w^T u + w'^T v)
///
/// S [Dk, Dv] is the state's tensor; c the decays since, one number or one a key channel (row); u
/// and v what is written along the keys w and w'. No number is multiplied by a decay until c is
/// small: a multiplication less for every element and token.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// The arrays of a deferred write: what belongs to the keys and what belongs to the columns. Parts
/// of a memory have copies of the first, and share the second. Null where the memory has none.
template <class T>
struct DeferredWrite {
  T* head;             // how many keys write; is there a decay a channel? If not, c
  T* decay = nullptr;  // [key rows]: c
  T* write[2]{};       // [key rows]: w, w'
  T* value[2];         // [columns]: u, v

  explicit DeferredWrite(const Memory& memory)
      : head(static_cast<T*>(memory.deferred.keys.data)),
        value{static_cast<T*>(memory.deferred.values)} {
    if (head == nullptr) return;
    const std::int64_t rows = RoundUp(memory.dims.key_dim, kLine<T>);
    decay = head + kLine<T>;
    write[0] = decay + rows;
    write[1] = write[0] + rows;
    value[1] = value[0] + RoundUp(memory.dims.value_dim, kLine<T>);
  }

  static std::int64_t KeyNumbers(std::int64_t key_dim) {
    return kLine<T> + 3 * RoundUp(key_dim, kLine<T>);
  }
  static std::int64_t Numbers(const Sizes& sizes) {
    return KeyNumbers(sizes.key_dim) + 2 * RoundUp(sizes.value_dim, kLine<T>);
  }

  int keys() const { return static_cast<int>(head[0]); }
  bool by_channel() const { return head[1] != 0; }
  T number() const { return keys() == 0 ? T(1) : head[2]; }

  void Set(int keys, bool by_channel, T number) const {
    head[0] = static_cast<T>(keys);
    head[1] = by_channel ? T(1) : T(0);
    head[2] = number;
  }
  /// The memory is what the state's tensor holds.
  void Clear() const { head[0] = 0; }
};

}  // namespace ttr::fast_weights
