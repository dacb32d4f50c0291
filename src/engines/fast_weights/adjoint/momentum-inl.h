// Momentum in the gradient: a memory M and its last update N, as chunked/momentum-inl.h has them.
// Within a chunk
//
//     M_i = alpha_i M + pi_i N + sum_{j <= i} p_ij w_j^T u_j    p_ij = a_i p_{i-1,j} + e_ij
//     N_i = epsilon_i N        + sum_{j <= i} e_ij w_j^T u_j    e_ij = m_i e_{i-1,j},  e_ii = 1
//
// with alpha_i = a_i alpha_{i-1}, epsilon_i = m_i epsilon_{i-1} and pi_i = a_i pi_{i-1} +
// epsilon_i: what a scalar decay does, with p for D, twice. A read finds the planes M and N of the
// memory before the chunk times alpha and pi, and a write reaches the planes behind it by p_nj and
// e_nj. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_MOMENTUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_MOMENTUM_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_MOMENTUM_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_MOMENTUM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/rows-inl.h"
#include "src/engines/fast_weights/adjoint/state-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// factor x; 0 where the factor is 0, whatever x is.
template <class D>
HWY_INLINE hn::Vec<D> TimesUnlessZero(D d, hn::Vec<D> factor, hn::Vec<D> x) {
  return hn::IfThenZeroElse(hn::Eq(factor, hn::Zero(d)), hn::Mul(factor, x));
}

/// out[v][i] = sum_k state[v][k] columns[k][i]; with momentum first[i] times that of M and
/// second[i] times that of N.
template <class T>
void ReadPlanes(const GradientCall<T>& call, const Scratch<T>& scratch, const T* state,
                const T* columns, const T* first, const T* second, T* out) {
  const hn::CappedTag<T, kTokens> d;
  ReadState(call, scratch, state, columns, out);
  if (scratch.planes == 1) return;
  ReadState(call, scratch, state + scratch.matrix, columns, scratch.columns.update_found);
  for (std::int64_t i = 0; i < kTokens; i += hn::MaxLanes(d)) {
    const auto of_memory = hn::LoadU(d, first + i), of_update = hn::LoadU(d, second + i);
    for (std::int64_t at = i; at < scratch.values * kTokens; at += kTokens) {
      const auto update =
          TimesUnlessZero(d, of_update, hn::Load(d, scratch.columns.update_found + at));
      const auto memory = TimesUnlessZero(d, of_memory, hn::Load(d, out + at));
      hn::Store(hn::Add(memory, update), d, out + at);
    }
  }
}

/// DecayedGrad() of N.
template <class T>
void DecayUpdateGradients(const ChunkWork<T>& on) {
  const Scratch<T>& scratch = on.scratch;
  for (std::int64_t x = 0; x < scratch.reads; ++x) {
    T own[kTokens];
    const T* const factors = on.c.ReadFactors(on.Kind(x), own, 1);
    ScaleRows(on.chunk, on.Grad(x), factors, scratch.values, scratch.DecayedGrads(1, x),
              scratch.values);
  }
}

/// Over a chunk: [M, N] <- [alpha M + pi N, epsilon N], and backwards, where A and B are their
/// gradients, [A, B] <- [alpha A, pi A + epsilon B].
template <class T>
struct Transition {
  T alpha, pi, epsilon;

  Transition(const Chunk& chunk, const Coefficients<T>& c)
      : alpha(c.prefix[0][chunk.tokens]),
        pi(c.prefix[1][chunk.tokens]),
        epsilon(c.epsilon[chunk.tokens]) {}

  /// `count` numbers of the planes, which are `plane` numbers apart.
  void Forward(std::int64_t count, std::int64_t plane, const T* in, T* out) const {
    const hn::ScalableTag<T> d;
    for (std::int64_t at = 0; at < count; at += Lanes<T>()) {
      const auto x = hn::Load(d, in + at), y = hn::Load(d, in + plane + at);
      const auto memory = TimesUnlessZero(d, hn::Set(d, alpha), x);
      const auto update = TimesUnlessZero(d, hn::Set(d, pi), y);
      hn::Store(hn::Add(memory, update), d, out + at);
      hn::Store(TimesUnlessZero(d, hn::Set(d, epsilon), y), d, out + plane + at);
    }
  }

  /// Turns the gradients behind the chunk into those before it, in place. Adds to sums, by lanes,
  /// the products of the planes before the chunk with the gradients behind it: M . A, N . A, N . B.
  void Backward(std::int64_t count, std::int64_t plane, const T* memory, T* adjoint,
                T (&sums)[3][2 * kTokens]) const {
    const hn::ScalableTag<T> d;
    hn::Vec<decltype(d)> sum[3];
    TTR_UNROLL
    for (int s = 0; s < 3; ++s) sum[s] = hn::Load(d, sums[s]);
    for (std::int64_t at = 0; at < count; at += Lanes<T>()) {
      const auto x = hn::Load(d, memory + at), y = hn::Load(d, memory + plane + at);
      const auto a = hn::Load(d, adjoint + at), b = hn::Load(d, adjoint + plane + at);
      sum[0] = hn::MulAdd(x, a, sum[0]);
      sum[1] = hn::MulAdd(y, a, sum[1]);
      sum[2] = hn::MulAdd(y, b, sum[2]);
      hn::Store(TimesUnlessZero(d, hn::Set(d, alpha), a), d, adjoint + at);
      const auto through = TimesUnlessZero(d, hn::Set(d, pi), a);
      hn::Store(hn::Add(through, TimesUnlessZero(d, hn::Set(d, epsilon), b)), d,
                adjoint + plane + at);
    }
    TTR_UNROLL
    for (int s = 0; s < 3; ++s) hn::Store(sum[s], d, sums[s]);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_MOMENTUM_INL_H_
