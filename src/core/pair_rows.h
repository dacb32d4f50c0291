/// Where kept pairs lie in the rows of a state: oldest first, new ones behind the old.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ttr {

/// A memory that forgets nothing fills its rows one by one. One with a window uses twice as many
/// rows as the window has pairs, at most; when these are full, the latest move to the front, so
/// that a pair moves once in so many tokens as the window is long. How many rows are held after a
/// token follows from the number before it: whole = split = token by token.
struct PairRows {
  std::int64_t capacity = 0;
  std::int64_t window = 0;  ///< 0: none

  /// Rows that are used.
  std::int64_t most() const { return window > 0 ? std::min(capacity, 2 * window) : capacity; }

  /// Rows that a memory must have so that `held` become `added` more.
  std::int64_t Needed(std::int64_t held, std::int64_t added) const {
    const std::int64_t all = held + added;
    return window > 0 && added > 0 ? std::min(all, std::max(held, window)) : all;
  }

  /// Rows held after `added` more: the latest of all.
  std::int64_t After(std::int64_t held, std::int64_t added) const {
    if (window == 0 || added == 0 || held + added <= most()) return held + added;
    // The token that finds the rows full leaves `window` of them.
    const std::int64_t more = std::min(held, most()) + added - most() - 1;
    return window + more % (most() - window + 1);
  }

  /// Pairs that count, of so many held.
  std::int64_t Seen(std::int64_t held) const { return window > 0 ? std::min(held, window) : held; }
};

}  // namespace ttr
