// Tokens of a chunk as weighted rows, and as columns beside the memory. Compiled once for every
// target.

#if defined(TTR_LEAST_SQUARES_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GATHER_INL_H_
#undef TTR_LEAST_SQUARES_GATHER_INL_H_
#else
#define TTR_LEAST_SQUARES_GATHER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/layout.h"
#include "src/linalg/tile-inl.h"
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

/// Asks for row t, which is read soon.
inline void FetchRow(const Rows& rows, std::int64_t t, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
  const char* const row = static_cast<const char*>(rows.data) + t * rows.stride * size;
  for (std::int64_t at = 0; at < count * size; at += 64) __builtin_prefetch(row + at, 0, 2);
}

/// Who asks for the rows of the chunk after the one that is gathered.
enum class Fetch {
  kNow,    // who gathers, row for row
  kLater,  // the caller, spread over its work
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
      FetchRow(memory.k, after, memory.key_dim);
      FetchRow(memory.v, after, memory.value_dim);
    }
    const double importance =
        memory.importance ? sn::LoadOne<double>(memory.importance, first + i) : 1;
    const T weight = static_cast<T>(std::sqrt(importance / c));
    const bool key =
        LoadScaled(memory.k, first + i, memory.key_dim, weight, s.k + i * s.k_stride, s.keys_unit);
    const bool value = LoadScaled(memory.v, first + i, memory.value_dim, weight,
                                  s.v + i * s.v_stride, s.values_unit);
    const bool finite = key && value && std::isfinite(weight);
    if (!finite && i > 0) break;
    chunk.end = c;
    ++chunk.tokens;
    chunk.finite = finite;
    if (!finite) break;
  }
  for (std::int64_t i = chunk.tokens; most > 1 && i < RoundUp(chunk.tokens, kUnit); ++i) {
    std::fill(s.k + i * s.k_stride, s.k + i * s.k_stride + s.keys_unit, T(0));
    std::fill(s.v + i * s.v_stride, s.v + i * s.v_stride + s.values_unit, T(0));
  }
  return chunk;
}

inline Rows OfQuery(const Rows& rows, std::int64_t head_stride, std::int64_t query) {
  Rows moved = rows;
  moved.data = static_cast<std::byte*>(rows.data) +
               query * head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
  return moved;
}

/// The r-th query of a token, scaled.
template <class T>
HWY_INLINE void LoadQuery(const Options& options, const Memory& memory, std::int64_t token,
                          std::int64_t r, T* to, std::int64_t unit) {
  const Rows rows = OfQuery(memory.q, memory.q_head_stride, r);
  LoadScaled(rows, token, memory.key_dim, static_cast<T>(options.scale), to, unit);
}

/// The rows of keys, values and queries of a chunk's tokens from t on, to be fetched while the
/// chunk before is solved.
template <class T>
Prefetcher AheadOf(const Memory& memory, const Scratch<T>& s, std::int64_t t) {
  Prefetcher ahead(std::min(s.chunk, memory.tokens - t));
  ahead.Add(memory.k, t, 0, memory.key_dim);
  ahead.Add(memory.v, t, 0, memory.value_dim);
  for (std::int64_t r = 0; r < memory.queries; ++r) {
    ahead.Add(OfQuery(memory.q, memory.q_head_stride, r), t, 0, memory.key_dim);
  }
  return ahead;
}

/// Tiles of `count` products of this many rows and columns.
template <class T>
std::int64_t TilesOf(std::int64_t count, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kTile = ln::kTileRows * 2 * hn::MaxLanes(hn::ScalableTag<T>());
  return count * rows * columns / kTile;
}

/// The queries of tokens first .. first + tokens, scaled, in s.q: token by token, those of a token
/// side by side.
template <class T>
HWY_INLINE void GatherQueries(const Options& options, const Memory& memory, std::int64_t first,
                              std::int64_t tokens, const Scratch<T>& s, Fetch fetch = Fetch::kNow) {
  T* row = s.q;
  for (std::int64_t token = first; token < first + tokens; ++token) {
    for (std::int64_t r = 0; r < memory.queries; ++r, row += s.k_stride) {
      if (fetch == Fetch::kNow && token + s.chunk < memory.tokens) {
        FetchRow(OfQuery(memory.q, memory.q_head_stride, r), token + s.chunk, memory.key_dim);
      }
      LoadQuery(options, memory, token, r, row, s.keys_unit);
    }
  }
  const std::int64_t count = tokens * memory.queries;
  for (std::int64_t j = count; j < RoundUp(count, kUnit); ++j, row += s.k_stride) {
    std::fill(row, row + s.keys_unit, T(0));
  }
}

/// Answers in s.y to their places.
template <class T>
HWY_INLINE void ScatterAnswers(const Memory& memory, std::int64_t first, std::int64_t tokens,
                               const Scratch<T>& s) {
  const T* row = s.y;
  for (std::int64_t token = first; token < first + tokens; ++token) {
    for (std::int64_t r = 0; r < memory.queries; ++r, row += s.y_stride) {
      if (!memory.Leaves(token)) continue;
      const Rows rows = OfQuery(memory.y, memory.y_head_stride, r);
      sn::StoreRow(row, token, 0, memory.value_dim, rows);
    }
  }
}

inline void MarkRegularised(const Memory& memory, std::int64_t token, std::int64_t query) {
  if (memory.Leaves(token)) memory.status.Set(token, query, 1);  // Status::kRegularised
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GATHER_INL_H_
