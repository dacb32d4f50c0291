// A block's backward pass, chunk by chunk. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_BLOCK_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_BLOCK_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/coefficients-inl.h"
#include "src/engines/fast_weights/adjoint/innovations-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/replay-inl.h"
#include "src/engines/fast_weights/adjoint/rotation-inl.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/strip-inl.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

/// The gradients of the decays, where they are numbers, from the sums of all strips.
template <class T>
void DecayGradients(const ChunkWork<T>& on, const T (&overlaps)[3][2 * kTokens],
                    CoefficientGradients<T>& grads) {
  const GradientCall<T>& call = on.call;
  const Scratch<T>& scratch = on.scratch;
  T sums[kTokens];
  for (std::int64_t plane = 0; plane < scratch.planes; ++plane) {
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      SumTallies(scratch.Tallies(plane, x), sums);
      grads.Read(on.chunk, on.c, on.Kind(x), call.reset, sums, plane);
    }
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      SumTallies(scratch.Tallies(plane, scratch.reads + w), sums);
      grads.Write(on.chunk, sums, plane);
    }
  }
  T last[3];
  for (int s = 0; s < 3; ++s) {
    last[s] = std::accumulate(overlaps[s], overlaps[s] + 2 * kTokens, T(0));
  }
  grads.Last(on.chunk, on.c, call.reset, last[0], last[1], last[2]);
  if (scratch.planes > 1) {
    grads.DecaysAndMomentum(call, on.chunk, on.c, scratch.Tallies(0, 0), scratch.Tallies(1, 0));
  } else {
    grads.Decays(call, on.chunk, on.c, scratch.tallies);
  }
}

/// From dL/dM behind the chunk, in scratch.adjoint, to the same before it, and every gradient of
/// the chunk's tokens. `memory` is the one before the chunk.
template <class T>
void BackwardChunk(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                   const T* memory) {
  const ChunkWork<T> on(call, chunk, scratch);
  on.Copy();
  if (on.channels) {
    Prefixes(on);
    for (std::int64_t x = 0; x < scratch.reads; ++x) DecayReads(on, x);
  }
  InnovationGradients(on);
  if (scratch.planes > 1) DecayUpdateGradients(on);
  CoefficientGradients<T> grads;
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      const std::int64_t at = on.Square(x, w);
      grads.Scores(chunk, on.c, on.Kind(x), scratch.squares.products + at,
                   scratch.squares.score_grads + at);
    }
  }
  const std::int64_t all = scratch.reads + scratch.writes;
  for (std::int64_t plane = 0; plane < scratch.planes; ++plane) {
    std::fill_n(scratch.Tallies(plane, 0), all * kSquare, T(0));
  }
  alignas(64) T overlaps[3][2 * kTokens] = {};
  ForStrips<T>(scratch.keys, [&]<int NV>(std::int64_t key)
                                 HWY_ATTR { BackwardStrip<NV>(on, memory, key, overlaps); });
  if (on.scalar) DecayGradients(on, overlaps, grads);
}

/// A block: its chunks, the last first.
template <class T>
void BackwardBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  ReplayBlock(call, scratch);
  const Replay<T>& replay = *scratch.replay;
  if (call.rotation.frame != nullptr) EnterFrame(call, scratch);
  for (std::int64_t i = replay.count - 1; i >= 0; --i) {
    BackwardChunk(call, replay.chunks[i], scratch, replay.memories[i]);
  }
  if (call.rotation.frame == nullptr) return;
  if (replay.chunks[0].forget) {
    std::fill_n(call.rotation.d_angle, call.sizes.key_dim / 2, T(0));
  } else {
    AngleGradient(call, scratch, replay.memories[0]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_BLOCK_INL_H_
