// Gradients of a chunk's rows where every key channel decays by itself: the recurrence of
// scores-inl.h backwards,
//
//     g_ij = sum_x dP_x,ij x_i + a_{i+1} (.) g_{i+1,j},   dw_j = g_jj,   dlog a_i += v_ij (.) g_ij
//
// It begins behind the chunk's last token, with the gradient of w_j decayed to the chunk's end.
// Chunks are halved: what the second half finds of the first one's writes it finds as they stand
// between the halves, by plain products, so that the pairs that decay one by one are few and their
// vectors fit the registers. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_CHANNELS_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_CHANNELS_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_CHANNELS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Some of the reads against one write, at one vector of key channels.
template <class T>
struct ReadGroup {
  static constexpr std::int64_t kMost = 8;
  std::int64_t count;
  View<T> rows[kMost];
  const T* dp[kMost];
  bool before[kMost];

  HWY_INLINE ReadGroup(const ChunkWork<T>& on, std::int64_t begin, std::int64_t write,
                       std::int64_t key)
      : count(std::min(kMost, on.scratch.reads - begin)) {
    for (std::int64_t x = 0; x < count; ++x) {
      const View<T> read = on.Read(begin + x);
      rows[x] = {read.data + key, read.stride};
      dp[x] = on.scratch.squares.score_grads + on.Square(begin + x, write);
      before[x] = on.Kind(begin + x).before;
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
/// [i] sum what the gates between the halves and token i multiply.
template <class T>
HWY_INLINE void CrossHalves(bool before, View<T> rows, const T* dp,
                            const hn::Vec<hn::ScalableTag<T>>* gates,
                            const hn::Vec<hn::ScalableTag<T>>* standing, T* grads,
                            std::int64_t stride, hn::Vec<hn::ScalableTag<T>>* planes,
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
    planes[i] = hn::MulAdd(read, sum, planes[i]);
    if (before) local = hn::Mul(local, gates[i]);
  }
}

/// One vector of key channels from `key` on, all reads against all writes: from grads.keys, the
/// gradients of the decayed rows, to the gradients of the caller's.
template <class T>
class ChannelVector {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  HWY_INLINE ChannelVector(const ChunkWork<T>& on, std::int64_t key)
      : on_(on), key_(key), keys_(on.scratch.keys), tokens_(on.chunk.tokens) {
    const D d;
    const View<T> gates = on.Gates();
    first_.Load(gates[0] + key, gates.stride, tokens_);
    second_.Load(gates[kHalf] + key, gates.stride, tokens_ - kHalf);
    for (auto& kinds : parts_) {
      for (auto& kind : kinds) std::fill(kind, kind + kTokens, hn::Zero(d));
    }
    second_decay_ = second_.a[0];
    for (int i = 1; i < kHalf; ++i) second_decay_ = hn::Mul(second_decay_, second_.a[i]);
    through_ = hn::Zero(d);
  }

  /// From the reads' gradients by the memory before the chunk, as it was when it was decayed, to
  /// those by the memory itself.
  HWY_INLINE void TakeReads() {
    const D d;
    for (std::int64_t x = 0; x < on_.scratch.reads; ++x) {
      const bool before = on_.Kind(x).before;
      const View<T> read = on_.Read(x);
      T* grads = Grads(x);
      for (std::int64_t i = 0; i < tokens_; ++i) {
        const V prefix = Prefix(before ? i : i + 1);
        const V product = hn::Mul(prefix, hn::Load(d, grads + i * keys_));
        const V grad = hn::IfThenZeroElse(hn::Eq(prefix, hn::Zero(d)), product);
        hn::Store(grad, d, grads + i * keys_);
        parts_[0][before][i] = hn::MulAdd(grad, hn::Load(d, read[i] + key_), parts_[0][before][i]);
      }
    }
    const std::int64_t rows = (on_.scratch.reads + on_.scratch.writes) * kTokens;
    for (std::int64_t row = 0; row < rows; ++row) {
      if (row % kTokens >= tokens_) hn::Store(hn::Zero(d), d, Grads(0) + row * keys_);
    }
  }

  /// The gradients of write w, from those of what it is at the chunk's end; and the reads' by it.
  HWY_INLINE void TakeWrite(std::int64_t w) {
    const D d;
    const bool halves = tokens_ > kHalf;
    const View<T> write = on_.Write(w);
    const T* at_end = Grads(on_.scratch.reads + w);
    std::int64_t out_stride;
    T* out = on_.WriteGradient(w, &out_stride) + key_;
    first_.Find({write.data + key_, write.stride});
    if (halves) second_.Find({write[kHalf] + key_, write.stride});
    for (std::int64_t begin = 0; begin == 0 || begin < on_.scratch.reads;
         begin += ReadGroup<T>::kMost) {
      const ReadGroup<T> group(on_, begin, w, key_);
      V g[2][kHalf];
      for (int j = 0; j < kHalf; ++j) {
        g[0][j] = g[1][j] = hn::Zero(d);
        if (begin > 0) continue;
        g[0][j] = hn::Mul(second_decay_, hn::Load(d, at_end + j * keys_));
        g[1][j] = hn::Load(d, at_end + (kHalf + j) * keys_);
        through_ = hn::MulAdd(g[0][j], first_.found[kHalf - 1][j], through_);
      }
      for (std::int64_t x = 0; x < group.count; ++x) {
        T* grads = Grads(begin + x);
        first_.AddReads(group.before[x], group.dp[x], grads, keys_);
        if (!halves) continue;
        grads += kHalf * keys_;
        const View<T> later{group.rows[x][kHalf], group.rows[x].stride};
        CrossHalves(group.before[x], later, group.dp[x] + kHalf * kTokens, second_.a,
                    first_.found[kHalf - 1], grads, keys_, parts_[1][group.before[x]] + kHalf,
                    g[0]);
        second_.AddReads(group.before[x], group.dp[x] + kHalf * (kTokens + 1), grads, keys_);
      }
      first_.Return(group, 0, g[0]);
      if (halves) second_.Return(group, kHalf, g[1]);
      for (std::int64_t j = 0; j < tokens_; ++j) {
        V grad = g[j / kHalf][j % kHalf];
        if (begin > 0) grad = hn::Add(grad, hn::Load(d, out + j * out_stride));
        hn::Store(grad, d, out + j * out_stride);
      }
    }
  }

  HWY_INLINE void StoreReads() const {
    const D d;
    for (std::int64_t x = 0; x < on_.scratch.reads; ++x) {
      const T* grads = Grads(x);
      std::int64_t stride;
      T* out = on_.ReadGradient(x, &stride);
      const bool joined = out == nullptr;
      if (joined) out = on_.WriteGradient(0, &stride);
      for (std::int64_t i = 0; i < tokens_; ++i) {
        V grad = hn::Load(d, grads + i * keys_);
        if (joined) grad = hn::Add(grad, hn::Load(d, out + i * stride + key_));
        hn::Store(grad, d, out + i * stride + key_);
      }
    }
  }

  /// `overlap` is the sum of M (.) dL/dM' over values, the gradient of c_n.
  HWY_INLINE void StoreGates(V overlap) const {
    const D d;
    const GradientRows<T>& out = on_.call.d.gates;
    const View<T> gates = on_.Gates();
    const V last = Prefix(tokens_);
    V behind = hn::IfThenZeroElse(hn::Eq(last, hn::Zero(d)), hn::Mul(overlap, last));
    V behind_half = through_;
    for (std::int64_t i = tokens_ - 1; i >= 0; --i) {
      behind = hn::Add(behind, parts_[0][0][i]);
      V grad = behind;
      if (i >= kHalf) {
        behind_half = hn::Add(behind_half, parts_[1][0][i]);
        grad = hn::Add(hn::Add(grad, behind_half), second_.log_grads[i - kHalf]);
        behind_half = hn::Add(behind_half, parts_[1][1][i]);
      } else {
        grad = hn::Add(grad, first_.log_grads[i]);
      }
      behind = hn::Add(behind, parts_[0][1][i]);
      // A gate that is 0 stays 0, whatever lies beyond it.
      const V gate = hn::Load(d, gates[i] + key_);
      hn::Store(hn::IfThenZeroElse(hn::Eq(gate, hn::Zero(d)), grad), d,
                out.data + (on_.chunk.at + i) * out.stride + key_);
    }
  }

 private:
  HWY_INLINE T* Grads(std::int64_t row) const {
    return on_.scratch.grads.keys + row * kTokens * keys_ + key_;
  }
  HWY_INLINE V Prefix(std::int64_t i) const {
    return hn::Load(D(), on_.scratch.prefixes + i * keys_ + key_);
  }

  const ChunkWork<T>& on_;
  const std::int64_t key_, keys_, tokens_;
  ChannelHalf<T> first_, second_;
  // What gates up to token i multiply, of the memory before the chunk ([0]) and of the first
  // half ([1]), for reads after and before their token.
  V parts_[2][2][kTokens];
  V second_decay_;  // of the second half
  V through_;       // of the first half's writes, to the chunk's end
};

/// All of a vector of key channels; `overlap` as StoreGates has it.
template <class T>
void ChannelGradients(const ChunkWork<T>& on, std::int64_t key,
                      hn::Vec<hn::ScalableTag<T>> overlap) {
  ChannelVector<T> channels(on, key);
  channels.TakeReads();
  for (std::int64_t w = 0; w < on.scratch.writes; ++w) channels.TakeWrite(w);
  channels.StoreReads();
  if (on.call.d.gates) channels.StoreGates(overlap);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_CHANNELS_INL_H_
