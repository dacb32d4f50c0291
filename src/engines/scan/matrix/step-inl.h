// Some key rows of a matrix memory in registers, for a block of tokens, forwards and backwards.
// Lanes run over value columns. Compiled once for every target.

#if defined(TTR_SCAN_MATRIX_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_MATRIX_STEP_INL_H_
#undef TTR_SCAN_MATRIX_STEP_INL_H_
#else
#define TTR_SCAN_MATRIX_STEP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/scan/matrix/task.h"
#include "src/simd/decay-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A block of tokens on one vector of columns. Rows of values, time steps and outputs are a strip
/// apart; those of keys and queries key_dim.
template <class T>
struct Block {
  std::int64_t tokens, key_dim, queries;
  const T *k, *q;   // q: [query][kBlockTokens][key_dim]
  const T *v, *dt;  // [token]
  T* y;             // [query][kBlockTokens][y_stride]
  std::int64_t stride, y_stride;
  const T* rates;  // [key_dim][lanes]
  const T* a;      // the rates as they are given, a_stride from column to column; or null
  std::int64_t a_stride;
  T* state;  // [key_dim], state_stride apart
  std::int64_t state_stride;
  const T* next_a;  // of the memory that comes next; or null
  const T* next_state;
  bool fetches;  // the rows that come next?
  T scale;

  /// The block of the same tokens on the vector of columns that comes next.
  HWY_INLINE Block Next() const {
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
    Block next = *this;
    next.v += kLanes;
    next.dt += kLanes;
    if (y != nullptr) next.y += kLanes;
    next.rates += key_dim * kLanes;
    if (a != nullptr) next.a += kLanes * a_stride;
    next.state += kLanes;
    return next;
  }
};

/// y (+)= scale q M of one token and ROWS key rows from `row` on.
template <int ROWS, class D, class T = hn::TFromD<D>>
HWY_INLINE void OutputRows(D d, const Block<T>& block, std::int64_t t, std::int64_t row,
                           const hn::Vec<D> (&m)[ROWS]) {
  for (std::int64_t query = 0; query < block.queries; ++query) {
    const std::int64_t at = query * kBlockTokens + t;
    const T* HWY_RESTRICT q = block.q + at * block.key_dim + row;
    T* HWY_RESTRICT y = block.y + at * block.y_stride;
    // Two sums, so that the additions wait less for each other.
    auto even = hn::Mul(hn::Set(d, q[0]), m[0]);
    auto odd = hn::Zero(d);
    if constexpr (ROWS > 1) odd = hn::Mul(hn::Set(d, q[1]), m[1]);
    TTR_UNROLL
    for (int r = 2; r < ROWS; ++r) {
      auto& sum = r % 2 == 0 ? even : odd;
      sum = hn::MulAdd(hn::Set(d, q[r]), m[r], sum);
    }
    const auto scale = hn::Set(d, block.scale);
    const auto part = hn::Mul(scale, hn::Add(even, odd));
    hn::StoreU(row == 0 ? part : hn::Add(hn::LoadU(d, y), part), d, y);
  }
}

/// What a block of tokens on one vector of columns adds to the gradients; rows of the tokens are
/// block.stride apart.
template <class T>
struct GradientBlock {
  T* states;    // [token][row of a group][lanes]: before every token
  T* factors;   // [token][row of a group][lanes]: decays; 0 where they forget
  const T* dy;  // [query][kBlockTokens][stride], scaled
  T *dv, *ddt;  // [token][stride]
  T *dk, *dq;   // [group of rows][token][row of it][lanes], dq with [query] in front
  T* da;        // [key_dim][lanes]
  T* dstate;    // [key_dim], dstate_stride apart
  std::int64_t dstate_stride;
};

/// The place of the sums of token t and of the group that begins at `row`.
template <int ROWS>
constexpr std::int64_t SumsAt(std::int64_t t, std::int64_t row) {
  return row * kCheckpoint + t * ROWS;
}

/// sums[row] += a m[row], dm[row] += q[row] a: what an output's gradient a does to its query and to
/// the memory that it was read from.
template <int ROWS, class D, class T = hn::TFromD<D>>
HWY_INLINE void BackOutputs(D d, const Block<T>& block, const GradientBlock<T>& out, std::int64_t t,
                            std::int64_t row, const hn::Vec<D> (&m)[ROWS], hn::Vec<D> (&dm)[ROWS]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  for (std::int64_t query = 0; query < block.queries; ++query) {
    const std::int64_t at = query * kBlockTokens + t;
    const auto dy = hn::LoadU(d, out.dy + at * block.stride);
    const T* HWY_RESTRICT q = block.q + at * block.key_dim + row;
    T* HWY_RESTRICT dq =
        out.dq + (query * kCheckpoint * block.key_dim + SumsAt<ROWS>(t, row)) * kLanes;
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      hn::Store(hn::MulAdd(dy, m[r], hn::Load(d, dq + r * kLanes)), d, dq + r * kLanes);
      dm[r] = hn::MulAdd(hn::Set(d, q[r]), dy, dm[r]);
    }
  }
}

/// to[r][lane] = the rate of key row `row` + r in column `lane`.
template <int ROWS, class T>
HWY_INLINE void TransposeRates(const Block<T>& block, std::int64_t row, T* to) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  if constexpr (ROWS * sizeof(T) % 16 == 0) {
    sn::TransposeStrided(block.a + row, block.a_stride, kLanes, ROWS, to, kLanes);
  } else {
    for (int r = 0; r < ROWS; ++r) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        to[r * kLanes + i] = block.a[i * block.a_stride + row + r];
      }
    }
  }
}

template <int ROWS, bool WRITES, bool BEFORE, class T>
HWY_INLINE void ScanRows(const Block<T>& block, std::int64_t row) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const T* rates = block.rates + row * kLanes;
  alignas(common::kLineBytes) T transposed[ROWS * kLanes];
  if (WRITES && block.a != nullptr) {
    TransposeRates<ROWS>(block, row, transposed);
    rates = transposed;
  }
  T* HWY_RESTRICT state = block.state + row * block.state_stride;
  hn::Vec<decltype(d)> m[ROWS];
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) m[r] = hn::LoadU(d, state + r * block.state_stride);
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    if constexpr (!WRITES || BEFORE) OutputRows<ROWS>(d, block, t, row, m);
    if constexpr (!WRITES) continue;
    const T* HWY_RESTRICT k = block.k + t * block.key_dim + row;
    const auto dt = hn::LoadU(d, block.dt + t * block.stride);
    const auto v = hn::LoadU(d, block.v + t * block.stride);
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const auto decay = sn::RateDecay(d, dt, hn::Load(d, rates + r * kLanes));
      m[r] = hn::MulAdd(hn::Set(d, k[r]), v, sn::Fade(decay, m[r]));
    }
    if constexpr (!BEFORE) OutputRows<ROWS>(d, block, t, row, m);
  }
  if constexpr (WRITES) {
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) hn::StoreU(m[r], d, state + r * block.state_stride);
  }
}

/// Repeats ScanRows() for the backward pass: fills out.states and out.factors for ROWS key rows
/// from `row` on.
template <int ROWS, class T>
HWY_INLINE void ReplayRows(const Block<T>& block, const GradientBlock<T>& out, std::int64_t row) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::Vec<decltype(d)> m[ROWS];
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    m[r] = hn::LoadU(d, block.state + (row + r) * block.state_stride);
  }
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    const std::int64_t at = t * block.key_dim + row;
    const auto dt = hn::LoadU(d, block.dt + t * block.stride);
    const auto v = hn::LoadU(d, block.v + t * block.stride);
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      hn::Store(m[r], d, out.states + (t * ROWS + r) * kLanes);
      const auto decay = sn::RateDecay(d, dt, hn::Load(d, block.rates + (row + r) * kLanes));
      hn::Store(hn::IfThenZeroElse(decay.forgets, decay.factor), d,
                out.factors + (t * ROWS + r) * kLanes);
      m[r] = hn::MulAdd(hn::Set(d, block.k[at + r]), v, sn::Fade(decay, m[r]));
    }
  }
}

template <int ROWS, bool BEFORE, class T>
HWY_INLINE void BackRows(const Block<T>& block, const GradientBlock<T>& out, std::int64_t row) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::Vec<decltype(d)> dm[ROWS], da[ROWS];
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    dm[r] = hn::LoadU(d, out.dstate + (row + r) * out.dstate_stride);
    da[r] = hn::Load(d, out.da + (row + r) * kLanes);
  }
  for (std::int64_t t = block.tokens - 1; t >= 0; --t) {
    const T* HWY_RESTRICT k = block.k + t * block.key_dim + row;
    const T* HWY_RESTRICT states = out.states + t * ROWS * kLanes;
    const T* HWY_RESTRICT factors = out.factors + t * ROWS * kLanes;
    T* HWY_RESTRICT dk = out.dk + SumsAt<ROWS>(t, row) * kLanes;
    const auto dt = hn::LoadU(d, block.dt + t * block.stride);
    const auto v = hn::LoadU(d, block.v + t * block.stride);
    auto dv = hn::LoadU(d, out.dv + t * block.stride);
    auto ddt = hn::LoadU(d, out.ddt + t * block.stride);
    hn::Vec<decltype(d)> saved[ROWS], now[ROWS];
    sn::Decay<hn::ScalableTag<T>> decays[ROWS];
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const auto factor = hn::Load(d, factors + r * kLanes);
      decays[r] = {factor, hn::Eq(factor, hn::Zero(d))};
      saved[r] = sn::Fade(decays[r], hn::Load(d, states + r * kLanes));
      if constexpr (!BEFORE) now[r] = hn::MulAdd(hn::Set(d, k[r]), v, saved[r]);
    }
    if constexpr (!BEFORE) BackOutputs<ROWS>(d, block, out, t, row, now, dm);
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      dv = hn::MulAdd(hn::Set(d, k[r]), dm[r], dv);
      hn::Store(hn::MulAdd(v, dm[r], hn::Load(d, dk + r * kLanes)), d, dk + r * kLanes);
      const auto dx = hn::IfThenZeroElse(decays[r].forgets, hn::Mul(saved[r], dm[r]));
      // The rate may be infinite where everything is forgotten.
      const auto rate = hn::Load(d, block.rates + (row + r) * kLanes);
      ddt = hn::Add(ddt, hn::IfThenZeroElse(decays[r].forgets, hn::Mul(dx, rate)));
      da[r] = hn::Add(da[r], hn::IfThenZeroElse(decays[r].forgets, hn::Mul(dx, dt)));
      dm[r] = sn::Fade(decays[r], dm[r]);
    }
    if constexpr (BEFORE) {
      TTR_UNROLL
      for (int r = 0; r < ROWS; ++r) now[r] = hn::Load(d, states + r * kLanes);
      BackOutputs<ROWS>(d, block, out, t, row, now, dm);
    }
    hn::StoreU(dv, d, out.dv + t * block.stride);
    hn::StoreU(ddt, d, out.ddt + t * block.stride);
  }
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    hn::StoreU(dm[r], d, out.dstate + (row + r) * out.dstate_stride);
    hn::Store(da[r], d, out.da + (row + r) * kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_MATRIX_STEP_INL_H_
