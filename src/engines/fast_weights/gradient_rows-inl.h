// A chunk of tokens: its coefficients and its rows, decayed to the chunk's two ends. With D_ij =
// prod_{j < l <= i} a_l and c_i = prod_{l <= i} a_l within the chunk, a read of token i finds
//
//     after its token's write   c_i x_i M      + sum_{j <= i} D_ij     (x_i . w_j) u_j
//     before it                 c_{i-1} x_i M  + sum_{j < i}  D_{i-1,j} (x_i . w_j) u_j
//
// of the memory M before the chunk; an erasure never finds its own write, and h_i multiplies it
// where it has a decay of its own. All are products of what lies between, never quotients. With
// momentum see gradient_momentum-inl.h.
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_ROWS_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_ROWS_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr std::int64_t Lanes() {
  return hn::MaxLanes(hn::ScalableTag<T>());
}

template <class T>
struct View {
  const T* data;
  std::int64_t stride;
  const T* operator[](std::int64_t token) const { return data + token * stride; }
};

/// What a read sees of its own token.
struct ReadKind {
  bool before;    // neither the token's decay nor its write
  bool diagonal;  // its write
  bool own;       // a decay of its own
};

template <class T>
ReadKind KindOf(const GradientCall<T>& call, std::int64_t read) {
  if (read < call.sizes.queries) return {call.read_before, !call.read_before, false};
  return {call.seen != Seen::kDecayed, false, call.seen == Seen::kOwn};
}

/// Whether a token that forgets everything can begin a chunk that does not know the memory.
template <class T>
bool CanForget(const GradientCall<T>& call) {
  const bool channels = call.sizes.decay == GradientDecay::kChannel;
  if (!channels && !(call.reset && call.decay != nullptr)) return false;
  if (call.read_before && call.sizes.queries > 0) return false;
  return !call.sizes.erase || call.seen == Seen::kDecayed;
}

template <class T>
bool Forgets(const GradientCall<T>& call, std::int64_t at) {
  if (call.sizes.decay != GradientDecay::kChannel) return call.decay[at] == 0;
  const T* row = call.gates.data + at * call.gates.stride;
  return std::all_of(row, row + call.sizes.key_dim, [](T x) { return x == 0; });
}

/// The chunk that begins at place `at` of the block, within an interval of checkpoints.
template <class T>
Chunk NextChunk(const GradientCall<T>& call, std::int64_t at, const Scratch<T>& scratch) {
  const std::int64_t end = std::min(call.tokens, (at / scratch.interval + 1) * scratch.interval);
  Chunk chunk{call.first + at, at, std::min<std::int64_t>(kTokens, end - at), false};
  if (!CanForget(call)) return chunk;
  chunk.forget = Forgets(call, at);
  for (std::int64_t i = 1; i < chunk.tokens; ++i) {
    if (Forgets(call, at + i)) chunk.tokens = i;
  }
  return chunk;
}

/// rows[i + 1] = factors_i rows[i], 1 at its own place, + more[i + 1] before it; rows[0] = 0.
/// `last`: the last of a token of the chunk.
template <class T>
HWY_INLINE void FillBetween(const Chunk& chunk, const T* factors, const T (*more)[kTokens],
                            T (*rows)[kTokens], T* last) {
  const hn::CappedTag<T, kTokens> d;
  constexpr int kLanes = hn::MaxLanes(d);
  for (int j = 0; j < kTokens; j += kLanes) {
    const auto column = hn::Iota(d, static_cast<T>(j));
    auto row = hn::Zero(d), behind = hn::Zero(d);
    hn::Store(row, d, rows[0] + j);
    for (int i = 0; i < kTokens; ++i) {
      const auto own = hn::Eq(column, hn::Set(d, static_cast<T>(i)));
      const auto factor = hn::Set(d, factors[i]);
      row = more == nullptr ? hn::Mul(factor, row)
                            : hn::MulAdd(factor, row, hn::Load(d, more[i + 1] + j));
      row = hn::IfThenElse(own, hn::Set(d, T(1)), row);
      hn::Store(row, d, rows[i + 1] + j);
      if (i < chunk.tokens) behind = row;
    }
    hn::Store(behind, d, last + j);
  }
}

/// The scalar coefficients; ones where the decay is of channels, whose rows carry it. With momentum
/// those of the last update N stand second.
template <class T>
struct Coefficients {
  alignas(64) T between[kTokens + 1][kTokens];  // [i + 1][j]: D_ij, p_ij; 0 above the diagonal
  alignas(64) T updates[kTokens + 1][kTokens];  // [i + 1][j]: e_ij
  alignas(64) T to_end[2][kTokens];             // D_nj, or p_nj and e_nj
  T a[kTokens], h[kTokens], b[kTokens], m[kTokens];
  T prefix[2][kTokens + 1] = {};  // c_{i-1}, or alpha_{i-1} and pi_{i-1}
  T epsilon[kTokens + 1];         // epsilon_{i-1}

  /// Without `pairs` nothing is set of what lies between.
  Coefficients(const GradientCall<T>& call, const Chunk& chunk, bool pairs = true) {
    const bool scalar = call.sizes.decay == GradientDecay::kScalar;
    for (int i = 0; i < kTokens; ++i) {
      const bool real = i < chunk.tokens;
      const std::int64_t t = chunk.at + i;
      a[i] = real && scalar && call.decay != nullptr ? call.decay[t] : T(1);
      h[i] = real && scalar && call.erase_decay != nullptr ? call.erase_decay[t] : T(1);
      b[i] = !real ? T(0) : call.step == nullptr ? T(1) : call.step[t];
    }
    prefix[0][0] = 1;
    for (int i = 0; i < kTokens; ++i) prefix[0][i + 1] = prefix[0][i] * a[i];
    if (call.sizes.momentum) {
      SetMomentum(call, chunk);
    } else if (pairs) {
      FillBetween<T>(chunk, a, nullptr, between, to_end[0]);
    } else {
      T product = 1;
      for (std::int64_t j = kTokens - 1; j >= 0; --j) {
        to_end[0][j] = j < chunk.tokens ? product : T(0);
        product *= a[j];
      }
    }
  }

  void SetMomentum(const GradientCall<T>& call, const Chunk& chunk) {
    prefix[1][0] = 0;
    epsilon[0] = 1;
    for (int i = 0; i < kTokens; ++i) {
      m[i] = i < chunk.tokens ? call.momentum[chunk.at + i] : T(0);
      epsilon[i + 1] = m[i] * epsilon[i];
      prefix[1][i + 1] = a[i] * prefix[1][i] + epsilon[i + 1];
    }
    FillBetween<T>(chunk, m, nullptr, updates, to_end[1]);
    FillBetween<T>(chunk, a, updates, between, to_end[0]);
  }

  T Last(const Chunk& chunk) const { return prefix[0][chunk.tokens]; }

  /// What a read multiplies a memory with; without the decay of its own.
  T State(ReadKind kind, int i, std::int64_t part = 0) const {
    return prefix[part][kind.before ? i : i + 1];
  }
  T Own(ReadKind kind, int i) const { return kind.own ? h[i] : T(1); }
  /// The product of both for all tokens, which may need `room`.
  const T* ReadFactors(ReadKind kind, T (&room)[kTokens], std::int64_t part = 0) const {
    const T* const state = prefix[part] + (kind.before ? 0 : 1);
    if (!kind.own) return state;
    for (int i = 0; i < kTokens; ++i) room[i] = state[i] * h[i];
    return room;
  }

  /// Row i of what it multiplies (x_i . w_j) with, j < Count(kind, i).
  const T* Between(ReadKind kind, int i) const { return between[kind.before ? i : i + 1]; }
  static int Count(ReadKind kind, int i) { return kind.diagonal ? i + 1 : i; }
};

/// out = the chunk's rows, and rows of zeros behind them: kTokens in all.
template <class T>
void CopyRows(const Chunk& chunk, const T* from, std::int64_t from_stride, std::int64_t width,
              T* out) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < chunk.tokens; ++i, from += from_stride, out += width) {
    for (std::int64_t k = 0; k < width; k += Lanes<T>()) {
      hn::Store(hn::Load(d, from + k), d, out + k);
    }
  }
  std::fill(out, out + (kTokens - chunk.tokens) * width, T(0));
}

/// All rows of a chunk, copied: rows of heads side by side lie whole pages apart and would drive
/// each other out of the first-level cache.
template <class T>
class ChunkRows {
 public:
  ChunkRows(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch)
      : call_(call),
        chunk_(chunk),
        scratch_(scratch),
        joined_(call.erase && call.erase.data == call.write.data) {}

  /// Makes the copies of what is read and written along; before that, the rest below has no
  /// meaning.
  void CopyKeys(bool queries = true) const {
    for (std::int64_t x = queries ? 0 : call_.sizes.queries; x < scratch_.reads; ++x) {
      const bool query = x < call_.sizes.queries;
      const GradientRows<const T>& rows = query ? call_.query : call_.erase;
      Copy(rows, query ? x : 0, scratch_.keys, scratch_.plain_reads + x * Keys());
    }
    for (std::int64_t w = joined_ ? 1 : 0; w < scratch_.writes; ++w) {
      Copy(w == 0 ? call_.write : call_.second_write, 0, scratch_.keys,
           scratch_.plain_writes + w * Keys());
    }
  }
  void CopyValues() const {
    if (scratch_.writes < 2 || chunk_.tokens == kTokens) return;
    Copy(call_.second_value, 0, scratch_.values, scratch_.plain_values);
  }

  /// The gradients of what the queries find, and the same by what decays before them.
  void CopyGradients(const Coefficients<T>& c) const {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, call_.output_factor);
    for (std::int64_t x = 0; x < call_.sizes.queries; ++x) {
      const GradientRows<const T>& rows = call_.d_output;
      const T* from = rows.data + x * rows.head_stride + chunk_.at * rows.stride;
      T* out = scratch_.read_grads + x * Values();
      T* decayed = scratch_.DecayedGrads(0, x);
      T own[kTokens];
      const T* const factors = c.ReadFactors(KindOf(call_, x), own);
      for (std::int64_t i = 0; i < chunk_.tokens; ++i, from += rows.stride) {
        const auto factor = hn::Set(d, factors[i]);
        for (std::int64_t v = 0; v < scratch_.values; v += Lanes<T>()) {
          const auto grad = hn::Mul(scale, hn::Load(d, from + v));
          hn::Store(grad, d, out + i * scratch_.values + v);
          if (Decays()) hn::Store(hn::Mul(factor, grad), d, decayed + i * scratch_.values + v);
        }
      }
      std::fill(out + chunk_.tokens * scratch_.values, out + Values(), T(0));
    }
  }

  View<T> Read(std::int64_t x) const { return {scratch_.plain_reads + x * Keys(), scratch_.keys}; }
  View<T> Write(std::int64_t w) const {
    if (w == 0 && joined_) return Read(call_.sizes.queries);
    return {scratch_.plain_writes + w * Keys(), scratch_.keys};
  }

  /// The gradients of what the reads find; and times what multiplies the memory that they find,
  /// where that is a number.
  View<T> Grad(std::int64_t x) const {
    return {scratch_.read_grads + x * Values(), scratch_.values};
  }
  View<T> DecayedGrad(std::int64_t x, std::int64_t part = 0) const {
    if (!Decays()) return Grad(x);
    return {scratch_.DecayedGrads(part, x), scratch_.values};
  }

  /// What is written: the innovations, or the second values.
  View<T> Update(std::int64_t w) const {
    if (w == 0) {
      return {scratch_.updates + chunk_.at * scratch_.update_stride, scratch_.update_stride};
    }
    if (chunk_.tokens < kTokens) return {scratch_.plain_values, scratch_.values};
    const GradientRows<const T>& rows = call_.second_value;
    return {rows.data + chunk_.at * rows.stride, rows.stride};
  }

  /// Where the gradients of the reads and of the writes go: the row of the chunk's first token.
  /// None of an erasure whose rows are those that are written.
  T* ReadGradient(std::int64_t x, std::int64_t* stride) const {
    const bool query = x < call_.sizes.queries;
    const GradientRows<T>& rows = query ? call_.d_query : call_.d_erase;
    *stride = rows.stride;
    if (!rows) return nullptr;
    return rows.data + (query ? x * rows.head_stride : 0) + chunk_.at * rows.stride;
  }
  T* WriteGradient(std::int64_t w, std::int64_t* stride) const {
    const GradientRows<T>& rows = w == 0 ? call_.d_write : call_.d_second_write;
    *stride = rows.stride;
    return rows.data + chunk_.at * rows.stride;
  }

 private:
  std::int64_t Keys() const { return kTokens * scratch_.keys; }
  std::int64_t Values() const { return kTokens * scratch_.values; }
  bool Decays() const { return call_.sizes.decay == GradientDecay::kScalar; }

  void Copy(const GradientRows<const T>& rows, std::int64_t head, std::int64_t width,
            T* out) const {
    const T* const from = rows.data + head * rows.head_stride + chunk_.at * rows.stride;
    CopyRows(chunk_, from, rows.stride, width, out);
  }

  const GradientCall<T>& call_;
  const Chunk& chunk_;
  const Scratch<T>& scratch_;
  bool joined_;
};

/// The gates of a chunk where channels decay.
template <class T>
View<T> GatesOf(const GradientCall<T>& call, const Chunk& chunk) {
  return {call.gates.data + chunk.at * call.gates.stride, call.gates.stride};
}

/// prefixes[i] = c_{i-1}, of channels.
template <class T>
void Prefixes(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  const View<T> gates = GatesOf(call, chunk);
  std::fill(scratch.prefixes, scratch.prefixes + scratch.keys, T(1));
  for (std::int64_t i = 0; i < chunk.tokens; ++i) {
    const T* row = scratch.prefixes + i * scratch.keys;
    for (std::int64_t k = 0; k < scratch.keys; k += Lanes<T>()) {
      const auto next = hn::Mul(hn::Load(d, row + k), hn::Load(d, gates[i] + k));
      hn::Store(next, d, scratch.prefixes + (i + 1) * scratch.keys + k);
    }
  }
}

/// out_i = factor_i in_i, rows beyond the chunk's last 0.
template <class T>
void ScaleRows(const Chunk& chunk, View<T> in, const T* factors, std::int64_t width, T* out,
               std::int64_t stride) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < kTokens; ++i, out += stride) {
    if (i >= chunk.tokens) {
      std::fill(out, out + width, T(0));
      continue;
    }
    const auto factor = hn::Set(d, factors[i]);
    for (std::int64_t k = 0; k < width; k += Lanes<T>()) {
      hn::Store(hn::Mul(factor, hn::Load(d, in[i] + k)), d, out + k);
    }
  }
}

/// read_rows of one read where channels decay: x_i as it finds the memory before the chunk.
template <class T>
void DecayReads(const GradientCall<T>& call, const Chunk& chunk, View<T> in, std::int64_t read,
                const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  const ReadKind kind = KindOf(call, read);
  T* out = scratch.read_rows + read * kTokens * scratch.keys;
  for (std::int64_t i = 0; i < kTokens; ++i, out += scratch.keys) {
    if (i >= chunk.tokens) {
      std::fill(out, out + scratch.keys, T(0));
      continue;
    }
    const T* prefix = scratch.prefixes + (kind.before ? i : i + 1) * scratch.keys;
    for (std::int64_t k = 0; k < scratch.keys; k += Lanes<T>()) {
      hn::Store(hn::Mul(hn::Load(d, prefix + k), hn::Load(d, in[i] + k)), d, out + k);
    }
  }
}

/// write_rows of the chunk: w_j as it stands at the chunk's end.
template <class T>
void DecayWrites(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                 const Scratch<T>& scratch) {
  const hn::ScalableTag<T> d;
  for (std::int64_t w = 0; w < scratch.writes; ++w) {
    const GradientRows<const T>& rows = w == 0 ? call.write : call.second_write;
    const View<T> in{rows.data + chunk.at * rows.stride, rows.stride};
    T* out = scratch.WriteRow(w, chunk.at);
    const std::int64_t stride = scratch.write_stride;
    if (call.sizes.decay != GradientDecay::kChannel) {
      for (std::int64_t part = 0; part < scratch.parts; ++part) {
        ScaleRows(chunk, in, c.to_end[part], scratch.keys, scratch.WriteRow(w + part, chunk.at),
                  stride);
      }
      continue;
    }
    const View<T> gates = GatesOf(call, chunk);
    for (std::int64_t k = 0; k < scratch.keys; k += Lanes<T>()) {
      auto factor = hn::Set(d, T(1));
      for (std::int64_t j = chunk.tokens - 1; j >= 0; --j) {
        hn::Store(hn::Mul(factor, hn::Load(d, in[j] + k)), d, out + j * stride + k);
        factor = hn::Mul(factor, hn::Load(d, gates[j] + k));
      }
      for (std::int64_t j = chunk.tokens; j < kTokens; ++j) {
        hn::Store(hn::Zero(d), d, out + j * stride + k);
      }
    }
  }
}

/// What the steps of the chunk go along, b_i times which is u_i: the errors, or the values.
template <class T>
View<T> ErrorsOf(const GradientCall<T>& call, const Chunk& chunk, const Scratch<T>& scratch) {
  if (call.sizes.erase) {
    const T* errors = call.sizes.saved ? call.saved_errors : scratch.errors;
    return {errors + chunk.first * scratch.values, scratch.values};
  }
  return {call.value.data + chunk.at * call.value.stride, call.value.stride};
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_ROWS_INL_H_
