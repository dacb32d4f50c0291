// Tokens of a chunk as weighted rows. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_SEQUENCE_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_SEQUENCE_GATHER_INL_H_
#undef TTR_LEAST_SQUARES_SEQUENCE_GATHER_INL_H_
#else
#define TTR_LEAST_SQUARES_SEQUENCE_GATHER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/scratch.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Tokens first .. first + tokens of a sequence. The decay of the first is applied to the memory
/// before the chunk; those of the others make its tokens weigh 1 / c.
struct Chunk {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
  double decay = 1;    // of the first token
  double end = 1;      // c of the last one
  bool finite = true;  // false: it is one token with what is no number
};

/// How far associations may fade within a chunk. The weights that stand for it grow by as much, and
/// so does the condition of the factor that they share.
inline constexpr double kLeastDecay = 0.02;

inline double LogDecay(const Memory& memory, std::int64_t t) {
  return memory.log_decay ? sn::LoadOne<double>(memory.log_decay, t)
                          : std::log(memory.decay_factor);
}

inline double ImportanceOf(const Memory& memory, std::int64_t t) {
  return memory.importance ? sn::LoadOne<double>(memory.importance, t) : 1;
}

template <class T>
HWY_INLINE bool AllFinite(const T* row, std::int64_t count) {
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) finite &= row[i] - row[i] == T(0);
  return finite;
}

/// to = factor from, filled up with zeros to `unit` numbers. Is it finite? `to` may be `from`.
template <class T>
HWY_INLINE bool CopyScaled(const T* from, std::int64_t count, T factor, T* to, std::int64_t unit) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  auto zero = hn::Zero(d);  // and NaN after a number that is not finite
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, from + i);
    zero = hn::Add(zero, hn::Sub(x, x));
    hn::Store(hn::Mul(by, x), d, to + i);
  }
  T rest = hn::GetLane(hn::SumOfLanes(d, zero));
  for (; i < count; ++i) {
    rest += from[i] - from[i];
    to[i] = factor * from[i];
  }
  std::fill(to + count, to + unit, T(0));
  return rest == 0;
}

/// Row t times `factor`, filled up with zeros. Is it finite?
template <class T>
HWY_INLINE bool LoadScaled(const Rows& rows, std::int64_t t, std::int64_t count, T factor, T* to,
                           std::int64_t unit) {
  if (factor == 0) {  // whatever is there: it does not count
    std::fill(to, to + unit, T(0));
    return true;
  }
  if (rows.dtype == DTypeOf<T>()) {
    return CopyScaled(static_cast<const T*>(rows.data) + t * rows.stride, count, factor, to, unit);
  }
  sn::LoadRow(rows, t, 0, count, to);
  return CopyScaled(to, count, factor, to, unit);
}

/// Prefetches row t.
inline void FetchRow(const Rows& rows, std::int64_t t, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
  const char* const row = static_cast<const char*>(rows.data) + t * rows.stride * size;
  for (std::int64_t at = 0; at < count * size; at += 64) __builtin_prefetch(row + at, 0, 2);
}

/// What prefetches the rows of the chunk after the one that is gathered.
enum class Fetch {
  kNow,    // gathering, row for row
  kLater,  // the caller's Prefetcher, spread over its products
};

/// The next chunk that starts at token `first`: at most `most` tokens, whose keys and values it
/// leaves in s.k and s.v, filled up with rows of zeros unless `most` is 1. It ends before the
/// memory fades too far or is forgotten, and before what is not finite: tokens before that must not
/// meet it in a product.
template <class T>
HWY_INLINE Chunk GatherChunk(const Memory& memory, std::int64_t first, std::int64_t most,
                             const Scratch<T>& s, Fetch fetch = Fetch::kNow) {
  Chunk chunk{first, 0, std::exp(LogDecay(memory, first)), 1};
  double log_c = 0;
  const std::int64_t tokens = std::min(most, memory.tokens - first);
  for (std::int64_t i = 0; i < tokens; ++i) {
    double c = chunk.end;
    if (i > 0) {
      const double log_decay = LogDecay(memory, first + i);
      if (log_decay != 0) c = std::exp(log_c += log_decay);
      if (!(c >= kLeastDecay)) break;
    }
    if (const std::int64_t after = first + i + most;
        fetch == Fetch::kNow && after < memory.tokens) {
      FetchRow(memory.k, after, memory.key_dim());
      FetchRow(memory.v, after, memory.value_dim());
    }
    const T weight = static_cast<T>(std::sqrt(ImportanceOf(memory, first + i) / c));
    const bool key =
        LoadScaled(memory.k, first + i, memory.key_dim(), weight, s.k.Row(i), s.keys_unit);
    const bool value =
        LoadScaled(memory.v, first + i, memory.value_dim(), weight, s.v.Row(i), s.values_unit);
    const bool finite = key && value && std::isfinite(weight);
    if (!finite && i > 0) break;
    chunk.end = c;
    ++chunk.tokens;
    chunk.finite = finite;
    if (!finite) break;
  }
  if (most > 1) {
    linalg::ZeroRows(s.k, chunk.tokens, RoundUp(chunk.tokens, kUnit), s.keys_unit);
    linalg::ZeroRows(s.v, chunk.tokens, RoundUp(chunk.tokens, kUnit), s.values_unit);
  }
  return chunk;
}

/// The r-th query of a token, scaled.
template <class T>
HWY_INLINE void LoadQuery(const Options& options, const Memory& memory, std::int64_t token,
                          std::int64_t r, T* to, std::int64_t unit) {
  LoadScaled(QueryRows(memory, r), token, memory.key_dim(), static_cast<T>(options.scale), to,
             unit);
}

/// Tiles of `count` products of this many rows and columns.
template <class T>
std::int64_t TilesOf(std::int64_t count, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kTile = ln::kTileRows * 2 * hn::MaxLanes(hn::ScalableTag<T>());
  return count * rows * columns / kTile;
}

/// Prefetches the rows of keys, values and queries of the chunk from token t on, and those of
/// the outputs or their gradients, while the chunk before is solved: spread over the tiles of its
/// products and solves, or fewer.
template <class T>
simd::Prefetcher PrefetchChunk(const Memory& memory, const Scratch<T>& s, std::int64_t t,
                               const Rows& outputs, std::int64_t head_stride) {
  simd::Prefetcher prefetcher(std::min(s.chunk, memory.tokens - t));
  prefetcher.Add(memory.k, t, 0, memory.key_dim());
  prefetcher.Add(memory.v, t, 0, memory.value_dim());
  for (std::int64_t r = 0; r < memory.queries; ++r) {
    prefetcher.Add(QueryRows(memory, r), t, 0, memory.key_dim());
  }
  for (std::int64_t r = 0; r < memory.queries; ++r) {
    prefetcher.Add(HeadOf(outputs, head_stride, r), t, 0, memory.value_dim());
  }
  prefetcher.Start(TilesOf<T>(3, s.keys_unit, s.chunk + s.columns + s.values_unit));
  return prefetcher;
}

/// The queries of tokens first .. first + tokens, scaled, in s.q: token by token, those of a token
/// side by side.
template <class T>
HWY_INLINE void GatherQueries(const Options& options, const Memory& memory, std::int64_t first,
                              std::int64_t tokens, const Scratch<T>& s, Fetch fetch = Fetch::kNow) {
  T* row = s.q.data;
  for (std::int64_t token = first; token < first + tokens; ++token) {
    for (std::int64_t r = 0; r < memory.queries; ++r, row += s.q.stride) {
      if (fetch == Fetch::kNow && token + s.chunk < memory.tokens) {
        FetchRow(QueryRows(memory, r), token + s.chunk, memory.key_dim());
      }
      LoadQuery(options, memory, token, r, row, s.keys_unit);
    }
  }
  const std::int64_t count = tokens * memory.queries;
  linalg::ZeroRows(s.q, count, RoundUp(count, kUnit), s.keys_unit);
}

/// Outputs in s.y to the caller's tensor.
template <class T>
HWY_INLINE void ScatterOutputs(const Memory& memory, std::int64_t first, std::int64_t tokens,
                               const Scratch<T>& s) {
  const T* row = s.y.data;
  for (std::int64_t token = first; token < first + tokens; ++token) {
    for (std::int64_t r = 0; r < memory.queries; ++r, row += s.y.stride) {
      if (!memory.Stores(token)) continue;
      sn::StoreRow(row, token, 0, memory.value_dim(), OutputRows(memory, r));
    }
  }
}

inline void MarkRegularised(const Memory& memory, std::int64_t token, std::int64_t query) {
  if (memory.Stores(token)) memory.status.Set(token, query, 1);  // Status::kRegularised
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_SEQUENCE_GATHER_INL_H_
