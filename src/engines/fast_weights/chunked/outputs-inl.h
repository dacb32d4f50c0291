// What a strip of the memory gives the queries of a chunk (chunked/strip-inl.h). Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_OUTPUTS_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_OUTPUTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_OUTPUTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/strip_task-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// tile[r] += sum_j scores[i + r][j] rows[j], j < i + r, or j <= i + r with the diagonal.
template <class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void MulAddCausal(D d, const T* HWY_RESTRICT scores, const T* HWY_RESTRICT rows,
                             std::int64_t i, bool diagonal, ln::Tile<D, R, NV>& tile) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kWidth = NV * kLanes;
  const T* block = scores + i * kChunk;
  ln::MulAddRows<kChunk, 1>(d, block, rows, kWidth, i, tile);
  ln::MulAddStrictLower<kChunk>(d, block + i, rows + i * kWidth, kWidth, tile);
  if (!diagonal) return;
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    const auto score = hn::Set(d, block[i + r * (kChunk + 1)]);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto u = hn::Load(d, rows + (i + r) * kWidth + n * kLanes);
      tile[r][n] = hn::MulAdd(score, u, tile[r][n]);
    }
  }
}

/// MulAddCausal() for the rows i, i + every, i + 2 every, ...
template <class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void MulAddCausal(D d, const T* HWY_RESTRICT scores, const T* HWY_RESTRICT rows,
                             std::int64_t i, std::int64_t every, bool diagonal,
                             ln::Tile<D, R, NV>& tile) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    const std::int64_t row = i + r * every;
    for (std::int64_t j = 0; j < row + (diagonal ? 1 : 0); ++j) {
      const auto score = hn::Set(d, scores[row * kChunk + j]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        tile[r][n] = hn::MulAdd(score, hn::Load(d, rows + (j * NV + n) * kLanes), tile[r][n]);
      }
    }
  }
}

/// Stores the NV vectors of one output at `to`.
template <int NV, class T, class V>
HWY_INLINE void StoreOutput(const hn::Vec<hn::ScalableTag<T>> (&output)[NV], bool streams, V* to) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
#if HWY_TARGET != HWY_SCALAR
  if constexpr (NV == 2 && std::is_same_v<V, BFloat16>) {
    const hn::Repartition<std::uint16_t, decltype(d)> halves;
    const auto both = sn::NarrowBoth(d, output[0], output[1]);
    auto* const bits = reinterpret_cast<std::uint16_t*>(to);
    return streams ? hn::Stream(both, halves, bits) : hn::StoreU(both, halves, bits);
  }
#endif
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    if constexpr (std::is_same_v<V, T>) {
      if (streams) {
        hn::Stream(output[n], d, to + n * kLanes);
        continue;
      }
    }
    sn::StoreNarrow(d, output[n], to + n * kLanes);
  }
}

/// R outputs of one query head: to row i and those behind it, or where a token has SEVERAL rows, to
/// row i and the next of those that are read.
template <int R, bool SEVERAL, int NV, Bf16Products P, class T>
HWY_INLINE void OutputTile(const StripTask<T>& s, std::int64_t query, std::int64_t i,
                           OuterRows<T> y, StripRows<T> saved) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const Prepared<T>& p = s.prepared;
  const T* HWY_RESTRICT factors = p.read + query * kChunk;
  const bool diagonal = !s.options.read_before || s.options.bonus;
  const std::int64_t every = SEVERAL ? s.memory.dims.steps : 1;
  ln::Tile<decltype(d), R, NV> tile;
  ln::SetZero(d, tile);
  ReadStrip<P, SEVERAL>(s, s.Query(query), i, every, tile);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    const auto read = hn::Set(d, factors[i + r * every]);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(read, tile[r][n]);
  }
  auto add = [&](const T* scores, const T* updates) HWY_ATTR {
    if constexpr (SEVERAL) {
      MulAddCausal(d, scores, updates, i, every, diagonal, tile);
    } else {
      MulAddCausal(d, scores, updates, i, diagonal, tile);
    }
  };
  if (s.memory.writes()) {
    const T* const errors = s.scratch.errors;
    const std::int64_t at = query * kChunk * kChunk;
    add(p.scores + at, errors);
    if (s.options.separate_value_key()) add(p.score_values + at, errors + 2 * kChunk * kWidth);
  }
  const std::int64_t count = s.chunk.rows;
  const bool streams = s.outputs.streams;
  y.Visit([&](auto to) HWY_ATTR {
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const std::int64_t row = i + r * every;
      if (row >= count) break;
      StoreOutput<NV, T>(tile[r], streams, to[row]);
    }
  });
  if (saved.data == nullptr) return;
  SaveTile<R, NV>((count - i + every - 1) / every, tile, saved[i], every * saved.stride);
}

/// The outputs of one query head.
template <int NV, Bf16Products P, class T>
HWY_INLINE void FindOutputs(const StripTask<T>& s, std::int64_t query, OuterRows<T> y,
                            StripRows<T> saved) {
  const std::int64_t steps = s.memory.dims.steps, rows = s.chunk.rows;
  if (!(steps > 1)) {
    constexpr int kRows = ln::kTileRows;
    for (std::int64_t i = 0; i < rows; i += kRows) {
      OutputTile<kRows, false, NV, P>(s, query, i, y, saved);
    }
    return;
  }
  std::int64_t i = 0;
  while (i < rows && !s.memory.Reads(s.chunk.first + i)) ++i;
  while (i < rows) {
    const std::int64_t left = (rows - i + steps - 1) / steps;
    if (left >= 4) {
      OutputTile<4, true, NV, P>(s, query, i, y, saved);
      i += 4 * steps;
    } else if (left >= 2) {
      OutputTile<2, true, NV, P>(s, query, i, y, saved);
      i += 2 * steps;
    } else {
      OutputTile<1, true, NV, P>(s, query, i, y, saved);
      i += steps;
    }
  }
}

/// early[query W ...] = read_0 q_0 M: what the first row reads before its decay forgets the memory.
template <int NV, class T>
void FindEarlyOutputs(const StripTask<T>& s) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  for (std::int64_t query = 0; query < s.memory.dims.queries; ++query) {
    ln::Tile<decltype(d), 1, NV> tile;
    ln::SetZero(d, tile);
    ln::MulAddRows<1, kChunk>(d, s.prepared.columns.queries + query * s.columns(), s.strip,
                              NV * kLanes, s.rows(), tile);
    for (int n = 0; n < NV; ++n) {
      hn::Store(hn::Mul(hn::Set(d, s.prepared.read[query * kChunk]), tile[0][n]), d,
                s.scratch.early + (query * NV + n) * kLanes);
    }
  }
}

/// The outputs of the first row become the early ones.
template <int NV, class T>
void StoreEarlyOutputs(const StripTask<T>& s, std::int64_t query, OuterRows<T> y,
                       StripRows<T> saved) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const T bonus = s.options.bonus ? s.prepared.scores[query * kChunk * kChunk] : T(0);
  const T* const early = s.scratch.early + query * kWidth;
  for (std::size_t c = 0; c < kWidth; ++c) {
    const T x = s.options.bonus ? early[c] + bonus * s.scratch.errors[c] : early[c];
    y.Visit([&](auto to) { to[0][c] = sn::Narrow<std::remove_reference_t<decltype(*to[0])>>(x); });
    if (saved.data != nullptr) saved[0][c] = x;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_OUTPUTS_INL_H_
