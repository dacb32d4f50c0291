// Step rules: the size b(s, n) of a step from the input s and n = |k|^2, and beside it its slopes
// by both. A new rule is one StepRule and one line in WithStepRule(). Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_OPERANDS_STEP_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_OPERANDS_STEP_RULES_INL_H_
#undef TTR_FAST_WEIGHTS_OPERANDS_STEP_RULES_INL_H_
#else
#define TTR_FAST_WEIGHTS_OPERANDS_STEP_RULES_INL_H_
#endif

#include <cmath>

#include "hwy/highway.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "src/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Derivatives of a step size by s and by n.
template <class T>
struct StepSlopes {
  T by_s, by_n;
};

/// A rule that lacks its value or its slope does not compile.
template <Step RULE>
struct StepRule;

/// kLogWeight takes s as it is, too, for its exponential depends on other rows.
template <>
struct StepRule<Step::kInput> {
  template <class D, class V>
  static HWY_INLINE V Value(D, const Options&, V s, V) {
    return s;
  }
  /// `b` is the value.
  template <class T>
  static StepSlopes<T> Slope(const Options&, T, T, T) {
    return {1, 0};
  }
};

template <>
struct StepRule<Step::kOne> {
  template <class D, class V>
  static HWY_INLINE V Value(D d, const Options&, V, V) {
    return hn::Set(d, 1);
  }
  template <class T>
  static StepSlopes<T> Slope(const Options&, T, T, T) {
    return {0, 0};
  }
};

template <>
struct StepRule<Step::kNlms> {
  template <class D, class V>
  static HWY_INLINE V Value(D d, const Options& options, V, V n) {
    using T = hn::TFromD<D>;
    const auto divisor = hn::Add(n, hn::Set(d, static_cast<T>(options.eps)));
    const auto b = hn::Div(hn::Set(d, static_cast<T>(options.eta)), divisor);
    return hn::IfThenElse(hn::Eq(n, hn::Zero(d)), hn::Zero(d), b);
  }
  template <class T>
  static StepSlopes<T> Slope(const Options& options, T, T n, T b) {
    return {0, n == 0 ? T(0) : -b / (n + static_cast<T>(options.eps))};
  }
};

template <>
struct StepRule<Step::kLonghorn> {
  template <class D, class V>
  static HWY_INLINE V Value(D d, const Options&, V s, V n) {
    return hn::Div(s, hn::MulAdd(s, n, hn::Set(d, 1)));
  }
  template <class T>
  static StepSlopes<T> Slope(const Options&, T s, T n, T b) {
    const T rest = 1 / (1 + s * n);
    return {rest * rest, -b * b};
  }
};

template <>
struct StepRule<Step::kEfla> {
  template <class D, class V>
  static HWY_INLINE V Value(D d, const Options&, V s, V n) {
    return hn::Mul(s, sn::OneMinusExpOver(d, hn::Mul(s, n)));
  }
  template <class T>
  static StepSlopes<T> Slope(const Options&, T s, T n, T b) {
    const T rest = std::exp(-s * n);
    // (s exp(-s n) - b) / n, by its series where the difference cancels
    const T x = s * n;
    const T series = s * s * (x * (T(1) / 3 - x / 8) - T(0.5));
    return {rest, std::abs(x) < static_cast<T>(1e-2) ? series : (s * rest - b) / n};
  }
};

/// use(the rule), as a StepRule of `rule`.
template <class Use>
HWY_INLINE void WithStepRule(Step rule, const Use& use) {
  switch (rule) {
    case Step::kOne: return use(StepRule<Step::kOne>());
    case Step::kInput:
    case Step::kLogWeight: return use(StepRule<Step::kInput>());
    case Step::kNlms: return use(StepRule<Step::kNlms>());
    case Step::kLonghorn: return use(StepRule<Step::kLonghorn>());
    case Step::kEfla: return use(StepRule<Step::kEfla>());
  }
}

/// step[i] = b_i from the inputs in step[i] and norms[i] = n_i.
template <class T, std::size_t COUNT>
HWY_INLINE void StepSizes(const Options& options, const T (&norms)[COUNT], T (&step)[COUNT]) {
  if (options.step == Step::kInput || options.step == Step::kLogWeight) return;
  const hn::CappedTag<T, COUNT> d;
  WithStepRule(options.step, [&](auto rule) HWY_ATTR {
    for (std::size_t i = 0; i < COUNT; i += hn::Lanes(d)) {
      hn::StoreU(rule.Value(d, options, hn::LoadU(d, step + i), hn::LoadU(d, norms + i)), d,
                 step + i);
    }
  });
}

/// Slopes of the step size b = b(s, n).
template <class T>
StepSlopes<T> SlopesOfStep(const Options& options, T s, T n, T b) {
  StepSlopes<T> slopes{};
  WithStepRule(options.step, [&](auto rule) { slopes = rule.Slope(options, s, n, b); });
  return slopes;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_OPERANDS_STEP_RULES_INL_H_
