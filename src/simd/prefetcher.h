/// Rows that are needed next, fetched towards the caches while the memory is worked on, a few at a
/// time: hardware does not foresee rows of one head, which are a token apart.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hwy/base.h"
#include "src/simd/rows.h"

namespace ttr::simd {

/// `count` numbers of a row towards the second-level cache.
template <class T>
HWY_INLINE void FetchRow(const T* row, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(row + i, 0, 2);
}

class Prefetcher {
 public:
  /// `rows` rows of each input and output.
  explicit Prefetcher(std::int64_t rows) : rows_(std::max<std::int64_t>(rows, 0)) {}

  /// Columns first .. first + count of rows `begin` .. of an input or output; nothing where there
  /// are none, or too many. `every`: for how many rows of the others this one has a row.
  void Add(const Rows& rows, std::int64_t begin, std::int64_t first, std::int64_t count,
           std::int64_t every = 1) {
    if (!rows) return;
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    const auto* data = static_cast<const char*>(rows.data) + (begin * rows.stride + first) * size;
    for (std::int64_t at = 0; at < count * size && count_ < kMost; at += kPairBytes) {
      columns_[count_++] = {data + at, rows.stride * size, every, 0};
    }
  }

  /// From now on, all of it over `calls` calls of Fetch().
  void Start(std::int64_t calls) {
    calls = std::max<std::int64_t>(calls, 1);
    left_ = rows_ * count_;
    pairs_a_call_ = (left_ + calls - 1) / calls;
  }

  /// The next few lines, row by row, in pairs: less to be counted between two products.
  HWY_INLINE void Fetch() {
    std::int64_t pairs = std::min(pairs_a_call_, left_);
    left_ -= pairs;
    for (; pairs > 0; --pairs) {
      Column& column = columns_[next_];
      if (--column.waits < 0) {
        // To the second level: the first belongs to the strip of the memory.
        __builtin_prefetch(column.at, 0, 2);
        __builtin_prefetch(column.at + kPairBytes / 2, 0, 2);
        column.at += column.stride;
        column.waits = column.every - 1;
      }
      next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    }
  }

 private:
  static constexpr std::int64_t kPairBytes = 128;
  static constexpr std::int64_t kMost = 96;
  /// A pair of lines of every row.
  struct Column {
    const char* at;
    std::int64_t stride, every, waits;
  };
  std::int64_t rows_, pairs_a_call_ = 0, left_ = 0, next_ = 0, count_ = 0;
  Column columns_[kMost];
};

}  // namespace ttr::simd
