// The forward pass of the gradient, block by block: errors of every token, and the memory at every
// checkpoint; and the memories between checkpoints, when a block is come back to. Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_FORWARD_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_FORWARD_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_advance-inl.h"
#include "src/engines/fast_weights/gradient_channel-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_momentum-inl.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/engines/fast_weights/gradient_turn-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// R rows of Products against vectors of D.
template <int R, class D, class T = hn::TFromD<D>>
HWY_INLINE void ProductRows(D d, View<T> rows, std::int64_t i, std::int64_t lanes_end,
                            const T* HWY_RESTRICT columns, std::int64_t count, T* out) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  constexpr int kNV = kLanes < kTokens / 2 ? 2 : 1;
  for (std::int64_t j = 0; j < lanes_end; j += kNV * kLanes) {
    ln::Tile<D, R, kNV> tile;
    ln::SetZero(d, tile);
    ln::Accumulate<false>(d, rows[i], rows.stride, 1, columns + j, kTokens, count, tile);
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      TTR_UNROLL
      for (int n = 0; n < kNV; ++n) {
        hn::Store(tile[r][n], d, out + (i + r) * kTokens + j + n * kLanes);
      }
    }
  }
}

/// out[i][j] = x_i . y_j, the y as columns [count][kTokens], at least where j <= i.
template <class T>
void Products(View<T> rows, const T* HWY_RESTRICT columns, std::int64_t count, T* out) {
  const hn::CappedTag<T, kHalf> half;
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  for (std::int64_t i = 0; i < kHalf; i += kRows) {
    ProductRows<kRows>(half, rows, i, kHalf, columns, count, out);
  }
  for (std::int64_t i = kHalf; i < kTokens; i += kRows) {
    ProductRows<kRows>(d, rows, i, kTokens, columns, count, out);
  }
}

/// out[i][j] = h_i D_ij products[i][j], for the pairs that meet; 0 elsewhere.
template <class T>
void Scores(const Chunk& chunk, const Coefficients<T>& c, ReadKind kind, const T* products,
            T* out) {
  const hn::CappedTag<T, kTokens> d;
  constexpr int kLanes = hn::MaxLanes(d);
  for (int i = 0; i < kTokens; ++i) {
    const T* between = c.Between(kind, i);
    const auto own = hn::Set(d, c.Own(kind, i));
    const int count = i < chunk.tokens ? Coefficients<T>::Count(kind, i) : 0;
    for (int j = 0; j < kTokens; j += kLanes) {
      const int at = i * kTokens + j;
      const auto decay = hn::Mul(own, hn::Load(d, between + j));
      const auto pairs = hn::FirstN(d, static_cast<std::size_t>(std::max(count - j, 0)));
      const auto score = hn::Mul(decay, hn::Load(d, products + at));
      hn::Store(hn::IfThenElseZero(pairs, score), d, out + at);
    }
  }
}

/// The products of the erasures with the writes of a chunk, as the forward pass kept them.
template <class T>
T* EraseProducts(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                 std::int64_t write) {
  return scratch.erase_products + (write * call.sizes.tokens + chunk.first) * kTokens;
}

/// e_i = v_i - r_i M~_i of one strip of value columns. `lower` [i][j] = -A_ij b_j; `lower_value` =
/// -A'_ij of the second write; `read` = the erasures' reading of the memory before the chunk, and
/// `decay` what multiplies it.
template <int NV, class T>
void SolveErrors(const GradientCall<T>& call, const Chunk& chunk, const T* lower,
                 const T* lower_value, const T* decay, const T* read, std::int64_t column,
                 const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::int64_t kLanes = Lanes<T>();
  T* errors = scratch.errors + chunk.first * scratch.values + column;
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t t = std::min(i + r, chunk.tokens - 1);
      const auto factor = hn::Set(d, decay[i + r]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const std::int64_t v = column + n * kLanes;
        const auto value =
            call.value ? hn::Load(d, call.value.data + (chunk.at + t) * call.value.stride + v)
                       : hn::Zero(d);
        tile[r][n] = chunk.forget || decay[i + r] == 0
                         ? value
                         : hn::NegMulAdd(factor, hn::Load(d, read + t * scratch.values + v), value);
      }
    }
    if (call.second_value) {
      const T* values = call.second_value.data + chunk.at * call.second_value.stride + column;
      ln::Accumulate<false>(d, lower_value + i * kTokens, kTokens, 1, values,
                            call.second_value.stride, std::min(i + kRows, chunk.tokens), tile);
    }
    ln::Accumulate<false>(d, lower + i * kTokens, kTokens, 1, errors, scratch.values, i, tile);
    ln::SolveUnitLower<kTokens>(d, lower + i * kTokens + i, tile);
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (i + r >= chunk.tokens) break;
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        hn::Store(tile[r][n], d, errors + (i + r) * scratch.values + n * kLanes);
      }
    }
  }
}

template <class T>
void Errors(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
            const Scratch<T>& scratch, const T* memory) {
  const GradientSizes& sizes = call.sizes;
  const bool channels = sizes.decay == GradientDecay::kChannel;
  const std::int64_t erasure = sizes.queries;
  const ReadKind kind = KindOf(call, erasure);
  const ChunkRows<T> chunk_rows(call, chunk, scratch);
  chunk_rows.CopyKeys(false);
  const View<T> rows = chunk_rows.Read(erasure);
  alignas(64) T lower[2][kSquare];
  T decay[kTokens];
  const bool carried = channels || scratch.parts > 1;
  for (int i = 0; i < kTokens; ++i) decay[i] = carried ? T(1) : c.State(kind, i) * c.Own(kind, i);

  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const View<T> writes = chunk_rows.Write(w);
    alignas(64) T products[kSquare];
    if (channels) {
      ChannelProducts(call, chunk, kind, rows, writes, scratch, products);
    } else {
      sn::TransposeStrided(writes.data, writes.stride, kTokens, scratch.keys, scratch.write_columns,
                           kTokens);
      Products(rows, scratch.write_columns, sizes.key_dim, products);
    }
    std::copy(products, products + chunk.tokens * kTokens, EraseProducts(call, chunk, scratch, w));
    Scores(chunk, c, kind, products, lower[w]);
    for (int i = 0; i < kTokens; ++i) {
      for (int j = 0; j < kTokens; ++j) {
        lower[w][i * kTokens + j] *= w == 0 ? -c.b[j] : T(-1);
      }
    }
  }

  T* read = scratch.update_grads;
  if (!chunk.forget) {
    View<T> reads = rows;
    if (channels) {
      DecayReads(call, chunk, rows, erasure, scratch);
      reads = {scratch.read_rows + erasure * kTokens * scratch.keys, scratch.keys};
    }
    const T* columns = scratch.write_columns;
    if (channels || scratch.writes > 1 || call.erase.data != call.write.data) {
      sn::TransposeStrided(reads.data, reads.stride, kTokens, scratch.keys, scratch.columns,
                           kTokens);
      columns = scratch.columns;
    }
    T own[2][kTokens];
    ReadParts(call, scratch, memory, columns, c.ReadFactors(kind, own[0]),
              c.ReadFactors(kind, own[1], 1), scratch.update_columns);
    sn::TransposeStrided(scratch.update_columns, kTokens, scratch.values, kTokens, read,
                         scratch.values);
  }
  for (std::int64_t v = 0; v < scratch.values;) {
    if (Vectors<T>(v, scratch.values) == 2) {
      SolveErrors<2>(call, chunk, lower[0], lower[1], decay, read, v, scratch);
      v += 2 * Lanes<T>();
    } else {
      SolveErrors<1>(call, chunk, lower[0], lower[1], decay, read, v, scratch);
      v += Lanes<T>();
    }
  }
}

/// write_rows and updates of a chunk whose errors are known.
template <class T>
void PrepareWrites(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                   const Scratch<T>& scratch) {
  DecayWrites(call, chunk, c, scratch);
  ScaleRows(chunk, ErrorsOf(call, chunk, scratch), c.b, scratch.values,
            scratch.updates + chunk.at * scratch.update_stride, scratch.update_stride);
}

/// The memory at the beginning of the interval of checkpoints that begins with token `first`.
template <class T>
T* Checkpoint(const Scratch<T>& scratch, std::int64_t first) {
  return scratch.checkpoints + first / scratch.interval * scratch.state;
}

/// A block: the errors of its tokens, the checkpoints up to the next block's. The memory after the
/// last token of all, where it is wanted, is left in scratch.memories.
template <class T>
void ForwardBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const std::int64_t chunks = RoundUp(call.tokens, kTokens) / kTokens;
  const std::int64_t of_parts = chunks * scratch.parts;
  StartFetching(call, scratch, call.sizes.erase ? of_parts : 0, 0, of_parts);
  const T* memory = Checkpoint(scratch, call.first);
  for (std::int64_t at = 0; at < call.tokens;) {
    const Chunk chunk = NextChunk(call, at, scratch);
    at += chunk.tokens;
    const Coefficients<T> c(call, chunk);
    if (call.sizes.decay == GradientDecay::kChannel) Prefixes(call, chunk, scratch);
    if (call.sizes.erase) Errors(call, chunk, c, scratch, memory);
    const bool last = call.last && at == call.tokens;
    if (last && call.overlap == nullptr && call.turned == nullptr) break;
    PrepareWrites(call, chunk, c, scratch);
    const bool checkpoint = !last && at % scratch.interval == 0;
    T* next = checkpoint ? Checkpoint(scratch, call.first + at) : scratch.memories;
    Advance(call, chunk, c, scratch, memory, next);
    if (call.frame != nullptr && at == call.tokens) LeaveFrame(call, scratch, next);
    memory = next;
  }
}

/// The chunks of a block and the memories before them.
template <class T>
void ReplayBlock(const GradientCall<T>& call, const Scratch<T>& scratch) {
  const std::int64_t chunks = RoundUp(call.tokens, kTokens) / kTokens;
  const std::int64_t advances = scratch.interval == kTokens ? 0 : chunks - 1;
  const std::int64_t of_parts = chunks * scratch.parts;
  StartFetching(call, scratch, of_parts * scratch.writes,
                of_parts * (scratch.reads + scratch.writes), of_parts + advances * scratch.parts);
  Replay<T>& replay = *scratch.replay;
  replay.count = 0;
  std::int64_t used = 0;
  const T* memory = nullptr;
  T last[kGradientBlock];
  bool advances_any = false;
  for (std::int64_t at = 0; at < call.tokens;) {
    if (call.sizes.saved) {
      if (at == 0) memory = call.saved_memory;
    } else if (at % scratch.interval == 0) {
      memory = Checkpoint(scratch, call.first + at);
    }
    const Chunk chunk = NextChunk(call, at, scratch);
    const Coefficients<T> c(call, chunk, false);
    PrepareWrites(call, chunk, c, scratch);
    last[replay.count] = c.Last(chunk);
    replay.chunks[replay.count] = chunk;
    replay.next[replay.count] = nullptr;
    replay.memories[replay.count++] = memory;
    at += chunk.tokens;
    // A memory that the next chunk forgets is not needed, which leaves three at the most.
    if (at == call.tokens || at % scratch.interval == 0) continue;
    if (NextChunk(call, at, scratch).forget) continue;
    T* next = scratch.memories + used++ * scratch.state;
    if (scratch.parts > 1) {
      Advance(call, chunk, c, scratch, memory, next);
    } else {
      replay.next[replay.count - 1] = next;
      advances_any = true;
    }
    memory = next;
  }
  if (advances_any) AdvanceThrough(call, replay, last, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_FORWARD_INL_H_
