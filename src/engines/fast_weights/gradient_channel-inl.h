// Pairs of a chunk's tokens where every key channel decays by itself. With a_i the gates, a read x
// of token i finds the write of token j as
//
//     x_i . v_ij,   v_jj = w_j,   v_ij = a_i (.) v_{i-1,j}         (before: x_i . v_{i-1,j})
//
// so nothing is divided, and the gradients run the same recurrence backwards:
//
//     g_ij = sum_x dP_x,ij x_i + a_{i+1} (.) g_{i+1,j},   dw_j = g_jj,   dlog a_i += v_ij (.) g_ij
//
// It begins behind the chunk's last token, with the gradient of w_j decayed to the chunk's end.
// Chunks are halved: what the second half finds of the first one's writes it finds as they stand
// between the halves, by plain products, so that the pairs that decay apart are few and their
// vectors fit the registers. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_CHANNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_CHANNEL_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_CHANNEL_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_CHANNEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_rows-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/lane_sums-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Adds up the lanes of vectors, as many at a time as a vector has lanes.
template <class T>
class LaneSums {
 public:
  /// *out += the sum of the lanes of `v`, at the latest with Flush.
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<T>> v, T* out) {
    const hn::ScalableTag<T> d;
    hn::Store(v, d, vectors_ + count_ * kLanes);
    targets_[count_] = out;
    if (++count_ == kLanes) Flush();
  }

  void Flush() {
    const hn::ScalableTag<T> d;
    for (std::int64_t i = count_; i < kLanes; ++i) {
      hn::Store(hn::Zero(d), d, vectors_ + i * kLanes);
    }
    alignas(64) T sums[kLanes];
    hn::Store(sn::SumVectors<kLanes>(d, vectors_), d, sums);
    for (std::int64_t i = 0; i < count_; ++i) *targets_[i] += sums[i];
    count_ = 0;
  }

 private:
  static constexpr std::int64_t kLanes = Lanes<T>();

  alignas(64) T vectors_[kLanes * kLanes];
  T* targets_[kLanes];
  std::int64_t count_ = 0;
};

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

/// out[i][j] = x_i . v_ij of one read and one write, for the pairs that meet; 0 elsewhere.
template <class T>
void ChannelProducts(const GradientCall<T>& call, const Chunk& chunk, ReadKind kind, View<T> reads,
                     View<T> writes, const Scratch<T>& scratch, T* out) {
  const View<T> gates = GatesOf(call, chunk);
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

/// Some of the reads against one write, at one vector of key channels.
template <class T>
struct ReadGroup {
  static constexpr std::int64_t kMost = 8;
  std::int64_t count;
  View<T> rows[kMost];
  const T* dp[kMost];
  bool before[kMost];

  void Set(const GradientCall<T>& call, const ChunkRows<T>& all, const Scratch<T>& scratch,
           std::int64_t begin, std::int64_t write, std::int64_t key) {
    count = std::min(kMost, scratch.reads - begin);
    for (std::int64_t x = 0; x < count; ++x) {
      const View<T> read = all.Read(begin + x);
      rows[x] = {read.data + key, read.stride};
      dp[x] = scratch.score_grads + ((begin + x) * scratch.writes + write) * kSquare;
      before[x] = KindOf(call, begin + x).before;
    }
  }
};

/// One vector of key channels of the pairs within one half of a chunk.
template <class T>
struct ChannelHalf {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  V a[kHalf];             // gates
  V found[kHalf][kHalf];  // [i][j]: v_ij of one write
  V log_grads[kHalf];

  HWY_INLINE void Load(const T* gates, std::int64_t stride, std::int64_t tokens) {
    const D d;
    for (int i = 0; i < kHalf; ++i) {
      a[i] = i < tokens ? hn::Load(d, gates + i * stride) : hn::Set(d, T(1));
      log_grads[i] = hn::Zero(d);
    }
  }

  HWY_INLINE void Find(View<T> writes) {
    const D d;
    TTR_UNROLL
    for (int j = 0; j < kHalf; ++j) {
      V v = hn::Load(d, writes[j]);
      found[j][j] = v;
      TTR_UNROLL
      for (int i = 1; i < kHalf; ++i) {
        if (i <= j) continue;
        v = hn::Mul(v, a[i]);
        found[i][j] = v;
      }
    }
  }

  /// grads_i += sum_j dP_ij v_ij.
  HWY_INLINE void AddReads(bool before, const T* dp, T* grads, std::int64_t stride) const {
    const D d;
    TTR_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      if (before && i == 0) continue;
      V sum = hn::Load(d, grads + i * stride);
      const V* row = found[before ? i - 1 : i];
      TTR_UNROLL
      for (int j = 0; j < kHalf; ++j) {
        if (j > i || (before && j == i)) continue;
        sum = hn::MulAdd(hn::Set(d, dp[i * kTokens + j]), row[j], sum);
      }
      hn::Store(sum, d, grads + i * stride);
    }
  }

  /// Takes g_j from behind the half to g_jj, and the gates' gradients with it.
  HWY_INLINE void Return(const ReadGroup<T>& reads, std::int64_t half, V (&g)[kHalf]) {
    const D d;
    TTR_UNROLL
    for (int i = kHalf - 1; i >= 0; --i) {
      for (std::int64_t x = 0; x < reads.count; ++x) {
        if (reads.before[x]) continue;
        const V read = hn::Load(d, reads.rows[x][half + i]);
        const T* dp = reads.dp[x] + (half + i) * kTokens + half;
        TTR_UNROLL
        for (int j = 0; j < kHalf; ++j) {
          if (j <= i) g[j] = hn::MulAdd(hn::Set(d, dp[j]), read, g[j]);
        }
      }
      V log = log_grads[i];
      TTR_UNROLL
      for (int j = 0; j < kHalf; ++j) {
        if (j >= i) continue;
        log = hn::MulAdd(found[i][j], g[j], log);
        g[j] = hn::Mul(g[j], a[i]);
      }
      log_grads[i] = log;
      for (std::int64_t x = 0; x < reads.count; ++x) {
        if (!reads.before[x]) continue;
        const V read = hn::Load(d, reads.rows[x][half + i]);
        const T* dp = reads.dp[x] + (half + i) * kTokens + half;
        TTR_UNROLL
        for (int j = 0; j < kHalf; ++j) {
          if (j < i) g[j] = hn::MulAdd(hn::Set(d, dp[j]), read, g[j]);
        }
      }
    }
  }
};

/// What the second half of a chunk finds of the writes of the first, by one read: grads of its rows
/// and g of the writes between the halves. `standing` [j] is the write there; `at` and `before`
/// [i] sum what the gates between the halves and token i have a part in.
template <class T>
HWY_INLINE void CrossHalves(bool before, View<T> rows, const T* dp,
                            const hn::Vec<hn::ScalableTag<T>>* gates,
                            const hn::Vec<hn::ScalableTag<T>>* standing, T* grads,
                            std::int64_t stride, hn::Vec<hn::ScalableTag<T>>* parts,
                            hn::Vec<hn::ScalableTag<T>> (&g)[kHalf]) {
  const hn::ScalableTag<T> d;
  auto local = hn::Set(d, T(1));
  for (int i = 0; i < kHalf; ++i) {
    if (!before) local = hn::Mul(local, gates[i]);
    const auto read = hn::Mul(local, hn::Load(d, rows[i]));
    const T* row = dp + i * kTokens;
    auto even = hn::Zero(d);
    auto odd = hn::Zero(d);
    TTR_UNROLL
    for (int j = 0; j < kHalf; j += 2) {
      const auto p0 = hn::Set(d, row[j]);
      const auto p1 = hn::Set(d, row[j + 1]);
      g[j] = hn::MulAdd(p0, read, g[j]);
      g[j + 1] = hn::MulAdd(p1, read, g[j + 1]);
      even = hn::MulAdd(p0, standing[j], even);
      odd = hn::MulAdd(p1, standing[j + 1], odd);
    }
    const auto sum = hn::Add(even, odd);
    hn::Store(hn::MulAdd(local, sum, hn::Load(d, grads + i * stride)), d, grads + i * stride);
    parts[i] = hn::MulAdd(read, sum, parts[i]);
    if (before) local = hn::Mul(local, gates[i]);
  }
}

/// One vector of key channels from `key` on, all reads against all writes: from key_grads, the
/// gradients of the decayed rows, to the gradients of the caller's. `overlap` is the sum of
/// M (.) dL/dM' over values, the gradient of c_n.
template <class T>
void ChannelGradients(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch,
                      const ChunkRows<T>& rows, std::int64_t key,
                      hn::Vec<hn::ScalableTag<T>> overlap) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t keys = scratch.keys;
  const std::int64_t tokens = chunk.tokens;
  const bool halves = tokens > kHalf;
  const View<T> gates = GatesOf(call, chunk);
  const T* prefixes = scratch.prefixes + key;
  ChannelHalf<T> first, second;
  first.Load(gates[0] + key, gates.stride, tokens);
  second.Load(gates[kHalf] + key, gates.stride, tokens - kHalf);

  // What gates up to token i have a part in, of the memory before the chunk ([0]) and of the first
  // half ([1]), for reads after and before their token.
  V parts[2][2][kTokens];
  for (auto& kinds : parts) {
    for (auto& kind : kinds) std::fill(kind, kind + kTokens, hn::Zero(d));
  }
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    const bool before = KindOf(call, x).before;
    const View<T> read = rows.Read(x);
    T* grads = scratch.key_grads + x * kTokens * keys + key;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const V prefix = hn::Load(d, prefixes + (before ? i : i + 1) * keys);
      const V product = hn::Mul(prefix, hn::Load(d, grads + i * keys));
      const V grad = hn::IfThenZeroElse(hn::Eq(prefix, hn::Zero(d)), product);
      hn::Store(grad, d, grads + i * keys);
      parts[0][before][i] = hn::MulAdd(grad, hn::Load(d, read[i] + key), parts[0][before][i]);
    }
  }
  for (std::int64_t row = 0; row < (scratch.reads + scratch.writes) * kTokens; ++row) {
    if (row % kTokens >= tokens) hn::Store(hn::Zero(d), d, scratch.key_grads + row * keys + key);
  }

  V second_decay = second.a[0];
  for (int i = 1; i < kHalf; ++i) second_decay = hn::Mul(second_decay, second.a[i]);
  V through = hn::Zero(d);  // of the first half's writes, to the chunk's end
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const View<T> write = rows.Write(w);
    const T* at_end = scratch.key_grads + (scratch.reads + w) * kTokens * keys + key;
    std::int64_t out_stride;
    T* out = rows.WriteGradient(w, &out_stride) + key;
    first.Find({write.data + key, write.stride});
    if (halves) second.Find({write[kHalf] + key, write.stride});
    ReadGroup<T> group;
    for (std::int64_t begin = 0; begin == 0 || begin < scratch.reads; begin += group.kMost) {
      group.Set(call, rows, scratch, begin, w, key);
      V g[2][kHalf];
      for (int j = 0; j < kHalf; ++j) {
        g[0][j] = g[1][j] = hn::Zero(d);
        if (begin > 0) continue;
        g[0][j] = hn::Mul(second_decay, hn::Load(d, at_end + j * keys));
        g[1][j] = hn::Load(d, at_end + (kHalf + j) * keys);
        through = hn::MulAdd(g[0][j], first.found[kHalf - 1][j], through);
      }
      for (std::int64_t x = 0; x < group.count; ++x) {
        T* grads = scratch.key_grads + (begin + x) * kTokens * keys + key;
        first.AddReads(group.before[x], group.dp[x], grads, keys);
        if (!halves) continue;
        grads += kHalf * keys;
        const View<T> later{group.rows[x][kHalf], group.rows[x].stride};
        CrossHalves(group.before[x], later, group.dp[x] + kHalf * kTokens, second.a,
                    first.found[kHalf - 1], grads, keys, parts[1][group.before[x]] + kHalf, g[0]);
        second.AddReads(group.before[x], group.dp[x] + kHalf * (kTokens + 1), grads, keys);
      }
      first.Return(group, 0, g[0]);
      if (halves) second.Return(group, kHalf, g[1]);
      for (std::int64_t j = 0; j < tokens; ++j) {
        V grad = g[j / kHalf][j % kHalf];
        if (begin > 0) grad = hn::Add(grad, hn::Load(d, out + j * out_stride));
        hn::Store(grad, d, out + j * out_stride);
      }
    }
  }

  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    const T* grads = scratch.key_grads + x * kTokens * keys + key;
    std::int64_t stride;
    T* out = rows.ReadGradient(x, &stride);
    const bool joined = out == nullptr;
    if (joined) out = rows.WriteGradient(0, &stride);
    for (std::int64_t i = 0; i < tokens; ++i) {
      V grad = hn::Load(d, grads + i * keys);
      if (joined) grad = hn::Add(grad, hn::Load(d, out + i * stride + key));
      hn::Store(grad, d, out + i * stride + key);
    }
  }
  if (!call.d_log_decay) return;
  const V last = hn::Load(d, prefixes + tokens * keys);
  V behind = hn::IfThenZeroElse(hn::Eq(last, hn::Zero(d)), hn::Mul(overlap, last));
  V behind_half = through;
  for (std::int64_t i = tokens - 1; i >= 0; --i) {
    behind = hn::Add(behind, parts[0][0][i]);
    V grad = behind;
    if (i >= kHalf) {
      behind_half = hn::Add(behind_half, parts[1][0][i]);
      grad = hn::Add(hn::Add(grad, behind_half), second.log_grads[i - kHalf]);
      behind_half = hn::Add(behind_half, parts[1][1][i]);
    } else {
      grad = hn::Add(grad, first.log_grads[i]);
    }
    behind = hn::Add(behind, parts[0][1][i]);
    // A gate that is 0 stays 0, whatever lies beyond it.
    const V gate = hn::Load(d, gates[i] + key);
    hn::Store(hn::IfThenZeroElse(hn::Eq(gate, hn::Zero(d)), grad), d,
              call.d_log_decay.data + (chunk.at + i) * call.d_log_decay.stride + key);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_CHANNEL_INL_H_
