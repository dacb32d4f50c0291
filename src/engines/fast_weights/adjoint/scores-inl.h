// Products of a chunk's rows with each other, and with the decays between. Where every key channel
// decays by itself, with a_i the gates, a read x of token i finds the write of token j as
//
//     x_i . v_ij,   v_jj = w_j,   v_ij = a_i (.) v_{i-1,j}         (before: x_i . v_{i-1,j})
//
// so that nothing is divided. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_SCORES_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_SCORES_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_SCORES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/coefficients-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A tile's rows of Products against vectors of D.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void ProductRows(D d, View<T> rows, std::int64_t i, std::int64_t lanes_end,
                            const T* HWY_RESTRICT columns, std::int64_t count, T* out) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  constexpr int kNV = kLanes < kTokens / 2 ? 2 : 1;
  for (std::int64_t j = 0; j < lanes_end; j += kNV * kLanes) {
    ln::Tile<D, ln::kTileRows, kNV> tile;
    ln::SetZero(d, tile);
    ln::Accumulate<false>(d, rows[i], rows.stride, 1, columns + j, kTokens, count, tile);
    TTR_UNROLL
    for (int r = 0; r < ln::kTileRows; ++r) {
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
    ProductRows(half, rows, i, kHalf, columns, count, out);
  }
  for (std::int64_t i = kHalf; i < kTokens; i += kRows) {
    ProductRows(d, rows, i, kTokens, columns, count, out);
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

/// `GROUP` vectors of key channels of ChannelProducts.
template <int GROUP, class T>
HWY_INLINE void AddChannelProducts(const Chunk& chunk, ReadKind kind, View<T> reads, View<T> writes,
                                   View<T> gates, std::int64_t key, LaneSums<T>& sums, T* out) {
  const hn::ScalableTag<T> d;
  for (std::int64_t j = 0; j < chunk.tokens; ++j) {
    hn::Vec<decltype(d)> v[GROUP];
    TTR_UNROLL
    for (int n = 0; n < GROUP; ++n) v[n] = hn::Load(d, writes[j] + key + n * Lanes<T>());
    for (std::int64_t i = kind.diagonal ? j : j + 1; i < chunk.tokens; ++i) {
      const T* gate = gates[i] + key;
      const T* read = reads[i] + key;
      auto sum = hn::Zero(d);
      TTR_UNROLL
      for (int n = 0; n < GROUP; ++n) {
        const auto x = hn::Load(d, read + n * Lanes<T>());
        if (kind.before) sum = hn::MulAdd(x, v[n], sum);
        if (i > j) v[n] = hn::Mul(v[n], hn::Load(d, gate + n * Lanes<T>()));
        if (!kind.before) sum = hn::MulAdd(x, v[n], sum);
      }
      sums.Add(sum, out + i * kTokens + j);
    }
  }
}

/// out[i][j] = x_i . v_ij of read x and one write, for the pairs that meet; 0 elsewhere.
template <class T>
void ChannelProducts(const ChunkWork<T>& on, std::int64_t x, View<T> writes, T* out) {
  const Scratch<T>& scratch = on.scratch;
  const Chunk& chunk = on.chunk;
  const ReadKind kind = on.Kind(x);
  const View<T> reads = on.Read(x), gates = on.Gates();
  std::fill(out, out + kSquare, T(0));
  LaneSums<T> sums;
  constexpr int kMost = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
  for (std::int64_t key = 0; key < scratch.keys;) {
    const std::int64_t left = (scratch.keys - key) / Lanes<T>();
    if (left >= kMost) {
      AddChannelProducts<kMost>(chunk, kind, reads, writes, gates, key, sums, out);
      key += kMost * Lanes<T>();
    } else if (left >= 4) {
      AddChannelProducts<4>(chunk, kind, reads, writes, gates, key, sums, out);
      key += 4 * Lanes<T>();
    } else {
      AddChannelProducts<1>(chunk, kind, reads, writes, gates, key, sums, out);
      key += Lanes<T>();
    }
  }
  sums.Flush();
}

/// columns.writes, products and scores of one write.
template <class T>
void ScoresOf(const ChunkWork<T>& on, std::int64_t w) {
  const Scratch<T>& scratch = on.scratch;
  const View<T> writes = on.Write(w);
  if (on.channels) {
    sn::TransposeStrided(scratch.WriteRow(w, on.chunk.at), scratch.write_stride, kTokens,
                         scratch.keys, scratch.columns.writes, kTokens);
  } else {
    sn::TransposeStrided(writes.data, writes.stride, kTokens, scratch.keys, scratch.columns.writes,
                         kTokens);
  }
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    T* products = scratch.squares.products + on.Square(x, w);
    if (on.channels) {
      ChannelProducts(on, x, writes, products);
    } else {
      Products(on.Read(x), scratch.columns.writes, on.call.sizes.key_dim, products);
    }
    Scores(on.chunk, on.c, on.Kind(x), products, scratch.squares.scores + on.Square(x, w));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_SCORES_INL_H_
