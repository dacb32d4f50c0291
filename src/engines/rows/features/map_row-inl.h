// One row of a feature map. A map is a struct with its formula, phi(x), beside its slope:
//
//     void Value(const MapRow<T>& row, T* phi) const;
//     void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const;
//
// Compiled once for every target.

#if defined(TTR_ROWS_FEATURES_MAP_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_FEATURES_MAP_ROW_INL_H_
#undef TTR_ROWS_FEATURES_MAP_ROW_INL_H_
#else
#define TTR_ROWS_FEATURES_MAP_ROW_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

/// `w` is [features][dim], null where the map has none (for kRebased one row, or null); `b` has
/// `features` numbers, or is null. Any alignment; results overlap nothing.
template <class T>
struct MapRow {
  const T* x;
  std::int64_t dim;
  const T* w;
  const T* b;
  std::int64_t features;
  std::int64_t position;
};

/// `dx` is overwritten; `dw` (as w) and `db` (as b) are added to, or null. Where a map has a corner
/// (ReLU at 0) its slope is 0.
template <class T>
struct MapGradient {
  T *dx, *dw, *db;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_FEATURES_MAP_ROW_INL_H_
