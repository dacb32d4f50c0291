// Products of a chunk's rows where every key channel decays by itself. With a_i the gates, a read x
// of token i finds the write of token j as
//
//     x_i . v_ij,   v_jj = w_j,   v_ij = a_i (.) v_{i-1,j}         (before: x_i . v_{i-1,j})
//
// so nothing is divided. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_CHANNEL_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_CHANNEL_PRODUCTS_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_CHANNEL_PRODUCTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_CHANNEL_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/tallies-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_CHANNEL_PRODUCTS_INL_H_
