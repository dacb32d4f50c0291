// What decays multiply within a chunk, and the gradients of the decays. With D_ij = prod_{j < l <=
// i} a_l and c_i = prod_{l <= i} a_l within the chunk, a read of token i finds
//
//     after its token's write   c_i x_i M      + sum_{j <= i} D_ij     (x_i . w_j) u_j
//     before it                 c_{i-1} x_i M  + sum_{j < i}  D_{i-1,j} (x_i . w_j) u_j
//
// of the memory M before the chunk; an erasure never finds its own write, and h_i multiplies it
// where it has a decay of its own. All are products of the decays between, never quotients. With
// momentum see momentum-inl.h. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_COEFFICIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_COEFFICIENTS_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_COEFFICIENTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_COEFFICIENTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/chunk-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

  /// `between` is set only with `pairs`, or with momentum.
  Coefficients(const GradientCall<T>& call, const Chunk& chunk, bool pairs = true) {
    const bool scalar = call.sizes.decay == GradientDecay::kScalar;
    for (int i = 0; i < kTokens; ++i) {
      const bool real = i < chunk.tokens;
      const std::int64_t t = chunk.at + i;
      a[i] = real && scalar && call.in.decay != nullptr ? call.in.decay[t] : T(1);
      h[i] = real && scalar && call.in.erase_decay != nullptr ? call.in.erase_decay[t] : T(1);
      b[i] = !real ? T(0) : call.in.step == nullptr ? T(1) : call.in.step[t];
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
      m[i] = i < chunk.tokens ? call.in.momentum[chunk.at + i] : T(0);
      epsilon[i + 1] = m[i] * epsilon[i];
      prefix[1][i + 1] = a[i] * prefix[1][i] + epsilon[i + 1];
    }
    FillBetween<T>(chunk, m, nullptr, updates, to_end[1]);
    FillBetween<T>(chunk, a, updates, between, to_end[0]);
  }

  T Last(const Chunk& chunk) const { return prefix[0][chunk.tokens]; }

  /// The factor by which a read multiplies the memory, without the read's own decay.
  T State(ReadKind kind, int i, std::int64_t plane = 0) const {
    return prefix[plane][kind.before ? i : i + 1];
  }
  T Own(ReadKind kind, int i) const { return kind.own ? h[i] : T(1); }
  /// State() times Own() for all tokens; the products are in `room` if the read has a decay of its
  /// own.
  const T* ReadFactors(ReadKind kind, T (&room)[kTokens], std::int64_t plane = 0) const {
    const T* const state = prefix[plane] + (kind.before ? 0 : 1);
    if (!kind.own) return state;
    for (int i = 0; i < kTokens; ++i) room[i] = state[i] * h[i];
    return room;
  }

  /// Row i of the factors by which a read multiplies x_i . w_j, j < Count(kind, i).
  const T* Between(ReadKind kind, int i) const { return between[kind.before ? i : i + 1]; }
  static int Count(ReadKind kind, int i) { return kind.diagonal ? i + 1 : i; }
};

/// Gradients of the scalar coefficients of a chunk.
template <class T>
struct CoefficientGradients {
  alignas(64) T between[kTokens + 1][kTokens] = {};
  alignas(64) T update_to_end[kTokens] = {};  // of e_nj
  T prefix[2][kTokens + 1] = {};
  T epsilon = 0;  // the last
  T h[kTokens] = {};

  /// Takes the gradients of the scores, and turns them into those of the products x_i . w_j.
  void Scores(const Chunk& chunk, const Coefficients<T>& c, ReadKind kind, const T* products,
              T* grads) {
    const hn::CappedTag<T, kTokens> d;
    constexpr int kLanes = hn::MaxLanes(d);
    for (int i = 0; i < kTokens; ++i) {
      T* row = grads + i * kTokens;
      const T* product = products + i * kTokens;
      const int count = i < chunk.tokens ? Coefficients<T>::Count(kind, i) : 0;
      const T* factors = c.Between(kind, i);
      T* out = between[kind.before ? i : i + 1];
      if (kind.own) {
        for (int j = 0; j < count; ++j) h[i] += factors[j] * row[j] * product[j];
      }
      const auto own = hn::Set(d, c.Own(kind, i));
      for (int j = 0; j < kTokens; j += kLanes) {
        // Numbers beyond the pairs need not be finite.
        const auto pairs = hn::FirstN(d, static_cast<std::size_t>(std::max(count - j, 0)));
        const auto grad = hn::Mul(own, hn::Load(d, row + j));
        const auto by_decay = hn::IfThenElseZero(pairs, hn::Mul(grad, hn::Load(d, product + j)));
        hn::Store(hn::Add(hn::Load(d, out + j), by_decay), d, out + j);
        hn::Store(hn::IfThenElseZero(pairs, hn::Mul(grad, hn::Load(d, factors + j))), d, row + j);
      }
    }
  }

  /// Takes x_i . (G_i M^T) of a read, or of its plane N; of one that is behind a border nothing.
  void Read(const Chunk& chunk, const Coefficients<T>& c, ReadKind kind, bool reset, const T* sums,
            std::int64_t plane = 0) {
    for (int i = 0; i < chunk.tokens; ++i) {
      const T state = c.State(kind, i, plane), own = c.Own(kind, i);
      if (reset && state * own == 0) continue;
      prefix[plane][kind.before ? i : i + 1] += own * sums[i];
      if (kind.own) h[i] += state * sums[i];
    }
  }

  /// Takes w_j . (u_j dM'^T) of a write, or with dN'.
  void Write(const Chunk& chunk, const T* sums, std::int64_t plane = 0) {
    T* const to = plane == 0 ? between[chunk.tokens] : update_to_end;
    for (int j = 0; j < chunk.tokens; ++j) to[j] += sums[j];
  }

  /// Takes what multiplies M between the chunk's ends; with momentum, pi and epsilon besides.
  void Last(const Chunk& chunk, const Coefficients<T>& c, bool reset, T of_memory, T of_update = 0,
            T update = 0) {
    if (!reset || c.Last(chunk) != 0) prefix[0][chunk.tokens] += of_memory;
    prefix[1][chunk.tokens] += of_update;
    epsilon = update;
  }

  /// The gradients of the decays, backwards through c_i = a_i c_{i-1} and D_ij = a_i D_{i-1,j}.
  /// `tallies` has room for kTokens rows of lanes.
  void Decays(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
              T* tallies) {
    const hn::ScalableTag<T> d;
    for (int i = 0; i < kTokens; ++i) hn::Store(hn::Zero(d), d, tallies + i * kTokens);
    for (std::int64_t j = 0; j < chunk.tokens; j += Lanes<T>()) {
      const auto column = hn::Iota(d, static_cast<T>(j));
      auto behind = hn::Load(d, between[chunk.tokens] + j);
      for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
        const auto past = hn::Lt(column, hn::Set(d, static_cast<T>(i)));
        behind = hn::IfThenElseZero(past, behind);
        T* const tally = tallies + i * kTokens;
        hn::Store(hn::MulAdd(behind, hn::Load(d, c.between[i] + j), hn::Load(d, tally)), d, tally);
        behind = hn::MulAdd(hn::Set(d, c.a[i]), behind, hn::Load(d, between[i] + j));
      }
    }
    T sums[kTokens];
    SumTallies(tallies, sums);
    for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
      T grad = sums[i] + prefix[0][i + 1] * c.prefix[0][i];
      prefix[0][i] += c.a[i] * prefix[0][i + 1];
      if (call.reset && c.a[i] == 0) grad = 0;
      if (call.d.decay != nullptr) call.d.decay[chunk.at + i] = grad;
      if (call.d.erase_decay != nullptr) call.d.erase_decay[chunk.at + i] = h[i];
    }
  }

  /// The gradients of decays and momentum, backwards through p_ij, e_ij and their like
  /// (adjoint/momentum-inl.h). Both `tallies` have room for kTokens rows of lanes.
  void DecaysAndMomentum(const GradientCall<T>& call, const Chunk& chunk, const Coefficients<T>& c,
                         T* tallies, T* update_tallies) {
    const hn::ScalableTag<T> d;
    std::fill(tallies, tallies + kSquare, T(0));
    std::fill(update_tallies, update_tallies + kSquare, T(0));
    for (std::int64_t j = 0; j < chunk.tokens; j += Lanes<T>()) {
      const auto column = hn::Iota(d, static_cast<T>(j));
      auto by_p = hn::Load(d, between[chunk.tokens] + j);
      auto by_e = hn::Load(d, update_to_end + j);
      for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
        const auto past = hn::Lt(column, hn::Set(d, static_cast<T>(i)));
        by_p = hn::IfThenElseZero(past, by_p);
        by_e = hn::Add(hn::IfThenElseZero(past, by_e), by_p);
        T *const tally = tallies + i * kTokens, *const update_tally = update_tallies + i * kTokens;
        hn::Store(hn::MulAdd(by_p, hn::Load(d, c.between[i] + j), hn::Load(d, tally)), d, tally);
        hn::Store(hn::MulAdd(by_e, hn::Load(d, c.updates[i] + j), hn::Load(d, update_tally)), d,
                  update_tally);
        by_p = hn::MulAdd(hn::Set(d, c.a[i]), by_p, hn::Load(d, between[i] + j));
        by_e = hn::Mul(hn::Set(d, c.m[i]), by_e);
      }
    }
    T sums[kTokens], update_sums[kTokens];
    SumTallies(tallies, sums);
    SumTallies(update_tallies, update_sums);
    for (std::int64_t i = chunk.tokens - 1; i >= 0; --i) {
      const T by_alpha = prefix[0][i + 1], by_pi = prefix[1][i + 1];
      epsilon += by_pi;
      T grad = sums[i] + by_alpha * c.prefix[0][i] + by_pi * c.prefix[1][i];
      call.d.momentum[chunk.at + i] = update_sums[i] + epsilon * c.epsilon[i];
      prefix[0][i] += c.a[i] * by_alpha;
      prefix[1][i] += c.a[i] * by_pi;
      epsilon *= c.m[i];
      const bool border = call.reset && c.h[i] == 0;
      call.d.decay[chunk.at + i] = border ? T(0) : grad;
      call.d.erase_decay[chunk.at + i] = border ? T(0) : h[i];
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_COEFFICIENTS_INL_H_
