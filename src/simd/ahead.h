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
    if (!rows || count_ == kMost || count == 0) return;
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    const auto* data = static_cast<const char*>(rows.data) + (begin * rows.stride + first) * size;
    const std::int64_t pairs = (count * size + kPairBytes - 1) / kPairBytes;
    streams_[count_++] = {data, rows.stride * size, pairs};
    left_ += rows_ * pairs;
  }

  /// From now on, all that is left over `calls` calls of Fetch().
  void Start(std::int64_t calls) {
    calls = std::max<std::int64_t>(calls, 1);
    pairs_a_call_ = (left_ + calls - 1) / calls;
    if (at_ != nullptr || left_ == 0) return;
    at_ = streams_[0].data;
    pairs_ = streams_[0].pairs;
  }

  /// The next few lines, in pairs: less to be counted between two products.
  HWY_INLINE void Fetch() {
    std::int64_t pairs = std::min(pairs_a_call_, left_);
    left_ -= pairs;
    for (; pairs > 0; --pairs) {
      // To the second level: the first belongs to the strip of the memory.
      __builtin_prefetch(at_, 0, 2);
      __builtin_prefetch(at_ + kPairBytes / 2, 0, 2);
      at_ += kPairBytes;
      if (--pairs_ == 0) NextRow();
    }
  }

 private:
  void NextRow() {
    streams_[next_].data += streams_[next_].stride;
    next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    at_ = streams_[next_].data;
    pairs_ = streams_[next_].pairs;
  }

  static constexpr std::int64_t kPairBytes = 128;
  static constexpr std::int64_t kMost = 20;
  struct Stream {
    const char* data;
    std::int64_t stride, pairs;
  };
  const char* at_ = nullptr;
  std::int64_t pairs_ = 0, pairs_a_call_ = 0, left_ = 0, next_ = 0;
  std::int64_t rows_, count_ = 0;
  Stream streams_[kMost];
};

}  // namespace ttr::simd
