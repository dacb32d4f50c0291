// The memories within a block, from the one before it and the saved errors. Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_REPLAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_REPLAY_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_REPLAY_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_REPLAY_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/coefficients-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/momentum-inl.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/state-inl.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// What write w of a chunk adds to a strip.
template <class T>
Outer<T> OuterOf(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                 std::int64_t w, std::int64_t key) {
  const T* const rows = scratch.WriteRow(w, chunk.at) + key;
  if (w == 0) {
    return {rows, scratch.write_stride, scratch.updates + chunk.at * scratch.update_stride,
            scratch.update_stride};
  }
  const View<T> values = RowsOf(call.in.second_value, chunk);
  return {rows, scratch.write_stride, values.data, values.stride};
}

/// Both planes of a memory with momentum after the chunk, from those before it.
template <class T>
void AdvancePlanes(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const Scratch<T>& scratch, const T* in, T* out) {
  const Transition<T> transition(chunk, c);
  ForStrips<T>(scratch.keys, [&]<int NV>(std::int64_t key) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const std::int64_t offset = key * scratch.values;
    transition.Forward(NV * Lanes<T>() * scratch.values, scratch.matrix, in + offset, out + offset);
    hn::Vec<decltype(d)> one[NV];
    for (int n = 0; n < NV; ++n) one[n] = hn::Set(d, T(1));
    for (std::int64_t plane = 0; plane < scratch.planes; ++plane) {
      Outer<T> outer = OuterOf(call, chunk, scratch, 0, key);
      outer.rows = scratch.WriteRow(plane, chunk.at) + key;
      UpdateStrip<NV, false, T>(call, chunk.tokens, out + plane * scratch.matrix + offset, one,
                                {&outer, 1});
    }
  });
}

/// tile = what a tile of the memory is after a chunk. `in`: before it, where it is not in the tile;
/// `decay`: c_n on the strip's lanes.
template <int NV, class T>
HWY_INLINE void AdvanceTile(const GradientCall<T>& call, const Chunk& chunk,
                            const Scratch<T>& scratch, std::int64_t key, std::int64_t v,
                            const T* in, const T* decay,
                            ln::Tile<hn::ScalableTag<T>, ln::kTileRows, NV>& tile) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = Lanes<T>();
  if (chunk.forget) {
    ln::SetZero(d, tile);
  } else {
    if (in != nullptr) LoadTile<NV>(in, NV * kLanes, tile);
    hn::Vec<decltype(d)> factors[NV];
    for (int n = 0; n < NV; ++n) factors[n] = hn::Load(d, decay + n * kLanes);
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(factors[n], tile[r][n]);
    }
    Zeros<NV, T>(factors).Clear(tile);
  }
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const Outer<T> outer = OuterOf(call, chunk, scratch, w, key);
    ln::Accumulate<false>(d, outer.values + v, 1, outer.value_stride, outer.rows, outer.row_stride,
                          chunk.tokens, tile);
  }
}

/// Strip `key` of the memories behind a block's chunks, tile by tile: a memory is the next one's
/// beginning while it is in registers. `last`: c_n of every chunk, where it is a number.
template <int NV, class T>
void AdvanceStrip(const GradientCall<T>& call, const Replay<T>& replay, const T* last,
                  const Scratch<T>& scratch, std::int64_t key) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kWidth = NV * Lanes<T>();
  alignas(64) T decays[kGradientBlock * kWidth];
  for (std::int64_t c = 0; c < replay.count; ++c) {
    hn::Vec<decltype(d)> decay[NV];
    LastDecay(call, replay.chunks[c], last[c], key, decay);
    for (int n = 0; n < NV; ++n) hn::Store(decay[n], d, decays + c * kWidth + n * Lanes<T>());
  }
  const std::int64_t offset = key * scratch.values;
  for (std::int64_t v = 0; v < call.sizes.value_dim; v += ln::kTileRows) {
    const std::int64_t at = offset + v * kWidth;
    ln::Tile<decltype(d), ln::kTileRows, NV> tile;
    bool held = false;  // is the memory before the chunk in the tile?
    for (std::int64_t c = 0; c < replay.count; ++c) {
      T* const next = replay.next[c];
      if (next == nullptr) {
        held = false;
        continue;
      }
      Fetch(call);
      AdvanceTile<NV>(call, replay.chunks[c], scratch, key, v,
                      held ? nullptr : replay.memories[c] + at, decays + c * kWidth, tile);
      StoreTile<NV>(ln::kTileRows, next + at, kWidth, tile);
      held = true;
    }
  }
}

/// The chunks of a block, their decayed rows and updates, and the memories before them.
template <class T>
void ReplayBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const std::int64_t chunks = RoundUp(call.tokens, kTokens) / kTokens;
  const std::int64_t of_planes = chunks * scratch.planes;
  StartFetching(call, scratch, of_planes * scratch.writes,
                of_planes * (scratch.reads + scratch.writes),
                of_planes + (chunks - 1) * scratch.planes);
  Replay<T>& replay = *scratch.replay;
  replay.count = 0;
  const T* memory = call.saved.memory;
  std::int64_t used = 0;
  T last[kGradientBlock];
  for (std::int64_t at = 0; at < call.tokens;) {
    const Chunk chunk = NextChunk(call, at);
    const Coefficients<T> c(call, chunk, false);
    DecayWrites(call, chunk, c, scratch);
    ScaleRows(chunk, ErrorsOf(call, chunk, scratch), c.b, scratch.values,
              scratch.updates + chunk.at * scratch.update_stride, scratch.update_stride);
    at += chunk.tokens;
    // A memory that the next chunk forgets is not needed, which leaves three at the most.
    const bool needed = at < call.tokens && !NextChunk(call, at).forget;
    T* const next = needed ? scratch.memories + used++ * scratch.state : nullptr;
    const std::int64_t i = replay.count++;
    last[i] = c.Last(chunk);
    replay.chunks[i] = chunk;
    replay.memories[i] = memory;
    replay.next[i] = next;
    if (needed && scratch.planes > 1) AdvancePlanes(call, chunk, c, scratch, memory, next);
    if (needed) memory = next;
  }
  if (used == 0 || scratch.planes > 1) return;
  ForStrips<T>(scratch.keys, [&]<int NV>(std::int64_t key)
                                 HWY_ATTR { AdvanceStrip<NV>(call, replay, last, scratch, key); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_REPLAY_INL_H_
