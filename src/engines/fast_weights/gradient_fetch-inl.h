// Rows of the chunk that comes next, fetched towards the caches while the memory is worked on, a
// share with each of its strips. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_FETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_FETCH_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_FETCH_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_FETCH_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

/// Columns [begin, end) of the rows of tokens [first, last).
template <class T>
struct Patch {
  std::int64_t first, last, begin, end;

  void Fetch(const T* rows, std::int64_t stride) const {
    if (rows == nullptr) return;
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t i = begin; i < end; i += 64 / static_cast<std::int64_t>(sizeof(T))) {
        hwy::Prefetch(rows + t * stride + i);
      }
    }
  }
};

/// The share of `values` columns that goes with the strip of `keys` columns.
template <class T>
Patch<T> ValuePatch(const Patch<T>& keys, const Scratch<T>& scratch) {
  const auto share = [&](std::int64_t key) {
    return std::min(key, scratch.keys) * (scratch.values / kTokens) / scratch.keys * kTokens;
  };
  return {keys.first, keys.last, share(keys.begin), share(keys.end)};
}

/// Of the forward pass.
template <class T>
void FetchAhead(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                std::int64_t key, std::int64_t width) {
  const std::int64_t first = chunk.first + chunk.tokens;
  const Patch<T> keys{first, std::min(first + kTokens, call.sizes.tokens), key, key + width};
  keys.Fetch(call.write.data, call.write.stride);
  if (call.erase.data != call.write.data) keys.Fetch(call.erase.data, call.erase.stride);
  keys.Fetch(call.second_write.data, call.second_write.stride);
  keys.Fetch(call.log_decay.data, call.log_decay.stride);
  const Patch<T> values = ValuePatch(keys, scratch);
  values.Fetch(call.value.data, call.value.stride);
  values.Fetch(call.second_value.data, call.second_value.stride);
}

/// Of the backward pass. Writes and errors are wanted a whole block before the rest.
template <class T>
void FetchBehind(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                 std::int64_t key, std::int64_t width) {
  const std::int64_t first = std::max<std::int64_t>(chunk.first - kTokens, 0);
  const Patch<T> keys{first, chunk.first, key, key + width};
  const Patch<T> values = ValuePatch(keys, scratch);
  for (std::int64_t x = 0; x < call.sizes.queries; ++x) {
    keys.Fetch(call.query.data + x * call.query.head_stride, call.query.stride);
    values.Fetch(call.d_output.data + x * call.d_output.head_stride, call.d_output.stride);
  }
  if (call.erase.data != call.write.data) keys.Fetch(call.erase.data, call.erase.stride);
  const std::int64_t block = std::max<std::int64_t>(chunk.first - scratch.block, 0);
  const Patch<T> writes{block, std::min(block + chunk.tokens, chunk.first), key, key + width};
  const Patch<T> errors = ValuePatch(writes, scratch);
  writes.Fetch(call.write.data, call.write.stride);
  writes.Fetch(call.second_write.data, call.second_write.stride);
  if (call.sizes.erase) {
    errors.Fetch(scratch.errors, scratch.values);
  } else {
    errors.Fetch(call.value.data, call.value.stride);
  }
  errors.Fetch(call.second_value.data, call.second_value.stride);
  if (call.sizes.decay == GradientDecay::kChannel) writes.Fetch(scratch.gates, scratch.keys);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_FETCH_INL_H_
