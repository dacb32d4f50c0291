// One chunk of tokens against one strip of value columns of the memory, M (key rows x W, in the
// first-level cache). With the arrays of chunked/scalar_decay-inl.h, which hold the steps b, and
// e_i the error of token i, along which it steps (v_i where nothing is erased):
//
//     e_i = v_i - decay_i r_i M + sum_{j < i} lower_ij e_j            read the memory, solve
//     y_i = read_i q_i M + sum_j score_ij e_j                         answer
//     M   = c_n M + sum_j to_end_j w_j^T e_j                          write the memory
//
// c_n = 1 where the decay is put off (chunked/output_scaling-inl.h), which then is in decay, read
// and to_end.
//
// Values that are written along a key of their own (RWKV-7) are given: their terms stand beside
// those of the e_j, in which v is then missing.
//
// Compiled once for every target. Rows beyond a chunk's last are computed and never used.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_STRIP_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_STRIP_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_STRIP_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/bf16_products-inl.h"
#include "src/engines/fast_weights/chunked/outputs-inl.h"
#include "src/engines/fast_weights/chunked/scalar_decay-inl.h"
#include "src/engines/fast_weights/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// The errors of a chunk: errors[j W ...] as solved, behind them what of them is written, and
/// behind those the values that are written apart. `kept`, where they are: the chunk's rows.
template <int NV, bool NARROW, class T>
HWY_INLINE void FindErrors(const Options& options, const Memory& memory, const Chunk& chunk,
                           const Prepared<T>& p, const T* HWY_RESTRICT strip,
                           const std::uint32_t* HWY_RESTRICT pairs, const OuterRows<T>& v,
                           StripRows<T> saved, T* HWY_RESTRICT errors) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const bool delta = options.erases();
  const bool apart = options.separate_value_key();
  T* HWY_RESTRICT decayed = errors + kChunk * kWidth;
  T* HWY_RESTRICT values = errors + 2 * kChunk * kWidth;
  for (std::int64_t i = 0; i < chunk.rows; i += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    ln::SetZero(d, tile);
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
      ln::MulAddRows<kChunk, 1>(d, p.lower + i * kChunk, errors, kWidth, i, tile);
      if (apart) {
        const T* block = p.lower_value + i * kChunk;
        ln::MulAddRows<kChunk, 1>(d, block, values, kWidth, i, tile);
        ln::MulAddStrictLower<kChunk>(d, block + i, values + i * kWidth, kWidth, tile);
      }
      ln::SolveUnitLower<kChunk>(d, p.lower + i * kChunk + i, tile);
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
    if (saved.data != nullptr) KeepTile<kRows, NV>(chunk.rows - i, tile, saved[i], saved.stride);
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
inline constexpr bool kHoldsErrors = ln::kTileRows == kChunk;
inline constexpr int kWrittenRows = kHoldsErrors ? ln::kTileRows / 2 : ln::kTileRows;

/// strip[row] = decay[row] strip[row] + sum_{j < count} keys[row kChunk + j] errors[j W ...], of
/// `rows` rows; decay null: none. Where products are NARROW, by `key_pairs`, and the strip's copy
/// `strip_pairs` is made anew.
template <int NV, bool NARROW, class T>
HWY_INLINE void AddOuter(std::int64_t rows, const T* HWY_RESTRICT decay, const T* HWY_RESTRICT keys,
                         const std::uint32_t* HWY_RESTRICT key_pairs, const T* HWY_RESTRICT errors,
                         std::int64_t count, T* HWY_RESTRICT strip,
                         std::uint32_t* HWY_RESTRICT strip_pairs, Prefetcher& ahead) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  ln::Tile<decltype(d), kChunk, NV> held;
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
  if constexpr (NARROW) PairHeld(held);
  for (std::int64_t row = 0; row < rows; row += kWrittenRows) {
    T* HWY_RESTRICT out = strip + row * kWidth;
    ahead.Fetch();
    ln::Tile<decltype(d), kWrittenRows, NV> tile;
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
    if constexpr (NARROW) {
      MulAddHeld(key_pairs + row * kChunk / 2, held, tile);
    } else if constexpr (kHoldsErrors) {
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
      ln::MulAddRows<kChunk, 1>(d, key, errors, kWidth, count, tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kWrittenRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) hn::Store(tile[r][n], d, out + r * kWidth + n * kLanes);
    }
    if constexpr (NARROW) PairTile(tile, strip_pairs + row / 2 * kWidth);
  }
}

/// M = c_n M + sum_j w_j^T decayed_j; a paired memory has turned already.
template <int NV, bool NARROW, class T>
HWY_INLINE void WriteMemory(const Options& options, const Memory& memory, const Chunk& chunk,
                            const Prepared<T>& p, const T* HWY_RESTRICT decayed,
                            T* HWY_RESTRICT strip, std::uint32_t* HWY_RESTRICT pairs,
                            Prefetcher& ahead) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t rows = StripRowsOf(options, memory);
  if (options.paired()) Turn<NV>(memory, p, strip);
  const T* const decay = options.paired() || !chunk.decays ? nullptr : p.row_decay;
  AddOuter<NV, NARROW>(rows, decay, p.write, p.write_pairs, decayed, chunk.rows, strip, pairs,
                       ahead);
  if (!options.separate_value_key()) return;
  const T* const values = decayed + kChunk * kWidth;
  AddOuter<NV, NARROW>(rows, static_cast<const T*>(nullptr), p.value, p.value_pairs, values,
                       chunk.rows, strip, pairs, ahead);
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

/// `pairs`: the strip's copy, where products are NARROW.
template <int NV, bool NARROW, class T>
void ProcessStrip(const Options& options, const Memory& memory, const Chunk& chunk,
                  const Prepared<T>& p, const Scratch<T>& scratch, T* HWY_RESTRICT strip,
                  std::uint32_t* HWY_RESTRICT pairs, OuterRows<T> v, const SavedRows<T>& saved,
                  OuterRows<T> y, std::int64_t y_head_stride, bool streams, Prefetcher& ahead) {
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
    FindErrors<NV, NARROW>(options, memory, chunk, p, strip, pairs, v, saved.errors,
                           scratch.errors);
  }
  for (std::int64_t query = 0; query < queries; ++query) {
    OuterRows<T> rows = y;
    y.Visit([&](auto first) { rows.data = first.data + query * y_head_stride; });
    StripRows<T> second = saved.answers;
    if (second.data != nullptr) second.data += query * saved.answers_head_stride;
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

#endif  // TTR_FAST_WEIGHTS_CHUNKED_STRIP_INL_H_
