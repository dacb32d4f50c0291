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
// Compiled once for every target.

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

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// out[i][j] = x_i . v_ij of one read and one write, for the pairs that meet; 0 elsewhere.
template <class T>
void ChannelProducts(const Chunk& chunk, ReadKind kind, View<T> reads, View<T> writes,
                     const Scratch<T>& scratch, T* out) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = Lanes<T>();
  constexpr std::int64_t kGroup = 4;
  const T* gates = scratch.gates + chunk.first * scratch.keys;
  std::fill(out, out + kSquare, T(0));
  for (std::int64_t begin = 0; begin < scratch.keys; begin += kGroup * kLanes) {
    const std::int64_t vectors = std::min(kGroup, (scratch.keys - begin) / kLanes);
    for (std::int64_t j = 0; j < chunk.tokens; ++j) {
      hn::Vec<decltype(d)> v[kGroup];
      for (std::int64_t n = 0; n < vectors; ++n) {
        v[n] = hn::Load(d, writes[j] + begin + n * kLanes);
      }
      for (std::int64_t i = j; i < chunk.tokens; ++i) {
        auto sum = hn::Zero(d);
        for (std::int64_t n = 0; n < vectors; ++n) {
          const std::int64_t k = begin + n * kLanes;
          const auto x = hn::Load(d, reads[i] + k);
          if (kind.before) sum = hn::MulAdd(x, v[n], sum);
          if (i > j) v[n] = hn::Mul(v[n], hn::Load(d, gates + i * scratch.keys + k));
          if (!kind.before) sum = hn::MulAdd(x, v[n], sum);
        }
        if (i > j || kind.diagonal) out[i * kTokens + j] += hn::GetLane(hn::SumOfLanes(d, sum));
      }
    }
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
  const T* gates = scratch.gates + chunk.first * keys + key;
  V a[kTokens], log_grads[kTokens];
  V found[kTokens][kTokens];  // v_ij
  for (std::int64_t i = 0; i < tokens; ++i) a[i] = hn::Load(d, gates + i * keys);

  // The memory before the chunk: c_t finds its way into every read behind it, and into its end.
  V behind = hn::Mul(overlap, hn::Load(d, scratch.prefixes + tokens * keys + key));
  for (std::int64_t i = tokens - 1; i >= 0; --i) {
    V at = hn::Zero(d);
    V before = hn::Zero(d);
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      const ReadKind kind = KindOf(call, x);
      T* grads = scratch.key_grads + (x * kTokens + i) * keys + key;
      const V prefix = hn::Load(d, scratch.prefixes + (kind.before ? i : i + 1) * keys + key);
      const V grad = hn::Mul(prefix, hn::Load(d, grads));
      hn::Store(grad, d, grads);
      V& sum = kind.before ? before : at;
      sum = hn::MulAdd(grad, hn::Load(d, rows.Read(x)[i] + key), sum);
    }
    behind = hn::Add(behind, at);
    log_grads[i] = behind;
    behind = hn::Add(behind, before);
  }

  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    for (std::int64_t j = 0; j < tokens; ++j) {
      V v = hn::Load(d, rows.Write(w)[j] + key);
      found[j][j] = v;
      for (std::int64_t i = j + 1; i < tokens; ++i) {
        v = hn::Mul(v, a[i]);
        found[i][j] = v;
      }
    }
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      const ReadKind kind = KindOf(call, x);
      const T* dp = scratch.score_grads + (x * scratch.writes + w) * kSquare;
      for (std::int64_t i = 0; i < tokens; ++i) {
        T* grads = scratch.key_grads + (x * kTokens + i) * keys + key;
        V sum = hn::Load(d, grads);
        const V* row = found[kind.before && i > 0 ? i - 1 : i];
        for (std::int64_t j = 0; j < (kind.diagonal ? i + 1 : i); ++j) {
          sum = hn::MulAdd(hn::Set(d, dp[i * kTokens + j]), row[j], sum);
        }
        hn::Store(sum, d, grads);
      }
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      const std::int64_t row = (scratch.reads + w) * kTokens + j;
      V g = hn::Load(d, scratch.key_grads + row * keys + key);
      for (std::int64_t i = tokens - 1; i >= j; --i) {
        // What finds the write after token i: reads of token i, and those before token i + 1.
        for (std::int64_t x = 0; x < scratch.reads; ++x) {
          const ReadKind kind = KindOf(call, x);
          const std::int64_t reader = kind.before ? i + 1 : i;
          if (reader >= tokens || (reader == j && !kind.diagonal)) continue;
          const T* dp = scratch.score_grads + (x * scratch.writes + w) * kSquare;
          g = hn::MulAdd(hn::Set(d, dp[reader * kTokens + j]), hn::Load(d, rows.Read(x)[reader] + key),
                         g);
        }
        if (i == j) break;
        log_grads[i] = hn::MulAdd(found[i][j], g, log_grads[i]);
        g = hn::Mul(g, a[i]);
      }
      std::int64_t stride;
      T* out = rows.WriteGradient(w, &stride);
      hn::Store(g, d, out + j * stride + key);
    }
  }

  for (std::int64_t i = 0; i < tokens; ++i) {
    for (std::int64_t x = 0; x < scratch.reads; ++x) {
      const T* grads = scratch.key_grads + (x * kTokens + i) * keys + key;
      std::int64_t stride;
      T* out = rows.ReadGradient(x, &stride);
      hn::Store(hn::Load(d, grads), d, out + i * stride + key);
    }
    if (!call.d_log_decay) continue;
    // A gate that is 0 stays 0, whatever lies beyond it.
    const V grad = hn::IfThenZeroElse(hn::Eq(a[i], hn::Zero(d)), log_grads[i]);
    hn::Store(grad, d, call.d_log_decay.data + (chunk.first + i) * call.d_log_decay.stride + key);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_CHANNEL_INL_H_
