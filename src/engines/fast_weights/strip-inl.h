// One chunk of tokens against one strip of value columns of the memory, M (key rows x W, in the
// first-level cache). With the arrays of prepare-inl.h, which hold the steps b, and e_i the error
// of token i, along which it steps (v_i where nothing is erased):
//
//     e_i = v_i - decay_i r_i M + sum_{j < i} lower_ij e_j            read the memory, solve
//     y_i = read_i q_i M + sum_j score_ij e_j                         answer
//     M   = c_n M + sum_j to_end_j w_j^T e_j                          write the memory
//
// c_n = 1 where the decay is put off (reads-inl.h), which then is in decay, read and to_end.
//
// Values that are written along a key of their own (RWKV-7) are given: their terms stand beside
// those of the e_j, in which v is then missing.
//
// Compiled once for every target. Rows beyond a chunk's last are computed and never used.

#if defined(TTR_FAST_WEIGHTS_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_STRIP_INL_H_
#undef TTR_FAST_WEIGHTS_STRIP_INL_H_
#else
#define TTR_FAST_WEIGHTS_STRIP_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/narrow-inl.h"
#include "src/engines/fast_weights/prepare-inl.h"
#include "src/simd/ahead.h"
#include "src/simd/rows-inl.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
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
struct KeptRows {
  StripRows<T> errors, answers;
  std::int64_t answers_head_stride;
};

/// The first `count` rows of a tile to where they are kept.
template <int R, int NV, class T>
HWY_INLINE void KeepTile(std::int64_t count, const sn::Tile<hn::ScalableTag<T>, R, NV>& tile, T* to,
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
                          sn::Tile<hn::ScalableTag<T>, R, NV>& tile) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  if constexpr (NARROW) {
    MulAddPairs(pairs + i, SEVERAL ? every : 1, kChunk, strip_pairs, (rows + 1) / 2, tile);
  } else if constexpr (SEVERAL) {
    sn::Accumulate<false>(d, columns + i, every, kChunk, strip, kWidth, rows, tile);
  } else {
    sn::MulAddRows<1, kChunk>(d, columns + i, strip, kWidth, rows, tile);
  }
}

/// The errors of a chunk: errors[j W ...] as solved, behind them what of them is written, and
/// behind those the values that are written apart. `kept`, where they are: the chunk's rows.
template <int NV, bool NARROW, class T>
HWY_INLINE void FindErrors(const Options& options, const Memory& memory, const Chunk& chunk,
                           const Prepared<T>& p, const T* HWY_RESTRICT strip,
                           const std::uint32_t* HWY_RESTRICT pairs, const OuterRows<T>& v,
                           StripRows<T> kept, T* HWY_RESTRICT errors) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = sn::kTileRows;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const bool delta = options.erases();
  const bool apart = options.apart();
  T* HWY_RESTRICT decayed = errors + kChunk * kWidth;
  T* HWY_RESTRICT values = errors + 2 * kChunk * kWidth;
  for (std::int64_t i = 0; i < chunk.rows; i += kRows) {
    sn::Tile<decltype(d), kRows, NV> tile;
    sn::SetZero(d, tile);
    if (delta) {
      ReadStrip<NARROW, false>(p.erase, p.erase_pairs, i, 1, strip, pairs,
                               StripRowsOf(options, memory), tile);
    }
    v.Visit([&](auto rows) HWY_ATTR {
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto* value = rows[std::min(i + r, chunk.rows - 1)];
        const auto decay = hn::Set(d, p.decay[i + r]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          auto x = sn::LoadWide(d, value + n * kLanes);
          if (apart) {
            hn::Store(x, d, values + (i + r) * kWidth + n * kLanes);
            x = hn::Zero(d);
          }
          tile[r][n] = delta ? hn::NegMulAdd(decay, tile[r][n], x) : x;
        }
      }
    });
    if (delta) {
      sn::MulAddRows<kChunk, 1>(d, p.lower + i * kChunk, errors, kWidth, i, tile);
      if (apart) {
        const T* block = p.lower_value + i * kChunk;
        sn::MulAddRows<kChunk, 1>(d, block, values, kWidth, i, tile);
        sn::MulAddStrictLower<kChunk>(d, block + i, values + i * kWidth, kWidth, tile);
      }
      sn::SolveUnitLower<kChunk>(d, p.lower + i * kChunk + i, tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto to_end = hn::Set(d, p.to_end[i + r]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        hn::Store(tile[r][n], d, errors + (i + r) * kWidth + n * kLanes);
        hn::Store(hn::Mul(to_end, tile[r][n]), d, decayed + (i + r) * kWidth + n * kLanes);
      }
    }
    if (kept.data != nullptr) KeepTile<kRows, NV>(chunk.rows - i, tile, kept[i], kept.stride);
  }
}

/// tile[r] += sum_j scores[i + r][j] rows[j], j < i + r, or j <= i + r with the diagonal.
template <class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void MulAddCausal(D d, const T* HWY_RESTRICT scores, const T* HWY_RESTRICT rows,
                             std::int64_t i, bool diagonal, sn::Tile<D, R, NV>& tile) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kWidth = NV * kLanes;
  const T* block = scores + i * kChunk;
  sn::MulAddRows<kChunk, 1>(d, block, rows, kWidth, i, tile);
  sn::MulAddStrictLower<kChunk>(d, block + i, rows + i * kWidth, kWidth, tile);
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
                             sn::Tile<D, R, NV>& tile) {
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
                           StripRows<T> kept) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const T* HWY_RESTRICT queries =
      p.queries + query * StateRows<T>(options, memory.key_dim) * kChunk;
  const T* HWY_RESTRICT factors = p.read + query * kChunk;
  const bool diagonal = !options.read_before || options.bonus;
  const std::int64_t every = SEVERAL ? memory.steps : 1;
  const std::int64_t rows = StripRowsOf(options, memory);
  sn::Tile<decltype(d), R, NV> tile;
  sn::SetZero(d, tile);
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
    if (options.apart()) add(p.score_values + at, errors + 2 * kChunk * kWidth);
  }
  y.Visit([&](auto to) HWY_ATTR {
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const std::int64_t row = i + r * every;
      if (row >= chunk.rows) break;
      StoreAnswer<NV, T>(tile[r], streams, to[row]);
    }
  });
  if (kept.data == nullptr) return;
  KeepTile<R, NV>((chunk.rows - i + every - 1) / every, tile, kept[i], every * kept.stride);
}

/// The answers of one query head.
template <int NV, bool NARROW, class T>
HWY_INLINE void Answer(const Options& options, const Memory& memory, const Chunk& chunk,
                       const Prepared<T>& p, std::int64_t query, const T* HWY_RESTRICT strip,
                       const std::uint32_t* HWY_RESTRICT pairs, const T* HWY_RESTRICT errors,
                       OuterRows<T> y, bool streams, StripRows<T> kept) {
  const std::int64_t steps = memory.steps;
  if (!(steps > 1)) {
    constexpr int kRows = sn::kTileRows;
    for (std::int64_t i = 0; i < chunk.rows; i += kRows) {
      AnswerTile<kRows, false, NV, NARROW>(options, memory, chunk, p, query, i, strip, pairs,
                                           errors, y, streams, kept);
    }
    return;
  }
  auto answer = [&]<int R>(std::int64_t i) HWY_ATTR {
    AnswerTile<R, true, NV, NARROW>(options, memory, chunk, p, query, i, strip, pairs, errors, y,
                                    streams, kept);
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

/// A paired memory decays and turns: what its rows pass on to each other.
template <int NV, class T>
HWY_INLINE void Turn(const Memory& memory, const Prepared<T>& p, T* HWY_RESTRICT strip) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T* HWY_RESTRICT second = strip + memory.key_dim * NV * kLanes;
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::size_t at = row * NV * kLanes + n * kLanes;
      const auto x = hn::Load(d, strip + at);
      const auto y = hn::Load(d, second + at);
      const auto now = hn::Mul(hn::Set(d, p.turn[1][row]), y);
      const auto then = hn::Mul(hn::Set(d, p.turn[3][row]), y);
      hn::Store(hn::MulAdd(hn::Set(d, p.turn[0][row]), x, now), d, strip + at);
      hn::Store(hn::MulAdd(hn::Set(d, p.turn[2][row]), x, then), d, second + at);
    }
  }
}

/// Rows of the memory that are written at a time. With 32 registers the errors of a whole chunk
/// stay in them, and half a tile of the memory passes by; with 16 a tile stays and the errors pass
/// by.
inline constexpr bool kHoldsErrors = sn::kTileRows == kChunk;
inline constexpr int kWrittenRows = kHoldsErrors ? sn::kTileRows / 2 : sn::kTileRows;

/// strip[row] = decay[row] strip[row] + sum_{j < count} keys[row kChunk + j] errors[j W ...], of
/// `rows` rows; decay null: none.
template <int NV, class T>
HWY_INLINE void AddOuter(std::int64_t rows, const T* HWY_RESTRICT decay, const T* HWY_RESTRICT keys,
                         const T* HWY_RESTRICT errors, std::int64_t count, T* HWY_RESTRICT strip,
                         Ahead& ahead) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  sn::Tile<decltype(d), kChunk, NV> held;
  if constexpr (kHoldsErrors) {
    TTR_UNROLL
    for (int j = 0; j < kChunk; ++j) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const T* at = errors + j * kWidth + n * kLanes;
        held[j][n] = j < count ? hn::Load(d, at) : hn::Zero(d);
      }
    }
  }
  for (std::int64_t row = 0; row < rows; row += kWrittenRows) {
    T* HWY_RESTRICT out = strip + row * kWidth;
    ahead.Fetch();
    sn::Tile<decltype(d), kWrittenRows, NV> tile;
    TTR_UNROLL
    for (int r = 0; r < kWrittenRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = hn::Load(d, out + r * kWidth + n * kLanes);
    }
    if (decay != nullptr) {
      TTR_UNROLL
      for (int r = 0; r < kWrittenRows; ++r) {
        const auto factor = hn::Set(d, decay[row + r]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(factor, tile[r][n]);
      }
    }
    const T* HWY_RESTRICT key = keys + row * kChunk;
    if constexpr (kHoldsErrors) {
      TTR_UNROLL
      for (int j = 0; j < kChunk; ++j) {
        TTR_UNROLL
        for (int r = 0; r < kWrittenRows; ++r) {
          const auto left = hn::Set(d, key[r * kChunk + j]);
          TTR_UNROLL
          for (int n = 0; n < NV; ++n) tile[r][n] = hn::MulAdd(left, held[j][n], tile[r][n]);
        }
      }
    } else {
      sn::MulAddRows<kChunk, 1>(d, key, errors, kWidth, count, tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kWrittenRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) hn::Store(tile[r][n], d, out + r * kWidth + n * kLanes);
    }
  }
}

/// M = c_n M + sum_j w_j^T decayed_j; a paired memory has turned already.
template <int NV, bool NARROW, class T>
HWY_INLINE void WriteMemory(const Options& options, const Memory& memory, const Chunk& chunk,
                            const Prepared<T>& p, const T* HWY_RESTRICT decayed,
                            T* HWY_RESTRICT strip, std::uint32_t* HWY_RESTRICT pairs,
                            Ahead& ahead) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t rows = StripRowsOf(options, memory);
  if (options.paired()) Turn<NV>(memory, p, strip);
  const T* const decay = options.paired() || !chunk.decays ? nullptr : p.row_decay;
  const T* const none = nullptr;
  const T* const values = decayed + kChunk * kWidth;
  if constexpr (NARROW) {
    AddOuterPairs<NV>(rows, decay, p.write_pairs, decayed, chunk.rows, strip, pairs, ahead);
    if (!options.apart()) return;
    AddOuterPairs<NV>(rows, none, p.value_pairs, values, chunk.rows, strip, pairs, ahead);
  } else {
    AddOuter<NV>(rows, decay, p.write, decayed, chunk.rows, strip, ahead);
    if (!options.apart()) return;
    AddOuter<NV>(rows, none, p.value, values, chunk.rows, strip, ahead);
  }
}

/// Zeros for what the chunk begins by forgetting. A last update is no memory: it does not decay.
template <int NV, class T>
HWY_INLINE void Forget(const Options& options, const Memory& memory, const Prepared<T>& p,
                       T* strip) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t parts = options.phase ? 2 : 1;
  for (std::int64_t row = 0; row < parts * memory.key_dim; ++row) {
    if (options.by_channel() && p.forgotten[row % memory.key_dim] == 0) continue;
    std::fill(strip + row * kWidth, strip + (row + 1) * kWidth, T(0));
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
    sn::Tile<decltype(d), 1, NV> tile;
    sn::SetZero(d, tile);
    sn::MulAddRows<1, kChunk>(d, p.queries + query * state_rows * kChunk, strip, NV * kLanes,
                              StripRowsOf(options, memory), tile);
    for (int n = 0; n < NV; ++n) {
      hn::Store(hn::Mul(hn::Set(d, p.read[query * kChunk]), tile[0][n]), d,
                early + (query * NV + n) * kLanes);
    }
  }
}

/// `pairs`: the strip's copy, where products are NARROW.
template <int NV, bool NARROW, class T>
void ProcessStrip(const Options& options, const Memory& memory, const Chunk& chunk,
                  const Prepared<T>& p, const Scratch<T>& scratch, T* HWY_RESTRICT strip,
                  std::uint32_t* HWY_RESTRICT pairs, OuterRows<T> v, const KeptRows<T>& kept,
                  OuterRows<T> y, std::int64_t y_head_stride, bool streams, Ahead& ahead) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const bool early = chunk.forget && options.read_before && queries > 0;
  if (early) AnswerEarly<NV>(options, memory, p, strip, scratch.early);
  if (chunk.forget) {
    Forget<NV>(options, memory, p, strip);
    if constexpr (NARROW) {
      // A pair's second row may be one beyond the last, which has forgotten, too.
      const std::int64_t rows = StateRows<T>(options, memory.key_dim);
      std::fill(strip + StripRowsOf(options, memory) * kWidth, strip + rows * kWidth, T(0));
      PairStrip<NV>(strip, rows, pairs);
    }
  }
  if (memory.writes()) {
    FindErrors<NV, NARROW>(options, memory, chunk, p, strip, pairs, v, kept.errors, scratch.errors);
  }
  for (std::int64_t query = 0; query < queries; ++query) {
    OuterRows<T> rows = y;
    y.Visit([&](auto first) { rows.data = first.data + query * y_head_stride; });
    StripRows<T> second = kept.answers;
    if (second.data != nullptr) second.data += query * kept.answers_head_stride;
    Answer<NV, NARROW>(options, memory, chunk, p, query, strip, pairs, scratch.errors, rows,
                       streams, second);
    if (!early) continue;
    const T bonus = options.bonus ? p.scores[query * kChunk * kChunk] : T(0);
    const T* answer = scratch.early + query * kWidth;
    for (std::size_t c = 0; c < kWidth; ++c) {
      const T x = options.bonus ? answer[c] + bonus * scratch.errors[c] : answer[c];
      rows.Visit(
          [&](auto to) { to[0][c] = sn::Narrow<std::remove_reference_t<decltype(*to[0])>>(x); });
      if (second.data != nullptr) second[0][c] = x;
    }
  }
  if (memory.writes()) {
    WriteMemory<NV, NARROW>(options, memory, chunk, p, scratch.errors + kChunk * kWidth, strip,
                            pairs, ahead);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_STRIP_INL_H_
