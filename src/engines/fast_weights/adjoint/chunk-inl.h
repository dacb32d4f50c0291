// A chunk of a block's tokens: where it ends, and what its reads see of their own token. Compiled
// once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_CHUNK_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_CHUNK_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr std::int64_t Lanes() {
  return hn::MaxLanes(hn::ScalableTag<T>());
}

template <class T>
struct View {
  const T* data;
  std::int64_t stride;
  const T* operator[](std::int64_t token) const { return data + token * stride; }
};

/// The rows of a chunk.
template <class T>
View<T> RowsOf(const GradientRows<const T>& rows, const Chunk& chunk, std::int64_t head = 0) {
  return {rows.data + head * rows.head_stride + chunk.at * rows.stride, rows.stride};
}

/// What a read sees of its own token.
struct ReadKind {
  bool before;    // neither the token's decay nor its write
  bool diagonal;  // its write
  bool own;       // a decay of its own
};

template <class T>
ReadKind KindOf(const GradientCall<T>& call, std::int64_t read) {
  if (read < call.sizes.queries) return {call.read_before, !call.read_before, false};
  return {call.seen != Seen::kDecayed, false, call.seen == Seen::kOwn};
}

/// Whether a token that forgets everything can begin a chunk that does not know the memory.
template <class T>
bool CanForget(const GradientCall<T>& call) {
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  if (!channels && !(call.reset && call.in.decay != nullptr)) return false;
  if (call.read_before && call.sizes.queries > 0) return false;
  return !call.sizes.erase || call.seen == Seen::kDecayed;
}

template <class T>
bool Forgets(const GradientCall<T>& call, std::int64_t at) {
  if (call.sizes.decay != GradientDecay::kChannel) return call.in.decay[at] == 0;
  const T* row = call.in.gates.data + at * call.in.gates.stride;
  return std::all_of(row, row + call.sizes.key_dim, [](T x) { return x == 0; });
}

/// The chunk that begins at place `at` of the block.
template <class T>
Chunk NextChunk(const GradientCall<T>& call, std::int64_t at) {
  Chunk chunk{call.first + at, at, std::min<std::int64_t>(kTokens, call.tokens - at), false};
  if (!CanForget(call)) return chunk;
  chunk.forget = Forgets(call, at);
  for (std::int64_t i = 1; i < chunk.tokens; ++i) {
    if (Forgets(call, at + i)) chunk.tokens = i;
  }
  return chunk;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_CHUNK_INL_H_
