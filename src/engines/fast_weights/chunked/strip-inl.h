// One chunk of tokens against one strip of value columns of the memory, M (key rows x W, in the
// first-level cache). With the arrays of chunked/prepared.h, which hold the steps b, and
// e_i the error of token i, along which it steps (v_i where nothing is erased):
//
//     e_i = v_i - decay_i r_i M + sum_{j < i} lower_ij e_j            read the memory, solve
//     y_i = read_i q_i M + sum_j score_ij e_j                         outputs
//     M   = c_n M + sum_j to_end_j w_j^T e_j                          write the memory
//
// c_n = 1 where the decay is lazy (chunked/prepare-inl.h), which then is in decay, read and to_end.
//
// Values with a separate key (RWKV-7) are added along it: their terms are beside those of the e_j,
// which then lack v.
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
#include "src/engines/fast_weights/chunked/outputs-inl.h"
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

/// The errors of a chunk: s.scratch.errors[j W ...] as solved, behind them what of them is written,
/// and behind those the values with a separate key.
template <int NV, Bf16Products P, class T>
HWY_INLINE void FindErrors(const StripTask<T>& s) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const Prepared<T>& p = s.prepared;
  const bool delta = s.options.erases();
  const bool separate = s.options.separate_value_key();
  const std::int64_t count = s.chunk.rows;
  T* HWY_RESTRICT errors = s.scratch.errors;
  T* HWY_RESTRICT decayed = errors + kChunk * kWidth;
  T* HWY_RESTRICT values = errors + 2 * kChunk * kWidth;
  for (std::int64_t i = 0; i < count; i += kRows) {
    ln::Tile<decltype(d), kRows, NV> tile;
    ln::SetZero(d, tile);
    if (delta) ReadStrip<P, false>(s, s.Eraser(), i, 1, tile);
    s.values.Visit([&](auto rows) HWY_ATTR {
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto* value = rows[std::min(i + r, count - 1)];
        const auto decay = hn::Set(d, p.decay[i + r]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          auto x = sn::LoadWide(d, value + n * kLanes);
          if (separate) {
            hn::Store(x, d, values + (i + r) * kWidth + n * kLanes);
            x = hn::Zero(d);
          }
          tile[r][n] = delta ? hn::NegMulAdd(decay, tile[r][n], x) : x;
        }
      }
    });
    if (delta) {
      ln::MulAddRows<kChunk, 1>(d, p.lower + i * kChunk, errors, kWidth, i, tile);
      if (separate) {
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
    const StripRows<T>& saved = s.saved.errors;
    if (saved.data != nullptr) SaveTile<kRows, NV>(count - i, tile, saved[i], saved.stride);
  }
}

/// The decay of a paired memory, with what its planes pass on to each other.
template <int NV, class T>
HWY_INLINE void RotatePair(const StripTask<T>& s) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T* const* const rotation = s.prepared.rotation;
  T* HWY_RESTRICT strip = s.strip;
  T* HWY_RESTRICT second = strip + s.memory.dims.key_dim * NV * kLanes;
  for (std::int64_t row = 0; row < s.memory.dims.key_dim; ++row) {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::size_t at = row * NV * kLanes + n * kLanes;
      const auto x = hn::Load(d, strip + at);
      const auto y = hn::Load(d, second + at);
      const auto now = hn::Mul(hn::Set(d, rotation[1][row]), y);
      const auto then = hn::Mul(hn::Set(d, rotation[3][row]), y);
      hn::Store(hn::MulAdd(hn::Set(d, rotation[0][row]), x, now), d, strip + at);
      hn::Store(hn::MulAdd(hn::Set(d, rotation[2][row]), x, then), d, second + at);
    }
  }
}

/// Rows of the memory that are written at a time. With 32 registers the errors of a whole chunk
/// stay in them, and half a tile of the memory passes by; with 16 a tile stays and the errors pass
/// by.
inline constexpr bool kHoldsErrors = ln::kTileRows == kChunk;
inline constexpr int kWrittenRows = kHoldsErrors ? ln::kTileRows / 2 : ln::kTileRows;

/// What is written along keys: their columns, or their pairs, and what is along them.
template <class T>
struct Written {
  const T* keys;
  const std::uint32_t* pairs;
  const T* errors;  // [kChunk][W]
};

/// strip[row] = decay[row] strip[row] + sum_j keys[row kChunk + j] errors[j W ...]; decay null:
/// none. With products in bfloat16 the strip's copy is renewed.
template <int NV, Bf16Products P, class T>
HWY_INLINE void AddOuter(const StripTask<T>& s, const T* HWY_RESTRICT decay,
                         const Written<T>& written) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const T* HWY_RESTRICT keys = written.keys;
  const T* HWY_RESTRICT errors = written.errors;
  const std::int64_t count = s.chunk.rows, rows = s.rows();
  T* HWY_RESTRICT strip = s.strip;
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
  if constexpr (P == Bf16Products::kPairs) PairHeld(held);
  for (std::int64_t row = 0; row < rows; row += kWrittenRows) {
    T* HWY_RESTRICT out = strip + row * kWidth;
    s.prefetcher.Fetch();
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
    if constexpr (P == Bf16Products::kPairs) {
      MulAddHeld(written.pairs + row * kChunk / 2, held, tile);
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
    if constexpr (P != Bf16Products::kFloat32) PairTile(tile, s.pairs + row / 2 * kWidth);
  }
}

/// M = c_n M + sum_j w_j^T decayed_j.
template <int NV, Bf16Products P, class T>
HWY_INLINE void WriteMemory(const StripTask<T>& s) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const bool paired = s.options.paired();
  const Prepared<T>& p = s.prepared;
  const T* const decayed = s.scratch.errors + kChunk * kWidth;
  if (paired) RotatePair<NV>(s);
  const T* const decay = paired || !s.chunk.decays ? nullptr : p.row_decay;
  AddOuter<NV, P, T>(s, decay, {p.columns.write, p.pairs.write, decayed});
  if (!s.options.separate_value_key()) return;
  AddOuter<NV, P, T>(s, nullptr, {p.columns.value, p.pairs.value, decayed + kChunk * kWidth});
}

/// Zeros for what the chunk begins by forgetting. A last update does not decay: it fades by the
/// momentum.
template <int NV, Bf16Products P, class T>
HWY_INLINE void Forget(const StripTask<T>& s) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t keys = s.memory.dims.key_dim;
  const bool both = s.options.phase || s.chunk.forget_update;
  for (std::int64_t row = 0; row < (both ? 2 : 1) * keys; ++row) {
    if (s.options.by_channel() && s.prepared.forgotten[row % keys] == 0) continue;
    std::fill(s.strip + row * kWidth, s.strip + (row + 1) * kWidth, T(0));
  }
  if constexpr (P != Bf16Products::kFloat32) {
    // A pair's second row may be one beyond the last, which is forgotten, too.
    const std::int64_t rows = StateRows<T>(s.options, keys);
    std::fill(s.strip + s.rows() * kWidth, s.strip + rows * kWidth, T(0));
    PairStrip<NV>(s.strip, rows, s.pairs);
  }
}

template <int NV, Bf16Products P, class T>
void ProcessStrip(const StripTask<T>& s) {
  const std::int64_t queries = s.memory.outputs();
  const bool early = s.chunk.forget && s.options.read_before && queries > 0;
  if (early) FindEarlyOutputs<NV>(s);
  if (s.chunk.forget) Forget<NV, P>(s);
  if constexpr (P == Bf16Products::kTiles) ReadByTiles<NV>(s);
  if (s.memory.writes()) FindErrors<NV, P>(s);
  for (std::int64_t query = 0; query < queries; ++query) {
    const OuterRows<T> y = s.outputs.Of(query);
    StripRows<T> saved = s.saved.outputs;
    if (saved.data != nullptr) saved.data += query * s.saved.outputs_head_stride;
    FindOutputs<NV, P>(s, query, y, saved);
    if (early) StoreEarlyOutputs<NV>(s, query, y, saved);
  }
  if (s.memory.writes()) WriteMemory<NV, P>(s);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_STRIP_INL_H_
