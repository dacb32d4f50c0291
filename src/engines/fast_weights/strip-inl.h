// One chunk of tokens against one strip of value columns of the memory, M (key rows x W, in the
// first-level cache). With the arrays of prepare-inl.h, u_i the innovation of token i:
//
//     u_i = b_i (v_i - c_i k_i M) + sum_{j < i} lower_ij u_j          read the memory, solve
//     y_i = read_i q_i M + sum_j score_ij u_j                         answer
//     M   = c_n M + sum_j D_nj k_j^T u_j                              write the memory
//
// Compiled once for every target. Rows beyond a chunk's last token are computed and never used.

#if defined(TTR_FAST_WEIGHTS_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_STRIP_INL_H_
#undef TTR_FAST_WEIGHTS_STRIP_INL_H_
#else
#define TTR_FAST_WEIGHTS_STRIP_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/ahead-inl.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/prepare-inl.h"
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

/// The innovations of a chunk: innovations[j W ...] as solved, and behind them decayed to its end.
template <int NV, class T>
HWY_INLINE void Innovate(const Options& options, const Memory& memory, const Chunk& chunk,
                         const Prepared<T>& p, const T* HWY_RESTRICT strip, StripRows<const T> v,
                         T* HWY_RESTRICT innovations) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = sn::kTileRows;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  T* HWY_RESTRICT decayed = innovations + kChunk * kWidth;
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    sn::Tile<decltype(d), kRows, NV> tile;
    sn::SetZero(d, tile);
    if (options.write == Write::kDelta) {
      sn::MulAddRows<1, kChunk>(d, p.keys + i, strip, kWidth, memory.key_dim, tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const T* value = v[std::min(i + r, chunk.tokens - 1)];
      const auto decay = hn::Set(d, p.decay[i + r]);
      const auto step = hn::Set(d, p.step[i + r]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const auto x = hn::LoadU(d, value + n * kLanes);
        tile[r][n] =
            hn::Mul(step, options.write == Write::kDelta ? hn::NegMulAdd(decay, tile[r][n], x) : x);
      }
    }
    if (options.write == Write::kDelta) {
      sn::MulAddRows<kChunk, 1>(d, p.lower + i * kChunk, innovations, kWidth, i, tile);
      sn::SolveUnitLower<kChunk>(d, p.lower + i * kChunk + i, tile);
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto to_end = hn::Set(d, p.to_end[i + r]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        hn::Store(tile[r][n], d, innovations + (i + r) * kWidth + n * kLanes);
        hn::Store(hn::Mul(to_end, tile[r][n]), d, decayed + (i + r) * kWidth + n * kLanes);
      }
    }
  }
}

/// The answers of one query head.
template <int NV, class T>
HWY_INLINE void Answer(const Options& options, const Memory& memory, const Chunk& chunk,
                       const Prepared<T>& p, std::int64_t query, const T* HWY_RESTRICT strip,
                       const T* HWY_RESTRICT innovations, StripRows<T> y) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = sn::kTileRows;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
  const T* HWY_RESTRICT queries = p.queries + query * key_rows * kChunk;
  const T* HWY_RESTRICT scores = p.scores + query * kChunk * kChunk;
  for (std::int64_t i = 0; i < chunk.tokens; i += kRows) {
    sn::Tile<decltype(d), kRows, NV> tile;
    sn::SetZero(d, tile);
    sn::MulAddRows<1, kChunk>(d, queries + i, strip, kWidth, memory.key_dim, tile);
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto read = hn::Set(d, p.read[i + r]);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) tile[r][n] = hn::Mul(read, tile[r][n]);
    }
    if (memory.k) {
      const T* block = scores + i * kChunk;
      sn::MulAddRows<kChunk, 1>(d, block, innovations, kWidth, i, tile);
      sn::MulAddStrictLower<kChunk>(d, block + i, innovations + i * kWidth, kWidth, tile);
      if (!options.read_before) {
        TTR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const auto score = hn::Set(d, block[i + r * (kChunk + 1)]);
          TTR_UNROLL
          for (int n = 0; n < NV; ++n) {
            const auto u = hn::Load(d, innovations + (i + r) * kWidth + n * kLanes);
            tile[r][n] = hn::MulAdd(score, u, tile[r][n]);
          }
        }
      }
    }
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (i + r >= chunk.tokens) break;
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) hn::StoreU(tile[r][n], d, y[i + r] + n * kLanes);
    }
  }
}

/// M = c_n M + sum_j k_j^T decayed_j.
template <int NV, class T>
HWY_INLINE void WriteMemory(const Memory& memory, const Chunk& chunk, const Prepared<T>& p,
                            const T* HWY_RESTRICT decayed, T* HWY_RESTRICT strip, Ahead& ahead) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = sn::kTileRows;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kWidth = NV * kLanes;
  const auto decay = hn::Set(d, p.decay[kChunk - 1]);
  for (std::int64_t row = 0; row < memory.key_dim; row += kRows) {
    T* HWY_RESTRICT out = strip + row * kWidth;
    ahead.Fetch();
    sn::Tile<decltype(d), kRows, NV> tile;
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        tile[r][n] = hn::Mul(decay, hn::Load(d, out + r * kWidth + n * kLanes));
      }
    }
    sn::MulAddRows<kChunk, 1>(d, p.keys + row * kChunk, decayed, kWidth, chunk.tokens, tile);
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) hn::Store(tile[r][n], d, out + r * kWidth + n * kLanes);
    }
  }
}

/// early[query W ...] = scale q_0 M: what the first token reads before its gate forgets the memory.
template <int NV, class T>
void AnswerEarly(const Options& options, const Memory& memory, const Prepared<T>& p, const T* strip,
                 T* early) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
  for (std::int64_t query = 0; query < memory.queries; ++query) {
    sn::Tile<decltype(d), 1, NV> tile;
    sn::SetZero(d, tile);
    sn::MulAddRows<1, kChunk>(d, p.queries + query * key_rows * kChunk, strip, NV * kLanes,
                              memory.key_dim, tile);
    for (int n = 0; n < NV; ++n) {
      hn::Store(hn::Mul(hn::Set(d, static_cast<T>(options.scale)), tile[0][n]), d,
                early + (query * NV + n) * kLanes);
    }
  }
}

template <int NV, class T>
void ProcessStrip(const Options& options, const Memory& memory, const Chunk& chunk,
                  const Prepared<T>& p, const Scratch<T>& scratch, T* HWY_RESTRICT strip,
                  StripRows<const T> v, StripRows<T> y, std::int64_t y_head_stride, Ahead& ahead) {
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const bool early = chunk.forget && options.read_before;
  if (early) AnswerEarly<NV>(options, memory, p, strip, scratch.early);
  if (chunk.forget) {
    const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
    std::fill(strip, strip + key_rows * kWidth, T(0));
  }
  if (memory.k) Innovate<NV>(options, memory, chunk, p, strip, v, scratch.innovations);
  for (std::int64_t query = 0; query < queries; ++query) {
    const StripRows<T> rows{y.data + query * y_head_stride, y.stride};
    Answer<NV>(options, memory, chunk, p, query, strip, scratch.innovations, rows);
    if (early) {
      const T* answer = scratch.early + query * kWidth;
      std::copy(answer, answer + kWidth, rows[0]);
    }
  }
  if (memory.k) {
    WriteMemory<NV>(memory, chunk, p, scratch.innovations + kChunk * kWidth, strip, ahead);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_STRIP_INL_H_
