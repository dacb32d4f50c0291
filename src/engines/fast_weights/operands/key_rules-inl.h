// What stands for a key besides the input: complements of decays, and keys under a diagonal
// preconditioner; each beside its gradient. Rows are whole vectors, padded with zeros. Compiled
// once for every target.

#if defined(TTR_FAST_WEIGHTS_OPERANDS_KEY_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_OPERANDS_KEY_RULES_INL_H_
#undef TTR_FAST_WEIGHTS_OPERANDS_KEY_RULES_INL_H_
#else
#define TTR_FAST_WEIGHTS_OPERANDS_KEY_RULES_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "src/simd/decay-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Key::kComplement 1 - a, or kRootComplement sqrt(1 - a^2), in place of x = log a <= 0; without
/// cancellation where a is close to 1.
template <class T>
HWY_INLINE void ComplementRow(Key key, T* x, std::int64_t count) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    auto log_decay = hn::Load(d, x + i);
    if (key == Key::kRootComplement) log_decay = hn::Add(log_decay, log_decay);
    // Below its range Expm1 is -1 to the last bit; NaN stays.
    const auto low = hn::Set(d, sn::kLowestExponent<T>);
    const auto safe = hn::IfThenElse(hn::Lt(log_decay, low), low, log_decay);
    const auto value = hn::Neg(hn::Expm1(d, hn::IfThenElseZero(hn::Eq(safe, safe), safe)));
    auto result = key == Key::kRootComplement ? hn::Sqrt(value) : value;
    result = hn::IfThenElse(hn::Eq(safe, safe), result, safe);
    hn::Store(result, d, x + i);
  }
}

/// d_log_decay += dL/d log a from dL/d key: the slopes are -a, and -a^2 / key. `decay` holds a.
template <class T>
HWY_INLINE void AddComplementGradient(Key rule, const T* key, const T* decay, const T* d_key,
                                      std::int64_t count, T* d_log_decay) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    auto slope = hn::Load(d, decay + i);
    if (rule == Key::kRootComplement) {
      const auto k = hn::Load(d, key + i);
      const auto some = hn::Gt(k, hn::Zero(d));
      const auto divisor = hn::IfThenElse(some, k, hn::Set(d, T(1)));
      slope = hn::IfThenElseZero(some, hn::Div(hn::Mul(slope, slope), divisor));
    }
    const auto sum = hn::NegMulAdd(hn::Load(d, d_key + i), slope, hn::Load(d, d_log_decay + i));
    hn::Store(sum, d, d_log_decay + i);
  }
}

/// Curvature D = decay D' + weight k (.) k, and the key it leads to: k (.) m(D),
///     m(D) = 1.5^(-l / (1 + |l|)),   l = log(D + 1e-6) - centre
/// (preconditioned DeltaNet, 2604.21100).
inline constexpr double kPreconditionLogBase = -0.405465108108164381978;  // -log 1.5
inline constexpr double kPreconditionFloor = 1e-6;

template <class T>
HWY_INLINE void PreconditionRow(const Options& options, T weight, const T* key, std::int64_t count,
                                T* curvature, T* to) {
  const hn::ScalableTag<T> d;
  const auto one = hn::Set(d, T(1));
  const auto log_base = hn::Set(d, static_cast<T>(kPreconditionLogBase));
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto k = hn::Load(d, key + i);
    const auto old =
        hn::Mul(hn::Set(d, static_cast<T>(options.curvature_decay)), hn::Load(d, curvature + i));
    const auto now = hn::MulAdd(hn::Mul(hn::Set(d, weight), k), k, old);
    hn::Store(now, d, curvature + i);
    const auto shifted = hn::Add(now, hn::Set(d, static_cast<T>(kPreconditionFloor)));
    // The comparison is false for NaN.
    const auto finite = hn::Le(shifted, hn::Set(d, std::numeric_limits<T>::max()));
    const auto l = hn::Sub(hn::Log(d, hn::IfThenElse(finite, shifted, one)),
                           hn::Set(d, static_cast<T>(options.curvature_centre)));
    const auto power = hn::Mul(log_base, hn::Div(l, hn::Add(one, hn::Abs(l))));
    const auto factor =
        hn::IfThenElse(finite, hn::Exp(d, power), hn::Sub(shifted, shifted));  // NaN
    hn::Store(hn::Mul(k, factor), d, to + i);
  }
}

/// A key row k, what it is multiplied by, and their gradients.
template <class T>
struct PreconditionRows {
  const T* key;
  const T* curvature;  // D
  const T* d_erase;    // a share of dL/dk
  T* d_key;            // dL/d (k (.) m), which becomes dL/dk
  T* d_curvature;      // dL/dD, which becomes dL/dD'
};

/// Gradients of PreconditionRow(). Returns dL/d weight.
template <class T>
HWY_INLINE T PreconditionGradient(const Options& options, T weight, const PreconditionRows<T>& rows,
                                  std::int64_t count) {
  const auto [key, curvature, d_erase, d_key, d_curvature] = rows;
  const hn::ScalableTag<T> d;
  const auto one = hn::Set(d, T(1));
  const auto log_base = hn::Set(d, static_cast<T>(kPreconditionLogBase));
  const auto decay = hn::Set(d, static_cast<T>(options.curvature_decay));
  auto by_weight = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto k = hn::Load(d, key + i);
    const auto shifted =
        hn::Add(hn::Load(d, curvature + i), hn::Set(d, static_cast<T>(kPreconditionFloor)));
    const auto l =
        hn::Sub(hn::Log(d, shifted), hn::Set(d, static_cast<T>(options.curvature_centre)));
    const auto size = hn::Add(one, hn::Abs(l));
    const auto m = hn::Exp(d, hn::Mul(log_base, hn::Div(l, size)));
    const auto slope = hn::Div(hn::Mul(m, log_base), hn::Mul(hn::Mul(size, size), shifted));
    const auto d_write = hn::Load(d, d_key + i);
    const auto by_curvature = hn::MulAdd(hn::Mul(d_write, k), slope, hn::Load(d, d_curvature + i));
    const auto by_key = hn::MulAdd(d_write, m, hn::Load(d, d_erase + i));
    const auto twice = hn::Mul(hn::Set(d, 2 * weight), hn::Mul(k, by_curvature));
    hn::Store(hn::Add(by_key, twice), d, d_key + i);
    by_weight = hn::MulAdd(by_curvature, hn::Mul(k, k), by_weight);
    hn::Store(hn::Mul(decay, by_curvature), d, d_curvature + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, by_weight));
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_OPERANDS_KEY_RULES_INL_H_
