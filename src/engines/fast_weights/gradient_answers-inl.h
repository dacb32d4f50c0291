// What the queries of a block find, where an answer is divided or normalised and its gradient
// depends on it: of the memory before their chunk, and of the chunk's writes. Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_ANSWERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_ANSWERS_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_ANSWERS_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_ANSWERS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_adjoint-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// One vector of value columns of the answers to query x; `read`: what it finds of the memory, but
/// for the factors of its rows.
template <class T>
void AnswerColumns(const GradientCall<T>& call, const Chunk& chunk, const ChunkRows<T>& rows,
                   const T* factors, const T* read, std::int64_t x, std::int64_t column,
                   const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  T* out = call.answers.data + x * call.answers.head_stride + chunk.at * call.answers.stride;
  const GradientRows<const T>& own = call.sizes.second_write ? call.second_value : call.value;
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    ln::Tile<decltype(d), kRows, 1> tile;
    ln::SetZero(d, tile);
    for (std::int64_t w = 0; w < scratch.writes; ++w) {
      const T* scores = scratch.scores + (x * scratch.writes + w) * kSquare + i * kTokens;
      const View<T> updates = rows.Update(w);
      ln::Accumulate<false>(d, scores, kTokens, 1, updates.data + column, updates.stride,
                            std::min(i + kRows, chunk.tokens), tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (i + r >= chunk.tokens) break;
      auto y = tile[r][0];
      if (!chunk.forget && factors[i + r] != 0) {
        const auto found = hn::Load(d, read + (i + r) * scratch.values + column);
        y = hn::MulAdd(hn::Set(d, factors[i + r]), found, y);
      }
      if (call.bonus) {
        const std::int64_t t = chunk.at + i + r;
        const T factor = call.bonus.data[x * call.bonus.head_stride + t * call.bonus.stride];
        const auto value = hn::Load(d, own.data + t * own.stride + column);
        y = hn::MulAdd(hn::Set(d, factor), value, y);
      }
      hn::Store(y, d, out + (i + r) * call.answers.stride + column);
    }
  }
}

/// The answers of a block that was replayed.
template <class T>
void AnswerBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const Replay<T>& replay = *scratch.replay;
  for (std::int64_t i = 0; i < replay.count; ++i) {
    const Chunk& chunk = replay.chunks[i];
    const Coefficients<T> c(call, chunk);
    const ChunkRows<T> rows(call, chunk, scratch);
    rows.CopyKeys();
    rows.CopyValues();
    const bool channels = call.sizes.decay == GradientDecay::kChannel;
    if (channels) Prefixes(call, chunk, scratch);
    for (std::int64_t w = 0; w < scratch.writes; ++w) ScoresOf(call, chunk, c, rows, scratch, w);
    T* const read = scratch.update_grads;
    for (std::int64_t x = 0; x < call.sizes.queries; ++x) {
      T own[2][kTokens];
      const ReadKind kind = KindOf(call, x);
      const T* const first = c.ReadFactors(kind, own[0]);
      if (!chunk.forget) {
        View<T> reads = rows.Read(x);
        if (channels) {
          DecayReads(call, chunk, reads, x, scratch);
          reads = {scratch.read_rows + x * kTokens * scratch.keys, scratch.keys};
        }
        sn::TransposeStrided(reads.data, reads.stride, kTokens, scratch.keys, scratch.columns,
                             kTokens);
        ReadParts(call, scratch, replay.memories[i], scratch.columns, first,
                  c.ReadFactors(kind, own[1], 1), scratch.update_columns);
        sn::TransposeStrided(scratch.update_columns, kTokens, scratch.values, kTokens, read,
                             scratch.values);
      }
      // What is read of two parts has been multiplied.
      T factors[kTokens];
      for (int t = 0; t < kTokens; ++t) factors[t] = scratch.parts > 1 ? T(1) : first[t];
      for (std::int64_t v = 0; v < scratch.values; v += Lanes<T>()) {
        AnswerColumns(call, chunk, rows, factors, read, x, v, scratch);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_ANSWERS_INL_H_
