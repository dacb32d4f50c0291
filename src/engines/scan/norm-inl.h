// Norms of whole rows. Compiled once for every target.

#if defined(TTR_SCAN_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_NORM_INL_H_
#undef TTR_SCAN_NORM_INL_H_
#else
#define TTR_SCAN_NORM_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/scan/layout.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;

/// Row t of keys or queries in T, normalised if asked for.
template <class T>
void LoadKey(const Options& options, const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  sn::LoadRow(rows, t, 0, count, to);
  if (options.normalise_qk) sn::Multiply(to, count, static_cast<T>(sn::UnitFactor(to, count)));
}

/// The output norm of a whole row; a zero row stays zero.
template <class T>
void NormaliseOutput(const Options& options, T* y, std::int64_t count) {
  if (options.output_norm == OutputNorm::kNone) return;
  const bool mean = options.output_norm == OutputNorm::kRms;
  sn::DivideByNorm(y, count, mean ? static_cast<double>(count) : 1, 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_NORM_INL_H_
