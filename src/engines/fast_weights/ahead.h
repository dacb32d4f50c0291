/// Rows that are wanted next, fetched towards the caches while the memory is worked on, a few at a
/// time: rows of one head lie a token apart, which hardware does not foresee.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

class Ahead {
 public:
  /// Columns first .. first + count of rows `begin` .. of an input or output; nothing where there
  /// are none.
  void Add(const Rows& rows, std::int64_t begin, std::int64_t first, std::int64_t count) {
    if (!rows || count_ == kMost) return;
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    const auto* data = static_cast<const char*>(rows.data) + (begin * rows.stride + first) * size;
    streams_[count_++] = {data, rows.stride * size, count * size};
  }

  /// `rows` rows of each, over `calls` calls of Fetch().
  void Start(std::int64_t rows, std::int64_t calls) {
    left_ = std::max<std::int64_t>(rows, 0) * count_;
    calls = std::max<std::int64_t>(calls, 1);
    rows_a_call_ = (left_ + calls - 1) / calls;
  }

  /// The next few rows.
  void Fetch() {
    for (std::int64_t i = 0; i < rows_a_call_ && left_ > 0; ++i, --left_) {
      Stream& stream = streams_[next_];
      // To the second level: the first belongs to the strip of the memory.
      for (std::int64_t byte = 0; byte < stream.bytes; byte += kLineBytes) {
        __builtin_prefetch(stream.data + byte, 0, 2);
      }
      stream.data += stream.stride;
      next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    }
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;
  static constexpr std::int64_t kMost = 16;
  struct Stream {
    const char* data;
    std::int64_t stride, bytes;
  };
  Stream streams_[kMost];
  std::int64_t count_ = 0, next_ = 0, left_ = 0, rows_a_call_ = 0;
};

}  // namespace ttr::fast_weights
