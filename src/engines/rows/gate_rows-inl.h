// Rows behind a gate, silu or sigmoid, and back. Compiled once for every target.

#if defined(TTR_ROWS_GATE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_GATE_ROWS_INL_H_
#undef TTR_ROWS_GATE_ROWS_INL_H_
#else
#define TTR_ROWS_GATE_ROWS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/rows/norm.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// y = x (.) g(gate); `y` may be `x`.
template <GateKind KIND, class T>
void ApplyGate(std::int64_t dim, const T* x, const T* gate, T* y) {
  const auto gated = [](auto d, auto n, auto z) HWY_ATTR {
    const auto one = hn::Set(d, T(1));
    const auto numerator = KIND == GateKind::kSilu ? z : one;
    return hn::Mul(n, hn::Div(numerator, hn::Add(one, sn::Exp(d, hn::Neg(z)))));
  };
  sn::MapRows(dim, y, gated, x, gate);
}

/// m, the row before the gate, becomes the gradient of the gate; dy becomes that of m.
template <GateKind KIND, class T>
void GateGradient(std::int64_t dim, const T* gate, T* m, T* dy) {
  constexpr bool kSilu = KIND == GateKind::kSilu;
  const auto own = [](auto d, auto z, auto row, auto gradient) HWY_ATTR {
    const auto s = sn::Sigmoid(d, z);
    const auto g = kSilu ? hn::Mul(z, s) : s;
    // s (1 + z (1 - s)) or s (1 - s)
    const auto rest = hn::NegMulAdd(g, s, g);
    return hn::Mul(hn::Mul(gradient, row), kSilu ? hn::Add(s, rest) : rest);
  };
  const auto by_gate = [](auto d, auto gradient, auto z) HWY_ATTR {
    const auto s = sn::Sigmoid(d, z);
    return hn::Mul(gradient, kSilu ? hn::Mul(z, s) : s);
  };
  sn::MapRows(dim, m, own, gate, static_cast<const T*>(m), static_cast<const T*>(dy));
  sn::MapRows(dim, dy, by_gate, static_cast<const T*>(dy), gate);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_GATE_ROWS_INL_H_
