// Gradients of kept pairs to where they belong: the call, or the state before it. Compiled once for
// every target.

#if defined(TTR_COMMON_PAIR_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_PAIR_GRADIENTS_INL_H_
#undef TTR_COMMON_PAIR_GRADIENTS_INL_H_
#else
#define TTR_COMMON_PAIR_GRADIENTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/pairs.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unit_length-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;

/// Adds what the gradient of the final state says of a pair.
template <class T>
void AddFinalGradient(const KeptPairs& m, const PairGradients& g, const Rows& final,
                      std::int64_t pair, std::int64_t channels, T* gradient, T* room) {
  if (!final) return;
  const std::int64_t row = pair - (m.all() - g.final_place.After(m.sight.held, m.sight.tokens));
  if (row < 0) return;
  sn::LoadRow(final, row, 0, channels, room);
  for (std::int64_t c = 0; c < channels; ++c) gradient[c] += room[c];
}

/// Stores a gradient, through the length where `x` is the row before it.
template <class T>
void StoreGradientRow(T* gradient, const T* x, const Rows& to, std::int64_t row,
                      std::int64_t channels, T* room) {
  if (!to) return;
  if (x != nullptr) {
    sn::UnitGradientOf(channels, x, 1, sn::kUnitEps, gradient, room, gradient);
  }
  sn::StoreRow(gradient, row, 0, channels, to);
}

/// Pair `pair`; both are room for a row.
template <class T>
void StorePairGradient(const KeptPairs& m, const PairGradients& g, std::int64_t pair, T* dk, T* dv,
                       T* room, T* other) {
  const bool old = pair < m.sight.held;
  const std::int64_t row = old ? pair : pair - m.sight.held;
  AddFinalGradient(m, g, g.final_k, pair, m.key_dim, dk, other);
  AddFinalGradient(m, g, g.final_v, pair, m.value_dim, dv, other);
  const bool normalises = m.normalises && !old;
  if (normalises) sn::LoadRow(m.k, row, 0, m.key_dim, room);
  StoreGradientRow(dk, normalises ? room : nullptr, old ? g.dstate_k : g.dk, row, m.key_dim, other);
  StoreGradientRow(dv, static_cast<const T*>(nullptr), old ? g.dstate_v : g.dv, row, m.value_dim,
                   other);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_PAIR_GRADIENTS_INL_H_
