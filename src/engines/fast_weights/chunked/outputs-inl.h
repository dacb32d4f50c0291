// What a strip of the memory answers to a chunk's queries (chunked/strip-inl.h), and the rows that
// values come from and answers go to. Compiled once for every target.

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
#include "src/engines/fast_weights/chunked/bf16_products-inl.h"
#include "src/engines/fast_weights/chunked/scalar_decay-inl.h"
#include "src/engines/fast_weights/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Rows of T, one a token, of one strip's columns.
template <class T>
struct StripRows {
  T* data;
  std::int64_t stride;
  T* operator[](std::int64_t token) const { return data + token * stride; }
};

/// The same of values or answers: of T, or where they are `narrow` of bfloat16.
template <class T>
struct OuterRows {
  void* data;
  std::int64_t stride;
  bool narrow;

  /// Calls use(the rows) as those of their type.
  template <class Use>
  HWY_INLINE void Visit(const Use& use) const {
    if constexpr (std::is_same_v<T, float>) {
      if (narrow) return use(StripRows<BFloat16>{static_cast<BFloat16*>(data), stride});
    }
    use(StripRows<T>{static_cast<T*>(data), stride});
  }
};

/// Where a chunk's rows are kept for the backward pass, if they are.
template <class T>
struct SavedRows {
  StripRows<T> errors, answers;
  std::int64_t answers_head_stride;
};

/// The first `count` rows of a tile to where they are kept.
template <int R, int NV, class T>
HWY_INLINE void KeepTile(std::int64_t count, const ln::Tile<hn::ScalableTag<T>, R, NV>& tile, T* to,
                         std::int64_t stride) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    if (r >= count) break;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) hn::Store(tile[r][n], d, to + r * stride + n * hn::MaxLanes(d));
  }
}

/// Rows of the memory that hold something.
inline std::int64_t StripRowsOf(const Options& options, const Memory& memory) {
  return (options.paired() ? 2 : 1) * memory.key_dim;
}

/// tile[r] += row i + r of a chunk's columns, or where SEVERAL i + r `every`, times the strip;
/// where products are NARROW, of their pairs times its copy.
template <bool NARROW, bool SEVERAL, int R, int NV, class T>
HWY_INLINE void ReadStrip(const T* columns, const std::uint32_t* pairs, std::int64_t i,
                          std::int64_t every, const T* HWY_RESTRICT strip,
                          const std::uint32_t* HWY_RESTRICT strip_pairs, std::int64_t rows,
                          ln::Tile<hn::ScalableTag<T>, R, NV>& tile) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  if constexpr (NARROW) {
    MulAddPairs(pairs + i, SEVERAL ? every : 1, kChunk, strip_pairs, (rows + 1) / 2, tile);
  } else if constexpr (SEVERAL) {
    ln::Accumulate<false>(d, columns + i, every, kChunk, strip, kWidth, rows, tile);
  } else {
    ln::MulAddRows<1, kChunk>(d, columns + i, strip, kWidth, rows, tile);
  }
}

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

/// The same of rows i, i + every, ...
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

/// The NV vectors of one answer to where it lies, past the caches if it `streams`.
template <int NV, class T, class V>
HWY_INLINE void StoreAnswer(const hn::Vec<hn::ScalableTag<T>> (&answer)[NV], bool streams, V* to) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
#if HWY_TARGET != HWY_SCALAR
  if constexpr (NV == 2 && std::is_same_v<V, BFloat16>) {
    const hn::Repartition<std::uint16_t, decltype(d)> narrow;
    const auto both = sn::NarrowBoth(d, answer[0], answer[1]);
    auto* const bits = reinterpret_cast<std::uint16_t*>(to);
    return streams ? hn::Stream(both, narrow, bits) : hn::StoreU(both, narrow, bits);
  }
#endif
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    if constexpr (std::is_same_v<V, T>) {
      if (streams) {
        hn::Stream(answer[n], d, to + n * kLanes);
        continue;
      }
    }
    sn::StoreNarrow(d, answer[n], to + n * kLanes);
  }
}

/// R answers of one query head, past the caches if it `streams`: to row i and those behind it, or,
/// where a token has several rows, to row i and the next of those that are read. `kept`: a second
/// place, if there is one.
template <int R, bool SEVERAL, int NV, bool NARROW, class T>
HWY_INLINE void AnswerTile(const Options& options, const Memory& memory, const Chunk& chunk,
                           const Prepared<T>& p, std::int64_t query, std::int64_t i,
                           const T* HWY_RESTRICT strip, const std::uint32_t* HWY_RESTRICT pairs,
                           const T* HWY_RESTRICT errors, OuterRows<T> y, bool streams,
                           StripRows<T> saved) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const T* HWY_RESTRICT queries =
      p.queries + query * StateRows<T>(options, memory.key_dim) * kChunk;
  const T* HWY_RESTRICT factors = p.read + query * kChunk;
  const bool diagonal = !options.read_before || options.bonus;
  const std::int64_t every = SEVERAL ? memory.steps : 1;
  const std::int64_t rows = StripRowsOf(options, memory);
  ln::Tile<decltype(d), R, NV> tile;
  ln::SetZero(d, tile);
  const std::uint32_t* const query_pairs =
      NARROW ? p.query_pairs + query * StateRows<T>(options, memory.key_dim) * kChunk / 2 : nullptr;
  ReadStrip<NARROW, SEVERAL>(queries, query_pairs, i, every, strip, pairs, rows, tile);
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
  if (memory.writes()) {
    const std::int64_t at = query * kChunk * kChunk;
    add(p.scores + at, errors);
    if (options.separate_value_key()) add(p.score_values + at, errors + 2 * kChunk * kWidth);
  }
  y.Visit([&](auto to) HWY_ATTR {
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const std::int64_t row = i + r * every;
      if (row >= chunk.rows) break;
      StoreAnswer<NV, T>(tile[r], streams, to[row]);
    }
  });
  if (saved.data == nullptr) return;
  KeepTile<R, NV>((chunk.rows - i + every - 1) / every, tile, saved[i], every * saved.stride);
}

/// The answers of one query head.
template <int NV, bool NARROW, class T>
HWY_INLINE void Answer(const Options& options, const Memory& memory, const Chunk& chunk,
                       const Prepared<T>& p, std::int64_t query, const T* HWY_RESTRICT strip,
                       const std::uint32_t* HWY_RESTRICT pairs, const T* HWY_RESTRICT errors,
                       OuterRows<T> y, bool streams, StripRows<T> saved) {
  const std::int64_t steps = memory.steps;
  if (!(steps > 1)) {
    constexpr int kRows = ln::kTileRows;
    for (std::int64_t i = 0; i < chunk.rows; i += kRows) {
      AnswerTile<kRows, false, NV, NARROW>(options, memory, chunk, p, query, i, strip, pairs,
                                           errors, y, streams, saved);
    }
    return;
  }
  auto answer = [&]<int R>(std::int64_t i) HWY_ATTR {
    AnswerTile<R, true, NV, NARROW>(options, memory, chunk, p, query, i, strip, pairs, errors, y,
                                    streams, saved);
  };
  std::int64_t i = 0;
  while (i < chunk.rows && !memory.Reads(chunk.first + i)) ++i;
  while (i < chunk.rows) {
    const std::int64_t left = (chunk.rows - i + steps - 1) / steps;
    if (left >= 4) {
      answer.template operator()<4>(i);
      i += 4 * steps;
    } else if (left >= 2) {
      answer.template operator()<2>(i);
      i += 2 * steps;
    } else {
      answer.template operator()<1>(i);
      i += steps;
    }
  }
}

/// early[query W ...] = read_0 q_0 M: what the first row reads before its decay forgets the memory.
template <int NV, class T>
void AnswerEarly(const Options& options, const Memory& memory, const Prepared<T>& p, const T* strip,
                 T* early) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t state_rows = StateRows<T>(options, memory.key_dim);
  for (std::int64_t query = 0; query < memory.queries; ++query) {
    ln::Tile<decltype(d), 1, NV> tile;
    ln::SetZero(d, tile);
    ln::MulAddRows<1, kChunk>(d, p.queries + query * state_rows * kChunk, strip, NV * kLanes,
                              StripRowsOf(options, memory), tile);
    for (int n = 0; n < NV; ++n) {
      hn::Store(hn::Mul(hn::Set(d, p.read[query * kChunk]), tile[0][n]), d,
                early + (query * NV + n) * kLanes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_OUTPUTS_INL_H_
