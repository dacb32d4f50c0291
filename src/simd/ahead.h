/// Rows that are wanted next, fetched towards the caches while the memory is worked on, a few at a
/// time: rows of one head lie a token apart, which hardware does not foresee.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hwy/base.h"
#include "src/simd/rows.h"

namespace ttr::simd {

class Ahead {
 public:
  /// `rows` rows of each input and output.
  explicit Ahead(std::int64_t rows) : rows_(std::max<std::int64_t>(rows, 0)) {}

  /// Columns first .. first + count of rows `begin` .. of an input or output; nothing where there
  /// are none.
  void Add(const Rows& rows, std::int64_t begin, std::int64_t first, std::int64_t count) {
    if (!rows || count_ == kMost) return;
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    const auto* data = static_cast<const char*>(rows.data) + (begin * rows.stride + first) * size;
    const std::int64_t lines = (count * size + kLineBytes - 1) / kLineBytes;
    streams_[count_++] = {data, rows.stride * size, lines};
    left_ += rows_ * lines;
  }

  /// From now on, all that is left over `calls` calls of Fetch().
  void Start(std::int64_t calls) {
    calls = std::max<std::int64_t>(calls, 1);
    lines_a_call_ = (left_ + calls - 1) / calls;
  }

  /// The next few lines.
  HWY_INLINE void Fetch() {
    std::int64_t lines = std::min(lines_a_call_, left_);
    left_ -= lines;
    while (lines > 0) {
      Stream& stream = streams_[next_];
      const std::int64_t count = std::min(lines, stream.lines - line_);
      const char* line = stream.data + line_ * kLineBytes;
      // To the second level: the first belongs to the strip of the memory.
      for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(line + i * kLineBytes, 0, 2);
      lines -= count;
      line_ += count;
      if (line_ < stream.lines) continue;
      line_ = 0;
      stream.data += stream.stride;
      next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    }
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;
  static constexpr std::int64_t kMost = 20;
  struct Stream {
    const char* data;
    std::int64_t stride, lines;
  };
  Stream streams_[kMost];
  std::int64_t rows_, count_ = 0, next_ = 0, line_ = 0, left_ = 0, lines_a_call_ = 0;
};

}  // namespace ttr::simd
