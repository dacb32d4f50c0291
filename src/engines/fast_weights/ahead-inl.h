// Fetching the rows of the next block while this one is computed. Compiled once for every target.
//
// Rows of one head lie far apart, so hardware does not foresee them. A block of d = 128 is two
// kilobytes a token; fetched a few lines at a time between register tiles, they arrive under the
// arithmetic.

#if defined(TTR_FAST_WEIGHTS_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_AHEAD_INL_H_
#undef TTR_FAST_WEIGHTS_AHEAD_INL_H_
#else
#define TTR_FAST_WEIGHTS_AHEAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

class Ahead {
 public:
  /// Rows begin .. end of `memory`, to be fetched over `calls` calls of Fetch().
  Ahead(const Memory& memory, std::int64_t begin, std::int64_t end, std::int64_t calls,
        bool by_channel) {
    // Where a token has several rows its queries lie elsewhere; hardware then does what it can.
    if (begin >= end || calls <= 0 || memory.steps > 1) return;
    const std::int64_t width = memory.end_column - memory.first_column;
    auto add = [&](const Rows& rows, std::int64_t first, std::int64_t count) {
      if (!rows) return;
      const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
      const auto* data = static_cast<const char*>(rows.data) + (begin * rows.stride + first) * size;
      streams_[count_++] = {data, rows.stride * size, count * size};
    };
    add(memory.k, 0, memory.key_dim);
    add(memory.v, memory.first_column, width);
    add(memory.erase_key, 0, memory.key_dim);
    add(memory.erase_gate, 0, memory.key_dim);
    if (by_channel) add(memory.log_decay, 0, memory.key_dim);
    add(memory.phase, 0, memory.key_dim);
    for (std::int64_t query = 0; query < std::min(memory.queries, kMostQueries); ++query) {
      Rows q = memory.q, y = memory.y;
      if (!q) break;
      add(q, query * memory.q_head_stride, memory.key_dim);
      add(y, query * memory.y_head_stride + memory.first_column, width);
    }
    left_ = (end - begin) * count_;
    rows_a_call_ = (left_ + calls - 1) / calls;
  }

  /// The next few rows.
  HWY_INLINE void Fetch() {
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
  static constexpr std::int64_t kMostQueries = 3;
  struct Stream {
    const char* data;
    std::int64_t stride, bytes;
  };
  Stream streams_[6 + 2 * kMostQueries];
  std::int64_t count_ = 0, next_ = 0, left_ = 0, rows_a_call_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_AHEAD_INL_H_
