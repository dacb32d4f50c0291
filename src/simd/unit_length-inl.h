// Rows of unit length, n = x / root with root = sqrt(|x|^2 / length + eps), and their gradient.
// Where the root is 0 (a row of zeros without eps) n is 0 and has no gradient. Compiled once for
// every target.

#if defined(TTR_SIMD_UNIT_LENGTH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_UNIT_LENGTH_INL_H_
#undef TTR_SIMD_UNIT_LENGTH_INL_H_
#else
#define TTR_SIMD_UNIT_LENGTH_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

/// What keeps keys and queries of length 0 finite: x / sqrt(|x|^2 + kUnitEps).
inline constexpr double kUnitEps = 1e-6;

/// 1 / sqrt(mean + eps) for mean = |x|^2 / length; 0 where the root is 0.
inline double InverseRoot(double mean, double eps) {
  const double root = std::sqrt(mean + eps);
  return root == 0 ? 0 : 1 / root;
}

/// n = (x - mean) inverse, in double: the mean may be far larger than the difference, and the
/// inverse beyond float.
template <class T>
void Standardise(std::int64_t count, const T* x, double mean, double inverse, T* n) {
  for (std::int64_t i = 0; i < count; ++i) {
    n[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * inverse);
  }
}

/// The gradient by x of n = x / root, from n and the gradient `dn` by n:
///
///     dx = (dn - n (n . dn) / length) / root
///
/// `inverse` is InverseRoot(). Where n = (x - mean of x) / root, dn counts less its mean,
/// `mean_dn`. Sums in double; dx may be dn.
template <class T>
void UnitGradient(std::int64_t count, const T* n, double inverse, double length, const T* dn, T* dx,
                  double mean_dn = 0) {
  const double along = WideDot(count, dn, n) / length;
  for (std::int64_t i = 0; i < count; ++i) {
    const double rest = static_cast<double>(dn[i]) - mean_dn - static_cast<double>(n[i]) * along;
    dx[i] = static_cast<T>(inverse * rest);
  }
}

/// UnitGradient() from x instead of n; `n` is room for a row.
template <class T>
void UnitGradientOf(std::int64_t count, const T* x, double length, double eps, const T* dn, T* n,
                    T* dx) {
  const double inverse = InverseRoot(WideDot(count, x, x) / length, eps);
  Standardise(count, x, 0, inverse, n);
  UnitGradient(count, static_cast<const T*>(n), inverse, length, dn, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_UNIT_LENGTH_INL_H_
