// All that a chunk needs once, for all value columns. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_PREPARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_PREPARE_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_PREPARE_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_PREPARE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/channel_decay-inl.h"
#include "src/engines/fast_weights/chunked/momentum-inl.h"
#include "src/engines/fast_weights/chunked/output_scaling-inl.h"
#include "src/engines/fast_weights/chunked/prepared.h"
#include "src/engines/fast_weights/chunked/scalar_decay-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// A decay that all rows of the memory share is lazy: strips hold the memory over the decays so
/// far, `lazy_decay`, by which reads are multiplied and what is written is divided. It is applied
/// where the memory itself is `wanted`, or when it is small. A multiplication less for every vector
/// of the memory and chunk.
template <class T>
HWY_INLINE void DecayLazily(const Options& options, std::int64_t queries, std::int64_t stride,
                            bool wanted, T& lazy_decay, Chunk& chunk, const Prepared<T>& out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  constexpr T kLeast = T(1) / 1024;  // numbers of the strips are at most so much larger
  auto multiply = [&](T factor, T* row) HWY_ATTR {
    if (factor == 1) return;
    for (int j = 0; j < kChunk; j += kLanes) {
      hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, row + j)), d, row + j);
    }
  };
  // What is forgotten is read at most once more, before: all else reads zeros.
  const T before = lazy_decay;
  if (options.erases()) multiply(before, out.decay);
  for (std::int64_t q = 0; q < queries; ++q) multiply(before, out.read + q * kChunk);
  const T after = chunk.forget ? out.row_decay[0] : before * out.row_decay[0];
  chunk.decays = wanted || !(after >= kLeast);
  lazy_decay = chunk.decays ? T(1) : after;
  if (chunk.decays) {
    if (before != 1) std::fill(out.row_decay, out.row_decay + stride, after);
  } else {
    multiply(1 / after, out.to_end);
  }
}

/// Queries of a memory that nothing is written to.
template <class T>
HWY_INLINE void PrepareReads(const Options& options, const Memory& memory, const Chunk& chunk,
                             const Scratch<T>& scratch, const Prepared<T>& out) {
  const Gathered<T>& g = scratch.gathered;
  const std::int64_t queries = memory.readers();
  const std::int64_t state_rows = StateRows<T>(options, memory.dims.key_dim);
  for (std::int64_t q = 0; q < queries; ++q) {
    T* query = out.columns.queries + q * state_rows * kChunk;
    PackColumns(memory, chunk, g.query + q * g.query_stride, g.stride, true, scratch.prepared.zeros,
                query);
    PadColumns(query, memory.dims.key_dim, state_rows);
  }
  std::fill(out.read, out.read + queries * kChunk, static_cast<T>(options.scale));
  ScaleOutputs(options, memory, chunk, scratch, out);
}

/// What the rows' own values weigh: of the gathered rows, which ChannelDecay uses up.
template <class T>
HWY_INLINE void FindBonuses(const Options& options, const Chunk& chunk, std::int64_t queries,
                            const Scratch<T>& scratch) {
  const Gathered<T>& g = scratch.gathered;
  for (std::int64_t q = 0; q < queries; ++q) {
    for (std::int64_t i = 0; i < chunk.rows; ++i) {
      scratch.prepared.bonuses[q * kChunk + i] =
          Bonus(options, g, i, g.query + q * g.query_stride + i * g.stride);
    }
  }
}

/// Prepares a chunk. `wanted`: is the memory itself needed after the chunk?
template <class T>
HWY_INLINE void Prepare(const Options& options, const Memory& memory, bool wanted, Chunk& chunk,
                        Scratch<T>& scratch, const Prepared<T>& out) {
  Gathered<T>& g = scratch.gathered;
  T* const lengths = scratch.prepared.units;
  const std::int64_t queries = memory.readers();
  const bool in_place = chunk.in_place;
  const bool units = in_place && options.normalise_qk;
  if (!in_place) GatherRows(options, memory, chunk, scratch.running, g);
  GatherNumbers(options, memory, chunk, scratch.running, g);
  if (!memory.writes()) return PrepareReads(options, memory, chunk, scratch, out);
  if (options.bonus) FindBonuses(options, chunk, queries, scratch);
  if (options.by_channel()) {
    ChannelDecay<T>(options, memory, chunk, in_place, scratch, out).Prepare();
  } else if (options.momentum) {
    PrepareMomentum(options, memory, chunk, scratch, out);
  } else {
    PrepareScalar(options, memory, chunk, in_place, scratch, out);
    if (units) FoldUnits(options, queries, lengths, out);
  }
  for (std::int64_t q = 0; options.bonus && q < queries; ++q) {
    for (int i = 0; i < kChunk; ++i) {
      out.scores[(q * kChunk + i) * kChunk + i] = scratch.prepared.bonuses[q * kChunk + i];
    }
  }
  if (queries > 0) ScaleOutputs(options, memory, chunk, scratch, out);
  if (options.denominator != Denominator::kNone) UpdateSum(options, chunk, scratch, out);
  FoldSteps(options, units, queries, out);
  if (options.by_channel() || options.momentum) return;
  DecayLazily(options, queries, g.stride, wanted, scratch.running.lazy_decay, chunk, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_PREPARE_INL_H_
