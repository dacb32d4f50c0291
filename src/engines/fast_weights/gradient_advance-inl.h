// The memory from chunk to chunk: one at a time as the errors of each are found, or all of a block
// whose errors are known. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_ADVANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_ADVANCE_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_ADVANCE_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_ADVANCE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_momentum-inl.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
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
  return {rows, scratch.write_stride, call.second_value.data + chunk.at * call.second_value.stride,
          call.second_value.stride};
}

/// A strip of both parts, with momentum.
template <int NV, class T>
void AdvanceParts(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                  const Scratch<T>& scratch, std::int64_t key, const T* in, T* out) {
  const hn::ScalableTag<T> d;
  const std::int64_t offset = key * scratch.values;
  Turn<T>(chunk, c).Forward(NV * Lanes<T>() * scratch.values, scratch.matrix, in + offset,
                            out + offset);
  hn::Vec<decltype(d)> one[NV];
  for (int n = 0; n < NV; ++n) one[n] = hn::Set(d, T(1));
  for (std::int64_t part = 0; part < scratch.parts; ++part) {
    T* const of_part = out + part * scratch.matrix + offset;
    Outer<T> outer = OuterOf(call, chunk, scratch, 0, key);
    outer.rows = scratch.WriteRow(part, chunk.at) + key;
    UpdateStrip<NV, false, T>(call, chunk.tokens, of_part, of_part, one, &outer, 1, nullptr,
                              nullptr);
  }
}

template <int NV, class T>
void AdvanceStrip(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                  const Scratch<T>& scratch, std::int64_t key, const T* in, T* out) {
  if (scratch.parts > 1) return AdvanceParts<NV>(call, chunk, c, scratch, key, in, out);
  hn::Vec<hn::ScalableTag<T>> decay[NV];
  LastDecay(call, chunk, c.Last(chunk), key, decay);
  Outer<T> outers[2];
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    outers[w] = OuterOf(call, chunk, scratch, w, key);
  }
  const std::int64_t offset = key * scratch.values;
  UpdateStrip<NV, false, T>(call, chunk.tokens, chunk.forget ? nullptr : in + offset, out + offset,
                            decay, outers, scratch.writes, nullptr, nullptr);
}

/// Strip `key` of the memories behind a block's chunks, tile by tile: a memory is the next one's
/// beginning while it is in registers. `last`: c_n of every chunk, where it is a number.
template <int NV, class T>
void AdvanceStripThrough(const GradientCall<T>& call, const Replay<T>& replay, const T* last,
                         const Scratch<T>& scratch, std::int64_t key) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kLanes = Lanes<T>();
  constexpr std::int64_t kWidth = NV * kLanes;
  alignas(64) T decays[kGradientBlock * kWidth];
  for (std::int64_t c = 0; c < replay.count; ++c) {
    hn::Vec<decltype(d)> decay[NV];
    LastDecay(call, replay.chunks[c], last[c], key, decay);
    for (int n = 0; n < NV; ++n) hn::Store(decay[n], d, decays + c * kWidth + n * kLanes);
  }
  const std::int64_t offset = key * scratch.values;
  for (std::int64_t v = 0; v < call.sizes.value_dim; v += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    bool held = false;  // is the memory before the chunk in the tile?
    for (std::int64_t c = 0; c < replay.count; ++c) {
      T* const next = replay.next[c];
      if (next == nullptr) {
        held = false;
        continue;
      }
      Fetch(call);
      const Chunk& chunk = replay.chunks[c];
      const T* in = replay.memories[c] + offset;
      const T* decay = decays + c * kWidth;
      if (chunk.forget) {
        ln::SetZero(d, tile);
      } else {
        if (!held) LoadTile<NV>(in + v * kWidth, kWidth, tile);
        hn::Vec<decltype(d)> factors[NV];
        for (int n = 0; n < NV; ++n) factors[n] = hn::Load(d, decay + n * kLanes);
        TTR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          TTR_UNROLL
          for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(factors[n], tile[r][n]);
        }
        Zeros<NV, T>(factors).Clear(tile);
      }
      for (std::int64_t w = 0; w < scratch.writes; ++w) {
        const Outer<T> outer = OuterOf(call, chunk, scratch, w, key);
        ln::Accumulate<false>(d, outer.values + v, 1, outer.value_stride, outer.rows,
                              outer.row_stride, chunk.tokens, tile);
      }
      StoreTile<NV>(kRows, next + offset + v * kWidth, kWidth, tile);
      held = true;
    }
  }
}

/// The memories behind the chunks of a block that are wanted.
template <class T>
void AdvanceThrough(const GradientCall<T>& call, const Replay<T>& replay, const T* last,
                    const Scratch<T>& scratch) {
  for (std::int64_t k = 0; k < scratch.keys;) {
    if (Vectors<T>(k, scratch.keys) == 2) {
      AdvanceStripThrough<2>(call, replay, last, scratch, k);
      k += 2 * Lanes<T>();
    } else {
      AdvanceStripThrough<1>(call, replay, last, scratch, k);
      k += Lanes<T>();
    }
  }
}

/// The memory after the chunk, from the one before it and the chunk's write_rows and updates.
template <class T>
void Advance(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
             const Scratch<T>& scratch, const T* in, T* out) {
  for (std::int64_t k = 0; k < scratch.keys;) {
    if (Vectors<T>(k, scratch.keys) == 2) {
      AdvanceStrip<2>(call, chunk, c, scratch, k, in, out);
      k += 2 * Lanes<T>();
    } else {
      AdvanceStrip<1>(call, chunk, c, scratch, k, in, out);
      k += Lanes<T>();
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_ADVANCE_INL_H_
