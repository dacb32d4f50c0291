// Rows of kept pairs into a scratch. Compiled once for every target.

#if defined(TTR_COMMON_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_PAIRS_INL_H_
#undef TTR_COMMON_PAIRS_INL_H_
#else
#define TTR_COMMON_PAIRS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/common/pairs.h"
#include "src/linalg/block.h"
#include "src/simd/prefetcher.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

using linalg::Block;

/// A number as a state of this dtype holds it.
template <class T>
void RoundTo(DType dtype, std::int64_t count, T* x) {
  const auto round = [&](auto zero) {
    for (std::int64_t i = 0; i < count; ++i) {
      x[i] = static_cast<T>(sn::Widen(sn::Narrow<decltype(zero)>(x[i])));
    }
  };
  if (dtype == DType::kBFloat16) {
    round(BFloat16());
  } else if (dtype == DType::kFloat16) {
    round(Float16());
  } else if (dtype == DType::kFloat32 && !std::is_same_v<T, float>) {
    for (std::int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<float>(x[i]));
  }
}

/// The rows of keys or values of one memory: those of the state, then those of the call.
struct PairSource {
  const Rows& state;
  const Rows& call;
  std::int64_t held;
  bool normalises;  // those of the call

  template <class T>
  HWY_INLINE void Load(std::int64_t pair, std::int64_t channels, T* to) const {
    if (pair < held) return sn::LoadRow(state, pair, 0, channels, to);
    sn::LoadRow(call, pair - held, 0, channels, to);
    if (normalises) sn::Multiply(to, channels, static_cast<T>(sn::UnitFactor(to, channels)));
    if (state) RoundTo(state.dtype, channels, to);
  }

  /// Fetches a pair towards the second-level cache: hardware does not foresee rows of one head,
  /// which are far apart.
  HWY_INLINE void Fetch(std::int64_t pair, std::int64_t channels) const {
    if (pair >= held) return;
    const auto size = static_cast<std::int64_t>(SizeOf(state.dtype));
    simd::FetchRow(static_cast<const char*>(state.data) + pair * state.stride * size,
                   channels * size);
  }
};

inline PairSource KeysOf(const KeptPairs& pairs) {
  return {pairs.state_k, pairs.k, pairs.visible.held, pairs.normalises};
}
inline PairSource ValuesOf(const KeptPairs& pairs) {
  return {pairs.state_v, pairs.v, pairs.visible.held, false};
}

/// The offset of a pair (PairWeights).
HWY_INLINE double OffsetOf(const KeptPairs& m, std::int64_t pair) {
  if (pair >= m.visible.held) return m.weights.offsets[pair - m.visible.held];
  return m.state_log_weight ? sn::LoadOne<double>(m.state_log_weight, pair) : 0;
}

/// Pairs first .. first + count as rows, with zeros up to whole units of channels and of pairs.
template <class T>
void LoadPairs(const PairSource& source, std::int64_t first, std::int64_t count,
               std::int64_t channels, const Block<T>& to) {
  constexpr std::int64_t kAhead = 16;
  const std::int64_t wide = linalg::RoundUp(channels, linalg::kUnit);
  for (std::int64_t i = 0; i < count; ++i) {
    T* const row = to.Row(i);
    source.Fetch(first + i + kAhead, channels);
    source.Load(first + i, channels, row);
    std::fill(row + channels, row + wide, T(0));
  }
  linalg::ZeroRows(to, count, linalg::RoundUp(count, linalg::kUnit), wide);
}

/// Is every number of a row of whole units finite?
template <class T>
HWY_INLINE bool IsFinite(const T* row, std::int64_t channels) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // x - x is 0, or NaN of what is not finite
  for (std::int64_t c = 0; c < channels; c += lanes) {
    const auto x = hn::Load(d, row + c);
    sum = hn::Add(sum, hn::Sub(x, x));
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

/// Rows that are not finite become zeros, so that no product with them is NaN. `nonfinite`, if
/// given, lists them. Returns how many they are.
template <class T>
std::int64_t SetNonfiniteAside(const Block<T>& rows, std::int64_t count, std::int64_t channels,
                               std::int64_t* nonfinite) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (IsFinite(rows.Row(i), channels)) continue;
    std::fill(rows.Row(i), rows.Row(i) + channels, T(0));
    if (nonfinite != nullptr) nonfinite[found] = i;
    ++found;
  }
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_PAIRS_INL_H_
